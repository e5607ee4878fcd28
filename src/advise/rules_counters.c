/* Rules that hardware counters decide, kernel by kernel. NaN compares false, so a rule whose
 * counters are missing does not fire. */
#include <math.h>

#include "advise/rules_private.h"

enum { SECTOR = 32, LATENCY_BELOW = 60, SOL_SHARE_PERCENT = 5, ADVICE_SHARE_PERCENT = 2 };

static double total_ns(const struct kernel_counters *k)
{
    return k->duration_ns > 0 ? (double)k->calls * k->duration_ns : 0;
}

static double window_of(const struct rules_run *run)
{
    double sum = 0;
    if (run->in->counters_window_ns > 0) return run->in->counters_window_ns;
    for (size_t i = 0; i < run->in->counters->count; i++)
        sum += total_ns(&run->in->counters->kernels[i]);
    return sum;
}

/* Highest of compute and memory, 0..1; NaN when neither is known. */
static double reached(const struct kernel_counters *k)
{
    return fmax(k->sm, k->memory) / 100;
}

/* Neither unit is near its limit: what counts is latency, or there is too little work. */
static bool latency_bound(const struct kernel_counters *k)
{
    return k->sm < LATENCY_BELOW && k->memory < LATENCY_BELOW;
}

const char *counters_class(const struct kernel_counters *k)
{
    enum { DOMINANT = 10 };
    if (latency_bound(k)) return k->waves < 1 ? "too small a grid" : "bound by latency";
    if (fabs(k->sm - k->memory) < DOMINANT) return "bound by compute and memory alike";
    return k->sm > k->memory ? "bound by compute" : "bound by memory";
}

/* What one rule says about one kernel: false when it does not fire. */
typedef bool judge_fn(const struct rule *rule, const struct kernel_counters *k, double *part,
                      json_t **evidence, char *text, size_t size);

/* `part` of the kernel's time is the ceiling. */
static enum sol_status each_kernel(struct rules_run *run, const struct rule *rule, judge_fn *judge)
{
    double window = window_of(run);
    for (size_t i = 0; i < run->in->counters->count; i++) {
        const struct kernel_counters *k = &run->in->counters->kernels[i];
        double time = total_ns(k), part = 0;
        json_t *evidence = NULL;
        char text[400];
        if (time < ADVICE_SHARE_PERCENT / 100.0 * window) continue;
        if (!judge(rule, k, &part, &evidence, text, sizeof text)) continue;
        if (evidence) {
            json_object_set_new(evidence, "calls", json_integer(k->calls));
            json_object_set_new(evidence, "total_ns", json_real(time));
            json_object_set_new(evidence, "share", json_real(time / window));
        }
        SOL_TRY(rules_add(run, rule, k->name, RULE_GAIN, window, fmin(fmax(part, 0), 1) * time,
                          evidence, "%.120s (%.1f %% of the time): %s", k->name,
                          100 * time / window, text));
    }
    return SOL_OK;
}

/* ---- the rules ---- */

static bool judge_sol(const struct rule *rule, const struct kernel_counters *k, double *part,
                      json_t **evidence, char *text, size_t size)
{
    if (!(reached(k) < rule->second / 100)) return false;
    *part = 1 - reached(k);
    *evidence =
        json_pack("{s:f, s:f, s:s}", "sm_percent", isnan(k->sm) ? 0 : k->sm, "memory_percent",
                  isnan(k->memory) ? 0 : k->memory, "class", counters_class(k));
    snprintf(text, size, "%s; compute reaches %.0f %% and memory %.0f %% of their speed of light.",
             counters_class(k), isnan(k->sm) ? 0 : k->sm, isnan(k->memory) ? 0 : k->memory);
    return true;
}

enum sol_status rule_sol(struct rules_run *run, const struct rule *rule)
{
    double window = window_of(run);
    for (size_t i = 0; i < run->in->counters->count; i++) {
        const struct kernel_counters *k = &run->in->counters->kernels[i];
        double part, time = total_ns(k);
        json_t *evidence = NULL;
        char text[400];
        if (time < SOL_SHARE_PERCENT / 100.0 * window) continue;
        if (!judge_sol(rule, k, &part, &evidence, text, sizeof text)) continue;
        SOL_TRY(rules_add(run, rule, k->name, RULE_GAIN, window, part * time, evidence,
                          "%.120s (%.1f %% of the time): %s", k->name, 100 * time / window, text));
    }
    return SOL_OK;
}

static bool judge_occupancy(const struct rule *rule, const struct kernel_counters *k, double *part,
                            json_t **evidence, char *text, size_t size)
{
    bool few = k->occupancy_limit < rule->limit;
    bool lower = k->occupancy_limit - k->occupancy >= rule->second;
    if (!latency_bound(k) || (!few && !lower)) return false;
    double of = few ? 100 : k->occupancy_limit, is = lower ? k->occupancy : k->occupancy_limit;
    *part = fmin(1 - is / of, 1 - reached(k));
    *evidence =
        json_pack("{s:f, s:f, s:f}", "achieved_percent", isnan(k->occupancy) ? 0 : k->occupancy,
                  "theoretical_percent", k->occupancy_limit, "speed_of_light", reached(k));
    snprintf(text, size,
             "bound by latency with an occupancy of %.0f %%, where registers and shared memory "
             "allow %.0f %%.",
             isnan(k->occupancy) ? k->occupancy_limit : k->occupancy, k->occupancy_limit);
    return true;
}

