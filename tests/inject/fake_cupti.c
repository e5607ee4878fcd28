#include "inject/fake_cupti.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inject/cupti_abi.h"
#include "inject/cupti_profiler_abi.h"

#define EXPORT __attribute__((visibility("default")))

/* Runtime calls by number; hole at 3. */
static const char *const calls[] = {NULL,
                                    "cudaLaunchKernel_v7000",
                                    "cudaMemcpyAsync_v3020",
                                    NULL,
                                    "cudaGetDevice_v3020",
                                    "cudaStreamSynchronize_v3020",
                                    "cudaGraphLaunch_v10000"};
enum { N_CALLS = sizeof calls / sizeof *calls, KINDS = 64 };

static struct {
    pthread_mutex_t lock;
    cupti_request_fn request;
    cupti_complete_fn complete;
    uint8_t *buffer;
    size_t size, used;
    bool kinds[KINDS], call_on[N_CALLS];
    cupti_callback_fn callback; /* of the subscriber */
    bool launches_on, counting;
    size_t ranges;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool asked_for(const char *what)
{
    const char *mode = getenv("FAKE_CUPTI");
    return mode && strcmp(mode, what) == 0;
}

static size_t record_size(const void *record)
{
    switch (*(const uint32_t *)record) {
    case CUPTI_CONCURRENT_KERNEL:
        return sizeof(struct cupti_kernel);
    case CUPTI_MEMCPY:
        return sizeof(struct cupti_memcpy);
    case CUPTI_MEMCPY_PEER:
        return sizeof(struct cupti_memcpy_peer);
    case CUPTI_MEMSET:
        return sizeof(struct cupti_memset);
    case CUPTI_RUNTIME:
    case CUPTI_DRIVER:
        return sizeof(struct cupti_api);
    case CUPTI_SYNCHRONIZATION:
        return sizeof(struct cupti_synchronization);
    case CUPTI_OVERHEAD:
        return sizeof(struct cupti_overhead);
    case CUPTI_MARKER:
        return sizeof(struct cupti_marker);
    case CUPTI_ENVIRONMENT:
        return sizeof(struct cupti_environment);
    case CUPTI_MEMORY:
        return sizeof(struct cupti_memory);
    case CUPTI_DEVICE:
        return sizeof(struct cupti_device);
    case CUPTI_GRAPH_TRACE:
        return sizeof(struct cupti_graph_trace);
    default:
        return 16; /* a kind that the library does not know */
    }
}

/* Names are the fake's until the buffer was taken, then spoilt: whoever kept the pointer sees it.
 */
enum { NAMES_MAX = 1 << 16 };
static char *names[NAMES_MAX];
static size_t n_names;

static void own_name(void *record)
{
    struct cupti_kernel *kernel = record;
    if (kernel->kind != CUPTI_CONCURRENT_KERNEL || n_names == NAMES_MAX) return;
    names[n_names] = strdup(kernel->name);
    kernel->name = names[n_names++];
}

static void hand_over(void)
{
    uint8_t *buffer = fake.buffer;
    size_t used = fake.used;
    fake.buffer = NULL;
    fake.used = 0;
    if (!buffer) return;
    fake.complete(NULL, 0, buffer, fake.size, used);
    while (n_names > 0) {
        char *name = names[--n_names];
        memset(name, '#', strlen(name));
        free(name);
    }
}

EXPORT void fake_emit(const void *record, size_t size);
EXPORT void fake_emit(const void *record, size_t size)
{
    uint32_t kind = *(const uint32_t *)record;
    size_t max = 0;
    if (kind < KINDS && !fake.kinds[kind]) return;
    pthread_mutex_lock(&fake.lock);
    if (fake.buffer && fake.size - fake.used < size) hand_over();
    if (!fake.buffer) fake.request(&fake.buffer, &fake.size, &max);
    if (fake.buffer) {
        memcpy(fake.buffer + fake.used, record, size);
        own_name(fake.buffer + fake.used);
        fake.used += size;
    }
    pthread_mutex_unlock(&fake.lock);
}

EXPORT bool fake_call(const char *name, uint32_t *callback);
EXPORT bool fake_call(const char *name, uint32_t *callback)
{
    for (uint32_t i = 0; i < N_CALLS; i++)
        if (calls[i] && strcmp(calls[i], name) == 0) {
            *callback = i;
            return fake.call_on[i];
        }
    return false;
}

EXPORT int cuptiGetVersion(uint32_t *version);
EXPORT int cuptiGetVersion(uint32_t *version)
{
    *version = asked_for("old") ? 17 : 130001;
    return CUPTI_OK;
}

EXPORT int cuptiSubscribe(void **subscriber, cupti_callback_fn callback, void *user);
EXPORT int cuptiSubscribe(void **subscriber, cupti_callback_fn callback, void *user)
{
    (void)user;
    fake.callback = callback;
    *subscriber = &fake;
    return CUPTI_OK;
}

EXPORT int cuptiSubscribe_v2(void **subscriber, cupti_callback_fn callback, void *user,
                             struct cupti_subscriber_params *params);
EXPORT int cuptiSubscribe_v2(void **subscriber, cupti_callback_fn callback, void *user,
                             struct cupti_subscriber_params *params)
{
    if (!asked_for("rival")) return cuptiSubscribe(subscriber, callback, user);
    strncpy(params->rival, "CUPTI for other tool", params->rival_size - 1);
    return CUPTI_RIVAL;
}

EXPORT int cuptiActivityRegisterCallbacks(cupti_request_fn request, cupti_complete_fn complete);
EXPORT int cuptiActivityRegisterCallbacks(cupti_request_fn request, cupti_complete_fn complete)
{
    fake.request = request;
    fake.complete = complete;
    return CUPTI_OK;
}

EXPORT int cuptiActivityEnable(uint32_t kind);
EXPORT int cuptiActivityEnable(uint32_t kind)
{
    if (kind == CUPTI_CONCURRENT_KERNEL && asked_for("none")) return 35;
    if (kind < KINDS) fake.kinds[kind] = true;
    return CUPTI_OK;
}

EXPORT int cuptiActivityEnableRuntimeApi(uint32_t callback, uint8_t enable);
EXPORT int cuptiActivityEnableRuntimeApi(uint32_t callback, uint8_t enable)
{
    if (callback < N_CALLS) fake.call_on[callback] = enable;
    fake.kinds[CUPTI_RUNTIME] = true;
    return CUPTI_OK;
}

EXPORT int cuptiActivityEnableDriverApi(uint32_t callback, uint8_t enable);
EXPORT int cuptiActivityEnableDriverApi(uint32_t callback, uint8_t enable)
{
    (void)callback, (void)enable;
    return CUPTI_OK;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record);
EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + record_size(*record) : buffer;
    if (next >= buffer + valid) return CUPTI_END;
    *record = next;
    return CUPTI_OK;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped);
EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    *dropped = asked_for("dropped") ? 2 : 0;
    return CUPTI_OK;
}

EXPORT int cuptiActivityFlushAll(uint32_t flag);
EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    pthread_mutex_lock(&fake.lock);
    hand_over();
    pthread_mutex_unlock(&fake.lock);
    return CUPTI_OK;
}

EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t callback, const char **name);
EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t callback, const char **name)
{
    *name = domain == CUPTI_RUNTIME_DOMAIN && callback < N_CALLS ? calls[callback] : NULL;
    if (domain == CUPTI_DRIVER_DOMAIN && callback == 1) *name = "cuLaunchKernel";
    if (domain == CUPTI_DRIVER_DOMAIN && callback == 2) *name = "cuGraphLaunch";
    return *name ? CUPTI_OK : 1;
}

EXPORT int cuptiGetResultString(int result, const char **text);
EXPORT int cuptiGetResultString(int result, const char **text)
{
    *text = result == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_OK;
}

EXPORT int cuptiGetTimestamp(uint64_t *time);
EXPORT int cuptiGetTimestamp(uint64_t *time)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    return CUPTI_OK;
}

/* ---- the profiler: a metric's value is its number among those asked for + 100 x the range ---- */

EXPORT void fake_launch(const char *function, const char *symbol, const void *params);
EXPORT void fake_launch(const char *function, const char *symbol, const void *params)
{
    static int context;
    struct cupti_callback_data data = {CUPTI_SITE_ENTER, function, params, NULL, symbol, &context};
    if (fake.launches_on) fake.callback(NULL, CUPTI_DRIVER_DOMAIN, 1, &data);
    fake.ranges += fake.counting;
    data.site = CUPTI_SITE_EXIT;
    if (fake.launches_on) fake.callback(NULL, CUPTI_DRIVER_DOMAIN, 1, &data);
}

