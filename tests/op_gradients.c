/* Gradients: each backward op's reference against central differences of a forward pass that is
 * written here, in float64 and by the definition; and each of its variants on one worker against
 * the same on several, bit for bit. */
#include "support/gradients.h"

enum { ROUNDS = 12 };

/* ---- self_attention ---- */

struct attention {
    int64_t sequences, length, heads, kv_heads, dim, window;
    double *q, *k, *v, *sinks; /* sinks or NULL */
    const float *dout;
};

static double attention_row(const struct attention *a, int64_t sequence, int64_t t, int64_t h)
{
    const int64_t row = sequence * a->length, kv_head = h / (a->heads / a->kv_heads);
    double total = a->sinks ? exp(a->sinks[h]) : 0, sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        double score = 0, along = 0;
        if (a->window && t - j >= a->window) continue;
        for (int64_t d = 0; d < a->dim; d++) {
            const int64_t at = ((row + t) * a->heads + h) * a->dim + d;
            const int64_t kv_at = ((row + j) * a->kv_heads + kv_head) * a->dim + d;
            score += a->q[at] * a->k[kv_at];
            along += (double)a->dout[at] * a->v[kv_at];
        }
        const double weight = exp(score / sqrt((double)a->dim));
        total += weight;
        sum += weight * along;
    }
    return sum / total;
}

static double attention_loss(const void *inputs)
{
    const struct attention *a = inputs;
    double sum = 0;
    for (int64_t s = 0; s < a->sequences; s++)
        for (int64_t t = 0; t < a->length; t++)
            for (int64_t h = 0; h < a->heads; h++) sum += attention_row(a, s, t, h);
    return sum;
}

static void check_attention(struct attention *a)
{
    const int64_t rows = a->sequences * a->length, n = rows * a->heads * a->dim;
    const int64_t n_kv = rows * a->kv_heads * a->dim;
    float *q = draw(n), *k = draw(n_kv), *v = draw(n_kv), *sinks = draw(a->heads);
    float *dsinks = draw(a->heads), *before = copy_of(dsinks, a->heads), *dout = draw(n);
    float *dq = draw(n), *dk = draw(n_kv), *dv = draw(n_kv), *out = draw(n);
    float *lse = draw(rows * a->heads);
    const bool with_sinks = size(0, 1);
    const int64_t width = a->heads * a->dim, kv_width = a->kv_heads * a->dim;
    const struct self_attention_args f = {.sequences = a->sequences,
                                          .length = a->length,
                                          .n_heads = a->heads,
                                          .n_kv_heads = a->kv_heads,
                                          .head_dim = a->dim,
                                          .window = a->window,
                                          .sinks = with_sinks ? sinks : NULL,
                                          .q = matrix_f32(q, rows, width),
                                          .k = matrix_f32(k, rows, kv_width),
                                          .v = matrix_f32(v, rows, kv_width),
                                          .out = matrix_f32(out, rows, width),
                                          .lse = lse};
    run_reference(&op_self_attention, &f);
    run_reference(&op_self_attention_backward,
                  &(struct self_attention_backward_args){.sequences = f.sequences,
                                                         .length = f.length,
                                                         .n_heads = f.n_heads,
                                                         .n_kv_heads = f.n_kv_heads,
                                                         .head_dim = f.head_dim,
                                                         .window = f.window,
                                                         .sinks = f.sinks,
                                                         .lse = lse,
                                                         .q = f.q,
                                                         .k = f.k,
                                                         .v = f.v,
                                                         .out = f.out,
                                                         .dout = matrix_f32(dout, rows, width),
                                                         .dq = matrix_f32(dq, rows, width),
                                                         .dk = matrix_f32(dk, rows, kv_width),
                                                         .dv = matrix_f32(dv, rows, kv_width),
                                                         .dsinks = with_sinks ? dsinks : NULL});
    a->q = widen(q, n), a->k = widen(k, n_kv), a->v = widen(v, n_kv), a->dout = dout;
    a->sinks = with_sinks ? widen(sinks, a->heads) : NULL;
    const struct forward loss = {attention_loss, a};
    assert_true(fabs(attention_loss(a) - weighted(dout, widen(out, n), n)) < 1e-5 * (double)n);
    check("self_attention dq", &loss, a->q, n, NULL, dq);
    check("self_attention dk", &loss, a->k, n_kv, NULL, dk);
    check("self_attention dv", &loss, a->v, n_kv, NULL, dv);
    if (with_sinks) check("self_attention dsinks", &loss, a->sinks, a->heads, before, dsinks);
}

