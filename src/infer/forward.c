/* The one loop over layers. Which kernels serve the ops, on which device, is the plan's business.
 */
#include "infer/forward.h"

#include <math.h>
#include <string.h>

#include "model/architecture.h"
#include "ops/ops.h"

#define SOL_ARCHITECTURE(id) extern const struct forward forward_##id;
#include "model/architectures.list"
#undef SOL_ARCHITECTURE

const struct forward *forward_of(const struct model_config *config)
{
    static const struct forward *const entries[] = {
#define SOL_ARCHITECTURE(id) &forward_##id,
#include "model/architectures.list"
#undef SOL_ARCHITECTURE
    };
    int i = architecture_count - 1; /* their list is the same */
    while (i > 0 && architectures[i] != config->arch) i--;
    return entries[i];
}

/* ---- several ranks ---- */

bool forward_is_shared(const struct model_config *c)
{
    return c->ranks > 1 && !c->all_layers;
}

bool forward_is_pipeline(const struct model_config *c)
{
    return c->all_layers > 0;
}

bool forward_puts_out(const struct model_config *c)
{
    return !forward_is_pipeline(c) || c->rank == 0;
}

/* What reading the weights once more costs, in rows that could be computed meanwhile: nearly all of
 * it are experts, of which a row has top_k of n_experts. Measured of the 120b on an H200 (32 times
 * as many weights as a row has): 1,300. Of a CPU it was not measured. */
static double rows_of_reading(const struct model_config *c, bool gpu)
{
    const double rows = gpu ? 40 : 4;
    return c->n_experts ? rows * (double)c->n_experts / (double)c->top_k : rows;
}

/* A step takes as long as its pieces one after the other and those with which the pipeline fills.
 */
int64_t forward_piece_rows(const struct model_config *c, int64_t rows, bool gpu)
{
    enum { TILE = 64 /* of products */ };
    const double more = rows_of_reading(c, gpu);
    double least = INFINITY;
    int64_t best = rows;
    if (!forward_is_pipeline(c) || c->alone) return rows;
    for (int n = 1; n <= FORWARD_PIECES_MAX; n++) {
        const int64_t share = (rows + n - 1) / n;
        const int64_t each = share < TILE ? share : (share + TILE - 1) / TILE * TILE;
        const double takes = (double)(n + c->ranks - 1) * (more + (double)each);
        if (takes >= least) continue;
        least = takes;
        best = each < rows ? each : rows;
    }
    return best;
}

bool forward_deals_experts(const struct model_config *c)
{
    return c->own_experts > 0;
}

const struct op *const *forward_parts(const struct model_config *c)
{
    return forward_is_shared(c) ? forward_of(c)->shared_parts : forward_of(c)->parts;
}

struct matrix forward_part(const struct forward_step *s)
{
    const struct forward_buffers *b = s->buffers;
    const struct model_config *c = &s->model->config;
    return matrix_f32(forward_is_shared(c) ? b->part : b->x, s->rows, c->hidden);
}

void forward_clear_part(struct plan *plan, const struct forward_step *s)
{
    const struct matrix part = forward_part(s);
    if (forward_is_shared(&s->model->config))
        plan_call(plan, &op_fill, &(struct fill_args){.m = part.rows, .n = part.cols, .x = part});
}

void forward_add_up(struct plan *plan, const struct forward_step *s, struct matrix part,
                    struct matrix x)
{
    const struct model_config *c = &s->model->config;
    if (!forward_is_shared(c) || c->alone) return;
    plan_call(plan, &op_all_reduce_add,
              &(struct all_reduce_add_args){
                  .ranks = c->ranks, .m = x.rows, .n = x.cols, .part = part, .x = x});
}

/* Of one output the parts in their order are the row. */
static float *parts_of(const struct forward_step *s)
{
    return s->outputs == 1 ? s->buffers->logits : s->buffers->parts;
}

struct matrix forward_logits(const struct forward_step *s)
{
    const struct model_config *c = &s->model->config;
    if (!forward_is_shared(c)) return matrix_f32(s->buffers->logits, s->outputs, c->vocab);
    return matrix_f32(parts_of(s) + c->rank * s->outputs * c->head_rows, s->outputs, c->head_rows);
}

/* All ranks come, the first alone reads. */
static void join_logits(struct plan *plan, const struct forward_step *s)
{
    const struct model_config *c = &s->model->config;
    if (!forward_is_shared(c) || c->alone) return;
    const struct matrix parts = matrix_f32(parts_of(s), c->ranks * s->outputs, c->head_rows);
    plan_call(plan, &op_all_gather,
              &(struct collective_args){
                  .ranks = c->ranks, .m = s->outputs, .n = c->head_rows, .x = parts});
    if (s->outputs > 1 && c->rank == 0)
        plan_call(
            plan, &op_join_columns,
            &(struct join_columns_args){.m = s->outputs,
                                        .n = c->vocab,
                                        .ranks = c->ranks,
                                        .x = parts,
                                        .y = matrix_f32(s->buffers->logits, s->outputs, c->vocab)});
}

/* ---- ranks with layers each ---- */

