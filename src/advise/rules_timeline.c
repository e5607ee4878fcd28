/* Rules that a time line decides. All numbers of a finding are of one step, the mean of all. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "advise/rules_private.h"
#include "store/store_json.h"

enum { CACHED_BYTES = 4 << 20 };

static double per_step(const struct rules_run *run, double total)
{
    return total / (double)run->facts.steps;
}

static double share(const struct rules_run *run, int64_t time)
{
    return run->facts.window > 0 ? (double)time / (double)run->facts.window : 0;
}

static const char *name_of(const struct rules_run *run, uint32_t string)
{
    const char *text = timeline_text(run->in->timeline, string);
    return *text ? text : "(unnamed)";
}

/* Gaps are judged unless tracing made them. */
static bool gaps_count(const struct rules_run *run)
{
    return run->facts.window > 0 && !run->report->withheld;
}

enum sol_status rule_launch_bound(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    if (!gaps_count(run) || share(run, f->busy) >= rule->limit ||
        share(run, f->launch_calls_time) < rule->second)
        return SOL_OK;
    double window = run->report->window_ns, busy = run->report->busy_ns;
    double calls = per_step(run, (double)f->launch_calls_time);
    double shrunk = fmax(busy, window - calls);
    char a[24], b[24], c[24];
    return rules_add(
        run, rule, "step", RULE_GAIN, window, window - shrunk,
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "busy_ns", busy, "launch_calls_ns", calls,
                  "launch_calls", per_step(run, (double)f->launch_calls), "idle_host_ns",
                  run->report->idle_host, "idle_launch_ns", run->report->idle_launch,
                  "small_kernels", per_step(run, (double)f->small)),
        "Bound by launches: the device works %s of a step of %s, while %.1f calls that start work "
        "take %s.",
        rules_time(busy, a), rules_time(window, b), per_step(run, (double)f->launch_calls),
        rules_time(calls, c));
}

/* The rule's own words would ask for the graph that is there. */
static const char graph_next[] =
    "Take what starts between two runs of the graph into it, and launch the next run before the "
    "results of the last one are read.";

enum sol_status rule_gap_host(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    if (!gaps_count(run) || share(run, f->host) < rule->limit || rules_fired(run, "launch_bound"))
        return SOL_OK;
    double sum = run->report->idle_host, count = per_step(run, (double)f->host_gaps);
    double outside = per_step(run, (double)f->outside_graphs);
    const char *name = name_of(run, f->host_name);
    json_t *evidence = json_pack("{s:f, s:f, s:f, s:o}", "gaps", count, "sum_ns", sum, "share",
                                 share(run, f->host), "before", store_json_string(name));
    char a[24], more[96] = "";
    if (2 * f->graph_time > f->busy) {
        snprintf(more, sizeof more,
                 " The step runs as a CUDA graph; %.1f copies and kernels start outside it.",
                 outside);
        json_object_set_new(evidence, "outside_graph", json_real(outside));
        json_object_set_new(evidence, "todo", json_string(graph_next));
    }
    return rules_add(run, rule, name, RULE_GAIN, run->report->window_ns, sum, evidence,
                     "The device waits %s of a step (%.1f %%) for launches that come after the "
                     "previous kernel has ended: %.1f gaps, most time before %.120s.%s",
                     rules_time(sum, a), 100 * share(run, f->host), count, name, more);
}

enum sol_status rule_gap_launch(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    if (!gaps_count(run) || share(run, f->launch) < rule->limit || rules_fired(run, "launch_bound"))
        return SOL_OK;
    double sum = run->report->idle_launch, count = per_step(run, (double)f->launch_gaps);
    char a[24];
    return rules_add(
        run, rule, "step", RULE_GAIN, run->report->window_ns, sum,
        json_pack("{s:f, s:f, s:f}", "gaps", count, "sum_ns", sum, "share", share(run, f->launch)),
        "%.1f gaps between kernels that were launched in time take %s of a step "
        "(%.1f %%): the device's own latency from one kernel to the next.",
        count, rules_time(sum, a), 100 * share(run, f->launch));
}