static void self_attention(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct attention a = {.sequences = size(1, 3),
                              .length = size(1, 11),
                              .kv_heads = size(1, 2),
                              .dim = 2 * size(1, 4),
                              .window = i % 3 ? size(1, 14) : 0};
        a.heads = a.kv_heads * size(1, 3);
        check_attention(&a);
    }
}

/* ---- rmsnorm ---- */

struct norm {
    int64_t m, n;
    double eps, *x, *gain;
    const float *dy;
};

static double norm_loss(const void *inputs)
{
    const struct norm *a = inputs;
    double sum = 0;
    for (int64_t i = 0; i < a->m; i++) {
        double squares = 0, along = 0;
        for (int64_t j = i * a->n; j < (i + 1) * a->n; j++) {
            squares += a->x[j] * a->x[j];
            along += (double)a->dy[j] * a->x[j] * a->gain[j % a->n];
        }
        sum += along / sqrt(squares / (double)a->n + a->eps);
    }
    return sum;
}

static void rmsnorm(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t m = size(1, 6), n = size(2, 20);
        float *x = draw(m * n), *dy = draw(m * n), *gain = draw(n), *dgain = draw(n);
        float *dx = draw(m * n), *dx_before = copy_of(dx, m * n);
        float *dgain_before = copy_of(dgain, n);
        const bool gained = i % 2;
        for (int64_t j = 0; !gained && j < n; j++) gain[j] = 1;
        run_reference(&op_rmsnorm_backward,
                      &(struct rmsnorm_backward_args){.m = m,
                                                      .n = n,
                                                      .eps = 0.25f, /* so large that it shows */
                                                      .x = matrix_f32(x, m, n),
                                                      .dy = matrix_f32(dy, m, n),
                                                      .gain = gained ? gain : NULL,
                                                      .dgain = gained ? dgain : NULL,
                                                      .dx = matrix_f32(dx, m, n)});
        const struct norm a = {m, n, 0.25, widen(x, m * n), widen(gain, n), dy};
        const struct forward f = {norm_loss, &a};
        check("rmsnorm dx", &f, a.x, m * n, dx_before, dx);
        if (gained) check("rmsnorm dgain", &f, a.gain, n, dgain_before, dgain);
    }
}

/* ---- rotary_norm ---- */

struct rotary {
    int64_t m, heads, dim;
    const int32_t *position;
    const float *inv_freq;
    double scale, eps, *x;
    bool rounded;
    const float *dy;
};

/* A pair of a head, rotated. */
static void rotate(const struct rotary *a, int64_t head, int64_t d, double out[2])
{
    const double *x = a->x + head * a->dim;
    const double angle = a->position[head / a->heads] * (double)a->inv_freq[d];
    double c = cos(angle), s = sin(angle);
    if (a->rounded) {
        c = (double)bf16_to_f32(bf16_from_f32((float)c));
        s = (double)bf16_to_f32(bf16_from_f32((float)s));
    }
    out[0] = x[d] * c - x[d + a->dim / 2] * s;
    out[1] = x[d + a->dim / 2] * c + x[d] * s;
}

static double rotary_loss(const void *inputs)
{
    const struct rotary *a = inputs;
    double sum = 0;
    for (int64_t head = 0; head < a->m * a->heads; head++) {
        const float *dy = a->dy + head * a->dim;
        double squares = 0, along = 0, pair[2];
        for (int64_t d = 0; d < a->dim / 2; d++) {
            rotate(a, head, d, pair);
            squares += pair[0] * pair[0] + pair[1] * pair[1];
            along += (double)dy[d] * pair[0] + (double)dy[d + a->dim / 2] * pair[1];
        }
        sum += a->scale * along / sqrt(squares / (double)a->dim + a->eps);
    }
    return sum;
}

