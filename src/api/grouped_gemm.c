/* The public entry of the op grouped_gemm: the caller's problem becomes the op's arguments, the
 * chooser picks a variant, and its kernels go to the caller's stream.
 *
 * Kernels whose blocks count each other want words of device memory that are 0 between kernels, and
 * that nothing else uses at the same time. A stream of sol's own has such words, but a graph of the
 * caller's may be launched on any stream; what is never used twice at a time is a workspace. So the
 * words belong to its address: the first WORDS_MAX workspaces have some of the handle's, and what
 * callers do with a workspace between calls does not matter. Others have them in the workspace,
 * cleared in each call. */
#include "sol/grouped_gemm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "check/backend.h"
#include "gpu/guest.h"
#include "ops/device_key.h"
#include "ops/grouped_gemm.h"
#include "ops/ops.h"
#include "ops/plan.h"
#include "ops/tuning_file.h"

enum { WORDS_MAX = 64, ALIGN = 256 };

struct sol_grouped_gemm {
    pthread_mutex_t lock;
    struct gpu *gpu;
    struct gpu_stream *stream; /* the caller's, while a call lasts */
    struct chooser chooser;
    struct tuning tuning;
    char *words; /* of WORDS_MAX workspaces, 0 between kernels */
    const void *owners[WORDS_MAX];
    int n_owners;
    struct gemm_group groups[GROUPED_GEMM_GROUPS_MAX]; /* of the call */
};

/* ---- opening ---- */

static size_t words_bytes(void)
{
    return (gpu_counters_bytes() + ALIGN - 1) / ALIGN * ALIGN;
}

static enum sol_status make_words(struct sol_grouped_gemm *g)
{
    struct gpu_stream *own;
    void *words;
    SOL_TRY(gpu_alloc(g->gpu, "counters", WORDS_MAX * words_bytes(), &words));
    g->words = words;
    SOL_TRY(gpu_stream_create(g->gpu, &own));
    enum sol_status status = gpu_zero(own, words, WORDS_MAX * words_bytes());
    enum sol_status waited = gpu_wait(own);
    gpu_stream_destroy(own);
    return status == SOL_OK ? waited : status;
}

static enum sol_status start(struct sol_grouped_gemm *g, int device)
{
    char name[32], note[TUNING_NOTE_MAX];
    snprintf(name, sizeof name, "cuda:%d", device);
    SOL_TRY(backend_open(name, NULL, true, &g->gpu));
    SOL_TRY(gpu_guest_create(g->gpu, &g->stream));
    chooser_init(&g->chooser, 1);
    g->chooser.device.gpu = g->gpu;
    SOL_TRY(tuning_of(&g->chooser.device, &g->tuning, note));
    g->chooser.tuning = &g->tuning;
    return make_words(g);
}

