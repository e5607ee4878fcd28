/* The trainer: parameters' places, the memory of activations, and what must hold of steps whatever
 * the numbers: losses fall, evaluating changes nothing, and neither how a batch is cut, nor what is
 * made again, nor the number of threads changes the gradients. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/interrupt.h"
#include "base/rng.h"
#include "base/status.h"
#include "ops/args.h"
#include "support/effort.h"
#include "train/run.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { VOCAB = 96 };

static const char small[] = "--depth=3 --aspect-ratio=16 --head-dim=16 --max-seq-len=32 "
                            "--window-pattern=SSL --total-batch-size=128 --num-iterations=20 "
                            "--warmup-steps=4 --warmdown-ratio=0.5 --matrix-lr=0.6 "
                            "--embedding-lr=3 --unembedding-lr=0.1 --scalar-lr=5";

/* The loss that spreads tokens over experts is of a micro-batch: without it the sum of those of a
 * batch is the same however it is cut. */
static const char small_gpt_oss[] =
    "--arch=gpt-oss --depth=3 --width=64 --head-dim=16 --kv-heads=2 --experts=6 --top-k=2 "
    "--expert-width=32 --sliding-window=9 --balance=0 --max-seq-len=32 --total-batch-size=128 "
    "--num-iterations=20 --warmup-steps=4 --warmdown-ratio=0.5 --matrix-lr=0.6 --embedding-lr=3 "
    "--unembedding-lr=0.1 --scalar-lr=5";

static bool is_gpt_oss(const char *recipe)
{
    return strcmp(recipe, "gpt-oss") == 0;
}

/* 2026-07 in a small format. */
static bool is_small(const char *recipe)
{
    return strcmp(recipe, "fp8") == 0 || strcmp(recipe, "nvfp4") == 0;
}

static void settle(const char *recipe, struct train_recipe *out)
{
    static char *memory; /* flags point into it */
    struct train_flags flags;
    free(memory);
    assert_int_equal(
        train_flags_parse("test", is_gpt_oss(recipe) ? small_gpt_oss : small, &flags, &memory),
        SOL_OK);
    if (is_small(recipe)) {
        flags.precision = recipe;
        if (strcmp(recipe, "fp8") == 0) flags.aspect_ratio = 48; /* of 128 and more */
    } else if (!is_gpt_oss(recipe)) {
        flags.recipe = recipe;
    }
    if (recipe_settle(&flags, VOCAB, out) != SOL_OK) fail_msg("%s", sol_last_error());
}

static const char *const recipes[] = {"2026-07", "2026-01", "gpt-oss", "nvfp4", "fp8"};

/* ---- parameters ---- */

struct span {
    const char *begin, *end;
};

static void add_span(struct span *spans, int *n, const struct matrix *m, const void *memory,
                     size_t bytes)
{
    if (!m->data) return;
    const struct span s = {m->data, (char *)m->data + (size_t)matrix_bytes(m)};
    assert_true(s.begin >= (const char *)memory && s.end <= (const char *)memory + bytes);
    for (int i = 0; i < *n; i++) assert_true(s.end <= spans[i].begin || spans[i].end <= s.begin);
    spans[(*n)++] = s;
}

/* Of small formats but FP8, whose scales are states. */
static void add_scales(struct span *spans, int *n, const struct params *p, int i)
{
    const struct param *q = &p->all[i];
    for (int k = 0; q->small.data && !q->history.data && k < OPERANDS; k++) {
        const struct matrix m = matrix_f32(q->scale[k], 1, QUANTISE_SCALE_FLOATS);
        add_span(spans, n, &m, p->values, p->value_bytes);
    }
}

/* All inside their memory, and none on another. */
static void check_spans(const struct params *p)
{
    struct span *spans = calloc((size_t)p->count * 9, sizeof *spans);
    assert_non_null(spans);
    int n = 0;
    for (int i = 0; i < p->count; i++) {
        add_span(spans, &n, &p->all[i].value, p->values, p->value_bytes);
        add_span(spans, &n, &p->all[i].copy, p->values, p->value_bytes);
        add_span(spans, &n, &p->all[i].small, p->values, p->value_bytes);
        add_span(spans, &n, &p->all[i].small_turned, p->values, p->value_bytes);
        add_scales(spans, &n, p, i);
    }
    n = 0;
    for (int i = 0; i < p->count; i++)
        add_span(spans, &n, &p->all[i].grad, p->grads, p->grad_bytes);
    n = 0;
    for (int i = 0; i < p->count; i++) {
        const struct param *q = &p->all[i];
        const bool muon = q->group == GROUP_MATRIX;
        assert_true(!q->momentum.data == !muon && !q->mean.data == muon);
        assert_true(!q->square.data == muon);
        add_span(spans, &n, &q->mean, p->states, p->state_bytes);
        add_span(spans, &n, &q->square, p->states, p->state_bytes);
        add_span(spans, &n, &q->momentum, p->states, p->state_bytes);
        add_span(spans, &n, &q->second, p->states, p->state_bytes);
        add_span(spans, &n, &q->history, p->states, p->state_bytes);
    }
    free(spans);
}

