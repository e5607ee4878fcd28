/* The cut form of linear_cross_entropy: of a block of W's rows, which are the vocabulary's columns,
 * logits of at most CUT_ROWS rows of x exist at a time. A first pass over all blocks finds the
 * largest logit of each row and the sum of exponentials; a second one makes each block's logits
 * once more, and from their gradient adds to dx, and to that block of dw.
 *
 * That is four products instead of three. The second pass goes backwards, since the last block is
 * still there. dx is summed over the blocks in float32, whatever its own type, and dw is read and
 * written once for CUT_ROWS rows. */
#include <stdio.h>

#include "ops/linear_cross_entropy.h"
#include "ops/ops.h"
#include "ops/plan.h"

enum {
    CUT_ROWS = 4096,
    /* Of a block of logits. On a GPU large products count for more than an L2 cache that holds the
     * block; with sums of dx of 1280 columns that is 84 MiB. */
    CUT_GPU = 64 << 20,
    CUT_CPU = 8 << 20,
};

static const char *const cut_names[] = {"64",   "128",  "256",  "512",  "1024",
                                        "2048", "3072", "4096", "6144", "8192"};
static const int64_t cut_columns[] = {64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192};
static const struct linear_loss_sizes sizes = {cut_columns,
                                               sizeof cut_columns / sizeof *cut_columns};
_Static_assert(sizeof cut_names / sizeof *cut_names == sizeof cut_columns / sizeof *cut_columns,
               "a name each");

/* Some rows of x, and what is known of them. */
struct cut {
    struct plan *plan;
    const struct linear_cross_entropy_args *a;
    int64_t first, count;
    struct matrix x, sum; /* sum: of dx, in float32 */
    struct matrix memory; /* for logits */
    float *top, *total, *own;
};

/* Columns of the vocabulary and their logits. */
struct block {
    int64_t first, count;
    struct matrix w, logits;
};

static struct block block_of(const struct cut *c, int64_t first)
{
    const int64_t left = c->a->w.rows - first, most = c->memory.cols;
    const int64_t count = left < most ? left : most;
    return (struct block){first, count, linear_loss_rows(&c->a->w, first, count),
                          matrix_of(c->memory.dtype, c->memory.data, c->count, count)};
}

static void make_logits(const struct cut *c, const struct block *b)
{
    linear_loss_product(c->plan, false, true, c->x, b->w, (struct matrix){0}, b->logits);
}

static void look_at_logits(const struct cut *c, const struct block *b)
{
    const struct linear_cross_entropy_args *a = c->a;
    plan_call(c->plan, &op_cross_entropy_block,
              &(struct cross_entropy_block_args){.m = c->count,
                                                 .vocab = a->vocab,
                                                 .first = b->first,
                                                 .cap = a->cap,
                                                 .target = a->target + c->first,
                                                 .logits = b->logits,
                                                 .top = c->top,
                                                 .total = c->total,
                                                 .own = c->own,
                                                 .nll = a->nll + c->first});
}

static void gradients(const struct cut *c, const struct block *b, bool first)
{
    const struct linear_cross_entropy_args *a = c->a;
    const struct matrix none = {0}, dw = linear_loss_rows(&a->dw, b->first, b->count);
    plan_call(c->plan, &op_cross_entropy_block_backward,
              &(struct cross_entropy_block_backward_args){.m = c->count,
                                                          .vocab = a->vocab,
                                                          .first = b->first,
                                                          .cap = a->cap,
                                                          .target = a->target + c->first,
                                                          .scale = a->scale,
                                                          .top = c->top,
                                                          .total = c->total,
                                                          .logits = b->logits});
    linear_loss_product(c->plan, false, false, b->logits, b->w, first ? none : c->sum, c->sum);
    linear_loss_product(c->plan, true, false, b->logits, c->x, dw, dw);
}

static void both_passes(const struct cut *c)
{
    const struct linear_cross_entropy_args *a = c->a;
    const int64_t step = c->memory.cols, last = (a->w.rows - 1) / step * step;
    for (int64_t at = 0; at <= last; at += step) {
        const struct block b = block_of(c, at);
        make_logits(c, &b);
        look_at_logits(c, &b);
    }
    for (int64_t at = last; a->gradient && at >= 0; at -= step) {
        const struct block b = block_of(c, at);
        if (at < last) make_logits(c, &b);
        gradients(c, &b, at == last);
    }
}

static enum sol_status compose(struct plan *plan, const void *args, int choice)
{
    const struct linear_cross_entropy_args *a = args;
    const bool own_sum = a->gradient && a->dx.dtype != DTYPE_F32;
    const int64_t parts = (a->m + CUT_ROWS - 1) / CUT_ROWS, rows = (a->m + parts - 1) / parts;
    const int64_t width = cut_columns[choice] < a->w.rows ? cut_columns[choice] : a->w.rows;
    struct cut c = {.plan = plan, .a = a};
    c.memory = plan_scratch_of(plan, a->x.dtype, rows, width);
    const struct matrix sum = own_sum ? plan_scratch(plan, rows, a->hidden) : (struct matrix){0};
    c.top = plan_scratch(plan, 1, rows).data;
    c.total = plan_scratch(plan, 1, rows).data;
    c.own = plan_scratch(plan, 1, rows).data;
    for (int64_t first = 0; first < a->m; first += rows) {
        c.first = first;
        c.count = a->m - first < rows ? a->m - first : rows;
        c.x = linear_loss_rows(&a->x, first, c.count);
        const struct matrix dx = linear_loss_rows(&a->dx, first, c.count);
        c.sum = own_sum ? linear_loss_rows(&sum, 0, c.count) : dx;
        both_passes(&c);
        if (own_sum)
            plan_call(
                plan, &op_convert,
                &(struct convert_args){.m = c.count, .n = a->hidden, .from = c.sum, .to = dx});
    }
    return SOL_OK;
}

static bool serves(const void *args, const struct op_device *device, int choice)
{
    (void)device;
    return linear_loss_serves(&sizes, ((const struct linear_cross_entropy_args *)args)->w.rows,
                              choice);
}

static int usual(const void *args, const struct op_device *device)
{
    const struct linear_cross_entropy_args *a = args;
    const int64_t rows = a->m < CUT_ROWS ? a->m : CUT_ROWS;
    const double column = (double)rows * (double)dtype_info(a->x.dtype)->block_bytes;
    return linear_loss_usual(&sizes, a->w.rows, column, device->gpu ? CUT_GPU : CUT_CPU);
}

/* Columns of a matrix of codes are no matrix. */
static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct linear_cross_entropy_args *a = args;
    if (!a->w_codes) return linear_loss_can_run(args, device, why);
    snprintf(why, OP_REASON_MAX, "products in FP8, which sum along all of the vocabulary");
    return false;
}

static const struct op_choices choices = {cut_names, sizeof cut_columns / sizeof *cut_columns,
                                          serves, usual};

const struct op_variant linear_cross_entropy_cut = {
    .name = "cut",
    .summary = "logits of a block of the vocabulary at a time, made twice",
    .can_run = can_run,
    .choices = &choices,
    .typed = linear_loss_typed,
    .compose = compose,
};
