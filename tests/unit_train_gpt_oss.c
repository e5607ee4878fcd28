/* gpt-oss in training: every parameter's gradient against the slope of the loss along it; what a
 * checkpoint's model says of tokens against what the trainer evaluates, by the engine of inference;
 * and that a run goes on from it with the same bits. */
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

#include "base/rng.h"
#include "base/status.h"
#include "infer/perplexity.h"
#include "model/requantise.h"
#include "train/checkpoint.h"

enum { VOCAB = 96, LENGTH = 48, SEQUENCES = 2, ROWS = LENGTH * SEQUENCES };

static const char flags_text[] =
    "--arch=gpt-oss --depth=3 --width=64 --head-dim=16 --kv-heads=2 --experts=6 --top-k=2 "
    "--expert-width=32 --sliding-window=9 --max-seq-len=48 --total-batch-size=96 "
    "--num-iterations=20 --warmup-steps=2 --matrix-lr=0.6 --embedding-lr=3 --unembedding-lr=0.1 "
    "--scalar-lr=5";

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static void settle_rounded(double balance, double mxfp4_from, struct train_recipe *out)
{
    static char *memory; /* flags of all recipes point into it */
    static struct train_flags parsed;
    if (!memory) must(train_flags_parse("test", flags_text, &parsed, &memory));
    struct train_flags flags = parsed;
    flags.balance = balance;
    flags.mxfp4_from = mxfp4_from;
    must(recipe_settle(&flags, VOCAB, out));
}

static void settle(double balance, struct train_recipe *out)
{
    settle_rounded(balance, 1, out);
}

static struct trainer *create(const struct train_recipe *recipe, bool exact)
{
    struct trainer_params p;
    struct trainer *t;
    trainer_params_init(&p);
    p.recipe = recipe;
    p.sequences = SEQUENCES;
    p.threads = 2;
    p.chooser.reference = exact;
    must(trainer_create(&p, &t));
    must(trainer_init(t));
    return t;
}

struct tokens {
    int32_t x[ROWS], y[ROWS];
};

static void draw_tokens(struct rng *rng, struct tokens *t)
{
    for (int i = 0; i < ROWS; i++) {
        if (i % LENGTH == 0) t->x[i] = (int32_t)rng_range(rng, 0, VOCAB - 1);
        t->y[i] = (t->x[i] * 7 + 3) % VOCAB;
        if (rng_range(rng, 0, 9) == 0) t->y[i] = (int32_t)rng_range(rng, 0, VOCAB - 1);
        if (i % LENGTH != LENGTH - 1) t->x[i + 1] = t->y[i];
    }
}

static double evaluate(struct trainer *t, const struct tokens *tokens)
{
    const struct micro_batch batch = {.x = tokens->x, .y = tokens->y};
    float nll[ROWS];
    double sum = 0;
    must(trainer_evaluate(t, &batch, nll));
    for (int i = 0; i < ROWS; i++) sum += (double)nll[i];
    return sum / ROWS;
}

static void add_gradients(struct trainer *t, const struct tokens *tokens)
{
    const struct micro_batch batch = {.x = tokens->x, .y = tokens->y};
    must(trainer_micro(t, &batch, 1, false));
}

/* Of the same numbers left out each time, where some are. */
static double micro_loss(struct trainer *t, const struct tokens *tokens)
{
    must(trainer_drop_gradients(t));
    add_gradients(t, tokens);
    return (double)*trainer_activations(t)->at.loss;
}

static double train(struct trainer *t, int64_t first, int64_t steps)
{
    struct rng rng;
    struct tokens tokens;
    double loss = 0, norm;
    rng_seed(&rng, 5 + (uint64_t)first);
    for (int64_t step = first; step < first + steps; step++) {
        draw_tokens(&rng, &tokens);
        add_gradients(t, &tokens);
        must(trainer_update(t, step, false));
        must(trainer_results(t, step, &loss, &norm));
    }
    return loss;
}

