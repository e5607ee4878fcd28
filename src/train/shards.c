/* See shards.h. */
#include "train/shards.h"

enum { PARTED_LEAST = 1024 }; /* numbers; fewer are not worth two messages */

static int64_t ceil_of(int64_t units, int64_t of)
{
    return (units + of - 1) / of;
}

/* In how many parts each piece is. */
static int parts_of(const struct shard *s)
{
    return s->parted ? s->ranks : 1;
}

struct shard shard_of(int64_t units, int64_t numbers_of_one, int ranks, int rank, int pieces)
{
    struct shard s = {.ranks = ranks, .rank = rank, .pieces = 1, .units = units, .block = units};
    s.parted = ranks > 1 && units >= ranks && units * numbers_of_one >= PARTED_LEAST;
    if (!s.parted) return s;
    s.block = ceil_of(units, (int64_t)ranks * pieces);
    s.pieces = (int)ceil_of(units, ranks * s.block);
    return s;
}

struct piece shard_piece(const struct shard *s, int i)
{
    const int parts = parts_of(s);
    struct piece p = {.first = i * parts * s->block};
    const int64_t left = s->units - p.first, least = ceil_of(left, parts);
    p.block = s->block < least ? s->block : least;
    const int64_t behind = s->parted ? s->rank * p.block : 0;
    p.own = p.first + (behind < left ? behind : left);
    p.count = s->units - p.own < p.block ? s->units - p.own : p.block;
    return p;
}

int64_t shard_own(const struct shard *s, int64_t unit)
{
    int64_t own = 0;
    for (int i = 0; i < s->pieces; i++) {
        const struct piece p = shard_piece(s, i);
        if (unit <= p.own) break;
        own += unit - p.own < p.count ? unit - p.own : p.count;
    }
    return own;
}

int64_t shard_padded(const struct shard *s)
{
    return ceil_of(s->units, parts_of(s)) * parts_of(s);
}

struct collective_args shard_collective(const struct shard *s, const struct piece *p,
                                        const struct matrix *m, int64_t numbers_of_one)
{
    const int64_t units = parts_of(s) * p->block;
    const struct matrix all = matrix_of(m->dtype, m->data, p->first + units, numbers_of_one);
    return (struct collective_args){.ranks = s->ranks,
                                    .m = p->block,
                                    .n = numbers_of_one,
                                    .x = matrix_rows(&all, p->first, units)};
}
