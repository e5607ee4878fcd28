/* The built-in model on text that it was not trained on: what each kernel that may serve it costs
 * in perplexity, and that generation is reproducible. Unlike the random models of the other golden
 * tests a trained one shows accuracy as its users meet it.
 *
 * Yardstick: the fast float32 kernels over the whole text, which are first held against the plain
 * references on its beginning. Bounds: perplexity within 0.1 %, and KL(float32 || kernels) of
 * 2e-3 nats per token on average (int8 activations; 0.1 % of perplexity is 1e-3 nats).
 *
 * usage: golden_builtin [MODEL TEXT] */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "infer/engine.h"
#include "infer/perplexity.h"
#include "infer/sampler.h"
#include "ops/ops.h"
#include "support/effort.h"
#include "support/prose.h"

static const double PERPLEXITY_BOUND = 1e-3;
static const double KL_BOUND = 2e-3;
static const double EXACT_KL_BOUND = 1e-6;

enum {
    WINDOW = 512,
    TEXT_TOKENS = 4096, /* of the text at most */
    SLOW_TOKENS = 256,  /* where float32 is the plain reference: a sanitized build must end too */
    PART_TOKENS = 640,  /* where there are many runs */
    PART_LEAST = 130,   /* one behind the window */
    REFERENCE_TOKENS = 160, /* for the plain references, which crawl */
    GENERATED = 32,
};

static const char *model_path = SOL_SOURCE_DIR "/models/builtin.gguf";
static const char *text_path = SOL_SOURCE_DIR "/tests/data/heldout.txt";
static struct model *model; /* NULL: skip */
static struct token_list text;
static int64_t part_tokens;

/* ---- files ---- */

static int skip_all(const char *path)
{
    print_message("skipped: %s is not there\n", path);
    return 0;
}

static struct engine *open_engine(const struct engine_params *params)
{
    struct engine *engine;
    if (engine_create(model, params, &engine) != SOL_OK) fail_msg("%s", sol_last_error());
    return engine;
}

static struct engine_params exact_params(bool reference)
{
    struct engine_params params;
    engine_params_init(&params);
    params.kv_dtype = DTYPE_F32;
    params.chooser.loosest = NUMERICS_EXACT;
    params.chooser.reference = reference;
    return params;
}

/* Whether this machine has a fast float32 product for the head's weights. */
static bool exact_is_fast(void)
{
    struct engine_params params = exact_params(false);
    struct engine *engine = open_engine(&params);
    struct engine_row row = {.token = text.ids[0], .output = true};
    assert_int_equal(engine_eval(engine, &row, 1, NULL, NULL, NULL), SOL_OK);
    const struct plan *plan = engine_last_plan(engine);
    const struct plan_step *last = plan_step_at(plan, plan_step_count(plan) - 1);
    bool fast = strcmp(last->variant, "reference") != 0;
    engine_destroy(engine);
    return fast;
}

static int open_files(void **state)
{
    (void)state;
    static char bytes[1 << 17];
    if (access(model_path, R_OK) != 0) return skip_all(model_path);
    size_t length;
    const char *prose = prose_read(text_path, bytes, sizeof bytes, &length);
    if (!prose) return skip_all(text_path);
    if (model_open(model_path, &model) != SOL_OK ||
        tokenizer_encode(model->tokenizer, prose, length, false, &text) != SOL_OK)
        fail_msg("%s", sol_last_error());
    size_t most = exact_is_fast() ? TEXT_TOKENS : SLOW_TOKENS;
    if (most == SLOW_TOKENS) print_message("no fast float32 product here: less text\n");
    most = (size_t)effort("tokens of the text", (int64_t)most, REFERENCE_TOKENS + 1);
    part_tokens = effort("tokens where there are many runs", PART_TOKENS, PART_LEAST);
    if (text.count > most) text.count = most;
    assert_true(text.count > REFERENCE_TOKENS);
    print_message("%s: %zu tokens of %s\n", model_path, text.count, text_path);
    return 0;
}

