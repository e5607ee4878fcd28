/* The attention kernels of sol by themselves: each case is compared with a float64 sum on the GPU for a sample of
 * its rows and heads, then timed as a CUDA graph of launches that may overlap, over caches that together exceed
 * the L2 cache. Built and read by attention_device.py; one JSON object a line. */
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "attention/attention_args.h"
#include "attention/attention_prefill_args.h"
#include "attention/prefill_work.cuh"
#include "cache.cuh"
#include "common.cuh"
#include "copy_async.cuh"
#include "mma.cuh"
#include "wgmma.cuh"

/* All files name their enumerators freely. */
namespace decode {
#include "attention/attention_decode.cu"
}
namespace prefill {
#include "attention/attention_prefill.cu"
}
namespace mma {
#include "attention/attention_mma.cu"
}
namespace work {
#include "attention/attention_prefill_work.cu"
}

#define CHECK(call) check(call, #call, __LINE__)
static void check(cudaError_t error, const char *call, int line)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString(error));
    exit(1);
}

enum { DIM = 64, KV_HEADS = 8, HEADS = 64, REPETITIONS = 9, CACHES_BYTES = 250 << 20 };
enum { DECODE_SHARED = DECODE_WARPS * DECODE_STAGES * DECODE_STAGE + DECODE_ENDS };

/* ---- inputs ---- */

static bool in_order; /* pages */

__device__ float noise(uint64_t i, uint32_t seed)
{
    uint64_t x = i * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    x ^= x >> 31;
    float sum = 0; /* of four uniform numbers: nearly normal, standard deviation 1 */
    for (int k = 0; k < 4; k++) sum += (float)(x >> 16 * k & 0xffff) / 65536.f - 0.5f;
    return sum * 1.7320508f;
}

__global__ void fill(int type, void *data, size_t count, uint32_t seed, float scale)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step)
        cache_put(type, data, (int64_t)i, noise(i, seed) * scale);
}

struct attention_case {
    std::string name;
    int type; /* of the cache */
    int sequences, window, capacity;
    std::vector<int> position, sequence; /* of the rows */
};

/* `rows` new rows of each sequence behind `depth` positions. */
static attention_case make_case(std::string name, int type, int sequences, int rows, int depth, int window)
{
    attention_case c = {name, type, sequences, window};
    int needed = window ? window - 1 + rows : depth + rows;
    int unit = window ? CACHE_BLOCK : CACHE_PAGE;
    c.capacity = (needed + unit - 1) / unit * unit;
    for (int s = 0; s < sequences; s++)
        for (int i = 0; i < rows; i++) c.position.push_back(depth + i), c.sequence.push_back(s);
    return c;
}

/* Without a window the cache has pages, which lie in any order, as after many sequences came and went. */
static int *make_pages(const attention_case &c)
{
    std::vector<int> pages(c.sequences * c.capacity / CACHE_PAGE);
    for (size_t i = 0; i < pages.size(); i++) pages[i] = (int)i;
    for (size_t i = pages.size() - 1; i > 0 && !in_order; i--) std::swap(pages[i], pages[rand() % i]);
    int *memory;
    CHECK(cudaMalloc(&memory, pages.size() * 4));
    CHECK(cudaMemcpy(memory, pages.data(), pages.size() * 4, cudaMemcpyHostToDevice));
    return memory;
}

static double seen(const attention_case &c, int position)
{
    return c.window && position >= c.window ? c.window : position + 1;
}

/* ---- the reference: a block for each row and head of `list` ---- */

__global__ void reference(cache_args c, const float *q, const float *sinks, const int *position, const int *sequence,
                          int window, const int *list, double *out)
{
    __shared__ double all[256];
    int row = list[2 * blockIdx.x], head = list[2 * blockIdx.x + 1], t = threadIdx.x;
    int end = position[row] + 1, begin = window && end > window ? end - window : 0, kv_head = head / (HEADS / KV_HEADS);
    const float *mine = q + ((size_t)row * HEADS + head) * DIM;
    double top = sinks[head], total = 0, sum[DIM] = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (int p = begin + t; p < end; p += 256) {
            double score = 0;
            int64_t k = cache_k_index(c, sequence[row], kv_head, p), v = cache_v_index(c, sequence[row], kv_head, p);
            for (int d = 0; d < DIM; d++) score += (double)mine[d] * cache_at(c.type, c.k, k + d * CACHE_BLOCK);
            score /= 8;
            if (pass == 0) top = fmax(top, score);
            if (pass == 0) continue;
            double weight = exp(score - top);
            total += weight;
            for (int d = 0; d < DIM; d++) sum[d] += weight * cache_at(c.type, c.v, v + d);
        }
        all[t] = pass ? total : top;
        __syncthreads();
        if (pass) total = exp(sinks[head] - top);
        for (int i = 0; i < 256; i++) pass ? total += all[i] : top = fmax(top, all[i]);
        __syncthreads();
    }
    for (int d = 0; d < DIM; d++) {
        all[t] = sum[d];
        __syncthreads();
        for (int i = 1; t == 0 && i < 256; i++) all[0] += all[i];
        if (t == 0) out[blockIdx.x * DIM + d] = all[0] / total;
        __syncthreads();
    }
}

