#include "driver/fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
    size_t bytes, mapped;
    struct context *context;
    struct region *next;
    unsigned long long physical; /* what is mapped there, of physical_create; 0: memory_alloc's */
};

static struct {
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
        const char *field; /* "f_" before the name */
        long calls;
    } counters[COUNTERS_MAX];
} fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards it all */
static _Thread_local struct context *current;
static _Thread_local bool lost; /* another one was to be current, and that failed */

static int take_lock(void)
{
    return pthread_mutex_lock(&lock);
}

static void give_lock(const int *taken)
{
    (void)taken;
    pthread_mutex_unlock(&lock);
}

/* Until the end of the function. */
#define LOCKED() __attribute__((cleanup(give_lock), unused)) const int taken = take_lock()

/* `caller` is the function of the table, f_<field>. */
static bool fails(const char *caller)
{
    int i = 0;
    while (i < COUNTERS_MAX - 1 && fake.counters[i].field && fake.counters[i].field != caller) i++;
    fake.counters[i].field = caller;
    fake.counters[i].calls++;
    fake.calls++;
    if (fake.fail_on && fake.fail_on != current) return false;
    if (*fake.fail_field && strcmp(caller + 2, fake.fail_field) == 0 && --fake.fail_in == 0) {
        *fake.fail_field = '\0';
        fake.fail_at = fake.calls;
    }
    return fake.fail_at && (fake.sticky ? fake.calls >= fake.fail_at : fake.calls == fake.fail_at);
}

/* Whether a call may be about something of this context, which is the thread's then. What is given
 * back though no context could be had is not wrong. */
static bool belongs(const struct context *context)
{
    bool right = context && context == current && context->users > 0;
    fake.misuses += !right && !lost;
    return right;
}

static struct context *of(const void *handle)
{
    return ((const struct object *)handle)->context;
}

/* The object of a stream that was made; NULL: of one that each context has. */
static struct object *own_stream(cuda_stream stream)
{
    return (uintptr_t)stream > CUDA_STREAM_PER_THREAD ? (struct object *)stream : NULL;
}

/* NULL and small numbers are the streams that each context has without making them. */
static struct context *of_stream(cuda_stream stream)
{
    return (uintptr_t)stream > CUDA_STREAM_PER_THREAD ? of(stream) : current;
}

/* First line of every function of the table, the second one of those that need a context. */
#define CALL()                                                                                     \
    LOCKED();                                                                                      \
    if (fails(__func__)) return fake.failure
#define CALL_IN(context)                                                                           \
    CALL();                                                                                        \
    if (!belongs(context)) return CUDA_E_CONTEXT

static void *make(size_t bytes, const char *name)
{
    struct object *o = calloc(1, sizeof *o + bytes);
    if (!o) return NULL;
    o->bytes = bytes;
    o->context = current;
    snprintf(o->name, sizeof o->name, "%s", name);
    fake.live++;
    return o;
}

static void forget_recorded(struct object *o)
{
    for (struct recorded *r; (r = o->recorded); free(r)) {
        o->recorded = r->next;
        free(r->attributes);
    }
}

/* Giving back always works, also after a failure that is reported: nothing would be left to do. */
static cuda_result unmake(const char *caller, void *object)
{
    LOCKED();
    bool failed = fails(caller);
    if (object) belongs(of(object));
    if (object) fake.live--;
    if (object) forget_recorded(object);
    free(object);
    return failed ? fake.failure : CUDA_OK;
}

/* ---- device ---- */

static cuda_result f_init(unsigned flags)
{
    CALL();
    return flags ? 1 : CUDA_OK;
}

