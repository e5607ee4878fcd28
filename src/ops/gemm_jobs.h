/* How the CPU variants of gemm cut a product into jobs.
 *
 * The rows of C are cut into *blocks*: at most `max_rows` consecutive rows of one group, so that
 * the packed activations of a block stay in L2 while all weights of the group pass by. The features
 * (rows of W) are cut into *panels* of one SIMD vector each. A job is a run of panels for one
 * block; jobs are handed out dynamically, so that experts with many and with few rows balance.
 *
 * A last panel that would stick out over n is moved back and masks the features it shares with its
 * neighbour. When n is smaller than a panel, each feature is a panel of its own with stride 0 (all
 * lanes read the same row and the first one counts): wasteful, and nobody has such a model.
 *
 * Products of the same rows (q, k, v; gate and up) run together (op_variant.joins): blocks are the
 * same for all, the panels of one follow those of the other, and a job may begin in one matrix and
 * end in the next. What phase 1 made of the rows serves all of them, and threads meet once. */
#ifndef OPS_GEMM_JOBS_H
#define OPS_GEMM_JOBS_H

#include "ops/args.h"
#include "ops/op.h"

struct gemm_block {
    int64_t group, row, rows; /* rows of C */
    int64_t first_job, panels_per_job;
};

struct gemm_jobs {
    const struct gemm_args *products[OP_JOINED_MAX]; /* that run together */
    int n_products;
    struct gemm_block *blocks;
    int64_t n_blocks, n_jobs;
    int64_t n_panels; /* of all products */
    int64_t n_rows;   /* of all blocks: those behind them are nobody's */
};

struct gemm_panel {
    const struct gemm_args *args; /* whose it is */
    const uint8_t *w;             /* first weight row */
    int64_t stride;               /* bytes between weight rows */
    int64_t feature;              /* first column of C */
    unsigned mask;                /* lanes that are stored */
};

static inline int64_t gemm_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t gemm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t gemm_group_begin(const struct gemm_args *a, int64_t group)
{
    return a->group_offsets ? a->group_offsets[group] : group ? a->m : 0;
}

static inline int64_t gemm_panels(const struct gemm_args *a, int64_t lanes)
{
    return a->n < lanes ? a->n : gemm_div_up(a->n, lanes);
}

/* Whether products are of the same rows and read weights of one format. */
static inline bool gemm_joins(const void *args, const void *next)
{
    const struct gemm_args *a = args, *b = next;
    return a->m == b->m && a->k == b->k && a->a.data == b->a.data && a->a.rows == b->a.rows &&
           a->a_rows == b->a_rows && a->group_offsets == b->group_offsets &&
           a->w.groups == b->w.groups && a->w.dtype == b->w.dtype && a->w.layout == b->w.layout &&
           a->c.data != b->c.data && b->c.data != a->a.data;
}

/* The most blocks a problem can have, whatever its group offsets turn out to be. */
static inline int64_t gemm_max_blocks(const struct gemm_args *a, int64_t max_rows)
{
    return a->m / max_rows + a->w.groups;
}

static inline void gemm_take_products(struct gemm_jobs *jobs, const struct op_context *context,
                                      const struct gemm_args *a, int64_t lanes)
{
    jobs->products[0] = a;
    jobs->n_products = 1 + context->n_more;
    for (int i = 0; i < context->n_more; i++) jobs->products[i + 1] = context->more[i];
    jobs->n_panels = 0;
    for (int i = 0; i < jobs->n_products; i++)
        jobs->n_panels += gemm_panels(jobs->products[i], lanes);
}

/* Fills `jobs->blocks`, which has room for gemm_max_blocks(), for product `a` and those that run
 * with it. A block of up to `few` rows reads weights faster than it computes; its jobs are longer,
 * so that the reads are long streams. */