enum sol_status rule_occupancy(struct rules_run *run, const struct rule *rule)
{
    return each_kernel(run, rule, judge_occupancy);
}

static bool judge_stall(const struct rule *rule, const struct kernel_counters *k, double *part,
                        json_t **evidence, char *text, size_t size)
{
    double sum = 0;
    int worst = -1;
    for (int i = 0; i < STALL_COUNT; i++) {
        if (isnan(k->stalls[i])) continue;
        sum += k->stalls[i];
        if (i == STALL_SELECTED || i == STALL_NOT_SELECTED) continue;
        if (worst < 0 || k->stalls[i] > k->stalls[worst]) worst = i;
    }
    if (!(k->issue_active < rule->limit) || worst < 0 || !(k->stalls[worst] > rule->second * sum))
        return false;
    double share = k->stalls[worst] / sum, headroom = 1 - reached(k);
    const char *reason = stall_name((enum stall_reason)worst);
    *part = isnan(headroom) ? share : fmin(share, headroom);
    *evidence = json_pack("{s:s, s:f, s:f, s:f}", "reason", reason, "share_of_latency", share,
                          "cycles", k->stalls[worst], "issue_active", k->issue_active);
    snprintf(text, size, "%.0f %% of a warp's latency is %s (%s); issue slots are %.0f %% used.",
             100 * share, reason, stall_meaning((enum stall_reason)worst), 100 * k->issue_active);
    return true;
}

enum sol_status rule_stall(struct rules_run *run, const struct rule *rule)
{
    return each_kernel(run, rule, judge_stall);
}

static bool judge_tail(const struct rule *rule, const struct kernel_counters *k, double *part,
                       json_t **evidence, char *text, size_t size)
{
    double whole = floor(k->waves), partial = k->waves - whole;
    /* An all but full last wave wastes nothing. */
    if (!(whole >= rule->second) || partial < 0.01 || partial > 0.9 ||
        1 / (whole + 1) < rule->limit)
        return false;
    *part = 1 / (whole + 1);
    *evidence = json_pack("{s:f}", "waves", k->waves);
    snprintf(text, size, "%.2f waves of blocks: the last one fills %.0f %% of the device.",
             k->waves, 100 * partial);
    return true;
}

enum sol_status rule_tail(struct rules_run *run, const struct rule *rule)
{
    return each_kernel(run, rule, judge_tail);
}

static bool judge_uncoalesced(const struct rule *rule, const struct kernel_counters *k,
                              double *part, json_t **evidence, char *text, size_t size)
{
    double used = k->bytes_per_sector / SECTOR;
    if (!(used < rule->limit)) return false;
    *part = (1 - used) * (isnan(k->l2) ? 1 : k->l2 / 100);
    *evidence = json_pack("{s:f, s:f}", "bytes_per_sector", k->bytes_per_sector, "l2_percent",
                          isnan(k->l2) ? 0 : k->l2);
    snprintf(text, size, "%.1f of the 32 bytes of each sector that is moved are used.",
             k->bytes_per_sector);
    return true;
}

enum sol_status rule_uncoalesced(struct rules_run *run, const struct rule *rule)
{
    return each_kernel(run, rule, judge_uncoalesced);
}

static bool judge_bank(const struct rule *rule, const struct kernel_counters *k, double *part,
                       json_t **evidence, char *text, size_t size)
{
    double conflicts = k->conflicts / k->wavefronts;
    if (!(k->wavefronts > 0) || !(conflicts >= rule->limit)) return false;
    *part = conflicts * (isnan(k->l1) ? 1 : k->l1 / 100);
    *evidence = json_pack("{s:f, s:f, s:f}", "conflicts", k->conflicts, "wavefronts", k->wavefronts,
                          "l1_percent", isnan(k->l1) ? 0 : k->l1);
    snprintf(text, size, "%.0f %% of the wavefronts of shared memory are bank conflicts.",
             100 * conflicts);
    return true;
}

enum sol_status rule_bank(struct rules_run *run, const struct rule *rule)
{
    return each_kernel(run, rule, judge_bank);
}

static bool judge_spill(const struct rule *rule, const struct kernel_counters *k, double *part,
                        json_t **evidence, char *text, size_t size)
{
    (void)rule;
    if (!(k->local_sectors > 0)) return false;
    double all = isnan(k->sectors) ? k->local_sectors : fmax(k->sectors, k->local_sectors);
    *part = k->local_sectors / all;
    *evidence = json_pack("{s:f, s:f}", "local_sectors", k->local_sectors, "sectors", all);
    snprintf(text, size,
             "%.3g sectors of local memory a call (%.1f %% of all): registers are spilled, or an "
             "array is indexed at run time.",
             k->local_sectors, 100 * *part);
    return true;
}

enum sol_status rule_spill(struct rules_run *run, const struct rule *rule)
{
    return each_kernel(run, rule, judge_spill);
}
