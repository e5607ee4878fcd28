/* What the others in a step change of a sequence's logits, on the built-in model. The claim is that
 * of docs/design/numerics-and-batches.md, "Batches":
 *
 *  - the same steps give the same bits, every time;
 *  - by float32 kernels of a CPU a sequence has the same bits alone, among others, and by whatever
 *    steps its prompt came;
 *  - on a GPU it has the same bits in steps of the same shape (rows, outputs), wherever its rows
 *    stand and whatever the others are, unless prompts' attention cuts contexts into pieces;
 *  - everything else is close: KL of at most 1e-3 nats on average, and another likeliest token only
 *    where the first two are no further apart than the tolerances of the step's ops allow.
 *
 * Then the same closeness to float32 on the CPU, token after token of a text; there the likeliest
 * tokens are compared between computations with the same experts, and the experts by themselves.
 * SOL_TEST_BACKEND=cuda: on a GPU.
 *
 * usage: golden_batch [MODEL TEXT] */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "gpu/device.h"
#include "infer/engine.h"
#include "infer/perplexity.h"
#include "model/upload.h"
#include "ops/ops.h"
#include "support/backend.h"
#include "support/effort.h"
#include "support/prose.h"

static const double KL_BOUND = 1e-3;

enum {
    CONTEXT = 1024,
    PROMPT = 140,      /* a window, and a little more */
    LONG_PROMPT = 700, /* what a GPU cuts into pieces */
    OTHERS_PROMPT = 24,
    PART = 61,
    ROWS_MAX = 1024,
    SEQUENCES_MAX = 128,
};

static const char *model_path = SOL_SOURCE_DIR "/models/builtin.gguf";
static const char *text_path = SOL_SOURCE_DIR "/tests/data/heldout.txt";
static struct model *model, *uploaded; /* uploaded: to the GPU, or NULL */
static struct token_list text;
static struct gpu *gpu;                           /* SOL_TEST_BACKEND=cuda; else NULL */
static int64_t prompt, long_prompt, short_prompt; /* tokens that somebody has before */
static int64_t part;                              /* rows of one prompt in a step */
static int n_failed; /* of the present test: all of it is seen before it fails */

static int open_all(void **state)
{
    (void)state;
    static char bytes[1 << 17];
    gpu = test_gpu();
    size_t length;
    const char *prose = prose_read(text_path, bytes, sizeof bytes, &length);
    assert_non_null(prose);
    if (model_open(model_path, &model) != SOL_OK ||
        tokenizer_encode(model->tokenizer, prose, length, false, &text) != SOL_OK)
        fail_msg("%s", sol_last_error());
    if (gpu && model_upload(model, gpu, &uploaded) != SOL_OK) fail_msg("%s", sol_last_error());
    prompt = effort("tokens before a step", PROMPT, 16);
    long_prompt = effort("tokens before a step with a long context", LONG_PROMPT, 16);
    short_prompt = effort("tokens of the others before", OTHERS_PROMPT, 2);
    part = effort("rows of a prompt in a step", PART, 21);
    assert_true(text.count > ROWS_MAX && model->config.context >= CONTEXT);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    token_list_free(&text);
    model_upload_destroy(uploaded, gpu);
    model_close(model);
    gpu_close(gpu);
    return 0;
}

static struct engine_params params_of(bool exact)
{
    struct engine_params params;
    engine_params_init(&params);
    params.chooser.device.gpu = gpu;
    params.uploaded = uploaded;
    params.context = CONTEXT;
    if (!exact) return params;
    params.kv_dtype = DTYPE_F32;
    params.chooser.loosest = NUMERICS_EXACT;
    return params;
}

/* Token `i` of what somebody says who begins at `from` in the text. */
static int32_t said(int64_t from, int64_t i)
{
    return text.ids[(size_t)(from + i) % text.count];
}

/* ---- a sequence among others ---- */

