/* See states.h. */
#include "train/states.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "ops/ops.h"
#include "train/params_file.h"

static const struct {
    const char *suffix;
    int half;
    size_t offset; /* of a struct matrix in struct param */
} kinds[STATES] = {
    [STATE_MEAN] = {".exp_avg", 0, offsetof(struct param, mean)},
    [STATE_MOMENTUM] = {".momentum", 0, offsetof(struct param, momentum)},
    [STATE_SCALES] = {".fp8_scales", 0, offsetof(struct param, history)},
    [STATE_SQUARE] = {".exp_avg_sq", 1, offsetof(struct param, square)},
    [STATE_SECOND] = {".second_momentum", 1, offsetof(struct param, second)},
};

const char *state_suffix(enum state_kind kind)
{
    return kinds[kind].suffix;
}

int state_half(enum state_kind kind)
{
    return kinds[kind].half;
}

static const struct matrix *own_of(const struct param *q, enum state_kind kind)
{
    return (const struct matrix *)(const void *)((const char *)q + kinds[kind].offset);
}

/* What is shared among ranks as one, a parameter of AdamW or a stack. */
struct shared {
    struct shard shard;
    const struct param *first;
    int64_t unit;    /* number of the parameter's first unit */
    int64_t units;   /* of the parameter */
    int64_t numbers; /* of a unit's state */
};

static struct shared shared_of(const struct params *p, const struct param *q, enum state_kind kind)
{
    const struct matrix *own = own_of(q, kind);
    if (q->group != GROUP_MATRIX)
        return (struct shared){params_shard(p, q), q, 0, q->rows, own->cols};
    const struct param_stack *stack = &p->stacks[q->stack];
    const int64_t rows = kind == STATE_MOMENTUM ? stack->rows : 1;
    return (struct shared){params_shard_of_stack(p, stack), &p->all[stack->first], q->unit,
                           q->weight.groups, rows * own->cols};
}

/* Units from `unit` on, of the state's type, that lie at `data`. */
static struct matrix units_at(const struct shared *s, enum dtype dtype, void *data, int64_t unit,
                              int64_t count)
{
    const struct matrix all = matrix_of(dtype, data, unit + count, s->numbers);
    return matrix_rows(&all, unit, count);
}

static void gather(struct plan *plan, const struct params *p, const struct param *q,
                   enum state_kind kind)
{
    const struct matrix *own = own_of(q, kind);
    const struct shared s = shared_of(p, q, kind);
    if (!own->data || s.first != q) return;
    struct matrix whole = {.data = q->grad.data, .dtype = own->dtype};
    int64_t before = 0;
    for (int i = 0; i < s.shard.pieces; i++) {
        const struct piece piece = shard_piece(&s.shard, i);
        const struct matrix from = units_at(&s, own->dtype, own->data, before, piece.count);
        const struct collective_args args = shard_collective(&s.shard, &piece, &whole, s.numbers);
        before += piece.count;
        if (piece.count)
            plan_call(plan, &op_convert,
                      &(struct convert_args){
                          .m = from.rows,
                          .n = from.cols,
                          .from = from,
                          .to = units_at(&s, own->dtype, whole.data, piece.own, piece.count)});
        if (s.shard.parted) plan_call(plan, &op_all_gather, &args);
    }
}

void states_gather(struct plan *plan, const struct params *p, int half)
{
    for (int i = 0; p->ranks > 1 && i < p->count; i++)
        for (int kind = 0; kind < STATES; kind++)
            if (kinds[kind].half == half) gather(plan, p, &p->all[i], (enum state_kind)kind);
}

struct matrix state_whole(const struct params *p, const struct param *q, enum state_kind kind)
{
    const struct matrix *own = own_of(q, kind);
    if (!own->data || p->ranks == 1) return *own;
    const struct shared s = shared_of(p, q, kind);
    struct matrix whole = units_at(&s, own->dtype, s.first->grad.data, s.unit, s.units);
    whole.rows = whole.rows * whole.cols / own->cols;
    whole.cols = whole.stride = own->cols;
    return whole;
}

/* `numbers`: of the whole parameter's state. */
static enum sol_status write_own(const struct params *p, struct gpu_stream *stream,
                                 const struct param *q, enum state_kind kind, const float *numbers)
{
    const struct matrix *own = own_of(q, kind);
    const struct shared s = shared_of(p, q, kind);
    const int64_t end = s.unit + s.units, skipped = shard_own(&s.shard, s.unit);
    for (int i = 0; i < s.shard.pieces; i++) {
        const struct piece piece = shard_piece(&s.shard, i);
        const int64_t from = piece.own > s.unit ? piece.own : s.unit;
        const int64_t to = piece.own + piece.count < end ? piece.own + piece.count : end;
        if (from >= to) continue;
        const int64_t at = shard_own(&s.shard, from) - skipped;
        const struct matrix part = units_at(&s, own->dtype, own->data, at, to - from);
        SOL_TRY(params_write(p, stream, &part, numbers + (from - s.unit) * s.numbers));
    }
    return SOL_OK;
}

enum sol_status state_load(const struct params *p, struct gpu_stream *stream,
                           const struct safetensors *from, const struct param *q,
                           enum state_kind kind)
{
    char name[192];
    const struct matrix *own = own_of(q, kind), whole = state_whole(p, q, kind);
    const int64_t count = whole.rows * whole.cols;
    if (!own->data) return SOL_OK;
    snprintf(name, sizeof name, "%s%s", q->weight.name, state_suffix(kind));
    if (p->ranks == 1) return params_load_matrix(p, stream, from, name, own);
    float *numbers = malloc((size_t)count * sizeof *numbers);
    if (!numbers) return status_set(SOL_E_MEMORY, "no memory for tensor '%s'", name);
    enum sol_status status = params_read_tensor(from, name, numbers, count);
    if (status == SOL_OK) status = write_own(p, stream, q, kind, numbers);
    free(numbers);
    return status;
}
