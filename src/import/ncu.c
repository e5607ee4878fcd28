/* Nsight Compute's CSV. `--page raw`: a row for each kernel, a column for each metric, the second
 * row holds units. `--metrics` without a page: a row for each kernel and metric. Lines before the
 * header are the profiled program's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "import/import_private.h"
#include "trace/demangle.h"

enum kind { SET, ADD };

#define AT(field) offsetof(struct kernel_counters, field)

/* The first name that a file has is taken for SET; all are summed for ADD. */
static const struct metric {
    const char *name;
    size_t offset;
    enum kind kind;
} metrics[] = {
    {"gpu__time_duration.sum", AT(duration_ns), SET},
    {"gpu__time_duration.avg", AT(duration_ns), SET},
    {"sm__throughput.avg.pct_of_peak_sustained_elapsed", AT(sm), SET},
    {"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", AT(memory), SET},
    {"l1tex__throughput.avg.pct_of_peak_sustained_active", AT(l1), SET},
    {"l1tex__throughput.avg.pct_of_peak_sustained_elapsed", AT(l1), SET},
    {"lts__throughput.avg.pct_of_peak_sustained_elapsed", AT(l2), SET},
    {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", AT(dram), SET},
    {"dram__throughput.avg.pct_of_peak_sustained_elapsed", AT(dram), SET},
    {"dram__bytes.sum", AT(dram_bytes), SET},
    {"dram__bytes_read.sum", AT(dram_bytes), ADD},
    {"dram__bytes_write.sum", AT(dram_bytes), ADD},
    {"sm__warps_active.avg.pct_of_peak_sustained_active", AT(occupancy), SET},
    {"sm__maximum_warps_per_active_cycle_pct", AT(occupancy_limit), SET},
    {"smsp__issue_active.avg.per_cycle_active", AT(issue_active), SET},
    {"smsp__sass_average_data_bytes_per_sector_mem_global.ratio", AT(bytes_per_sector), SET},
    {"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio", AT(bytes_per_sector), SET},
    {"l1tex__t_sectors_pipe_lsu.sum", AT(sectors), SET},
    {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", AT(sectors), ADD},
    {"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", AT(sectors), ADD},
    {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", AT(local_sectors), ADD},
    {"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", AT(local_sectors), ADD},
    {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", AT(wavefronts), SET},
    {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", AT(conflicts), SET},
    {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", AT(conflicts), ADD},
    {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", AT(conflicts), ADD},
    {"launch__waves_per_multiprocessor", AT(waves), SET},
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", AT(tensor), SET},
    {"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", AT(tensor), SET},
};
enum { N_METRICS = sizeof metrics / sizeof *metrics };

/* smsp__average_warps_issue_stalled_<reason>_per_issue_active.ratio, of older versions
 * smsp__average_warp_latency_issue_stalled_<reason>.ratio. -1: none. */
static int stall_of(const char *name)
{
    static const char *const shapes[][2] = {
        {"smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"},
        {"smsp__average_warp_latency_issue_stalled_", ".ratio"}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t before = strlen(shapes[i][0]), after = strlen(shapes[i][1]), n = strlen(name);
        if (n <= before + after || strncmp(name, shapes[i][0], before) != 0 ||
            strcmp(name + n - after, shapes[i][1]) != 0)
            continue;
        for (int s = 0; s < STALL_COUNT; s++) {
            const char *reason = stall_name((enum stall_reason)s);
            if (strlen(reason) == n - before - after &&
                strncmp(name + before, reason, n - before - after) == 0)
                return s;
        }
    }
    return -1;
}

/* What a value of this unit is multiplied with: to ns, bytes or plain counts. */
static double unit_factor(const char *unit)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"nsecond", 1},   {"ns", 1},   {"usecond", 1e3}, {"us", 1e3},
                 {"msecond", 1e6}, {"ms", 1e6}, {"second", 1e9},  {"s", 1e9}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].name) == 0) return units[i].factor;
    /* "Kbyte", "Msector": a prefix before a lower-case word. */
    const char *prefix = *unit ? strchr("KMGT", *unit) : NULL;
    if (!prefix || unit[1] < 'a' || unit[1] > 'z') return 1;
    return *unit == 'K' ? 1e3 : *unit == 'M' ? 1e6 : *unit == 'G' ? 1e9 : 1e12;
}

/* "1,234.5"; false for "n/a", an empty field and the like. */
static bool parse_number(const char *text, double *out)
{
    char plain[64];
    size_t n = 0;
    for (; *text && n + 1 < sizeof plain; text++)
        if (*text != ',') plain[n++] = *text;
    plain[n] = '\0';
    char *end;
    *out = strtod(plain, &end);
    return n > 0 && *end == '\0' && isfinite(*out);
}

struct reader {
    struct import *import;
    const char *name;
    struct csv csv;
    char **columns, **units; /* of the header; copies */
    size_t n_columns;
    int kernel_column, id_column, metric_column, unit_column, value_column;
    struct kernel_counters kernel; /* of the long form: the one being collected */
    char *id;
    bool set_by[N_METRICS]; /* which metrics the present kernel got */
    size_t used;
};

static void set_value(struct reader *r, struct kernel_counters *k, const char *metric,
                      const char *unit, const char *text)
{
    double value;
    if (!parse_number(text, &value)) return;
    value *= unit_factor(unit);
    int stall = stall_of(metric);
    if (stall >= 0) {
        k->stalls[stall] = value;
        r->used++;
        return;
    }
    for (size_t i = 0; i < N_METRICS; i++) {
        if (strcmp(metric, metrics[i].name) != 0) continue;
        double *to = (double *)((char *)k + metrics[i].offset);
        r->used++;
        r->set_by[i] = true;
        bool summed = false, preferred = false;
        for (size_t j = 0; j < N_METRICS; j++) {
            if (j == i || metrics[j].offset != metrics[i].offset || !r->set_by[j]) continue;
            summed = summed || metrics[j].kind == ADD;
            preferred = preferred || (metrics[j].kind == SET && (metrics[i].kind == ADD || j < i));
        }
        if (preferred) return;
        *to = metrics[i].kind == ADD && summed ? *to + value : value;
        return;
    }
}

static enum sol_status bad_line(const struct reader *r, const char *what)
{
    return status_set(SOL_E_FORMAT, "%s:%d: %s", r->name, r->csv.line, what);
}

static enum sol_status next_row(struct reader *r, bool *more)
{
    enum sol_status status = csv_row(&r->csv, more);
    return status == SOL_OK ? SOL_OK : status_prefix(status, "%s", r->name);
}

static enum sol_status copy_row(struct reader *r, char ***out)
{
    *out = calloc(r->csv.count + 1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "out of memory for CSV");
    for (size_t i = 0; i < r->csv.count; i++) {
        (*out)[i] = strdup(r->csv.fields[i]);
        if (!(*out)[i]) return status_set(SOL_E_MEMORY, "out of memory for CSV");
    }
    return SOL_OK;
}

static int column(const struct reader *r, const char *name)
{
    for (size_t i = 0; i < r->n_columns; i++)
        if (strcmp(r->columns[i], name) == 0) return (int)i;
    return -1;
}

/* What the program printed may hold quotes; only a line that names the kernel column counts. */
static enum sol_status find_header(struct reader *r, const char *text, size_t size)
{
    const char *at = text, *end = text + size;
    bool more;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        if (memmem(at, length, "\"Kernel Name\"", 13) || memmem(at, length, "Kernel Name,", 12))
            break;
        at += length + (stop ? 1 : 0);
        if (!stop) break;
    }
    int line = 0;
    for (const char *p = text; p < at; p++) line += *p == '\n';
    csv_open(&r->csv, at, (size_t)(end - at));
    r->csv.line = line;
    SOL_TRY(next_row(r, &more));
    r->n_columns = r->csv.count;
    SOL_TRY(copy_row(r, &r->columns));
    r->kernel_column = column(r, "Kernel Name");
    r->id_column = column(r, "ID");
    r->metric_column = column(r, "Metric Name");
    r->unit_column = column(r, "Metric Unit");
    r->value_column = column(r, "Metric Value");
    if (r->kernel_column < 0 || (r->metric_column >= 0) != (r->value_column >= 0))
        return bad_line(r, "no header of Nsight Compute's CSV");
    return SOL_OK;
}

static enum sol_status add_kernel(struct reader *r, struct kernel_counters *k)
{
    memset(r->set_by, 0, sizeof r->set_by);
    return counters_add(&r->import->counters, k);
}

static enum sol_status read_wide(struct reader *r)
{
    bool more;
    SOL_TRY(next_row(r, &more));
    if (!more) return bad_line(r, "the row of units is missing");
    if (r->csv.count != r->n_columns) return bad_line(r, "a row of another length than the header");
    SOL_TRY(copy_row(r, &r->units));
    while (true) {
        SOL_TRY(next_row(r, &more));
        if (!more) return SOL_OK;
        const char *const *f = r->csv.fields;
        if (r->csv.count == 1 && strspn(f[0], " \t") == strlen(f[0])) continue;
        if (strncmp(f[0], "==", 2) == 0) continue; /* ==PROF== and ==WARNING== lines */
        if (r->csv.count != r->n_columns)
            return bad_line(r, "a row of another length than the header");
        struct kernel_counters k;
        kernel_counters_init(&k);
        /* Level counters writes symbols, ncu names. */
        const char *name = f[r->kernel_column];
        char *plain = demangle(name, strlen(name));
        k.name = plain ? plain : (char *)(uintptr_t)name;
        for (size_t i = 0; i < r->n_columns; i++)
            set_value(r, &k, r->columns[i], r->units[i], f[i]);
        enum sol_status status = add_kernel(r, &k);
        free(plain);
        SOL_TRY(status);
    }
}

static enum sol_status end_long(struct reader *r)
{
    if (!r->id) return SOL_OK;
    enum sol_status status = add_kernel(r, &r->kernel);
    free(r->kernel.name);
    free(r->id);
    r->kernel.name = r->id = NULL;
    return status;
}

static enum sol_status read_long(struct reader *r)
{
    bool more;
    while (true) {
        SOL_TRY(next_row(r, &more));
        if (!more) return end_long(r);
        const char *const *f = r->csv.fields;
        if (r->csv.count == 1 && strspn(f[0], " \t") == strlen(f[0])) continue;
        if (strncmp(f[0], "==", 2) == 0) continue;
        if (r->csv.count != r->n_columns)
            return bad_line(r, "a row of another length than the header");
        const char *id = r->id_column >= 0 ? f[r->id_column] : f[r->kernel_column];
        if (!r->id || strcmp(r->id, id) != 0) {
            SOL_TRY(end_long(r));
            kernel_counters_init(&r->kernel);
            r->id = strdup(id);
            r->kernel.name = strdup(f[r->kernel_column]);
            if (!r->id || !r->kernel.name) return status_set(SOL_E_MEMORY, "out of memory for CSV");
        }
        set_value(r, &r->kernel, f[r->metric_column], r->unit_column >= 0 ? f[r->unit_column] : "",
                  f[r->value_column]);
    }
}

static void free_row(char **row, size_t n)
{
    for (size_t i = 0; row && i < n; i++) free(row[i]);
    free(row);
}

static enum sol_status check(const struct reader *r)
{
    const struct counters *list = &r->import->counters;
    if (list->count == 0) return status_set(SOL_E_FORMAT, "%s: no kernels in it", r->name);
    if (r->used == 0)
        return status_set(SOL_E_FORMAT,
                          "%s: none of its columns is a counter that sol knows; export it with "
                          "ncu --page raw --csv",
                          r->name);
    bool times = false, speed = false;
    for (size_t i = 0; i < list->count; i++) {
        times = times || list->kernels[i].duration_ns > 0;
        speed = speed || list->kernels[i].sm >= 0;
    }
    if (!times) SOL_TRY(import_note(r->import, "no gpu__time_duration: kernels cannot be weighed"));
    if (!speed)
        SOL_TRY(import_note(r->import, "no speed-of-light counters (ncu --set full has them)"));
    return SOL_OK;
}

enum sol_status import_ncu(struct import *import, const char *text, size_t size, const char *name)
{
    struct reader r = {.import = import, .name = name};
    enum sol_status status = find_header(&r, text, size);
    if (status == SOL_OK) status = r.metric_column >= 0 ? read_long(&r) : read_wide(&r);
    if (status == SOL_OK) status = check(&r);
    import->backend = "cuda";
    import->tool = "ncu";
    free(r.kernel.name);
    free(r.id);
    free_row(r.columns, r.n_columns);
    free_row(r.units, r.n_columns);
    csv_close(&r.csv);
    return status;
}
