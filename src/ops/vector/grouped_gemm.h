/* grouped_gemm for any instruction set with float vectors. The including file sets what
 * ops/vector/gemm.h asks for, and has included that.
 *
 * First all rows of A become float32, in which values are exact; then a panel of PANEL_ROWS rows of
 * B at a time, for all rows of A of a block. A lane is a step along k. Of every 32 codes of e2m1
 * the low halves of bytes come first, then the high ones, in A as in B; what k lacks of the last 32
 * is zero. */
#include "ops/grouped_gemm.h"

enum { GROUPED_STEP = 32, GROUPED_PANELS = 8 /* of a job */ };

struct grouped_state {
    const struct grouped_gemm_args *args;
    struct gemm_jobs jobs; /* blocks of groups' rows */
    int64_t *a_at;         /* [n_groups] floats before a group's rows in `a` */
    int64_t *first_row;    /* [n_groups + 1] rows of all groups before */
    float *a;              /* rows of padded k */
    float *panels;         /* per worker: [2][PANEL_ROWS][longest k] */
    int64_t longest;
};

static int64_t grouped_padded(int64_t k)
{
    return gemm_div_up(k, GROUPED_STEP) * GROUPED_STEP;
}

/* ---- to float32 ---- */

/* e4m3; what has no exponent is made without the denormals that a caller may have switched off. */
static inline vfloat grouped_load_fp8(const uint8_t *codes)
{
    vint bits = __builtin_convertvector(vector_load_i8((const int8_t *)codes), vint);
    vint code = bits & 0x7f;
    vfloat small = __builtin_convertvector(code, vfloat) * 0x1p-9f;
    vfloat large = (vfloat)((code << 20) + (120 << 23));
    vfloat nan = (vfloat)((vint){0} + 0x7fc00000);
    vfloat x = vector_select(code < 8, small, vector_select(code == 0x7f, nan, large));
    return (vfloat)((vint)x | (bits & (int32_t)0x80000000));
}

/* 32 codes of e2m1, the first and the last 16 with a scale each. */
static inline void grouped_decode_e2m1(const uint8_t codes[16], float first, float last, float *to)
{
    vfloat values[32 / LANES];
    float scales[16];
    for (int i = 0; i < 16; i++) scales[i] = i < 8 ? first : last;
    vector_decode_e2m1(codes, values);
    for (int v = 0; v < 32 / LANES; v++)
        vector_store(to + v * LANES, values[v] * vector_load(scales + v * LANES % 16));
}

static float grouped_scale(const struct grouped_gemm_args *args, const struct scaled_operand *x,
                           int64_t row, int64_t block, int64_t blocks)
{
    const uint8_t *scales = x->scales;
    uint8_t code = scales[scale_index((int)args->scales, row, block, blocks)];
    return args->format == DTYPE_MXFP4 ? scale_of_e8m0(code) : fp8_e4m3_to_f32(code);
}

static void grouped_decode_scaled(const struct grouped_gemm_args *args,
                                  const struct scaled_operand *x, int64_t row, int64_t k, float *to)
{
    const uint8_t *codes = (const uint8_t *)x->codes + row * (k / 2);
    const bool mx = args->format == DTYPE_MXFP4;
    const int64_t blocks = mx ? k / 32 : k / 16;
    for (int64_t i = 0; i < k; i += GROUPED_STEP, codes += 16) {
        uint8_t some[16] = {0};
        bool whole = i + GROUPED_STEP <= k;
        float first = grouped_scale(args, x, row, mx ? i / 32 : i / 16, blocks), last = first;
        if (!mx) last = whole ? grouped_scale(args, x, row, i / 16 + 1, blocks) : 0;
        if (!whole) memcpy(some, codes, 8);
        grouped_decode_e2m1(whole ? codes : some, first, last, to + i);
    }
}

/* A row of weights in tiles; what fills up the last tile is 0. */
static void grouped_decode_tiled(const uint8_t *tiles, int64_t row, int64_t k, float *to)
{
    for (int64_t i = 0; i < k; i += GROUPED_STEP)
        grouped_decode_e2m1(tiles + weight_code_index(row, i, k),
                            fp8_e4m3_to_f32(tiles[weight_scale_index(row, i / 16, k)]),
                            fp8_e4m3_to_f32(tiles[weight_scale_index(row, i / 16 + 1, k)]), to + i);
}

static void grouped_decode_row(const struct grouped_gemm_args *args, enum weight_layout layout,
                               const struct scaled_operand *x, int64_t row, int64_t k, float *to)
{
    if (layout == WEIGHTS_TILES) {
        grouped_decode_tiled(x->codes, row, k, to);
        return;
    }
    if (args->format != DTYPE_FP8_E4M3) {
        grouped_decode_scaled(args, x, row, k, to);
        return;
    }
    const uint8_t *codes = (const uint8_t *)x->codes + row * k;
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES) vector_store(to + i, grouped_load_fp8(codes + i));
    for (; i < grouped_padded(k); i++) to[i] = 0;
}