static void check_follows(const struct matrix *a, const struct matrix *b)
{
    assert_true(!a->data == !b->data);
    assert_int_equal(a->dtype, b->dtype);
    if (a->data) assert_ptr_equal(b->data, (char *)a->data + (size_t)matrix_bytes(a));
}

/* Each stack is what Muon takes it for, and all of Muon's are in one. A parameter has a matrix for
 * each expert. */
static void check_stacks(const struct params *p)
{
    int64_t members = 0, muon = 0;
    for (int s = 0; s < p->n_stacks; s++) {
        const struct param_stack *stack = &p->stacks[s];
        const struct param *q = &p->all[stack->first];
        int64_t count = 0;
        for (int i = 0; count < stack->count; i++) {
            assert_int_equal(q[i].group, GROUP_MATRIX);
            assert_int_equal(q[i].weight.rows, stack->rows);
            assert_int_equal(q[i].rows, stack->rows * q[i].weight.groups);
            assert_int_equal(q[i].cols, stack->cols);
            if (q[i].second.data)
                assert_int_equal(q[i].second.rows * q[i].second.cols,
                                 q[i].weight.groups *
                                     (stack->rows > stack->cols ? stack->rows : stack->cols));
            count += q[i].weight.groups;
            if (!i) continue;
            assert_true(q[i - 1].number < q[i].number);
            check_follows(&q[i - 1].value, &q[i].value);
            check_follows(&q[i - 1].grad, &q[i].grad);
            check_follows(&q[i - 1].momentum, &q[i].momentum);
            check_follows(&q[i - 1].second, &q[i].second);
            check_follows(&q[i - 1].copy, &q[i].copy);
        }
        assert_int_equal(count, stack->count);
        members += count;
    }
    for (int i = 0; i < p->count; i++)
        muon += p->all[i].group == GROUP_MATRIX ? p->all[i].weight.groups : 0;
    assert_int_equal(members, muon);
}

static void test_params(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(recipes); r++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct train_recipe recipe;
            struct params *p, *sizes;
            settle(recipes[r], &recipe);
            struct params_options options = {.recipe = &recipe, .bf16 = bf16};
            assert_int_equal(params_create(&options, &p), SOL_OK);
            check_spans(p);
            check_stacks(p);
            const bool gpt_oss = is_gpt_oss(recipes[r]);
            const struct param *head = params_find(p, gpt_oss ? "output.weight" : "lm_head.weight");
            assert_non_null(head);
            assert_int_equal(head->rows, gpt_oss ? VOCAB : 128); /* whole 64s */
            assert_ptr_equal(p->model.head.data, bf16 ? head->copy.data : head->value.data);
            assert_int_equal(p->model.head.dtype, bf16 ? DTYPE_BF16 : DTYPE_F32);
            assert_int_equal(p->model.embed.dtype, bf16 ? DTYPE_BF16 : DTYPE_F32);
            assert_null(params_find(p, "lm_head"));
            options.outline = true;
            assert_int_equal(params_create(&options, &sizes), SOL_OK);
            assert_int_equal(sizes->value_bytes, p->value_bytes);
            assert_int_equal(sizes->grad_bytes, p->grad_bytes);
            assert_int_equal(sizes->state_bytes, p->state_bytes);
            assert_null(sizes->values);
            params_destroy(sizes);
            params_destroy(p);
        }
}

/* ---- the memory of activations ---- */

/* A plan is listed twice: with the places that are to be checked, and with places where no buffer
 * meets another and which so name the buffers. Then the steps are gone through. What writes marks
 * every number of a place as the buffer's, and what reads must find that mark on all. */
struct marking {
    char *memory;
    size_t size;
    uintptr_t *marks; /* one for each 4 bytes of memory: the name of what lies there */
    const struct plan *placed, *named;
    size_t rows;
    int step;
};

static const size_t far = (size_t)1 << 32; /* from one name to the next */

