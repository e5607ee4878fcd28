#include "profile/payload.h"

#include <stdlib.h>
#include <string.h>

#include "profile/store.h"
#include "store/store_json.h"
#include "trace/communication_figure.h"
#include "trace/summary.h"

static int64_t distance(int64_t time, int64_t begin, int64_t end)
{
    if (time < begin) return begin - time;
    return time > end ? time - end : 0;
}

struct profile_clock profile_clock(const struct timeline *t, uint16_t device, int64_t begin,
                                   int64_t end)
{
    struct profile_clock clock = {0};
    int64_t nearest = INT64_MAX;
    for (size_t i = 0; i < t->n_samples; i++) {
        const struct trace_sample *s = &t->samples[i];
        int64_t away = distance(s->time, begin, end);
        if (s->device != device || s->sm_mhz == 0 || away > nearest) continue;
        double mhz = s->sm_mhz;
        /* Those within add up; of those outside the nearest stands alone. */
        if (away < nearest || away > 0) clock = (struct profile_clock){0, mhz, mhz, 0};
        nearest = away;
        if (mhz < clock.min) clock.min = mhz;
        if (mhz > clock.max) clock.max = mhz;
        clock.mean += (mhz - clock.mean) / (double)++clock.samples;
    }
    return clock;
}

static json_t *gaps_json(const struct rules_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->n_gaps; i++) {
        const struct rules_gap *g = &report->gaps[i];
        json_array_append_new(list, json_pack("{s:f, s:o, s:o, s:s}", "ns", g->ns, "after",
                                              store_json_string(g->after), "before",
                                              store_json_string(g->before), "cause", g->cause));
    }
    return list;
}

static json_t *clock_json(const struct timeline *t, const struct trace_window_set *windows)
{
    bool steps = windows && windows->count;
    struct profile_clock c =
        profile_clock(t, steps ? windows->device : 0, steps ? windows->windows[0].begin : 0,
                      steps ? windows->windows[windows->count - 1].end : t->end);
    if (c.samples == 0) return json_null();
    return json_pack("{s:f, s:f, s:f, s:I}", "mean_mhz", c.mean, "min_mhz", c.min, "max_mhz", c.max,
                     "samples", (json_int_t)c.samples);
}

static int gpus_at_work(const struct timeline *t)
{
    int n = 0;
    for (uint16_t d = 0; d < t->n_devices; d++)
        for (size_t i = 0; i < t->count; i++)
            if (event_on_device(t->events[i].kind) && t->events[i].device == d) {
                n++;
                break;
            }
    return n;
}

enum sol_status profile_payload(const struct timeline *t, const struct trace_window_set *windows,
                                double tokens_per_step, const struct rules_report *report,
                                char **out)
{
    struct trace_summary s = {0};
    struct trace_communication ranks = {0};
    size_t steps = windows && windows->count ? windows->count : 1;
    int64_t copies = 0;
    *out = NULL;
    enum sol_status status = profile_steady_summary(t, windows, &s);
    if (status == SOL_OK) status = trace_communicate(t, windows, &ranks);
    for (size_t i = 0; status == SOL_OK && i < s.n_copies; i++) copies += s.copies[i].total;
    json_t *time = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "span_ns", (json_int_t)s.span,
                             "busy_ns", (json_int_t)s.busy, "gap_ns", (json_int_t)s.gap,
                             "tracer_ns", (json_int_t)s.tracer, "gaps", (json_int_t)s.gap_count,
                             "gap_max_ns", (json_int_t)s.gap_max);
    json_t *steady = json_pack(
        "{s:s, s:I, s:f, s:I, s:I, s:o}", "metric", windows && windows->count ? "step" : "span",
        "steps", (json_int_t)steps, "tokens", tokens_per_step, "kernel_ns",
        (json_int_t)s.kernel_time, "copy_ns", (json_int_t)copies, "clock", clock_json(t, windows));
    json_t *payload =
        json_pack("{s:i, s:o, s:o, s:o, s:o}", "gpus", gpus_at_work(t), "device_time", time,
                  "gap_list", gaps_json(report), "steady", steady, "communication",
                  communication_json(&ranks, windows ? windows->device : 0, (double)ranks.steps));
    trace_summary_free(&s);
    trace_communication_free(&ranks);
    if (status == SOL_OK) return store_json_text(payload, out);
    json_decref(payload);
    return status;
}