static void check_rotary(int64_t m, int64_t heads, int64_t dim, bool rounded)
{
    const int64_t n = m * heads * dim;
    int32_t *position = ARENA_NEW(arena, int32_t, m);
    float *x = draw(n), *dy = draw(n), *rstd = draw(m * heads), *inv_freq = draw(dim / 2);
    for (int64_t i = 0; i < m; i++) position[i] = (int32_t)size(0, 3000);
    const struct batch batch = {.n_tokens = m, .position = position};
    const struct rotary a = {.m = m,
                             .heads = heads,
                             .dim = dim,
                             .position = position,
                             .inv_freq = inv_freq,
                             .scale = 1.25,
                             .eps = 0.125,
                             .rounded = rounded,
                             .x = widen(x, n),
                             .dy = copy_of(dy, n)};
    run_reference(&op_rotary_norm, &(struct rotary_norm_args){.m = m,
                                                              .n_heads = heads,
                                                              .head_dim = dim,
                                                              .batch = &batch,
                                                              .inv_freq = inv_freq,
                                                              .scale = 1.25f,
                                                              .eps = 0.125f,
                                                              .rounded = rounded,
                                                              .x = matrix_f32(x, m, heads * dim),
                                                              .rstd = rstd});
    const struct forward f = {rotary_loss, &a};
    assert_true(fabs(rotary_loss(&a) - weighted(dy, widen(x, n), n)) < 1e-5 * (double)n);
    run_reference(&op_rotary_norm_backward,
                  &(struct rotary_norm_backward_args){.m = m,
                                                      .n_heads = heads,
                                                      .head_dim = dim,
                                                      .batch = &batch,
                                                      .inv_freq = inv_freq,
                                                      .scale = 1.25f,
                                                      .eps = 0.125f,
                                                      .rounded = rounded,
                                                      .rstd = rstd,
                                                      .y = matrix_f32(x, m, heads * dim),
                                                      .d = matrix_f32(dy, m, heads * dim)});
    check("rotary_norm dx", &f, a.x, n, NULL, dy);
}

static void rotary_norm(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) check_rotary(size(1, 4), size(1, 3), 2 * size(1, 8), i % 2);
}

/* ---- relu2 ---- */

struct relu2 {
    int64_t n;
    double *x;
    const float *dy;
};

static double relu2_loss(const void *inputs)
{
    const struct relu2 *a = inputs;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++)
        sum += a->x[i] > 0 ? (double)a->dy[i] * a->x[i] * a->x[i] : 0;
    return sum;
}

static void relu2(void **state)
{
    (void)state;
    const int64_t m = 7, n = 31;
    float *x = draw(m * n), *dy = draw(m * n);
    const struct relu2 a = {m * n, widen(x, m * n), copy_of(dy, m * n)};
    const struct forward f = {relu2_loss, &a};
    const struct matrix y = matrix_f32(x, m, n);
    run_reference(&op_relu2, &(struct relu2_args){.m = m, .n = n, .x = y});
    run_reference(&op_relu2_backward,
                  &(struct relu2_backward_args){.m = m, .n = n, .y = y, .d = matrix_f32(dy, m, n)});
    check("relu2 dx", &f, a.x, m * n, NULL, dy);
}

/* ---- axpby ---- */

struct axpby {
    int64_t n;
    double factor, *a, *b, *x, *y;
    const float *dout;
};

static double axpby_loss(const void *inputs)
{
    const struct axpby *p = inputs;
    double sum = 0;
    for (int64_t i = 0; i < p->n; i++)
        sum += (double)p->dout[i] * (*p->a * p->x[i] + p->factor * *p->b * p->y[i]);
    return sum;
}

static void axpby(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t m = size(1, 5), n = size(1, 30), count = m * n;
        float *x = draw(count), *y = draw(count), *d = draw(count), *dy = draw(count);
        float *a = draw(1), *b = draw(1), *da = draw(1), *db = draw(1);
        const float *dy_before = copy_of(dy, count), *da_before = copy_of(da, 1);
        const float *db_before = copy_of(db, 1), factor = i % 3 ? 1.0f : -2.0f;
        const bool alone = i % 4 == 3, first = i % 2; /* alone: no a, as for backout */
        if (alone) *a = 1;
        for (int64_t j = 0; first && j < count; j++) dy[j] = NAN; /* it was never anything */
        const struct axpby p = {count,           (double)factor,  widen(a, 1),      widen(b, 1),
                                widen(x, count), widen(y, count), copy_of(d, count)};
        run_reference(&op_axpby_backward, &(struct axpby_backward_args){
                                              .m = m,
                                              .n = n,
                                              .a = alone ? NULL : a,
                                              .b = b,
                                              .da = alone ? NULL : da,
                                              .db = db,
                                              .factor = factor,
                                              .first = first,
                                              .x = alone ? (struct matrix){0} : matrix_f32(x, m, n),
                                              .y = matrix_f32(y, m, n),
                                              .d = matrix_f32(d, m, n),
                                              .dy = matrix_f32(dy, m, n),
                                          });
        const struct forward f = {axpby_loss, &p};
        check("axpby dx", &f, p.x, count, NULL, d);
        check("axpby dy", &f, p.y, count, first ? NULL : dy_before, dy);
        if (!alone) check("axpby da", &f, p.a, 1, da_before, da);
        check("axpby db", &f, p.b, 1, db_before, db);
    }
}

/* ---- tables ---- */