static void name_buffers(struct activations *a)
{
    uintptr_t next = far;
    struct pass_buffers *b = &a->at;
    void **const whole[] = {&b->embedding, &b->raw,     &b->normed,   &b->final,
                            &b->dstream,   &b->dx0,     &b->dmiddle,  &b->dnormed,
                            &b->dattn,     &b->dact,    &b->dq,       &b->dk,
                            &b->dv,        &b->dy,      &b->dup,      &b->gathered,
                            &b->act,       &b->small_x, &b->small_dy, &b->small_dy_turned};
    for (size_t i = 0; i < COUNT(whole); i++, next += far) *whole[i] = (void *)next;
    b->dweight = (float *)next, next += far;
    b->dlogits = (float *)next, next += far;
    for (int64_t n = 0; n <= a->recipe->config.n_layers; n++) {
        struct layer_buffers *l = &b->layers[n];
        void **const own[] = {&l->stream, &l->mid, &l->q,   &l->k,       &l->v,
                              &l->attn,   &l->act, &l->mix, &l->attn_in, &l->mlp_in,
                              &l->gate,   &l->up,  &l->y};
        float **const rows[] = {&l->lse, &l->q_rstd, &l->k_rstd, &l->logits, &l->routing.weight};
        int32_t **const tables[] = {&l->routing.expert, &l->routing.group_offsets,
                                    &l->routing.token_of_row, &l->routing.row_of_slot};
        void **const turned[] = {&l->attn_in_turned, &l->attn_turned, &l->mlp_in_turned,
                                 &l->act_turned};
        for (size_t i = 0; i < COUNT(turned); i++, next += far)
            if (*turned[i]) *turned[i] = (void *)next; /* else they are made again */
        for (size_t i = 0; i < COUNT(tables); i++, next += far) *tables[i] = (int32_t *)next;
        for (size_t i = 0; i < COUNT(own); i++, next += far) *own[i] = (void *)next;
        for (size_t i = 0; i < COUNT(rows); i++, next += far) *rows[i] = (float *)next;
    }
    b->x0 = b->layers[0].stream;
}

/* `write`, or else it must be there. */
static void mark(struct marking *m, const void *place, const void *name, size_t bytes, bool write)
{
    const char *at = place;
    if (!place || at < m->memory || at >= m->memory + m->size) return; /* a weight, or scratch */
    assert_true(at + bytes <= m->memory + m->size);
    for (size_t i = 0; i < bytes; i += 4) {
        uintptr_t *cell = &m->marks[(size_t)(at - m->memory + (ptrdiff_t)i) / 4];
        if (write) *cell = (uintptr_t)name + i;
        if (*cell != (uintptr_t)name + i)
            fail_msg("step %d, %s, reads buffer %zu at byte %zu and finds what buffer %zu left",
                     m->step, plan_step_at(m->placed, m->step)->op->name, (uintptr_t)name / far, i,
                     *cell / far);
    }
}

static void mark_at(struct marking *m, size_t offset, size_t bytes, bool write)
{
    const void *place, *name;
    memcpy(&place, (char *)plan_step_at(m->placed, m->step)->args + offset, sizeof place);
    memcpy(&name, (char *)plan_step_at(m->named, m->step)->args + offset, sizeof name);
    mark(m, place, name, bytes, write);
}

/* Tables of experts that a step reads. */
static void mark_tables(struct marking *m)
{
    const struct plan_step *s = plan_step_at(m->placed, m->step);
    const size_t experts = 6, top_k = 2;
    static const struct {
        const char *op;
        size_t offset;
        bool ends; /* else a number a slot */
    } tables[] = {
#define READS(op, member) {#op, offsetof(struct op##_args, member), false}
#define ENDS(op, member)                                                                           \
    {                                                                                              \
#op, offsetof(struct op##_args, member), true                                              \
    }
        READS(combine, routing.weight),
        READS(combine, routing.row_of_slot),
        READS(combine_backward, routing.weight),
        READS(combine_backward, routing.row_of_slot),
        READS(gather_rows, rows),
        READS(gather_rows_backward, row_of_slot),
        READS(route_backward, routing.weight),
        READS(route_backward, routing.expert),
        READS(route_backward, dweight),
        ENDS(route_backward, routing.group_offsets),
        ENDS(grouped_matmul, group_offsets),
        ENDS(grouped_wgrad, group_offsets),
        ENDS(add_bias, group_offsets),
        ENDS(bias_backward, group_offsets),
#undef READS
#undef ENDS
    };
    for (size_t i = 0; i < COUNT(tables); i++)
        if (strcmp(s->op->name, tables[i].op) == 0)
            mark_at(m, tables[i].offset, 4 * (tables[i].ends ? experts + 1 : m->rows * top_k),
                    false);
}

/* What a step does with a matrix, where that is less than the op may. */
static enum op_access access_of(const struct plan_step *s, const struct op_matrix *x)
{
    if (strcmp(s->op->name, "axpby_backward") == 0 &&
        x->offset == offsetof(struct axpby_backward_args, dy) &&
        ((const struct axpby_backward_args *)s->args)->first)
        return OP_WRITES;
    if (strcmp(s->op->name, "grouped_matmul") == 0 &&
        x->offset == offsetof(struct grouped_matmul_args, out) &&
        !((const struct grouped_matmul_args *)s->args)->add)
        return OP_WRITES;
    return x->access;
}

