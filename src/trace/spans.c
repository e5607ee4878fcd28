#include "trace/spans.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "trace/timeline.h"

enum sol_status spans_add(struct spans *s, int64_t start, int64_t end, uint32_t name)
{
    struct span *last = s->count ? &s->items[s->count - 1] : NULL;
    if (start >= end) return SOL_OK;
    if (last && start < last->end) {
        if (end - start > last->end - last->start) last->name = name;
        if (end > last->end) last->end = end;
        return SOL_OK;
    }
    SOL_TRY(array_grow(&s->items, s->count, &s->room, sizeof *s->items, "spans of time"));
    s->items[s->count++] = (struct span){start, end, name};
    return SOL_OK;
}

enum sol_status spans_subtract(struct spans *s, const struct spans *other)
{
    struct spans rest = {.count = 0};
    enum sol_status status = SOL_OK;
    size_t at = 0;
    if (other->count == 0) return SOL_OK;
    for (size_t i = 0; i < s->count && status == SOL_OK; i++) {
        struct span left = s->items[i];
        while (at < other->count && other->items[at].end <= left.start) at++;
        for (size_t j = at; j < other->count && other->items[j].start < left.end; j++) {
            if (status == SOL_OK)
                status = spans_add(&rest, left.start, other->items[j].start, left.name);
            left.start = other->items[j].end;
        }
        if (status == SOL_OK) status = spans_add(&rest, left.start, left.end, left.name);
    }
    free(s->items);
    *s = rest;
    return status;
}

int64_t spans_overlap(struct spans *s, int64_t start, int64_t end, int64_t *times, size_t *count)
{
    int64_t sum = 0;
    while (s->at < s->count && s->items[s->at].end <= start) s->at++;
    for (size_t i = s->at; i < s->count && s->items[i].start < end; i++) {
        int64_t from = s->items[i].start > start ? s->items[i].start : start;
        int64_t to = s->items[i].end < end ? s->items[i].end : end;
        sum += to - from;
        if (times && s->items[i].name != TRACE_NONE) times[s->items[i].name] += to - from;
        if (count) ++*count;
    }
    return sum;
}