/* ---- gradients ---- */

/* All weights far from the zeros that they begin with, so that every path counts. */
static void spread_weights(struct params *p, struct rng *rng)
{
    for (int i = 0; i < p->count; i++) {
        float *x = p->all[i].value.data;
        const bool vector = p->all[i].group == GROUP_VECTORS;
        const double sd = vector ? 0.3 : p->all[i].group == GROUP_EMBED ? 1 : 0.12;
        for (int64_t k = 0; k < p->all[i].rows * p->all[i].cols; k++)
            x[k] += (float)sd * rng_normal(rng);
    }
}

enum { LAYERS = 3, TOP_K = 2, SLOTS = LAYERS * ROWS * TOP_K };

/* Which experts the last evaluation chose. */
static void chosen_experts(const struct trainer *t, int32_t out[SLOTS])
{
    const struct layer_buffers *layers = trainer_activations(t)->at.layers;
    for (int n = 0; n < LAYERS; n++)
        memcpy(out + (ptrdiff_t)n * ROWS * TOP_K, layers[n].routing.expert,
               sizeof *out * ROWS * TOP_K);
}

/* The slope of the loss along a parameter's gradient, over steps of so much to either side; NAN
 * where a token comes to other experts on the way, and the loss has a gap. */
static double slope_along(struct trainer *t, const struct param *p, const struct tokens *tokens,
                          const float *at, const float *g, double norm, double step, bool dropout)
{
    const int64_t n = p->rows * p->cols;
    float *x = p->value.data;
    int32_t experts[3][SLOTS];
    double losses[3];
    for (int side = -1; side <= 1; side++) {
        for (int64_t k = 0; k < n; k++)
            x[k] = (float)((double)at[k] + side * step * (double)g[k] / norm);
        losses[side + 1] = dropout ? micro_loss(t, tokens) : evaluate(t, tokens);
        chosen_experts(t, experts[side + 1]);
    }
    memcpy(x, at, (size_t)n * sizeof *at);
    const bool same = memcmp(experts[0], experts[1], sizeof experts[0]) == 0 &&
                      memcmp(experts[2], experts[1], sizeof experts[0]) == 0;
    return same ? (losses[2] - losses[0]) / (2 * step) : (double)NAN;
}

/* The loss along a gradient rises as fast as the gradient is long. */
static void check_slope(struct trainer *t, const struct param *p, const struct tokens *tokens,
                        bool dropout)
{
    const int64_t n = p->rows * p->cols;
    float *at = malloc((size_t)n * sizeof *at), *g = malloc((size_t)n * sizeof *g);
    double norm = 0, slope = (double)NAN;
    assert_true(at && g);
    memcpy(at, p->value.data, (size_t)n * sizeof *at);
    memcpy(g, p->grad.data, (size_t)n * sizeof *g);
    for (int64_t k = 0; k < n; k++) norm += (double)g[k] * (double)g[k];
    norm = sqrt(norm);
    assert_true(norm > 1e-4);
    for (double step = 1e-2; isnan(slope) && step > 1e-5; step /= 2)
        slope = slope_along(t, p, tokens, at, g, norm, step, dropout);
    free(at);
    free(g);
    if (!(fabs(slope - norm) < 0.02 * norm + 2e-4))
        fail_msg("%s: a gradient of norm %g, a slope of %g", p->weight.name, norm, slope);
}

