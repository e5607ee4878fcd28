#include "driver/fake_cuda_private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = sizeof "fake_" - 1 }; /* of functions of the table before the field's name */

struct fake_cuda_state fake_cuda;
_Thread_local struct context *fake_current;
_Thread_local bool fake_lost;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards it all */

int fake_take_lock(void)
{
    return pthread_mutex_lock(&lock);
}

void fake_give_lock(const int *taken)
{
    (void)taken;
    pthread_mutex_unlock(&lock);
}

bool fake_fails(const char *caller)
{
    int i = 0;
    while (i < COUNTERS_MAX - 1 && fake_cuda.counters[i].field &&
           fake_cuda.counters[i].field != caller)
        i++;
    fake_cuda.counters[i].field = caller;
    fake_cuda.counters[i].calls++;
    fake_cuda.calls++;
    if (fake_cuda.fail_on && fake_cuda.fail_on != fake_current) return false;
    if (*fake_cuda.fail_field && strcmp(caller + PREFIX, fake_cuda.fail_field) == 0 &&
        --fake_cuda.fail_in == 0) {
        *fake_cuda.fail_field = '\0';
        fake_cuda.fail_at = fake_cuda.calls;
    }
    return fake_cuda.fail_at && (fake_cuda.sticky ? fake_cuda.calls >= fake_cuda.fail_at
                                                  : fake_cuda.calls == fake_cuda.fail_at);
}

bool fake_belongs(const struct context *context)
{
    bool right = context && context == fake_current && context->users > 0;
    fake_cuda.misuses += !right && !fake_lost;
    return right;
}

struct context *fake_context_of(const void *handle)
{
    return ((const struct object *)handle)->context;
}

struct object *fake_own_stream(cuda_stream stream)
{
    return (uintptr_t)stream > CUDA_STREAM_PER_THREAD ? (struct object *)stream : NULL;
}

struct context *fake_of_stream(cuda_stream stream)
{
    return (uintptr_t)stream > CUDA_STREAM_PER_THREAD ? fake_context_of(stream) : fake_current;
}

void *fake_make(size_t bytes, const char *name)
{
    struct object *o = calloc(1, sizeof *o + bytes);
    if (!o) return NULL;
    o->bytes = bytes;
    o->context = fake_current;
    snprintf(o->name, sizeof o->name, "%s", name);
    fake_cuda.live++;
    return o;
}

void fake_forget_recorded(struct object *o)
{
    for (struct recorded *r; (r = o->recorded); free(r)) {
        o->recorded = r->next;
        free(r->attributes);
    }
}

cuda_result fake_unmake(const char *caller, void *object)
{
    LOCKED();
    bool failed = fake_fails(caller);
    if (object) fake_belongs(fake_context_of(object));
    if (object) fake_cuda.live--;
    if (object) fake_forget_recorded(object);
    free(object);
    return failed ? fake_cuda.failure : CUDA_OK;
}

/* ---- device ---- */

cuda_result fake_init(unsigned flags)
{
    CALL();
    return flags ? 1 : CUDA_OK;
}

cuda_result fake_driver_version(int *version)
{
    CALL();
    *version = fake_cuda.params.driver ? fake_cuda.params.driver : 13000;
    return CUDA_OK;
}

