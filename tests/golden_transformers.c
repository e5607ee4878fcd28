/* The engine against transformers' results on five small random models (tests/golden/README.md):
 * every layer's residual stream, the final norm and the logits, position by position.
 *
 * Bounds on the relative L2 distance of each row, and why:
 *  - exact kernels (the references and the fast float32 ones): 1e-4. Both sides use the same
 * weights and float32, so what is left is the order of sums (1e-6 to 1e-5) and, in long_mxfp4,
 * transformers' float32 angles (3e-5 over all rows, 6e-5 in the worst).
 *  - kernels that round activations to bf16 or int8 (the default): see LOOSE_*. */
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "gpu/device.h"
#include "infer/engine.h"
#include "ops/ops.h"
#include "support/backend.h"
#include "support/effort.h"

static const double EXACT_BOUND = 1e-4;
/* Between two ways of feeding the same prompt, both by exact kernels. */
static const double CHUNK_BOUND = 2e-5;

/* Random weights amplify: nothing averages out, and an expert chosen otherwise (router gaps go down
 * to 2e-4) moves its row by a tenth. So the whole matrix is bounded, not each row. */
static const double LOOSE_BOUND = 0.15;
/* The likeliest token may differ where the reference's first two are closer than this many standard
 * deviations of its logits. Reached: 0.05. */
static const double LOOSE_MARGIN = 0.2;

enum { FILES_MAX = 16 };

struct golden {
    char name[64];
    struct mapped_file file;
    struct model *model;
    int64_t n_tokens, n_positions, n_layers, hidden, vocab;
    const int32_t *tokens, *positions;
    const float *layers, *norm, *logits;
};

static struct golden goldens[FILES_MAX];
static int n_goldens;
static struct gpu *gpu; /* SOL_TEST_BACKEND=cuda: everything runs there; else NULL */

/* ---- files ---- */

static void load_vectors(struct golden *g, const char *path)
{
    assert_int_equal(mapped_file_open(path, &g->file), SOL_OK);
    const char *at = g->file.data;
    assert_true(g->file.size >= 28 && memcmp(at, "SOLGOLD1", 8) == 0);
    const uint32_t *head = (const void *)(at + 8);
    g->n_tokens = head[0];
    g->n_positions = head[1];
    g->n_layers = head[2];
    g->hidden = head[3];
    g->vocab = head[4];
    g->tokens = (const void *)(head + 5);
    g->positions = g->tokens + g->n_tokens;
    g->layers = (const void *)(g->positions + g->n_positions);
    g->norm = g->layers + g->n_layers * g->n_positions * g->hidden;
    g->logits = g->norm + g->n_positions * g->hidden;
    const char *end = (const void *)(g->logits + g->n_positions * g->vocab);
    assert_ptr_equal(end, at + g->file.size);
}

static int open_all(void **state)
{
    (void)state;
    glob_t found;
    gpu = test_gpu();
    assert_int_equal(glob(SOL_SOURCE_DIR "/tests/golden/*.gguf", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc && n_goldens < FILES_MAX; i++) {
        struct golden *g = &goldens[n_goldens++];
        char path[512];
        const char *base = strrchr(found.gl_pathv[i], '/') + 1;
        snprintf(g->name, sizeof g->name, "%.*s", (int)strcspn(base, "."), base);
        snprintf(path, sizeof path, "%s/tests/golden/%s.bin", SOL_SOURCE_DIR, g->name);
        if (model_open(found.gl_pathv[i], &g->model) != SOL_OK) fail_msg("%s", sol_last_error());
        load_vectors(g, path);
        assert_int_equal(g->n_layers, g->model->config.n_layers);
        assert_int_equal(g->hidden, g->model->config.hidden);
        assert_int_equal(g->vocab, g->model->config.vocab);
    }
    globfree(&found);
    assert_true(n_goldens > 0);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < n_goldens; i++) {
        model_close(goldens[i].model);
        mapped_file_close(&goldens[i].file);
    }
    gpu_close(gpu);
    return 0;
}

/* ---- a run ---- */

/* What an engine computed at the kept positions, laid out as in the file. */
struct capture {
    const struct golden *golden;
    int64_t n_kept;    /* positions below the prefix that was run */
    int64_t first_row; /* position of the step's first row */
    float *layers, *norm, *logits;
    bool has_norm; /* false when it is hidden */
    const struct op
        *op; /* of the variant looked for, or NULL: without a call of it nothing is run */
    const char *variant;
    bool variant_used;
};

