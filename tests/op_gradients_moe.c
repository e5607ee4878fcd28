/* Gradients of gpt-oss's ops: each backward op's reference against central differences of a forward
 * pass that is written here, in float64 and by the definition; and each of its variants on one
 * worker against the same on several, bit for bit. */
#include "support/gradients.h"

enum { ROUNDS = 12 };

static struct routing routing_of(int64_t m, int64_t experts, int64_t top_k)
{
    struct case_maker maker = {.arena = arena, .rng = &rng, .index = (int)size(0, 2)};
    return case_routing(&maker, m, experts, top_k);
}

static int64_t group_of(const int32_t *offsets, int64_t row)
{
    int64_t group = 0;
    while (offsets[group + 1] <= row) group++;
    return group;
}

/* ---- biases ---- */

struct bias {
    int64_t m, n;
    const int32_t *offsets; /* or NULL */
    double *bias, *y;
    const float *dy;
};

static double bias_loss(const void *inputs)
{
    const struct bias *a = inputs;
    double sum = 0;
    for (int64_t i = 0; i < a->m; i++) {
        const int64_t group = a->offsets ? group_of(a->offsets, i) : 0;
        for (int64_t j = 0; j < a->n; j++)
            sum += (double)a->dy[i * a->n + j] * (a->y[i * a->n + j] + a->bias[group * a->n + j]);
    }
    return sum;
}

static void bias(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t top_k = size(1, 3), m = top_k * size(1, 6), n = size(1, 20);
        const int64_t groups = i % 2 ? size(3, 6) : 1;
        const int32_t *offsets = i % 2 ? routing_of(m / top_k, groups, top_k).group_offsets : NULL;
        float *values = draw(groups * n), *y = draw(m * n), *dy = draw(m * n);
        float *dbias = draw(groups * n), *before = copy_of(dbias, groups * n);
        const struct bias a = {m, n, offsets, widen(values, groups * n), widen(y, m * n), dy};
        const struct forward f = {bias_loss, &a};
        run_reference(&op_add_bias, &(struct add_bias_args){.m = m,
                                                            .n = n,
                                                            .groups = groups,
                                                            .bias = values,
                                                            .group_offsets = offsets,
                                                            .y = matrix_f32(y, m, n)});
        assert_true(fabs(bias_loss(&a) - weighted(dy, widen(y, m * n), m * n)) <
                    1e-5 * (double)(m * n));
        run_reference(&op_bias_backward, &(struct bias_backward_args){.m = m,
                                                                      .n = n,
                                                                      .groups = groups,
                                                                      .group_offsets = offsets,
                                                                      .dy = matrix_f32(dy, m, n),
                                                                      .dbias = dbias});
        check("bias", &f, a.bias, groups * n, before, dbias);
    }
}

/* ---- rope ---- */

struct rope {
    int64_t m, heads, dim;
    const int32_t *position;
    const float *inv_freq;
    double scale, *x;
    const float *dy;
};

static double rope_loss(const void *inputs)
{
    const struct rope *a = inputs;
    double sum = 0;
    for (int64_t head = 0; head < a->m * a->heads; head++)
        for (int64_t d = 0; d < a->dim / 2; d++) {
            const double *x = a->x + head * a->dim + d;
            const float *dy = a->dy + head * a->dim + d;
            const double angle = a->position[head / a->heads] * (double)a->inv_freq[d];
            const double c = a->scale * cos(angle), s = a->scale * sin(angle);
            sum += (double)dy[0] * (x[0] * c - x[a->dim / 2] * s);
            sum += (double)dy[a->dim / 2] * (x[a->dim / 2] * c + x[0] * s);
        }
    return sum;
}