enum sol_status rule_sync(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    if (!gaps_count(run) || !f->steady || share(run, f->sync) < rule->limit) return SOL_OK;
    double sum = run->report->idle_sync;
    const char *name = name_of(run, f->sync_name);
    char a[24], b[24];
    return rules_add(run, rule, name, RULE_GAIN, run->report->window_ns, sum,
                     json_pack("{s:f, s:f, s:f, s:f, s:o}", "waits",
                               per_step(run, (double)f->syncs), "blocked_ns",
                               per_step(run, (double)f->sync_blocked), "idle_ns", sum, "share",
                               share(run, f->sync), "call", store_json_string(name)),
                     "The device idles %s of a step (%.1f %%) while the host is still in %.60s; "
                     "waits block the host for %s a step.",
                     rules_time(sum, a), 100 * share(run, f->sync), name,
                     rules_time(per_step(run, (double)f->sync_blocked), b));
}

enum sol_status rule_pageable(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    if (f->window <= 0 || f->pageable_count == 0 || share(run, f->pageable) < rule->limit)
        return SOL_OK;
    double sum = per_step(run, (double)f->pageable);
    double bytes = per_step(run, (double)f->pageable_bytes);
    char a[24];
    return rules_add(run, rule, "copies", RULE_GAIN, run->report->window_ns, sum,
                     json_pack("{s:f, s:f, s:f, s:f}", "copies",
                               per_step(run, (double)f->pageable_count), "bytes", bytes, "sum_ns",
                               sum, "share", share(run, f->pageable)),
                     "%.1f asynchronous copies of pageable memory (%.0f bytes) take %s of a step: "
                     "they go through a staging buffer and hold the host up.",
                     per_step(run, (double)f->pageable_count), bytes, rules_time(sum, a));
}

enum sol_status rule_alloc_jit(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    if (!gaps_count(run) || !f->steady || share(run, f->alloc) < rule->limit) return SOL_OK;
    double sum = run->report->idle_alloc;
    const char *name = name_of(run, f->alloc_name);
    char a[24];
    return rules_add(run, rule, name, RULE_GAIN, run->report->window_ns, sum,
                     json_pack("{s:f, s:f, s:f, s:o}", "gaps", per_step(run, (double)f->allocs),
                               "idle_ns", sum, "share", share(run, f->alloc), "call",
                               store_json_string(name)),
                     "Memory is allocated or code loaded within the steady state: the device idles "
                     "%s of a step meanwhile, most in %.80s.",
                     rules_time(sum, a), name);
}

enum sol_status rule_tiny_kernels(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    if (f->window <= 0 || f->kernels == 0 || rules_fired(run, "launch_bound")) return SOL_OK;
    double part = (double)f->small / (double)f->kernels;
    if (part < rule->limit || share(run, f->small_time) < rule->second || f->small_saved == 0)
        return SOL_OK;
    const char *name = name_of(run, f->small_name);
    char a[24];
    return rules_add(
        run, rule, name, RULE_GAIN, run->report->window_ns, per_step(run, (double)f->small_saved),
        json_pack("{s:f, s:f, s:f, s:f, s:o}", "small_kernels", per_step(run, (double)f->small),
                  "kernels", per_step(run, (double)f->kernels), "sum_ns",
                  per_step(run, (double)f->small_time), "share", share(run, f->small_time),
                  "longest_sum", store_json_string(name)),
        "%.0f of %.0f kernels a step are shorter than 5 us or than the call that "
        "starts them; together they take %s (%.1f %%).",
        per_step(run, (double)f->small), per_step(run, (double)f->kernels),
        rules_time(per_step(run, (double)f->small_time), a), 100 * share(run, f->small_time));
}

/* Time for bytes that the fused kernel would still have to move, from counters where there are
 * some: what a pass over the product's result reads back and writes again is saved, the rest kept.
 */
static double kept_ns(const struct rules_run *run, const char *name)
{
    const struct kernel_counters *k =
        run->in->counters ? counters_find(run->in->counters, name) : NULL;
    double rate = run->in->peaks.bytes_per_s;
    if (!k || !(k->dram_bytes > 0) || !(rate > 0)) return 0;
    return k->dram_bytes / 3 / rate * 1e9;
}

enum sol_status rule_unfused(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    double count = f->steps ? per_step(run, (double)f->unfused_count) : 0;
    if (f->window <= 0 || share(run, f->unfused) < rule->limit || count < rule->second)
        return SOL_OK;
    const char *name = name_of(run, f->unfused_name);
    const char *before = name_of(run, f->unfused_before);
    double sum = per_step(run, (double)f->unfused), kept = kept_ns(run, name) * count;
    char a[24];
    return rules_add(run, rule, name, RULE_GAIN, run->report->window_ns, sum - kept,
                     json_pack("{s:f, s:f, s:f, s:f, s:o, s:o}", "kernels", count, "sum_ns", sum,
                               "share", share(run, f->unfused), "kept_ns", kept, "kernel",
                               store_json_string(name), "after", store_json_string(before)),
                     "%.0f elementwise, norm or copy kernels a step run right after a matrix "
                     "product and take %s (%.1f %%), most of it %.100s after %.100s.",
                     count, rules_time(sum, a), 100 * share(run, f->unfused), name, before);
}

