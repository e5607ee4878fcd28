#include "advise/largest.h"

#include "base/json_value.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules_private.h"
enum { STALLS_SHOWN = 3, SENTENCE_SIZE = 240 };

static double total_ns(const struct kernel_counters *k)
{
    return k->duration_ns > 0 ? (double)k->calls * k->duration_ns : 0;
}

static int by_time(const void *a, const void *b)
{
    double x = total_ns(*(const struct kernel_counters *const *)a);
    double y = total_ns(*(const struct kernel_counters *const *)b);
    return (x < y) - (x > y);
}

/* *out, to be freed: the largest first. Returns how many are shown, 0 without memory. */
static size_t take_largest(const struct counters *c, const struct kernel_counters ***out,
                           double *window)
{
    const struct kernel_counters **list = calloc(c->count + 1, sizeof *list);
    *out = list;
    *window = 0;
    if (!list) return 0;
    for (size_t i = 0; i < c->count; i++) {
        list[i] = &c->kernels[i];
        *window += total_ns(list[i]);
    }
    qsort(list, c->count, sizeof *list, by_time);
    return c->count < LARGEST_KERNELS ? c->count : LARGEST_KERNELS;
}

/* ---- why warps wait ---- */

struct stall {
    enum stall_reason reason;
    double share; /* of a warp's latency */
};

/* The largest reasons to wait. Returns how many; 0 where stalls were not counted. */
static size_t take_stalls(const struct kernel_counters *k, struct stall out[STALLS_SHOWN])
{
    double sum = 0;
    size_t n = 0;
    for (int i = 0; i < STALL_COUNT; i++)
        if (!isnan(k->stalls[i])) sum += k->stalls[i];
    for (int i = 0; i < STALL_COUNT && sum > 0; i++) {
        struct stall one = {(enum stall_reason)i, k->stalls[i] / sum};
        if (i == STALL_SELECTED || i == STALL_NOT_SELECTED || !(one.share >= 0.05)) continue;
        size_t at = n < STALLS_SHOWN ? n++ : STALLS_SHOWN;
        while (at && one.share > out[at - 1].share) {
            if (at < STALLS_SHOWN) out[at] = out[at - 1];
            at--;
        }
        if (at < STALLS_SHOWN) out[at] = one;
    }
    return n;
}

/* ---- so what ---- */

enum { NEAR_LIMIT = 80, FEW_WARPS = 50 };

static const char *wait_advice(enum stall_reason reason)
{
    switch (reason) {
    case STALL_LONG_SCOREBOARD:
        return "load earlier or more at once, so that more bytes are under way";
    case STALL_SHORT_SCOREBOARD:
    case STALL_MIO:
        return "use shared memory and special functions less, or in wider pieces";
    case STALL_BARRIER:
        return "let warps of a block wait for each other less often";
    case STALL_MATH_PIPE:
        return "the arithmetic unit is the limit: another instruction or fewer operations";
    case STALL_LG:
        return "make global loads and stores fewer and wider";
    case STALL_WAIT:
        return "give each thread independent work, so that latencies overlap";
    case STALL_NO_INSTRUCTION:
        return "make the code smaller: loops unrolled less";
    default:
        return "see what these warps wait for, line by line";
    }
}

/* The one sentence that somebody who asked wants to hear. */
static void so_what(const struct kernel_counters *k, char text[SENTENCE_SIZE])
{
    struct stall stalls[STALLS_SHOWN];
    size_t n = take_stalls(k, stalls);
    bool full = k->memory >= NEAR_LIMIT || k->sm >= NEAR_LIMIT;
    if (full && k->memory >= k->sm)
        snprintf(text, SENTENCE_SIZE,
                 "memory is at its limit: only fewer bytes make it faster (smaller types, fusing, "
                 "reading once)");
    else if (full)
        snprintf(text, SENTENCE_SIZE,
                 "compute is at its limit: only fewer or cheaper operations make it faster (tensor "
                 "cores, smaller types)");
    else if (k->waves < 1)
        snprintf(
            text, SENTENCE_SIZE,
            "it fills %.0f %% of the device: split the work into more blocks, or run something "
            "beside it",
            100 * k->waves);
    else if (k->occupancy_limit < FEW_WARPS && k->occupancy >= 0.8 * k->occupancy_limit && n)
        snprintf(text, SENTENCE_SIZE,
                 "too few warps to hide that %s: fewer registers or less shared memory a block, or "
                 "%s",
                 stall_meaning(stalls[0].reason), wait_advice(stalls[0].reason));
    else if (n)
        snprintf(text, SENTENCE_SIZE, "%s for %.0f %% of the time: %s",
                 stall_meaning(stalls[0].reason), 100 * stalls[0].share,
                 wait_advice(stalls[0].reason));
    else if (isnan(k->sm) && isnan(k->memory))
        snprintf(text, SENTENCE_SIZE, "its speed of light was not counted: --counters full");
    else
        snprintf(text, SENTENCE_SIZE,
                 "neither compute nor memory is near its limit: it waits; --counters full says for "
                 "what");
}