/* ---- running ---- */

static CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                          const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                          CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static void make_map(tensor_map *map, void *data, cuuint64_t width, cuuint64_t rows, cuuint32_t box_rows,
                     CUtensorMapSwizzle swizzle)
{
    cuuint64_t sizes[2] = {width, rows}, strides[1] = {width * 2};
    cuuint32_t box[2] = {(cuuint32_t)width, box_rows}, steps[2] = {1, 1};
    if (encode((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
        fprintf(stderr, "no tensor map\n"), exit(1);
}

template <class T> static T *device(size_t count)
{
    void *memory;
    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    return (T *)memory;
}

template <class ARGS>
static void launch(cudaStream_t stream, void (*kernel)(ARGS), int blocks, int threads, int shared, const ARGS &args)
{
    cudaLaunchAttribute overlap = {cudaLaunchAttributeProgrammaticStreamSerialization};
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = 1;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK(cudaLaunchKernelEx(&config, kernel, args));
}

struct buffers {
    float *q, *out, *sinks;
    int *position, *sequence, *pages;
    char *work;
    std::vector<cache_args> caches;
};

static buffers make_buffers(const attention_case &c)
{
    buffers b;
    size_t rows = c.position.size(), width = rows * HEADS * DIM;
    size_t count = (size_t)c.sequences * KV_HEADS * c.capacity * DIM;
    b.q = device<float>(width), b.out = device<float>(width), b.sinks = device<float>(HEADS);
    b.position = device<int>(rows), b.sequence = device<int>(rows), b.work = device<char>(160 << 20);
    fill<<<1024, 256>>>(DTYPE_F32, b.q, width, 1, 2);
    fill<<<1, 64>>>(DTYPE_F32, b.sinks, HEADS, 2, 2);
    CHECK(cudaMemset(b.out, 0xff, width * 4));
    CHECK(cudaMemcpy(b.position, c.position.data(), rows * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b.sequence, c.sequence.data(), rows * 4, cudaMemcpyHostToDevice));
    b.pages = c.window ? NULL : make_pages(c);
    int caches = (int)std::min<size_t>(500, CACHES_BYTES / (count * 4) + 1);
    for (int i = 0; i < caches; i++) {
        cache_args kv = {device<uint16_t>(count), device<uint16_t>(count), b.pages, c.sequences, KV_HEADS, c.capacity, DIM,
                         c.type, c.capacity / CACHE_PAGE};
        fill<<<1024, 256>>>(c.type, kv.k, count, 3 + 2 * i, 1);
        fill<<<1024, 256>>>(c.type, kv.v, count, 4 + 2 * i, 1);
        b.caches.push_back(kv);
    }
    CHECK(cudaDeviceSynchronize());
    return b;
}

static void run_decode(const attention_case &c, const buffers &b, int cache, int sms, cudaStream_t stream)
{
    int rows = (int)c.position.size(), items = rows * KV_HEADS;
    attention_kernel_args k = {b.caches[cache], HEADS, c.window, b.position, b.sequence, b.q, b.sinks, b.out,
                               (float *)b.work, 0.125f, rows, (items < 128 ? 512 : 1024) / CACHE_BLOCK, DECODE_STAGES};
    launch(stream, c.type == DTYPE_F16 ? decode::attention_decode_f16 : decode::attention_decode_bf16,
           std::min(2 * sms, items * DECODE_PIECES), DECODE_WARPS * WARP, DECODE_SHARED, k);
}

static void run_many(const attention_case &c, const buffers &b, int cache, int sms, cudaStream_t stream, bool wgmma)
{
    attention_prefill_args k = {};
    size_t rows = c.position.size(), positions = (size_t)c.sequences * KV_HEADS * c.capacity;
    k.cache = b.caches[cache];
    make_map(&k.k, k.cache.k, CACHE_BLOCK, positions * 2, DIM, CU_TENSOR_MAP_SWIZZLE_64B);
    make_map(&k.v, k.cache.v, DIM, positions, CACHE_BLOCK, CU_TENSOR_MAP_SWIZZLE_128B);
    k.position = b.position, k.sequence = b.sequence, k.q = b.q, k.sinks = b.sinks, k.out = b.out;
    k.totals = (int32_t *)b.work;
    k.tiles = (prefill_tile *)(b.work + 256);
    k.partial = (float *)(b.work + 256 + rows * 32);
    k.blocks = wgmma ? std::min(sms, (int)PREFILL_BLOCKS) : std::min(sms * MMA_PREFILL_BLOCKS_PER_SM, (int)MMA_PREFILL_BLOCKS);
    k.tile_rows = wgmma ? (int)PREFILL_ROWS : (int)MMA_PREFILL_ROWS;
    k.step_keys = wgmma ? (int)PREFILL_KEYS : (int)MMA_PREFILL_KEYS;
    k.again = (int32_t *)(k.partial + (size_t)2 * k.blocks * PREFILL_GROUPS * PREFILL_PART);
    k.m = (int32_t)rows, k.n_heads = HEADS, k.window = c.window, k.scale = 0.125f;
    bool f16 = c.type == DTYPE_F16;
    launch(stream, work::attention_prefill_tiles, 1, PREFILL_LIST_THREADS, 0, k);
    if (wgmma)
        launch(stream, f16 ? prefill::attention_prefill_f16 : prefill::attention_prefill_bf16, k.blocks, PREFILL_THREADS,
               PREFILL_SHARED, k);
    else
        launch(stream, f16 ? mma::attention_mma_f16 : mma::attention_mma_bf16, k.blocks, MMA_PREFILL_THREADS,
               MMA_PREFILL_SHARED, k);
    launch(stream, f16 ? work::attention_prefill_finish_f16 : work::attention_prefill_finish_bf16, k.blocks,
           PREFILL_FINISH_THREADS, 0, k);
}

static void run_prefill(const attention_case &c, const buffers &b, int cache, int sms, cudaStream_t stream)
{
    run_many(c, b, cache, sms, stream, true);
}

static void run_mma(const attention_case &c, const buffers &b, int cache, int sms, cudaStream_t stream)
{
    run_many(c, b, cache, sms, stream, false);
}

/* ||out - reference|| over ||reference|| of the worst row and head among `count`; NaN when one is NaN. */
static double worst_error(const attention_case &c, const buffers &b, int count)
{
    std::vector<int> list;
    int rows = (int)c.position.size();
    for (int i = 0; i < count; i++) list.push_back(i < 24 ? rows - 1 - i % rows : rand() % rows), list.push_back(rand() % HEADS);
    int *places = device<int>(list.size());
    double *wanted = device<double>((size_t)count * DIM), worst = 0;
    CHECK(cudaMemcpy(places, list.data(), list.size() * 4, cudaMemcpyHostToDevice));
    reference<<<count, 256>>>(b.caches[0], b.q, b.sinks, b.position, b.sequence, c.window, places, wanted);
    std::vector<double> want((size_t)count * DIM);
    std::vector<float> got((size_t)rows * HEADS * DIM);
    CHECK(cudaMemcpy(want.data(), wanted, want.size() * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(got.data(), b.out, got.size() * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; i++) {
        double difference = 0, norm = 0;
        for (int d = 0; d < DIM; d++) {
            double x = got[((size_t)list[2 * i] * HEADS + list[2 * i + 1]) * DIM + d], y = want[(size_t)i * DIM + d];
            difference += (x - y) * (x - y), norm += y * y;
        }
        double error = sqrt(difference / norm);
        if (!(error <= worst)) worst = error;
    }
    cudaFree(places), cudaFree(wanted);
    return worst;
}

static const char *wanted_name = "";

static void run_case(const attention_case &c, decltype(run_decode) *run, int sms)
{
    if (c.name.find(wanted_name) == std::string::npos) return;
    buffers b = make_buffers(c);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, end;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    run(c, b, 0, sms, stream);
    CHECK(cudaStreamSynchronize(stream));
    double error = worst_error(c, b, 256), pairs = 0, bytes = 0;
    for (int p : c.position) pairs += seen(c, p);
    int caches = (int)b.caches.size(), launches = pairs > 1e7 ? std::max(4, caches) : std::max(20, caches);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++) run(c, b, i % caches, sms, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<double> us;
    for (int i = 0; i <= REPETITIONS; i++) {
        float ms;
        CHECK(cudaEventRecord(start, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventElapsedTime(&ms, start, end));
        if (i) us.push_back(ms * 1e3 / launches);
    }
    std::sort(us.begin(), us.end());
    if (run == run_decode) bytes = pairs * KV_HEADS * DIM * 4;
    printf("{\"name\": \"%s\", \"type\": \"%s\", \"us\": %.3f, \"min\": %.3f, \"max\": %.3f, \"flops\": %.6g, "
           "\"bytes\": %.6g, \"error\": %.3g}\n",
           c.name.c_str(), c.type == DTYPE_F16 ? "f16" : "bf16", us[us.size() / 2], us[0], us.back(),
           4 * pairs * HEADS * DIM, bytes, std::isfinite(error) ? error : 9);
    fflush(stdout);
    for (auto &kv : b.caches) cudaFree(kv.k), cudaFree(kv.v);
    cudaFree(b.q), cudaFree(b.out), cudaFree(b.sinks), cudaFree(b.position), cudaFree(b.sequence), cudaFree(b.pages);
    cudaFree(b.work);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
}

/* Whether a decoded row is the same, bit for bit, alone and among others. */
static void run_alone(int sms)
{
    attention_case all = make_case("decode, 8 rows as alone", DTYPE_F16, 8, 1, 5000, 0), one = all;
    for (int i = 0; i < 8; i++) all.position[i] = 600 * i + 31 * i;
    one.position.resize(1), one.sequence.resize(1);
    buffers b = make_buffers(all), alone = b;
    size_t width = HEADS * DIM;
    std::vector<float> together(8 * width), single(8 * width);
    run_decode(all, b, 0, sms, 0);
    CHECK(cudaMemcpy(together.data(), b.out, together.size() * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) {
        alone.q = b.q + i * width, alone.out = b.out + i * width;
        alone.position = b.position + i, alone.sequence = b.sequence + i;
        CHECK(cudaMemset(alone.out, 0xff, width * 4));
        run_decode(one, alone, 0, sms, 0);
    }
    CHECK(cudaMemcpy(single.data(), b.out, single.size() * 4, cudaMemcpyDeviceToHost));
    bool same = memcmp(together.data(), single.data(), single.size() * 4) == 0;
    printf("{\"name\": \"%s\", \"same\": %s}\n", all.name.c_str(), same ? "true" : "false");
}

static void run_prefill_cases(int sms)
{
    for (auto run : {run_prefill, run_mma}) {
        std::string by = run == run_mma ? "mma.sync, " : "";
        for (int type : {DTYPE_BF16, DTYPE_F16}) run_case(make_case(by + "causal 16384", type, 1, 16384, 0, 0), run, sms);
        run_case(make_case(by + "causal 4096", DTYPE_BF16, 1, 4096, 0, 0), run, sms);
        run_case(make_case(by + "2048 rows at 32768", DTYPE_F16, 1, 2048, 32768, 0), run, sms);
        run_case(make_case(by + "2048 rows at 0", DTYPE_F16, 1, 2048, 0, 0), run, sms);
        run_case(make_case(by + "512 rows at 8192", DTYPE_F16, 1, 512, 8192, 0), run, sms);
        run_case(make_case(by + "4 x 512 rows at 3000", DTYPE_F16, 4, 512, 3000, 0), run, sms);
        run_case(make_case(by + "2048 rows at 32768, window 128", DTYPE_F16, 1, 2048, 32768, 128), run, sms);
    }
}

/* usage: attention_device [decode] [in-order] [NAME]: without prefill; pages one behind the other; only cases in
 * whose names NAME is */
int main(int argc, char **argv)
{
    bool prefill = true;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "decode") == 0)
            prefill = false;
        else if (strcmp(argv[i], "in-order") == 0)
            in_order = true;
        else
            wanted_name = argv[i];
    cudaDriverEntryPointQueryResult found;
    int sms, f16 = DTYPE_F16, bf16 = DTYPE_BF16;
    CHECK(cudaFree(0));
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found));
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    if (prefill) run_prefill_cases(sms);
    for (int positions : {4, 128, 512, 2048, 8192, 32768, 131072})
        run_case(make_case("decode, " + std::to_string(positions), f16, 1, 1, positions - 1, 0), run_decode, sms);
    run_case(make_case("decode, 32768", bf16, 1, 1, 32767, 0), run_decode, sms);
    run_case(make_case("decode, window 128", f16, 1, 1, 60000, 128), run_decode, sms);
    run_case(make_case("decode, 128 x 600", f16, 128, 1, 599, 0), run_decode, sms);
    run_case(make_case("decode, 128 x 600", bf16, 128, 1, 599, 0), run_decode, sms);
    run_case(make_case("decode, 16 x 8192", f16, 16, 1, 8191, 0), run_decode, sms);
    run_case(make_case("decode, 128, window 128", f16, 128, 1, 599, 128), run_decode, sms);
    if (!*wanted_name) run_alone(sms);
    return 0;
}