static cuda_result f_driver_version(int *version)
{
    CALL();
    *version = fake.params.driver ? fake.params.driver : 13000;
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

static cuda_result f_error_name(cuda_result error, const char **text)
{
    int i = 0;
    while (errors[i].error && errors[i].error != error) i++;
    *text = errors[i].name;
    return CUDA_OK;
}

static cuda_result f_error_string(cuda_result error, const char **text)
{
    int i = 0;
    while (errors[i].error && errors[i].error != error) i++;
    *text = errors[i].text;
    return CUDA_OK;
}

static cuda_result f_device_count(int *count)
{
    CALL();
    *count = fake.params.devices;
    return CUDA_OK;
}

static cuda_result f_device_get(cuda_device *device, int ordinal)
{
    CALL();
    *device = ordinal;
    return ordinal < fake.params.devices ? CUDA_OK : 101;
}

static cuda_result f_device_name(char *name, int size, cuda_device device)
{
    CALL();
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return CUDA_OK;
}

static cuda_result f_device_memory(size_t *bytes, cuda_device device)
{
    CALL();
    (void)device;
    *bytes = fake.params.memory;
    return CUDA_OK;
}

static cuda_result f_device_attribute(int *value, int attribute, cuda_device device)
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
    if (attribute == CUDA_ATTRIBUTE_MAJOR) *value = fake.params.major;
    if (attribute == CUDA_ATTRIBUTE_MINOR) *value = fake.params.minor;
    if (attribute == CUDA_ATTRIBUTE_SHARED_PER_SM && fake.params.shared_per_sm)
        *value = fake.params.shared_per_sm;
    if (attribute == CUDA_ATTRIBUTE_INTEGRATED || attribute == CUDA_ATTRIBUTE_PAGEABLE_HOST_ACCESS)
        *value = fake.params.shared;
    return CUDA_OK;
}

static cuda_result f_device_pci(char *id, int size, cuda_device device)
{
    CALL();
    snprintf(id, (size_t)size, "0000:%02x:00.0", device);
    return CUDA_OK;
}

static cuda_result f_device_reaches(int *yes, cuda_device device, cuda_device other)
{
    CALL();
    *yes = device != other && !fake.params.apart;
    return CUDA_OK;
}

static cuda_result f_context_retain(cuda_context *context, cuda_device device)
{
    CALL();
    fake.contexts[device].users++;
    fake.live++;
    *context = (cuda_context)&fake.contexts[device];
    return CUDA_OK;
}

static cuda_result f_context_release(cuda_device device)
{
    LOCKED();
    bool failed = fails(__func__);
    fake.contexts[device].users--;
    fake.live--;
    return failed ? fake.failure : CUDA_OK;
}

static cuda_result f_context_get(cuda_context *context)
{
    CALL();
    *context = (cuda_context)current;
    return CUDA_OK;
}

static cuda_result f_context_set(cuda_context context)
{
    LOCKED();
    lost = fails(__func__);
    if (lost) return fake.failure;
    current = (struct context *)context;
    return CUDA_OK;
}

/* ---- memory ---- */

/* An allocation takes whole ones of them, as on a device. */
static const size_t memory_unit = (size_t)2 << 20;

static cuda_result f_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    CALL_IN(current);
    *free_bytes = fake.params.memory - current->bytes;
    *total_bytes = fake.params.memory;
    return CUDA_OK;
}

/* The region that holds [address, address + bytes); NULL: none does. */
static struct region *region_of(cuda_address address, size_t bytes)
{
    for (struct region *r = fake.regions; r; r = r->next) {
        cuda_address begin = (uintptr_t)r->data;
        if (address >= begin && address + bytes <= begin + r->mapped) return r;
    }
    return NULL;
}

static int protection(void)
{
    return fake.open ? PROT_READ | PROT_WRITE : PROT_NONE;
}

/* Memory that can be used until hide(); pinned memory always can, and has an address as well. */
static void *show(cuda_address address, size_t bytes)
{
    struct region *r = fake.open ? NULL : region_of(address, bytes);
    if (r) mprotect(r->data, r->mapped, PROT_READ | PROT_WRITE);
    return (void *)(uintptr_t)address;
}

static void hide(cuda_address address, size_t bytes)
{
    struct region *r = fake.open ? NULL : region_of(address, bytes);
    if (r) mprotect(r->data, r->mapped, PROT_NONE);
}

static cuda_result f_memory_alloc(cuda_address *address, size_t bytes)
{
    CALL_IN(current);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page;
    size_t units = (bytes + memory_unit - 1) / memory_unit * memory_unit;
    if (bytes == 0 || units > fake.params.memory - current->bytes) return CUDA_E_MEMORY;
    struct region *r = calloc(1, sizeof *r);
    if (!r) return CUDA_E_MEMORY;
    void *data = mmap(NULL, mapped, protection(), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        free(r);
        return CUDA_E_MEMORY;
    }
    *r = (struct region){data, units, mapped, current, fake.regions, 0};
    fake.regions = r;
    fake.live++;
    current->bytes += units;
    *address = (uintptr_t)data;
    return CUDA_OK;
}