static void on_layer(void *arg, int layer, const float *x, int64_t rows)
{
    struct capture *c = arg;
    const struct golden *g = c->golden;
    for (int64_t i = 0; i < c->n_kept; i++) {
        int64_t row = g->positions[i] - c->first_row;
        if (row < 0 || row >= rows) continue;
        memcpy(c->layers + (layer * g->n_positions + i) * g->hidden, x + row * g->hidden,
               (size_t)g->hidden * 4);
    }
}

/* The final norm's output, from the plan: the rmsnorm outside the layers. NULL where a fused head
 * or a GPU's memory hides it. */
static const float *final_norm_of(const struct plan *plan)
{
    if (gpu) return NULL;
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        if (step->op == &op_rmsnorm && step->layer == -1)
            return matrix_floats(&((const struct rmsnorm_args *)step->args)->y);
    }
    return NULL;
}

/* Kept positions that lie in this step, whose rows are its outputs: stores norm and logits. */
static void store_outputs(struct capture *c, const struct engine *engine, int64_t first_kept,
                          int64_t count, const float *logits)
{
    const struct golden *g = c->golden;
    if (count == 0) return;
    const float *norm = final_norm_of(engine_last_plan(engine));
    c->has_norm = norm != NULL;
    if (norm) memcpy(c->norm + first_kept * g->hidden, norm, (size_t)(count * g->hidden) * 4);
    memcpy(c->logits + first_kept * g->vocab, logits, (size_t)(count * g->vocab) * 4);
}

static void capture_create(struct capture *c, const struct golden *g)
{
    size_t n = (size_t)g->n_positions;
    c->golden = g;
    c->layers = calloc((size_t)g->n_layers * n * (size_t)g->hidden, 4);
    c->norm = calloc(n * (size_t)g->hidden, 4);
    c->logits = calloc(n * (size_t)g->vocab, 4);
    assert_true(c->layers && c->norm && c->logits);
}

static void capture_free(struct capture *c)
{
    free(c->layers);
    free(c->norm);
    free(c->logits);
}

static struct engine *open_engine(const struct golden *g, const struct engine_params *params)
{
    struct engine *engine;
    if (engine_create(g->model, params, &engine) != SOL_OK)
        fail_msg("%s: %s", g->name, sol_last_error());
    return engine;
}

static bool plan_uses(const struct plan *plan, const struct op *op, const char *variant)
{
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        if (step->op == op && strcmp(step->variant, variant) == 0) return true;
    }
    return false;
}

struct call_search {
    const struct op *op;
    bool found;
};

static void look_for_call(void *arg, const struct op *op, const void *args, int chosen)
{
    struct call_search *search = arg;
    (void)args;
    (void)chosen;
    search->found |= op == search->op;
}

/* Whether any step of the run, with outputs or without, calls the op, by itself or in a composite.
 */
static bool calls_op(struct engine *engine, const struct engine_params *params, const struct op *op,
                     int64_t length, int64_t chunk)
{
    struct call_search search = {.op = op};
    const int64_t rows[] = {chunk < length ? chunk : length, length % chunk};
    for (int i = 0; i < 2; i++)
        for (int64_t outputs = 0; outputs < 2 && rows[i] > 0; outputs++) {
            struct plan *plan;
            if (engine_make_plan(engine, &params->chooser, rows[i], outputs, look_for_call, &search,
                                 &plan) != SOL_OK)
                fail_msg("%s", sol_last_error());
            plan_destroy(plan);
        }
    return search.found;
}

/* Runs the first `length` tokens in steps of `chunk`. */
static void run_golden(const struct golden *g, struct engine_params params, int64_t length,
                       int64_t chunk, struct capture *c)
{
    capture_create(c, g);
    params.context = length;
    params.max_batch = chunk < length ? chunk : length;
    params.max_outputs = params.max_batch;
    struct engine *engine = open_engine(g, &params);
    engine_set_trace(engine, on_layer, c);
    struct engine_row *rows = calloc((size_t)chunk, sizeof *rows);
    assert_non_null(rows);
    if (c->op && !calls_op(engine, &params, c->op, length, chunk)) length = 0;
    for (int64_t at = 0; at < length; at += chunk) {
        int64_t n = length - at < chunk ? length - at : chunk, first_kept = c->n_kept;
        for (int64_t i = 0; i < n; i++) {
            bool kept = c->n_kept < g->n_positions && g->positions[c->n_kept] == at + i;
            rows[i] = (struct engine_row){.token = g->tokens[at + i], .output = kept};
            c->n_kept += kept;
        }
        const float *logits;
        c->first_row = at;
        if (engine_eval(engine, rows, n, NULL, NULL, &logits) != SOL_OK)
            fail_msg("%s: %s", g->name, sol_last_error());
        if (c->op) c->variant_used |= plan_uses(engine_last_plan(engine), c->op, c->variant);
        store_outputs(c, engine, first_kept, c->n_kept - first_kept, logits);
    }
    free(rows);
    engine_destroy(engine);
}

