#include "cli/profile_with.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advise/counters.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/inject_library.h"
#include "trace/capture.h"
#include "trace/trace_file.h"

enum { PATH_SIZE = 4096 };

static const struct tool {
    const char *name, *product, *package;
} tools[] = {{"nsys", "Nsight Systems", "nsight-systems"},
             {"ncu", "Nsight Compute", "nsight-compute"}};

static bool installed(const char *name)
{
    const char *path = getenv("PATH");
    char file[PATH_SIZE];
    for (const char *at = path ? path : ""; *at;) {
        size_t n = strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)n, at, name);
        if (n > 0 && access(file, X_OK) == 0) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

static enum sol_status run_words(char *const *words, int *exit_status)
{
    struct capture_result result;
    enum sol_status status =
        capture_run(words, &(struct capture_options){.level = TRACE_OFF}, &result);
    *exit_status = result.exit_status;
    return status;
}

/* The tool's words, then the command's. */
static enum sol_status run_tool(const char *const *words, char *const *command, int *exit_status)
{
    size_t n = 0, m = 0;
    while (words[n]) n++;
    while (command && command[m]) m++;
    char **all = calloc(n + m + 1, sizeof *all);
    if (!all) return status_set(SOL_E_MEMORY, "out of memory for a command");
    for (size_t i = 0; i < n; i++) all[i] = (char *)(uintptr_t)words[i];
    for (size_t i = 0; i < m; i++) all[n + i] = command[i];
    enum sol_status status = run_words(all, exit_status);
    free(all);
    return status;
}

static enum sol_status check_made(const char *tool, const char *path, int exit_status)
{
    struct stat info;
    if (stat(path, &info) == 0 && info.st_size > 0) return SOL_OK;
    return status_set(SOL_E_IO,
                      "%s made no report (its exit status is %d); its own output says why", tool,
                      exit_status);
}

static enum sol_status with_nsys(enum trace_level level, char *const *command, const char *folder,
                                 char *path, size_t size, int *exit_status)
{
    char report[PATH_SIZE];
    int exported;
    snprintf(report, sizeof report, "%s/report.nsys-rep", folder);
    snprintf(path, size, "%s/report.sqlite", folder);
    const char *profile[] = {"nsys",
                             "profile",
                             "--trace=cuda,nvtx",
                             "--sample=none",
                             "--cpuctxsw=none",
                             level == TRACE_NODE ? "--cuda-graph-trace=node"
                                                 : "--cuda-graph-trace=graph",
                             "--force-overwrite=true",
                             "--output",
                             report,
                             NULL};
    const char *export[] = {"nsys",     "export", "--type=sqlite", "--force-overwrite=true",
                            "--output", path,     report,          NULL};
    SOL_TRY(run_tool(profile, command, exit_status));
    SOL_TRY(check_made("nsys", report, *exit_status));
    SOL_TRY(run_tool(export, NULL, &exported));
    return check_made("nsys export", path, exported);
}