static cuda_result f_memory_free(cuda_address address)
{
    LOCKED();
    bool failed = fails(__func__);
    struct region **at = &fake.regions;
    while (*at && (uintptr_t)(*at)->data != address) at = &(*at)->next;
    struct region *r = *at;
    fake.misuses += !r;
    if (!r) return 1;
    belongs(r->context);
    *at = r->next;
    fake.live--;
    r->context->bytes -= r->bytes;
    munmap(r->data, r->mapped);
    free(r);
    return failed ? fake.failure : CUDA_OK;
}

/* ---- memory that several devices reach ---- */

static cuda_result f_physical_create(unsigned long long *physical, size_t bytes,
                                     const struct cuda_physical *what, unsigned long long flags)
{
    CALL();
    struct context *c = &fake.contexts[what->place.device];
    if (flags || what->kind != CUDA_PHYSICAL_PINNED || what->place.kind != CUDA_PLACE_DEVICE ||
        bytes % memory_unit || !bytes)
        return CUDA_E_VALUE;
    if (bytes > fake.params.memory - c->bytes) return CUDA_E_MEMORY;
    struct object *o = make(0, "physical memory");
    if (!o) return CUDA_E_MEMORY;
    o->bytes = bytes;
    o->context = c;
    c->bytes += bytes;
    *physical = (uintptr_t)o;
    return CUDA_OK;
}

static cuda_result f_physical_release(unsigned long long physical)
{
    LOCKED();
    const bool failed = fails(__func__);
    struct object *o = (struct object *)(uintptr_t)physical;
    o->context->bytes -= o->bytes;
    fake.live--;
    free(o);
    return failed ? fake.failure : CUDA_OK;
}

static cuda_result f_address_reserve(cuda_address *address, size_t bytes, size_t alignment,
                                     cuda_address wanted, unsigned long long flags)
{
    CALL();
    if (alignment || wanted || flags || bytes % memory_unit || !bytes) return CUDA_E_VALUE;
    void *data = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return CUDA_E_MEMORY;
    fake.live++;
    *address = (uintptr_t)data;
    return CUDA_OK;
}

static cuda_result f_address_free(cuda_address address, size_t bytes)
{
    LOCKED();
    const bool failed = fails(__func__);
    munmap((void *)(uintptr_t)address, bytes);
    fake.live--;
    return failed ? fake.failure : CUDA_OK;
}

static cuda_result f_physical_map(cuda_address address, size_t bytes, size_t from,
                                  unsigned long long physical, unsigned long long flags)
{
    CALL();
    const struct object *o = (const struct object *)(uintptr_t)physical;
    if (from || flags || o->bytes != bytes) return CUDA_E_VALUE;
    struct region *r = calloc(1, sizeof *r);
    if (!r) return CUDA_E_MEMORY;
    *r = (struct region){.bytes = bytes, .mapped = bytes, .context = o->context};
    r->data = (char *)(uintptr_t)address;
    r->physical = physical;
    r->next = fake.regions;
    fake.regions = r;
    fake.live++;
    return CUDA_OK;
}

static cuda_result f_physical_unmap(cuda_address address, size_t bytes)
{
    LOCKED();
    const bool failed = fails(__func__);
    struct region **at = &fake.regions;
    while (*at && (uintptr_t)(*at)->data != address) at = &(*at)->next;
    struct region *r = *at;
    fake.misuses += !r || r->bytes != bytes || !r->physical;
    if (!r) return CUDA_E_VALUE;
    *at = r->next;
    fake.live--;
    free(r);
    return failed ? fake.failure : CUDA_OK;
}