/* ---- comparing ---- */

struct distance {
    double worst; /* relative L2 of the worst row */
    double all;   /* of all rows together */
};

static struct distance compare(const float *got, const float *want, int64_t rows, int64_t cols)
{
    double error_all = 0, norm_all = 0, worst = 0;
    for (int64_t i = 0; i < rows; i++) {
        double error = 0, norm = 0;
        for (int64_t j = 0; j < cols; j++) {
            double d = (double)got[i * cols + j] - want[i * cols + j];
            error += d * d;
            norm += (double)want[i * cols + j] * want[i * cols + j];
        }
        double relative = sqrt(error / norm);
        if (!(relative <= worst)) worst = relative; /* NaN sticks */
        error_all += error;
        norm_all += norm;
    }
    return (struct distance){worst, sqrt(error_all / norm_all)};
}

struct distances {
    struct distance layers, norm, logits; /* layers: the worst layer */
};

static struct distances compare_capture(const struct capture *c, const float *layers,
                                        const float *norm, const float *logits)
{
    const struct golden *g = c->golden;
    struct distances d = {0};
    for (int64_t n = 0; n < g->n_layers; n++) {
        int64_t at = n * g->n_positions * g->hidden;
        struct distance one = compare(c->layers + at, layers + at, c->n_kept, g->hidden);
        if (!(one.worst <= d.layers.worst)) d.layers.worst = one.worst;
        if (!(one.all <= d.layers.all)) d.layers.all = one.all;
    }
    if (c->has_norm) d.norm = compare(c->norm, norm, c->n_kept, g->hidden);
    d.logits = compare(c->logits, logits, c->n_kept, g->vocab);
    return d;
}

static struct distances compare_golden(const struct capture *c)
{
    const struct golden *g = c->golden;
    return compare_capture(c, g->layers, g->norm, g->logits);
}

static void check_exact(const char *what, const struct capture *c, int64_t length, uint64_t start)
{
    struct distances d = compare_golden(c);
    print_message("%-11s %-14s %4lld tokens %2lld rows: worst row of layers %.1e, norm %.1e, "
                  "logits %.1e  (%.2f s)\n",
                  c->golden->name, what, (long long)length, (long long)c->n_kept, d.layers.worst,
                  d.norm.worst, d.logits.worst, (double)(clock_ns() - start) / 1e9);
    if (!c->has_norm) print_message("  skipped: final norm (hidden by a fused head or a GPU)\n");
    assert_true(c->n_kept > 0);
    assert_true(d.layers.worst <= EXACT_BOUND);
    assert_true(d.norm.worst <= EXACT_BOUND);
    assert_true(d.logits.worst <= EXACT_BOUND);
}

static struct engine_params default_params(void)
{
    struct engine_params params;
    engine_params_init(&params);
    params.chooser.device.gpu = gpu;
    return params;
}

static struct engine_params exact_params(bool reference)
{
    struct engine_params params = default_params();
    params.kv_dtype = DTYPE_F32;
    params.chooser.reference = reference;
    params.chooser.loosest = NUMERICS_EXACT;
    return params;
}

/* ---- tests ---- */

/* The plain references. They are slow, so a long prompt is cut: behind the window, but before the
 * last kept positions, which the fast exact kernels do. */
static void test_reference(void **state)
{
    (void)state;
    if (gpu) skip(); /* they are C */
    for (int i = 0; i < n_goldens; i++) {
        const struct golden *g = &goldens[i];
        int64_t length = g->n_tokens < 300 ? g->n_tokens : 300;
        struct capture c = {0};
        uint64_t start = clock_ns();
        run_golden(g, exact_params(true), length, length, &c);
        check_exact("reference", &c, length, start);
        capture_free(&c);
    }
}

