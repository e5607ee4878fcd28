/* Sequences that begin as others did, and that go back. Of layers that see everything the pages are
 * shared, as their positions never change; only a page that is not full is copied, for who goes on
 * writing there. Of sliding layers, whose rings are overwritten, what the window sees is copied:
 * whole blocks, for each head in one piece, or two where the ring begins anew. */
#include <assert.h>
#include <string.h>

#include "gpu/device.h"
#include "infer/engine_private.h"
#include "infer/finite.h"

/* ---- copies ---- */

/* Layers that are alike and lie one behind the other (buffers_place): one copy passes all. */
struct run {
    int64_t first, n, next; /* n: layers, 0 for none; the next run begins at `next` or later */
};

static bool lies_behind(const struct kv_layer *kv, const struct kv_layer *before)
{
    const size_t bytes = (size_t)kv_elements(before) * dtype_info(before->dtype)->block_bytes;
    return kv->capacity == before->capacity && (char *)kv->k == (char *)before->k + bytes &&
           (char *)kv->v == (char *)before->v + bytes;
}

/* Of layers with pages, or of those without, from `layer` on. */
static struct run run_from(const struct engine *e, int64_t layer, bool paged)
{
    const struct model_config *c = &e->model->config;
    const struct kv_layer *kv = e->buffers.at.kv, *kept = e->buffers.kept;
    struct run run = {.next = layer};
    for (int64_t last = 0; run.next < c->n_layers; run.next++) {
        const int64_t i = run.next;
        if ((kv[i].n_pages > 0) != paged) continue;
        if (!run.n)
            run.first = i;
        else if (model_layer_window(c, i) != model_layer_window(c, last) ||
                 !lies_behind(&kv[i], &kv[last]) || !lies_behind(&kept[i], &kept[last]))
            break;
        run.n++;
        last = i;
    }
    return run;
}

/* Positions of all heads of one sequence in a ring, from a block's first on; in the rings of the
 * layers behind it as well. */
struct ring_end {
    const struct kv_layer *kv;
    int64_t sequence, at;
};

static size_t row_bytes(const struct kv_layer *kv)
{
    return (size_t)kv->head_dim * dtype_info(kv->dtype)->block_bytes;
}

static struct gpu_box_end box_at(const struct ring_end *end, void *data)
{
    const struct kv_layer *kv = end->kv;
    int64_t row = end->sequence * kv->n_kv_heads * kv->capacity + end->at;
    return (struct gpu_box_end){(char *)data + (size_t)row * row_bytes(kv),
                                (size_t)kv->capacity * row_bytes(kv),
                                (size_t)(kv->n_sequences * kv->n_kv_heads)};
}

static enum sol_status copy_box(const struct engine *e, struct gpu_box_end to,
                                struct gpu_box_end from, const struct gpu_box *box)
{
    if (e->gpu) return gpu_copy_box(e->context.stream, &to, &from, box);
    for (size_t z = 0; z < box->depth; z++)
        for (size_t y = 0; y < box->height; y++)
            memcpy((char *)to.at + (z * to.height + y) * to.pitch,
                   (const char *)from.at + (z * from.height + y) * from.pitch, box->width);
    return SOL_OK;
}

/* As many positions as neither ring ends before. */
static enum sol_status copy_piece(const struct engine *e, const struct ring_end *to,
                                  const struct ring_end *from, int64_t n, int64_t layers)
{
    const struct kv_layer *kv = to->kv;
    const struct gpu_box box = {(size_t)n * row_bytes(kv), (size_t)kv->n_kv_heads, (size_t)layers};
    SOL_TRY(copy_box(e, box_at(to, kv->k), box_at(from, from->kv->k), &box));
    return copy_box(e, box_at(to, kv->v), box_at(from, from->kv->v), &box);
}

/* What a window sees at `position`. */
struct span {
    int64_t first, n; /* whole blocks */
};

