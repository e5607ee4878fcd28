/* Rules over the kernels of a stored run: what each took beside what its bytes and flops take at
 * this machine's limits. */
#include <math.h>
#include <string.h>

#include "advise/rules_private.h"

enum { SUBJECT_SIZE = 160 };

/* Tokens that the calls of a kernel cover; 1 when unknown. */
static double tokens_of(const struct store_kernel *k)
{
    return k->calls > 0 && k->calls_per_token > 0 ? (double)k->calls / k->calls_per_token : 1;
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool in_phase(const struct store_kernel *k, const char *metric, const char *phase)
{
    return same(k->phase, phase) && same(k->metric, metric);
}

static const char *known(const char *text)
{
    return text ? text : "run";
}

/* A step is the time of a phase's kernels per token. */
static double phase_ns(const struct rules_run *run, const char *metric, const char *phase)
{
    double sum = 0;
    for (size_t i = 0; i < run->in->n_kernels; i++) {
        const struct store_kernel *k = &run->in->kernels[i];
        if (k->total_ns > 0 && in_phase(k, metric, phase)) sum += k->total_ns;
    }
    return sum;
}

/* A call that took less than waking everybody woke nobody: it ran on the calling thread. */
static double wakeups_ns(const struct rules_run *run, const struct store_kernel *k)
{
    double wakeup = run->in->wakeup_ns, above = k->total_ns - (k->limit_ns > 0 ? k->limit_ns : 0);
    if (!(wakeup > 0) || k->calls <= 0 || k->total_ns < wakeup * (double)k->calls) return 0;
    return fmax(0, fmin(wakeup * (double)k->calls, above));
}

/* The first kernel of its phase stands for the phase. */
static bool first_of_phase(const struct rules_run *run, size_t i)
{
    const struct store_kernel *all = run->in->kernels;
    for (size_t j = 0; j < i; j++)
        if (in_phase(&all[j], all[i].metric, all[i].phase)) return false;
    return true;
}

static bool wakeup_counts(const struct rules_run *run, const char *metric, const char *phase)
{
    double sum = 0;
    for (size_t i = 0; i < run->in->n_kernels; i++) {
        const struct store_kernel *k = &run->in->kernels[i];
        if (in_phase(k, metric, phase)) sum += wakeups_ns(run, k);
    }
    return sum > 0 && sum >= rule_limit("wakeup") * phase_ns(run, metric, phase);
}

enum sol_status rule_wakeup(struct rules_run *run, const struct rule *rule)
{
    const struct rules_input *in = run->in;
    for (size_t i = 0; i < in->n_kernels; i++) {
        const char *phase = in->kernels[i].phase, *metric = in->kernels[i].metric;
        if (!first_of_phase(run, i) || !wakeup_counts(run, metric, phase)) continue;
        double tokens = tokens_of(&in->kernels[i]), sum = 0, window = phase_ns(run, metric, phase),
               calls = 0;
        for (size_t j = 0; j < in->n_kernels; j++) {
            const struct store_kernel *k = &in->kernels[j];
            if (!in_phase(k, metric, phase)) continue;
            sum += wakeups_ns(run, k);
            calls += wakeups_ns(run, k) > 0 ? (double)k->calls : 0;
        }
        char a[24], b[24];
        SOL_TRY(rules_add(run, rule, known(metric), RULE_GAIN, window / tokens, sum / tokens,
                          json_pack("{s:f, s:f, s:f}", "loops", calls / tokens, "wakeup_ns",
                                    in->wakeup_ns, "share", sum / window),
                          "%s, %s: %.0f parallel loops a step, %s each to wake the threads, are "
                          "%s (%.1f %%).",
                          known(metric), known(phase), calls / tokens, rules_time(in->wakeup_ns, a),
                          rules_time(sum / tokens, b), 100 * sum / window));
    }
    return SOL_OK;
}

static bool of_experts(const struct store_kernel *k)
{
    static const char *const names[] = {"moe", "moe_up", "moe_down", "attn_moe"};
    for (size_t i = 0; k->op && i < sizeof names / sizeof *names; i++)
        if (strcmp(k->op, names[i]) == 0) return true;
    return false;
}

/* NULL unless the rows of this metric were spread unevenly over the experts. */
static const struct rules_experts *imbalanced(const struct rules_run *run, const char *metric)
{
    for (size_t i = 0; i < run->in->n_experts; i++) {
        const struct rules_experts *e = &run->in->experts[i];
        if (e->metric && !same(e->metric, metric)) continue;
        /* An even spread of under one row an expert cannot be had. */
        if (e->even >= 1 && e->busiest >= rule_limit("imbalance") * e->even) return e;
    }
    return NULL;
}

static double above_limit(const struct rules_run *run, const struct store_kernel *k)
{
    double rest = k->total_ns - k->limit_ns;
    if (wakeup_counts(run, k->metric, k->phase)) rest -= wakeups_ns(run, k);
    return rest;
}

enum sol_status rule_imbalance(struct rules_run *run, const struct rule *rule)
{
    const struct rules_input *in = run->in;
    for (size_t i = 0; i < in->n_kernels; i++) {
        const char *phase = in->kernels[i].phase, *metric = in->kernels[i].metric;
        if (!first_of_phase(run, i)) continue;
        double tokens = tokens_of(&in->kernels[i]), sum = 0, window = phase_ns(run, metric, phase);
        for (size_t j = 0; j < in->n_kernels; j++) {
            const struct store_kernel *k = &in->kernels[j];
            if (!in_phase(k, metric, phase)) continue;
            if (of_experts(k) && above_limit(run, k) > 0) sum += above_limit(run, k);
        }
        const struct rules_experts *e = imbalanced(run, metric);
        if (!e || !(sum >= rule->second * window) || sum <= 0) continue;
        char a[24];
        SOL_TRY(rules_add(run, rule, known(metric), RULE_GAIN, window / tokens, sum / tokens,
                          json_pack("{s:f, s:f, s:f}", "busiest_rows", e->busiest, "even_rows",
                                    e->even, "above_limit_ns", sum / tokens),
                          "%s, %s: the busiest expert gets %.1f rows where an even spread gives "
                          "%.1f, and the expert kernels are %s above their limit.",
                          known(metric), known(phase), e->busiest, e->even,
                          rules_time(sum / tokens, a)));
    }
    return SOL_OK;
}

/* limit = max(bytes / bandwidth, flops / peak), so bytes / limit is the bandwidth exactly for the
 * kernels that memory bounds, and less for the others. */
static const char *bound_of(const struct rules_run *run, const struct store_kernel *k)
{
    double rate = 0;
    for (size_t i = 0; i < run->in->n_kernels; i++) {
        const struct store_kernel *other = &run->in->kernels[i];
        if (other->limit_ns > 0 && other->bytes / other->limit_ns > rate)
            rate = other->bytes / other->limit_ns;
    }
    return k->bytes / k->limit_ns > 0.99 * rate ? "memory" : "compute";
}

enum sol_status rule_distance(struct rules_run *run, const struct rule *rule)
{
    const struct rules_input *in = run->in;
    for (size_t i = 0; i < in->n_kernels; i++) {
        const struct store_kernel *k = &in->kernels[i];
        double tokens = tokens_of(k);
        if (!(k->total_ns > 0) || !(k->limit_ns > 0)) continue;
        if (of_experts(k) && imbalanced(run, k->metric)) continue;
        if (same(k->category, "communication") && rules_exposes(run, k->metric)) continue;
        double window = phase_ns(run, k->metric, k->phase), rest = above_limit(run, k);
        if (rest < rule->limit * window) continue;
        const char *bound = bound_of(run, k);
        const char *variant = k->variant ? k->variant : "";
        char subject[SUBJECT_SIZE], layer[24] = "";
        if (k->layer >= 0) snprintf(layer, sizeof layer, ", layer %d", k->layer);
        snprintf(subject, sizeof subject, "%s: %s%s%s%s", known(k->metric),
                 k->name ? k->name
                 : k->op ? k->op
                         : "kernel",
                 *variant ? " " : "", variant, layer);
        SOL_TRY(rules_add(
            run, rule, subject, RULE_GAIN, window / tokens, rest / tokens,
            json_pack("{s:f, s:f, s:f, s:f, s:f, s:s}", "total_ns", k->total_ns / tokens,
                      "limit_ns", k->limit_ns / tokens, "share", k->total_ns / window, "bytes",
                      isnan(k->bytes) ? 0 : k->bytes / tokens, "flops",
                      isnan(k->flops) ? 0 : k->flops / tokens, "bound", bound),
            "%s takes %.1f %% of %s and reaches %.0f %% of its limit, which %s sets.", subject,
            100 * k->total_ns / window, known(k->phase), 100 * k->limit_ns / k->total_ns, bound));
    }
    return SOL_OK;
}
