#include "trace/sampler.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/threads.h"
#include "driver/nvml.h"
#include "trace/trace_file.h"

enum { PERIOD_MS = 250, DEVICES_MAX = 64, NAME_MAX_BYTES = 96 };

struct trace_sampler {
    const struct nvml_api *nvml;
    int file;
    unsigned n_devices;
    void *devices[DEVICES_MAX];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
};

/* One block with the records in [records, records + size). */
static void write_block(const struct trace_sampler *s, const void *records, size_t size)
{
    unsigned char bytes[sizeof(struct trace_block) + DEVICES_MAX * 256];
    struct trace_block block = {TRACE_BLOCK_MAGIC, (uint32_t)size,
                                trace_checksum(records, (uint32_t)size)};
    memcpy(bytes, &block, sizeof block);
    memcpy(bytes + sizeof block, records, size);
    ssize_t written = write(s->file, bytes, sizeof block + size);
    (void)written; /* a full disk costs the samples; the reader says so */
}

/* "GPU-478b0343-eea1-...": 16 bytes in hexadecimal. False when it is not. */
static bool parse_uuid(const char *text, uint8_t *uuid)
{
    size_t digits = 0;
    const char *c = strchr(text, '-');
    for (; c && *c && digits < 32; c++) {
        static const char hex[] = "0123456789abcdef";
        const char *digit = strchr(hex, *c);
        if (*c == '-') continue;
        if (!digit) return false;
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | (digit - hex));
        digits++;
    }
    return digits == 32;
}

static void write_device(const struct trace_sampler *s, unsigned index)
{
    struct {
        struct trace_record head;
        char text[NAME_MAX_BYTES];
        struct trace_device_record device;
    } r = {.head = {TRACE_STRING, sizeof r.head + sizeof r.text, index + 1}};
    char uuid[96] = "";
    r.device.record =
        (struct trace_record){TRACE_DEVICE, sizeof(struct trace_device_record), index + 1};
    r.device.device = index;
    if (s->nvml->name(s->devices[index], r.text, sizeof r.text - 1) != NVML_OK) r.text[0] = '\0';
    if (s->nvml->uuid(s->devices[index], uuid, sizeof uuid - 1) == NVML_OK &&
        parse_uuid(uuid, r.device.uuid))
        write_block(s, &r, sizeof r);
}

static void sample_all(const struct trace_sampler *s)
{
    struct trace_sample_record samples[DEVICES_MAX];
    struct timespec now;
    for (unsigned i = 0; i < s->n_devices; i++) {
        void *device = s->devices[i];
        unsigned value;
        unsigned long long reasons;
        clock_gettime(CLOCK_REALTIME, &now); /* CUPTI's clock too */
        struct trace_sample_record *r = &samples[i];
        *r = (struct trace_sample_record){
            .record = {TRACE_SAMPLE, sizeof *r, 0},
            .time = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
            .device = i,
            .temperature_c = INT32_MIN,
        };
        if (s->nvml->clock(device, NVML_CLOCK_SM, &value) == NVML_OK) r->sm_mhz = value;
        if (s->nvml->clock(device, NVML_CLOCK_MEMORY, &value) == NVML_OK) r->memory_mhz = value;
        if (s->nvml->power(device, &value) == NVML_OK) r->power_mw = value;
        if (s->nvml->power_limit(device, &value) == NVML_OK) r->power_limit_mw = value;
        if (s->nvml->temperature(device, NVML_SENSOR_GPU, &value) == NVML_OK)
            r->temperature_c = (int32_t)value;
        if (s->nvml->throttle(device, &reasons) == NVML_OK) r->throttle = (uint32_t)reasons;
    }
    write_block(s, samples, s->n_devices * sizeof *samples);
}

static void *loop(void *arg)
{
    struct trace_sampler *s = arg;
    struct timespec next;
    clock_gettime(CLOCK_REALTIME, &next);
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        pthread_mutex_unlock(&s->lock);
        sample_all(s);
        pthread_mutex_lock(&s->lock);
        next.tv_nsec += PERIOD_MS * 1000000L;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        while (!s->stop && pthread_cond_timedwait(&s->wake, &s->lock, &next) == 0)
            ;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static bool find_devices(struct trace_sampler *s)
{
    unsigned count = 0;
    s->nvml = nvml_load(NULL);
    if (!s->nvml || s->nvml->count(&count) != NVML_OK) return false;
    for (unsigned i = 0; i < count && s->n_devices < DEVICES_MAX; i++)
        if (s->nvml->device(i, &s->devices[s->n_devices]) == NVML_OK) s->n_devices++;
    return s->n_devices > 0;
}

static bool open_file(struct trace_sampler *s, const char *folder)
{
    char path[4200];
    struct trace_file_header header = {TRACE_FILE_MAGIC, TRACE_FILE_VERSION, sizeof header};
    snprintf(path, sizeof path, "%s/samples" TRACE_FILE_SUFFIX, folder);
    s->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (s->file < 0 || write(s->file, &header, sizeof header) != (ssize_t)sizeof header)
        return false;
    for (unsigned i = 0; i < s->n_devices; i++) write_device(s, i);
    return true;
}

static void release(struct trace_sampler *s)
{
    if (s->file >= 0) close(s->file);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s);
}

struct trace_sampler *trace_sampler_start(const char *folder)
{
    struct trace_sampler *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->file = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    if (find_devices(s) && open_file(s, folder) && thread_start(&s->thread, loop, s) == 0) return s;
    release(s);
    return NULL;
}

void trace_sampler_stop(struct trace_sampler *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    release(s);
}