static cuda_result f_access_set(cuda_address address, size_t bytes, const struct cuda_access *who,
                                size_t count)
{
    CALL();
    const struct region *r = region_of(address, bytes);
    if (!r) return CUDA_E_VALUE;
    for (size_t i = 0; i < count; i++) {
        const bool own = &fake.contexts[who[i].place.device] == r->context;
        if (who[i].flags != CUDA_ACCESS_READ_WRITE || (fake.params.apart && !own))
            return CUDA_E_VALUE;
    }
    /* Devices share the host's page tables: those that are running may have it at once. */
    mprotect(r->data, r->mapped, protection());
    return CUDA_OK;
}

static cuda_result f_host_alloc(void **address, size_t bytes, unsigned flags)
{
    CALL_IN(current);
    (void)flags;
    struct object *o = bytes ? make(bytes, "pinned memory") : NULL;
    if (!o) return CUDA_E_MEMORY;
    *address = o + 1;
    return CUDA_OK;
}

static cuda_result f_host_free(void *address)
{
    return unmake(__func__, (struct object *)address - 1);
}

static cuda_result f_copy_in(cuda_address to, const void *from, size_t bytes, cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    memcpy(show(to, bytes), from, bytes);
    hide(to, bytes);
    fake.copied += bytes;
    return CUDA_OK;
}

static cuda_result f_copy_out(void *to, cuda_address from, size_t bytes, cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    memcpy(to, show(from, bytes), bytes);
    hide(from, bytes);
    fake.copied += bytes;
    return CUDA_OK;
}

static cuda_result f_copy_on(cuda_address to, cuda_address from, size_t bytes, cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    memmove(show(to, bytes), show(from, bytes), bytes);
    hide(to, bytes);
    hide(from, bytes);
    return CUDA_OK;
}

static cuda_result f_copy_rows(const struct cuda_copy_rows *copy, cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    const struct cuda_rows_end *from = &copy->from, *to = &copy->to;
    if (from->kind != CUDA_MEMORY_DEVICE || to->kind != CUDA_MEMORY_DEVICE ||
        from->pitch < copy->width || to->pitch < copy->width)
        return CUDA_E_VALUE;
    for (size_t y = 0; y < copy->height; y++) {
        cuda_address a = from->device + y * from->pitch, b = to->device + y * to->pitch;
        memmove(show(b, copy->width), show(a, copy->width), copy->width);
        hide(b, copy->width);
        hide(a, copy->width);
    }
    return CUDA_OK;
}

static cuda_result f_fill_bytes(cuda_address to, unsigned char value, size_t count,
                                cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    memset(show(to, count), value, count);
    hide(to, count);
    return CUDA_OK;
}

/* ---- streams, events, graphs ---- */

static void set_open(bool open)
{
    if (fake.open == open) return;
    fake.open = open;
    for (struct region *r = fake.regions; r; r = r->next)
        mprotect(r->data, r->mapped, protection());
}

/* Behind one launch of seven all memory is hidden from the host. Hiding takes longer than a small
 * kernel, and a program that repeats itself comes to each of its places with the memory hidden. */
static cuda_result run_launch(const char *kernel, const struct cuda_launch *config,
                              const void *args)
{
    const fake_kernel_fn run = fake.params.run;
    set_open(true);
    fake.running++;
    if (fake.params.together) pthread_mutex_unlock(&lock);
    const cuda_result result = run(kernel, config, args);
    if (fake.params.together) pthread_mutex_lock(&lock);
    if (--fake.running == 0 && fake.ran++ % 7 == 0) set_open(false);
    return result;
}

#define MAKE(out, what)                                                                            \
    do {                                                                                           \
        *(out) = make(0, what);                                                                    \
        if (!*(out)) return CUDA_E_MEMORY;                                                         \
    } while (0)

static cuda_result f_stream_create(cuda_stream *stream, unsigned flags)
{
    CALL_IN(current);
    (void)flags;
    MAKE((void **)stream, "stream");
    return CUDA_OK;
}

static cuda_result f_stream_destroy(cuda_stream stream)
{
    return unmake(__func__, stream);
}

static cuda_result f_stream_wait(cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    return CUDA_OK;
}

static cuda_result f_stream_query(cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    if (fake.busy == 0) return CUDA_OK;
    fake.busy--;
    return CUDA_E_NOT_READY;
}

/* A stream that waits for one that is captured is captured with it, until that one waits for it.
 * One guest is enough for sol. */