/* ---- text ---- */

static const char *percent(double value, char text[32])
{
    if (isnan(value))
        snprintf(text, 32, "(not counted)");
    else
        snprintf(text, 32, "%.0f %%", value);
    return text;
}

static void print_one(const struct kernel_counters *k, size_t number, double window, FILE *to)
{
    char a[32], b[32], time[24], sentence[SENTENCE_SIZE];
    struct stall stalls[STALLS_SHOWN];
    size_t n = take_stalls(k, stalls);
    double intensity = k->flops / k->dram_bytes;
    fprintf(to, "%zu. %.120s\n   time       %.1f %%: %lld calls of %s\n", number, k->name,
            window > 0 ? 100 * total_ns(k) / window : 0, (long long)k->calls,
            rules_time(k->duration_ns, time));
    fprintf(to, "   roofline   compute %s, memory %s of their speed of light", percent(k->sm, a),
            percent(k->memory, b));
    if (isfinite(intensity)) fprintf(to, ", %.3g FLOP a byte", intensity);
    fprintf(to, ": %s\n", counters_class(k));
    if (!isnan(k->occupancy) || !isnan(k->occupancy_limit))
        fprintf(to, "   occupancy  %s of the warps are there, %s are possible\n",
                percent(k->occupancy, a), percent(k->occupancy_limit, b));
    for (size_t i = 0; i < n; i++)
        fprintf(to, "%s%.0f %% %s", i ? ", " : "   stalls     ", 100 * stalls[i].share,
                stall_meaning(stalls[i].reason));
    if (n) fputc('\n', to);
    so_what(k, sentence);
    fprintf(to, "   so         %s\n", sentence);
}

void largest_print(const struct counters *counters, FILE *to)
{
    const struct kernel_counters **list;
    double window;
    size_t n = take_largest(counters, &list, &window);
    if (n) fprintf(to, "the %zu kernel%s that take most time:\n", n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) print_one(list[i], i + 1, window, to);
    if (n) fputc('\n', to);
    free(list);
}

/* ---- JSON ---- */

static json_t *one_json(const struct kernel_counters *k, double window)
{
    struct stall stalls[STALLS_SHOWN];
    char sentence[SENTENCE_SIZE];
    json_t *list = json_array();
    size_t n = take_stalls(k, stalls);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:f}", "reason", stall_name(stalls[i].reason), "meaning",
                            stall_meaning(stalls[i].reason), "share", stalls[i].share));
    so_what(k, sentence);
    return json_pack("{s:s, s:o, s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "kernel",
                     k->name, "share", json_number(total_ns(k) / window), "calls",
                     (json_int_t)k->calls, "ns", json_number(k->duration_ns), "bound",
                     counters_class(k), "compute_percent", json_number(k->sm), "memory_percent",
                     json_number(k->memory), "flop_per_byte", json_number(k->flops / k->dram_bytes),
                     "occupancy_percent", json_number(k->occupancy), "occupancy_possible_percent",
                     json_number(k->occupancy_limit), "stalls", list, "so", sentence);
}

json_t *largest_json(const struct counters *counters)
{
    const struct kernel_counters **list;
    double window;
    size_t n = take_largest(counters, &list, &window);
    json_t *json = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(json, one_json(list[i], window));
    free(list);
    return json;
}
