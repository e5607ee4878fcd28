#include <stdlib.h>

#include "gpu/gpu_private.h"

struct gpu_graph {
    struct gpu_stream *stream;
    cuda_graph_exec exec;
    int64_t kernels; /* of a run */
};

enum sol_status gpu_graph_begin(struct gpu_stream *stream)
{
    GPU_TRY(stream->gpu, capture_begin(stream->handle, CUDA_CAPTURE_THREAD_LOCAL),
            "beginning a graph");
    stream->capturing = true;
    return SOL_OK;
}

static enum sol_status instantiate(struct gpu_graph *graph, cuda_graph captured)
{
    GPU_TRY(graph->stream->gpu, graph_instantiate(&graph->exec, captured, 0),
            "making a graph ready");
    return SOL_OK;
}

static enum sol_status count_nodes(struct gpu_graph *graph, const cuda_graph_node *nodes,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int type = 0;
        GPU_TRY(graph->stream->gpu, graph_node_type(nodes[i], &type), "reading a graph");
        graph->kernels += type == CUDA_NODE_KERNEL;
    }
    return SOL_OK;
}

/* Asked of the driver: a library's product may be several. */
static enum sol_status count_kernels(struct gpu_graph *graph, cuda_graph captured)
{
    const struct gpu *gpu = graph->stream->gpu;
    size_t count = 0;
    GPU_TRY(gpu, graph_nodes(captured, NULL, &count), "reading a graph");
    if (count == 0) return SOL_OK;
    cuda_graph_node *nodes = calloc(count, sizeof(cuda_graph_node));
    if (!nodes) return status_set(SOL_E_MEMORY, "no memory for a graph's tables");
    cuda_result result = gpu_enter(gpu);
    if (result == CUDA_OK) result = gpu->cuda->graph_nodes(captured, nodes, &count);
    enum sol_status status = cuda_status(gpu->cuda, result, "reading a graph");
    if (status == SOL_OK) status = count_nodes(graph, nodes, count);
    free(nodes);
    return status;
}

enum sol_status gpu_graph_end(struct gpu_stream *stream, struct gpu_graph **out)
{
    cuda_graph captured = NULL;
    *out = NULL;
    if (!stream->capturing) return status_set(SOL_E_INTERNAL, "no graph was begun");
    stream->capturing = false;
    GPU_TRY(stream->gpu, capture_end(stream->handle, &captured), "ending a graph");
    struct gpu_graph *graph = calloc(1, sizeof *graph);
    enum sol_status status =
        graph ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a graph's tables");
    if (graph) {
        graph->stream = stream;
        status = count_kernels(graph, captured);
        if (status == SOL_OK) status = instantiate(graph, captured);
    }
    GPU_GIVE(stream->gpu, graph_destroy(captured)); /* the executable keeps what it needs */
    if (status == SOL_OK)
        *out = graph;
    else
        free(graph);
    return status;
}

enum sol_status gpu_graph_launch(struct gpu_graph *graph)
{
    struct gpu_stream *stream = graph->stream;
    GPU_TRY(stream->gpu, graph_launch(graph->exec, stream->handle), "launching a graph");
    stream->kernels += graph->kernels;
    return SOL_OK;
}

int64_t gpu_graph_kernels(const struct gpu_graph *graph)
{
    return graph->kernels;
}

int64_t gpu_stream_kernels(const struct gpu_stream *stream)
{
    return stream->kernels;
}

const struct gpu_stream *gpu_graph_stream(const struct gpu_graph *graph)
{
    return graph->stream;
}

void gpu_graph_destroy(struct gpu_graph *graph)
{
    if (graph) GPU_GIVE(graph->stream->gpu, graph_exec_destroy(graph->exec));
    free(graph);
}