/* Rows of A, counted through all groups. */
static void grouped_decode_a(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct grouped_state *s = arg;
    int64_t i = 0;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        while (s->first_row[i + 1] <= row) i++;
        const struct gemm_group *g = &s->args->groups[i];
        int64_t mine = row - s->first_row[i];
        grouped_decode_row(s->args, WEIGHTS_ROWS, &g->a, mine, g->k,
                           s->a + s->a_at[i] + mine * grouped_padded(g->k));
    }
}

/* ---- the product ---- */

static inline __attribute__((always_inline)) void
grouped_multiply(const float *a, const float *w, int64_t k, const int rows, float out[][PANEL_ROWS])
{
    vfloat sum[TILE_TOKENS][PANEL_ROWS];
    for (int t = 0; t < rows; t++)
        for (int r = 0; r < PANEL_ROWS; r++) sum[t][r] = vector_set(0);
    for (int64_t i = 0; i < k; i += LANES) {
        vfloat right[PANEL_ROWS];
        for (int r = 0; r < PANEL_ROWS; r++) right[r] = vector_load(w + r * k + i);
        for (int t = 0; t < rows; t++) {
            vfloat left = vector_load(a + t * k + i);
            for (int r = 0; r < PANEL_ROWS; r++) sum[t][r] += left * right[r];
        }
    }
    for (int t = 0; t < rows; t++)
        for (int r = 0; r < PANEL_ROWS; r++) out[t][r] = vector_sum(sum[t][r]);
}

static void grouped_store(const struct grouped_gemm_args *a, const struct gemm_group *g, int64_t at,
                          float value)
{
    char *c = (char *)a->c + g->c_at;
    if (a->c_type == DTYPE_F32)
        ((float *)c)[at] = value;
    else
        ((uint16_t *)c)[at] = a->c_type == DTYPE_F16 ? f16_from_f32(value) : bf16_from_f32(value);
}

/* op swiglu's; a NaN passes through. */
static float grouped_swiglu(const struct grouped_gemm_args *a, float gate, float up)
{
    gate = gate > a->limit ? a->limit : gate;
    up = up > a->limit ? a->limit : up < -a->limit ? -a->limit : up;
    return gate / (1 + vector_exp(vector_set(-a->alpha * gate))[0]) * (up + 1);
}

static float grouped_finish(float sum, const float *factor, const float *bias, int64_t column)
{
    return sum * (factor ? *factor : 1) + (bias ? bias[column] : 0);
}

struct grouped_tile {
    const struct gemm_group *group;
    int64_t row, column, k; /* k: padded */
    const float *a, *w, *up;
};

static inline __attribute__((always_inline)) void
grouped_do_tile(const struct grouped_gemm_args *a, const struct grouped_tile *tile, const int rows)
{
    const struct gemm_group *g = tile->group;
    float out[TILE_TOKENS][PANEL_ROWS], up[TILE_TOKENS][PANEL_ROWS] = {{0}};
    grouped_multiply(tile->a, tile->w, tile->k, rows, out);
    if (a->gated) grouped_multiply(tile->a, tile->up, tile->k, rows, up);
    for (int t = 0; t < rows; t++)
        for (int r = 0; r < PANEL_ROWS && tile->column + r < g->n; r++) {
            int64_t column = tile->column + r;
            float value = grouped_finish(out[t][r], g->factor, g->bias, column);
            if (a->gated)
                value = grouped_swiglu(a, value,
                                       grouped_finish(up[t][r], g->up_factor, g->up_bias, column));
            grouped_store(a, g, (tile->row + t) * g->n + column, value);
        }
}

/* What the panel has beyond the last row of B is not stored. */
static void grouped_decode_panel(const struct grouped_state *s, const struct gemm_group *g,
                                 const struct scaled_operand *x, int64_t column, float *to)
{
    for (int64_t r = 0; r < PANEL_ROWS; r++) {
        int64_t row = gemm_min(column + r, g->n - 1);
        grouped_decode_row(s->args, s->args->weights, x, row, g->k, to + r * grouped_padded(g->k));
    }
}

static void grouped_do_panel(const struct grouped_state *s, const struct gemm_block *b,
                             int64_t column, float *memory)
{
    const struct gemm_group *g = &s->args->groups[b->group];
    const int64_t k = grouped_padded(g->k), end = b->row + b->rows;
    const float *a = s->a + s->a_at[b->group];
    struct grouped_tile tile = {
        .group = g, .column = column, .k = k, .w = memory, .up = memory + PANEL_ROWS * s->longest};
    grouped_decode_panel(s, g, &g->b, column, memory);
    if (s->args->gated)
        grouped_decode_panel(s, g, &g->up, column, memory + PANEL_ROWS * s->longest);
    for (tile.row = b->row; tile.row + TILE_TOKENS <= end; tile.row += TILE_TOKENS) {
        tile.a = a + tile.row * k;
        grouped_do_tile(s->args, &tile, TILE_TOKENS);
    }
    for (; tile.row < end; tile.row++) {
        tile.a = a + tile.row * k;
        grouped_do_tile(s->args, &tile, 1);
    }
}