/* What one step reads, then what it writes. */
static void mark_step(struct marking *m)
{
    const struct plan_step *s = plan_step_at(m->placed, m->step);
    struct op_output outputs[OP_OUTPUTS_MAX];
    mark_tables(m);
    for (int write = 0; write < 2; write++)
        for (int i = 0; i < OP_MATRICES_MAX && s->op->matrices[i].access; i++) {
            const struct op_matrix *x = &s->op->matrices[i];
            const enum op_access access = access_of(s, x);
            if (access == (write ? OP_READS : OP_WRITES)) continue;
            mark_at(m, x->offset, (size_t)matrix_bytes(op_matrix_of(x, s->args)), write);
        }
    if (strcmp(s->op->name, "self_attention_backward") == 0) {
        const struct self_attention_backward_args *a = s->args;
        mark_at(m, offsetof(struct self_attention_backward_args, lse),
                (size_t)(a->n_heads * a->sequences * a->length) * 4, false);
    }
    if (strcmp(s->op->name, "rotary_norm_backward") == 0) {
        const struct rotary_norm_backward_args *a = s->args;
        mark_at(m, offsetof(struct rotary_norm_backward_args, rstd),
                (size_t)(a->m * a->n_heads) * 4, false);
    }
    if (strcmp(s->op->name, "fp8_matmul") == 0) {
        const struct fp8_matmul_args *a = s->args;
        mark_at(m, offsetof(struct fp8_matmul_args, a), (size_t)(a->m * a->k), false);
        mark_at(m, offsetof(struct fp8_matmul_args, b), (size_t)(a->n * a->k), false);
    }
    const int n = s->op->more_outputs ? s->op->more_outputs(s->args, outputs) : 0;
    for (int i = 0; i < n; i++) mark_at(m, outputs[i].offset, outputs[i].bytes, true);
}

static struct plan *list_pass(const struct activations *a, const struct params *params,
                              bool evaluate)
{
    static struct batch batch;
    struct chooser chooser;
    struct plan *plan;
    chooser_init(&chooser, 1);
    chooser.reference = true;
    assert_int_equal(chooser_force(&chooser, "linear_cross_entropy=chunked:16"), SOL_OK);
    const struct pass pass = {.params = params,
                              .buffers = &a->at,
                              .batch = &batch,
                              .sequences = a->sequences,
                              .length = a->recipe->length,
                              .dtype = a->dtype,
                              .evaluate = evaluate,
                              .recompute = a->recompute,
                              .precision = a->recipe->precision};
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    pass_forward(plan, &pass);
    if (!evaluate) pass_backward(plan, &pass);
    if (plan_finish_dry(plan) != SOL_OK) fail_msg("%s", sol_last_error());
    return plan;
}

struct kept {
    const void *at;
    size_t bytes;
};

static void check_activations(const struct train_recipe *recipe, enum recompute recompute,
                              bool evaluate)
{
    struct params *params;
    const struct params_options options = {.recipe = recipe, .outline = true};
    struct activations placed = {
        .recipe = recipe, .sequences = 2, .dtype = DTYPE_F32, .recompute = recompute};
    struct activations named = placed;
    assert_int_equal(params_create(&options, &params), SOL_OK);
    assert_int_equal(activations_describe(&placed), SOL_OK);
    assert_int_equal(activations_describe(&named), SOL_OK);
    struct marking m = {.memory = malloc(placed.size), .size = placed.size};
    m.marks = calloc(m.size / 4 + 1, sizeof *m.marks);
    assert_true(m.memory && m.marks);
    activations_place(&placed, m.memory);
    activations_place(&named, m.memory);
    name_buffers(&named);
    struct plan *one = list_pass(&placed, params, evaluate);
    struct plan *two = list_pass(&named, params, evaluate);
    m.placed = one, m.named = two;

    const struct pass_buffers *b = &placed.at;
    const size_t rows = m.rows = (size_t)(placed.sequences * recipe->length);
    const struct kept kept[] = {
        {b->token, rows * 4},    {b->target, rows * 4},   {b->order, rows * 4},    {b->scale, 4},
        {b->position, rows * 4}, {b->sequence, rows * 4}, {b->back_freq, 8 * 4},   {b->loss, 4},
        {b->inv_freq, 8 * 4},    {b->nll, rows * 4},      {b->key, sizeof *b->key}};
    for (size_t i = 0; i < COUNT(kept); i++) mark(&m, kept[i].at, kept[i].at, kept[i].bytes, true);
    assert_int_equal(plan_step_count(one), plan_step_count(two));
    assert_true(plan_step_count(one) > 30);
    for (m.step = 0; m.step < plan_step_count(one); m.step++) mark_step(&m);
    m.step = 0;
    for (size_t i = 0; i < COUNT(kept); i++) mark(&m, kept[i].at, kept[i].at, kept[i].bytes, false);

    plan_destroy(one);
    plan_destroy(two);
    activations_free(&placed);
    activations_free(&named);
    params_destroy(params);
    free(m.memory);
    free(m.marks);
}

static void add_bytes(void *arg, const char *name, size_t bytes)
{
    (void)name;
    *(size_t *)arg += bytes;
}

