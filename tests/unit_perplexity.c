/* Perplexity by the library against the definition, computed here from the logits of one long step.
 */
#include "infer/perplexity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 100 };

static struct model *model;
static int32_t tokens[N];

static int open_model(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) tokens[i] = (i * 37 + i * i) % 250;
    return model_open(SOL_SOURCE_DIR "/tests/golden/odd_bf16.gguf", &model) != SOL_OK;
}

static int close_model(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

static struct engine_params exact_params(void)
{
    struct engine_params params;
    engine_params_init(&params);
    params.chooser.loosest = NUMERICS_EXACT;
    params.kv_dtype = DTYPE_F32;
    return params;
}

/* Negative log-likelihoods of inputs[1..n], inputs[0..n-1] being fed from position 0. */
static void plain_nll(const int32_t *inputs, int n, double nll[N])
{
    struct engine_params params = exact_params();
    struct engine *engine;
    struct engine_row rows[N];
    const float *logits;
    params.context = params.max_batch = params.max_outputs = N;
    assert_int_equal(engine_create(model, &params, &engine), SOL_OK);
    for (int i = 0; i < n; i++) rows[i] = (struct engine_row){.token = inputs[i], .output = true};
    assert_int_equal(engine_eval(engine, rows, n, NULL, NULL, &logits), SOL_OK);
    int64_t vocab = model->config.vocab;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < vocab; j++) sum += exp((double)logits[i * vocab + j]);
        nll[i] = log(sum) - (double)logits[i * vocab + inputs[i + 1]];
    }
    engine_destroy(engine);
}

static struct perplexity_result measure(struct perplexity_params how, int64_t batch, int64_t n)
{
    struct engine_params params = exact_params();
    struct perplexity_result result;
    struct engine *engine;
    params.max_batch = batch;
    perplexity_prepare(model, &how, &params);
    assert_true(how.step <= batch);
    assert_int_equal(engine_create(model, &params, &engine), SOL_OK);
    assert_int_equal(perplexity_measure(engine, NULL, tokens, n, &how, &result), SOL_OK);
    engine_destroy(engine);
    return result;
}

static void check(struct perplexity_params how, int64_t n, const double *nll, int count)
{
    static const int64_t batches[] = {1, 7, 512};
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++) sum += nll[i];
    for (int i = 0; i < count; i++) squares += pow(nll[i] - sum / count, 2);
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        struct perplexity_result r = measure(how, batches[b], n);
        assert_int_equal(r.scored, count);
        assert_float_equal(r.nll, sum / count, 1e-4);
        assert_float_equal(r.perplexity, exp(r.nll), 1e-9 * r.perplexity);
        assert_float_equal(r.nll_error, sqrt(squares / count / (count - 1)), 1e-4);
        assert_true(r.bits_per_byte > 0);
        assert_false(r.compared);
    }
}

static void test_windows(void **state)
{
    (void)state;
    struct perplexity_params how;
    double nll[N], part[N];
    perplexity_params_init(&how);
    how.context = 40; /* 40, 40 and 19 of the 99 that can be predicted */
    for (int at = 0; at < N - 1; at += 40) {
        int n = N - 1 - at < 40 ? N - 1 - at : 40;
        plain_nll(tokens + at, n, part);
        for (int i = 0; i < n; i++) nll[at + i] = part[i];
    }
    check(how, N, nll, N - 1);

    how.context = 200; /* longer than the text */
    plain_nll(tokens, N - 1, nll);
    check(how, N, nll, N - 1);
}

static void test_stride(void **state)
{
    (void)state;
    struct perplexity_params how;
    double nll[N], part[N];
    int done = 0;
    perplexity_params_init(&how);
    how.context = 32;
    how.stride = 10;
    for (int at = 0; done < N - 1; at += 10) {
        int n = N - 1 - at < 32 ? N - 1 - at : 32;
        plain_nll(tokens + at, n, part);
        for (; done < at + n; done++) nll[done] = part[done - at];
    }
    check(how, N, nll, N - 1);
}