static cuda_result follow(struct object *stream, struct object *recorder)
{
    if (!stream || !recorder || stream == recorder) return CUDA_OK;
    if (recorder->host == stream) recorder->apart = false;
    if (!recorder->capturing) return CUDA_OK;
    if (stream->capturing || (recorder->guest && recorder->guest != stream)) return 1;
    stream->host = recorder;
    recorder->guest = stream;
    stream->apart = true;
    return CUDA_OK;
}

/* The event may be of any context. */
static cuda_result f_stream_wait_event(cuda_stream stream, cuda_event event, unsigned flags)
{
    CALL_IN(of_stream(stream));
    if (!event || flags) return 1;
    return follow(own_stream(stream), ((struct object *)event)->recorder);
}

/* The stream whose graph gets what is put on this one; NULL: none. */
static struct object *captured_by(struct object *stream)
{
    if (stream && stream->host) return stream->host;
    return stream && stream->capturing ? stream : NULL;
}

/* CUDA_ERROR_STREAM_CAPTURE_UNJOINED */
static cuda_result part(struct object *host)
{
    struct object *guest = host->guest;
    const bool apart = guest && guest->apart;
    if (guest) guest->host = NULL, guest->apart = false;
    host->guest = NULL;
    return apart ? 904 : CUDA_OK;
}

static cuda_result f_capture_begin(cuda_stream stream, int mode)
{
    CALL_IN(of_stream(stream));
    (void)mode;
    struct object *own = own_stream(stream);
    if (!own) return CUDA_OK;
    forget_recorded(own);
    *own = (struct object){own->bytes, own->context, .capturing = true, .name = "stream"};
    own->last = &own->recorded;
    return CUDA_OK;
}

static void hand_over(struct object *from, struct object *to)
{
    to->recorded = from->recorded;
    from->recorded = NULL;
}

static cuda_result f_capture_end(cuda_stream stream, cuda_graph *graph)
{
    CALL_IN(of_stream(stream));
    MAKE((void **)graph, "graph");
    struct object *own = own_stream(stream), *made = (struct object *)*graph;
    const size_t most = (size_t)fake.params.graph_most;
    if (own) made->kernels = most && own->kernels > most ? most : own->kernels;
    if (own) own->capturing = false;
    if (own) hand_over(own, made);
    return own ? part(own) : CUDA_OK;
}

static cuda_result f_graph_nodes(cuda_graph graph, cuda_graph_node *nodes, size_t *count)
{
    CALL_IN(of(graph));
    const size_t have = ((struct object *)graph)->kernels;
    for (size_t i = 0; nodes && i < have && i < *count; i++) nodes[i] = (cuda_graph_node)graph;
    *count = have;
    return CUDA_OK;
}

static cuda_result f_graph_node_type(cuda_graph_node node, int *type)
{
    CALL_IN(of(node));
    *type = CUDA_NODE_KERNEL;
    return CUDA_OK;
}

static cuda_result f_graph_instantiate(cuda_graph_exec *exec, cuda_graph graph,
                                       unsigned long long flags)
{
    CALL_IN(of(graph));
    (void)flags;
    MAKE((void **)exec, "executable graph");
    struct object *made = (struct object *)*exec;
    hand_over((struct object *)graph, made);
    made->fresh = true;
    return CUDA_OK;
}

/* What was captured ran then, so that the first launch has nothing to do. */
static cuda_result f_graph_launch(cuda_graph_exec exec, cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    struct object *own = (struct object *)exec;
    cuda_result result = CUDA_OK;
    if (!belongs(of(exec))) return CUDA_E_HANDLE;
    const struct recorded *r = own->fresh ? NULL : own->recorded;
    for (own->fresh = false; r && result == CUDA_OK; r = r->next)
        result = run_launch(r->kernel, &r->config, r->args);
    return result;
}

static cuda_result f_graph_exec_destroy(cuda_graph_exec exec)
{
    return unmake(__func__, exec);
}

static cuda_result f_graph_destroy(cuda_graph graph)
{
    return unmake(__func__, graph);
}

static cuda_result f_event_create(cuda_event *event, unsigned flags)
{
    CALL_IN(current);
    (void)flags;
    MAKE((void **)event, "event");
    return CUDA_OK;
}