/* What --counters asks for: kernels by what their names say in sol, llama.cpp and PyTorch. */
static const struct group {
    const char *name, *kernels; /* NULL: all of them */
} groups[] = {
    {"quick", NULL},
    {"routing", "regex:rout|[tT]op_?[kK]|argsort|expert"},
    {"matmul", "regex:gemm|gemv|mul_mat|nvjet|cutlass|matmul"},
    {"swiglu", "regex:glu|silu"},
    {"attention", "regex:attention|attn|flash|fmha"},
    {"norm", "regex:norm|Norm"},
    {"rope", "regex:rope|rotary"},
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

/* What the rules read, and no more: each kernel then runs a few times instead of dozens. */
static const char few_metrics[] =
    "gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,"
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed,"
    "l1tex__throughput.avg.pct_of_peak_sustained_active,"
    "lts__throughput.avg.pct_of_peak_sustained_elapsed,"
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed,dram__bytes.sum,"
    "sm__warps_active.avg.pct_of_peak_sustained_active,sm__maximum_warps_per_active_cycle_pct,"
    "smsp__issue_active.avg.per_cycle_active,launch__waves_per_multiprocessor,"
    "regex:smsp__average_warps_issue_stalled_.*_per_issue_active,"
    "smsp__sass_average_data_bytes_per_sector_mem_global.ratio,"
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum,"
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum,l1tex__t_sectors_pipe_lsu.sum,"
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum,l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum,"
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active";

/* Everything of every kernel takes minutes for a second of a program (40 passes a kernel). */
#define LAUNCHES "200"

static enum sol_status find_group(const char *counters, const struct group **out)
{
    *out = NULL;
    if (strcmp(counters, "full") == 0) return SOL_OK;
    for (int i = 0; i < N_GROUPS; i++)
        if (strcmp(groups[i].name, counters) == 0) *out = &groups[i];
    if (*out) return SOL_OK;
    return status_set(
        SOL_E_ARGUMENT,
        "--counters %s: write full, quick, routing, matmul, swiglu, attention, norm or "
        "rope",
        counters);
}

static void say_bounds(const struct group *group)
{
    log_write(LOG_WARN,
              "counting what the rules read, on the first " LAUNCHES
              " launches%s%s; --counters full counts everything on all, slowly",
              group->kernels ? " of " : "", group->kernels ? group->name : "");
}

/* Where ncu counted no kernel its report holds only remarks; the last one that matters says why. */
static enum sol_status check_ncu(const char *path)
{
    char line[1024], why[256] = "its report holds no kernels";
    bool kernels = false;
    FILE *file;
    SOL_TRY(file_stream(path, &file));
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "\"0\",", 4) == 0) kernels = true;
        if (strncmp(line, "==ERROR== ", 10) == 0) snprintf(why, sizeof why, "%.200s", line + 10);
        if (strstr(line, "No kernels were profiled"))
            snprintf(why, sizeof why, "no kernel that was asked for was launched");
    }
    fclose(file);
    if (kernels) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "ncu counted nothing: %s", why);
}

/* The clocks are left alone: a program is judged at the speed it runs at. */
static enum sol_status with_ncu(const char *counters, char *const *command, const char *folder,
                                char *path, size_t size, int *exit_status)
{
    const struct group *group;
    SOL_TRY(find_group(counters ? counters : "quick", &group));
    snprintf(path, size, "%s/report.csv", folder);
    const char *words[24] = {"ncu", "--csv",           "--page", "raw", "--target-processes",
                             "all", "--clock-control", "none"};
    size_t n = 8;
    words[n++] = group ? "--metrics" : "--set";
    words[n++] = group ? few_metrics : "full";
    if (group) words[n++] = "--launch-count", words[n++] = LAUNCHES;
    if (group && group->kernels) words[n++] = "--kernel-name", words[n++] = group->kernels;
    words[n++] = "--log-file", words[n++] = path;
    if (group) say_bounds(group);
    SOL_TRY(run_tool(words, command, exit_status));
    SOL_TRY(check_made("ncu", path, *exit_status));
    return check_ncu(path);
}

/* ---- by the injected library, with CUPTI's range profiler ---- */

/* few_metrics as CUPTI wants them: names alone, and without what ncu works out of the launch. */
static enum sol_status metric_names(char *out, size_t size)
{
    size_t n = 0;
    for (const char *at = few_metrics; *at;) {
        size_t length = strcspn(at, ",");
        bool own = strncmp(at, "launch__", 8) == 0 || strncmp(at, "sm__maximum_warps", 17) == 0 ||
                   strncmp(at, "regex:", 6) == 0;
        if (!own) n += (size_t)snprintf(out + n, size - n, "%s%.*s", n ? "," : "", (int)length, at);
        at += length + (at[length] == ',');
    }
    for (int i = 0; i < STALL_COUNT && n < size; i++)
        n += (size_t)snprintf(out + n, size - n,
                              ",smsp__average_warps_issue_stalled_%s_per_issue_active.ratio",
                              stall_name((enum stall_reason)i));
    return n < size ? SOL_OK : status_set(SOL_E_INTERNAL, "more metrics than there is room for");
}