static void rope(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t m = size(1, 4), heads = size(1, 3), dim = 2 * size(1, 8);
        const int64_t n = m * heads * dim;
        int32_t *position = ARENA_NEW(arena, int32_t, m);
        float *x = draw(n), *dy = draw(n), *inv_freq = draw(dim / 2);
        for (int64_t r = 0; r < m; r++) position[r] = (int32_t)size(0, 3000);
        const struct batch batch = {.n_tokens = m, .position = position};
        const struct rope a = {m,        heads, dim,         position,
                               inv_freq, 1.25,  widen(x, n), copy_of(dy, n)};
        const struct forward f = {rope_loss, &a};
        run_reference(&op_rope, &(struct rope_args){.m = m,
                                                    .n_heads = heads,
                                                    .head_dim = dim,
                                                    .batch = &batch,
                                                    .inv_freq = inv_freq,
                                                    .scale = 1.25f,
                                                    .x = matrix_f32(x, m, heads * dim)});
        assert_true(fabs(rope_loss(&a) - weighted(dy, widen(x, n), n)) < 1e-5 * (double)n);
        /* A rotation's gradient is the rotation back: what training calls. */
        for (int64_t d = 0; d < dim / 2; d++) inv_freq[d] = -inv_freq[d];
        run_reference(&op_rope, &(struct rope_args){.m = m,
                                                    .n_heads = heads,
                                                    .head_dim = dim,
                                                    .batch = &batch,
                                                    .inv_freq = inv_freq,
                                                    .scale = 1.25f,
                                                    .x = matrix_f32(dy, m, heads * dim)});
        for (int64_t d = 0; d < dim / 2; d++) inv_freq[d] = -inv_freq[d];
        check("rope dx", &f, a.x, n, NULL, dy);
    }
}

/* ---- swiglu ---- */

struct swiglu {
    int64_t n;
    double alpha, limit, *gate, *up;
    const float *dout;
};

static double swiglu_loss(const void *inputs)
{
    const struct swiglu *a = inputs;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        const double g = fmin(a->gate[i], a->limit);
        const double u = fmax(fmin(a->up[i], a->limit), -a->limit);
        sum += (double)a->dout[i] * g / (1 + exp(-a->alpha * g)) * (u + 1);
    }
    return sum;
}

static void swiglu(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t m = size(1, 5), n = size(1, 40), count = m * n;
        float *gate = draw(count), *up = draw(count), *d = draw(count), *dup = draw(count);
        const float limit = 1.0f; /* so low that about a third is clamped */
        const struct swiglu a = {
            count, 1.5, (double)limit, widen(gate, count), widen(up, count), copy_of(d, count)};
        const struct forward f = {swiglu_loss, &a};
        float *out = copy_of(gate, count);
        run_reference(&op_swiglu, &(struct swiglu_args){.m = m,
                                                        .n = n,
                                                        .alpha = 1.5f,
                                                        .limit = limit,
                                                        .up = matrix_f32(up, m, n),
                                                        .gate = matrix_f32(out, m, n)});
        assert_true(fabs(swiglu_loss(&a) - weighted(d, widen(out, count), count)) <
                    1e-5 * (double)count);
        run_reference(&op_swiglu_backward,
                      &(struct swiglu_backward_args){.m = m,
                                                     .n = n,
                                                     .alpha = 1.5f,
                                                     .limit = limit,
                                                     .gate = matrix_f32(gate, m, n),
                                                     .up = matrix_f32(up, m, n),
                                                     .d = matrix_f32(d, m, n),
                                                     .dup = matrix_f32(dup, m, n)});
        check("swiglu dgate", &f, a.gate, count, NULL, d);
        check("swiglu dup", &f, a.up, count, NULL, dup);
    }
}

/* ---- route ---- */

struct route {
    int64_t m, experts, top_k;
    const struct routing *routing;
    double balance, *logits;
    const float *dweight;
};

static double route_loss(const void *inputs)
{
    const struct route *a = inputs;
    double sum = 0;
    for (int64_t i = 0; i < a->m; i++) {
        const int32_t *expert = a->routing->expert + i * a->top_k,
                      *ends = a->routing->group_offsets;
        const double *logits = a->logits + i * a->experts;
        double chosen = 0, along = 0, all = 0, shares = 0;
        for (int64_t j = 0; j < a->top_k; j++) {
            chosen += exp(logits[expert[j]]);
            along += (double)a->dweight[i * a->top_k + j] * exp(logits[expert[j]]);
        }
        for (int64_t e = 0; e < a->experts; e++) {
            all += exp(logits[e]);
            shares += exp(logits[e]) * (ends[e + 1] - ends[e]) / (double)(a->m * a->top_k);
        }
        sum += along / chosen + a->balance * (double)a->experts * shares / all;
    }
    return sum;
}