static void test_llama(void **state)
{
    (void)state;
    struct perplexity_params how;
    double nll[N], part[N];
    int count = 0;
    perplexity_params_init(&how);
    how.context = 30; /* three windows, ten tokens are left over */
    how.llama = true;
    for (int bos = -1; bos < 6; bos += 6) {
        how.bos = bos;
        count = 0;
        for (int at = 0; at + 30 <= N; at += 30) {
            int32_t window[30];
            for (int i = 0; i < 30; i++) window[i] = i == 0 && bos >= 0 ? bos : tokens[at + i];
            plain_nll(window, 29, part);
            for (int i = 15; i < 29; i++) nll[count++] = part[i];
        }
        assert_int_equal(count, 3 * 14);
        check(how, N, nll, count);
    }
}

/* Against itself nothing differs; against a coarser cache something does, and a little only. */
static void test_divergence(void **state)
{
    (void)state;
    struct engine_params params = exact_params(), coarse;
    struct perplexity_params how;
    struct perplexity_result r;
    struct engine *engine, *same, *other;
    perplexity_params_init(&how);
    how.context = 64;
    perplexity_prepare(model, &how, &params);
    coarse = params;
    coarse.kv_dtype = DTYPE_BF16;
    assert_int_equal(engine_create(model, &params, &engine), SOL_OK);
    assert_int_equal(engine_create(model, &params, &same), SOL_OK);
    assert_int_equal(engine_create(model, &coarse, &other), SOL_OK);
    assert_int_equal(perplexity_measure(engine, same, tokens, N, &how, &r), SOL_OK);
    assert_true(r.compared && r.kl_mean == 0 && r.kl_max == 0 && r.top1 == 1 && r.top_margin == 0);
    assert_true(r.nll == r.reference_nll && r.difference_error == 0);
    assert_int_equal(perplexity_measure(other, engine, tokens, N, &how, &r), SOL_OK);
    assert_true(r.kl_mean > 0 && r.kl_mean < 1e-2 && r.kl_max >= r.kl_mean);
    assert_true(r.nll != r.reference_nll && r.difference_error > 0);
    engine_destroy(engine);
    engine_destroy(same);
    engine_destroy(other);
}

enum { GIVEN_ROWS = 5 };

/* Logits of the last of a few rows, and the experts of all. */
static void run_given(struct engine *engine, struct engine_given *given, int32_t *noted,
                      float *last)
{
    struct engine_row rows[GIVEN_ROWS];
    const float *logits;
    for (int i = 0; i < GIVEN_ROWS; i++)
        rows[i] = (struct engine_row){.token = tokens[i], .output = i == GIVEN_ROWS - 1};
    engine_note_experts(engine, noted);
    assert_int_equal(engine_give_experts(engine, given), SOL_OK);
    engine_reset(engine, 0);
    assert_int_equal(engine_eval(engine, rows, GIVEN_ROWS, NULL, NULL, &logits), SOL_OK);
    memcpy(last, logits, (size_t)model->config.vocab * sizeof *last);
}

