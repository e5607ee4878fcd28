/* libsol_inject.so: traces the CUDA program that loads it. The CUDA driver loads the file that
 * CUDA_INJECTION64_PATH names while it initializes and calls InitializeInjection; NVTX does the
 * same with NVTX_INJECTION64_PATH and InitializeInjectionNvtx2. At level `launch` the file is
 * preloaded instead, and CUPTI stays out of the process (hooks.h).
 *
 * Nothing here may change what the program does: no output, no exit status, no signal handlers, no
 * exceptions to its locks. When tracing is impossible the program runs on and the trace file says
 * why.
 *
 * How much is lost when a process ends: nothing when it returns from main or calls exit; with
 * _exit, exec, a crash or SIGKILL what the device finished in the last FLUSH_MS, plus what CUPTI
 * still held because a record in the same buffer was unfinished. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "inject/counters.h"
#include "inject/cupti.h"
#include "inject/hooks.h"
#include "inject/launches.h"
#include "inject/records.h"
#include "inject/writer.h"

#define EXPORT __attribute__((visibility("default")))
EXPORT int InitializeInjection(void);
EXPORT int InitializeInjectionNvtx2(void *get_table);

enum { LEVEL_OFF, LEVEL_GRAPH, LEVEL_NODE, LEVEL_LAUNCH, LEVEL_COUNTERS };

enum {
    /* CUPTI hands a buffer out when it is full and everything in it has finished, or at a flush
     * when everything in it has: small buffers leave little behind when the process is killed. */
    BUFFER_SIZE = 64 << 10,
    SPARE_MAX = 256, /* buffers kept for reuse */
    /* H100, CUPTI 13.0, steps of 0.24 ms as one graph: 200 ms lost up to 392 ms at _exit, 50 ms 88
       to 94 ms, and the time of a step was the same. */
    FLUSH_MS = 50,
};

static struct {
    struct cupti cupti;
    _Atomic(bool) tracing; /* of this process; false in the child of a fork */
    bool launches;         /* without CUPTI */
    pthread_mutex_t spare_lock;
    void *spare[SPARE_MAX];
    int n_spare;
} inject = {.spare_lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- buffers ---- */

static void buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
    void *taken = NULL;
    pthread_mutex_lock(&inject.spare_lock);
    if (inject.n_spare > 0) taken = inject.spare[--inject.n_spare];
    pthread_mutex_unlock(&inject.spare_lock);
    if (!taken && posix_memalign(&taken, 64, BUFFER_SIZE) != 0) taken = NULL;
    *buffer = taken; /* without one CUPTI drops records and counts them */
    *size = taken ? BUFFER_SIZE : 0;
    *max_records = 0;
}

static void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                             size_t valid)
{
    size_t dropped = 0;
    (void)size;
    writer_lock();
    if (buffer && valid) records_write(&inject.cupti, buffer, valid);
    if (inject.cupti.dropped(context, stream, &dropped) == CUPTI_OK) writer_lost(dropped, 0, 0);
    writer_unlock();
    if (!buffer) return;
    pthread_mutex_lock(&inject.spare_lock);
    bool keep = inject.n_spare < SPARE_MAX;
    if (keep) inject.spare[inject.n_spare++] = buffer;
    pthread_mutex_unlock(&inject.spare_lock);
    if (!keep) free(buffer);
}

/* ---- flushing ---- */

static void *flush_loop(void *arg)
{
    const struct timespec period = {0, FLUSH_MS * 1000000L};
    (void)arg;
    while (atomic_load(&inject.tracing)) {
        nanosleep(&period, NULL);
        if (!atomic_load(&inject.tracing)) break;
        if (inject.launches)
            launches_collect();
        else
            inject.cupti.flush_all(0);
        writer_lock();
        writer_flush();
        writer_unlock();
    }
    return NULL;
}

/* The program's signals must go to its own threads. */
static void start_flushing(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, flush_loop, NULL) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void at_exit(void)
{
    uint64_t now = 0;
    if (!atomic_exchange(&inject.tracing, false)) return;
    if (inject.launches) {
        launches_stop();
        now = (uint64_t)launches_now();
    } else {
        inject.cupti.flush_all(CUPTI_FLUSH_FORCED);
        if (inject.cupti.timestamp(&now) != CUPTI_OK) now = 0;
    }
    writer_lock();
    writer_end((int64_t)now);
    writer_unlock();
}

