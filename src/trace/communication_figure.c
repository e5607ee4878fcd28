#include "trace/communication_figure.h"

#include <math.h>

#include "base/json_value.h"

static double worth_of(const struct trace_communication *c)
{
    double worth = 0;
    for (size_t i = 0; i < c->n_ranks; i++)
        worth += 1 - (double)c->ranks[i].exposed / (double)c->window;
    return worth;
}

bool communication_figure_of(const struct trace_communication *c, uint16_t device, double each,
                             struct communication_figure *out)
{
    const struct trace_rank *rank = trace_rank_of(c, device);
    *out = (struct communication_figure){.ranks = 0};
    if (!rank || !(each > 0) || c->n_ranks < 2) return false;
    *out = (struct communication_figure){.ranks = (int)c->n_ranks,
                                         .collectives = (double)rank->collectives / each,
                                         .window_ns = (double)c->window / each,
                                         .total_ns = (double)rank->total / each,
                                         .exposed_ns = (double)rank->exposed / each,
                                         .waiting_ns =
                                             c->told ? (double)rank->waiting / each : (double)NAN,
                                         .worth = worth_of(c)};
    return true;
}

static json_t *each_json(const struct trace_communication *c, double each)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_ranks; i++) {
        struct communication_figure f;
        communication_figure_of(c, c->ranks[i].device, each, &f);
        json_array_append_new(list, json_pack("{s:i, s:f, s:f, s:f, s:o}", "device",
                                              (int)c->ranks[i].device, "collectives", f.collectives,
                                              "total_ns", f.total_ns, "exposed_ns", f.exposed_ns,
                                              "waiting_ns", json_number(f.waiting_ns)));
    }
    return list;
}

json_t *communication_json(const struct trace_communication *c, uint16_t device, double each)
{
    struct communication_figure f;
    if (!communication_figure_of(c, device, each, &f)) return json_null();
    return json_pack(
        "{s:i, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "ranks", f.ranks, "collectives",
        f.collectives, "window_ns", f.window_ns, "total_ns", f.total_ns, "exposed_ns", f.exposed_ns,
        "exposed_share", json_number(f.exposed_ns / f.window_ns), "waiting_ns",
        json_number(f.waiting_ns), "moving_ns", json_number(f.exposed_ns - f.waiting_ns),
        "worth_gpus", json_number(f.worth), "each", each_json(c, each));
}

static double number_or_none(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

bool communication_figure_read(const json_t *json, struct communication_figure *out)
{
    const double ranks = number_or_none(json, "ranks");
    *out = (struct communication_figure){.ranks = 0};
    if (!(ranks >= 2 && ranks <= 1e6)) return false;
    *out = (struct communication_figure){.ranks = (int)ranks,
                                         .collectives = number_or_none(json, "collectives"),
                                         .window_ns = number_or_none(json, "window_ns"),
                                         .total_ns = number_or_none(json, "total_ns"),
                                         .exposed_ns = number_or_none(json, "exposed_ns"),
                                         .waiting_ns = number_or_none(json, "waiting_ns"),
                                         .worth = number_or_none(json, "worth_gpus")};
    return out->exposed_ns >= 0 && out->window_ns > 0;
}

double communication_moving_ns(const struct communication_figure *f)
{
    return isnan(f->waiting_ns) ? f->exposed_ns : f->exposed_ns - f->waiting_ns;
}