static void finish(struct sol_grouped_gemm *g)
{
    if (g->gpu) gpu_free(g->gpu, g->words);
    gpu_stream_destroy(g->stream);
    gpu_close(g->gpu);
    tuning_clear(&g->tuning);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

enum sol_status sol_grouped_gemm_open(int device, struct sol_grouped_gemm **out)
{
    struct gpu_visit visit;
    *out = NULL;
    if (device < 0) return status_set(SOL_E_ARGUMENT, "device %d: GPUs are counted from 0", device);
    SOL_TRY(gpu_visit_begin(&visit));
    struct sol_grouped_gemm *g = calloc(1, sizeof *g);
    enum sol_status status = g ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a handle");
    if (g) {
        pthread_mutex_init(&g->lock, NULL);
        status = start(g, device);
    }
    if (status != SOL_OK && g) finish(g);
    enum sol_status left = gpu_visit_end(&visit);
    if (status != SOL_OK) return status;
    *out = g;
    if (left == SOL_OK) return SOL_OK;
    sol_grouped_gemm_close(g);
    *out = NULL;
    return left;
}

void sol_grouped_gemm_close(struct sol_grouped_gemm *gemm)
{
    struct gpu_visit visit;
    if (!gemm) return;
    bool visiting = gpu_visit_begin(&visit) == SOL_OK;
    finish(gemm);
    if (visiting) gpu_visit_end(&visit);
}

/* ---- the caller's problem as the op's arguments ---- */

static enum sol_status take_kinds(const struct sol_grouped_gemm_problem *p,
                                  struct grouped_gemm_args *a)
{
    static const enum dtype formats[] = {DTYPE_NVFP4, DTYPE_MXFP4, DTYPE_FP8_E4M3};
    static const enum dtype types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    const int format = (int)p->format, type = (int)p->c_type;
    if (format < 0 || format > SOL_FP8_E4M3)
        return status_set(SOL_E_ARGUMENT, "no such format of operands: %d", format);
    if (type < 0 || type > SOL_F32)
        return status_set(SOL_E_ARGUMENT, "no such type of results: %d", type);
    *a = (struct grouped_gemm_args){.n_groups = p->n_groups,
                                    .format = formats[format],
                                    .scales = p->scales == SOL_SCALES_ROWS    ? SCALES_ROWS
                                              : p->scales == SOL_SCALES_ATOMS ? SCALES_ATOMS
                                                                              : SCALES_COUNT,
                                    .weights = p->resident ? WEIGHTS_TILES : WEIGHTS_ROWS,
                                    .gated = p->gated,
                                    .unsigned_scales = p->unsigned_scales,
                                    .alpha = p->alpha,
                                    .limit = p->limit,
                                    .c_type = types[type]};
    return SOL_OK;
}

static _Alignas(WEIGHT_TILES_ALIGN) const char somewhere[WEIGHT_TILES_ALIGN];

/* `addresses`: the caller's are looked at. Else every operand is somewhere. */
static struct scaled_operand operand(const struct sol_scaled_matrix *x, bool addresses)
{
    if (!addresses) return (struct scaled_operand){.codes = somewhere, .scales = somewhere};
    return (struct scaled_operand){.codes = x->codes, .scales = x->scales};
}

static struct scaled_operand weights(const struct sol_scaled_matrix *x, bool addresses,
                                     bool resident)
{
    if (!addresses && resident) return (struct scaled_operand){.codes = somewhere};
    return operand(x, addresses);
}

static struct gemm_group take_group(const struct sol_grouped_gemm_group *g, bool addresses,
                                    bool resident)
{
    return (struct gemm_group){.m = g->m,
                               .n = g->n,
                               .k = g->k,
                               .a = operand(&g->a, addresses),
                               .b = weights(&g->b, addresses, resident),
                               .up = weights(&g->up, addresses, resident),
                               .bias = g->bias,
                               .up_bias = g->up_bias,
                               .factor = g->factor,
                               .up_factor = g->up_factor};
}

/* A size that the op takes, and that is not 0: others it refuses, whatever the results are. */
static bool is_size(int64_t size)
{
    return size > 0 && size <= GROUPED_GEMM_SIZE_MAX;
}

/* Bytes of a group's result, rounded up to where another one may begin; 0: it has none. */
static uint64_t result_room(const struct grouped_gemm_args *a, const struct gemm_group *g)
{
    if (!is_size(g->m) || !is_size(g->n)) return 0;
    uint64_t bytes = (uint64_t)(g->m * g->n) * (uint64_t)dtype_info(a->c_type)->block_bytes;
    return (bytes + 15) / 16 * 16;
}

/* The op knows one C in which all results lie: from the first of the caller's to the end of the
 * last. */
static enum sol_status place_results(const struct sol_grouped_gemm_problem *p,
                                     struct gemm_group *groups, struct grouped_gemm_args *a)
{
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (int64_t i = 0; i < p->n_groups; i++) {
        uintptr_t c = (uintptr_t)p->groups[i].c, room = result_room(a, &groups[i]);
        if (!room) continue;
        if (!c || c % 16)
            return status_set(SOL_E_ARGUMENT, "group %lld: c %s", (long long)i,
                              c ? "begins at no multiple of 16 bytes" : "is NULL");
        if (c > INTPTR_MAX)
            return status_set(SOL_E_ARGUMENT, "group %lld: c is no address", (long long)i);
        if (c < from) from = c;
        if (c + room > to) to = c + room;
    }
    if (from > to) return SOL_OK; /* no results */
    for (int64_t i = 0; i < p->n_groups; i++)
        if (result_room(a, &groups[i]))
            groups[i].c_at = (int64_t)((uintptr_t)p->groups[i].c - from);
    a->c = (void *)from;
    a->c_bytes = (int64_t)(to - from);
    return SOL_OK;
}

/* As place_results, of a C that nobody has yet. */
static void place_nowhere(struct gemm_group *groups, struct grouped_gemm_args *a)
{
    a->c = plan_nowhere;
    for (int64_t i = 0; i < a->n_groups; i++) {
        groups[i].c_at = a->c_bytes;
        a->c_bytes += (int64_t)result_room(a, &groups[i]);
    }
}

static enum sol_status take_problem(struct sol_grouped_gemm *g,
                                    const struct sol_grouped_gemm_problem *p, bool addresses,
                                    struct grouped_gemm_args *a)
{
    char why[OP_REASON_MAX];
    SOL_TRY(take_kinds(p, a));
    bool table = p->n_groups > 0 && p->n_groups <= GROUPED_GEMM_GROUPS_MAX && p->groups;
    for (int64_t i = 0; table && i < p->n_groups; i++)
        g->groups[i] = take_group(&p->groups[i], addresses, p->resident);
    a->groups = table ? g->groups : NULL;
    if (table && addresses) SOL_TRY(place_results(p, g->groups, a));
    if (table && !addresses) place_nowhere(g->groups, a);
    if (grouped_gemm_check(a, why)) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "grouped_gemm: %s", why);
}

