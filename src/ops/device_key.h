/* What measurements of kernels, and verdicts on them, are good for: one device, its driver, this
 * program. Records of devices are kept under it, in the cache folder and in the store. */
#ifndef OPS_DEVICE_KEY_H
#define OPS_DEVICE_KEY_H

#include <stdbool.h>

#include "ops/op_kernels.h"

struct device_key {
    char device[96];              /* "NVIDIA H100 80GB HBM3"; "AMD EPYC 9R14, 4 threads" */
    char capability[96];          /* "9.0"; a CPU's features, "avx2 avx512" */
    char driver[24];              /* "CUDA 13.0"; "" for a CPU */
    char build[48];               /* "0.1.0 b49b102cd" */
    char kernels[17];             /* a hash of all device code; "" for a CPU */
    struct op_kernels op_kernels; /* of that of each op; no part of a digest */
};

/* SOL_E_IO where edited kernels cannot be read. */
enum sol_status device_key_of(const struct op_device *device, struct device_key *out);
enum sol_status device_key_of_gpu(const struct gpu *gpu, struct device_key *out);
/* Equal device and capability: with another driver or build the records are stale. */
bool device_key_same_device(const struct device_key *a, const struct device_key *b);
bool device_key_same(const struct device_key *a, const struct device_key *b);

/* A name for the record of `key` and of whatever else it depends on, in `more`. */
enum { DEVICE_KEY_DIGEST = 17 };
void device_key_digest(const struct device_key *key, const char *more, char out[DEVICE_KEY_DIGEST]);

#endif
