#include "driver/fake_cuda_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- streams, events, graphs ---- */

static void set_open(bool open)
{
    if (fake_cuda.open == open) return;
    fake_cuda.open = open;
    for (struct region *r = fake_cuda.regions; r; r = r->next)
        mprotect(r->data, r->mapped, fake_protection());
}

/* Behind one launch of seven all memory is hidden from the host. Hiding takes longer than a small
 * kernel, and a program that repeats itself comes to each of its places with the memory hidden. */
static cuda_result run_launch(const char *kernel, const struct cuda_launch *config,
                              const void *args)
{
    const fake_kernel_fn run = fake_cuda.params.run;
    set_open(true);
    fake_cuda.running++;
    if (fake_cuda.params.together) fake_give_lock(NULL);
    const cuda_result result = run(kernel, config, args);
    if (fake_cuda.params.together) fake_take_lock();
    if (--fake_cuda.running == 0 && fake_cuda.ran++ % 7 == 0) set_open(false);
    return result;
}

#define MAKE(out, what)                                                                            \
    do {                                                                                           \
        *(out) = fake_make(0, what);                                                               \
        if (!*(out)) return CUDA_E_MEMORY;                                                         \
    } while (0)

cuda_result fake_stream_create(cuda_stream *stream, unsigned flags)
{
    CALL_IN(fake_current);
    (void)flags;
    MAKE((void **)stream, "stream");
    return CUDA_OK;
}

cuda_result fake_stream_destroy(cuda_stream stream)
{
    return fake_unmake(__func__, stream);
}

cuda_result fake_stream_wait(cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    return CUDA_OK;
}

