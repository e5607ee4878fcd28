/* Each rate is the best of many passes, timed by the device's own events: one launch a pass, long
 * enough that what a launch costs and the steps of the clock (half a microsecond) do not count. */
#include "bench/gpu_ceiling.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "ceiling/ceiling_args.h"
#include "gpu/kernel.h"
#include "stats/samples.h"
#include "stats/statistics.h"

enum {
    PASSES_MIN = 5,
    PASSES_MAX = 400,
    UNIT = 16, /* bytes of a load */
    WARP = 32,
    NODES = 500, /* empty kernels in a row */
    ANSWERS = 100,
    LOOPS = 17, /* for the progress line: see the tables below */
};
static const char memory_image[] = "ceiling/memory.cu", math_image[] = "ceiling/math.cu",
                  wgmma_image[] = "ceiling/wgmma.cu";
static const size_t memory_most = (size_t)2 << 30;
static const double pass_ns = 1e6; /* of an arithmetic loop */

struct meter {
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_event *begin, *end;
    void *buffer;
    size_t bytes;
    double seconds; /* for a loop */
    struct progress progress;
    uint64_t done;
};

static enum sol_status time_pass(const struct meter *m, const struct gpu_kernel *kernel,
                                 const struct gpu_launch *launch, const void *args, double *ns)
{
    SOL_TRY(gpu_event_record(m->begin, m->stream));
    SOL_TRY(gpu_launch(m->stream, kernel, launch, args));
    SOL_TRY(gpu_event_record(m->end, m->stream));
    return gpu_event_elapsed(m->begin, m->end, ns);
}

/* Keeps the better of `rate` and of this kernel; `work` is bytes or flops of a launch. */
static enum sol_status measure(struct meter *m, const struct gpu_kernel *kernel,
                               const struct gpu_launch *launch, const void *args, double work,
                               const char *name, struct ceiling_rate *rate)
{
    double rates[PASSES_MAX], ns;
    size_t count = 0;
    struct statistics s;
    SOL_TRY(time_pass(m, kernel, launch, args, &ns)); /* to warm up */
    uint64_t start = clock_ns();
    while (count < PASSES_MAX &&
           (count < PASSES_MIN || (double)(clock_ns() - start) * 1e-9 < m->seconds)) {
        SOL_TRY(interrupt_check());
        SOL_TRY(time_pass(m, kernel, launch, args, &ns));
        if (ns > 0) rates[count++] = 1e9 * work / ns;
    }
    SOL_TRY(statistics_of(rates, count, &s));
    if (s.max > rate->best)
        *rate = (struct ceiling_rate){.best = s.max, .median = s.median, .kernel = name};
    progress_update(&m->progress, ++m->done);
    return SOL_OK;
}

/* ---- memory ---- */

struct memory_loop {
    const char *name, *kernel;
    unsigned threads, blocks; /* blocks for each SM */
};
/* More in flight is not always better; which is best differs between devices. */
static const struct memory_loop loops[CEILING_ACCESS_COUNT][3] = {
    [CEILING_READ] = {{"8 loads x 512 threads x 2", "ceiling_read", 512, 2},
                      {"8 loads x 512 threads x 3", "ceiling_read", 512, 3},
                      {"8 loads x 256 threads x 8", "ceiling_read", 256, 8}},
    [CEILING_WRITE] = {{"stores x 512 threads x 2", "ceiling_write", 512, 2},
                       {"stores x 256 threads x 8", "ceiling_write", 256, 8}},
    [CEILING_COPY] = {{"8 loads, 8 stores x 512 threads x 2", "ceiling_copy", 512, 2},
                      {"8 loads, 8 stores x 256 threads x 4", "ceiling_copy", 256, 4}},
};

/* A copy has half of the bytes at each end, and both count. */
static enum sol_status measure_access(struct meter *m, enum ceiling_access access, size_t bytes,
                                      int64_t rounds, struct ceiling_rate *rate)
{
    unsigned sms = (unsigned)gpu_info(m->gpu)->sm_count;
    size_t half = bytes / 2 / 4096 * 4096;
    struct ceiling_memory_args args = {
        .from = m->buffer, .to = m->buffer, .count = (int64_t)(bytes / UNIT), .rounds = rounds};
    if (access == CEILING_COPY) {
        args.to = (char *)m->buffer + half;
        args.count = (int64_t)(half / UNIT);
    }
    double work = (double)args.count * UNIT * (double)rounds * (access == CEILING_COPY ? 2 : 1);
    for (int i = 0; i < 3 && loops[access][i].name; i++) {
        const struct memory_loop *l = &loops[access][i];
        const struct gpu_kernel *kernel;
        SOL_TRY(gpu_kernel_find(m->gpu, memory_image, l->kernel, &kernel));
        struct gpu_launch launch = {.grid = {sms * l->blocks}, .block = {l->threads}};
        SOL_TRY(measure(m, kernel, &launch, &args, work, l->name, rate));
    }
    return SOL_OK;
}