static void test_activations(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(recipes); r++) {
        struct train_recipe recipe;
        settle(recipes[r], &recipe);
        for (int recompute = 0; recompute < RECOMPUTE_LEVELS; recompute++)
            for (int evaluate = 0; evaluate < 2; evaluate++)
                check_activations(&recipe, (enum recompute)recompute, evaluate);
        struct activations a = {.recipe = &recipe, .sequences = 2, .dtype = DTYPE_F32};
        size_t all = 0;
        assert_int_equal(activations_describe(&a), SOL_OK);
        activations_report(&a, add_bytes, &all);
        assert_true(a.size < all); /* some share memory */
        activations_free(&a);
    }
}

/* ---- steps ---- */

struct tokens {
    int32_t x[128], y[128];
};

/* Text that can be learned: after a token comes mostly the same other one. */
static void draw(struct rng *rng, struct tokens *t)
{
    for (int i = 0; i < 128; i++) {
        if (i % 32 == 0) t->x[i] = (int32_t)rng_range(rng, 0, VOCAB - 1);
        t->y[i] = (t->x[i] * 7 + 3) % VOCAB;
        if (rng_range(rng, 0, 9) == 0) t->y[i] = (int32_t)rng_range(rng, 0, VOCAB - 1);
        if (i % 32 != 31) t->x[i + 1] = t->y[i];
    }
}

static struct trainer *create(const struct train_recipe *recipe, int64_t sequences, int recompute,
                              int threads)
{
    struct trainer_params p;
    struct trainer *t;
    trainer_params_init(&p);
    p.recipe = recipe;
    p.sequences = sequences;
    p.recompute = recompute;
    p.threads = threads;
    if (trainer_create(&p, &t) != SOL_OK || trainer_init(t) != SOL_OK)
        fail_msg("%s", sol_last_error());
    assert_int_equal(trainer_sequences(t), sequences);
    assert_int_equal(trainer_recomputes(t), recompute < 0 ? RECOMPUTE_NOTHING : recompute);
    return t;
}

/* All of a batch of 4 sequences, in as many micro-batches as the trainer's size makes of it. */
static void go_through(struct trainer *t, const struct tokens *tokens)
{
    const int64_t rows = trainer_sequences(t) * 32;
    for (int64_t at = 0; at < 128; at += rows) {
        const struct micro_batch batch = {.x = tokens->x + at, .y = tokens->y + at};
        assert_int_equal(trainer_check(t, &batch), SOL_OK);
        assert_int_equal(trainer_micro(t, &batch, (double)rows / 128, false), SOL_OK);
    }
}

/* The losses of the first and the last of so many steps. */
static void train(struct trainer *t, int64_t steps, double losses[2])
{
    struct rng rng;
    struct tokens tokens;
    double norm;
    rng_seed(&rng, 5);
    for (int64_t step = 0; step < steps; step++) {
        draw(&rng, &tokens);
        go_through(t, &tokens);
        assert_int_equal(trainer_update(t, step, false), SOL_OK);
        assert_int_equal(trainer_results(t, step, &losses[step > 0], &norm), SOL_OK);
        assert_true(norm > 0 && isfinite(norm));
    }
}

static void same_memory(const struct params *a, const struct params *b, bool gradients)
{
    assert_memory_equal(a->values, b->values, a->value_bytes);
    assert_memory_equal(a->states, b->states, a->state_bytes);
    if (gradients) assert_memory_equal(a->grads, b->grads, a->grad_bytes);
}

static void copy_memory(const struct params *from, const struct params *to)
{
    memcpy(to->values, from->values, from->value_bytes);
    memcpy(to->states, from->states, from->state_bytes);
    memcpy(to->grads, from->grads, from->grad_bytes);
}

static void test_learns(void **state)
{
    enum { STEPS = 20 };
    (void)state;
    for (size_t r = 0; r < COUNT(recipes); r++) {
        struct train_recipe recipe;
        double losses[2], loss, norm;
        settle(recipes[r], &recipe);
        struct trainer *t = create(&recipe, 4, 0, 1);
        const int64_t steps = r ? effort("updates of another recipe", STEPS, 3) : STEPS;
        train(t, steps, losses);
        const double lower = steps < STEPS ? 0 : 1;
        if (!(fabs(losses[0] - log(VOCAB)) < 0.5 && losses[1] < losses[0] - lower))
            fail_msg("%s: loss %g to %g", recipes[r], losses[0], losses[1]);
        assert_int_equal(trainer_results(t, steps - 3, &loss, &norm), SOL_E_ARGUMENT);
        for (size_t i = 0; i < trainer_weights(t)->grad_bytes; i++)
            assert_int_equal(((char *)trainer_weights(t)->grads)[i], 0);
        trainer_destroy(t);
    }
}

