/* A draft head: what is read of it and what is refused; that its cache follows the engine wherever
 * that goes; and its numbers against those that PyTorch makes of the built-in model's own
 * (tools/model/train_eagle.py vectors). */
#include "infer/eagle.h"

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

#include "base/json_file.h"
#include "base/rng.h"
#include "gpu/device.h"
#include "support/backend.h"
#include "support/eagle_file.h"
#include "support/temp_folder.h"

static const char *builtin = SOL_SOURCE_DIR "/models/builtin.gguf";
static const char *trained = SOL_SOURCE_DIR "/models/builtin-eagle3";
static const char *vectors = SOL_SOURCE_DIR "/tests/data/eagle_vectors.json";
static struct model *tiny;
static const struct sample_draw likeliest = {.inverse_temperature = 1, .list = -1};
static struct gpu *gpu; /* SOL_TEST_BACKEND=cuda; else NULL */

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static struct eagle_head *open_head(const struct model *model, const char *folder)
{
    struct eagle_head *head;
    must(eagle_head_open(folder, &model->config, &head));
    return head;
}

/* ---- files ---- */

static void test_read(void **state)
{
    (void)state;
    static const struct eagle_file files[] = {
        {.draft_vocab = 50},
        {.draft_vocab = 50, .layer = "layers.0", .type = "F32"},
        {.draft_vocab = 50, .hidden = 48},
        {.draft_vocab = 50, .without = "t2d"},
        {.draft_vocab = 50, .config = "{\"eagle_config\": null, \"rope_scaling\": null}"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct eagle_file file = files[i];
        file.target = &tiny->config;
        eagle_file_write(temp_folder(), &file);
        struct eagle_head *head = open_head(tiny, temp_folder());
        assert_int_equal(head->draft_vocab, 50);
        assert_int_equal(head->layer.hidden, file.hidden ? file.hidden : tiny->config.hidden);
        assert_int_equal(head->weights.fc.cols, 3 * tiny->config.hidden);
        assert_int_equal(head->weights.embed.data != NULL, file.hidden > 0);
        for (int n = 0; n < 50; n++) assert_int_equal(head->ids[n], 3 * n);
        const int64_t layers = tiny->config.n_layers;
        assert_int_equal(head->features[0], file.config ? 2 : 0);
        assert_int_equal(head->features[2], file.config ? layers - 3 : layers);
        eagle_head_close(head);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        struct eagle_file file;
        enum sol_status status;
        const char *why;
    } cases[] = {
        {{.without = "fc.weight"}, SOL_E_FORMAT, "'fc.weight' is missing"},
        {{.without = ".mlp.up_proj.weight"},
         SOL_E_FORMAT,
         "midlayer.mlp.up_proj.weight' is missing"},
        {{.without = ".hidden_norm.weight"},
         SOL_E_FORMAT,
         "midlayer.hidden_norm.weight' is missing"},
        {{.without = "lm_head.weight"}, SOL_E_FORMAT, "'lm_head.weight' is missing"},
        {{.without = "d2t"}, SOL_E_FORMAT, "'d2t' is missing, with 50 draft tokens"},
        {{.without = "embed_tokens.weight", .hidden = 48},
         SOL_E_FORMAT,
         "'embed_tokens.weight' is"},
        {{.longer = "fc.weight"}, SOL_E_FORMAT, "'fc.weight' has 2 dimensions"},
        {{.longer = "norm.weight"}, SOL_E_FORMAT, "'norm.weight' has 1 dimensions"},
        {{.longer = "d2t"}, SOL_E_FORMAT, "'d2t' is no list of 50"},
        {{.far = 1000000}, SOL_E_FORMAT, "makes draft token 49 one that is outside"},
        {{.far = -200}, SOL_E_FORMAT, "makes draft token 49 one that is outside"},
        {{.more = "fc_norm.weight"}, SOL_E_UNSUPPORTED, "'fc_norm.weight', of which"},
        {{.more = "layers.1.hidden_norm.weight"},
         SOL_E_UNSUPPORTED,
         "'layers.1.hidden_norm.weight'"},
        {{.config = "{\"architectures\": [\"LlamaForCausalLM\"]}"},
         SOL_E_UNSUPPORTED,
         "'LlamaForCausalLM' is no EAGLE-3 head"},
        {{.config = "{\"architectures\": null}"}, SOL_E_UNSUPPORTED, "is no EAGLE-3 head"},
        {{.config = "{\"vocab_size\": 201088}"}, SOL_E_UNSUPPORTED, "and 201088 tokens; this one"},
        {{.config = "{\"target_hidden_size\": 2880}"}, SOL_E_UNSUPPORTED, "hidden size 2880 and"},
        {{.config = "{\"draft_vocab_size\": 100000}"}, SOL_E_FORMAT, "100000 draft tokens of"},
        {{.config = "{\"num_hidden_layers\": 2}"}, SOL_E_UNSUPPORTED, "a head of 2 layers"},
        {{.config = "{\"hidden_act\": \"gelu\"}"}, SOL_E_UNSUPPORTED, "'gelu' is not served"},
        {{.config = "{\"attention_bias\": true}"}, SOL_E_UNSUPPORTED, "'attention_bias'"},
        {{.config = "{\"norm_before_residual\": true}"},
         SOL_E_UNSUPPORTED,
         "'norm_before_residual'"},
        {{.config = "{\"rope_scaling\": {\"rope_type\": \"llama3\"}}"},
         SOL_E_UNSUPPORTED,
         "'llama3'"},
        {{.config = "{\"num_attention_heads\": 3}"}, SOL_E_FORMAT, "heads"},
        {{.config = "{\"head_dim\": 5}"}, SOL_E_UNSUPPORTED, "odd head dimension 5"},
        {{.config = "{\"hidden_size\": \"many\"}"}, SOL_E_FORMAT, "'hidden_size' is no integer"},
        {{.config = "{\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 2]}}"},
         SOL_E_UNSUPPORTED,
         "no list of 3 layers"},
        {{.config = "{\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 2, 77]}}"},
         SOL_E_UNSUPPORTED,
         "the head reads layer 77 of"},
        {{.config = "{\"eagle_config\": {\"use_aux_hidden_state\": false}}"},
         SOL_E_UNSUPPORTED,
         "reads one layer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct eagle_file file = cases[i].file;
        struct eagle_head *head;
        file.target = &tiny->config;
        file.draft_vocab = 50;
        eagle_file_write(temp_folder(), &file);
        const enum sol_status status = eagle_head_open(temp_folder(), &tiny->config, &head);
        if (status != cases[i].status || !strstr(sol_last_error(), cases[i].why))
            fail_msg("case %zu: status %d, '%s'", i, status, sol_last_error());
        assert_null(head);
    }
    struct eagle_head *head;
    assert_int_equal(eagle_head_open("/nonexistent", &tiny->config, &head), SOL_E_IO);
}

/* ---- an engine with a head ---- */

enum { CONTEXT = 200, TOKENS_MAX = 200, GUESSES = 4 };

struct pair {
    struct engine *engine;
    struct eagle *eagle;
};

struct where {
    struct gpu *gpu; /* NULL: the CPU */
    enum op_numerics loosest;
};

static struct pair open_pair_there(const struct model *model, const struct eagle_head *head,
                                   int64_t batch, struct where where)
{
    struct engine_params p;
    struct pair out;
    engine_params_init(&p);
    p.context = CONTEXT;
    p.max_batch = batch;
    p.max_outputs = 1;
    p.snapshots = 1;
    p.threads = 1;
    p.kv_dtype = DTYPE_F32;
    p.chooser.loosest = where.loosest;
    p.chooser.device.gpu = where.gpu;
    eagle_engine_params(&p, head);
    must(engine_create(model, &p, &out.engine));
    must(eagle_create(out.engine, head, &out.eagle));
    return out;
}

static struct pair open_pair(const struct model *model, const struct eagle_head *head,
                             int64_t batch)
{
    return open_pair_there(model, head, batch, (struct where){.loosest = NUMERICS_EXACT});
}

static void close_pair(struct pair *p)
{
    eagle_destroy(p->eagle);
    engine_destroy(p->engine);
}

static void feed(struct engine *engine, const int32_t *tokens, int64_t n)
{
    struct engine_row rows[TOKENS_MAX];
    for (int64_t i = 0; i < n; i++) rows[i] = (struct engine_row){.token = tokens[i]};
    must(engine_eval(engine, rows, n, NULL, NULL, NULL));
}

struct guessed {
    int32_t tokens[GUESSES];
    float sure[GUESSES];
    int64_t n;
    float logits[4096]; /* of the last */
};

static void guess(struct pair *p, int32_t newest, struct guessed *out)
{
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < GUESSES; i++) {
        struct eagle_guess made;
        must(eagle_guess(p->eagle, i, i ? out->tokens[i - 1] : newest, &likeliest, &made));
        if (made.token < 0) break;
        out->tokens[out->n++] = made.token;
        out->sure[i] = made.sure;
    }
    must(eagle_logits(p->eagle, out->logits));
}

/* The same text computed at once, in another engine. */
static void check_fresh(const struct model *model, const struct eagle_head *head,
                        const int32_t *text, int64_t n, const struct guessed *got)
{
    struct guessed fresh;
    struct pair p = open_pair(model, head, CONTEXT);
    feed(p.engine, text, n - 1);
    guess(&p, text[n - 1], &fresh);
    assert_int_equal(got->n, GUESSES);
    assert_memory_equal(&fresh, got, sizeof fresh);
    close_pair(&p);
}

static struct eagle_head *random_head(void)
{
    const struct eagle_file file = {.target = &tiny->config, .draft_vocab = 70};
    eagle_file_write(temp_folder(), &file);
    return open_head(tiny, temp_folder());
}

/* Prompts in pieces, then steps with guesses of which some, all or none are taken. */
static void test_follows(void **state)
{
    (void)state;
    struct eagle_head *head = random_head();
    struct pair p = open_pair(tiny, head, 7);
    struct guessed g;
    struct rng rng;
    int32_t text[TOKENS_MAX];
    int64_t n = 24;
    rng_seed(&rng, 5);
    for (int64_t i = 0; i < n; i++) text[i] = (int32_t)rng_range(&rng, 0, tiny->config.vocab - 1);
    feed(p.engine, text, n - 1);
    for (int step = 0; step < 25; step++) {
        guess(&p, text[n - 1], &g);
        check_fresh(tiny, head, text, n, &g);
        const int64_t right = step % 5 == 4 ? 0 : rng_range(&rng, 0, GUESSES);
        memcpy(text + n, g.tokens, sizeof g.tokens);
        feed(p.engine, text + n - 1, 1 + GUESSES);
        must(engine_go_back(p.engine, 0, n + right));
        n += right;
        text[n++] = (int32_t)rng_range(&rng, 0, tiny->config.vocab - 1);
    }
    assert_true(n > 60);
    close_pair(&p);
    eagle_head_close(head);
}

/* Steps in which nothing was guessed, another text, and a snapshot, behind which the head has to
 * see a token first. */
static void test_turns(void **state)
{
    (void)state;
    struct eagle_head *head = random_head();
    struct pair p = open_pair(tiny, head, 16);
    struct guessed g;
    int32_t text[TOKENS_MAX];
    for (int32_t i = 0; i < TOKENS_MAX; i++) text[i] = (i * 37 + 5) % (int32_t)tiny->config.vocab;
    guess(&p, text[0], &g);
    assert_int_equal(g.n, 0);
    for (int64_t i = 0; i < 20; i++) feed(p.engine, text + i, 1);
    guess(&p, text[20], &g);
    check_fresh(tiny, head, text, 21, &g);
    must(engine_snapshot(p.engine, 0, 20, 0));

    engine_reset(p.engine, 0);
    feed(p.engine, text + 100, 30);
    guess(&p, text[130], &g);
    check_fresh(tiny, head, text + 100, 31, &g);

    must(engine_restore(p.engine, 0, 0));
    feed(p.engine, text + 20, 30);
    guess(&p, text[50], &g);
    assert_int_equal(g.n, GUESSES);
    close_pair(&p);

    struct engine_params params;
    struct engine *engine;
    struct eagle *eagle;
    engine_params_init(&params);
    params.context = 64;
    must(engine_create(tiny, &params, &engine));
    assert_int_equal(eagle_create(engine, head, &eagle), SOL_E_ARGUMENT);
    engine_destroy(engine);
    eagle_head_close(head);
}

/* ---- numbers ---- */

/* The probability of the largest. */
static double share(const float *logits, int64_t n)
{
    double top = -INFINITY, total = 0;
    for (int64_t i = 0; i < n; i++) top = fmax(top, logits[i]);
    for (int64_t i = 0; i < n; i++) total += exp(logits[i] - top);
    return 1 / total;
}

static void check_vector(struct model *model, const struct eagle_head *head, const json_t *v)
{
    const json_t *ids = json_object_get(v, "ids"), *logits = json_object_get(v, "logits");
    const json_t *wanted = json_object_get(v, "guesses");
    const int64_t n = (int64_t)json_array_size(ids);
    int32_t text[TOKENS_MAX];
    struct eagle_guess got = {0};
    struct pair p = open_pair(model, head, 64);
    for (int64_t i = 0; i < n; i++)
        text[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    feed(p.engine, text, n - 1);
    for (int64_t k = 0; k < GUESSES; k++) {
        float made[4096];
        double error = 0, size = 0;
        const json_t *row = json_array_get(logits, (size_t)k);
        must(eagle_guess(p.eagle, k, k ? got.token : text[n - 1], &likeliest, &got));
        must(eagle_logits(p.eagle, made));
        assert_int_equal(got.token, json_integer_value(json_array_get(wanted, (size_t)k)));
        assert_float_equal(got.sure, share(made, head->draft_vocab), 1e-5);
        for (size_t i = 0; i < json_array_size(row); i++) {
            const double want = json_number_value(json_array_get(row, i));
            error += (made[i] - want) * (made[i] - want);
            size += want * want;
        }
        print_message("%lld tokens, guess %lld: relative error %.1e\n", (long long)n,
                      (long long)k + 1, sqrt(error / size));
        assert_true(sqrt(error / size) < 2e-5);
    }
    close_pair(&p);
}

static void test_vectors(void **state)
{
    (void)state;
    struct model *model;
    json_t *all;
    if (access(builtin, R_OK) != 0 || access(trained, R_OK) != 0) {
        print_message("skipped: there is no built-in model with a head\n");
        return;
    }
    must(model_open(builtin, &model));
    must(json_file_read(vectors, &all));
    struct eagle_head *head = open_head(model, trained);
    assert_true(json_array_size(all) > 2);
    for (size_t i = 0; i < json_array_size(all); i++)
        check_vector(model, head, json_array_get(all, i));
    eagle_head_close(head);
    json_decref(all);
    model_close(model);
}

/* ---- a GPU ---- */

/* Of guess number k behind a text, and behind the same guesses before it. */
static double error_of(const struct eagle_head *head, struct pair *cpu, struct pair *there,
                       int64_t k, int32_t before, int32_t *guess)
{
    struct eagle_guess wanted, got;
    float a[4096], b[4096];
    double error = 0, size = 0;
    must(eagle_guess(cpu->eagle, k, before, &likeliest, &wanted));
    must(eagle_logits(cpu->eagle, a));
    must(eagle_guess(there->eagle, k, before, &likeliest, &got));
    must(eagle_logits(there->eagle, b));
    for (int64_t i = 0; i < head->draft_vocab; i++) {
        error += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        size += (double)a[i] * (double)a[i];
    }
    assert_float_equal(got.sure, share(b, head->draft_vocab), 1e-5);
    *guess = wanted.token;
    return sqrt(error / size);
}

/* As on the CPU; less exactly where weights are in Q8_0 and kernels may round. */
static void check_gpu(const struct model *model, const struct eagle_head *head,
                      enum op_numerics loosest, double limit)
{
    enum { LENGTH = 30 };
    int32_t text[LENGTH + 1 + GUESSES];
    for (int32_t i = 0; i <= LENGTH; i++) text[i] = (i * 37 + 5) % (int32_t)model->config.vocab;
    struct pair cpu = open_pair(model, head, 64);
    struct pair there = open_pair_there(model, head, 64, (struct where){gpu, loosest});
    feed(cpu.engine, text, LENGTH);
    feed(there.engine, text, LENGTH);
    for (int64_t k = 0; k < GUESSES; k++) {
        const double error =
            error_of(head, &cpu, &there, k, text[LENGTH + k], &text[LENGTH + 1 + k]);
        print_message("guess %lld: relative error %.1e, at most %.0e\n", (long long)k + 1, error,
                      limit);
        assert_true(error < limit);
    }
    close_pair(&there);
    close_pair(&cpu);
}

static void test_gpu_numbers(void **state)
{
    (void)state;
    if (!gpu) {
        print_message("skipped: a GPU's, with SOL_TEST_BACKEND=cuda\n");
        return;
    }
    /* Its matrices have no whole pieces of rows, so they are not stacked. */
    struct eagle_head *head = random_head();
    check_gpu(tiny, head, NUMERICS_EXACT, 2e-5);
    check_gpu(tiny, head, NUMERICS_USUAL, 5e-2);
    eagle_head_close(head);
    if (access(builtin, R_OK) != 0 || access(trained, R_OK) != 0) return;
    struct model *model;
    must(model_open(builtin, &model));
    head = open_head(model, trained);
    check_gpu(model, head, NUMERICS_EXACT, 2e-5);
    check_gpu(model, head, NUMERICS_USUAL, 5e-2);
    eagle_head_close(head);
    model_close(model);
}

static int open_tiny(void **state)
{
    (void)state;
    gpu = test_gpu();
    return model_open("synth:tiny", &tiny) == SOL_OK ? 0 : -1;
}

static int close_tiny(void **state)
{
    (void)state;
    model_close(tiny);
    gpu_close(gpu);
    return 0;
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_read),  IN_FOLDER(test_refused),        IN_FOLDER(test_follows),
        IN_FOLDER(test_turns), cmocka_unit_test(test_vectors), IN_FOLDER(test_gpu_numbers),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}