static enum sol_status measure_memory(struct meter *m, struct gpu_ceiling *out)
{
    /* Writing comes first, so that reads find numbers. */
    static const enum ceiling_access order[] = {CEILING_WRITE, CEILING_READ, CEILING_COPY};
    for (size_t i = 0; i < CEILING_ACCESS_COUNT; i++)
        SOL_TRY(measure_access(m, order[i], m->bytes, 1, &out->access[order[i]]));
    out->memory_bytes = m->bytes;
    /* A third: where the L2 is in two parts, what is far may be kept twice. */
    out->l2_bytes = gpu_info(m->gpu)->l2_bytes / 3 / 4096 * 4096;
    if (out->l2_bytes == 0 || out->l2_bytes > m->bytes) return SOL_OK;
    return measure_access(m, CEILING_READ, out->l2_bytes, 100, &out->l2);
}

/* ---- arithmetic ---- */

struct math_loop {
    const char *image, *kernel, *name;
    double flops;          /* of a thread in an iteration */
    int least, only_major; /* major * 10 + minor; 0: any */
};
#define MMA_FLOPS(k)   (2.0 * 16 * 8 * (k)*CEILING_MMA_TILES / WARP)
#define WGMMA_FLOPS(k) (2.0 * 64 * 128 * (k)*CEILING_WGMMA_STEPS / (4 * WARP))

static enum sol_status measure_math(struct meter *m, const struct math_loop *l,
                                    struct ceiling_rate *rate)
{
    const struct gpu_info *info = gpu_info(m->gpu);
    const struct gpu_kernel *kernel;
    struct ceiling_math_args args = {
        .iterations = 64, .factor = 0.9999f, .seed = 12345, .sink = m->buffer};
    int blocks, architecture = 10 * info->major + info->minor;
    double ns = 0;
    progress_update(&m->progress, ++m->done);
    if (architecture < l->least || (l->only_major && architecture != l->only_major)) return SOL_OK;
    SOL_TRY(gpu_kernel_find(m->gpu, l->image, l->kernel, &kernel));
    SOL_TRY(gpu_kernel_occupancy(kernel, CEILING_THREADS, 0, &blocks));
    const struct gpu_launch launch = {
        .grid = {(unsigned)info->sm_count * (unsigned)(blocks > 0 ? blocks : 1)},
        .block = {CEILING_THREADS}};
    SOL_TRY(time_pass(m, kernel, &launch, &args, &ns));
    while (ns < pass_ns / 2 && args.iterations < 1 << 24) {
        args.iterations *= 2;
        SOL_TRY(time_pass(m, kernel, &launch, &args, &ns));
    }
    double work = l->flops * (double)args.iterations * CEILING_THREADS * (double)launch.grid[0];
    return measure(m, kernel, &launch, &args, work, l->name, rate);
}

