/* The state of the fake driver (fake_cuda.h), which its files share: fake_cuda.c has devices and
 * what tests ask for, fake_cuda_memory.c memory, fake_cuda_streams.c streams, graphs and kernels.
 */
#ifndef DRIVER_FAKE_CUDA_PRIVATE_H
#define DRIVER_FAKE_CUDA_PRIVATE_H

#include "driver/fake_cuda.h"

enum {
    LAUNCHES_MAX = 1 << 17,
    ATTRIBUTES = 128,
    FUNCTIONS_MAX = 256,
    COUNTERS_MAX = 64,
    DEVICES_MAX = 16,
};

/* A device's primary context. */
struct context {
    int users;
    size_t bytes; /* of the device's memory taken */
};

/* A launch that a graph does again. */
struct recorded {
    struct recorded *next;
    const char *kernel;
    struct cuda_launch config;
    struct cuda_launch_attribute *attributes;
    char args[] __attribute__((aligned(64)));
};

/* What a handle points to. Pinned memory has it in front of the bytes. */
struct object {
    size_t bytes;
    struct context *context;
    size_t kernels;              /* of a graph; of a stream: since its capture began */
    bool capturing;              /* a stream */
    bool fresh;                  /* an executable graph: not launched yet */
    bool apart;                  /* a guest: its host does not wait for it yet */
    struct object *host, *guest; /* a stream whose capture this one's work is of; the other way */
    struct object *recorder;     /* of an event: the stream that it was recorded on last */
    struct recorded *recorded, **last; /* of a stream, then of its graph, then of the executable */
    char name[120];
};
_Static_assert(sizeof(struct object) % 16 == 0, "memory behind it stays aligned");

/* Device memory. Between copies it cannot be touched, so that host code that follows a device's
 * pointer ends with a fault here too. */
struct region {
    char *data;
    cuda_address address; /* as allocated: within data, to its end */
    size_t bytes, mapped;
    struct context *context;
    struct region *next;
    unsigned long long physical; /* what is mapped there, of physical_create; 0: memory_alloc's */
};

struct fake_cuda_state {
    struct fake_cuda_params params;
    long calls, live, fail_at, n_launches, fail_in, misuses;
    long busy;           /* queries of streams that are answered with "not yet" */
    long running;        /* launches */
    long ran;            /* launches that have ended */
    bool open;           /* all memory is in reach */
    char fail_field[32]; /* whose fail_in-th call from now is the first to fail; "" */
    cuda_result failure;
    bool sticky;
    struct context *fail_on; /* NULL: any */
    size_t copied;
    struct context contexts[DEVICES_MAX];
    struct fake_launch *launches;
    struct region *regions;
    struct object functions[FUNCTIONS_MAX]; /* of a context: its modules share them */
    struct {
        const char *field; /* "fake_" before the name */
        long calls;
    } counters[COUNTERS_MAX];
};

extern struct fake_cuda_state fake_cuda;
extern _Thread_local struct context *fake_current;
extern _Thread_local bool fake_lost; /* another one was to be current, and that failed */

int fake_take_lock(void);
void fake_give_lock(const int *taken);
/* Until the end of the function. */
#define LOCKED() __attribute__((cleanup(fake_give_lock), unused)) const int taken = fake_take_lock()

/* `caller` is the function of the table, fake_<field>. */
bool fake_fails(const char *caller);
/* Whether a call may be about something of this context, which is the thread's then. What is given
 * back though no context could be had is not wrong. */
bool fake_belongs(const struct context *context);
struct context *fake_context_of(const void *handle);
/* The object of a stream that was made; NULL: of one that each context has. */
struct object *fake_own_stream(cuda_stream stream);
/* NULL and small numbers are the streams that each context has without making them. */
struct context *fake_of_stream(cuda_stream stream);
void *fake_make(size_t bytes, const char *name);
/* Giving back always works, also after a failure that is reported: nothing would be left to do. */
cuda_result fake_unmake(const char *caller, void *object);
void fake_forget_recorded(struct object *o);
/* What device memory is mapped with now. */
int fake_protection(void);

/* First line of every function of the table, the second one of those that need a context. */
#define CALL()                                                                                     \
    LOCKED();                                                                                      \
    if (fake_fails(__func__)) return fake_cuda.failure
#define CALL_IN(context)                                                                           \
    CALL();                                                                                        \
    if (!fake_belongs(context)) return CUDA_E_CONTEXT

/* The functions of the driver's table. */
#define CUDA_FUNCTION(field, symbol, parameters) cuda_result fake_##field parameters;
#include "driver/cuda_functions.list"
#undef CUDA_FUNCTION

#endif