/* What a layer hands on comes from the rank with the layers before, or goes to the next. */
static void pass(struct plan *plan, const struct forward_step *s, int64_t from, int64_t to)
{
    const struct model_config *c = &s->model->config;
    const struct forward *forward = forward_of(c);
    for (int i = 0; i < forward->n_carried && !c->alone; i++) {
        float *x;
        memcpy(&x, (const char *)s->buffers + forward->carried[i], sizeof x);
        plan_call(plan, &op_send_recv,
                  &(struct send_recv_args){.ranks = c->ranks,
                                           .from = from,
                                           .to = to,
                                           .m = s->rows,
                                           .n = c->hidden,
                                           .x = matrix_f32(x, s->rows, c->hidden)});
    }
}

/* From row `first` on; plans that are only looked at have no arrays. */
static int32_t *behind(int32_t *rows, int64_t first)
{
    return rows ? rows + first : NULL;
}

static struct batch rows_of(const struct batch *b, int64_t first, int64_t n)
{
    return (struct batch){.n_tokens = n,
                          .token = behind(b->token, first),
                          .position = behind(b->position, first),
                          .sequence = behind(b->sequence, first),
                          .previous = behind(b->previous, first)};
}

/* A step of rows [first, first + n): what layers hand on lies where the step's does, so that the
 * head finds all of it. */
static struct forward_step piece_of(const struct forward_step *s, int64_t first, int64_t n,
                                    struct forward_piece *piece, struct forward_buffers *buffers)
{
    const struct forward *forward = forward_of(&s->model->config);
    struct forward_step own = *s;
    *buffers = *s->buffers;
    for (int i = 0; i < forward->n_carried; i++) {
        char *field = (char *)buffers + forward->carried[i];
        float *x;
        memcpy(&x, field, sizeof x);
        x += first * s->model->config.hidden;
        memcpy(field, &x, sizeof x);
    }
    piece->batch = rows_of(s->batch, first, n);
    if (s->batch->host) piece->host = rows_of(s->batch->host, first, n);
    if (s->batch->host) piece->batch.host = &piece->host;
    own.batch = &piece->batch;
    own.buffers = buffers;
    own.rows = n;
    own.outputs = s->outputs == s->rows ? n : 0; /* the head is of the whole step */
    return own;
}

/* ---- a step ---- */

/* What others make of the stream as layer n finds it. */
static void keep_features(struct plan *plan, const struct forward_step *s, int64_t n)
{
    const struct model_config *c = &s->model->config;
    for (int64_t i = 0; i < s->n_features; i++) {
        float *kept = s->buffers->features + i * s->rows * c->hidden;
        if (s->features[i] != n) continue;
        plan_call(plan, &op_axpby,
                  &(struct axpby_args){.m = s->rows,
                                       .n = c->hidden,
                                       .x = matrix_f32(s->buffers->x, s->rows, c->hidden),
                                       .out = matrix_f32(kept, s->rows, c->hidden)});
    }
}

static void build_layers(struct plan *plan, const struct forward_step *s)
{
    const struct model_config *c = &s->model->config;
    const struct forward *forward = forward_of(c);
    if (c->first_layer == 0)
        forward->before(plan, s);
    else
        pass(plan, s, c->rank + 1, c->rank);
    for (int64_t n = 0; n < c->n_layers; n++) {
        plan_layer(plan, (int)(c->first_layer + n));
        keep_features(plan, s, n);
        if (!s->skip || !s->skip[n]) forward->layer(plan, s, n);
    }
    plan_layer(plan, -1);
    keep_features(plan, s, c->n_layers);
    if (!forward_puts_out(c)) pass(plan, s, c->rank, c->rank - 1);
}

static void build_pieces(struct plan *plan, const struct forward_step *s)
{
    struct forward_buffers buffers;
    const int64_t each = s->piece_rows;
    for (int64_t first = 0, i = 0; first < s->rows; first += each, i++) {
        const int64_t n = s->rows - first < each ? s->rows - first : each;
        const struct forward_step piece = piece_of(s, first, n, &s->pieces[i], &buffers);
        build_layers(plan, &piece);
    }
}

void forward_build(struct plan *plan, const struct forward_step *step)
{
    const struct model_config *c = &step->model->config;
    const struct forward_buffers *b = step->buffers;
    const bool puts_out = step->rows && step->outputs && forward_puts_out(c);
    if (step->piece_rows && step->piece_rows < step->rows)
        build_pieces(plan, step);
    else if (step->rows)
        build_layers(plan, step);
    if (puts_out) forward_of(c)->head(plan, step);
    if (puts_out) join_logits(plan, step);
    if (step->outputs && step->draw)
        plan_call(plan, &op_sample,
                  &(struct sample_args){.n = step->outputs,
                                        .vocab = c->vocab,
                                        .logits = matrix_f32(b->logits, step->outputs, c->vocab),
                                        .banned = b->banned,
                                        .lists = step->draw == FORWARD_DRAW_LISTS ? b->lists : NULL,
                                        .draws = b->draws,
                                        .token = b->token,
                                        .next = step->feeds ? step->batch->token : NULL});
}
