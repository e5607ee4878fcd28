// What does a launch cost beside its work, and why? Empty kernels of 132 blocks of 384 threads, one behind the other in a
// graph: microseconds each, by bytes of arguments (of which a block reads one word, or all), shared memory, clusters,
// and whether all blocks run at the same time (cooperative). What docs/LOG.md says of small grouped products is from here.
//   nvcc -arch=sm_90a -std=c++17 -o launch_cost bench/launch_cost.cu && ./launch_cost
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

enum { BLOCKS = 132, THREADS = 384, LAUNCHES = 200, ROUNDS = 9, SHARED = 217 << 10 };

template <int WORDS> struct arguments {
    uint32_t word[WORDS];
};

template <int WORDS> __global__ void __launch_bounds__(THREADS) empty(const __grid_constant__ arguments<WORDS> a, uint32_t *to)
{
    if (a.word[0] == 77) *to = 1;
}

template <int WORDS> __global__ void __launch_bounds__(THREADS) reads(const __grid_constant__ arguments<WORDS> a, uint32_t *to)
{
    uint32_t sum = 0;
    for (int i = 0; i < WORDS; i += 16) sum += a.word[i];
    if (sum == 77) *to = 1;
}

template <int WORDS> static float measure(void (*kernel)(arguments<WORDS>, uint32_t *), int shared, int cluster, bool together)
{
    static arguments<WORDS> a;
    uint32_t *to = nullptr;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t run;
    cudaEvent_t begin, end;
    std::vector<float> times;
    cudaStreamCreate(&stream);
    cudaEventCreate(&begin), cudaEventCreate(&end);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    cudaLaunchAttribute attribute[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = BLOCKS, config.blockDim = THREADS, config.dynamicSmemBytes = shared, config.stream = stream;
    config.attrs = attribute;
    if (cluster) {
        attribute[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attribute[config.numAttrs].val.clusterDim.x = cluster;
        attribute[config.numAttrs].val.clusterDim.y = attribute[config.numAttrs].val.clusterDim.z = 1;
        config.numAttrs++;
    }
    if (together) {
        attribute[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attribute[config.numAttrs++].val.cooperative = 1;
    }
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    for (int i = 0; i < LAUNCHES; i++) cudaLaunchKernelEx(&config, kernel, a, to);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&run, graph, 0);
    for (int i = 0; i < ROUNDS; i++) {
        float ms;
        cudaEventRecord(begin, stream);
        cudaGraphLaunch(run, stream);
        cudaEventRecord(end, stream);
        cudaEventSynchronize(end);
        cudaEventElapsedTime(&ms, begin, end);
        times.push_back(ms * 1000 / LAUNCHES);
    }
    std::sort(times.begin(), times.end());
    return times[ROUNDS / 2];
}

template <int WORDS> static void row()
{
    printf("%6d bytes: %5.2f; reads all %5.2f; 217 KB shared %5.2f; and clusters of two %5.2f, of four %5.2f; and together: "
           "alone %5.2f, clusters of two %5.2f; %s\n", WORDS * 4, measure<WORDS>(empty<WORDS>, 0, 0, false),
           measure<WORDS>(reads<WORDS>, 0, 0, false), measure<WORDS>(empty<WORDS>, SHARED, 0, false),
           measure<WORDS>(empty<WORDS>, SHARED, 2, false), measure<WORDS>(empty<WORDS>, SHARED, 4, false),
           measure<WORDS>(empty<WORDS>, SHARED, 0, true), measure<WORDS>(empty<WORDS>, SHARED, 2, true),
           cudaGetErrorString(cudaGetLastError()));
}

int main()
{
    row<16>(), row<960>(), row<2048>(), row<3500>(), row<6000>();
}
