#include "inject/counters.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inject/cupti.h"
#include "inject/cupti_profiler_abi.h"
#include "trace/trace_file.h"

enum {
    METRICS_MAX = 64,
    SESSION_MAX = 64, /* kernels between start and stop: room for their counters is made at once */
    DEVICE_ATTRIBUTE_SMS = 16,
    DEVICE_ATTRIBUTE_THREADS = 39, /* of an SM */
};

/* As the driver's callbacks hand them over. */
struct launch_params {
    void *function;
    uint32_t grid[3], block[3], shared;
    void *stream;
};
struct launch_ex_params {
    const struct {
        uint32_t grid[3], block[3], shared;
        void *stream;
    } * config;
    void *function;
};

struct launched {
    char *name;
    double waves, occupancy_limit; /* NAN: unknown */
};

#define PROFILER_MEMBER(field, symbol, parameters) int(*field) parameters;
static struct {
    const struct cupti *cupti;
    CUPTI_PROFILER_FUNCTIONS(PROFILER_MEMBER)
    /* The driver's own. */
    int (*is_capturing)(void *, int *);
    int (*blocks_fit)(int *, void *, int, size_t);
    int (*attribute)(int *, int, int);
    int (*device)(int *);
    /* Held from the beginning of a launch to its end: the order of launches names the ranges. */
    pthread_mutex_t launch;
    _Atomic(bool) finished; /* nothing is left to count */
    pid_t process;
    FILE *file;
    regex_t kernels;
    bool some, failed, started;
    char *metrics;
    const char *names[METRICS_MAX];
    size_t n_names;
    long limit, counted;
    void *context, *host, *profiler;
    uint8_t *image, *data;
    size_t image_size, data_size;
    struct launched session[SESSION_MAX];
    size_t n_session;
} counters = {.launch = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};
#undef PROFILER_MEMBER

static bool good(const char *what, int result)
{
    if (result == CUPTI_OK) return true;
    counters.failed = true;
    atomic_store(&counters.finished, true);
    fprintf(counters.file, "==ERROR== %s: %s\n", what, cupti_error(counters.cupti, result));
    fflush(counters.file);
    return false;
}

/* ---- the profiler ---- */

static int add_metrics(void *host, const char **names, size_t count)
{
    struct cupti_host_metrics metrics = {
        .size = sizeof metrics, .host = host, .names = names, .count = count};
    return counters.host_metrics(&metrics);
}

/* Those that this chip has. A metric that it does not have spoils the object that it was given to,
 * so each is tried with one of its own. */
static void choose_metrics(const struct cupti_host_initialize *like)
{
    size_t known = 0;
    for (size_t i = 0; i < counters.n_names; i++) {
        struct cupti_host_initialize host = *like;
        if (counters.host_initialize(&host) != CUPTI_OK) continue;
        if (add_metrics(host.host, &counters.names[i], 1) == CUPTI_OK)
            counters.names[known++] = counters.names[i];
        struct cupti_host_end end = {.size = sizeof end, .host = host.host};
        counters.host_end(&end);
    }
    counters.n_names = known;
}

static bool make_host(void)
{
    struct cupti_profiler_initialize init = {.size = sizeof init};
    struct cupti_chip_name chip = {.size = sizeof chip};
    struct cupti_counter_availability have = {.size = sizeof have, .context = counters.context};
    if (!good("starting the profiler", counters.initialize(&init)) ||
        !good("the chip's name", counters.chip_name(&chip)) ||
        !good("which counters there are", counters.availability(&have)))
        return false;
    have.image = malloc(have.image_size + 1); /* stays: CUPTI does not say that it copies it */
    struct cupti_host_initialize host = {.size = sizeof host,
                                         .type = CUPTI_RANGE_PROFILER,
                                         .chip = chip.chip,
                                         .availability = have.image};
    if (!have.image || !good("which counters there are", counters.availability(&have)))
        return false;
    choose_metrics(&host);
    if (!good("the profiler's host side", counters.host_initialize(&host))) return false;
    counters.host = host.host;
    return good("the metrics", add_metrics(host.host, counters.names, counters.n_names));
}

static bool make_image(void)
{
    struct cupti_host_image_size size = {.size = sizeof size, .host = counters.host};
    if (!good("the passes", counters.host_image_size(&size))) return false;
    counters.image_size = size.image_size;
    counters.image = malloc(size.image_size + 1);
    struct cupti_host_image image = {.size = sizeof image,
                                     .host = counters.host,
                                     .image_size = size.image_size,
                                     .image = counters.image};
    return counters.image && good("the passes", counters.host_image(&image));
}

