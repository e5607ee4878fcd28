#include <math.h>

#include "ops/self_attention.h"

/* clang-format off */
static const struct {
    struct case_range sequences, length, group, n_kv_heads, head_dim, window; /* group: heads of a key head */
    bool sinks;
} cases[] = {
    {{1, 1, 3}, {0, 1, 60},    {1, 1, 4}, {1, 1, 3}, {2, 8, 64},   {0},         true},
    {{1, 1, 3}, {0, 1, 60},    {1, 1, 4}, {1, 1, 3}, {2, 8, 64},   {1, 1, 70},  false},
    {{1, 1, 2}, {0, 1, 200},   {1, 1, 1}, {1, 1, 3}, {1, 64, 64},  {0},         false},
    {{1, 1, 2}, {0, 1, 200},   {1, 1, 1}, {1, 1, 2}, {1, 128, 128}, {0},        true},
    {{1, 1, 2}, {1, 130, 300}, {1, 1, 2}, {1, 1, 1}, {1, 64, 64},  {1, 1, 64},  true},
    {{1, 1, 2}, {1, 130, 300}, {1, 1, 2}, {1, 1, 1}, {1, 128, 128}, {1, 60, 200}, false},
    /* whole tiles, and windows of them */
    {{1, 2, 2}, {64, 2, 4},    {1, 1, 2}, {1, 1, 1}, {1, 64, 64},  {64, 1, 2},  false},
    {{1, 1, 2}, {128, 1, 2},   {1, 1, 2}, {1, 1, 1}, {1, 128, 128}, {0},        false},
    /* windows of one token, and of more than there are */
    {{1, 1, 3}, {1, 65, 140},  {1, 1, 2}, {1, 1, 1}, {1, 64, 64},  {1, 1, 1},   true},
    {{1, 1, 2}, {1, 65, 140},  {1, 1, 2}, {1, 1, 2}, {1, 128, 128}, {1, 140, 400}, false},
    /* sequences of one token */
    {{1, 2, 9}, {1, 1, 1},     {1, 2, 4}, {1, 1, 2}, {1, 64, 64},  {0},         false},
    {{1, 2, 9}, {1, 1, 1},     {1, 1, 4}, {1, 1, 2}, {1, 128, 128}, {1, 1, 9},  true},
};
/* clang-format on */

bool self_attention_case(struct case_maker *c, struct self_attention_shape *out)
{
    if (c->index >= (int)(sizeof cases / sizeof *cases)) return false;
    out->sequences = case_draw(c, &cases[c->index].sequences);
    out->length = case_draw(c, &cases[c->index].length);
    out->n_kv_heads = case_draw(c, &cases[c->index].n_kv_heads);
    out->n_heads = out->n_kv_heads * case_draw(c, &cases[c->index].group);
    out->head_dim = case_draw(c, &cases[c->index].head_dim);
    out->window = case_draw(c, &cases[c->index].window);
    out->sinks = cases[c->index].sinks;
    return true;
}

struct self_attention_shape self_attention_problem_shape(const struct case_maker *c,
                                                         const struct op_problem *p)
{
    int64_t sequences = c->sequences > 0 && c->sequences <= p->rows ? c->sequences : 1;
    return (struct self_attention_shape){.sequences = sequences,
                                         .length = p->rows / sequences,
                                         .n_heads = p->n,
                                         .n_kv_heads = p->k,
                                         .head_dim = p->head_dim,
                                         .window = p->window};
}

static void spoil(struct case_maker *c, const struct matrix *m, int64_t row)
{
    float *x = m->data;
    if (x) x[row * m->cols + rng_range(c->rng, 0, m->cols - 1)] = NAN;
}

/* Scores in the thousands would only show what exp makes of float32's last bit: hence 1e-3, and k
 * is never extreme. */
void self_attention_make(struct case_maker *c, const struct self_attention_shape *shape,
                         struct self_attention_args *a)
{
    int64_t rows = shape->sequences * shape->length, width = shape->n_heads * shape->head_dim;
    int64_t kv_width = shape->n_kv_heads * shape->head_dim;
    bool extreme = c->kind == CASE_EXTREME, nonfinite = c->kind == CASE_NONFINITE;
    struct case_maker plain = *c;
    if (nonfinite) plain.kind = CASE_RANDOM;
    *a = (struct self_attention_args){
        .sequences = shape->sequences,
        .length = shape->length,
        .n_heads = shape->n_heads,
        .n_kv_heads = shape->n_kv_heads,
        .head_dim = shape->head_dim,
        .window = shape->window,
        .sinks = shape->sinks ? case_vector(c, shape->n_heads, 2.0f) : NULL,
        .q = case_rows(&plain, rows, width, extreme ? 1e-3f : 1.0f),
        .k = matrix_f32(case_vector(c, rows * kv_width, 1.0f), rows, kv_width),
        .v = case_rows(&plain, rows, kv_width, 1.0f),
        .out = case_output(c, rows, width),
        .lse = ARENA_NEW(c->arena, float, rows * shape->n_heads),
    };
    if (!nonfinite) return;
    spoil(c, &a->q, rng_range(c->rng, 0, rows - 1));
    if (!shape->window) spoil(c, c->index % 2 ? &a->k : &a->v, rows - shape->length);
}
