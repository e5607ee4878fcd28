/* The table of rules and how their findings are put together. Rules are asked in the order of the
 * table; a rule that fired may keep a later one from claiming the same time. Of the findings about
 * one kernel (by counters) only the one with the highest ceiling is counted. */
#include "advise/rules.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules_private.h"
#include "base/names.h"
#include "store/store_json.h"

enum { TEXT_SIZE = 900, NAME_WIDTH = 100 };

const struct rule rule_table[] = {
    {"expected", RULE_GATES, 0, 0,
     "a kernel of the manifest is absent, its count per token is wrong, or a forbidden one ran",
     "the run is invalid",
     "Find out why the expected kernels did not run; the figures of this run say nothing.",
     rule_expected},
    {"impossible", RULE_GATES, 1.05, 0, "a rate over 1.05 x a measured peak", "the run is invalid",
     "Measure again: a clock, a byte count or a peak is wrong.", rule_impossible},
    {"quant_transpose", RULE_TIMELINE, 0.05, 0.10,
     "quantise and transpose kernels take 5 % of a step (warns) or 10 % (fails)",
     "all of their time",
     "Keep operands in the format and layout that the matrix product reads, or convert them within "
     "the kernel that makes them.",
     rule_quant_transpose},
    {"exposed", RULE_RANKS, 0.03, 0.5,
     "a rank has nothing but collectives to do for 3 % of a step; where over half of "
     "that "
     "is waiting for a slower rank, that is what to look at",
     "all of that time",
     "Hide collectives behind work, have fewer of them, or share the work among fewer GPUs.",
     rule_exposed},
    {"launch_bound", RULE_TIMELINE, 0.80, 0.70,
     "the device is busy under 80 % of a step while launch calls take 70 % of it",
     "the step shrinks to max(busy, step - launch calls)",
     "Capture the step as a CUDA graph, so that one call starts all of its kernels.",
     rule_launch_bound},
    {"alloc_jit", RULE_TIMELINE, 0.005, 0,
     "allocation, module loading or compilation leaves the device idle for 0.5 % of a step",
     "the idle time within them",
     "Allocate from a pool and load all kernels before the first step.", rule_alloc_jit},
    {"sync", RULE_TIMELINE, 0.02, 0, "waits for the device last 2 % of a step beyond its work",
     "the idle time within them",
     "Queue the next step before waiting for this one, or wait for an event instead of the device.",
     rule_sync},
    {"gap.host", RULE_TIMELINE, 0.02, 0,
     "launches that come after the previous kernel ended leave gaps of 2 % of a step",
     "the sum of the gaps",
     "Take work off the launching thread or launch ahead of it: a CUDA graph of the step does "
     "both.",
     rule_gap_host},
    {"gap.launch", RULE_TIMELINE, 0.03, 0,
     "gaps below twice the gap between empty kernels add up to 3 % of a step",
     "the sum of the gaps",
     "Let kernels overlap their start with the end of the previous one (programmatic dependent "
     "launch), or fuse them.",
     rule_gap_launch},
    {"pageable", RULE_TIMELINE, 0.01, 0,
     "asynchronous copies from or to pageable memory take 1 % of a step", "the copies",
     "Use pinned host memory (cudaHostAlloc, pin_memory) for what is copied in every step.",
     rule_pageable},
    {"unfused", RULE_TIMELINE, 0.03, 4,
     "elementwise, norm or copy kernels right after a matrix product, at least 4 times a step, "
     "take 3 % of it",
     "their sum, less the time for bytes that must be kept",
     "Do the elementwise work in the epilogue of the matrix product before it.", rule_unfused},
    {"tiny_kernels", RULE_TIMELINE, 0.30, 0.10,
     "30 % of the kernels are shorter than 5 us or than the call that starts them, and take 10 % "
     "of "
     "a step",
     "each run of such neighbours in the time of its longest",
     "Fuse runs of small neighbouring kernels.", rule_tiny_kernels},
    {"spill", RULE_COUNTERS, 0.02, 0, "registers are spilled in a kernel of 2 % of the time",
     "the time times the share of local sectors",
     "Give the kernel more registers: smaller tiles, fewer live values, launch bounds.",
     rule_spill},
    {"uncoalesced", RULE_COUNTERS, 0.80, 0, "under 80 % of the bytes of each sector are used",
     "the unused part of L2's share", "Let neighbouring threads read neighbouring addresses.",
     rule_uncoalesced},
    {"bank", RULE_COUNTERS, 0.10, 0, "10 % of shared memory's wavefronts are bank conflicts",
     "the conflicts' part of L1's share", "Swizzle or pad the tile in shared memory.", rule_bank},
    {"tail", RULE_COUNTERS, 0.20, 1,
     "the last, partial wave of blocks is a fifth of the time or more", "1/(waves + 1)",
     "Make the number of blocks a multiple of what fits, or make the kernel persistent.",
     rule_tail},
    {"occupancy", RULE_COUNTERS, 80, 10,
     "a kernel bound by latency has theoretical occupancy under 80 %, or 10 points less achieved",
     "the missing warps' part, at most 1 - speed of light",
     "Use fewer registers or less shared memory a block, or balance the blocks' work.",
     rule_occupancy},
    {"stall", RULE_COUNTERS, 0.80, 0.30,
     "issue slots are under 80 % used and one stall reason is over 30 % of the latency",
     "its share, at most 1 - speed of light",
     "Hide that latency: more loads in flight, deeper "
     "pipelines, more independent work a thread.",
     rule_stall},
    {"sol", RULE_COUNTERS, 60, 80,
     "neither compute nor memory reaches 80 % of its speed of light in a kernel of 5 % of the time",
     "the time above the roofline",
     "Look for what bounds the kernel; its class is in the evidence.", rule_sol},
    {"wakeup", RULE_KERNELS, 0.03, 0, "starting parallel loops takes 3 % of a step",
     "loops x the time to wake the threads",
     "Fuse short ops, or use fewer threads for steps this small (-t).", rule_wakeup},
    {"imbalance", RULE_KERNELS, 2, 0.02,
     "the busiest expert gets twice the rows of an even spread and expert kernels are 2 % of a "
     "step "
     "above their limit",
     "the distance of expert kernels to their limit",
     "Split the rows of busy experts over threads.", rule_imbalance},
    {"distance", RULE_KERNELS, 0.02, 0,
     "a kernel is 2 % of a step above what its bytes and flops take at this machine's limits",
     "the distance to its limit",
     "Work on the kernel that is farthest from its limit; sol kernels lists its variants.",
     rule_distance},
};
const size_t rule_count = sizeof rule_table / sizeof *rule_table;