static void route(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t m = size(1, 7), experts = size(4, 9), top_k = size(1, 4);
        float *logits = draw(m * experts), *dlogits = draw(m * experts), scale = 0.25f;
        const float *dweight = draw(m * top_k);
        struct case_maker maker = {.arena = arena};
        const struct routing routing = case_routing_buffers(&maker, m, experts, top_k);
        run_reference(&op_route, &(struct route_args){.m = m,
                                                      .n_experts = experts,
                                                      .top_k = top_k,
                                                      .logits = matrix_f32(logits, m, experts),
                                                      .routing = routing});
        run_reference(&op_route_backward,
                      &(struct route_backward_args){.m = m,
                                                    .n_experts = experts,
                                                    .top_k = top_k,
                                                    .balance = i % 2 ? 3 : 0,
                                                    .scale = &scale,
                                                    .dweight = dweight,
                                                    .routing = routing,
                                                    .logits = matrix_f32(logits, m, experts),
                                                    .dlogits = matrix_f32(dlogits, m, experts)});
        const struct route a = {m,
                                experts,
                                top_k,
                                &routing,
                                i % 2 ? 0.75 : 0, /* 3 times the scale */
                                widen(logits, m * experts),
                                dweight};
        const struct forward f = {route_loss, &a};
        check("route dlogits", &f, a.logits, m * experts, NULL, dlogits);
    }
}

/* ---- rows of experts ---- */

struct rows {
    int64_t m, n, top_k;
    const struct routing *routing;
    double *weight, *y, *x; /* x: what gather_rows gathers */
    const float *dx, *dgathered;
};

static double combine_loss(const void *inputs)
{
    const struct rows *a = inputs;
    double sum = 0;
    for (int64_t slot = 0; slot < a->m * a->top_k; slot++)
        sum += a->weight[slot] * weighted(a->dx + slot / a->top_k * a->n,
                                          a->y + a->routing->row_of_slot[slot] * a->n, a->n);
    return sum;
}

static double gather_loss(const void *inputs)
{
    const struct rows *a = inputs;
    double sum = 0;
    for (int64_t row = 0; row < a->m * a->top_k; row++)
        sum +=
            weighted(a->dgathered + row * a->n, a->x + a->routing->token_of_row[row] * a->n, a->n);
    return sum;
}

static void rows(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t m = size(1, 6), n = size(1, 12), top_k = size(1, 4), slots = m * top_k;
        const struct routing routing = routing_of(m, 5, top_k);
        float *y = draw(slots * n), *dx = draw(m * n), *dy = draw(slots * n);
        float *dweight = draw(slots), *d = draw(slots * n), *sum = draw(m * n);
        const float *before = copy_of(sum, m * n);
        const struct rows a = {m,
                               n,
                               top_k,
                               &routing,
                               widen(routing.weight, slots),
                               widen(y, slots * n),
                               widen(draw(m * n), m * n),
                               dx,
                               d};
        const struct forward combine = {combine_loss, &a}, gather = {gather_loss, &a};
        run_reference(&op_combine_backward,
                      &(struct combine_backward_args){.m = m,
                                                      .n = n,
                                                      .top_k = top_k,
                                                      .routing = routing,
                                                      .y = matrix_f32(y, slots, n),
                                                      .dx = matrix_f32(dx, m, n),
                                                      .dy = matrix_f32(dy, slots, n),
                                                      .dweight = dweight});
        check("combine dy", &combine, a.y, slots * n, NULL, dy);
        check("combine dweight", &combine, a.weight, slots, NULL, dweight);
        run_reference(&op_gather_rows_backward,
                      &(struct gather_rows_backward_args){.m = m,
                                                          .n = n,
                                                          .top_k = top_k,
                                                          .row_of_slot = routing.row_of_slot,
                                                          .d = matrix_f32(d, slots, n),
                                                          .dx = matrix_f32(sum, m, n)});
        check("gather dx", &gather, a.x, m * n, before, sum);
    }
}

