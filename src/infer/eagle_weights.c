/* A head's weights where its ops read them: on the CPU in the files' mapping, on a GPU a copy. */
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "infer/eagle_private.h"
#include "ops/cuda/pack_cuda.h"

enum { ALIGN = 256 };

enum sol_status eagle_put(const struct eagle *e, void *to, const void *from, size_t bytes)
{
    struct gpu_stream *stream = engine_context(e->engine)->stream;
    if (!e->gpu) {
        memcpy(to, from, bytes);
        return SOL_OK;
    }
    SOL_TRY(gpu_copy_in(stream, to, from, bytes));
    return gpu_wait(stream);
}

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Guesses take the time that their weights take to be read, and are checked: so in Q8_0, unless
 * only exact kernels are asked for. */
static struct tensor stored(const struct eagle *e, const struct tensor *t)
{
    struct tensor to = *t;
    const bool whole = t->cols % dtype_info(DTYPE_Q8_0)->block == 0 && t != &e->weights.embed;
    if (whole && engine_params_of(e->engine)->chooser.loosest > NUMERICS_EXACT)
        to.dtype = DTYPE_Q8_0;
    return to;
}

enum { UPLOAD_ROWS = 16 * PACK_ROWS, STACKS = 2 };

/* Matrices that a guess multiplies by the same row, to be one below the other. */
struct stack {
    struct tensor *all, *parts[3];
    int n;
};

/* No rows where the parts' do not fill pieces, or their types differ. */
static struct tensor stacked(const struct eagle *e, const struct stack *s)
{
    struct tensor all = stored(e, s->parts[0]);
    all.rows = 0;
    for (int i = 0; i < s->n; i++) {
        const struct tensor part = stored(e, s->parts[i]);
        if (part.dtype != all.dtype || all.rows % PACK_ROWS != 0) return (struct tensor){0};
        all.rows += part.rows;
    }
    return all;
}

struct upload {
    struct stack stacks[STACKS];
    void *staging; /* on the GPU */
    void *rows;    /* [UPLOAD_ROWS][cols] as they go there, and as numbers */
    float *numbers;
    size_t at; /* in e->uploaded */
};
static void find_stacks(struct eagle *e, struct upload *up)
{
    struct eagle_weights *w = &e->weights;
    up->stacks[0] = (struct stack){&e->qkv, {&w->wq, &w->wk, &w->wv}, 3};
    up->stacks[1] = (struct stack){&e->gate_up, {&w->gate, &w->up}, 2};
}

/* Keys and values of a step's rows are made apart, so theirs are there twice. */
static bool only_stacked(const struct eagle *e, const struct upload *up, const struct tensor *t)
{
    const struct eagle_weights *w = &e->weights;
    const bool qkv = t == &w->wq, mlp = t == &w->gate || t == &w->up;
    return (qkv && stacked(e, &up->stacks[0]).rows) || (mlp && stacked(e, &up->stacks[1]).rows);
}

/* `row` of `from` is row `at` of `to`. */
static enum sol_status upload_rows(struct eagle *e, struct upload *up, const struct tensor *from,
                                   int64_t row, const struct tensor *to, int64_t at)
{
    struct gpu_stream *stream = engine_context(e->engine)->stream;
    const int64_t left = from->rows - row, n = left < UPLOAD_ROWS ? left : UPLOAD_ROWS;
    const void *rows = tensor_row(from, 0, row);
    if (from->dtype != to->dtype) {
        dtype_info(from->dtype)->decode(rows, up->numbers, n * from->cols);
        dtype_info(to->dtype)->encode(up->numbers, up->rows, n * to->cols);
        rows = up->rows;
    }
    SOL_TRY(
        tensor_pack_piece(stream, to, 0, at, n, rows, (char *)e->uploaded + up->at, up->staging));
    return gpu_wait(stream);
}

/* Parts one below the other, as *to says; *out: where they are. */
static enum sol_status upload_matrix(struct eagle *e, struct upload *up,
                                     struct tensor *const *parts, int n, struct tensor to,
                                     struct tensor *out)
{
    for (int64_t i = 0, at = 0; i < n; at += parts[i++]->rows)
        for (int64_t row = 0; row < parts[i]->rows; row += UPLOAD_ROWS)
            SOL_TRY(upload_rows(e, up, parts[i], row, &to, at + row));
    *out = tensor_packed(&to, (char *)e->uploaded + up->at);
    up->at += padded(tensor_packed_bytes(&to));
    return SOL_OK;
}

static enum sol_status upload_weights(struct eagle *e, struct upload *up)
{
    struct tensor *t;
    const float **gain;
    const size_t norm = (size_t)e->head->layer.hidden * sizeof(float);
    for (int i = 0; i < STACKS; i++) {
        const struct stack *s = &up->stacks[i];
        const struct tensor all = stacked(e, s);
        if (all.rows) SOL_TRY(upload_matrix(e, up, s->parts, s->n, all, s->all));
    }
    for (int i = 0; (t = eagle_head_tensor(&e->weights, i)); i++)
        if (t->data && !only_stacked(e, up, t))
            SOL_TRY(upload_matrix(e, up, &t, 1, stored(e, t), t));
    for (int i = 0; (gain = eagle_head_norm(&e->weights, i)); i++) {
        void *to = (char *)e->uploaded + up->at;
        SOL_TRY(eagle_put(e, to, *gain, norm));
        *gain = to;
        up->at += padded(norm);
    }
    return SOL_OK;
}

static size_t bytes_of(struct tensor t)
{
    return t.rows ? padded(tensor_packed_bytes(&t)) : 0;
}

/* Of all, and *longest: numbers of the longest row. */
static size_t upload_bytes(struct eagle *e, const struct upload *up, int64_t *longest)
{
    struct tensor *t;
    size_t bytes = 0;
    *longest = 1;
    for (int i = 0; i < STACKS; i++) bytes += bytes_of(stacked(e, &up->stacks[i]));
    for (int i = 0; (t = eagle_head_tensor(&e->weights, i)); i++) {
        if (t->data && !only_stacked(e, up, t)) bytes += bytes_of(stored(e, t));
        if (t->data && t->cols > *longest) *longest = t->cols;
    }
    for (int i = 0; eagle_head_norm(&e->weights, i); i++)
        bytes += padded((size_t)e->head->layer.hidden * sizeof(float));
    return bytes;
}

/* On a GPU a copy, in the layout that its kernels read. */
enum sol_status eagle_place_weights(struct eagle *e)
{
    struct upload up = {0};
    int64_t longest;
    e->weights = e->head->weights;
    if (!e->gpu) return SOL_OK;
    find_stacks(e, &up);
    e->uploaded_bytes = upload_bytes(e, &up, &longest);
    const size_t piece = UPLOAD_ROWS * (size_t)longest * sizeof(float); /* no type takes more */
    SOL_TRY(gpu_alloc(e->gpu, "draft head's weights", e->uploaded_bytes, &e->uploaded));
    SOL_TRY(gpu_alloc(e->gpu, "staging of weights", piece, &up.staging));
    up.rows = malloc(piece);
    up.numbers = malloc(piece);
    const enum sol_status status =
        up.rows && up.numbers ? upload_weights(e, &up)
                              : status_set(SOL_E_MEMORY, "no memory for a draft head's weights");
    free(up.numbers);
    free(up.rows);
    gpu_free(e->gpu, up.staging);
    return status;
}