enum sol_status rule_quant_transpose(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    int64_t time = f->quantize + f->transpose;
    if (f->window <= 0 || share(run, time) < rule->limit) return SOL_OK;
    bool fails = share(run, time) >= rule->second;
    double sum = per_step(run, (double)time);
    const char *name = name_of(run, f->quantize_name);
    char a[24];
    return rules_add(
        run, rule, name, fails ? RULE_INVALID : RULE_WARNING, run->report->window_ns, sum,
        json_pack("{s:f, s:f, s:f, s:o}", "quantize_ns", per_step(run, (double)f->quantize),
                  "transpose_ns", per_step(run, (double)f->transpose), "share", share(run, time),
                  "longest_sum", store_json_string(name)),
        "Quantise and transpose kernels take %s of a step (%.1f %%), most of it "
        "%.100s%s.",
        rules_time(sum, a), 100 * share(run, time), name,
        fails ? "; from 10 % on a throughput figure does not stand for the kernels it "
                "was meant to measure"
              : "");
}

/* ---- impossible rates ---- */

static enum sol_status impossible(struct rules_run *run, const struct rule *rule, const char *what,
                                  const char *unit, double rate, double peak)
{
    return rules_add(run, rule, what, RULE_INVALID, run->report->window_ns, 0,
                     json_pack("{s:f, s:f, s:f}", "rate", rate, "peak", peak, "ratio", rate / peak),
                     "%.120s: %.1f G%s/s is %.2f x the peak of %.1f.", what, rate / 1e9, unit,
                     rate / peak, peak / 1e9);
}

static enum sol_status impossible_counters(struct rules_run *run, const struct rule *rule)
{
    const struct rules_input *in = run->in;
    for (size_t i = 0; in->counters && i < in->counters->count; i++) {
        const struct kernel_counters *k = &in->counters->kernels[i];
        double bytes = k->dram_bytes / k->duration_ns * 1e9,
               flops = k->flops / k->duration_ns * 1e9;
        if (in->peaks.bytes_per_s > 0 && bytes > rule->limit * in->peaks.bytes_per_s)
            SOL_TRY(impossible(run, rule, k->name, "B", bytes, in->peaks.bytes_per_s));
        if (in->peaks.flops_per_s > 0 && flops > rule->limit * in->peaks.flops_per_s)
            SOL_TRY(impossible(run, rule, k->name, "FLOP", flops, in->peaks.flops_per_s));
    }
    return SOL_OK;
}

enum sol_status rule_impossible(struct rules_run *run, const struct rule *rule)
{
    const struct step_facts *f = &run->facts;
    const struct rules_input *in = run->in;
    if (f->fastest_peak > 0 && f->fastest_copy > rule->limit * f->fastest_peak)
        SOL_TRY(
            impossible(run, rule, "copy within the device", "B", f->fastest_copy, f->fastest_peak));
    SOL_TRY(impossible_counters(run, rule));
    for (size_t i = 0; i < in->n_kernels; i++) {
        const struct store_kernel *k = &in->kernels[i];
        if (!(k->total_ns > 0) || !(k->limit_ns > rule->limit * k->total_ns)) continue;
        /* What a call touches may lie in a cache that is faster than the measured limit. */
        if (!(k->bytes > CACHED_BYTES * (double)(k->calls > 0 ? k->calls : 1))) continue;
        const char *name = k->name ? k->name : k->variant ? k->variant : "kernel";
        SOL_TRY(rules_add(run, rule, name, RULE_INVALID, run->report->window_ns, 0,
                          json_pack("{s:f, s:f, s:f}", "total_ns", k->total_ns, "limit_ns",
                                    k->limit_ns, "ratio", k->limit_ns / k->total_ns),
                          "%.120s took 1/%.2f of the time that its work needs at this machine's "
                          "measured limits.",
                          name, k->limit_ns / k->total_ns));
    }
    return SOL_OK;
}