const char *rule_source_name(enum rule_source source)
{
    static const char *const names[RULE_SOURCE_COUNT] = {"time line", "counters", "kernels",
                                                         "gates", "ranks"};
    return (unsigned)source < RULE_SOURCE_COUNT ? names[source] : "?";
}

const struct rule *rule_find(const char *name)
{
    for (size_t i = 0; i < rule_count; i++)
        if (strcmp(rule_table[i].name, name) == 0) return &rule_table[i];
    return NULL;
}

double rule_limit(const char *name)
{
    const struct rule *rule = rule_find(name);
    return rule ? rule->limit : (double)NAN;
}

char *rules_time(double ns, char text[24])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    int unit = 0;
    for (; unit < 3 && fabs(ns) >= 999.5; unit++) ns /= 1000;
    snprintf(text, 24, "%.*f %s",
             unit == 0 || fabs(ns) >= 100 ? 0
             : fabs(ns) >= 10             ? 1
                                          : 2,
             ns, units[unit]);
    return text;
}

/* ---- findings ---- */

bool rules_fired(const struct rules_run *run, const char *name)
{
    for (size_t i = 0; i < run->report->count; i++)
        if (strcmp(run->report->findings[i].rule->name, name) == 0) return true;
    return false;
}

enum sol_status rules_add(struct rules_run *run, const struct rule *rule, const char *subject,
                          enum rule_severity severity, double window_ns, double ceiling_ns,
                          json_t *evidence, const char *fmt, ...)
{
    struct rules_report *r = run->report;
    char text[TEXT_SIZE];
    double factor = 0.5;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (ceiling_ns < 0) ceiling_ns = 0;
    if (window_ns > 0 && ceiling_ns > window_ns) ceiling_ns = window_ns;
    if (evidence && r->count == run->room) {
        size_t room = run->room ? 2 * run->room : 16;
        struct finding *grown = realloc(r->findings, room * sizeof *grown);
        if (grown) {
            r->findings = grown;
            run->room = room;
        }
    }
    char *subject_copy = strdup(subject), *text_copy = strdup(text);
    if (!evidence || r->count == run->room || !subject_copy || !text_copy) {
        json_decref(evidence);
        free(subject_copy);
        free(text_copy);
        return status_set(SOL_E_MEMORY, "out of memory for advice");
    }
    r->findings[r->count++] =
        (struct finding){.rule = rule,
                         .subject = subject_copy,
                         .text = text_copy,
                         .evidence = evidence,
                         .severity = severity,
                         .window_ns = window_ns,
                         .ceiling_ns = ceiling_ns,
                         .counted = severity != RULE_INVALID || ceiling_ns > 0};
    SOL_TRY(store_rule_factor(run->store, rule->name, &factor, NULL));
    r->findings[r->count - 1].likely_ns = factor * ceiling_ns;
    return SOL_OK;
}

