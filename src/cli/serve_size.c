#include "cli/serve_size.h"

#include "base/memory.h"
#include "base/status.h"
#include "infer/fit.h"
#include "infer/kv_pages.h"
#include "model/upload.h"
#include "ops/batch.h"

enum {
    /* A CPU's steps take as long with twice the texts; a GPU's hardly longer up to some hundreds.
     */
    PARALLEL_CPU = 16,
    PARALLEL_GPU = 512,
    CONTEXT_CPU = 8192,
    /* A text's share of the cache, below which there had better be fewer texts: a prompt and an
     * answer of usual length. */
    SHARE = 2048,
    /* Of one prompt in a step: windows keep so much more of each text. */
    RUN_GPU = 512,
    SNAPSHOTS_CPU = 64,
    SNAPSHOTS_GPU = 256,
};

/* Bytes that an engine may take beside the weights. */
static enum sol_status room_for(const struct model *model, struct gpu *gpu,
                                const struct serve_size *asked, size_t *room)
{
    const size_t copies = (size_t)asked->copies;
    if (!gpu) {
        *room = memory_available() / 2 / copies; /* others live here too */
        return SOL_OK;
    }
    size_t available, weights = model_upload_bytes(model);
    SOL_TRY(model_upload_check(model, gpu, &available));
    available -= available / 16; /* what libraries and graphs take */
    if (weights >= available)
        return status_set(SOL_E_MEMORY, "the weights of %s do not fit into the GPU", model->name);
    *room = (available - weights) / (asked->together ? copies : 1);
    return SOL_OK;
}

/* Positions of the cache that fit, at most `most`. What the cache takes grows with them, and
 * nothing else does. 0: none. */
static enum sol_status positions_in(const struct model *model, const struct engine_params *params,
                                    size_t room, int64_t most, int64_t *out)
{
    struct engine_params p = *params;
    struct engine_parts few;
    struct buffers many;
    const int64_t pages = kv_pages_for(most), least = p.sequences < pages ? p.sequences : pages;
    *out = 0;
    p.cache_positions = least * KV_PAGE;
    SOL_TRY(fit_engine(model, &p, &few));
    if (engine_parts_total(&few) > room) return SOL_OK;
    *out = p.cache_positions;
    if (pages == least) return SOL_OK;
    p.cache_positions = pages * KV_PAGE;
    engine_params_settle(&p);
    SOL_TRY(buffers_describe(&model->config, &p, &many));
    double page = (double)(buffers_parts(&many).cache - few.cache) / (double)(pages - least);
    buffers_free(&many);
    int64_t more = page > 0 ? (int64_t)((double)(room - engine_parts_total(&few)) / page) : pages;
    *out = (least + more < pages ? least + more : pages) * KV_PAGE;
    return SOL_OK;
}

/* An engine's part of what all have together. */
static int64_t part_of(int64_t all, int64_t copies)
{
    return (all + copies - 1) / copies;
}

static void set_fixed(const struct model *model, const struct serve_size *asked,
                      struct engine_params *p)
{
    const bool gpu = p->chooser.device.gpu;
    const int64_t longest = model->config.context;
    p->context = asked->context ? asked->context : gpu ? longest : CONTEXT_CPU;
    if (p->context > longest && !asked->context) p->context = longest;
    p->sequences = asked->parallel ? asked->parallel
                   : gpu           ? PARALLEL_GPU
                                   : part_of(PARALLEL_CPU, asked->copies);
    p->snapshots = gpu ? SNAPSHOTS_GPU : SNAPSHOTS_CPU;
    if (gpu && p->max_batch > RUN_GPU) p->max_run = RUN_GPU;
}

/* Fewer texts until each has its share, where their number was not asked for. */
static enum sol_status shrink(const struct model *model, const struct serve_size *asked,
                              size_t room, struct engine_params *p)
{
    for (;;) {
        int64_t share = p->context < SHARE ? p->context : SHARE, most = p->sequences * p->context;
        p->max_outputs = p->sequences;
        if (asked->cache) most = asked->cache;
        SOL_TRY(positions_in(model, p, room, most, &p->cache_positions));
        bool enough = p->cache_positions >= (asked->cache ? asked->cache : share * p->sequences);
        if (enough || asked->parallel || p->sequences == 1) break;
        p->sequences /= 2;
    }
    if (asked->cache) p->cache_positions = asked->cache; /* too much is refused, with figures */
    if (p->cache_positions) return SOL_OK;
    p->cache_positions = p->sequences * KV_PAGE; /* likewise */
    return SOL_OK;
}

enum sol_status serve_size_settle(const struct model *model, const struct serve_size *all,
                                  struct engine_params *p)
{
    struct gpu *gpu = p->chooser.device.gpu;
    struct model *outline = NULL;
    size_t room;
    const int64_t copies = all->copies ? all->copies : 1;
    const struct serve_size own = {
        .parallel = part_of(all->parallel, copies),
        .context = all->context,
        .cache = part_of(all->cache, copies),
        .copies = copies,
        .together = all->together,
    };
    const struct serve_size *asked = &own;
    set_fixed(model, asked, p);
    if (gpu) SOL_TRY(model_upload_outline(model, gpu, &outline));
    enum sol_status status = room_for(gpu ? outline : model, gpu, asked, &room);
    if (status == SOL_OK) status = shrink(gpu ? outline : model, asked, room, p);
    if (gpu) model_upload_destroy(outline, gpu);
    return status;
}