struct scene {
    int sequences;  /* the subject and others */
    int64_t rows;   /* of a step */
    int64_t share;  /* of them the subject's, which stand together */
    int64_t prompt; /* the subject's tokens before, in a step of their own */
    int64_t steps;
    int64_t others;   /* tokens of each of them before, at most */
    int place;        /* who stands before the subject, in thirds of the others: 0 to 3 */
    uint64_t company; /* what the others say, how long they have been there, whose slot is whose */
};

/* The subject's logits, [rows][vocab]. */
struct logits {
    float *data;
    int64_t rows;
    double tolerance; /* plan_margin of the last step */
};

struct collector {
    const struct engine_row *rows;
    int32_t subject;
    struct logits *to;
};

static enum sol_status collect(void *arg, int64_t first_row, const int32_t *rows, int64_t n_outputs,
                               const float *logits)
{
    const struct collector *c = arg;
    size_t vocab = (size_t)model->config.vocab;
    for (int64_t i = 0; i < n_outputs; i++) {
        if (c->rows[first_row + rows[i]].sequence != c->subject) continue;
        float *to = c->to->data + (size_t)c->to->rows++ * vocab;
        memcpy(to, logits + (size_t)i * vocab, vocab * sizeof *to);
    }
    return SOL_OK;
}

static void eval(struct engine *engine, const struct engine_row *rows, int64_t n,
                 struct collector *c)
{
    if (c) c->rows = rows;
    if (engine_eval(engine, rows, n, c ? collect : NULL, c, NULL) != SOL_OK)
        fail_msg("%s", sol_last_error());
}

/* `n` more tokens of `sequence`, which begins at `from` in the text. */
static int64_t add_rows(struct engine_row *rows, int64_t at, int32_t sequence, int64_t from,
                        int64_t position, int64_t n, bool output)
{
    for (int64_t i = 0; i < n; i++)
        rows[at + i] = (struct engine_row){
            .token = said(from, position + i), .sequence = sequence, .output = output};
    return at + n;
}

struct speaker {
    int32_t sequence;
    int64_t from, position;
};

/* The others' prompts, of different lengths, then the subject's. speakers[0] is the subject. */
static void open_scene(struct engine *engine, const struct scene *s, struct speaker *speakers)
{
    static struct engine_row rows[ROWS_MAX];
    struct rng rng;
    rng_seed(&rng, s->company);
    int turn = (int)rng_range(&rng, 0, s->sequences - 1);
    for (int i = 0; i < s->sequences; i++)
        speakers[i] = (struct speaker){(i + turn) % s->sequences, 0, s->prompt};
    for (int i = 1; i < s->sequences; i++) {
        speakers[i].from = rng_range(&rng, 1, (int64_t)text.count - 1);
        speakers[i].position = rng_range(&rng, 0, s->others);
        eval(engine, rows,
             add_rows(rows, 0, speakers[i].sequence, speakers[i].from, 0, speakers[i].position,
                      false),
             NULL);
    }
    eval(engine, rows, add_rows(rows, 0, speakers[0].sequence, 0, 0, s->prompt, false), NULL);
}

static void run_scene(bool exact, const struct scene *s, struct logits *out)
{
    static struct engine_row rows[ROWS_MAX];
    struct speaker speakers[SEQUENCES_MAX];
    struct engine_params params = params_of(exact);
    struct engine *engine;
    params.sequences = s->sequences;
    params.cache_positions = CONTEXT + (int64_t)s->sequences * 256 + 2 * LONG_PROMPT;
    params.max_batch = s->prompt > s->rows ? s->prompt : s->rows;
    if (params.max_batch < s->others) params.max_batch = s->others;
    params.max_outputs = s->rows;
    if (engine_create(model, &params, &engine) != SOL_OK) fail_msg("%s", sol_last_error());
    open_scene(engine, s, speakers);
    *out = (struct logits){
        .data = calloc((size_t)(s->steps * s->share * model->config.vocab), sizeof(float))};
    assert_non_null(out->data);
    struct collector c = {.subject = speakers[0].sequence, .to = out};
    int others = s->sequences - 1, before = others * s->place / 3;
    for (int64_t n = 0; n < s->steps; n++) {
        int64_t at = 0;
        for (int i = 0; i <= others; i++) {
            int who = i < before ? i + 1 : i == before ? 0 : i;
            int64_t left = s->rows - s->share;
            int64_t share = who == 0 ? s->share : left / others + (who <= left % others);
            struct speaker *p = &speakers[who];
            at = add_rows(rows, at, p->sequence, p->from, p->position, share, true);
            p->position += share;
        }
        assert_int_equal(at, s->rows);
        eval(engine, rows, at, &c);
    }
    assert_int_equal(out->rows, s->steps * s->share);
    out->tolerance = plan_margin(engine_last_plan(engine));
    engine_destroy(engine);
}