/* One way of feeding the prompt; `whole` is all of it in one step, NULL when this is it. */
static void check_chunk(const struct golden *g, int64_t length, int64_t chunk,
                        const struct capture *whole, struct capture *c)
{
    char what[32];
    uint64_t start = clock_ns();
    snprintf(what, sizeof what, "exact, by %lld", (long long)chunk);
    run_golden(g, exact_params(false), length, chunk, c);
    check_exact(what, c, length, start);
    if (!whole) return;
    struct distances d = compare_capture(c, whole->layers, whole->norm, whole->logits);
    print_message("%11s to the whole at once: layers %.1e, logits %.1e\n", "", d.layers.worst,
                  d.logits.worst);
    assert_true(d.layers.worst <= CHUNK_BOUND);
    assert_true(d.logits.worst <= CHUNK_BOUND);
}

/* The fast float32 kernels, on everything at once and in steps of 128, 7 and 1: rings wrap at
 * different places, kernels for few and for many rows take turns, and nothing of it may show. */
static void test_exact_chunks(void **state)
{
    (void)state;
    static const int64_t chunks[] = {128, 7, 1};
    int64_t most = effort("tokens of a prompt in steps", 1 << 13, 400); /* rings wrap thrice */
    for (int i = 0; i < n_goldens; i++) {
        const struct golden *g = &goldens[i];
        struct capture whole = {0};
        int64_t length = g->n_tokens < most ? g->n_tokens : most;
        check_chunk(g, g->n_tokens, g->n_tokens, NULL, &whole);
        for (size_t n = 0; n < sizeof chunks / sizeof *chunks; n++) {
            struct capture c = {0};
            if (chunks[n] >= length) continue;
            check_chunk(g, length, chunks[n], &whole, &c);
            capture_free(&c);
        }
        capture_free(&whole);
    }
}

static int64_t argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* How far the likeliest is ahead of the next, in standard deviations of the row. */
static double margin(const float *x, int64_t n)
{
    int64_t best = argmax(x, n);
    double second = -INFINITY, sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i != best && x[i] > second) second = x[i];
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    double mean = sum / (double)n;
    return (x[best] - second) / sqrt(squares / (double)n - mean * mean);
}

struct choices {
    int differ;
    double widest; /* the largest reference margin where the choice differs */
};

static struct choices compare_choices(const struct capture *c)
{
    const struct golden *g = c->golden;
    struct choices result = {0, 0};
    for (int64_t i = 0; i < c->n_kept; i++) {
        const float *want = g->logits + i * g->vocab, *got = c->logits + i * g->vocab;
        if (argmax(want, g->vocab) == argmax(got, g->vocab)) continue;
        double ahead = margin(want, g->vocab);
        result.differ++;
        if (ahead > result.widest) result.widest = ahead;
    }
    return result;
}

/* What a user gets: activations rounded as the machine's kernels do, cache in float16. */
static void test_default(void **state)
{
    (void)state;
    for (int i = 0; i < n_goldens; i++) {
        const struct golden *g = &goldens[i];
        struct capture c = {0};
        run_golden(g, default_params(), g->n_tokens, 128, &c);
        struct distances d = compare_golden(&c);
        struct choices choices = compare_choices(&c);
        print_message(
            "%-11s default: logits %.1e (worst row %.1e), layers %.1e; next token differs at "
            "%d of %lld positions, widest margin there %.2f sd\n",
            g->name, d.logits.all, d.logits.worst, d.layers.all, choices.differ,
            (long long)c.n_kept, choices.widest);
        assert_true(d.logits.all <= LOOSE_BOUND);
        assert_true(choices.widest <= LOOSE_MARGIN);
        capture_free(&c);
    }
}

/* ---- each variant by force ---- */

/* The worst distance over all models that the variant serves; `used` counts them. */
static struct distances force_variant(const struct op *op, const struct op_variant *variant,
                                      int64_t most, int *used)
{
    struct distances worst = {0};
    char force[128];
    snprintf(force, sizeof force, "%s=%s", op->name, variant->name);
    *used = 0;
    for (int i = 0; i < n_goldens; i++) {
        const struct golden *g = &goldens[i];
        struct engine_params params = exact_params(false);
        struct capture c = {.op = op, .variant = variant->name};
        int64_t length = g->n_tokens < most ? g->n_tokens : most;
        assert_int_equal(chooser_force(&params.chooser, force), SOL_OK);
        run_golden(g, params, length, 61, &c);
        struct distances d = c.n_kept ? compare_golden(&c) : (struct distances){0};
        *used += c.variant_used;
        if (!(d.logits.worst <= worst.logits.worst)) worst.logits.worst = d.logits.worst;
        if (!(d.logits.all <= worst.logits.all)) worst.logits.all = d.logits.all;
        capture_free(&c);
    }
    return worst;
}