static int close_files(void **state)
{
    (void)state;
    token_list_free(&text);
    model_close(model);
    return 0;
}

/* ---- accuracy ---- */

static int64_t part(void)
{
    return (int64_t)text.count < part_tokens ? (int64_t)text.count : part_tokens;
}

/* `params` against `expected` on the first `n` tokens. `batch` rows a step. */
static struct perplexity_result measure(struct engine_params params, struct engine_params expected,
                                        int64_t n, int64_t batch)
{
    struct perplexity_params how;
    struct perplexity_result result;
    perplexity_params_init(&how);
    how.context = WINDOW < model->config.context ? WINDOW : model->config.context;
    params.max_batch = expected.max_batch = batch;
    perplexity_prepare(model, &how, &params);
    perplexity_prepare(model, &how, &expected);
    struct engine *engine = open_engine(&params), *reference = open_engine(&expected);
    if (perplexity_measure(engine, reference, text.ids, n, &how, &result) != SOL_OK)
        fail_msg("%s", sol_last_error());
    engine_destroy(engine);
    engine_destroy(reference);
    return result;
}

/* On few tokens the mean has not settled: two standard errors of the paired difference are allowed
 * on top, which is next to nothing over the whole text. */
static void check(const char *what, const struct perplexity_result *r, double kl_bound)
{
    double change = exp(r->nll - r->reference_nll) - 1;
    print_message(
        "%-30s %5lld tokens: perplexity %.4f, %+.4f +- %.4f %% of float32's; KL mean %.1e, "
        "max %.1e; same top token %.2f %%\n",
        what, (long long)r->scored, r->perplexity, 100 * change, 100 * r->difference_error,
        r->kl_mean, r->kl_max, 100 * r->top1);
    assert_true(fabs(change) <= PERPLEXITY_BOUND + 2 * r->difference_error);
    assert_true(r->kl_mean <= kl_bound);
}

static void test_exact(void **state)
{
    (void)state;
    if (!model) skip();
    struct perplexity_result r =
        measure(exact_params(false), exact_params(true), REFERENCE_TOKENS, 512);
    check("exact, against the references", &r, EXACT_KL_BOUND);
    r = measure(exact_params(false), exact_params(false), REFERENCE_TOKENS, 64);
    check("exact, against itself", &r, 0);
}

static void test_default(void **state)
{
    (void)state;
    if (!model) skip();
    struct engine_params params;
    engine_params_init(&params);
    struct perplexity_result r = measure(params, exact_params(false), (int64_t)text.count, 512);
    check("default", &r, KL_BOUND);
    /* As decoding does it: few rows, other kernels. */
    r = measure(params, exact_params(false), REFERENCE_TOKENS, 1);
    check("default, row by row", &r, KL_BOUND);
}

/* Each variant of gemm in turn, wherever it can serve this model. */
static void test_each_gemm(void **state)
{
    (void)state;
    if (!model) skip();
    for (int v = 0; v < op_gemm.n_variants; v++) {
        const struct op_variant *variant = op_gemm.variants[v];
        struct engine_params params = exact_params(false);
        char why[OP_REASON_MAX];
        if (!op_variant_fits(variant, &params.chooser.device, why)) {
            print_message("%-30s skipped: %s\n", variant->name, why);
            continue;
        }
        char force[128];
        snprintf(force, sizeof force, "gemm=%s", variant->name);
        assert_int_equal(chooser_force(&params.chooser, force), SOL_OK);
        struct perplexity_result r = measure(params, exact_params(false), part(), 512);
        check(variant->name, &r, variant->numerics == NUMERICS_EXACT ? EXACT_KL_BOUND : KL_BOUND);
    }
    struct engine_params params = exact_params(false);
    assert_int_equal(chooser_force(&params.chooser, "gemm=reference"), SOL_OK);
    struct perplexity_result r = measure(params, exact_params(false), REFERENCE_TOKENS, 512);
    check("gemm reference", &r, EXACT_KL_BOUND);
}