enum sol_status rule_expected(struct rules_run *run, const struct rule *rule)
{
    for (size_t i = 0; i < run->in->n_violations; i++) {
        const struct rules_violation *v = &run->in->violations[i];
        SOL_TRY(rules_add(run, rule, v->subject, RULE_INVALID, run->report->window_ns, 0,
                          json_pack("{s:o}", "violation", store_json_string(v->text)), "%s",
                          v->text));
    }
    return SOL_OK;
}

/* ---- putting together ---- */

/* Several rules look at one kernel's counters: the time of that kernel is counted once, by the
 * finding with the highest ceiling. */
static void count_once(struct rules_report *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct finding *a = &r->findings[i];
        const struct finding *best = a;
        if (a->rule->source != RULE_COUNTERS) continue;
        for (size_t j = 0; j < r->count; j++) {
            const struct finding *b = &r->findings[j];
            if (b->rule->source != RULE_COUNTERS || strcmp(a->subject, b->subject) != 0) continue;
            if (b->ceiling_ns > best->ceiling_ns || (b->ceiling_ns == best->ceiling_ns && b < best))
                best = b;
        }
        a->counted = best == a;
        a->covered_by = best == a ? NULL : best->rule->name;
    }
}

static int by_weight(const void *a, const void *b)
{
    const struct finding *x = a, *y = b;
    if ((x->severity == RULE_INVALID) != (y->severity == RULE_INVALID))
        return x->severity == RULE_INVALID ? -1 : 1;
    if (x->counted != y->counted) return x->counted ? -1 : 1;
    if (x->likely_ns != y->likely_ns) return x->likely_ns > y->likely_ns ? -1 : 1;
    int order = strcmp(x->rule->name, y->rule->name);
    return order ? order : strcmp(x->subject, y->subject);
}

static void choose_todo(struct rules_report *r)
{
    char time[24];
    if (r->count == 0) {
        snprintf(r->todo, sizeof r->todo, "%s",
                 r->withheld ? "Profile again at a level that disturbs less (sol profile --level "
                               "launch): gaps could not be judged."
                             : "Nothing to do: no rule fired.");
        return;
    }
    const struct finding *f = &r->findings[0];
    const char *own = json_string_value(json_object_get(f->evidence, "todo"));
    const char *next = own ? own : f->rule->next;
    if (f->severity == RULE_INVALID || !(f->likely_ns > 0))
        snprintf(r->todo, sizeof r->todo, "%s (%s)", next, f->rule->name);
    else
        snprintf(r->todo, sizeof r->todo, "%s (%s, %.60s: likely %s, at most %.1f %% of a step)",
                 next, f->rule->name, f->subject, rules_time(f->likely_ns, time),
                 f->window_ns > 0 ? 100 * f->ceiling_ns / f->window_ns : 0);
}

static void conclude(struct rules_report *r)
{
    count_once(r);
    if (r->count) qsort(r->findings, r->count, sizeof *r->findings, by_weight);
    for (size_t i = 0; i < r->count; i++) {
        const struct finding *f = &r->findings[i];
        r->invalid = r->invalid || f->severity == RULE_INVALID;
        if (!f->counted) continue;
        r->ceiling_ns += f->ceiling_ns;
        r->likely_ns += f->likely_ns;
    }
    choose_todo(r);
}