/* ---- comparing ---- */

struct closeness {
    int64_t rows, other_bits, other_top;
    double kl, widest; /* mean; reference's margin where the likeliest token is another one, in
                          standard deviations of its logits */
};

static double log_sum_exp(const float *x, int64_t n)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? (double)x[i] : top;
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - top);
    return top + log(sum);
}

static void compare_row(const float *got, const float *want, int64_t n, struct closeness *c)
{
    double p_sum = log_sum_exp(want, n), q_sum = log_sum_exp(got, n), sum = 0, squares = 0;
    int64_t top = 0, got_top = 0;
    double second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double log_p = (double)want[i] - p_sum;
        c->kl += exp(log_p) * (log_p - ((double)got[i] - q_sum));
        if (want[i] > want[top]) top = i;
        if (got[i] > got[got_top]) got_top = i;
        sum += (double)want[i];
        squares += (double)want[i] * (double)want[i];
    }
    c->rows++;
    c->other_bits += memcmp(got, want, (size_t)n * sizeof *got) != 0;
    if (got_top == top) return;
    for (int64_t i = 0; i < n; i++)
        if (i != top && (double)want[i] > second) second = (double)want[i];
    double mean = sum / (double)n;
    double margin = ((double)want[top] - second) / sqrt(squares / (double)n - mean * mean);
    c->other_top++;
    if (!(margin <= c->widest)) c->widest = margin;
}

static struct closeness compare(const struct logits *got, const struct logits *want)
{
    struct closeness c = {0};
    int64_t n = model->config.vocab;
    assert_int_equal(got->rows, want->rows);
    for (int64_t i = 0; i < got->rows; i++)
        compare_row(got->data + i * n, want->data + i * n, n, &c);
    c.kl /= (double)c.rows;
    return c;
}

static void add_closeness(struct closeness *all, const struct closeness *one)
{
    all->rows += one->rows;
    all->other_bits += one->other_bits;
    all->other_top += one->other_top;
    all->kl = fmax(all->kl, one->kl);
    all->widest = fmax(all->widest, one->widest);
}

static void expect(bool holds, const char *what)
{
    if (holds) return;
    print_message("  FAILED: %s\n", what);
    n_failed++;
}

static int start(void **state)
{
    (void)state;
    n_failed = 0;
    return 0;
}

static int finish(void **state)
{
    (void)state;
    return n_failed;
}

static void judge(const char *what, const struct closeness *c, double tolerance, bool same_bits)
{
    print_message("%-46s %4lld rows, %lld with other bits%s; KL %.0e; %lld with another top token, "
                  "margin there %.3f sd (tolerance %.2g)\n",
                  what, (long long)c->rows, (long long)c->other_bits,
                  same_bits ? " (none allowed)" : "", c->kl, (long long)c->other_top, c->widest,
                  tolerance);
    expect(!same_bits || c->other_bits == 0, "same bits");
    expect(c->kl <= KL_BOUND, "KL of 1e-3 at most");
    expect(c->widest <= tolerance, "another top token within the tolerance only");
}

static void check(const char *what, const struct logits *got, const struct logits *want,
                  bool same_bits)
{
    struct closeness c = compare(got, want);
    judge(what, &c, fmax(got->tolerance, want->tolerance), same_bits);
}

/* ---- the claim ---- */