static inline void gemm_make_jobs(struct gemm_jobs *jobs, const struct op_context *context,
                                  const struct gemm_args *a, int64_t lanes, int64_t max_rows,
                                  int64_t few)
{
    const int64_t workers = pool_size(context->pool);
    gemm_take_products(jobs, context, a, lanes);
    jobs->n_blocks = jobs->n_jobs = 0;
    jobs->n_rows = gemm_group_begin(a, a->w.groups);
    int64_t used = 0;
    for (int64_t g = 0; g < a->w.groups; g++)
        used += gemm_group_begin(a, g + 1) > gemm_group_begin(a, g);
    /* A job begins with lines that nobody prefetched, and the last one leaves the others idle. Two
     * Zen 4 cores, decode of gpt-oss-20b, jobs a worker: 1 39, 3 50.7, 4 49.7, 8 48.3 GB/s. */
    int64_t run = jobs->n_panels * used / (3 * workers) & ~(int64_t)1;
    run = run < 2 ? 2 : gemm_min(run, 96);
    for (int64_t g = 0; g < a->w.groups; g++) {
        int64_t row = gemm_group_begin(a, g), left = gemm_group_begin(a, g + 1) - row;
        for (int64_t n = gemm_div_up(left, max_rows); n > 0; n--) {
            struct gemm_block *b = &jobs->blocks[jobs->n_blocks++];
            int64_t rows = gemm_div_up(left, n);
            *b = (struct gemm_block){g, row, rows, jobs->n_jobs, rows <= few ? run : 2};
            jobs->n_jobs += gemm_div_up(jobs->n_panels, b->panels_per_job);
            row += rows;
            left -= rows;
        }
    }
}

static inline const struct gemm_block *gemm_block_of_job(const struct gemm_jobs *jobs, int64_t job)
{
    int64_t lo = 0, hi = jobs->n_blocks;
    while (hi - lo > 1) {
        int64_t mid = (lo + hi) / 2;
        if (jobs->blocks[mid].first_job <= job)
            lo = mid;
        else
            hi = mid;
    }
    return &jobs->blocks[lo];
}

static inline const struct gemm_block *gemm_block_of_row(const struct gemm_jobs *jobs, int64_t row)
{
    int64_t lo = 0, hi = jobs->n_blocks;
    while (hi - lo > 1) {
        int64_t mid = (lo + hi) / 2;
        if (jobs->blocks[mid].row <= row)
            lo = mid;
        else
            hi = mid;
    }
    return &jobs->blocks[lo];
}

/* The product that panel *index is of, and which of its panels that is. */
static inline const struct gemm_args *gemm_product_of(const struct gemm_jobs *jobs, int64_t *index,
                                                      int64_t lanes)
{
    int i = 0;
    for (int64_t n; *index >= (n = gemm_panels(jobs->products[i], lanes)); i++) *index -= n;
    return jobs->products[i];
}

static inline struct gemm_panel gemm_panel_at(const struct gemm_jobs *jobs, int64_t group,
                                              int64_t index, int64_t lanes)
{
    const struct gemm_args *a = gemm_product_of(jobs, &index, lanes);
    int64_t stride = (int64_t)dtype_row_bytes(a->w.dtype, a->k), feature = index * lanes;
    struct gemm_panel p = {.args = a, .stride = stride, .mask = (1u << lanes) - 1u};
    if (a->n < lanes) {
        feature = index;
        p.stride = 0;
        p.mask = 1;
    } else if (feature + lanes > a->n) {
        p.mask &= p.mask << (feature + lanes - a->n);
        feature = a->n - lanes;
    }
    p.feature = feature;
    p.w = (const uint8_t *)a->w.data + (group * a->n + feature) * stride;
    return p;
}

/* The rows of a block are worked on in tiles of up to `max` rows, as even as possible (7 = 4 + 3).
 * Tile `index` starts at row *first of the block. */
static inline int64_t gemm_tile_rows(int64_t rows, int64_t max, int64_t index, int64_t *first)
{
    int64_t n = gemm_div_up(rows, max), base = rows / n, extra = rows % n;
    *first = index * base + gemm_min(index, extra);
    return base + (index < extra);
}

/* The tile that row `row` of a block is in. */
static inline int64_t gemm_tile_of_row(int64_t rows, int64_t max, int64_t row)
{
    int64_t n = gemm_div_up(rows, max), base = rows / n, extra = rows % n;
    return row < extra * (base + 1) ? row / (base + 1) : (row - extra) / base;
}

#endif