/* The cache formats, by exact kernels. */
static void test_caches(void **state)
{
    (void)state;
    if (!model) skip();
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct engine_params params = exact_params(false);
        params.kv_dtype = dtypes[i];
        char what[32];
        snprintf(what, sizeof what, "exact, cache in %s", dtype_info(dtypes[i])->name);
        struct perplexity_result r = measure(params, exact_params(false), part(), 512);
        check(what, &r, KL_BOUND);
    }
}

/* ---- generation ---- */

/* GENERATED tokens after the first 100 of the text, which are fed in steps of `chunk`. */
static void generate(struct engine_params params, int64_t chunk, const struct sampler_params *how,
                     int32_t ids[GENERATED])
{
    enum { PROMPT = 100 };
    struct sampler *sampler;
    struct engine_row rows[PROMPT];
    params.context = PROMPT + GENERATED;
    params.max_batch = chunk;
    struct engine *engine = open_engine(&params);
    assert_int_equal(sampler_create(how, model->config.vocab, NULL, &sampler), SOL_OK);
    for (int i = 0; i < PROMPT; i++)
        rows[i] = (struct engine_row){.token = text.ids[i], .output = i == PROMPT - 1};
    const float *logits;
    assert_int_equal(engine_eval(engine, rows, PROMPT, NULL, NULL, &logits), SOL_OK);
    for (int i = 0; i < GENERATED; i++) {
        assert_int_equal(sampler_next(sampler, logits, &ids[i]), SOL_OK);
        rows[0] = (struct engine_row){.token = ids[i], .output = true};
        assert_int_equal(engine_eval(engine, rows, 1, NULL, NULL, &logits), SOL_OK);
    }
    sampler_destroy(sampler);
    engine_destroy(engine);
}

static void print_ids(const char *what, const int32_t ids[GENERATED])
{
    print_message("%s: ", what);
    for (int i = 0; i < GENERATED; i++) {
        struct token_bytes bytes = tokenizer_bytes(model->tokenizer, ids[i]);
        for (size_t j = 0; j < bytes.length; j++)
            print_message("%c", (unsigned char)bytes.data[j] < 32 ? ' ' : bytes.data[j]);
    }
    print_message("\n");
}

static void test_greedy(void **state)
{
    (void)state;
    if (!model) skip();
    struct sampler_params greedy;
    sampler_params_init(&greedy);
    greedy.temperature = 0;
    int32_t whole[GENERATED], other[GENERATED];
    generate(exact_params(false), 512, &greedy, whole);
    print_ids("greedy", whole);
    static const int64_t chunks[] = {33, 1};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        generate(exact_params(false), chunks[i], &greedy, other);
        assert_memory_equal(whole, other, sizeof whole);
    }
    struct engine_params params;
    engine_params_init(&params);
    generate(params, 512, &greedy, whole);
    generate(params, 512, &greedy, other);
    assert_memory_equal(whole, other, sizeof whole);
    params.threads = 1; /* the number of threads does not show either */
    generate(params, 512, &greedy, other);
    assert_memory_equal(whole, other, sizeof whole);
}

static void test_seed(void **state)
{
    (void)state;
    if (!model) skip();
    struct sampler_params how;
    sampler_params_init(&how);
    struct engine_params params;
    engine_params_init(&params);
    int32_t first[GENERATED], again[GENERATED], other[GENERATED];
    how.seed = 7;
    generate(params, 512, &how, first);
    generate(params, 512, &how, again);
    how.seed = 8;
    generate(params, 512, &how, other);
    print_ids("seed 7", first);
    print_ids("seed 8", other);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        model_path = argv[1];
        text_path = argv[2];
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),  cmocka_unit_test(test_default),
        cmocka_unit_test(test_caches), cmocka_unit_test(test_each_gemm),
        cmocka_unit_test(test_greedy), cmocka_unit_test(test_seed),
    };
    return cmocka_run_group_tests(tests, open_files, close_files);
}