/* Between the micro-batches of an update, too. */
static void test_evaluation(void **state)
{
    (void)state;
    struct train_recipe recipe;
    struct rng rng;
    struct tokens tokens;
    double losses[2], loss, other_loss, norm, sum = 0;
    float nll[128];
    settle("2026-07", &recipe);
    struct trainer *t = create(&recipe, 4, 0, 2), *other = create(&recipe, 4, 0, 2);
    train(t, 6, losses);
    copy_memory(trainer_weights(t), trainer_weights(other));
    rng_seed(&rng, 6);
    draw(&rng, &tokens);
    go_through(t, &tokens);
    go_through(other, &tokens);
    same_memory(trainer_weights(t), trainer_weights(other), true);
    tokens.y[5] = -1;
    const struct micro_batch batch = {.x = tokens.x, .y = tokens.y};
    assert_int_equal(trainer_evaluate(t, &batch, nll), SOL_OK);
    same_memory(trainer_weights(t), trainer_weights(other), true);
    for (int i = 0; i < 128; i++) {
        assert_true(i == 5 ? nll[i] == 0 : nll[i] > 0);
        sum += (double)nll[i];
    }
    assert_int_equal(trainer_update(t, 6, false), SOL_OK);
    assert_int_equal(trainer_update(other, 6, false), SOL_OK);
    same_memory(trainer_weights(t), trainer_weights(other), true);
    assert_int_equal(trainer_results(t, 6, &loss, &norm), SOL_OK);
    assert_int_equal(trainer_results(other, 6, &other_loss, &norm), SOL_OK);
    assert_true(loss == other_loss);
    /* what was evaluated is what is trained on, but for the target that was left out */
    assert_true(fabs(sum / 127 - loss) < 0.1);
    trainer_destroy(t);
    trainer_destroy(other);
}

/* Of trained weights, since most gradients are zero at first. `same`: bit for bit. */
static void compare_gradients(struct trainer *a, struct trainer *b, bool same)
{
    struct rng rng;
    struct tokens tokens;
    double losses[2];
    const int64_t before = effort("updates before gradients are compared", 6, 2);
    train(a, before, losses);
    copy_memory(trainer_weights(a), trainer_weights(b));
    assert_int_equal(trainer_refresh(b, before), SOL_OK);
    rng_seed(&rng, 7);
    draw(&rng, &tokens);
    go_through(a, &tokens);
    go_through(b, &tokens);
    const struct params *pa = trainer_weights(a), *pb = trainer_weights(b);
    if (same) same_memory(pa, pb, true);
    for (int i = 0; i < pa->count; i++) {
        const float *x = pa->all[i].grad.data, *y = pb->all[i].grad.data;
        const int64_t n = pa->all[i].rows * pa->all[i].cols;
        double apart = 0, size = 0;
        for (int64_t k = 0; k < n; k++) {
            apart += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
            size += (double)x[k] * (double)x[k];
        }
        if (!(size > 0 && sqrt(apart / size) < 1e-5))
            fail_msg("%s: gradients of norm %g are %g apart", pa->all[i].weight.name, sqrt(size),
                     sqrt(apart));
    }
    trainer_destroy(a);
    trainer_destroy(b);
}

static void test_micro_batches(void **state)
{
    (void)state;
    struct train_recipe recipe;
    settle("2026-07", &recipe);
    compare_gradients(create(&recipe, 4, 0, 2), create(&recipe, 1, 0, 2), false);
    settle("2026-01", &recipe);
    compare_gradients(create(&recipe, 2, 0, 2), create(&recipe, 1, 0, 2), false);
    settle("gpt-oss", &recipe);
    compare_gradients(create(&recipe, 4, 0, 2), create(&recipe, 1, 0, 2), false);
}

static void test_recompute(void **state)
{
    (void)state;
    struct trainer_memory all, less;
    for (size_t r = 0; r < COUNT(recipes); r += 2)
        for (int level = RECOMPUTE_NORMS; level < RECOMPUTE_LEVELS; level++) {
            struct train_recipe recipe;
            settle(recipes[r], &recipe);
            struct trainer *a = create(&recipe, 4, level - 1, 2);
            struct trainer *b = create(&recipe, 4, level, 2);
            trainer_memory(a, &all);
            trainer_memory(b, &less);
            assert_true(less.activations < all.activations);
            compare_gradients(a, b, true);
        }
}

static void compare_threads(const char *name)
{
    struct train_recipe recipe;
    double losses[2];
    const int64_t steps = effort("updates by some threads", 5, 2);
    settle(name, &recipe);
    struct trainer *first = create(&recipe, 2, 0, 1);
    train(first, steps, losses);
    for (int threads = 2; threads <= 3; threads++) {
        double again[2];
        struct trainer *t = create(&recipe, 2, 0, threads);
        train(t, steps, again);
        same_memory(trainer_weights(first), trainer_weights(t), true);
        assert_true(again[0] == losses[0] && again[1] == losses[1]);
        trainer_destroy(t);
    }
    trainer_destroy(first);
}

static void test_threads(void **state)
{
    (void)state;
    compare_threads("2026-07");
    compare_threads("gpt-oss");
    compare_threads("nvfp4");
    compare_threads("fp8");
}

/* ---- small formats ---- */

static double cosine(const struct matrix *a, const struct matrix *b)
{
    const float *x = a->data, *y = b->data;
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < a->rows * a->cols; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xy / sqrt(xx * yy);
}