/* Every variant of every op that this machine can run, all others exact. The usual choice leaves
 * most of them untried: here they see a whole model. */
static void test_each_variant(void **state)
{
    (void)state;
    const int64_t most = effort("tokens of a model for each variant", 300, 150); /* over a window */
    for (int i = 0; i < op_table_count; i++) {
        const struct op *op = op_table[i];
        for (int v = 0; v < op->n_variants; v++) {
            const struct op_variant *variant = op->variants[v];
            const struct op_device device = {.cpu_features = cpu_info()->features, .gpu = gpu};
            char why[OP_REASON_MAX];
            int used;
            if ((variant->target == TARGET_CUDA) != (gpu != NULL)) continue;
            if (!op_variant_fits(variant, &device, why)) {
                print_message("%-28s skipped: %s\n", variant->name, why);
                continue;
            }
            struct distances d = force_variant(op, variant, most, &used);
            print_message("%-28s in %d of %d models: logits all %.1e, worst row %.1e\n",
                          variant->name, used, n_goldens, d.logits.all, d.logits.worst);
            if (variant->numerics == NUMERICS_EXACT)
                assert_true(d.logits.worst <= EXACT_BOUND);
            else
                assert_true(d.logits.all <= LOOSE_BOUND);
        }
    }
}

/* ---- two sequences ---- */

/* All logits of one sequence of the rows, [n][vocab]. */
struct collect {
    const struct engine_row *rows;
    int64_t vocab, next[2];
    float *logits[2];
};

static enum sol_status collect_logits(void *arg, int64_t first_row, const int32_t *rows,
                                      int64_t n_outputs, const float *logits)
{
    struct collect *c = arg;
    for (int64_t i = 0; i < n_outputs; i++) {
        int32_t s = c->rows[first_row + rows[i]].sequence;
        memcpy(c->logits[s] + c->next[s]++ * c->vocab, logits + i * c->vocab, (size_t)c->vocab * 4);
    }
    return SOL_OK;
}

/* Sequence 0 is the prompt from the front, sequence 1 the same tokens from the back and fewer of
 * them. */
static int64_t make_rows(const struct golden *g, int64_t n, unsigned mask, struct engine_row *rows)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (mask & 1)
            rows[count++] =
                (struct engine_row){.token = g->tokens[i], .sequence = 0, .output = true};
        if ((mask & 2) && i % 3 != 2)
            rows[count++] = (struct engine_row){
                .token = g->tokens[g->n_tokens - 1 - i], .sequence = 1, .output = true};
    }
    return count;
}

static void run_sequences(const struct golden *g, struct engine_params params, int64_t n,
                          unsigned mask, struct collect *c)
{
    params.sequences = 2;
    params.context = n;
    params.max_batch = 37; /* steps end at different rows for each mask */
    params.max_outputs = 37;
    struct engine *engine = open_engine(g, &params);
    struct engine_row *rows = calloc((size_t)(2 * n), sizeof *rows);
    assert_non_null(rows);
    int64_t count = make_rows(g, n, mask, rows);
    c->rows = rows;
    if (engine_eval(engine, rows, count, collect_logits, c, NULL) != SOL_OK)
        fail_msg("%s: %s", g->name, sol_last_error());
    free(rows);
    engine_destroy(engine);
}