static void grouped_jobs_run(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct grouped_state *s = arg;
    float *memory = s->panels + (int64_t)worker * 2 * PANEL_ROWS * s->longest;
    for (int64_t job = begin; job < end; job++) {
        const struct gemm_block *b = gemm_block_of_job(&s->jobs, job);
        int64_t n = s->args->groups[b->group].n;
        int64_t column = (job - b->first_job) * GROUPED_PANELS * PANEL_ROWS;
        int64_t last = gemm_min(column + GROUPED_PANELS * PANEL_ROWS, n);
        for (; column < last; column += PANEL_ROWS) grouped_do_panel(s, b, column, memory);
    }
}

/* ---- jobs and memory ---- */

struct grouped_sizes {
    int64_t blocks, floats, longest; /* floats: of A */
};

static struct grouped_sizes grouped_sizes_of(const struct grouped_gemm_args *a)
{
    struct grouped_sizes sizes = {0, 0, 0};
    for (int64_t i = 0; i < a->n_groups; i++) {
        const struct gemm_group *g = &a->groups[i];
        if (grouped_gemm_is_empty(g)) continue;
        sizes.blocks += gemm_div_up(g->m, BLOCK_ROWS);
        sizes.floats += g->m * grouped_padded(g->k);
        if (grouped_padded(g->k) > sizes.longest) sizes.longest = grouped_padded(g->k);
    }
    return sizes;
}

static size_t grouped_table_bytes(const struct grouped_gemm_args *a, int64_t blocks)
{
    size_t bytes = (size_t)blocks * sizeof(struct gemm_block) +
                   (size_t)(2 * a->n_groups + 1) * sizeof(int64_t);
    return (bytes + 63) / 64 * 64;
}

static size_t grouped_workspace(const void *args, int workers)
{
    struct grouped_sizes sizes = grouped_sizes_of(args);
    int64_t floats = sizes.floats + 2 * PANEL_ROWS * workers * sizes.longest;
    return grouped_table_bytes(args, sizes.blocks) + (size_t)floats * sizeof(float);
}

/* Blocks as even as possible. */
static void grouped_add_blocks(struct grouped_state *s, int64_t group)
{
    const struct gemm_group *g = &s->args->groups[group];
    int64_t row = 0;
    for (int64_t left = gemm_div_up(g->m, BLOCK_ROWS); left > 0; left--) {
        struct gemm_block *b = &s->jobs.blocks[s->jobs.n_blocks++];
        *b = (struct gemm_block){.group = group,
                                 .row = row,
                                 .rows = gemm_div_up(g->m - row, left),
                                 .first_job = s->jobs.n_jobs};
        row += b->rows;
        s->jobs.n_jobs += gemm_div_up(g->n, GROUPED_PANELS * PANEL_ROWS);
    }
}

static void grouped_make_jobs(struct grouped_state *s)
{
    int64_t at = 0;
    s->first_row[0] = 0;
    for (int64_t i = 0; i < s->args->n_groups; i++) {
        const struct gemm_group *g = &s->args->groups[i];
        bool empty = grouped_gemm_is_empty(g);
        s->a_at[i] = at;
        s->first_row[i + 1] = s->first_row[i] + (empty ? 0 : g->m);
        if (empty) continue;
        at += g->m * grouped_padded(g->k);
        grouped_add_blocks(s, i);
    }
}

static void grouped_run(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    struct grouped_sizes sizes = grouped_sizes_of(a);
    char *memory = context->workspace;
    struct grouped_state s = {
        .args = a, .jobs.blocks = context->workspace, .longest = sizes.longest};
    s.a_at = (int64_t *)(void *)(memory + (size_t)sizes.blocks * sizeof(struct gemm_block));
    s.first_row = s.a_at + a->n_groups;
    s.a = (float *)(void *)(memory + grouped_table_bytes(a, sizes.blocks));
    s.panels = s.a + sizes.floats;
    grouped_make_jobs(&s);
    if (s.jobs.n_jobs == 0) return;
    pool_for(context->pool, s.first_row[a->n_groups], 1, grouped_decode_a, &s);
    pool_for(context->pool, s.jobs.n_jobs, 1, grouped_jobs_run, &s);
}

static bool grouped_can_run(const void *args, const struct op_device *device,
                            char why[OP_REASON_MAX])
{
    (void)device;
    return grouped_gemm_check(args, why);
}

const struct op_variant NAMED(grouped_gemm) = {
    .name = NAME_OF(grouped_gemm),
    .summary = "operands decoded to float32, B panel by panel; all formats, B in tiles too",
    .needs = NEEDS,
    .can_run = grouped_can_run,
    .workspace = grouped_workspace,
    .run = grouped_run,
};