static bool make_profiler(void)
{
    struct cupti_range_enable enable = {.size = sizeof enable, .context = counters.context};
    if (!good("counting", counters.range_enable(&enable))) return false;
    counters.profiler = enable.profiler;
    struct cupti_range_data_size size = {.size = sizeof size,
                                         .profiler = counters.profiler,
                                         .names = counters.names,
                                         .count = counters.n_names,
                                         .ranges_max = SESSION_MAX,
                                         .nodes_max = SESSION_MAX};
    if (!good("room for counters", counters.range_data_size(&size))) return false;
    counters.data_size = size.data_size;
    counters.data = malloc(size.data_size + 1);
    return counters.data != NULL;
}

static bool start_session(void)
{
    struct cupti_range_data_init init = {.size = sizeof init,
                                         .profiler = counters.profiler,
                                         .data_size = counters.data_size,
                                         .data = counters.data};
    struct cupti_range_config config = {
        .size = offsetof(struct cupti_range_config, nesting_target) + sizeof(uint16_t),
        .profiler = counters.profiler,
        .image_size = counters.image_size,
        .image = counters.image,
        .data_size = counters.data_size,
        .data = counters.data,
        .range = CUPTI_AUTO_RANGE,
        .replay = CUPTI_KERNEL_REPLAY,
        .ranges_max = SESSION_MAX,
        .nesting_levels = 1,
        .nesting_min = 1};
    struct cupti_range_start start = {.size = sizeof start, .profiler = counters.profiler};
    counters.started = good("room for counters", counters.range_data_init(&init)) &&
                       good("the passes", counters.range_config(&config)) &&
                       good("counting", counters.range_start(&start));
    return counters.started;
}

/* ---- the file ---- */

static void write_text(const char *text)
{
    fputc('"', counters.file);
    for (; *text; text++) {
        if (*text == '"') fputc('"', counters.file);
        fputc(*text == '\n' ? ' ' : *text, counters.file);
    }
    fputc('"', counters.file);
}

static void write_header(void)
{
    fprintf(counters.file, "\"ID\",\"Kernel Name\",\"launch__waves_per_multiprocessor\","
                           "\"sm__maximum_warps_per_active_cycle_pct\"");
    for (size_t i = 0; i < counters.n_names; i++)
        fprintf(counters.file, ",\"%s\"", counters.names[i]);
    fprintf(counters.file, "\n\"\",\"\",\"\",\"%%\"");
    for (size_t i = 0; i < counters.n_names; i++)
        fprintf(counters.file,
                strncmp(counters.names[i], "gpu__time", 9) == 0 ? ",\"ns\"" : ",\"\"");
    fputc('\n', counters.file);
}

static void write_number(double value)
{
    if (isfinite(value))
        fprintf(counters.file, ",\"%.17g\"", value);
    else
        fputs(",\"\"", counters.file);
}

static void write_row(const struct launched *kernel, size_t range)
{
    double values[METRICS_MAX];
    struct cupti_host_evaluate evaluate = {.size = sizeof evaluate,
                                           .host = counters.host,
                                           .data = counters.data,
                                           .data_size = counters.data_size,
                                           .range = range,
                                           .names = counters.names,
                                           .count = counters.n_names,
                                           .values = values};
    if (!good("reading counters", counters.host_evaluate(&evaluate))) return;
    if (counters.counted == 0) write_header();
    fprintf(counters.file, "\"%ld\",", counters.counted++);
    write_text(kernel->name);
    write_number(kernel->waves);
    write_number(kernel->occupancy_limit);
    for (size_t i = 0; i < counters.n_names; i++) write_number(values[i]);
    fputc('\n', counters.file);
}

/* Ranges come in the order of the launches, one each. */
static void stop_session(void)
{
    struct cupti_range_stop stop = {.size = offsetof(struct cupti_range_stop, all_passes) + 1,
                                    .profiler = counters.profiler};
    struct cupti_range_decode decode = {.size = sizeof decode, .profiler = counters.profiler};
    struct cupti_range_info info = {
        .size = sizeof info, .data = counters.data, .data_size = counters.data_size};
    if (!counters.started) return;
    counters.started = false;
    bool read = good("counting", counters.range_stop(&stop)) &&
                good("reading counters", counters.range_decode(&decode)) &&
                good("reading counters", counters.range_info(&info));
    if (read && info.ranges != counters.n_session)
        fprintf(counters.file, "==WARNING== %zu kernels were launched and %zu counted\n",
                counters.n_session, info.ranges);
    for (size_t i = 0; i < counters.n_session; i++) {
        if (read && info.ranges == counters.n_session) write_row(&counters.session[i], i);
        free(counters.session[i].name);
    }
    counters.n_session = 0;
    if (counters.counted >= counters.limit) atomic_store(&counters.finished, true);
    fflush(counters.file);
}

