#include "model/shard.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "model/architecture.h"
#include "model/weight_source.h"

enum {
    /* Intermediate numbers are dealt out in blocks: 64 where the products of many rows want whole
     * tiles of matrix instructions, else what the formats in blocks have. */
    BLOCK_WIDE = 64,
    BLOCK = 32,
    VOCAB_BLOCK = 64,
    ALIGN = 256,
    PIECE_BYTES = 4 << 20,
};

/* ---- who has what ---- */

/* Of `n` things a rank has [first, first + n): the first ranks have one more where it does not
 * divide. */
struct range {
    int64_t first, n;
};

static struct range share_of(int64_t n, int64_t rank, int64_t ranks)
{
    const int64_t each = n / ranks, more = n % ranks;
    return (struct range){rank * each + (rank < more ? rank : more), each + (rank < more)};
}

static int64_t block_of(const struct model_config *c, int64_t ranks)
{
    return c->intermediate % BLOCK_WIDE || c->intermediate / BLOCK_WIDE < ranks ? BLOCK
                                                                                : BLOCK_WIDE;
}

static struct range intermediate_of(const struct model_config *c, int64_t rank, int64_t ranks)
{
    const int64_t block = block_of(c, ranks);
    struct range r = share_of((c->intermediate + block - 1) / block, rank, ranks);
    r.first *= block;
    r.n = r.first + r.n * block > c->intermediate ? c->intermediate - r.first : r.n * block;
    return r;
}

static int64_t head_rows_of(const struct model_config *c, int64_t ranks)
{
    const int64_t each = (c->vocab + ranks - 1) / ranks;
    return (each + VOCAB_BLOCK - 1) / VOCAB_BLOCK * VOCAB_BLOCK;
}

/* Of all that ranks could have parts of, what they have fewest of. */
static int64_t most_ranks(const struct model_config *c, enum shard_way way, const char **what)
{
    int64_t most = way == SHARD_EXPERT ? c->n_experts : (c->intermediate + BLOCK - 1) / BLOCK;
    *what = way == SHARD_EXPERT ? "experts" : "blocks of the intermediate layer";
    if (way == SHARD_PIPELINE) {
        *what = "layers";
        return c->n_layers;
    }
    if (c->n_kv_heads < most) {
        most = c->n_kv_heads;
        *what = "heads of keys";
    }
    while (most > 1 && (most - 1) * head_rows_of(c, most) >= c->vocab) {
        most--;
        *what = "parts of the vocabulary";
    }
    return most;
}

enum sol_status shard_check(const struct model *model, int ranks, enum shard_way way)
{
    const struct model_config *c = &model->config;
    const char *what;
    if (way == SHARD_EXPERT && !c->n_experts)
        return status_set(SOL_E_UNSUPPORTED, "%s has no experts that ranks could share",
                          model->name);
    int64_t most = most_ranks(c, way, &what);
    if (most > SHARD_RANKS_MAX) most = SHARD_RANKS_MAX;
    if (ranks >= 1 && ranks <= most &&
        (way == SHARD_PIPELINE || (ranks - 1) * head_rows_of(c, ranks) < c->vocab))
        return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED,
                      "%s cannot be shared by %d ranks: it has %lld %s; at most %lld are possible",
                      model->name, ranks, (long long)most, what, (long long)most);
}

/* ---- layers ---- */

static double bytes_of_tensor(const struct tensor *t)
{
    return (double)(t->groups * t->rows) * (double)dtype_row_bytes(t->dtype, t->cols);
}

/* In layers what the head takes of a step of texts: weights are read once, and each text's part of
 * them is multiplied. Of the 120b 1.3: served steps of 512 took as long with 17 of 36 layers beside
 * the head as with 18 (two H200). */
static double head_in_layers(const struct model *m)
{
    const double texts = 128, flops_a_byte = 100; /* of products, while memory passes a byte */
    const struct model_config *c = &m->config;
    const double n = (double)c->n_layers, a_weight = 2 * texts / flops_a_byte;
    const double head = (double)(c->vocab * c->hidden),
                 ends = bytes_of_tensor(&m->embed) + bytes_of_tensor(&m->head);
    const double others = 3 * (double)(c->hidden * c->intermediate * (c->n_experts - c->top_k));
    const double layer = ((double)m->parameters - 2 * head) / n - others;
    return (bytes_of_tensor(&m->head) + a_weight * head) /
           (((double)m->weight_bytes - ends) / n + a_weight * layer);
}

/* Rank 0 has fewer, as it has the head. */
static struct range layers_of(const struct model *m, int rank, int ranks)
{
    const int64_t all = m->config.n_layers;
    const double head = head_in_layers(m);
    int64_t last = llround(((double)all + head) / ranks - head);
    if (ranks < 2) return (struct range){0, all};
    if (last > all - (ranks - 1)) last = all - (ranks - 1);
    if (last < 1) last = 1;
    if (rank == 0) return (struct range){all - last, last};
    return share_of(all - last, ranks - 1 - rank, ranks - 1);
}