/* Gradients of a batch in a small format beside those without, of weights that were trained. */
static void compare_directions(const char *name, double least)
{
    struct train_recipe recipe, plain_recipe;
    struct rng rng;
    struct tokens tokens;
    double losses[2], worst = 1;
    settle(name, &recipe);
    plain_recipe = recipe;
    plain_recipe.precision = PRECISION_PLAIN;
    struct trainer *plain = create(&plain_recipe, 4, 0, 2), *small_one = create(&recipe, 4, 0, 2);
    const struct params *a = trainer_weights(plain), *b = trainer_weights(small_one);
    train(plain, 8, losses);
    int n_small = 0;
    for (int i = 0; i < a->count; i++) {
        memcpy(b->all[i].value.data, a->all[i].value.data, (size_t)matrix_bytes(&a->all[i].value));
        n_small += b->all[i].small.data != NULL;
    }
    assert_true(n_small > 0);
    assert_int_equal(trainer_refresh(small_one, 8), SOL_OK);
    rng_seed(&rng, 8);
    draw(&rng, &tokens);
    go_through(plain, &tokens);
    go_through(small_one, &tokens);
    for (int i = 0; i < a->count; i++)
        if (b->all[i].small.data) {
            const double c = cosine(&a->all[i].grad, &b->all[i].grad);
            worst = fmin(worst, c);
            assert_true(c < 1); /* it is in a small format */
        }
    if (worst < least) fail_msg("%s: a gradient's cosine is %g", name, worst);
    trainer_destroy(plain);
    trainer_destroy(small_one);
}

static void test_small_gradients(void **state)
{
    (void)state;
    compare_directions("nvfp4", 0.9);
    /* Gradients of logits, which add up to 0, no longer do when they are rounded: what the rows of
     * the head have in common is then part of what goes back, and young heads have little else. */
    compare_directions("fp8", 0.75);
}

/* Other bits at each micro-batch of each step, the same ones again. */
static void test_random_bits(void **state)
{
    (void)state;
    struct train_recipe recipe;
    struct tokens tokens;
    struct rng rng;
    double losses[2];
    settle("nvfp4", &recipe);
    struct trainer *t = create(&recipe, 4, 0, 1);
    train(t, 4, losses);
    const struct params *p = trainer_weights(t);
    rng_seed(&rng, 9);
    draw(&rng, &tokens);
    float *first = malloc(p->grad_bytes);
    assert_non_null(first);
    for (int i = 0; i < 4; i++) {
        if (i == 2) assert_int_equal(trainer_refresh(t, 5), SOL_OK);
        if (i == 3) assert_int_equal(trainer_refresh(t, 4), SOL_OK);
        memset(p->grads, 0, p->grad_bytes);
        go_through(t, &tokens);
        if (i == 0) memcpy(first, p->grads, p->grad_bytes);
        assert_true((memcmp(first, p->grads, p->grad_bytes) == 0) == (i == 0 || i == 3));
    }
    free(first);
    trainer_destroy(t);
}

static void test_refused(void **state)
{
    (void)state;
    struct train_recipe recipe;
    struct trainer_params p;
    struct trainer *t;
    struct tokens tokens = {{0}, {0}};
    settle("2026-07", &recipe);
    t = create(&recipe, 4, 0, 1);
    const struct micro_batch batch = {.x = tokens.x, .y = tokens.y};
    tokens.y[3] = -1;
    assert_int_equal(trainer_check(t, &batch), SOL_OK);
    tokens.y[40] = VOCAB;
    assert_int_equal(trainer_check(t, &batch), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "token 0 (target 96) at 8 of sequence 1"));
    tokens.y[40] = 0;
    tokens.x[1] = -1;
    assert_int_equal(trainer_check(t, &batch), SOL_E_ARGUMENT);
    trainer_destroy(t);
    trainer_params_init(&p);
    recipe.total_batch = 33;
    p.recipe = &recipe;
    assert_int_equal(trainer_create(&p, &t), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "33 tokens has no whole sequences of 32"));
    p.sequences = (int64_t)1 << 24; /* 2^29 rows */
    assert_int_equal(trainer_create(&p, &t), SOL_E_MEMORY);
    assert_non_null(strstr(sol_last_error(), "lower --device-batch-size"));
}

/* ---- runs that end before their end ---- */

static char folder[] = "/tmp/sol-train-XXXXXX"; /* of a group of tests */