static void at_exit(void)
{
    if (getpid() != counters.process) return; /* CUPTI does not work in the child of a fork */
    pthread_mutex_lock(&counters.launch);
    stop_session();
    atomic_store(&counters.finished, true);
    pthread_mutex_unlock(&counters.launch);
}

/* ---- launches ---- */

static bool wanted(const char *symbol, void *stream)
{
    int capturing = 0;
    long waiting = (long)counters.n_session;
    if (counters.failed || counters.counted + waiting >= counters.limit || !symbol) return false;
    if (counters.is_capturing(stream, &capturing) != 0 || capturing) return false;
    return !counters.some || regexec(&counters.kernels, symbol, 0, NULL, 0) == 0;
}

/* Figures of a launch that no counter holds: how full its blocks can make an SM, and how often. */
static void add_shape(struct launched *kernel, const struct launch_params *p)
{
    int blocks = 0, sms = 0, threads = 0, device = 0;
    double block = (double)p->block[0] * p->block[1] * p->block[2];
    double grid = (double)p->grid[0] * p->grid[1] * p->grid[2];
    kernel->waves = kernel->occupancy_limit = (double)NAN;
    if (counters.device(&device) != 0 ||
        counters.attribute(&sms, DEVICE_ATTRIBUTE_SMS, device) != 0 ||
        counters.attribute(&threads, DEVICE_ATTRIBUTE_THREADS, device) != 0 ||
        counters.blocks_fit(&blocks, p->function, (int)block, p->shared) != 0 || blocks <= 0 ||
        sms <= 0 || threads <= 0)
        return;
    kernel->waves = grid / (blocks * (double)sms);
    kernel->occupancy_limit = 100 * blocks * block / threads;
}

static void begin_kernel(const struct cupti_callback_data *call, const struct launch_params *p)
{
    bool want = wanted(call->symbol, p->stream);
    if (want && !counters.context) {
        counters.context = call->context;
        atexit(at_exit); /* now, to run before the CUDA runtime's own */
        if (!make_host() || !make_image() || !make_profiler()) return;
    }
    want = want && call->context == counters.context;
    if (!want || counters.n_session == SESSION_MAX) stop_session();
    if (!want || (!counters.started && !start_session())) return;
    struct launched *kernel = &counters.session[counters.n_session];
    kernel->name = strdup(call->symbol);
    add_shape(kernel, p);
    counters.n_session += kernel->name != NULL;
}

/* At the last one that is wanted nothing waits for a next launch to be told. */
static void end_kernel(void)
{
    if (counters.counted + (long)counters.n_session >= counters.limit) stop_session();
}

static __thread int held; /* launches of this thread that have begun; one may be within another */

static void called(void *user, uint32_t domain, uint32_t callback, const void *data)
{
    const struct cupti_callback_data *call = data;
    struct launch_params p = {NULL};
    (void)user, (void)callback;
    if (domain != CUPTI_DRIVER_DOMAIN) return;
    bool ex = strncmp(call->function, "cuLaunchKernelEx", 16) == 0;
    bool kernel = ex || strncmp(call->function, "cuLaunch", 8) == 0;
    if (ex) {
        const struct launch_ex_params *from = call->params;
        memcpy(p.grid, from->config->grid, sizeof p.grid);
        memcpy(p.block, from->config->block, sizeof p.block);
        p.shared = from->config->shared;
        p.stream = from->config->stream;
        p.function = from->function;
    } else if (kernel) {
        p = *(const struct launch_params *)call->params;
    }
    if (call->site == CUPTI_SITE_ENTER) {
        if (atomic_load(&counters.finished) || getpid() != counters.process) return;
        pthread_mutex_lock(&counters.launch);
        held++;
        if (kernel)
            begin_kernel(call, &p);
        else
            stop_session(); /* a graph runs, or a capture begins */
    } else if (held > 0) {
        end_kernel();
        held--;
        pthread_mutex_unlock(&counters.launch);
    }
}

/* ---- starting ---- */