static struct model_config layers_config(const struct model *m, int rank, int ranks)
{
    const struct range own = layers_of(m, rank, ranks);
    struct model_config part = m->config;
    part.rank = rank;
    part.ranks = ranks;
    part.n_layers = own.n;
    part.first_layer = own.first;
    part.all_layers = m->config.n_layers;
    return part;
}

/* One layer more outweighs what the head has beside the embedding. */
int shard_heaviest(const struct model *model, int ranks, enum shard_way way)
{
    if (way != SHARD_PIPELINE) return 0;
    return layers_of(model, ranks - 1, ranks).n > layers_of(model, 0, ranks).n ? ranks - 1 : 0;
}

/* ---- parts ---- */

static struct model_config part_config(const struct model *m, int rank, int ranks,
                                       enum shard_way way)
{
    const struct model_config *c = &m->config;
    const struct range own = share_of(c->n_experts, rank, ranks);
    struct model_config part = *c;
    if (way == SHARD_PIPELINE) return layers_config(m, rank, ranks);
    part.rank = rank;
    part.ranks = ranks;
    part.n_kv_heads = share_of(c->n_kv_heads, rank, ranks).n;
    part.n_heads = part.n_kv_heads * (c->n_heads / c->n_kv_heads);
    if (way == SHARD_EXPERT)
        part.own_experts = own.n, part.first_expert = own.first;
    else
        part.intermediate = intermediate_of(c, rank, ranks).n;
    part.head_rows = head_rows_of(c, ranks);
    return part;
}

/* Where a dimension of the part begins in the whole one. */
static int64_t first_of(const struct model *part, enum dim dim)
{
    const struct model_config *c = &part->config, *all = &part->whole->config;
    const int64_t kv = share_of(all->n_kv_heads, c->rank, c->ranks).first;
    const int64_t group = all->n_heads / all->n_kv_heads;
    if (c->all_layers) return dim == LAYERS ? c->first_layer : 0;
    /* clang-format off */
    switch (dim) {
    case KV_HEADS: return kv;
    case KV_WIDTH: return kv * all->head_dim;
    case HEADS: return kv * group;
    case Q_WIDTH: return kv * group * all->head_dim;
    case INTER: return c->own_experts ? 0 : intermediate_of(all, c->rank, c->ranks).first;
    default: return 0;
    }
    /* clang-format on */
}

struct shard_place shard_place(const struct model *part, int64_t index)
{
    const struct model_config *c = &part->config;
    const struct weight w = weight_at(c, index);
    const struct weight_spec *spec = w.spec;
    struct shard_place p = {.row = first_of(part, spec->rows), .col = first_of(part, spec->cols)};
    const bool own = c->own_experts && weight_per_expert(&w);
    if (c->all_layers) return p;
    if (spec->role == ROLE_HEAD) p.row = c->rank * c->head_rows;
    if (own) p.group = c->first_expert;
    p.zeros = spec->role == ROLE_BIAS && spec->cols == HIDDEN && c->rank > 0 && !own;
    return p;
}

const char *shard_way_key(enum shard_way way)
{
    return way == SHARD_EXPERT     ? "expert_parallel"
           : way == SHARD_PIPELINE ? "pipeline_parallel"
                                   : NULL;
}

/* ---- a part ---- */

struct shard {
    struct model model; /* first: callers hold its address */
    void *pages;        /* of shard_load */
    size_t bytes;
    struct layer_weights layers[];
};

/* Of the part's weight of that number, as the whole has it. */
static enum dtype dtype_of(const struct model *part, int64_t index)
{
    const struct model_config *c = &part->whole->config;
    const struct weight w = weight_at(c, weight_of_whole(&part->config, c, index));
    return w.vector ? DTYPE_F32 : ((const struct tensor *)weight_field(part->whole, &w))->dtype;
}

static size_t bytes_of(const struct weight *w, enum dtype dtype)
{
    return (size_t)(w->groups * w->rows) * dtype_row_bytes(dtype, w->cols);
}

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* At `memory`, or with NULL nowhere; how many bytes. */
static size_t bind_all(struct model *part, char *memory)
{
    size_t at = 0;
    for (int64_t i = 0; i < weight_count(&part->config); i++) {
        const struct weight w = weight_at(&part->config, i);
        const enum dtype dtype = dtype_of(part, i);
        weight_bind(part, &w, dtype, memory ? memory + at : NULL);
        at += padded(bytes_of(&w, dtype));
    }
    return at;
}