static const char *const precisions[] = {"default", "float32"};

/* The scene once more, which must give the same bits, then with other companies at other places,
 * where `same_bits` says so. The first one's logits stay in `first`. */
static void check_company(const char *what, bool exact, struct scene s, bool same_bits,
                          struct logits *first)
{
    int companies = 2;
    struct closeness all = {0};
    run_scene(exact, &s, first);
    for (int i = 0; i <= companies; i++) {
        struct logits again;
        s.place = i * 3 / companies;
        s.company = (uint64_t)i;
        run_scene(exact, &s, &again);
        struct closeness one = compare(&again, first);
        if (i == 0) expect(one.other_bits == 0, "same bits once more");
        add_closeness(&all, &one);
        free(again.data);
    }
    judge(what, &all, first->tolerance, same_bits);
}

/* One row each: 2 to 128 sequences, against each other and against the sequence alone. */
static void test_decode(void **state)
{
    (void)state;
    const int batches[] = {
        2, 4, 8, 16, 32, (int)effort("sequences of the largest batch", SEQUENCES_MAX, 40)};
    int64_t steps = effort("tokens of each batch", 4, 2);
    for (int exact = 0; exact < 2; exact++) {
        struct scene s = {.sequences = 1,
                          .rows = 1,
                          .share = 1,
                          .prompt = prompt,
                          .steps = steps,
                          .others = short_prompt};
        struct logits alone, batch;
        run_scene(exact, &s, &alone);
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
            char what[64];
            s.sequences = batches[i];
            s.rows = batches[i];
            snprintf(what, sizeof what, "%s: one row of %d", precisions[exact], batches[i]);
            check_company(what, exact, s, gpu || exact, &batch);
            snprintf(what, sizeof what, "%s: one row of %d, to alone", precisions[exact],
                     batches[i]);
            check(what, &batch, &alone, exact && !gpu);
            free(batch.data);
        }
        free(alone.data);
    }
}

/* Pieces of a prompt among others' pieces. */
static void test_prompts(void **state)
{
    (void)state;
    int64_t steps = effort("steps of prompts", 3, 2);
    for (int exact = 0; exact < 2; exact++) {
        struct scene s = {.sequences = 4,
                          .rows = part * 200 / 61,
                          .share = part,
                          .steps = steps,
                          .others = short_prompt};
        struct logits first;
        char what[64];
        snprintf(what, sizeof what, "%s: %lld rows of %lld", precisions[exact], (long long)s.share,
                 (long long)s.rows);
        check_company(what, exact, s, gpu || exact, &first);
        free(first.data);
    }
}

/* The same over a long context. A GPU's attention of few rows cuts it by its own length; that of
 * prompts cuts it where the work of the whole step falls into equal parts: close, and no more. */
static void test_long_prompts(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        struct scene few = {.sequences = 8,
                            .rows = 8,
                            .share = 1,
                            .prompt = long_prompt,
                            .steps = 1,
                            .others = short_prompt};
        struct scene many = {.sequences = 3,
                             .rows = 3 * (part - 1),
                             .share = part - 1,
                             .prompt = long_prompt,
                             .steps = 1,
                             .others = long_prompt};
        struct logits first;
        char what[64];
        snprintf(what, sizeof what, "%s: one row of 8 behind %lld", precisions[exact],
                 (long long)long_prompt);
        check_company(what, exact, few, gpu || exact, &first);
        free(first.data);
        snprintf(what, sizeof what, "%s: %lld rows of %lld behind %lld", precisions[exact],
                 (long long)many.share, (long long)many.rows, (long long)long_prompt);
        check_company(what, exact, many, exact, &first);
        free(first.data);
    }
}

