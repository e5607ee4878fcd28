#include "support/same_pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/weight_source.h"

static char fault[256];

static const char *bytes_of(const struct model *m, const struct weight *w, size_t *row)
{
    const char *base = w->layer < 0 ? (const char *)m : (const char *)&m->layers[w->layer];
    const struct tensor *t = (const void *)(base + w->offset);
    *row = dtype_row_bytes(w->vector ? DTYPE_F32 : t->dtype, w->cols);
    return w->vector ? *(const char *const *)(const void *)(base + w->offset) : t->data;
}

/* Compares one weight of a piece and counts its bytes. */
static bool same(const struct model *host, const struct weight_piece *p, int k, const char *got,
                 size_t *seen)
{
    struct weight w = weight_at(&host->config, p->weights[k]);
    size_t row;
    const char *want = bytes_of(host, &w, &row);
    int64_t first = w.vector ? 0 : p->group * w.rows + p->row;
    if (!w.vector && (p->row % 64 || p->row + p->n > w.rows)) return false;
    seen[p->weights[k]] += p->bytes;
    return p->bytes == (size_t)p->n * row && memcmp(got, want + (size_t)first * row, p->bytes) == 0;
}

static const char *check(struct weight_source *source, size_t bytes, int threads,
                         const struct model *host, size_t *seen)
{
    const struct weight_piece *pieces;
    int64_t count;
    if (weight_source_pieces(source, bytes, 64, NULL, &pieces, &count) != SOL_OK)
        return sol_last_error();
    for (int64_t i = 0; i < count; i++) {
        const struct weight_piece *p = &pieces[i];
        char *data = malloc(2 * p->bytes);
        if (!data) return "no memory";
        bool good = weight_source_read(source, (int)(i % threads), p, data) == SOL_OK;
        for (int k = 0; good && k < 2 && p->weights[k] >= 0; k++)
            good = same(host, p, k, data + (size_t)k * p->bytes, seen);
        free(data);
        if (good) continue;
        snprintf(fault, sizeof fault, "piece %lld: %s, group %lld, rows %lld + %lld", (long long)i,
                 weight_at(&host->config, p->weights[0]).name, (long long)p->group,
                 (long long)p->row, (long long)p->n);
        return fault;
    }
    for (int64_t i = 0; i < weight_count(&host->config); i++) {
        struct weight w = weight_at(&host->config, i);
        size_t row;
        bytes_of(host, &w, &row);
        size_t wanted = (size_t)(w.groups * w.rows) * row;
        if (seen[i] == wanted) continue;
        snprintf(fault, sizeof fault, "%s: %zu bytes of %zu", w.name, seen[i], wanted);
        return fault;
    }
    return NULL;
}

const char *pieces_differ(const char *path, enum model_load load, size_t bytes, int threads,
                          const struct model *host)
{
    struct model *later;
    struct weight_source *source;
    const struct model_params params = {.load = load, .later = true};
    if (model_open_with(path, &params, &later) != SOL_OK) return sol_last_error();
    const char *wrong = NULL;
    if (later->weight_bytes != host->weight_bytes || later->parameters != host->parameters)
        wrong = "another size";
    size_t *seen = calloc((size_t)weight_count(&host->config), sizeof *seen);
    if (!wrong && seen && weight_source_open(later, threads, &source) == SOL_OK) {
        wrong = check(source, bytes, threads, host, seen);
        weight_source_close(source);
    } else if (!wrong) {
        wrong = "cannot be opened";
    }
    free(seen);
    model_close(later);
    return wrong;
}
