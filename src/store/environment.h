/* Where and with what a run was made: everything that makes two results comparable or not. */
#ifndef STORE_ENVIRONMENT_H
#define STORE_ENVIRONMENT_H

#include <jansson.h>

#include "gpu/device.h"
#include "store/store.h"

/* What only the caller knows; fields may be NULL. */
struct environment_device {
    const char *name, *driver; /* of an accelerator; the processor is always described */
    const char *kernel_source; /* hash of the device code that runs */
};

struct environment_gpu {
    struct environment_device device;
    char driver[32], kernels[17];
};
/* What there is to say about a GPU, in *out; NULL where `gpu` is NULL. */
const struct environment_device *environment_of_gpu(const struct gpu *gpu,
                                                    struct environment_gpu *out);

/* {"host", "machine", "cpu", "cores", "memory_mib", "features", "governor", "max_mhz", "os",
 * "kernel", "sol", "build", "commit", "dirty", "device", "driver", "kernel_source"}, null where
 * unknown. "commit" and "dirty" (a hash of what differs from it) are of the git tree that holds
 * `folder`. Values that change by themselves, such as the present clock, are left out: the same
 * setup gives the same text. `device` may be NULL. NULL, with the message set, without memory. */
json_t *environment_json(const char *folder, const struct environment_device *device);

/* store_environment_add of that for the working directory, and store_run_begin with its id, `argv`
 * and the working directory filled in. */
enum sol_status environment_run_begin(struct store *store, const struct store_run *run, int argc,
                                      char *const *argv, const struct environment_device *device,
                                      char id[STORE_ID_SIZE]);

/* The commit that this sol was built from, "" where that was no git tree. */
const char *environment_build_commit(void);

/* Hash of the machine alone (processor, cores, memory, kernel, clocks): measured limits are kept by
 * it. */
void environment_machine_key(char out[STORE_HASH_SIZE]);

#endif