#define PROFILER(name, parameters, ...)                                                            \
    EXPORT int name parameters;                                                                    \
    EXPORT int name parameters                                                                     \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
        return CUPTI_OK;                                                                           \
    }
enum { NO_SUCH_METRIC = 1, NO_PRIVILEGES = 35 };

PROFILER(cuptiEnableCallback, (uint32_t on, void *who, uint32_t domain, uint32_t id), (void)who,
         (void)domain, (void)id;
         fake.launches_on = on)
PROFILER(cuptiProfilerInitialize, (struct cupti_profiler_initialize * p), (void)p)
PROFILER(cuptiDeviceGetChipName, (struct cupti_chip_name * p), p->chip = "GH100")
PROFILER(cuptiProfilerGetCounterAvailability, (struct cupti_counter_availability * p),
         p->image_size = 8)
PROFILER(cuptiProfilerHostInitialize, (struct cupti_host_initialize * p), p->host = &fake)
PROFILER(cuptiProfilerHostDeinitialize, (struct cupti_host_end * p), (void)p)
PROFILER(cuptiProfilerHostConfigAddMetrics, (struct cupti_host_metrics * p),
         for (size_t i = 0; i < p->count;
              i++) if (strstr(p->names[i], "imc_miss")) return NO_SUCH_METRIC)
PROFILER(cuptiProfilerHostGetConfigImageSize, (struct cupti_host_image_size * p), p->image_size = 8)
PROFILER(cuptiProfilerHostGetConfigImage, (struct cupti_host_image * p), memset(p->image, 1, 8))
PROFILER(cuptiProfilerHostEvaluateToGpuValues, (struct cupti_host_evaluate * p),
         for (size_t i = 0; i < p->count; i++) p->values[i] = 100.0 * (double)p->range + (double)i)
PROFILER(cuptiRangeProfilerEnable, (struct cupti_range_enable * p),
         if (asked_for("none")) return NO_PRIVILEGES;
         p->profiler = &fake)
PROFILER(cuptiRangeProfilerSetConfig, (struct cupti_range_config * p), (void)p)
PROFILER(cuptiRangeProfilerStart, (struct cupti_range_start * p), (void)p; fake.counting = true;
         fake.ranges = 0)
PROFILER(cuptiRangeProfilerStop, (struct cupti_range_stop * p), (void)p; fake.counting = false)
PROFILER(cuptiRangeProfilerDecodeData, (struct cupti_range_decode * p), (void)p)
PROFILER(cuptiRangeProfilerGetCounterDataSize, (struct cupti_range_data_size * p), p->data_size = 8)
PROFILER(cuptiRangeProfilerCounterDataImageInitialize, (struct cupti_range_data_init * p), (void)p)
PROFILER(cuptiRangeProfilerGetCounterDataInfo, (struct cupti_range_info * p),
         p->ranges = fake.ranges)