static cuda_result f_event_destroy(cuda_event event)
{
    return unmake(__func__, event);
}

static cuda_result f_event_record(cuda_event event, cuda_stream stream)
{
    CALL_IN(of_stream(stream));
    struct object *own = own_stream(stream);
    ((struct object *)event)->recorder = captured_by(own) ? own : NULL;
    return belongs(of(event)) ? CUDA_OK : CUDA_E_HANDLE;
}

static cuda_result f_event_wait(cuda_event event)
{
    CALL_IN(of(event));
    return CUDA_OK;
}

static cuda_result f_event_elapsed(float *milliseconds, cuda_event start, cuda_event end)
{
    CALL_IN(of(start));
    if (!belongs(of(end))) return CUDA_E_HANDLE;
    *milliseconds = 1;
    return CUDA_OK;
}

/* ---- kernels ---- */

static cuda_result f_module_load(cuda_module *module, const void *image)
{
    CALL_IN(current);
    (void)image;
    MAKE((void **)module, "module");
    return CUDA_OK;
}

static cuda_result f_module_unload(cuda_module module)
{
    return unmake(__func__, module);
}

static cuda_result f_module_function(cuda_function *function, cuda_module module, const char *name)
{
    CALL_IN(of(module));
    for (int i = 0; i < FUNCTIONS_MAX; i++) {
        struct object *f = &fake.functions[i];
        if (!f->context) {
            f->context = current;
            snprintf(f->name, sizeof f->name, "%s", name);
        }
        if (f->context != current || strcmp(f->name, name) != 0) continue;
        *function = (cuda_function)f;
        return CUDA_OK;
    }
    return CUDA_E_NOT_FOUND;
}

static cuda_result f_function_attribute(int *value, int attribute, cuda_function function)
{
    CALL_IN(of(function));
    *value = attribute == CUDA_FUNCTION_THREADS_MAX ? 1024 : 0;
    return CUDA_OK;
}

static cuda_result f_function_set(cuda_function function, int attribute, int value)
{
    CALL_IN(of(function));
    (void)attribute;
    (void)value;
    return CUDA_OK;
}

static cuda_result f_occupancy(int *blocks, cuda_function function, int block_size,
                               size_t shared_bytes)
{
    CALL_IN(of(function));
    (void)shared_bytes;
    *blocks = block_size > 0 ? 2048 / block_size : 0;
    return CUDA_OK;
}

/* Only where launches do something. */
static bool record(struct object *stream, const char *kernel, const struct cuda_launch *config,
                   const void *args)
{
    size_t bytes = fake.params.args_bytes ? fake.params.args_bytes(kernel) : 0;
    size_t attributes = config->n_attributes * sizeof *config->attributes;
    if (!bytes) return true;
    struct recorded *r = aligned_alloc(64, (sizeof *r + bytes + 63) / 64 * 64);
    struct cuda_launch_attribute *copy = malloc(attributes + 1);
    if (!r || !copy) {
        free(r);
        free(copy);
        return false;
    }
    memcpy(r->args, args, bytes);
    if (attributes) memcpy(copy, config->attributes, attributes);
    r->next = NULL;
    r->kernel = kernel;
    r->config = *config;
    r->config.attributes = r->attributes = copy;
    *stream->last = r;
    stream->last = &r->next;
    return true;
}

static cuda_result f_launch(const struct cuda_launch *config, cuda_function function,
                            void **parameters, void **extra)
{
    CALL_IN(of_stream(config->stream));
    const struct object *f = (const struct object *)function;
    (void)extra;
    if (!belongs(f->context)) return CUDA_E_HANDLE;
    struct object *own = own_stream(config->stream), *by = captured_by(own);
    if (by) by->kernels++;
    if (by) own->apart = true;
    if (by && !record(by, f->name, config, parameters[0])) return CUDA_E_MEMORY;
    if (fake.params.run) return run_launch(f->name, config, parameters[0]);
    if (fake.n_launches == LAUNCHES_MAX) return 1;
    struct fake_launch *launch = &fake.launches[fake.n_launches++];
    *launch = (struct fake_launch){.kernel = f->name, .config = *config};
    for (unsigned i = 0; i < config->n_attributes; i++) {
        const struct cuda_launch_attribute *a = &config->attributes[i];
        if (a->id == CUDA_LAUNCH_PROGRAMMATIC) launch->programmatic = a->value.flag;
        if (a->id == CUDA_LAUNCH_SHARED) launch->shared = a->value.flag;
    }
    launch->config.attributes = NULL;
    return CUDA_OK;
}