/* Of VOCAB tokens, in the folder of the tests. */
static struct corpus *open_corpus(void)
{
    char path[100];
    struct corpus *corpus;
    struct corpus_options options;
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++) {
        const uint16_t token = (uint16_t)(i * i % VOCAB);
        assert_int_equal(fwrite(&token, sizeof token, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    corpus_options_init(&options);
    options.path = path;
    options.vocab = VOCAB;
    if (corpus_open(&options, CORPUS_TRAIN, &corpus) != SOL_OK) fail_msg("%s", sol_last_error());
    return corpus;
}

struct spoiled {
    struct trainer *trainer;
    int64_t at, saved;
};

static void spoil(void *arg, const struct train_step *step)
{
    struct spoiled *s = arg;
    const struct params *p = trainer_weights(s->trainer);
    if (step->step == s->at) ((float *)p->all[0].value.data)[3] = NAN;
}

static void count_saved(void *arg, const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    ((struct spoiled *)arg)->saved++;
}

static struct train_run_params saving(const struct train_recipe *recipe, struct trainer *t,
                                      const struct corpus *corpus, const char *out)
{
    return (struct train_run_params){.recipe = recipe,
                                     .trainer = t,
                                     .corpus = corpus,
                                     .packing = PACKING_STREAM,
                                     .out = out,
                                     .save_every = 2};
}

static void spoil_run(const struct train_recipe *recipe, const struct corpus *corpus,
                      const char *out, const char *message)
{
    struct trainer *t = create(recipe, 2, 0, 1);
    struct spoiled s = {.trainer = t, .at = 4};
    struct train_run_params params = saving(recipe, t, corpus, out);
    params.on_step = spoil;
    params.on_save = count_saved;
    params.arg = &s;
    assert_int_equal(train_run(&params), SOL_E_MISMATCH);
    if (!strstr(sol_last_error(), "step 5: the loss is nan") || !strstr(sol_last_error(), message))
        fail_msg("%s", sol_last_error());
    assert_int_equal(s.saved, out ? 2 : 0);
    trainer_destroy(t);
}

static void test_nan(void **state)
{
    (void)state;
    char out[100], message[200];
    struct train_recipe recipe;
    struct corpus *corpus = open_corpus();
    settle("2026-07", &recipe);
    snprintf(out, sizeof out, "%s/run", folder);
    snprintf(message, sizeof message, "The last checkpoint is %s/step_000004", out);
    spoil_run(&recipe, corpus, out, message);
    assert_int_equal(checkpoint_latest(out), 4);
    spoil_run(&recipe, corpus, NULL, "No checkpoint was saved before");
    corpus_close(corpus);
}

/* Ctrl-C within an update: it is made whole. */
static void test_interrupted_update(void **state)
{
    (void)state;
    struct train_recipe recipe;
    struct tokens tokens;
    struct rng rng;
    double losses[2][2], norm;
    settle("2026-07", &recipe);
    interrupt_install();
    for (int i = 0; i < 2; i++) {
        struct trainer *t = create(&recipe, 2, 0, 1);
        rng_seed(&rng, 9);
        draw(&rng, &tokens);
        for (int64_t step = 0; step < 2; step++) {
            if (i == 1 && step == 0) raise(SIGINT);
            go_through(t, &tokens);
            assert_int_equal(trainer_update(t, step, false), SOL_OK);
            assert_int_equal(trainer_results(t, step, &losses[i][step], &norm), SOL_OK);
        }
        trainer_destroy(t);
    }
    assert_true(interrupt_take());
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

static void interrupt(void *arg, const char *path)
{
    (void)path;
    ++*(int *)arg;
    raise(SIGINT);
}

/* Ctrl-C right after a checkpoint: that one is named, none is saved again. */
static void test_interrupted_after_save(void **state)
{
    (void)state;
    char out[100], message[200];
    int saved = 0;
    struct train_recipe recipe;
    struct corpus *corpus = open_corpus();
    settle("2026-07", &recipe);
    snprintf(out, sizeof out, "%s/interrupted", folder);
    snprintf(message, sizeof message, "interrupted at step 2 of %lld; saved as %s/step_000002",
             (long long)recipe.iterations, out);
    struct trainer *t = create(&recipe, 2, 0, 1);
    struct train_run_params params = saving(&recipe, t, corpus, out);
    params.on_save = interrupt;
    params.arg = &saved;
    interrupt_install();
    assert_int_equal(train_run(&params), SOL_E_INTERRUPTED);
    assert_true(interrupt_take());
    assert_string_equal(sol_last_error(), message);
    assert_int_equal(saved, 1);
    assert_int_equal(checkpoint_latest(out), 2);
    trainer_destroy(t);
    corpus_close(corpus);
}

static int make_folder(void **state)
{
    (void)state;
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command); /* NOLINT: the name is this file's own */
}

/* Whole runs of training, for which an emulated processor takes ten minutes. */
static const struct CMUnitTest long_tests[] = {
    cmocka_unit_test(test_learns),
    cmocka_unit_test(test_recompute),
    cmocka_unit_test(test_threads),
    cmocka_unit_test(test_small_gradients),
};

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_interrupted_after_save),
        cmocka_unit_test(test_interrupted_update),
        cmocka_unit_test(test_random_bits),
    };
    const int failed = cmocka_run_group_tests(tests, make_folder, remove_folder);
    if (failed || getenv("SOL_TEST_PART")) return failed;
    return cmocka_run_group_tests(long_tests, make_folder, remove_folder);
}