/* ---- fork ---- */

static void before_fork(void)
{
    writer_lock();
}

static void after_fork_parent(void)
{
    writer_unlock();
}

/* CUDA and CUPTI do not work in the child, which has none of their threads: no flush there, at exit
 * least of all. Should records come nevertheless, they go to a file of the child's own. */
static void after_fork_child(void)
{
    atomic_store(&inject.tracing, false);
    launches_forked();
    pthread_mutex_init(&inject.spare_lock, NULL);
    writer_forked();
}

/* ---- starting ---- */

/* Calls whose time matters to a profile: what starts work, waits, moves, allocates or loads. The
 * others, such as the attribute queries that frameworks make by the thousand, would cost more to
 * record than they take. */
static bool call_matters(const char *name)
{
    static const char *const parts[] = {
        "Launch",       "Synchronize", "Memcpy",       "Memset",       "Malloc",
        "Free",         "MemAlloc",    "MemFree",      "ModuleLoad",   "LibraryLoad",
        "GraphInstant", "EndCapture",  "EventQuery",   "StreamQuery",  "StreamWaitEv",
        "HostRegister", "HostAlloc",   "GraphExecUpd", "ModuleUnload", "HostUnregister",
        "MemPrefetch",  "LinkComplete"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

static void enable_calls(uint32_t domain, int (*enable)(uint32_t, uint8_t))
{
    enum { CALLS_MAX = 4096, END_AFTER = 64 }; /* numbers have no large holes */
    for (uint32_t id = 1, misses = 0; id < CALLS_MAX && misses < END_AFTER; id++) {
        const char *name = NULL;
        bool known = inject.cupti.callback_name(domain, id, &name) == CUPTI_OK && name;
        misses = known ? 0 : misses + 1;
        if (known && call_matters(name)) enable(id, 1);
    }
}

static void note(const char *text)
{
    writer_lock();
    writer_note(text);
    writer_unlock();
}

static void note_result(const char *what, int result)
{
    char text[256];
    const char *error = cupti_error(&inject.cupti, result);
    strcpy(text, what);
    strncat(text, ": ", sizeof text - strlen(text) - 1);
    strncat(text, error, sizeof text - strlen(text) - 1);
    note(text);
}

static void ignore_callback(void *user, uint32_t domain, uint32_t callback, const void *data)
{
    (void)user, (void)domain, (void)callback, (void)data;
}

/* Being the subscriber keeps other tracers in this process from taking over the buffers halfway. */
static bool subscribe(void)
{
    static void *subscriber;
    char rival[128] = "";
    struct cupti_subscriber_params params = {sizeof params, "sol", rival, sizeof rival};
    const struct cupti *cupti = &inject.cupti;
    int result = cupti->subscribe_named
                     ? cupti->subscribe_named(&subscriber, ignore_callback, NULL, &params)
                     : cupti->subscribe(&subscriber, ignore_callback, NULL);
    if (result == CUPTI_OK) return true;
    if (result == CUPTI_RIVAL) {
        char text[256] = "another profiler holds CUPTI, nothing was traced";
        rival[sizeof rival - 1] = '\0';
        if (*rival) {
            strcat(text, ": ");
            strcat(text, rival);
        }
        note(text);
    } else {
        note_result("cannot subscribe to CUPTI", result);
    }
    return false;
}

static bool enable_all(int level)
{
    static const uint32_t optional[] = {CUPTI_DEVICE,   CUPTI_MEMCPY_PEER, CUPTI_SYNCHRONIZATION,
                                        CUPTI_OVERHEAD, CUPTI_MARKER,      CUPTI_ENVIRONMENT,
                                        CUPTI_MEMORY};
    static const uint32_t required[] = {CUPTI_CONCURRENT_KERNEL, CUPTI_MEMCPY, CUPTI_MEMSET};
    const struct cupti *cupti = &inject.cupti;
    int result = cupti->register_callbacks(buffer_requested, buffer_completed);
    for (size_t i = 0; i < sizeof optional / sizeof *optional && result == CUPTI_OK; i++)
        cupti->enable(optional[i]);
    for (size_t i = 0; i < sizeof required / sizeof *required && result == CUPTI_OK; i++)
        result = cupti->enable(required[i]);
    if (result != CUPTI_OK) {
        note_result("CUPTI does not trace here", result);
        return false;
    }
    if (level == LEVEL_GRAPH && cupti->enable(CUPTI_GRAPH_TRACE) != CUPTI_OK)
        note("graphs are traced node by node: this CUPTI cannot trace them whole");
    enable_calls(CUPTI_RUNTIME_DOMAIN, cupti->enable_runtime);
    enable_calls(CUPTI_DRIVER_DOMAIN, cupti->enable_driver);
    return true;
}

static int level_of(const char *name)
{
    if (name && strcmp(name, "off") == 0) return LEVEL_OFF;
    if (name && strcmp(name, "launch") == 0) return LEVEL_LAUNCH;
    if (name && strcmp(name, "counters") == 0) return LEVEL_COUNTERS;
    return name && strcmp(name, "node") == 0 ? LEVEL_NODE : LEVEL_GRAPH;
}

static bool start_cupti(int level)
{
    char why[512];
    if (!cupti_load(&inject.cupti, getenv(TRACE_ENV_CUPTI), why, sizeof why)) {
        note(why);
        return false;
    }
    return subscribe() && enable_all(level);
}

static bool start_driver(void)
{
    struct driver driver;
    char why[256];
    inject.launches = true;
    if (hooks_driver(&driver, why, sizeof why)) return launches_start(&driver);
    note(why);
    return false;
}

/* Its results are a file of their own, no trace. */
static void start_counters(void)
{
    char why[512];
    if (cupti_load(&inject.cupti, getenv(TRACE_ENV_CUPTI), why, sizeof why)) {
        counters_start(&inject.cupti);
        return;
    }
    counters_refuse(why);
}

static void start(void)
{
    const char *folder = getenv(TRACE_ENV_FOLDER);
    int level = level_of(getenv(TRACE_ENV_LEVEL));
    if (!folder || level == LEVEL_OFF) return;
    if (level == LEVEL_COUNTERS) {
        start_counters();
        return;
    }
    if (!writer_open(folder, (uint32_t)level)) return;
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    atomic_store(&inject.tracing, true);
    if (!(level == LEVEL_LAUNCH ? start_driver() : start_cupti(level))) {
        atomic_store(&inject.tracing, false);
        writer_end(0);
        return;
    }
    writer_lock();
    writer_flush(); /* creates the file, so that a process without device work shows too */
    writer_unlock();
    atexit(at_exit);
    start_flushing();
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

int InitializeInjection(void)
{
    if (!inject_counts_launches()) pthread_once(&once, start);
    return 1; /* the driver goes on either way */
}

bool inject_counts_launches(void)
{
    static _Atomic(int) known; /* 0: not looked yet, 1: no, 2: yes */
    if (known == 0)
        known =
            getenv(TRACE_ENV_FOLDER) && level_of(getenv(TRACE_ENV_LEVEL)) == LEVEL_LAUNCH ? 2 : 1;
    return known == 2;
}

void inject_start_launches(void)
{
    if (inject_counts_launches()) pthread_once(&once, start);
}

/* NVTX calls go to CUPTI, which makes marker records of them. NVTX looks here before CUDA starts,
 * perhaps; then CUPTI is loaded now, and InitializeInjection finds it loaded. */
int InitializeInjectionNvtx2(void *get_table)
{
    static struct cupti cupti;
    char why[512];
    const char *folder = getenv(TRACE_ENV_FOLDER);
    if (!folder || level_of(getenv(TRACE_ENV_LEVEL)) == LEVEL_OFF || inject_counts_launches())
        return 0;
    if (!cupti_load(&cupti, getenv(TRACE_ENV_CUPTI), why, sizeof why)) return 0;
    return cupti.nvtx && cupti.nvtx(get_table) == CUPTI_OK; /* 1: accepted, 0: refused */
}