/* Rows by rising token, those of one by rising row. */
static int32_t *order_of(const int32_t *token, int64_t m, int64_t vocab)
{
    int32_t *order = ARENA_NEW(arena, int32_t, m), at = 0;
    for (int64_t t = 0; t < vocab; t++)
        for (int64_t i = 0; i < m; i++)
            if (token[i] == t) order[at++] = (int32_t)i;
    return order;
}

static int32_t *draw_tokens(int64_t m, int64_t vocab)
{
    int32_t *token = ARENA_NEW(arena, int32_t, m);
    for (int64_t i = 0; i < m; i++) token[i] = (int32_t)size(0, vocab - 1);
    return token;
}

struct gated {
    int64_t m, n, channels, x_cols, heads;
    const int32_t *token;
    double scale, *x, *gate, *table;
    const float *dy;
};

static double gated_loss(const void *inputs)
{
    const struct gated *a = inputs;
    double sum = 0;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t h = 0; h < a->heads; h++) {
            double z = 0, along = 0;
            const int64_t width = a->n / a->heads;
            for (int64_t c = 0; c < a->channels; c++)
                z += a->gate[h * a->channels + c] * a->x[i * a->x_cols + c];
            for (int64_t j = h * width; j < (h + 1) * width; j++)
                along += (double)a->dy[i * a->n + j] * a->table[a->token[i] * a->n + j];
            sum += a->scale / (1 + exp(-z)) * along;
        }
    return sum;
}

static void check_gated(struct gated *a, int64_t vocab)
{
    const int64_t n_x = a->m * a->x_cols, n_table = vocab * a->n, n_gate = a->heads * a->channels;
    float *x = draw(n_x), *dx = draw(n_x), *gate = draw(n_gate), *dgate = draw(n_gate);
    float *table = draw(n_table), *dtable = draw(n_table), *dy = draw(a->m * a->n);
    const float *dx_before = copy_of(dx, n_x), *dgate_before = copy_of(dgate, n_gate);
    const float *dtable_before = copy_of(dtable, n_table);
    int32_t *token = draw_tokens(a->m, vocab);
    const struct batch batch = {.n_tokens = a->m, .token = token};
    a->token = token, a->dy = dy, a->scale = 3;
    a->x = widen(x, n_x), a->gate = widen(gate, n_gate), a->table = widen(table, n_table);
    run_reference(
        &op_gated_embed_backward,
        &(struct gated_embed_backward_args){
            .m = a->m,
            .n = a->n,
            .scale = 3,
            .batch = &batch,
            .order = order_of(token, a->m, vocab),
            .table = {.data = table, .dtype = DTYPE_F32, .groups = 1, .rows = vocab, .cols = a->n},
            .gate = {.data = gate,
                     .dtype = DTYPE_F32,
                     .groups = 1,
                     .rows = a->heads,
                     .cols = a->channels},
            .x = matrix_f32(x, a->m, a->x_cols),
            .dy = matrix_f32(dy, a->m, a->n),
            .dx = matrix_f32(dx, a->m, a->x_cols),
            .dgate = dgate,
            .dtable = matrix_f32(dtable, vocab, a->n),
        });
    const struct forward f = {gated_loss, a};
    check("gated_embed dx", &f, a->x, n_x, dx_before, dx);
    check("gated_embed dgate", &f, a->gate, n_gate, dgate_before, dgate);
    check("gated_embed dtable", &f, a->table, n_table, dtable_before, dtable);
}

static void gated_embed(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct gated a = {.m = size(1, 9), .channels = size(1, 6), .heads = size(1, 3)};
        a.n = a.heads * size(1, 6);
        a.x_cols = a.channels + size(0, 3);
        check_gated(&a, size(1, 5));
    }
}

struct lookup {
    int64_t m, n;
    const int32_t *token;
    double *table;
    const float *d;
};

static double lookup_loss(const void *inputs)
{
    const struct lookup *a = inputs;
    double sum = 0;
    for (int64_t i = 0; i < a->m; i++)
        sum += weighted(a->d + i * a->n, a->table + a->token[i] * a->n, a->n);
    return sum;
}

static void embed(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t m = size(1, 12), n = size(1, 9), vocab = size(1, 7);
        float *d = draw(m * n), *dtable = draw(vocab * n);
        const float *before = copy_of(dtable, vocab * n);
        int32_t *token = draw_tokens(m, vocab);
        const struct batch batch = {.n_tokens = m, .token = token};
        const struct lookup a = {m, n, token, widen(draw(vocab * n), vocab * n), d};
        run_reference(&op_embed_backward,
                      &(struct embed_backward_args){.m = m,
                                                    .n = n,
                                                    .batch = &batch,
                                                    .order = order_of(token, m, vocab),
                                                    .d = matrix_f32(d, m, n),
                                                    .dtable = matrix_f32(dtable, vocab, n)});
        const struct forward f = {lookup_loss, &a};
        check("embed dtable", &f, a.table, vocab * n, before, dtable);
    }
}