enum { FAKE_U32 = 2 }; /* CUtensorMapDataType */

_Static_assert(sizeof(struct fake_tensor_map) <= sizeof(struct cuda_tensor_map), "it fits");

static cuda_result f_tensor_map_tiled(struct cuda_tensor_map *map, int type, uint32_t rank,
                                      void *address, const uint64_t *dims, const uint64_t *strides,
                                      const uint32_t *box, const uint32_t *element_strides,
                                      int interleave, int swizzle, int l2_promotion,
                                      int out_of_bounds)
{
    CALL();
    (void)element_strides, (void)interleave, (void)l2_promotion, (void)out_of_bounds;
    struct fake_tensor_map own = {.data = address,
                                  .rank = rank,
                                  .element_bytes = type == FAKE_U32 ? 4 : 2,
                                  .swizzle = (uint32_t)swizzle};
    memcpy(own.box, box, rank * sizeof *box);
    memcpy(own.sizes, dims, rank * sizeof *dims);
    memcpy(own.strides, strides, (rank - 1) * sizeof *strides);
    memset(map, 0, sizeof *map);
    memcpy(map, &own, sizeof own);
    return CUDA_OK;
}

/* ---- control ---- */

static const struct cuda_api table = {
#define CUDA_FUNCTION(field, symbol, parameters) .field = f_##field,
#include "driver/cuda_functions.list"
#undef CUDA_FUNCTION
};

const struct cuda_api *fake_cuda_start(const struct fake_cuda_params *params)
{
    fake_cuda_stop();
    LOCKED();
    fake.params = *params;
    if (fake.params.devices > DEVICES_MAX) fake.params.devices = DEVICES_MAX;
    fake.launches = calloc(LAUNCHES_MAX, sizeof *fake.launches);
    return fake.launches ? &table : NULL;
}

void fake_cuda_stop(void)
{
    LOCKED();
    free(fake.launches);
    memset(&fake, 0, sizeof fake);
    current = NULL;
    lost = false;
}

void fake_cuda_fail(long n, cuda_result result, bool sticky)
{
    LOCKED();
    fake.fail_at = n ? fake.calls + n : 0;
    fake.failure = result;
    fake.sticky = sticky;
}

void fake_cuda_fail_in(const char *field, long n, cuda_result result, bool sticky)
{
    fake_cuda_fail(0, result, sticky);
    LOCKED();
    snprintf(fake.fail_field, sizeof fake.fail_field, "%s", field);
    fake.fail_in = n;
}

void fake_cuda_fail_on(int device)
{
    LOCKED();
    fake.fail_on = device < 0 ? NULL : &fake.contexts[device];
}

long fake_cuda_calls(void)
{
    LOCKED();
    return fake.calls;
}

long fake_cuda_count(const char *field)
{
    LOCKED();
    for (int i = 0; i < COUNTERS_MAX && fake.counters[i].field; i++)
        if (strcmp(fake.counters[i].field + 2, field) == 0) return fake.counters[i].calls;
    return 0;
}

void fake_cuda_busy(long queries)
{
    LOCKED();
    fake.busy = queries;
}

size_t fake_cuda_copied(void)
{
    LOCKED();
    return fake.copied;
}

long fake_cuda_live(void)
{
    LOCKED();
    return fake.live;
}

size_t fake_cuda_bytes(void)
{
    LOCKED();
    size_t bytes = 0;
    for (int i = 0; i < DEVICES_MAX; i++) bytes += fake.contexts[i].bytes;
    return bytes;
}

long fake_cuda_misuses(void)
{
    LOCKED();
    return fake.misuses;
}

long fake_cuda_launches(void)
{
    LOCKED();
    return fake.n_launches;
}

const struct fake_launch *fake_cuda_launch(long index)
{
    LOCKED();
    return &fake.launches[index];
}