/* Of the processes that used CUDA the one that wrote most. */
static void find_counts(const char *folder, char *path, size_t size)
{
    struct dirent **entries;
    struct stat info;
    off_t most = -1;
    int n = scandir(folder, &entries, NULL, alphasort);
    *path = '\0';
    for (int i = 0; i < n; i++) {
        char file[PATH_SIZE];
        snprintf(file, sizeof file, "%s/%s", folder, entries[i]->d_name);
        if (strncmp(entries[i]->d_name, "counters-", 9) == 0 && stat(file, &info) == 0 &&
            info.st_size > most) {
            most = info.st_size;
            snprintf(path, size, "%s", file);
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

/* What the library says instead of counters. */
static enum sol_status check_counts(const char *path)
{
    char line[512] = "";
    FILE *file = NULL;
    if (*path) SOL_TRY(file_stream(path, &file));
    if (!file) return status_set(SOL_E_IO, "the command did not start CUDA: nothing was counted");
    if (!fgets(line, sizeof line, file)) line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    if (*line == '\0')
        return status_set(SOL_E_IO, "no kernel that was asked for was launched outside of a CUDA "
                                    "graph; ncu (--with ncu) counts those in graphs too");
    if (strncmp(line, "==ERROR== ", 10) != 0) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED,
                      "CUPTI counts nothing here: %s (counters need root, or the driver's option "
                      "NVreg_RestrictProfilingToAdminUsers=0)",
                      line + 10);
}

static enum sol_status with_cupti(const char *counters, char *const *command, const char *folder,
                                  char *path, size_t size, int *exit_status)
{
    const struct group *group;
    char library[PATH_SIZE], metrics[PATH_SIZE];
    SOL_TRY(find_group(counters ? counters : "quick", &group));
    SOL_TRY(metric_names(metrics, sizeof metrics));
    SOL_TRY(inject_library_install(folder, library, sizeof library));
    setenv("CUDA_INJECTION64_PATH", library, 1);
    setenv(TRACE_ENV_FOLDER, folder, 1);
    setenv(TRACE_ENV_LEVEL, "counters", 1);
    setenv(TRACE_ENV_COUNT_METRICS, metrics, 1);
    setenv(TRACE_ENV_COUNT_LAUNCHES, group ? LAUNCHES : "1000000000", 1);
    setenv(TRACE_ENV_COUNT_KERNELS, group && group->kernels ? group->kernels + 6 : "", 1);
    if (group) say_bounds(group);
    SOL_TRY(run_words(command, exit_status));
    find_counts(folder, path, size);
    return check_counts(path);
}

enum sol_status profile_with(const char *tool, const char *counters, enum trace_level level,
                             char *const *command, const char *folder, char *path, size_t size,
                             int *exit_status)
{
    if (!tool) tool = installed("ncu") ? "ncu" : "cupti";
    if (strcmp(tool, "cupti") == 0)
        return with_cupti(counters, command, folder, path, size, exit_status);
    if (counters && strcmp(tool, "ncu") != 0)
        return status_set(SOL_E_ARGUMENT, "--counters goes with ncu or cupti, not with %s", tool);
    const struct tool *t = NULL;
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strcmp(tools[i].name, tool) == 0) t = &tools[i];
    if (!t) return status_set(SOL_E_ARGUMENT, "--with %s: the tools are nsys, ncu and cupti", tool);
    if (!installed(t->name))
        return status_set(SOL_E_UNSUPPORTED,
                          "%s is not in PATH: install %s (it comes with the CUDA toolkit, and as "
                          "Debian's package %s), or leave --with out to trace with sol itself",
                          t->name, t->product, t->package);
    if (strcmp(tool, "ncu") == 0)
        return with_ncu(counters, command, folder, path, size, exit_status);
    return with_nsys(level, command, folder, path, size, exit_status);
}
