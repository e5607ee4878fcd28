#include <stdlib.h>

#include "gpu/gpu_private.h"

struct gpu_graph {
    struct gpu *gpu;
    cuda_graph_exec exec;
};

enum sol_status gpu_graph_begin(struct gpu *gpu)
{
    GPU_TRY(gpu, gpu->cuda->capture_begin(gpu->stream, CUDA_CAPTURE_THREAD_LOCAL),
            "beginning a graph");
    gpu->capturing = true;
    return SOL_OK;
}

enum sol_status gpu_graph_end(struct gpu *gpu, struct gpu_graph **out)
{
    cuda_graph captured = NULL;
    *out = NULL;
    if (!gpu->capturing) return status_set(SOL_E_INTERNAL, "no graph was begun");
    gpu->capturing = false;
    GPU_TRY(gpu, gpu->cuda->capture_end(gpu->stream, &captured), "ending a graph");
    struct gpu_graph *graph = calloc(1, sizeof *graph);
    enum sol_status status =
        graph ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a graph's tables");
    if (graph) {
        graph->gpu = gpu;
        status = cuda_status(gpu->cuda, gpu->cuda->graph_instantiate(&graph->exec, captured, 0),
                             "making a graph ready");
    }
    gpu->cuda->graph_destroy(captured); /* the executable keeps what it needs */
    if (status == SOL_OK)
        *out = graph;
    else
        free(graph);
    return status;
}

enum sol_status gpu_graph_launch(struct gpu_graph *graph)
{
    const struct gpu *gpu = graph->gpu;
    return cuda_status(gpu->cuda, gpu->cuda->graph_launch(graph->exec, gpu->stream),
                       "launching a graph");
}

void gpu_graph_destroy(struct gpu_graph *graph)
{
    if (graph) graph->gpu->cuda->graph_exec_destroy(graph->exec);
    free(graph);
}