/* ---- grouped products ---- */

struct grouped {
    int64_t m, n, k;
    const int32_t *offsets;
    double *x, *w;
    const float *dy;
};

static double grouped_loss(const void *inputs)
{
    const struct grouped *a = inputs;
    double sum = 0;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t j = 0; j < a->n; j++) {
            const double *w = a->w + (group_of(a->offsets, i) * a->n + j) * a->k;
            double y = 0;
            for (int64_t k = 0; k < a->k; k++) y += a->x[i * a->k + k] * w[k];
            sum += (double)a->dy[i * a->n + j] * y;
        }
    return sum;
}

static void check_grouped(int64_t tokens, int64_t top_k, int64_t groups, int64_t n, int64_t k)
{
    const int64_t m = tokens * top_k;
    const int32_t *offsets = routing_of(tokens, groups, top_k).group_offsets;
    float *x = draw(m * k), *w = draw(groups * n * k), *dy = draw(m * n), *y = draw(m * n);
    float *dw = draw(groups * n * k), *dx = draw(m * k);
    const float *dw_before = copy_of(dw, groups * n * k), *dx_before = copy_of(dx, m * k);
    const struct grouped a = {m, n, k, offsets, widen(x, m * k), widen(w, groups * n * k), dy};
    const struct forward f = {grouped_loss, &a};
    struct grouped_matmul_args product = {.m = m,
                                          .n = n,
                                          .k = k,
                                          .groups = groups,
                                          .transpose = true,
                                          .group_offsets = offsets,
                                          .a = matrix_f32(x, m, k),
                                          .w = matrix_f32(w, groups * n, k),
                                          .out = matrix_f32(y, m, n)};
    run_reference(&op_grouped_matmul, &product);
    assert_true(fabs(grouped_loss(&a) - weighted(dy, widen(y, m * n), m * n)) <
                1e-5 * (double)(m * n));
    product.n = k, product.k = n;
    product.transpose = false, product.add = true;
    product.a = matrix_f32(dy, m, n), product.out = matrix_f32(dx, m, k);
    run_reference(&op_grouped_matmul, &product);
    run_reference(&op_grouped_wgrad,
                  &(struct grouped_wgrad_args){.m = m,
                                               .n = n,
                                               .k = k,
                                               .groups = groups,
                                               .group_offsets = offsets,
                                               .dy = matrix_f32(dy, m, n),
                                               .x = matrix_f32(x, m, k),
                                               .dw = matrix_f32(dw, groups * n, k)});
    check("grouped_matmul dx", &f, a.x, m * k, dx_before, dx);
    check("grouped_matmul dw", &f, a.w, groups * n * k, dw_before, dw);
}

static void grouped(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++)
        check_grouped(size(1, 5), size(1, 3), size(3, 6), size(1, 6), size(1, 6));
}

static void workers_do_not_show(void **state)
{
    (void)state;
    static const struct op *const ops[] = {
        &op_add_bias,
        &op_bias_backward,
        &op_swiglu_backward,
        &op_gather_rows,
        &op_gather_rows_backward,
        &op_combine_backward,
        &op_swiglu,
        &op_combine,
        &op_rope,
        &op_rmsnorm,
        &op_grouped_matmul,
        &op_grouped_wgrad,
    };
    compare_all_workers(ops, sizeof ops / sizeof *ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bias, begin, end),
        cmocka_unit_test_setup_teardown(rope, begin, end),
        cmocka_unit_test_setup_teardown(swiglu, begin, end),
        cmocka_unit_test_setup_teardown(route, begin, end),
        cmocka_unit_test_setup_teardown(rows, begin, end),
        cmocka_unit_test_setup_teardown(grouped, begin, end),
        cmocka_unit_test_setup_teardown(workers_do_not_show, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