/* ---- smear ---- */

struct smear {
    int64_t sequences, length, n, channels;
    double *lambda, *gate, *x;
    const float *dy;
};

static double smear_loss(const void *inputs)
{
    const struct smear *a = inputs;
    double sum = 0;
    for (int64_t s = 0; s < a->sequences; s++)
        for (int64_t t = 0; t < a->length; t++) {
            const int64_t row = (s * a->length + t) * a->n;
            double z = 0;
            for (int64_t c = 0; c < a->channels; c++) z += a->gate[c] * a->x[row + c];
            sum += weighted(a->dy + row, a->x + row, a->n);
            if (t > 0)
                sum += *a->lambda / (1 + exp(-z)) * weighted(a->dy + row, a->x + row - a->n, a->n);
        }
    return sum;
}

static void check_smear(struct smear *a)
{
    const int64_t rows = a->sequences * a->length, count = rows * a->n;
    float *x = draw(count), *dy = draw(count), *dx = draw(count), *y = draw(count);
    float *lambda = draw(1), *dlambda = draw(1);
    float *gate = draw(a->channels), *dgate = draw(a->channels);
    const float *dlambda_before = copy_of(dlambda, 1), *dgate_before = copy_of(dgate, a->channels);
    a->lambda = widen(lambda, 1), a->gate = widen(gate, a->channels);
    a->x = widen(x, count), a->dy = dy;
    run_reference(&op_smear, &(struct smear_args){.sequences = a->sequences,
                                                  .length = a->length,
                                                  .n = a->n,
                                                  .lambda = lambda,
                                                  .gate = gate,
                                                  .channels = a->channels,
                                                  .x = matrix_f32(x, rows, a->n),
                                                  .y = matrix_f32(y, rows, a->n)});
    assert_true(fabs(smear_loss(a) - weighted(dy, widen(y, count), count)) < 1e-5 * (double)count);
    run_reference(&op_smear_backward,
                  &(struct smear_backward_args){.sequences = a->sequences,
                                                .length = a->length,
                                                .n = a->n,
                                                .lambda = lambda,
                                                .gate = gate,
                                                .channels = a->channels,
                                                .x = matrix_f32(x, rows, a->n),
                                                .dy = matrix_f32(dy, rows, a->n),
                                                .dx = matrix_f32(dx, rows, a->n),
                                                .dlambda = dlambda,
                                                .dgate = dgate});
    const struct forward f = {smear_loss, a};
    check("smear dx", &f, a->x, count, NULL, dx);
    check("smear dlambda", &f, a->lambda, 1, dlambda_before, dlambda);
    check("smear dgate", &f, a->gate, a->channels, dgate_before, dgate);
}

static void smear(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct smear a = {.sequences = size(1, 3), .length = size(1, 6), .channels = size(1, 5)};
        a.n = a.channels + size(0, 9);
        check_smear(&a);
    }
}

/* ---- any number of workers ---- */

static void workers_do_not_show(void **state)
{
    (void)state;
    static const struct op *const ops[] = {
        &op_self_attention,
        &op_self_attention_backward,
        &op_rmsnorm_backward,
        &op_rotary_norm,
        &op_rotary_norm_backward,
        &op_relu2_backward,
        &op_axpby_backward,
        &op_gated_embed_backward,
        &op_smear,
        &op_smear_backward,
        &op_embed_backward,
        &op_axpby,
        &op_gated_embed,
        &op_relu2,
        &op_softcap,
        &op_embed,
    };
    compare_all_workers(ops, sizeof ops / sizeof *ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(self_attention, begin, end),
        cmocka_unit_test_setup_teardown(rmsnorm, begin, end),
        cmocka_unit_test_setup_teardown(rotary_norm, begin, end),
        cmocka_unit_test_setup_teardown(relu2, begin, end),
        cmocka_unit_test_setup_teardown(axpby, begin, end),
        cmocka_unit_test_setup_teardown(gated_embed, begin, end),
        cmocka_unit_test_setup_teardown(embed, begin, end),
        cmocka_unit_test_setup_teardown(smear, begin, end),
        cmocka_unit_test_setup_teardown(workers_do_not_show, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