static enum sol_status measure_arithmetic(struct meter *m, struct gpu_ceiling *out)
{
    const struct {
        struct math_loop loop;
        struct ceiling_rate *rate;
    } all[] = {
        {{math_image, "ceiling_fma_f32", "fma f32", 2.0 * CEILING_FMA_UNITS, 0, 0}, &out->f32},
        {{math_image, "ceiling_mma_bf16", "mma m16n8k16", MMA_FLOPS(16), 80, 0}, &out->bf16},
        {{math_image, "ceiling_mma_e4m3", "mma m16n8k32", MMA_FLOPS(32), 89, 0}, &out->fp8},
        {{math_image, "ceiling_mma_s8", "mma m16n8k32", MMA_FLOPS(32), 80, 0}, &out->i8},
        {{wgmma_image, "ceiling_wgmma_e4m3", "wgmma m64n128k32", WGMMA_FLOPS(32), 0, 90},
         &out->fp8},
        {{wgmma_image, "ceiling_wgmma_s8", "wgmma m64n128k32", WGMMA_FLOPS(32), 0, 90}, &out->i8},
        {{wgmma_image, "ceiling_wgmma_bf16", "wgmma m64n128k16", WGMMA_FLOPS(16), 0, 90},
         &out->bf16},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        SOL_TRY(measure_math(m, &all[i].loop, all[i].rate));
    gpu_sensors_read(gpu_info(m->gpu), &out->reading, NULL);
    return SOL_OK;
}

/* ---- what starting costs ---- */

static enum sol_status launch_many(struct gpu_stream *stream, const struct gpu_kernel *kernel,
                                   int count, bool overlaps)
{
    const struct ceiling_memory_args none = {.count = 0};
    const struct gpu_launch launch = {.grid = {1}, .block = {WARP}, .overlaps = overlaps};
    for (int i = 0; i < count; i++) SOL_TRY(gpu_launch(stream, kernel, &launch, &none));
    return SOL_OK;
}

static enum sol_status make_graph(struct gpu_stream *stream, const struct gpu_kernel *kernel,
                                  int count, bool overlaps, struct gpu_graph **out)
{
    SOL_TRY(gpu_graph_begin(stream));
    enum sol_status put = launch_many(stream, kernel, count, overlaps),
                    ended = gpu_graph_end(stream, out);
    if (put == SOL_OK) return ended;
    gpu_graph_destroy(*out);
    *out = NULL;
    return put;
}

/* The median of `times` runs of the graph with the host's wait, ns. */
static enum sol_status time_graph(const struct meter *m, struct gpu_graph *graph, int times,
                                  double *ns)
{
    double each[ANSWERS];
    for (int i = -2; i < times; i++) {
        uint64_t start = clock_ns();
        SOL_TRY(gpu_graph_launch(graph));
        SOL_TRY(gpu_wait(m->stream));
        if (i >= 0) each[i] = (double)(clock_ns() - start);
    }
    samples_sort(each, (size_t)times);
    *ns = samples_percentile(each, (size_t)times, 0.5);
    return SOL_OK;
}

/* A long graph less a short one, for each of the nodes that it has more. */
static enum sol_status measure_nodes(const struct meter *m, const struct gpu_kernel *kernel,
                                     bool overlaps, double *one_ns, double *node_ns)
{
    double ns;
    struct gpu_graph *one = NULL, *many = NULL;
    enum sol_status status = make_graph(m->stream, kernel, 1, overlaps, &one);
    if (status == SOL_OK) status = make_graph(m->stream, kernel, NODES, overlaps, &many);
    if (status == SOL_OK) status = time_graph(m, one, ANSWERS, one_ns);
    if (status == SOL_OK) status = time_graph(m, many, ANSWERS / 4, &ns);
    if (status == SOL_OK) *node_ns = ns > *one_ns ? (ns - *one_ns) / (NODES - 1) : 0;
    gpu_graph_destroy(one);
    gpu_graph_destroy(many);
    return status;
}

static enum sol_status measure_launches(struct meter *m, struct gpu_ceiling *out)
{
    const struct gpu_kernel *kernel;
    double one, best = 0;
    SOL_TRY(gpu_kernel_find(m->gpu, memory_image, "ceiling_nothing", &kernel));
    for (int i = 0; i < 5; i++) {
        uint64_t start = clock_ns();
        SOL_TRY(launch_many(m->stream, kernel, NODES, false));
        SOL_TRY(gpu_wait(m->stream));
        double ns = (double)(clock_ns() - start);
        if (best <= 0 || ns < best) best = ns;
    }
    out->launch_ns = best / NODES;
    SOL_TRY(measure_nodes(m, kernel, false, &out->answer_ns, &out->node_ns));
    return measure_nodes(m, kernel, true, &one, &out->overlapped_ns);
}

enum { TRIALS = 51 };

/* As a plan does it: an event, a kernel, an event, a kernel. */
static enum sol_status time_empty(const struct meter *m, const struct gpu_kernel *kernel,
                                  struct gpu_event *const events[TRIALS + 1], double each[TRIALS])
{
    static const struct ceiling_memory_args none;
    const struct gpu_launch launch = {.grid = {1}, .block = {WARP}, .overlaps = true};
    SOL_TRY(gpu_event_record(events[0], m->stream));
    for (int i = 0; i < TRIALS; i++) {
        SOL_TRY(gpu_launch(m->stream, kernel, &launch, &none));
        SOL_TRY(gpu_event_record(events[i + 1], m->stream));
    }
    for (int i = 0; i < TRIALS; i++) SOL_TRY(gpu_event_elapsed(events[i], events[i + 1], &each[i]));
    return SOL_OK;
}

static enum sol_status measure_events(const struct meter *m, double *ns)
{
    const struct gpu_kernel *kernel;
    struct gpu_event *events[TRIALS + 1] = {NULL};
    double each[TRIALS], answer, node = 0;
    SOL_TRY(gpu_kernel_find(m->gpu, memory_image, "ceiling_nothing", &kernel));
    SOL_TRY(measure_nodes(m, kernel, true, &answer, &node));
    enum sol_status status = SOL_OK;
    for (int i = 0; i <= TRIALS && status == SOL_OK; i++)
        status = gpu_event_create(m->gpu, &events[i]);
    if (status == SOL_OK) status = time_empty(m, kernel, events, each);
    for (int i = 0; i <= TRIALS; i++) gpu_event_destroy(events[i]);
    SOL_TRY(status);
    samples_sort(each, TRIALS);
    double median = samples_percentile(each, TRIALS, 0.5);
    *ns = median > node ? median - node : 0;
    return SOL_OK;
}

enum sol_status gpu_event_cost(struct gpu *gpu, double *ns)
{
    struct meter m = {.gpu = gpu};
    *ns = 0;
    SOL_TRY(gpu_stream_create(gpu, &m.stream));
    enum sol_status status = measure_events(&m, ns);
    gpu_stream_destroy(m.stream);
    return status;
}

/* ---- all of it ---- */

static enum sol_status take_buffer(struct meter *m)
{
    size_t available;
    SOL_TRY(gpu_memory_free(m->gpu, &available));
    m->bytes = available / 2 < memory_most ? available / 2 / 4096 * 4096 : memory_most;
    return gpu_alloc(m->gpu, "measured buffer", m->bytes, &m->buffer);
}

static enum sol_status measure_all(struct meter *m, struct gpu_ceiling *out)
{
    SOL_TRY(take_buffer(m));
    SOL_TRY(gpu_stream_create(m->gpu, &m->stream));
    SOL_TRY(gpu_event_create(m->gpu, &m->begin));
    SOL_TRY(gpu_event_create(m->gpu, &m->end));
    SOL_TRY(measure_memory(m, out));
    SOL_TRY(measure_arithmetic(m, out));
    return measure_launches(m, out);
}

enum sol_status gpu_ceiling_measure(struct gpu *gpu, double seconds, struct gpu_ceiling *out)
{
    struct meter m = {.gpu = gpu, .seconds = seconds};
    uint64_t start = clock_ns();
    *out = (struct gpu_ceiling){.memory_bytes = 0};
    progress_start(&m.progress, "measuring the GPU", "loops", LOOPS);
    enum sol_status status = measure_all(&m, out);
    progress_end(&m.progress);
    enum sol_status waited = m.stream ? gpu_wait(m.stream) : SOL_OK;
    gpu_event_destroy(m.begin);
    gpu_event_destroy(m.end);
    gpu_free(gpu, m.buffer);
    gpu_stream_destroy(m.stream);
    out->seconds = 1e-9 * (double)(clock_ns() - start);
    return status == SOL_OK ? waited : status;
}

void gpu_ceiling_limits(const struct gpu_ceiling *c, size_t working_set, struct ceiling *out)
{
    *out = (struct ceiling){.memory = c->access[CEILING_READ], .memory_bytes = c->memory_bytes};
    if (working_set <= c->l2_bytes) {
        out->cache = c->l2;
        out->cache_bytes = c->l2_bytes;
    }
    const struct ceiling_rate parts = {c->bf16.best / 3, c->bf16.median / 3, "bf16 in three parts"};
    out->arithmetic[NUMERICS_EXACT] = c->f32.best > parts.best ? c->f32 : parts;
    out->arithmetic[NUMERICS_BF16] = c->bf16;
    out->arithmetic[NUMERICS_I8] = c->i8;
    out->watch.seconds = c->seconds;
}

static json_t *rate_json(const struct ceiling_rate *rate)
{
    if (rate->best <= 0) return json_null();
    return json_pack("{s:f, s:f, s:s}", "best", 1e-9 * rate->best, "median", 1e-9 * rate->median,
                     "loop", rate->kernel);
}

json_t *gpu_ceiling_json(const struct gpu_ceiling *c)
{
    const struct ceiling_rate *a = c->access;
    return json_pack(
        "{s:{s:I, s:o, s:o, s:o}, s:{s:I, s:o}, s:{s:o, s:o, s:o, s:o}, s:{s:f, s:f, s:f, s:f}, "
        "s:o, s:f}",
        "memory_gb_s", "buffer", (json_int_t)c->memory_bytes, "read", rate_json(&a[CEILING_READ]),
        "write", rate_json(&a[CEILING_WRITE]), "copy", rate_json(&a[CEILING_COPY]), "l2_gb_s",
        "buffer", (json_int_t)c->l2_bytes, "read", rate_json(&c->l2), "gflop_s", "f32",
        rate_json(&c->f32), "bf16", rate_json(&c->bf16), "fp8", rate_json(&c->fp8), "int8",
        rate_json(&c->i8), "start_ns", "launch", c->launch_ns, "graph_node", c->node_ns,
        "graph_node_overlapped", c->overlapped_ns, "answer", c->answer_ns, "while_measuring",
        gpu_reading_json(&c->reading), "seconds", c->seconds);
}