static const struct {
    cuda_result error;
    const char *name, *text;
} errors[] = {
    {CUDA_E_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_E_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_E_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_E_ECC, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CUDA_E_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_E_LAUNCH, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {0, "CUDA_ERROR_FAKE", "made up"},
};

cuda_result fake_error_name(cuda_result error, const char **text)
{
    int i = 0;
    while (errors[i].error && errors[i].error != error) i++;
    *text = errors[i].name;
    return CUDA_OK;
}

cuda_result fake_error_string(cuda_result error, const char **text)
{
    int i = 0;
    while (errors[i].error && errors[i].error != error) i++;
    *text = errors[i].text;
    return CUDA_OK;
}

cuda_result fake_device_count(int *count)
{
    CALL();
    *count = fake_cuda.params.devices;
    return CUDA_OK;
}

cuda_result fake_device_get(cuda_device *device, int ordinal)
{
    CALL();
    *device = ordinal;
    return ordinal < fake_cuda.params.devices ? CUDA_OK : 101;
}

cuda_result fake_device_name(char *name, int size, cuda_device device)
{
    CALL();
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return CUDA_OK;
}

cuda_result fake_device_memory(size_t *bytes, cuda_device device)
{
    CALL();
    (void)device;
    *bytes = fake_cuda.params.memory;
    return CUDA_OK;
}

cuda_result fake_device_attribute(int *value, int attribute, cuda_device device)
{
    CALL();
    (void)device;
    static const int values[ATTRIBUTES] = {
        [CUDA_ATTRIBUTE_CLOCK_KHZ] = 1000000,        [CUDA_ATTRIBUTE_SM_COUNT] = 4,
        [CUDA_ATTRIBUTE_MEMORY_CLOCK_KHZ] = 1000000, [CUDA_ATTRIBUTE_MEMORY_BUS_BITS] = 512,
        [CUDA_ATTRIBUTE_L2_BYTES] = 1 << 20,         [CUDA_ATTRIBUTE_SHARED_PER_SM] = 100 << 10,
        [CUDA_ATTRIBUTE_REGISTERS_PER_SM] = 65536,   [CUDA_ATTRIBUTE_SHARED_PER_BLOCK] = 99 << 10,
    };
    *value = attribute >= 0 && attribute < ATTRIBUTES ? values[attribute] : 0;
    if (attribute == CUDA_ATTRIBUTE_MAJOR) *value = fake_cuda.params.major;
    if (attribute == CUDA_ATTRIBUTE_MINOR) *value = fake_cuda.params.minor;
    if (attribute == CUDA_ATTRIBUTE_SM_COUNT && fake_cuda.params.sms) *value = fake_cuda.params.sms;
    if (attribute == CUDA_ATTRIBUTE_SHARED_PER_SM && fake_cuda.params.shared_per_sm)
        *value = fake_cuda.params.shared_per_sm;
    if (attribute == CUDA_ATTRIBUTE_SHARED_PER_BLOCK && fake_cuda.params.shared_per_sm)
        *value = fake_cuda.params.shared_per_sm - (1 << 10); /* the system's */
    if (attribute == CUDA_ATTRIBUTE_INTEGRATED || attribute == CUDA_ATTRIBUTE_PAGEABLE_HOST_ACCESS)
        *value = fake_cuda.params.shared;
    return CUDA_OK;
}

cuda_result fake_device_pci(char *id, int size, cuda_device device)
{
    CALL();
    snprintf(id, (size_t)size, "0000:%02x:00.0", device);
    return CUDA_OK;
}

cuda_result fake_device_reaches(int *yes, cuda_device device, cuda_device other)
{
    CALL();
    *yes = device != other && !fake_cuda.params.apart;
    return CUDA_OK;
}

cuda_result fake_context_retain(cuda_context *context, cuda_device device)
{
    CALL();
    fake_cuda.contexts[device].users++;
    fake_cuda.live++;
    *context = (cuda_context)&fake_cuda.contexts[device];
    return CUDA_OK;
}

cuda_result fake_context_release(cuda_device device)
{
    LOCKED();
    bool failed = fake_fails(__func__);
    fake_cuda.contexts[device].users--;
    fake_cuda.live--;
    return failed ? fake_cuda.failure : CUDA_OK;
}

cuda_result fake_context_get(cuda_context *context)
{
    CALL();
    *context = (cuda_context)fake_current;
    return CUDA_OK;
}

cuda_result fake_context_set(cuda_context context)
{
    LOCKED();
    fake_lost = fake_fails(__func__);
    if (fake_lost) return fake_cuda.failure;
    fake_current = (struct context *)context;
    return CUDA_OK;
}

/* ---- control ---- */

static const struct cuda_api table = {
#define CUDA_FUNCTION(field, symbol, parameters) .field = fake_##field,
#include "driver/cuda_functions.list"
#undef CUDA_FUNCTION
};

const struct cuda_api *fake_cuda_start(const struct fake_cuda_params *params)
{
    fake_cuda_stop();
    LOCKED();
    fake_cuda.params = *params;
    if (fake_cuda.params.devices > DEVICES_MAX) fake_cuda.params.devices = DEVICES_MAX;
    fake_cuda.launches = calloc(LAUNCHES_MAX, sizeof *fake_cuda.launches);
    return fake_cuda.launches ? &table : NULL;
}

void fake_cuda_stop(void)
{
    LOCKED();
    free(fake_cuda.launches);
    memset(&fake_cuda, 0, sizeof fake_cuda);
    fake_current = NULL;
    fake_lost = false;
}

void fake_cuda_fail(long n, cuda_result result, bool sticky)
{
    LOCKED();
    fake_cuda.fail_at = n ? fake_cuda.calls + n : 0;
    fake_cuda.failure = result;
    fake_cuda.sticky = sticky;
}

void fake_cuda_fail_in(const char *field, long n, cuda_result result, bool sticky)
{
    fake_cuda_fail(0, result, sticky);
    LOCKED();
    snprintf(fake_cuda.fail_field, sizeof fake_cuda.fail_field, "%s", field);
    fake_cuda.fail_in = n;
}

void fake_cuda_fail_on(int device)
{
    LOCKED();
    fake_cuda.fail_on = device < 0 ? NULL : &fake_cuda.contexts[device];
}

long fake_cuda_calls(void)
{
    LOCKED();
    return fake_cuda.calls;
}

long fake_cuda_count(const char *field)
{
    LOCKED();
    for (int i = 0; i < COUNTERS_MAX && fake_cuda.counters[i].field; i++)
        if (strcmp(fake_cuda.counters[i].field + PREFIX, field) == 0)
            return fake_cuda.counters[i].calls;
    return 0;
}

void fake_cuda_busy(long queries)
{
    LOCKED();
    fake_cuda.busy = queries;
}

size_t fake_cuda_copied(void)
{
    LOCKED();
    return fake_cuda.copied;
}

long fake_cuda_live(void)
{
    LOCKED();
    return fake_cuda.live;
}

size_t fake_cuda_bytes(void)
{
    LOCKED();
    size_t bytes = 0;
    for (int i = 0; i < DEVICES_MAX; i++) bytes += fake_cuda.contexts[i].bytes;
    return bytes;
}

long fake_cuda_misuses(void)
{
    LOCKED();
    return fake_cuda.misuses;
}

long fake_cuda_launches(void)
{
    LOCKED();
    return fake_cuda.n_launches;
}

const struct fake_launch *fake_cuda_launch(long index)
{
    LOCKED();
    return &fake_cuda.launches[index];
}
