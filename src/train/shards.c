/* See shards.h. */
#include "train/shards.h"

enum { PARTED_LEAST = 1024 }; /* numbers; fewer are not worth two messages */

static int64_t block_of(int64_t units, int ranks)
{
    return (units + ranks - 1) / ranks;
}

static bool is_parted(int64_t units, int64_t numbers_of_one, int ranks)
{
    return ranks > 1 && units >= ranks && units * numbers_of_one >= PARTED_LEAST;
}

int64_t shard_padded(int64_t units, int64_t numbers_of_one, int ranks)
{
    return is_parted(units, numbers_of_one, ranks) ? block_of(units, ranks) * ranks : units;
}

struct shard shard_of(int64_t units, int64_t numbers_of_one, int ranks, int rank)
{
    if (!is_parted(units, numbers_of_one, ranks)) return (struct shard){false, units, 0, units};
    struct shard s = {.parted = true, .block = block_of(units, ranks)};
    s.first = rank * s.block < units ? rank * s.block : units;
    s.count = units - s.first < s.block ? units - s.first : s.block;
    return s;
}

struct shard shard_of_param(const struct param *p, int ranks, int rank)
{
    return shard_of(p->rows, p->cols, ranks, rank);
}

struct shard shard_of_stack(const struct param_stack *s, int ranks, int rank)
{
    return shard_of(s->count, s->rows * s->cols, ranks, rank);
}

struct collective_args shard_collective(const struct shard *s, const struct matrix *m,
                                        int64_t numbers_of_one, int ranks)
{
    const int64_t blocks = s->parted ? ranks : 1;
    return (struct collective_args){
        .ranks = ranks,
        .m = s->block,
        .n = numbers_of_one,
        .x = matrix_of(m->dtype, m->data, blocks * s->block, numbers_of_one)};
}