/* ---- choosing ---- */

/* How a problem is computed. */
struct way {
    const struct op_variant *variant;
    int choice;
    size_t bytes; /* of workspace: the variant's, and words behind them */
};

static size_t own_workspace(const struct way *way, const struct grouped_gemm_args *a)
{
    size_t bytes = way->variant->workspace ? way->variant->workspace(a, 1) : 0;
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static enum sol_status choose(const struct sol_grouped_gemm *g, const struct grouped_gemm_args *a,
                              struct way *way)
{
    const struct op *op = &op_grouped_gemm;
    char why[OP_REASON_MAX];
    int v = chooser_choose(&g->chooser, op, a);
    if (!chooser_can_run(&g->chooser, op, v, a, why))
        return status_set(SOL_E_UNSUPPORTED, "no kernel of grouped_gemm serves this problem on %s",
                          gpu_info(g->gpu)->name);
    way->variant = op->variants[v];
    way->choice = chooser_choice(&g->chooser, op, v, a);
    way->bytes = own_workspace(way, a) + words_bytes();
    return SOL_OK;
}

static void run_way(struct sol_grouped_gemm *g, const struct way *way, void *workspace,
                    const struct grouped_gemm_args *a)
{
    const struct op_context context = {
        .stream = g->stream, .workspace = workspace, .choice = way->choice};
    way->variant->run(&context, a);
}

/* ---- calls ---- */

/* What a call does with the handle's lock, in a context of sol's. */
struct call {
    const struct sol_grouped_gemm_problem *problem;
    const struct sol_grouped_gemm_weights *weights; /* of those that pack */
    void *packed;                                   /* NULL: only asked about */
    void *workspace, *stream;
    size_t bytes;
    struct way way;
};

static enum sol_status within(struct sol_grouped_gemm *g, struct call *call,
                              enum sol_status (*work)(struct sol_grouped_gemm *, struct call *))
{
    struct gpu_visit visit;
    SOL_TRY(gpu_visit_begin(&visit));
    pthread_mutex_lock(&g->lock);
    enum sol_status status = work(g, call);
    pthread_mutex_unlock(&g->lock);
    enum sol_status left = gpu_visit_end(&visit);
    return status == SOL_OK ? left : status;
}

static enum sol_status prepare(struct sol_grouped_gemm *g, struct call *call)
{
    struct grouped_gemm_args a;
    SOL_TRY(take_problem(g, call->problem, false, &a));
    SOL_TRY(choose(g, &a, &call->way));
    gpu_guest_rehearse(g->stream);
    run_way(g, &call->way, plan_nowhere, &a);
    return gpu_guest_status(g->stream);
}

enum sol_status sol_grouped_gemm_workspace(struct sol_grouped_gemm *gemm,
                                           const struct sol_grouped_gemm_problem *problem,
                                           size_t *bytes)
{
    struct call call = {.problem = problem};
    *bytes = 0;
    SOL_TRY(within(gemm, &call, prepare));
    *bytes = call.way.bytes;
    return SOL_OK;
}

enum sol_status sol_grouped_gemm_variant(struct sol_grouped_gemm *gemm,
                                         const struct sol_grouped_gemm_problem *problem,
                                         const char **name)
{
    struct call call = {.problem = problem};
    *name = NULL;
    SOL_TRY(within(gemm, &call, prepare));
    *name = call.way.variant->name;
    return SOL_OK;
}

/* The words of this workspace; NULL where the handle has none left. */
static char *words_of(struct sol_grouped_gemm *g, const void *workspace)
{
    int i = 0;
    while (i < g->n_owners && g->owners[i] != workspace) i++;
    if (i == WORDS_MAX) return NULL;
    if (i == g->n_owners) g->owners[g->n_owners++] = workspace;
    return g->words + (size_t)i * words_bytes();
}

static enum sol_status check_workspace(const struct call *call)
{
    if (!call->workspace || (uintptr_t)call->workspace % ALIGN)
        return status_set(SOL_E_ARGUMENT, "the workspace %s",
                          call->workspace ? "begins at no multiple of 256 bytes" : "is NULL");
    if (call->bytes >= call->way.bytes) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "the workspace has %zu bytes, this problem needs %zu "
                      "(sol_grouped_gemm_workspace)",
                      call->bytes, call->way.bytes);
}