static bool enable_calls(void *subscriber)
{
    static const char *const names[] = {"cuLaunchKernel",
                                        "cuLaunchKernel_ptsz",
                                        "cuLaunchKernelEx",
                                        "cuLaunchKernelEx_ptsz",
                                        "cuLaunchCooperativeKernel",
                                        "cuLaunchCooperativeKernel_ptsz",
                                        "cuGraphLaunch",
                                        "cuGraphLaunch_ptsz",
                                        "cuStreamBeginCapture_v2",
                                        "cuStreamBeginCapture_v2_ptsz",
                                        "cuStreamBeginCaptureToGraph",
                                        "cuStreamBeginCaptureToGraph_ptsz"};
    enum { CALLS_MAX = 4096, END_AFTER = 64 };
    bool all = true;
    for (uint32_t id = 1, misses = 0; id < CALLS_MAX && misses < END_AFTER; id++) {
        const char *name = NULL;
        bool known =
            counters.cupti->callback_name(CUPTI_DRIVER_DOMAIN, id, &name) == CUPTI_OK && name;
        misses = known ? 0 : misses + 1;
        for (size_t i = 0; known && i < sizeof names / sizeof *names; i++)
            if (strcmp(names[i], name) == 0)
                all = all && good("watching launches",
                                  counters.callback_on(1, subscriber, CUPTI_DRIVER_DOMAIN, id));
    }
    return all;
}

static bool load(void)
{
    const char *missing = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
#define LOAD(field, symbol, parameters)                                                            \
    *(void **)&counters.field = dlsym(counters.cupti->handle, #symbol);                            \
    if (!counters.field) missing = #symbol;
    CUPTI_PROFILER_FUNCTIONS(LOAD)
#undef LOAD
    *(void **)&counters.is_capturing = driver ? dlsym(driver, "cuStreamIsCapturing") : NULL;
    *(void **)&counters.blocks_fit =
        driver ? dlsym(driver, "cuOccupancyMaxActiveBlocksPerMultiprocessor") : NULL;
    *(void **)&counters.attribute = driver ? dlsym(driver, "cuDeviceGetAttribute") : NULL;
    *(void **)&counters.device = driver ? dlsym(driver, "cuCtxGetDevice") : NULL;
    if (!counters.is_capturing || !counters.blocks_fit || !counters.attribute || !counters.device)
        missing = "the CUDA driver";
    if (missing)
        fprintf(counters.file, "==ERROR== %s is missing: CUPTI of CUDA 13 is needed\n", missing);
    fflush(counters.file);
    return !missing;
}

/* Several processes: each its own file. */
static bool open_file(void)
{
    char path[4200];
    const char *folder = getenv(TRACE_ENV_FOLDER);
    struct timespec now; /* a program that becomes another one keeps its number */
    clock_gettime(CLOCK_REALTIME, &now);
    counters.process = getpid();
    snprintf(path, sizeof path, "%s/counters-%ld-%lld.csv", folder, (long)counters.process,
             (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    counters.file = fopen(path, "wxe");
    return counters.file != NULL;
}

void counters_start(const struct cupti *cupti)
{
    const char *metrics = getenv(TRACE_ENV_COUNT_METRICS),
               *limit = getenv(TRACE_ENV_COUNT_LAUNCHES);
    const char *kernels = getenv(TRACE_ENV_COUNT_KERNELS);
    char rival[128] = "";
    struct cupti_subscriber_params params = {sizeof params, "sol", rival, sizeof rival};
    void *subscriber = NULL;
    counters.cupti = cupti;
    counters.metrics = strdup(metrics ? metrics : "");
    counters.limit = limit ? strtol(limit, NULL, 10) : 0;
    counters.some = kernels && *kernels;
    if (!counters.metrics || !open_file() || !load()) return;
    if (counters.some && regcomp(&counters.kernels, kernels, REG_EXTENDED | REG_NOSUB) != 0) return;
    for (char *at = strtok(counters.metrics, ","); at && counters.n_names < METRICS_MAX;
         at = strtok(NULL, ","))
        counters.names[counters.n_names++] = at;
    int result = cupti->subscribe_named ? cupti->subscribe_named(&subscriber, called, NULL, &params)
                                        : cupti->subscribe(&subscriber, called, NULL);
    if (good("subscribing to CUPTI", result)) enable_calls(subscriber);
}

void counters_refuse(const char *why)
{
    if (!open_file()) return;
    fprintf(counters.file, "==ERROR== %s\n", why);
    fclose(counters.file);
}
