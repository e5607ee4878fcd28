#include "advise/counters.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static const char *const stalls[STALL_COUNT][2] = {
    [STALL_LONG_SCOREBOARD] = {"long_scoreboard", "waiting for memory beyond L1"},
    [STALL_SHORT_SCOREBOARD] = {"short_scoreboard",
                                "waiting for shared memory or special functions"},
    [STALL_BARRIER] = {"barrier", "waiting for other warps of the block"},
    [STALL_MEMBAR] = {"membar", "waiting for a memory fence"},
    [STALL_MATH_PIPE] = {"math_pipe_throttle", "the arithmetic unit is taken"},
    [STALL_MIO] = {"mio_throttle", "the queue of shared memory and special functions is full"},
    [STALL_LG] = {"lg_throttle", "the queue of global and local memory is full"},
    [STALL_TEX] = {"tex_throttle", "the queue of the texture unit is full"},
    [STALL_WAIT] = {"wait", "fixed latency of the previous instruction"},
    [STALL_NO_INSTRUCTION] = {"no_instruction", "instructions are not in the cache"},
    [STALL_DISPATCH] = {"dispatch_stall", "the dispatcher is held up"},
    [STALL_DRAIN] = {"drain", "waiting for the last stores"},
    [STALL_IMC] = {"imc_miss", "constants are not in the cache"},
    [STALL_BRANCH] = {"branch_resolving", "waiting for a branch"},
    [STALL_SLEEPING] = {"sleeping", "asleep"},
    [STALL_MISC] = {"misc", "other reasons"},
    [STALL_NOT_SELECTED] = {"not_selected", "ready while another warp issued"},
    [STALL_SELECTED] = {"selected", "issuing"},
};

const char *stall_name(enum stall_reason reason)
{
    return (unsigned)reason < STALL_COUNT ? stalls[reason][0] : "?";
}

const char *stall_meaning(enum stall_reason reason)
{
    return (unsigned)reason < STALL_COUNT ? stalls[reason][1] : "?";
}

/* Every double of the struct, so that setting and merging cannot miss one. */
static const size_t values[] = {
#define VALUE(field) offsetof(struct kernel_counters, field)
    VALUE(duration_ns),  VALUE(sm),
    VALUE(memory),       VALUE(l1),
    VALUE(l2),           VALUE(dram),
    VALUE(dram_bytes),   VALUE(flops),
    VALUE(occupancy),    VALUE(occupancy_limit),
    VALUE(issue_active), VALUE(bytes_per_sector),
    VALUE(sectors),      VALUE(local_sectors),
    VALUE(wavefronts),   VALUE(conflicts),
    VALUE(waves),        VALUE(tensor),
#undef VALUE
};
enum { N_VALUES = sizeof values / sizeof *values };
_Static_assert(sizeof(struct kernel_counters) ==
                   sizeof(char *) + sizeof(int64_t) + (N_VALUES + STALL_COUNT) * sizeof(double),
               "a field is missing in the table");

static double *value(struct kernel_counters *k, size_t i)
{
    return i < N_VALUES ? (double *)((char *)k + values[i]) : &k->stalls[i - N_VALUES];
}

void kernel_counters_init(struct kernel_counters *k)
{
    *k = (struct kernel_counters){.calls = 1};
    for (size_t i = 0; i < N_VALUES + STALL_COUNT; i++) *value(k, i) = (double)NAN;
}

static void merge(struct kernel_counters *into, const struct kernel_counters *from)
{
    struct kernel_counters other = *from;
    double old = (double)into->calls, more = (double)other.calls;
    double old_weight = isnan(into->duration_ns) ? old : old * into->duration_ns;
    double more_weight = isnan(other.duration_ns) ? more : more * other.duration_ns;
    if (old_weight + more_weight <= 0) old_weight = more_weight = 1;
    for (size_t i = 0; i < N_VALUES + STALL_COUNT; i++) {
        double *a = value(into, i), b = *value(&other, i);
        /* Amounts of one call are means over calls; rates weigh by time. */
        bool amount = i < N_VALUES &&
                      (a == &into->duration_ns || a == &into->dram_bytes || a == &into->flops ||
                       a == &into->sectors || a == &into->local_sectors || a == &into->wavefronts ||
                       a == &into->conflicts);
        double p = amount ? old : old_weight, q = amount ? more : more_weight;
        if (isnan(*a))
            *a = b;
        else if (!isnan(b))
            *a = (*a * p + b * q) / (p + q);
    }
    into->calls += other.calls;
}

const struct kernel_counters *counters_find(const struct counters *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->kernels[i].name, name) == 0) return &list->kernels[i];
    return NULL;
}

enum sol_status counters_add(struct counters *list, const struct kernel_counters *k)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->kernels[i].name, k->name) == 0) {
            merge(&list->kernels[i], k);
            return SOL_OK;
        }
    struct kernel_counters *grown =
        realloc(list->kernels, (list->count + 1) * sizeof *list->kernels);
    if (grown) list->kernels = grown;
    char *name = grown ? strdup(k->name) : NULL;
    if (!name) return status_set(SOL_E_MEMORY, "out of memory for counters");
    grown[list->count] = *k;
    grown[list->count++].name = name;
    return SOL_OK;
}

void counters_free(struct counters *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->kernels[i].name);
    free(list->kernels);
    *list = (struct counters){0};
}