static bool has_source(const struct rules_input *in, enum rule_source source)
{
    switch (source) {
    case RULE_TIMELINE:
        return in->timeline != NULL;
    case RULE_COUNTERS:
        return in->counters && in->counters->count > 0;
    case RULE_KERNELS:
        return in->n_kernels > 0;
    case RULE_RANKS:
        return in->n_communication > 0;
    default:
        return true;
    }
}

static void set_remarks(const struct rules_input *in, struct rules_report *r)
{
    enum { WITHHELD_PERCENT = 5 };
    if (!in->timeline) return;
    if (in->inflation > WITHHELD_PERCENT / 100.0)
        r->withheld = "tracing made the program over 5 % slower, so the gaps are partly its own";
    else if (isnan(in->inflation) && in->timeline->level == TRACE_NODE)
        r->caveat = "what tracing at level node costs was not measured; gaps may be partly its own";
    if (!in->windows || in->windows->count == 0)
        r->caveat = "no repeating step was found: the whole trace counts as one, start-up included";
}

/* The input's kernels under names that are short and still different: findings are told apart by
 * their subject, and texts have room for so much. */
struct short_names {
    struct store_kernel *kernels;
    struct kernel_counters *counted;
    struct counters counters;
    char **names; /* of the kernels, then of the counted ones */
    size_t count;
};

static void free_names(struct short_names *s)
{
    for (size_t i = 0; s->names && i < s->count; i++) free(s->names[i]);
    free(s->names);
    free(s->kernels);
    free(s->counted);
}

static enum sol_status shorten_names(struct rules_input *in, struct short_names *s)
{
    size_t n = in->n_kernels, m = in->counters ? in->counters->count : 0;
    const char **all = calloc(n + m + 1, sizeof *all);
    *s = (struct short_names){.kernels = calloc(n + 1, sizeof *s->kernels),
                              .counted = calloc(m + 1, sizeof *s->counted),
                              .names = calloc(n + m + 1, sizeof *s->names),
                              .count = n + m};
    enum sol_status status = SOL_OK;
    if (!all || !s->kernels || !s->counted || !s->names)
        status = status_set(SOL_E_MEMORY, "out of memory for advice");
    for (size_t i = 0; i < n && status == SOL_OK; i++)
        all[i] = in->kernels[i].name ? in->kernels[i].name : "";
    for (size_t i = 0; i < m && status == SOL_OK; i++) all[n + i] = in->counters->kernels[i].name;
    if (status == SOL_OK) status = names_shorten(all, n + m, NAME_WIDTH, s->names);
    for (size_t i = 0; i < n && status == SOL_OK; i++) {
        s->kernels[i] = in->kernels[i];
        if (s->kernels[i].name) s->kernels[i].name = s->names[i];
    }
    for (size_t i = 0; i < m && status == SOL_OK; i++) {
        s->counted[i] = in->counters->kernels[i];
        s->counted[i].name = s->names[n + i];
    }
    s->counters = (struct counters){s->counted, m};
    in->kernels = s->kernels;
    if (in->counters) in->counters = &s->counters;
    free(all);
    return status;
}

enum sol_status rules_run(const struct rules_input *input, struct store *store,
                          struct rules_report *out)
{
    struct short_names names;
    struct rules_input in = *input;
    *out = (struct rules_report){
        .window_ns = (double)NAN, .busy_ns = (double)NAN, .idle_ns = (double)NAN};
    struct rules_run run = {.in = &in, .store = store, .report = out};
    enum sol_status status = shorten_names(&in, &names);
    set_remarks(input, out);
    if (status == SOL_OK && input->timeline) status = rules_measure(&run);
    for (size_t i = 0; i < rule_count && status == SOL_OK; i++)
        if (has_source(&in, rule_table[i].source))
            status = rule_table[i].find(&run, &rule_table[i]);
    if (status == SOL_OK)
        conclude(out);
    else
        rules_report_free(out);
    free_names(&names);
    return status;
}

void rules_report_free(struct rules_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        free(report->findings[i].subject);
        free(report->findings[i].text);
        json_decref(report->findings[i].evidence);
    }
    free(report->findings);
    *report = (struct rules_report){0};
}
