/* See requantise.h. */
#include "model/requantise.h"

#include <stdlib.h>

#include "base/status.h"
#include "model/files.h"

enum { ROWS_AT_ONCE = 64 };

static enum dtype wanted(const struct requantise *r, const struct weight *w)
{
    if (w->vector || w->role == ROLE_ROUTER) return DTYPE_COUNT;
    return w->role == ROLE_EXPERT ? r->experts : r->dense;
}

static enum dtype dtype_of(void *arg, int64_t index)
{
    const struct requantise *r = arg;
    const struct weight w = weight_at(r->from->config, index);
    const enum dtype dtype = wanted(r, &w);
    return dtype == DTYPE_COUNT ? weight_input_dtype(r->from, index) : dtype;
}

static enum sol_status rows_of(void *arg, int64_t index, int64_t group, int64_t row, int64_t n,
                               void *dst)
{
    const struct requantise *r = arg;
    const struct weight w = weight_at(r->from->config, index);
    const enum dtype from = weight_input_dtype(r->from, index), to = dtype_of(arg, index);
    char *out = dst;
    if (from == to) return weight_input_rows(r->from, index, group, row, n, dst);
    for (int64_t i = 0; i < n; i += ROWS_AT_ONCE) {
        const int64_t rows = n - i < ROWS_AT_ONCE ? n - i : ROWS_AT_ONCE;
        SOL_TRY(weight_input_rows(r->from, index, group, row + i, rows, r->raw));
        dtype_info(from)->decode(r->raw, r->numbers, rows * w.cols);
        dtype_info(to)->encode(r->numbers, out, rows * w.cols);
        out += (size_t)rows * dtype_row_bytes(to, w.cols);
    }
    return SOL_OK;
}

static enum sol_status check(const struct requantise *r, const struct weight *w)
{
    const enum dtype dtype = wanted(r, w);
    if (dtype == DTYPE_COUNT || w->cols % dtype_info(dtype)->block == 0) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED,
                      "%s: rows of '%s' have %lld numbers, and %s has blocks of %d", r->from->name,
                      w->name, (long long)w->cols, dtype_info(dtype)->name,
                      (int)dtype_info(dtype)->block);
}

enum sol_status requantise_create(struct requantise *r, const struct weight_input *from,
                                  struct weight_input *out)
{
    int64_t longest = 1;
    r->from = from;
    for (int64_t i = 0; i < weight_count(from->config); i++) {
        const struct weight w = weight_at(from->config, i);
        SOL_TRY(check(r, &w));
        if (w.cols > longest) longest = w.cols;
    }
    r->raw = malloc((size_t)longest * ROWS_AT_ONCE * sizeof(float)); /* no type takes more */
    r->numbers = malloc((size_t)longest * ROWS_AT_ONCE * sizeof *r->numbers);
    if (!r->raw || !r->numbers) return status_set(SOL_E_MEMORY, "no memory to convert with");
    r->keeper = (struct weight_keeper){dtype_of, rows_of, r};
    *out = (struct weight_input){.name = from->name, .config = from->config, .keeper = &r->keeper};
    return SOL_OK;
}

void requantise_destroy(struct requantise *r)
{
    free(r->raw);
    free(r->numbers);
}
