/* The part of CUPTI's profiling interface (CUPTI 13: range profiler and profiler host) that
 * counters.c uses, as cupti_abi.h for the rest. `size` is that of the struct as its version knows
 * it. */
#ifndef INJECT_CUPTI_PROFILER_ABI_H
#define INJECT_CUPTI_PROFILER_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { CUPTI_SITE_ENTER = 0, CUPTI_SITE_EXIT = 1 };
enum { CUPTI_RANGE_PROFILER = 0, CUPTI_AUTO_RANGE = 1, CUPTI_KERNEL_REPLAY = 2 };

struct cupti_callback_data {
    uint32_t site;
    const char *function;
    const void *params;
    void *result;
    const char *symbol; /* of a kernel */
    void *context;
};

struct cupti_profiler_initialize {
    size_t size;
    void *private;
};

struct cupti_chip_name {
    size_t size;
    void *private;
    size_t device;
    const char *chip;
};

struct cupti_counter_availability {
    size_t size;
    void *private, *context;
    size_t image_size;
    uint8_t *image;
};

struct cupti_host_initialize {
    size_t size;
    void *private;
    uint32_t type;
    const char *chip;
    const uint8_t *availability;
    void *host;
};

struct cupti_host_end {
    size_t size;
    void *private, *host;
};

struct cupti_host_metrics {
    size_t size;
    void *private, *host;
    const char **names;
    size_t count;
};

struct cupti_host_image_size {
    size_t size;
    void *private, *host;
    size_t image_size;
};

struct cupti_host_image {
    size_t size;
    void *private, *host;
    size_t image_size;
    uint8_t *image;
};

struct cupti_host_evaluate {
    size_t size;
    void *private, *host;
    const uint8_t *data;
    size_t data_size, range;
    const char **names;
    size_t count;
    double *values;
};

struct cupti_range_enable {
    size_t size;
    void *private, *context, *profiler;
};

struct cupti_range_config {
    size_t size;
    void *private, *profiler;
    size_t image_size;
    const uint8_t *image;
    size_t data_size;
    uint8_t *data;
    uint32_t range, replay;
    size_t ranges_max;
    uint16_t nesting_levels, nesting_min;
    size_t pass;
    uint16_t nesting_target;
};

struct cupti_range_start {
    size_t size;
    void *private, *profiler;
};

struct cupti_range_stop {
    size_t size;
    void *private, *profiler;
    size_t pass, nesting;
    uint8_t all_passes;
};

struct cupti_range_decode {
    size_t size;
    void *private, *profiler;
    size_t dropped;
};

struct cupti_range_data_size {
    size_t size;
    void *private, *profiler;
    const char **names;
    size_t count, ranges_max;
    uint32_t nodes_max;
    size_t data_size;
};

struct cupti_range_data_init {
    size_t size;
    void *private, *profiler;
    size_t data_size;
    uint8_t *data;
};

struct cupti_range_info {
    size_t size;
    void *private;
    const uint8_t *data;
    size_t data_size, ranges;
};

/* X(field, symbol, parameters): all needed, all return a result. */
#define CUPTI_PROFILER_FUNCTIONS(X)                                                                \
    X(callback_on, cuptiEnableCallback, (uint32_t, void *, uint32_t, uint32_t))                    \
    X(initialize, cuptiProfilerInitialize, (struct cupti_profiler_initialize *))                   \
    X(chip_name, cuptiDeviceGetChipName, (struct cupti_chip_name *))                               \
    X(availability, cuptiProfilerGetCounterAvailability, (struct cupti_counter_availability *))    \
    X(host_initialize, cuptiProfilerHostInitialize, (struct cupti_host_initialize *))              \
    X(host_end, cuptiProfilerHostDeinitialize, (struct cupti_host_end *))                          \
    X(host_metrics, cuptiProfilerHostConfigAddMetrics, (struct cupti_host_metrics *))              \
    X(host_image_size, cuptiProfilerHostGetConfigImageSize, (struct cupti_host_image_size *))      \
    X(host_image, cuptiProfilerHostGetConfigImage, (struct cupti_host_image *))                    \
    X(host_evaluate, cuptiProfilerHostEvaluateToGpuValues, (struct cupti_host_evaluate *))         \
    X(range_enable, cuptiRangeProfilerEnable, (struct cupti_range_enable *))                       \
    X(range_config, cuptiRangeProfilerSetConfig, (struct cupti_range_config *))                    \
    X(range_start, cuptiRangeProfilerStart, (struct cupti_range_start *))                          \
    X(range_stop, cuptiRangeProfilerStop, (struct cupti_range_stop *))                             \
    X(range_decode, cuptiRangeProfilerDecodeData, (struct cupti_range_decode *))                   \
    X(range_data_size, cuptiRangeProfilerGetCounterDataSize, (struct cupti_range_data_size *))     \
    X(range_data_init, cuptiRangeProfilerCounterDataImageInitialize,                               \
      (struct cupti_range_data_init *))                                                            \
    X(range_info, cuptiRangeProfilerGetCounterDataInfo, (struct cupti_range_info *))

#endif