static double farthest(const float *a, const float *b)
{
    double most = 0;
    for (int64_t i = 0; i < model->config.vocab; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* An engine that is given its own experts in another order says the same; given others it has
 * those, tells how far they are behind, and says something else; given none any more, the same. */
static void test_given_experts(void **state)
{
    (void)state;
    const struct model_config *c = &model->config;
    const int64_t top_k = c->top_k, choices = c->n_layers * GIVEN_ROWS;
    const size_t bytes = (size_t)(choices * top_k) * sizeof(int32_t);
    const size_t logits_bytes = (size_t)c->vocab * sizeof(float);
    int32_t *own = malloc(bytes), *give = malloc(bytes), *noted = malloc(bytes);
    float *before = malloc(logits_bytes), *after = malloc(logits_bytes);
    struct engine_given given = {.experts = give};
    struct engine_params params = exact_params();
    struct engine *engine;
    assert_true(own && give && noted && before && after && c->n_experts > top_k && top_k > 1);
    params.context = 2 * GIVEN_ROWS;
    assert_int_equal(engine_create(model, &params, &engine), SOL_OK);
    run_given(engine, NULL, own, before);

    for (int64_t i = 0; i < choices * top_k; i++)
        give[i] = own[i / top_k * top_k + top_k - 1 - i % top_k];
    run_given(engine, &given, noted, after);
    assert_memory_equal(noted, give, bytes);
    assert_int_equal(given.choices, choices);
    assert_true(given.others == 0 && given.behind == 0 && farthest(after, before) < 1e-4);

    for (int64_t i = 0; i < choices * top_k; i++) give[i] = (int32_t)(c->n_experts - 1 - i % top_k);
    run_given(engine, &given, noted, after);
    assert_memory_equal(noted, give, bytes);
    assert_int_equal(given.choices, 2 * choices);
    assert_true(given.others > 0 && given.behind > 0 && farthest(after, before) > 1e-2);

    run_given(engine, NULL, noted, after);
    assert_memory_equal(noted, own, bytes);
    assert_memory_equal(after, before, logits_bytes);
    engine_destroy(engine);
    free(own), free(give), free(noted), free(before), free(after);
}

/* With the same experts: against itself none are others; against a coarser cache it is closer. */
static void test_same_experts(void **state)
{
    (void)state;
    struct engine_params params = exact_params();
    struct perplexity_params how;
    struct perplexity_result r, free_choice;
    struct engine *engine, *same, *other;
    perplexity_params_init(&how);
    how.context = 64;
    perplexity_prepare(model, &how, &params);
    assert_int_equal(engine_create(model, &params, &engine), SOL_OK);
    assert_int_equal(engine_create(model, &params, &same), SOL_OK);
    params.chooser.loosest = NUMERICS_I8;
    params.kv_dtype = DTYPE_BF16;
    assert_int_equal(engine_create(model, &params, &other), SOL_OK);
    assert_int_equal(perplexity_measure(other, engine, tokens, N, &how, &free_choice), SOL_OK);
    how.same_experts = true;
    assert_int_equal(perplexity_measure(same, engine, tokens, N, &how, &r), SOL_OK);
    assert_true(r.kl_mean == 0 && r.other_experts == 0 && r.experts_behind == 0);
    assert_int_equal(perplexity_measure(other, engine, tokens, N, &how, &r), SOL_OK);
    assert_true(r.kl_mean > 0 && r.kl_mean <= free_choice.kl_mean);
    assert_true(r.other_experts < 0.1 && r.experts_behind < 0.2);
    assert_true((r.other_experts > 0) == (r.experts_behind > 0));
    how.same_experts = false; /* and nothing stays */
    assert_int_equal(perplexity_measure(other, engine, tokens, N, &how, &r), SOL_OK);
    assert_true(r.kl_mean == free_choice.kl_mean && r.kl_max == free_choice.kl_max);
    engine_destroy(engine);
    engine_destroy(same);
    engine_destroy(other);
}

static void test_refused(void **state)
{
    (void)state;
    struct engine_params params = exact_params();
    struct perplexity_params how;
    struct perplexity_result r;
    struct engine *engine;
    perplexity_params_init(&how);
    how.context = 64;
    perplexity_prepare(model, &how, &params);
    assert_int_equal(engine_create(model, &params, &engine), SOL_OK);
    assert_int_equal(perplexity_measure(engine, NULL, tokens, 1, &how, &r), SOL_E_ARGUMENT);
    how.stride = 65;
    assert_int_equal(perplexity_measure(engine, NULL, tokens, N, &how, &r), SOL_E_ARGUMENT);
    how.stride = 0;
    how.llama = true; /* 100 tokens are less than two windows of 64 */
    assert_int_equal(perplexity_measure(engine, NULL, tokens, N, &how, &r), SOL_E_ARGUMENT);
    int32_t bad[] = {1, 2, 288, 3};
    how.llama = false;
    how.same_experts = true; /* as nobody's */
    assert_int_equal(perplexity_measure(engine, NULL, tokens, N, &how, &r), SOL_E_ARGUMENT);
    how.same_experts = false;
    assert_int_equal(perplexity_measure(engine, NULL, bad, 4, &how, &r), SOL_E_ARGUMENT);
    engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),       cmocka_unit_test(test_stride),
        cmocka_unit_test(test_llama),         cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_given_experts), cmocka_unit_test(test_same_experts),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