/* A prompt in one step and in steps of fewer rows, which on a GPU are other kernels'. */
static void test_pieces(void **state)
{
    (void)state;
    static const int64_t pieces[] = {200, 128, 100, 64, 40, 32, 16, 10, 8, 4, 2, 1};
    int64_t length = effort("tokens of the prompt in pieces", 200, 40);
    for (int exact = 0; exact < 2; exact++) {
        struct scene s = {.sequences = 1, .rows = length, .share = length, .steps = 1};
        struct logits whole, cut;
        run_scene(exact, &s, &whole);
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            char what[64];
            if (pieces[i] > length) continue;
            s.rows = s.share = pieces[i];
            s.steps = length / pieces[i];
            run_scene(exact, &s, &cut);
            snprintf(what, sizeof what, "%s: in pieces of %lld", precisions[exact],
                     (long long)pieces[i]);
            struct logits same_part = whole;
            same_part.rows = cut.rows;
            check(what, &cut, &same_part, pieces[i] == length || (exact && !gpu));
            free(cut.data);
        }
        free(whole.data);
    }
}

/* ---- token after token, against float32 on the CPU ---- */

struct text_engines {
    struct engine *engine, *reference;
    struct perplexity_params how;
};

static struct text_engines open_text_engines(bool exact, int64_t rows)
{
    struct text_engines t = {0};
    struct engine_params params = params_of(exact), expected = params_of(true);
    expected.chooser.device.gpu = NULL;
    expected.uploaded = NULL;
    params.max_batch = expected.max_batch = rows;
    perplexity_params_init(&t.how);
    perplexity_prepare(model, &t.how, &params);
    perplexity_prepare(model, &t.how, &expected);
    if (engine_create(model, &params, &t.engine) != SOL_OK ||
        engine_create(model, &expected, &t.reference) != SOL_OK)
        fail_msg("%s", sol_last_error());
    return t;
}

/* By steps of `rows`. Where the router has near ties, rounding decides, and the logits behind are
 * others by more than any kernel's tolerance. So the likeliest tokens are compared with the same
 * experts, and of the experts which others the reference would have taken. */
static void check_text(bool exact, int64_t n, int64_t rows)
{
    struct text_engines t = open_text_engines(exact, rows);
    for (int same = rows < 512; same < 2; same++) { /* both ways where tokens are many */
        struct perplexity_result r;
        t.how.same_experts = same;
        if (perplexity_measure(t.engine, t.reference, text.ids, n, &t.how, &r) != SOL_OK)
            fail_msg("%s", sol_last_error());
        double tolerance = plan_margin(engine_last_plan(t.engine));
        print_message("%s, steps of %3lld%s: %lld tokens, KL %.1e; top token differs at %.2f %%, "
                      "margin there %.3f sd",
                      precisions[exact], (long long)rows, same ? ", same experts" : "",
                      (long long)r.scored, r.kl_mean, 100 * (1 - r.top1), r.top_margin);
        expect(r.kl_mean <= KL_BOUND, "KL of 1e-3 at most");
        if (same) {
            print_message("; %.3f %% of experts not the likeliest, %.3f sd behind (tolerance %.2g)",
                          100 * r.other_experts, r.experts_behind, tolerance);
            expect(r.top_margin <= tolerance, "another top token within the tolerance only");
            expect(r.experts_behind <= tolerance, "other experts within the tolerance only");
        }
        print_message("\n");
    }
    engine_destroy(t.engine);
    engine_destroy(t.reference);
}

/* Most of it in long steps: many tokens for little time. */
static void test_text(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 8, 32, 100};
    int64_t few = effort("tokens of the text", 160, 40);
    int64_t many = effort("tokens in long steps", 1024, 160);
    for (int exact = 0; exact < (gpu ? 2 : 1); exact++) { /* on a CPU it would be the reference */
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_text(exact, few, rows[i]);
        check_text(exact, gpu && !exact ? (int64_t)text.count : many, 512);
    }
}

int main(int argc, char **argv)
{
    if (argc > 2) model_path = argv[1], text_path = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_decode, start, finish),
        cmocka_unit_test_setup_teardown(test_prompts, start, finish),
        cmocka_unit_test_setup_teardown(test_long_prompts, start, finish),
        cmocka_unit_test_setup_teardown(test_pieces, start, finish),
        cmocka_unit_test_setup_teardown(test_text, start, finish),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