static enum sol_status put(struct sol_grouped_gemm *g, struct call *call)
{
    struct grouped_gemm_args a;
    SOL_TRY(take_problem(g, call->problem, true, &a));
    SOL_TRY(choose(g, &a, &call->way));
    SOL_TRY(check_workspace(call));
    char *words = words_of(g, call->workspace);
    bool inside = !words;
    if (inside) words = (char *)call->workspace + own_workspace(&call->way, &a);
    gpu_guest_set(g->stream, call->stream, (uint32_t *)(void *)words);
    if (inside) SOL_TRY(gpu_zero(g->stream, words, words_bytes()));
    run_way(g, &call->way, call->workspace, &a);
    return gpu_guest_status(g->stream);
}

enum sol_status sol_grouped_gemm_run(struct sol_grouped_gemm *gemm,
                                     const struct sol_grouped_gemm_problem *problem,
                                     void *workspace, size_t bytes, void *stream)
{
    struct call call = {
        .problem = problem, .workspace = workspace, .bytes = bytes, .stream = stream};
    return within(gemm, &call, put);
}

/* ---- packing ---- */

static enum sol_status take_weights(const struct call *call, struct pack_scaled_args *a)
{
    const struct sol_grouped_gemm_weights *w = call->weights;
    const struct scaled_operand rows = operand(&w->rows, call->packed != NULL);
    char why[OP_REASON_MAX];
    if (w->format != SOL_NVFP4)
        return status_set(SOL_E_ARGUMENT, "packing: weights are packed of SOL_NVFP4 only");
    *a = (struct pack_scaled_args){.rows = w->n,
                                   .k = w->k,
                                   .from = rows,
                                   .scales = w->scales == SOL_SCALES_ROWS    ? SCALES_ROWS
                                             : w->scales == SOL_SCALES_ATOMS ? SCALES_ATOMS
                                                                             : SCALES_COUNT,
                                   .tiles = call->packed ? call->packed : plan_nowhere};
    if (pack_scaled_check(a, why)) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "packing: %s", why);
}

/* Its kernels use neither a workspace nor words. */
static enum sol_status pack(struct sol_grouped_gemm *g, struct call *call)
{
    const struct op *op = &op_pack_scaled;
    struct pack_scaled_args a;
    char why[OP_REASON_MAX];
    SOL_TRY(take_weights(call, &a));
    int v = chooser_choose(&g->chooser, op, &a);
    if (!chooser_can_run(&g->chooser, op, v, &a, why))
        return status_set(SOL_E_UNSUPPORTED, "packing on %s: %s", gpu_info(g->gpu)->name, why);
    if (call->packed)
        gpu_guest_set(g->stream, call->stream, (uint32_t *)(void *)g->words);
    else
        gpu_guest_rehearse(g->stream);
    op->variants[v]->run(&(struct op_context){.stream = g->stream}, &a);
    call->bytes = grouped_gemm_tiles_bytes(a.rows, a.k);
    return gpu_guest_status(g->stream);
}

enum sol_status sol_grouped_gemm_pack_bytes(struct sol_grouped_gemm *gemm,
                                            const struct sol_grouped_gemm_weights *w, size_t *bytes)
{
    struct call call = {.weights = w};
    *bytes = 0;
    SOL_TRY(within(gemm, &call, pack));
    *bytes = call.bytes;
    return SOL_OK;
}

enum sol_status sol_grouped_gemm_pack(struct sol_grouped_gemm *gemm,
                                      const struct sol_grouped_gemm_weights *w, void *packed,
                                      void *stream)
{
    struct call call = {.weights = w, .packed = packed, .stream = stream};
    if (!packed) return status_set(SOL_E_ARGUMENT, "packing: the tiles have no memory");
    return within(gemm, &call, pack);
}

/* ---- sizes ---- */

size_t sol_grouped_gemm_scales_bytes(enum sol_scaled_format format, enum sol_scale_layout layout,
                                     int64_t rows, int64_t k)
{
    struct grouped_gemm_args a;
    const struct sol_grouped_gemm_problem p = {.format = format, .scales = layout};
    if (take_kinds(&p, &a) != SOL_OK || a.scales == SCALES_COUNT || !is_size(rows) || !is_size(k) ||
        k % grouped_gemm_step(a.format))
        return 0;
    return grouped_gemm_scales_bytes(a.format, a.scales, rows, k);
}