static struct span seen_at(const struct engine *e, int64_t layer, int64_t position)
{
    int64_t first = position - (model_layer_window(&e->model->config, layer) - 1);
    first = first > 0 ? first / KV_BLOCK * KV_BLOCK : 0;
    return (struct span){first, (position - first + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK};
}

/* Positions from `from` on, of rings in which they begin at different places. */
static enum sol_status copy_span(const struct engine *e, struct ring_end to, struct ring_end from,
                                 int64_t n, int64_t layers)
{
    while (n > 0) {
        int64_t piece = n;
        if (piece > to.kv->capacity - to.at) piece = to.kv->capacity - to.at;
        if (piece > from.kv->capacity - from.at) piece = from.kv->capacity - from.at;
        SOL_TRY(copy_piece(e, &to, &from, piece, layers));
        to.at = (to.at + piece) % to.kv->capacity;
        from.at = (from.at + piece) % from.kv->capacity;
        n -= piece;
    }
    return SOL_OK;
}

/* A page is in one piece: a ring of its own. */
static enum sol_status copy_page(const struct engine *e, int32_t from, int32_t to)
{
    for (struct run r = run_from(e, 0, true); r.n; r = run_from(e, r.next, true)) {
        struct kv_layer kv = e->buffers.at.kv[r.first];
        kv.n_sequences = kv.n_pages;
        kv.capacity = KV_PAGE * kv.n_kv_heads;
        kv.n_kv_heads = 1;
        SOL_TRY(copy_piece(e, &(struct ring_end){&kv, to, 0}, &(struct ring_end){&kv, from, 0},
                           kv.capacity, r.n));
    }
    return SOL_OK;
}

/* ---- sequences ---- */

/* What a sequence is to hold, except for what its windows see. `pages` are somebody's who keeps
 * them; the last is copied where it is not full. */
static enum sol_status take_over(struct engine *e, int32_t sequence, const int32_t *pages,
                                 int64_t position, int32_t last)
{
    int64_t full = position / KV_PAGE;
    engine_forget(e, sequence);
    if (position % KV_PAGE && !e->pages.n_free) return engine_no_pages(e, 1);
    kv_pages_share(&e->pages, sequence, pages, full);
    kv_pages_hold(&e->pages, sequence, position);
    e->position[sequence] = e->oldest[sequence] = position;
    e->last[sequence] = last;
    if (!(position % KV_PAGE)) return SOL_OK;
    return copy_page(e, pages[full], e->pages.table[sequence * e->pages.per_sequence + full]);
}

static enum sol_status copy_sequence(struct engine *e, int32_t from, int32_t to)
{
    const int64_t n = e->position[from];
    assert(from != to && !e->begun);
    SOL_TRY(take_over(e, to, e->pages.table + from * e->pages.per_sequence, n, e->last[from]));
    for (struct run r = run_from(e, 0, false); r.n; r = run_from(e, r.next, false)) {
        const struct kv_layer *kv = &e->buffers.at.kv[r.first];
        const struct span s = seen_at(e, r.first, n);
        const int64_t at = s.first % kv->capacity;
        SOL_TRY(
            copy_span(e, (struct ring_end){kv, to, at}, (struct ring_end){kv, from, at}, s.n, r.n));
    }
    return SOL_OK;
}

/* Every rank does it, so that all have the same sequences and pages also where one cannot; what
 * they lack they lack together. */
enum sol_status engine_copy(struct engine *e, int32_t from, int32_t to)
{
    enum sol_status status = copy_sequence(e, from, to);
    for (int r = 1; r < engine_count(e); r++) {
        const enum sol_status other = copy_sequence(engine_of(e, r), from, to);
        if (status == SOL_OK) status = other;
    }
    return status;
}

/* ---- snapshots ---- */

/* The token before a position: the last one, or the one before a row of the last step, whose rows
 * are still there. */
static bool find_token(const struct engine *e, int32_t sequence, int64_t position, int32_t *token)
{
    const struct batch *b = &e->host;
    *token = e->last[sequence];
    if (position == e->position[sequence]) return true;
    if (position < e->oldest[sequence]) return false;
    for (int64_t i = 0; i < b->n_tokens; i++) {
        if (b->sequence[i] != sequence || b->position[i] != position) continue;
        *token = b->previous[i];
        return true;
    }
    return false;
}

static enum sol_status copy_windows(const struct engine *e, int32_t sequence, int32_t slot,
                                    int64_t position, bool keep)
{
    for (struct run r = run_from(e, 0, false); r.n; r = run_from(e, r.next, false)) {
        const struct kv_layer *kv = &e->buffers.at.kv[r.first];
        const struct span s = seen_at(e, r.first, position);
        const struct ring_end ring = {kv, sequence, s.first % kv->capacity};
        const struct ring_end kept = {&e->buffers.kept[r.first], slot, 0};
        SOL_TRY(keep ? copy_span(e, kept, ring, s.n, r.n) : copy_span(e, ring, kept, s.n, r.n));
    }
    return SOL_OK;
}

static void drop(struct engine *e, int32_t slot)
{
    struct engine_snapshot *s = &e->snapshots[slot];
    kv_pages_drop(&e->pages, s->pages, s->n_pages);
    s->position = s->n_pages = 0;
}

static enum sol_status keep(struct engine *e, int32_t sequence, int64_t position, int32_t slot)
{
    struct engine_snapshot *s = &e->snapshots[slot];
    int32_t last;
    assert(!e->begun && slot >= 0 && slot < e->params.snapshots);
    if (position < 1 || position > e->position[sequence] ||
        !find_token(e, sequence, position, &last))
        return status_set(
            SOL_E_ARGUMENT,
            "a snapshot at position %lld of a sequence at %lld; only its end and what "
            "the last step passed can be kept",
            (long long)position, (long long)e->position[sequence]);
    drop(e, slot);
    SOL_TRY(copy_windows(e, sequence, slot, position, true));
    s->n_pages = kv_pages_for(position);
    kv_pages_keep(&e->pages, sequence, s->n_pages, s->pages);
    s->position = position;
    s->last = last;
    return SOL_OK;
}

enum sol_status engine_snapshot(struct engine *e, int32_t sequence, int64_t position, int32_t slot)
{
    enum sol_status status = keep(e, sequence, position, slot);
    for (int r = 1; r < engine_count(e); r++) {
        const enum sol_status other = keep(engine_of(e, r), sequence, position, slot);
        if (status == SOL_OK) status = other;
    }
    return status;
}

static enum sol_status restore(struct engine *e, int32_t slot, int32_t sequence)
{
    const struct engine_snapshot *s = &e->snapshots[slot];
    assert(!e->begun && slot >= 0 && slot < e->params.snapshots);
    if (!s->position) return status_set(SOL_E_ARGUMENT, "slot %d holds no snapshot", (int)slot);
    SOL_TRY(take_over(e, sequence, s->pages, s->position, s->last));
    return copy_windows(e, sequence, slot, s->position, false);
}

enum sol_status engine_restore(struct engine *e, int32_t slot, int32_t sequence)
{
    enum sol_status status = restore(e, slot, sequence);
    for (int r = 1; r < engine_count(e); r++) {
        const enum sol_status other = restore(engine_of(e, r), slot, sequence);
        if (status == SOL_OK) status = other;
    }
    return status;
}

void engine_drop_snapshot(struct engine *e, int32_t slot)
{
    for (int r = 0; r < engine_count(e); r++) drop(engine_of(e, r), slot);
}

int64_t engine_snapshot_position(const struct engine *e, int32_t slot)
{
    return e->snapshots[slot].position;
}

/* Others have the first pages of a text too, if any: it is the last one that counts. */
bool engine_snapshot_frees(const struct engine *e, int32_t slot)
{
    const struct engine_snapshot *s = &e->snapshots[slot];
    return s->n_pages && e->pages.users[s->pages[s->n_pages - 1]] == 1;
}

/* ---- back over the last step ---- */

/* Whether somebody else has what lies from `position` on in its page. Sequences share whole pages
 * only. */
static bool shared_behind(const struct engine *e, int32_t sequence, int64_t position)
{
    const struct kv_pages *p = &e->pages;
    const int64_t at = position / KV_PAGE;
    if (position % KV_PAGE == 0) return false; /* the next row gets a page of its own */
    const int32_t page = p->table[sequence * p->per_sequence + at];
    if (p->readers[page] > 1) return true;
    for (int64_t i = 0; i < e->params.snapshots; i++) {
        const struct engine_snapshot *s = &e->snapshots[i];
        if (s->position > position && s->pages[at] == page) return true;
    }
    return false;
}

/* A ring has room for window - 1 + max_run rows. The last step wrote at most max_run from `oldest`
 * on; if one row, a step begun ahead may have written another (describe_layer). A step before that
 * was undone began no later and wrote no farther than `oldest` + max_run. So what a window sees at
 * `oldest` or later is still there. */
static enum sol_status go_back(struct engine *e, int32_t sequence, int64_t position)
{
    const int64_t now = e->position[sequence];
    int32_t last;
    assert(!e->begun);
    if (position == now) return SOL_OK;
    if (position < 0 || position > now || !find_token(e, sequence, position, &last))
        return status_set(SOL_E_ARGUMENT,
                          "a sequence at %lld cannot go back to %lld, only over rows of the last "
                          "step",
                          (long long)now, (long long)position);
    if (shared_behind(e, sequence, position))
        return status_set(SOL_E_ARGUMENT,
                          "a sequence cannot go back to %lld: a snapshot or another sequence has "
                          "what follows there",
                          (long long)position);
    engine_forget_ahead(e);
    e->position[sequence] = position;
    e->last[sequence] = last;
    kv_pages_hold(&e->pages, sequence, position);
    return SOL_OK;
}

enum sol_status engine_go_back(struct engine *e, int32_t sequence, int64_t position)
{
    enum sol_status status = go_back(e, sequence, position);
    for (int r = 1; r < engine_count(e); r++) {
        const enum sol_status other = go_back(engine_of(e, r), sequence, position);
        if (status == SOL_OK) status = other;
    }
    return status;
}

/* ---- as bytes ---- */

/* Of keys, and of values as many. A layer that sees everything has whole pages, each in one piece;
 * of a window's layer each head has what it sees in one piece. */
struct pieces {
    int64_t first, n;     /* pages, or heads */
    size_t bytes;         /* of each */
    const int32_t *pages; /* NULL: heads, of `kv` from row `at` on, `pitch` rows apart */
    const struct kv_layer *kv;
    int64_t at, pitch;
};

static struct pieces pieces_of(const struct engine *e, int32_t slot, int64_t layer,
                               int64_t position, int64_t before)
{
    const struct kv_layer *kv = &e->buffers.at.kv[layer], *kept = &e->buffers.kept[layer];
    if (kv->n_pages) {
        const int64_t rows = kv->n_kv_heads * KV_PAGE, first = before / KV_PAGE;
        return (struct pieces){.first = first,
                               .n = kv_pages_for(position) - first,
                               .bytes = (size_t)rows * row_bytes(kv),
                               .pages = slot < 0 ? NULL : e->snapshots[slot].pages,
                               .kv = kv,
                               .pitch = rows};
    }
    return (struct pieces){.n = kv->n_kv_heads,
                           .bytes = (size_t)seen_at(e, layer, position).n * row_bytes(kv),
                           .kv = kept,
                           .at = slot * kept->n_kv_heads * kept->capacity,
                           .pitch = kept->capacity};
}

static size_t piece_offset(const struct pieces *p, int64_t i)
{
    int64_t row = p->pages ? p->pages[p->first + i] : i;
    return (size_t)(p->at + row * p->pitch) * row_bytes(p->kv);
}

/* Of the ranks that have the layer: each page, or a window's heads, those of the first rank in
 * front. */
struct whole {
    size_t bytes;         /* keys, and values as many */
    size_t before, pitch; /* where a rank's first piece lies among the keys; from piece to piece */
};

static struct whole whole_of(struct engine *e, int rank, int64_t layer, int64_t position,
                             int64_t before)
{
    struct whole w = {0};
    for (int r = 0; r < engine_count(e); r++) {
        const struct engine *other = engine_of(e, r);
        const int64_t own_layer = engine_layer(other, layer);
        if (own_layer < 0) continue;
        const bool paged = other->buffers.at.kv[own_layer].n_pages > 0;
        const struct pieces p = pieces_of(other, -1, own_layer, position, before);
        const size_t own = paged ? p.bytes : (size_t)p.n * p.bytes;
        if (r < rank) w.before += own;
        if (paged || r == rank) w.pitch += p.bytes;
        w.bytes += (size_t)p.n * p.bytes;
    }
    return w;
}

static size_t whole_at(const struct whole *w, const struct pieces *p, int64_t i)
{
    return (i < p->n ? 0 : w->bytes) + w->before + (size_t)(i % p->n) * w->pitch;
}

/* Of a rank, between its slot and the bytes of all. */
static enum sol_status pass_pieces(struct engine *all, int rank, int32_t slot, int64_t layer,
                                   int64_t before, char *bytes, bool out)
{
    struct engine *e = engine_of(all, rank);
    const int64_t position = e->snapshots[slot].position, own_layer = engine_layer(e, layer);
    if (own_layer < 0) return SOL_OK;
    const struct whole w = whole_of(all, rank, layer, position, before);
    const struct pieces p = pieces_of(e, slot, own_layer, position, before);
    for (int64_t i = 0; i < 2 * p.n; i++) {
        char *kept = (char *)(i < p.n ? p.kv->k : p.kv->v) + piece_offset(&p, i % p.n);
        char *at = bytes + whole_at(&w, &p, i);
        if (!e->gpu)
            memcpy(out ? at : kept, out ? kept : at, p.bytes);
        else if (out)
            SOL_TRY(gpu_copy_out(e->context.stream, at, kept, p.bytes));
        else
            SOL_TRY(gpu_copy_in(e->context.stream, kept, at, p.bytes));
    }
    return e->gpu ? gpu_wait(e->context.stream) : SOL_OK;
}

size_t engine_snapshot_bytes(const struct engine *e, int64_t layer, int64_t position,
                             int64_t before)
{
    struct engine *asked = (struct engine *)(uintptr_t)e; /* which is not changed */
    return 2 * whole_of(asked, 0, layer, position, before).bytes;
}

enum sol_status engine_snapshot_read(struct engine *e, int32_t slot, int64_t layer, int64_t before,
                                     void *to)
{
    enum sol_status status = SOL_OK;
    for (int r = 0; r < engine_count(e) && status == SOL_OK; r++)
        status = pass_pieces(e, r, slot, layer, before, to, true);
    return status;
}

static enum sol_status make(struct engine *e, int32_t slot, int64_t position, int32_t last,
                            int32_t before)
{
    struct engine_snapshot *s = &e->snapshots[slot];
    const int64_t shared = before < 0 ? 0 : e->snapshots[before].position / KV_PAGE;
    const int64_t pages = kv_pages_for(position);
    assert(!e->begun && slot != before && position > 0 && position <= e->params.context);
    drop(e, slot);
    if (pages - shared > e->pages.n_free) return engine_no_pages(e, pages - shared);
    kv_pages_make(&e->pages, before < 0 ? NULL : e->snapshots[before].pages, shared, s->pages,
                  pages);
    s->n_pages = pages;
    s->position = position;
    s->last = last;
    return SOL_OK;
}

enum sol_status engine_snapshot_make(struct engine *e, int32_t slot, int64_t position, int32_t last,
                                     int32_t before)
{
    enum sol_status status = make(e, slot, position, last, before);
    for (int r = 1; r < engine_count(e); r++) {
        const enum sol_status other = make(engine_of(e, r), slot, position, last, before);
        if (status == SOL_OK) status = other;
    }
    return status;
}

/* The exponent's bits are all ones in what is no finite number. */
static bool is_finite(enum dtype dtype, const void *data, size_t bytes)
{
    if (dtype == DTYPE_F32) return finite_row(data, (int64_t)(bytes / sizeof(float)));
    const uint16_t exponent = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80, *at = data;
    bool finite = true;
    for (size_t i = 0; i < bytes / sizeof *at; i++) finite &= (at[i] & exponent) != exponent;
    return finite;
}

enum sol_status engine_snapshot_write(struct engine *e, int32_t slot, int64_t layer, int64_t before,
                                      const void *from)
{
    const int64_t position = e->snapshots[slot].position;
    const size_t bytes = engine_snapshot_bytes(e, layer, position, before);
    enum sol_status status = SOL_OK;
    if (!is_finite(e->params.kv_dtype, from, bytes))
        return status_set(SOL_E_FORMAT, "keys or values of layer %lld are no finite numbers",
                          (long long)layer);
    for (int r = 0; r < engine_count(e) && status == SOL_OK; r++)
        status = pass_pieces(e, r, slot, layer, before, (char *)(uintptr_t)from, false);
    return status;
}