cuda_result fake_stream_query(cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    if (fake_cuda.busy == 0) return CUDA_OK;
    fake_cuda.busy--;
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
cuda_result fake_stream_wait_event(cuda_stream stream, cuda_event event, unsigned flags)
{
    CALL_IN(fake_of_stream(stream));
    if (!event || flags) return 1;
    return follow(fake_own_stream(stream), ((struct object *)event)->recorder);
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

cuda_result fake_capture_begin(cuda_stream stream, int mode)
{
    CALL_IN(fake_of_stream(stream));
    (void)mode;
    struct object *own = fake_own_stream(stream);
    if (!own) return CUDA_OK;
    fake_forget_recorded(own);
    *own = (struct object){own->bytes, own->context, .capturing = true, .name = "stream"};
    own->last = &own->recorded;
    return CUDA_OK;
}

static void hand_over(struct object *from, struct object *to)
{
    to->recorded = from->recorded;
    from->recorded = NULL;
}

cuda_result fake_capture_end(cuda_stream stream, cuda_graph *graph)
{
    CALL_IN(fake_of_stream(stream));
    MAKE((void **)graph, "graph");
    struct object *own = fake_own_stream(stream), *made = (struct object *)*graph;
    const size_t most = (size_t)fake_cuda.params.graph_most;
    if (own) made->kernels = most && own->kernels > most ? most : own->kernels;
    if (own) own->capturing = false;
    if (own) hand_over(own, made);
    return own ? part(own) : CUDA_OK;
}

cuda_result fake_graph_nodes(cuda_graph graph, cuda_graph_node *nodes, size_t *count)
{
    CALL_IN(fake_context_of(graph));
    const size_t have = ((struct object *)graph)->kernels;
    for (size_t i = 0; nodes && i < have && i < *count; i++) nodes[i] = (cuda_graph_node)graph;
    *count = have;
    return CUDA_OK;
}

cuda_result fake_graph_node_type(cuda_graph_node node, int *type)
{
    CALL_IN(fake_context_of(node));
    *type = CUDA_NODE_KERNEL;
    return CUDA_OK;
}

cuda_result fake_graph_instantiate(cuda_graph_exec *exec, cuda_graph graph,
                                   unsigned long long flags)
{
    CALL_IN(fake_context_of(graph));
    (void)flags;
    MAKE((void **)exec, "executable graph");
    struct object *made = (struct object *)*exec;
    hand_over((struct object *)graph, made);
    made->fresh = true;
    return CUDA_OK;
}

/* What was captured ran then, so that the first launch has nothing to do. */
cuda_result fake_graph_launch(cuda_graph_exec exec, cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    struct object *own = (struct object *)exec;
    cuda_result result = CUDA_OK;
    if (!fake_belongs(fake_context_of(exec))) return CUDA_E_HANDLE;
    const struct recorded *r = own->fresh ? NULL : own->recorded;
    for (own->fresh = false; r && result == CUDA_OK; r = r->next)
        result = run_launch(r->kernel, &r->config, r->args);
    return result;
}

cuda_result fake_graph_exec_destroy(cuda_graph_exec exec)
{
    return fake_unmake(__func__, exec);
}

cuda_result fake_graph_destroy(cuda_graph graph)
{
    return fake_unmake(__func__, graph);
}

cuda_result fake_event_create(cuda_event *event, unsigned flags)
{
    CALL_IN(fake_current);
    (void)flags;
    MAKE((void **)event, "event");
    return CUDA_OK;
}

cuda_result fake_event_destroy(cuda_event event)
{
    return fake_unmake(__func__, event);
}

cuda_result fake_event_record(cuda_event event, cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    struct object *own = fake_own_stream(stream);
    ((struct object *)event)->recorder = captured_by(own) ? own : NULL;
    return fake_belongs(fake_context_of(event)) ? CUDA_OK : CUDA_E_HANDLE;
}

cuda_result fake_event_wait(cuda_event event)
{
    CALL_IN(fake_context_of(event));
    return CUDA_OK;
}

cuda_result fake_event_elapsed(float *milliseconds, cuda_event start, cuda_event end)
{
    CALL_IN(fake_context_of(start));
    if (!fake_belongs(fake_context_of(end))) return CUDA_E_HANDLE;
    *milliseconds = 1;
    return CUDA_OK;
}

/* ---- kernels ---- */

cuda_result fake_module_load(cuda_module *module, const void *image)
{
    CALL_IN(fake_current);
    (void)image;
    MAKE((void **)module, "module");
    return CUDA_OK;
}

cuda_result fake_module_unload(cuda_module module)
{
    return fake_unmake(__func__, module);
}

cuda_result fake_module_function(cuda_function *function, cuda_module module, const char *name)
{
    CALL_IN(fake_context_of(module));
    for (int i = 0; i < FUNCTIONS_MAX; i++) {
        struct object *f = &fake_cuda.functions[i];
        if (!f->context) {
            f->context = fake_current;
            snprintf(f->name, sizeof f->name, "%s", name);
        }
        if (f->context != fake_current || strcmp(f->name, name) != 0) continue;
        *function = (cuda_function)f;
        return CUDA_OK;
    }
    return CUDA_E_NOT_FOUND;
}

cuda_result fake_function_attribute(int *value, int attribute, cuda_function function)
{
    CALL_IN(fake_context_of(function));
    *value = attribute == CUDA_FUNCTION_THREADS_MAX ? 1024 : 0;
    return CUDA_OK;
}

cuda_result fake_function_set(cuda_function function, int attribute, int value)
{
    CALL_IN(fake_context_of(function));
    (void)attribute;
    (void)value;
    return CUDA_OK;
}

cuda_result fake_occupancy(int *blocks, cuda_function function, int block_size, size_t shared_bytes)
{
    CALL_IN(fake_context_of(function));
    (void)shared_bytes;
    *blocks = block_size > 0 ? 2048 / block_size : 0;
    return CUDA_OK;
}

/* Only where launches do something. */
static bool record(struct object *stream, const char *kernel, const struct cuda_launch *config,
                   const void *args)
{
    size_t bytes = fake_cuda.params.args_bytes ? fake_cuda.params.args_bytes(kernel) : 0;
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

cuda_result fake_launch(const struct cuda_launch *config, cuda_function function, void **parameters,
                        void **extra)
{
    CALL_IN(fake_of_stream(config->stream));
    const struct object *f = (const struct object *)function;
    (void)extra;
    if (!fake_belongs(f->context)) return CUDA_E_HANDLE;
    struct object *own = fake_own_stream(config->stream), *by = captured_by(own);
    if (by) by->kernels++;
    if (by) own->apart = true;
    if (by && !record(by, f->name, config, parameters[0])) return CUDA_E_MEMORY;
    if (fake_cuda.params.run) return run_launch(f->name, config, parameters[0]);
    if (fake_cuda.n_launches == LAUNCHES_MAX) return 1;
    struct fake_launch *launch = &fake_cuda.launches[fake_cuda.n_launches++];
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

cuda_result fake_tensor_map_tiled(struct cuda_tensor_map *map, int type, uint32_t rank,
                                  void *address, const uint64_t *dims, const uint64_t *strides,
                                  const uint32_t *box, const uint32_t *element_strides,
                                  int interleave, int swizzle, int l2_promotion, int out_of_bounds)
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
