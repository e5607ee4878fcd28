/* Kernels by name, launches, and graphs of launches. Machine code comes from the images embedded in
 * the binary (kernels/, compiled by nvcc); where they have none for the device, or a folder of
 * sources is named, NVRTC compiles the source. */
#ifndef GPU_KERNEL_H
#define GPU_KERNEL_H

#include "gpu/device.h"

/* One file below kernels/. */
struct gpu_image {
    const char *name;   /* "train/norms.cu" */
    const void *fatbin; /* NULL: built without nvcc */
    const char *source; /* ends with a NUL */
};
struct gpu_source_header {
    const char *name; /* "common.cuh" */
    const char *text;
};
extern const struct gpu_image gpu_images[]; /* ends with name NULL */
extern const struct gpu_source_header gpu_headers[];

/* From now on `gpu` compiles kernels from this folder, laid out as kernels/, where it has the file.
 * Before the first gpu_kernel_find of a file. */
enum sol_status gpu_use_sources(struct gpu *gpu, const char *folder);

/* Of the device code as `gpu` would load it, of the files whose names begin with `folder` ("" for
 * all, a whole name for one) and the headers that they include: two runs with the same hash ran the
 * same kernels. */
enum sol_status gpu_sources_hash(const struct gpu *gpu, const char *folder, char out[17]);

struct gpu_kernel;
/* Kernel `function` (kept, not copied) of `image` for this device; loaded once. The handle lives as
 * long as `gpu`. SOL_E_UNSUPPORTED when there is no code for the device and none can be compiled.
 */
enum sol_status gpu_kernel_find(struct gpu *gpu, const char *image, const char *function,
                                const struct gpu_kernel **out);

struct gpu_kernel_info {
    int registers, shared_static, local, threads_max; /* local: bytes a thread, 0 without spills */
    bool compiled_here;                               /* by NVRTC */
    char source_hash[17];                             /* of the source it came from */
};
const struct gpu_kernel_info *gpu_kernel_info(const struct gpu_kernel *kernel);
/* Blocks of this size that fit on one SM at a time. */
enum sol_status gpu_kernel_occupancy(const struct gpu_kernel *kernel, int threads,
                                     size_t shared_bytes, int *blocks);

struct gpu_launch {
    unsigned grid[3], block[3]; /* 0 counts as 1 */
    unsigned shared_bytes;      /* dynamic */
    unsigned cluster;           /* blocks along x; 0: none */
    bool overlaps; /* may start while the kernel before it ends: it waits where its data matters */
    bool together; /* all blocks run at the same time, since they wait for each other */
};
/* `args` is the kernel's one parameter, a struct, copied. */
enum sol_status gpu_launch(struct gpu_stream *stream, const struct gpu_kernel *kernel,
                           const struct gpu_launch *launch, const void *args);

/* Finds and launches, for callers that put many launches on the stream and ask in the end: the
 * first failure is kept, later ones do nothing, and gpu_wait reports it. */
void gpu_put(struct gpu_stream *stream, const char *image, const char *function,
             const struct gpu_launch *launch, const void *args);

/* A tensor in device memory as the copy engine sees it: `sizes` in elements, innermost first;
 * `strides` in bytes, from the second dimension on, multiples of 16; `box` elements a copy. What
 * lies outside reads as 0. Source: CUDA Driver API, cuTensorMapEncodeTiled. */
enum gpu_element { GPU_U32 = 2, GPU_BF16 = 9 };
struct gpu_tensor {
    const void *data; /* 16-byte aligned */
    enum gpu_element element;
    unsigned rank; /* 2 to 5 */
    uint64_t sizes[5], strides[4];
    uint32_t box[5];
    bool swizzled; /* rows of 64 or 128 bytes, as matrix instructions read them */
};
/* Fills a kernel argument, struct tensor_map (kernels/tensor_map_args.h); failures as with gpu_put.
 */
struct tensor_map;
void gpu_put_map(struct gpu_stream *stream, const struct gpu_tensor *tensor,
                 struct tensor_map *map);

/* Whether a gpu_put failed on the stream since its last gpu_wait, without waiting. */
enum sol_status gpu_put_status(const struct gpu_stream *stream);

/* What is put on the stream between begin and end runs with each gpu_graph_launch instead of now,
 * on the same stream, whose counters its kernels were given. After an error end must be called
 * still, and gives no graph. */
struct gpu_graph;
enum sol_status gpu_graph_begin(struct gpu_stream *stream);
enum sol_status gpu_graph_end(struct gpu_stream *stream, struct gpu_graph **out);
enum sol_status gpu_graph_launch(struct gpu_graph *graph);
int64_t gpu_graph_kernels(const struct gpu_graph *graph); /* of a run, as the driver counts them */
/* Kernels that were launched on the stream since it was made, by each run of a graph all of its
 * own. A library's product beside a graph counts as one. */
int64_t gpu_stream_kernels(const struct gpu_stream *stream);
const struct gpu_stream *gpu_graph_stream(const struct gpu_graph *graph);
void gpu_graph_destroy(struct gpu_graph *graph); /* takes NULL; before gpu_stream_destroy */

#endif