/* Each alone, then both in turns through the same steps. */
static void check_interleaved(const struct golden *g, const char *what, struct engine_params params,
                              double bound)
{
    int64_t n = g->n_tokens < 300 ? g->n_tokens : 300;
    struct collect alone = {.vocab = g->vocab}, both = {.vocab = g->vocab};
    for (int s = 0; s < 2; s++) {
        alone.logits[s] = calloc((size_t)(n * g->vocab), 4);
        both.logits[s] = calloc((size_t)(n * g->vocab), 4);
        assert_true(alone.logits[s] && both.logits[s]);
    }
    run_sequences(g, params, n, 1, &alone);
    run_sequences(g, params, n, 2, &alone);
    run_sequences(g, params, n, 3, &both);
    for (int s = 0; s < 2; s++) {
        assert_int_equal(alone.next[s], both.next[s]);
        struct distance d = compare(both.logits[s], alone.logits[s], both.next[s], g->vocab);
        print_message("%-11s two sequences, %s: sequence %d, %lld rows, all %.1e, worst row %.1e\n",
                      g->name, what, s, (long long)both.next[s], d.all, d.worst);
        assert_true(d.all <= bound);
        free(alone.logits[s]);
        free(both.logits[s]);
    }
}

/* The default may take other kernels for other numbers of rows, hence its wider bound. */
static void test_interleaved(void **state)
{
    (void)state;
    for (int i = 0; i < n_goldens; i++) {
        check_interleaved(&goldens[i], "exact", exact_params(false), CHUNK_BOUND);
        check_interleaved(&goldens[i], "default", default_params(), LOOSE_BOUND);
    }
}

/* ---- engine state ---- */

static void eval_or_fail(struct engine *engine, const struct engine_row *rows, int64_t n,
                         const float **logits)
{
    if (engine_eval(engine, rows, n, NULL, NULL, logits) != SOL_OK)
        fail_msg("%s", sol_last_error());
}

/* A sequence that was used and reset gives what a fresh one gives: nothing of the old cache is
 * seen. */
static void test_reset(void **state)
{
    (void)state;
    const struct golden *g = &goldens[0];
    struct engine_params params = exact_params(false);
    params.context = params.max_batch = g->n_tokens;
    struct engine *fresh = open_engine(g, &params), *used = open_engine(g, &params);
    struct engine_row *rows = calloc((size_t)g->n_tokens, sizeof *rows);
    assert_non_null(rows);
    for (int64_t i = 0; i < g->n_tokens; i++) rows[i].token = g->tokens[g->n_tokens - 1 - i];
    eval_or_fail(used, rows, g->n_tokens, NULL);
    engine_reset(used, 0);
    assert_int_equal(engine_position(used, 0), 0);

    const float *a, *b;
    int64_t n = g->n_tokens - 3;
    for (int64_t i = 0; i < n; i++) rows[i].token = g->tokens[i];
    rows[n - 1].output = true;
    eval_or_fail(fresh, rows, n, &a);
    eval_or_fail(used, rows, n, &b);
    assert_memory_equal(a, b, (size_t)g->vocab * 4);
    free(rows);
    engine_destroy(fresh);
    engine_destroy(used);
}

/* What is refused changes nothing: the same logits follow as without it. */
static void test_refused(void **state)
{
    (void)state;
    const struct golden *g = &goldens[0];
    struct engine_params params = exact_params(false);
    params.context = 8;
    struct engine *engine = open_engine(g, &params), *other = open_engine(g, &params);
    struct engine_row rows[9] = {{.token = 5}, {.token = 6}, {.token = 7}};
    eval_or_fail(engine, rows, 3, NULL);
    eval_or_fail(other, rows, 3, NULL);

    assert_int_equal(engine_eval(engine, rows, 6, NULL, NULL, NULL), SOL_E_ARGUMENT);
    struct engine_row bad[] = {{.token = 5}, {.token = (int32_t)g->vocab}, {.token = -1}};
    assert_int_equal(engine_eval(engine, bad, 2, NULL, NULL, NULL), SOL_E_ARGUMENT);
    assert_int_equal(engine_eval(engine, bad + 2, 1, NULL, NULL, NULL), SOL_E_ARGUMENT);
    struct engine_row elsewhere = {.token = 5, .sequence = 1};
    assert_int_equal(engine_eval(engine, &elsewhere, 1, NULL, NULL, NULL), SOL_E_ARGUMENT);
    assert_int_equal(engine_position(engine, 0), 3);

    const float *a, *b;
    struct engine_row last = {.token = 9, .output = true};
    eval_or_fail(engine, &last, 1, &a);
    eval_or_fail(other, &last, 1, &b);
    assert_memory_equal(a, b, (size_t)g->vocab * 4);
    engine_destroy(engine);
    engine_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),    cmocka_unit_test(test_exact_chunks),
        cmocka_unit_test(test_each_variant), cmocka_unit_test(test_default),
        cmocka_unit_test(test_interleaved),  cmocka_unit_test(test_reset),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