/* One for each place where numbers are left out, and one before all of them. */
static bool feels_dropout(const char *name)
{
    static const char *const names[] = {"token_embd.weight", "blk.0.attn_q.weight",
                                        "blk.1.attn_output.weight", "blk.2.ffn_down_exps.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void check_gradients(double dropout)
{
    struct train_recipe recipe;
    struct rng rng;
    struct tokens tokens;
    settle(0, &recipe);
    recipe.dropout = dropout;
    struct trainer *t = create(&recipe, false);
    struct params *p = trainer_weights(t);
    int checked = 0;
    rng_seed(&rng, 11);
    spread_weights(p, &rng);
    draw_tokens(&rng, &tokens);
    const double whole = evaluate(t, &tokens);
    if (dropout > 0) assert_true(fabs(micro_loss(t, &tokens) - whole) > 1e-3);
    assert_true(evaluate(t, &tokens) == whole); /* nothing is left out in an evaluation */
    add_gradients(t, &tokens);
    for (int i = 0; i < p->count; i++) {
        if (dropout > 0 && !feels_dropout(p->all[i].weight.name)) continue;
        if (dropout > 0) micro_loss(t, &tokens); /* weights of others are as they were */
        check_slope(t, &p->all[i], &tokens, dropout > 0);
        checked++;
    }
    assert_int_equal(checked, dropout > 0 ? 4 : p->count);
    trainer_destroy(t);
}

static void test_gradients(void **state)
{
    (void)state;
    check_gradients(0);
    check_gradients(0.2);
}

/* It moves the router alone, towards experts that have less than their share. */
static void test_balance(void **state)
{
    (void)state;
    struct rng rng;
    struct tokens tokens;
    struct train_recipe with, without;
    settle(0.5, &with);
    struct trainer *a = create(&with, true);
    rng_seed(&rng, 12);
    spread_weights(trainer_weights(a), &rng);
    settle(0, &without);
    struct trainer *b = create(&without, true);
    struct params *pa = trainer_weights(a), *pb = trainer_weights(b);
    memcpy(pb->values, pa->values, pa->value_bytes);
    draw_tokens(&rng, &tokens);
    add_gradients(a, &tokens);
    add_gradients(b, &tokens);
    int last_router = 0, others = 0;
    for (int i = 0; i < pa->count; i++) {
        const bool same = memcmp(pa->all[i].grad.data, pb->all[i].grad.data,
                                 (size_t)matrix_bytes(&pa->all[i].grad)) == 0;
        const char *name = pa->all[i].weight.name;
        if (strncmp(name, "blk.2.ffn_gate_inp", 18) == 0) last_router += !same;
        if (strncmp(name, "blk.2.ffn_down", 14) == 0 || strcmp(name, "output.weight") == 0)
            others += !same; /* behind the last router */
    }
    assert_int_equal(last_router, 2);
    assert_int_equal(others, 0);
    trainer_destroy(a);
    trainer_destroy(b);
}

/* ---- checkpoints ---- */

static char folder[] = "/tmp/sol-train-gpt-oss-XXXXXX";

static void save(struct trainer *t, const struct train_recipe *recipe, int64_t step, char *path)
{
    const struct checkpoint_parts parts = {.recipe = recipe, .step = step};
    must(checkpoint_path(folder, step, path));
    must(checkpoint_save(t, &parts, path));
}

static double nll_of_model(const char *path, const int32_t *tokens, int64_t n)
{
    struct model *model;
    struct engine *engine;
    struct engine_params ep;
    struct perplexity_params params;
    struct perplexity_result result;
    must(model_open(path, &model));
    engine_params_init(&ep);
    perplexity_params_init(&params);
    params.context = n;
    perplexity_prepare(model, &params, &ep);
    ep.kv_dtype = DTYPE_F32;
    ep.chooser.loosest = NUMERICS_EXACT;
    must(engine_create(model, &ep, &engine));
    must(perplexity_measure(engine, NULL, tokens, n, &params, &result));
    assert_int_equal(result.scored, n - 1);
    engine_destroy(engine);
    model_close(model);
    return result.nll;
}

/* Each sequence with its last target behind it is a text. */
static void test_inference_agrees(void **state)
{
    (void)state;
    struct train_recipe recipe;
    struct rng rng;
    struct tokens tokens;
    char path[CHECKPOINT_PATH];
    double sum = 0;
    settle(0.03, &recipe);
    struct trainer *t = create(&recipe, false);
    train(t, 0, 8);
    rng_seed(&rng, 13);
    spread_weights(trainer_weights(t), &rng);
    draw_tokens(&rng, &tokens);
    save(t, &recipe, 8, path);
    for (int s = 0; s < SEQUENCES; s++) {
        int32_t text[LENGTH + 1];
        memcpy(text, tokens.x + s * LENGTH, sizeof *text * LENGTH);
        text[LENGTH] = tokens.y[s * LENGTH + LENGTH - 1];
        sum += nll_of_model(path, text, LENGTH + 1) / SEQUENCES;
    }
    const double ours = evaluate(t, &tokens);
    if (!(fabs(sum - ours) < 1e-5 * ours))
        fail_msg("the trainer says %.9g, inference %.9g", ours, sum);
    trainer_destroy(t);
}

static void test_goes_on(void **state)
{
    (void)state;
    struct train_recipe recipe;
    struct checkpoint *checkpoint;
    char path[CHECKPOINT_PATH];
    settle(0.03, &recipe);
    struct trainer *a = create(&recipe, false), *b = create(&recipe, false);
    train(a, 0, 5);
    save(a, &recipe, 5, path);
    must(checkpoint_open(path, &checkpoint));
    const struct train_flags *f = checkpoint_flags(checkpoint);
    struct train_recipe again;
    assert_int_equal(checkpoint_step(checkpoint), 5);
    must(recipe_settle(f, checkpoint_vocab(checkpoint), &again));
    assert_string_equal(again.flags.arch, "gpt-oss");
    assert_int_equal(again.parameters, recipe.parameters);
    assert_int_equal(again.config.window, 9);
    assert_true(again.balance == recipe.balance && again.matrix_decay == recipe.matrix_decay);
    checkpoint_close(checkpoint);
    must(checkpoint_load(path, b, 5, true));
    const double loss = train(a, 5, 3), other = train(b, 5, 3);
    const struct params *pa = trainer_weights(a), *pb = trainer_weights(b);
    assert_true(loss == other);
    assert_memory_equal(pa->values, pb->values, pa->value_bytes);
    assert_memory_equal(pa->states, pb->states, pa->state_bytes);
    trainer_destroy(a);
    trainer_destroy(b);
}

/* ---- experts rounded to MXFP4 ---- */

/* What products read of a parameter is its value as MXFP4 has it, or the value itself. */
static void check_copies(const struct params *p, bool rounded)
{
    int copies = 0, changed = 0;
    for (int i = 0; i < p->count; i++) {
        const struct param *q = &p->all[i];
        const int64_t n = q->rows * q->cols;
        assert_int_equal(q->copy.data != NULL, q->weight.role == ROLE_EXPERT);
        if (!q->copy.data) continue;
        void *blocks = malloc(dtype_row_bytes(DTYPE_MXFP4, n));
        float *wanted = malloc((size_t)n * sizeof *wanted);
        assert_true(blocks && wanted);
        memcpy(wanted, q->value.data, (size_t)n * sizeof *wanted);
        dtype_info(DTYPE_MXFP4)->encode(q->value.data, blocks, n);
        if (rounded) dtype_info(DTYPE_MXFP4)->decode(blocks, wanted, n);
        assert_memory_equal(q->copy.data, wanted, (size_t)n * sizeof *wanted);
        changed += memcmp(wanted, q->value.data, (size_t)n * sizeof *wanted) != 0;
        copies++;
        free(blocks);
        free(wanted);
    }
    assert_int_equal(copies, 3 * LAYERS);
    assert_int_equal(changed > 0, rounded);
}

static void test_rounding_begins(void **state)
{
    (void)state;
    struct train_recipe recipe;
    char path[CHECKPOINT_PATH];
    settle_rounded(0.03, 0.5, &recipe); /* of 20 updates */
    struct trainer *a = create(&recipe, false), *b = create(&recipe, false);
    train(a, 0, 9);
    check_copies(trainer_weights(a), false);
    train(a, 9, 1); /* behind number 9 those of number 10 are made */
    check_copies(trainer_weights(a), true);
    train(a, 10, 3);
    save(a, &recipe, 13, path);
    must(checkpoint_load(path, b, 13, true));
    check_copies(trainer_weights(b), true);
    const double loss = train(a, 13, 2);
    assert_true(train(b, 13, 2) == loss);
    assert_memory_equal(trainer_weights(a)->values, trainer_weights(b)->values,
                        trainer_weights(a)->value_bytes);
    trainer_destroy(a);
    trainer_destroy(b);
}

/* Gradients and losses are those of a model whose experts are what MXFP4 makes of them; and so is
 * the model that is converted to it. */
static void test_rounded_model(void **state)
{
    (void)state;
    struct train_recipe rounded, plain;
    struct rng rng;
    struct tokens tokens;
    struct model_files *files;
    struct weight_input input = {0}, as_mxfp4;
    struct requantise types = {.experts = DTYPE_MXFP4, .dense = DTYPE_COUNT};
    char path[CHECKPOINT_PATH], converted[CHECKPOINT_PATH + 16];
    double sum = 0;
    settle_rounded(0.03, 0, &rounded);
    struct trainer *a = create(&rounded, false);
    settle(0.03, &plain);
    struct trainer *b = create(&plain, false);
    struct params *pa = trainer_weights(a), *pb = trainer_weights(b);
    rng_seed(&rng, 14);
    spread_weights(pa, &rng);
    must(trainer_refresh(a, 0));
    check_copies(pa, true);
    draw_tokens(&rng, &tokens);
    add_gradients(a, &tokens);
    for (int i = 0; i < pa->count; i++) {
        const struct param *q = &pa->all[i];
        memcpy(pb->all[i].value.data, q->copy.data ? q->copy.data : q->value.data,
               (size_t)matrix_bytes(&q->value));
    }
    add_gradients(b, &tokens);
    for (int i = 0; i < pa->count; i++)
        assert_memory_equal(pa->all[i].grad.data, pb->all[i].grad.data,
                            (size_t)matrix_bytes(&pa->all[i].grad));
    save(a, &rounded, 16, path);
    snprintf(converted, sizeof converted, "%s_mxfp4", path);
    must(model_files_open(path, &files));
    must(weight_input_from_files(files, &input));
    must(requantise_create(&types, &input, &as_mxfp4));
    must(convert_to_folder(&as_mxfp4, NULL, converted, 0));
    requantise_destroy(&types);
    weight_input_close(&input);
    model_files_close(files);
    for (int s = 0; s < SEQUENCES; s++) {
        int32_t text[LENGTH + 1];
        memcpy(text, tokens.x + s * LENGTH, sizeof *text * LENGTH);
        text[LENGTH] = tokens.y[s * LENGTH + LENGTH - 1];
        sum += nll_of_model(converted, text, LENGTH + 1) / SEQUENCES;
    }
    const double ours = evaluate(a, &tokens);
    if (!(fabs(sum - ours) < 1e-5 * ours))
        fail_msg("the trainer says %.9g, inference of MXFP4 %.9g", ours, sum);
    trainer_destroy(a);
    trainer_destroy(b);
}

static void test_other_model(void **state)
{
    (void)state;
    struct train_recipe recipe;
    char path[CHECKPOINT_PATH];
    settle(0.03, &recipe);
    recipe.config.n_experts = 5;
    struct trainer *t = create(&recipe, false);
    must(checkpoint_path(folder, 5, path)); /* of test_goes_on */
    assert_int_equal(checkpoint_load(path, t, 0, false), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "is not of the model that the flags describe"));
    trainer_destroy(t);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command); /* NOLINT: the name is this file's own */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_inference_agrees), cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_other_model),      cmocka_unit_test(test_rounding_begins),
        cmocka_unit_test(test_rounded_model),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
