/* What GPUs that share their work cost each other: of each step the time in which a GPU had nothing
 * but a collective to do. The figures are those of trace/communication.h. */
#include <math.h>
#include <string.h>

#include "advise/rules_private.h"
#include "base/json_value.h"

enum {
    LATENCY_NS = 20000
}; /* a collective that moves for less has few bytes: its time is latency */

static const char todo_late[] = "Find out why the last rank is late (its own kernels, its "
                                "launches, its share of the work): the "
                                "others wait for it.";
static const char todo_latency[] =
    "Put more tokens into a step (a larger batch: the same number of collectives for more work), "
    "fuse neighbouring collectives, or share the work among fewer GPUs.";
static const char todo_bytes[] =
    "Run collectives on a stream of their own beside the work that does not need them, put more "
    "tokens into a step (a larger batch), send fewer bytes (bf16), or share the work among fewer "
    "GPUs.";

static const char *todo_of(const struct rule *rule, const struct communication_figure *f)
{
    const double moving = communication_moving_ns(f);
    if (f->waiting_ns > rule->second * f->exposed_ns) return todo_late;
    return f->collectives > 0 && moving / f->collectives < LATENCY_NS ? todo_latency : todo_bytes;
}

static void split_text(const struct communication_figure *f, char text[96])
{
    char a[24], b[24];
    if (isnan(f->waiting_ns))
        snprintf(text, 96, "waiting for a slower rank and moving bytes are not told apart");
    else
        snprintf(text, 96, "%s of it waiting for a slower rank, %s moving bytes",
                 rules_time(f->waiting_ns, a), rules_time(communication_moving_ns(f), b));
}

enum sol_status rule_exposed(struct rules_run *run, const struct rule *rule)
{
    for (size_t i = 0; i < run->in->n_communication; i++) {
        const struct rules_communication *c = &run->in->communication[i];
        const struct communication_figure *f = &c->figure;
        const double share = f->exposed_ns / f->window_ns;
        char a[24], split[96];
        if (!(share >= rule->limit)) continue;
        split_text(f, split);
        SOL_TRY(rules_add(
            run, rule, c->metric, RULE_GAIN, f->window_ns, f->exposed_ns,
            json_pack("{s:i, s:f, s:f, s:f, s:o, s:f, s:f, s:o, s:s}", "ranks", f->ranks,
                      "collectives", f->collectives, "total_ns", f->total_ns, "exposed_ns",
                      f->exposed_ns, "waiting_ns", json_number(f->waiting_ns), "moving_ns",
                      communication_moving_ns(f), "share", share, "worth_gpus",
                      json_number(f->worth), "todo", todo_of(rule, f)),
            "%s: of %d ranks that share the work the one looked at spends %s (%.1f %%) in %.1f "
            "collectives with nothing else to do; %s. Together they do the work of %.2f.",
            c->metric, f->ranks, rules_time(f->exposed_ns, a), 100 * share, f->collectives, split,
            f->worth));
    }
    return SOL_OK;
}

bool rules_exposes(const struct rules_run *run, const char *metric)
{
    for (size_t i = 0; i < run->in->n_communication; i++)
        if (metric && strcmp(run->in->communication[i].metric, metric) == 0) return true;
    return false;
}