/* A row is cut between blocks. */
static enum sol_status check_columns(const struct model *part)
{
    for (int64_t i = 0; i < weight_count(&part->config); i++) {
        const struct weight w = weight_at(&part->config, i);
        const struct dtype_info *type = dtype_info(dtype_of(part, i));
        if (w.cols % type->block == 0 && shard_place(part, i).col % type->block == 0) continue;
        return status_set(SOL_E_UNSUPPORTED,
                          "%s cannot be shared by %lld ranks: %s in %s would be cut within blocks "
                          "of %lld",
                          part->name, (long long)part->config.ranks, w.name, type->name,
                          (long long)type->block);
    }
    return SOL_OK;
}

enum sol_status shard_create(const struct model *whole, int rank, int ranks, enum shard_way way,
                             struct model **out)
{
    *out = NULL;
    SOL_TRY(shard_check(whole, ranks, way));
    const size_t layers = (size_t)whole->config.n_layers;
    struct shard *s = calloc(1, sizeof *s + layers * sizeof *s->layers);
    if (!s) return status_set(SOL_E_MEMORY, "no memory for a model's tables");
    s->model = *whole;
    s->model.whole = whole;
    s->model.config = part_config(whole, rank, ranks, way);
    s->model.layers = s->layers;
    s->model.parameters = 0;
    s->model.weight_bytes = 0;
    (void)bind_all(&s->model, NULL);
    for (int64_t i = 0; i < weight_count(&s->model.config); i++) {
        const struct weight w = weight_at(&s->model.config, i);
        s->model.parameters += weight_elements(&w);
        s->model.weight_bytes += bytes_of(&w, dtype_of(&s->model, i));
    }
    const enum sol_status status = check_columns(&s->model);
    if (status == SOL_OK)
        *out = &s->model;
    else
        shard_destroy(&s->model);
    return status;
}

void shard_destroy(struct model *part)
{
    if (!part) return;
    struct shard *s = (struct shard *)part;
    pages_free(s->pages, s->bytes);
    free(s);
}

/* ---- its weights in the host's memory ---- */

struct loading {
    struct model *part;
    struct weight_source *source;
    const struct weight_piece *pieces;
    atomic_int status; /* of the first that failed */
    char message[1024];
};

static char *place_of(const struct loading *l, const struct weight_piece *piece, int k)
{
    const struct weight w = weight_at(&l->part->config, piece->weights[k]);
    const void *field = weight_field(l->part, &w);
    if (w.vector) return (char *)(uintptr_t) * (const float *const *)field;
    const struct tensor *t = field;
    return (char *)(uintptr_t)tensor_row(t, piece->group, piece->row);
}

static enum sol_status read_piece(const struct loading *l, const struct weight_piece *piece,
                                  int worker)
{
    const bool pair = piece->weights[1] >= 0;
    if (!pair) return weight_source_read(l->source, worker, piece, place_of(l, piece, 0));
    char *both = malloc(2 * piece->bytes);
    if (!both) return status_set(SOL_E_MEMORY, "no memory to read weights");
    const enum sol_status status = weight_source_read(l->source, worker, piece, both);
    for (int k = 0; k < 2 && status == SOL_OK; k++)
        memcpy(place_of(l, piece, k), both + (size_t)k * piece->bytes, piece->bytes);
    free(both);
    return status;
}

static void read_pieces(void *arg, int64_t begin, int64_t end, int worker)
{
    struct loading *l = arg;
    for (int64_t i = begin; i < end; i++) {
        int none = SOL_OK;
        if (atomic_load(&l->status) != SOL_OK || interrupt_requested()) return;
        const enum sol_status status = read_piece(l, &l->pieces[i], worker);
        if (status != SOL_OK && atomic_compare_exchange_strong(&l->status, &none, (int)status))
            snprintf(l->message, sizeof l->message, "%s", sol_last_error());
    }
}

static enum sol_status read_all(struct loading *l, struct pool *pool)
{
    int64_t count;
    SOL_TRY(weight_source_pieces(l->source, PIECE_BYTES, 1, NULL, &l->pieces, &count));
    pool_for(pool, count, 1, read_pieces, l);
    const enum sol_status status = (enum sol_status)atomic_load(&l->status);
    return status == SOL_OK ? interrupt_check() : status_set(status, "%s", l->message);
}

enum sol_status shard_load(struct model *part, int threads)
{
    struct shard *s = (struct shard *)part;
    struct loading l = {.part = part};
    struct pool *pool;
    s->bytes = bind_all(part, NULL);
    const size_t available = memory_available();
    if (available && s->bytes > available)
        return status_set(SOL_E_MEMORY, "a rank's part of %s needs %.2f GiB and %.2f GiB are free",
                          part->name, (double)s->bytes / (1 << 30), (double)available / (1 << 30));
    SOL_TRY(pages_alloc(s->bytes, &s->pages));
    SOL_TRY(pool_create(threads, &pool));
    enum sol_status status = weight_source_open(part, pool_size(pool), &l.source);
    (void)bind_all(part, s->pages);
    if (status == SOL_OK) status = read_all(&l, pool);
    weight_source_close(l.source);
    pool_destroy(pool);
    return status;
}
