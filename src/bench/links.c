/* Links by pairs. Everything is timed by the devices' events, but for a word's way, which the
 * kernel times itself. */
#include "bench/links.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/threads.h"
#include "ceiling/ceiling_args.h"
#include "gpu/kernel.h"
#include "links/links_args.h"

enum { PASSES_MIN = 6, PASSES_MAX = 100, PINGS_MAX = 3000, PINGS_MIN = 60 };

/* One of two GPUs. */
struct end {
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_event *begin, *end;
    struct gpu_shared *shared; /* [2][bytes], and two words for pings */
    char *from, *to, *word;
};

struct pair {
    struct end ends[2];
    int ordinals[2];
    size_t bytes;
    double seconds;
};

/* ---- ways to copy from end 0 to end 1 ---- */

static enum sol_status by_engine(struct pair *p, int from)
{
    struct end *e = &p->ends[from];
    return gpu_copy_on(e->stream, p->ends[!from].to, e->from, p->bytes);
}

/* By a kernel on one of the ends. */
static enum sol_status by_kernel(struct pair *p, int on)
{
    const struct gpu_kernel *kernel;
    struct end *e = &p->ends[on];
    const struct ceiling_memory_args args = {.from = p->ends[0].from,
                                             .to = p->ends[1].to,
                                             .count = (int64_t)(p->bytes / 16),
                                             .rounds = 1};
    SOL_TRY(gpu_kernel_find(e->gpu, "ceiling/memory.cu", "ceiling_copy", &kernel));
    return gpu_launch(
        e->stream, kernel,
        &(struct gpu_launch){.grid = {2 * (unsigned)gpu_info(e->gpu)->sm_count}, .block = {512}},
        &args);
}

static enum sol_status push(struct pair *p)
{
    return by_kernel(p, 0);
}

static enum sol_status pull(struct pair *p)
{
    return by_kernel(p, 1);
}

static enum sol_status engine(struct pair *p)
{
    return by_engine(p, 0);
}

/* The other end begins when this one does, and this one ends when both have. */
static enum sol_status both(struct pair *p)
{
    struct end *a = &p->ends[0], *b = &p->ends[1];
    SOL_TRY(gpu_stream_wait_event(b->stream, a->begin));
    SOL_TRY(by_engine(p, 0));
    SOL_TRY(by_engine(p, 1));
    SOL_TRY(gpu_event_record(b->end, b->stream));
    return gpu_stream_wait_event(a->stream, b->end);
}

/* On which end the time is taken. */
static enum sol_status time_copy(struct pair *p, enum sol_status (*copy)(struct pair *p), int on,
                                 double *ns)
{
    struct end *e = &p->ends[on];
    SOL_TRY(gpu_event_record(e->begin, e->stream));
    SOL_TRY(copy(p));
    SOL_TRY(gpu_event_record(e->end, e->stream));
    SOL_TRY(gpu_event_elapsed(e->begin, e->end, ns));
    return gpu_wait(e->stream);
}

static enum sol_status measure_copy(struct pair *p, enum sol_status (*copy)(struct pair *p), int on,
                                    double bytes, struct figure *out)
{
    double rates[PASSES_MAX], ns;
    size_t count = 0;
    SOL_TRY(time_copy(p, copy, on, &ns)); /* to warm up */
    const uint64_t start = clock_ns();
    while (count < PASSES_MAX &&
           (count < PASSES_MIN || (double)(clock_ns() - start) * 1e-9 < p->seconds)) {
        SOL_TRY(interrupt_check());
        SOL_TRY(time_copy(p, copy, on, &ns));
        rates[count++] = 1e9 * bytes / (ns > 0 ? ns : 1);
    }
    return figure_of_one(rates, count, out);
}

/* ---- a word's way ---- */

struct ping {
    struct end *end;
    struct link_ping_args args;
    enum sol_status status;
    char message[256];
};

static void *run_ping(void *arg)
{
    struct ping *p = arg;
    const struct gpu_launch launch = {.block = {32}};
    gpu_put(p->end->stream, "links/links.cu", "link_ping", &launch, &p->args);
    p->status = gpu_wait(p->end->stream);
    snprintf(p->message, sizeof p->message, "%s", p->status == SOL_OK ? "" : sol_last_error());
    return NULL;
}

/* Each end in a thread: who launches may have to wait until the kernel has ended. */
static enum sol_status run_pings(struct ping pings[2])
{
    pthread_t thread;
    if (thread_start(&thread, run_ping, &pings[1]) != 0)
        return status_set(SOL_E_MEMORY, "no thread for a GPU");
    run_ping(&pings[0]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++)
        if (pings[i].status != SOL_OK) return status_set(pings[i].status, "%s", pings[i].message);
    return SOL_OK;
}

static int rounds_for(double seconds)
{
    const double wanted = 60000 * seconds;
    return wanted < PINGS_MIN ? PINGS_MIN : wanted > PINGS_MAX ? PINGS_MAX : (int)wanted;
}

/* The first sixth is not counted. */
static enum sol_status ping(struct pair *p, int rounds, uint64_t words[2])
{
    struct ping pings[2] = {0};
    for (int i = 0; i < 2; i++) {
        struct end *e = &p->ends[i];
        pings[i].end = e;
        pings[i].args = (struct link_ping_args){.own = e->word,
                                                .other = p->ends[!i].word,
                                                .failed = (uint32_t *)&words[1],
                                                .ns = &words[0],
                                                .limit_ns = 10000000000,
                                                .rounds = rounds,
                                                .first = rounds / 6,
                                                .leads = !i};
        SOL_TRY(gpu_zero(e->stream, e->word, 16));
        SOL_TRY(gpu_wait(e->stream));
    }
    SOL_TRY(run_pings(pings));
    if (!words[1]) return SOL_OK;
    return status_set(SOL_E_DEVICE, "GPU %d did not hear from GPU %d", p->ordinals[0],
                      p->ordinals[1]);
}

/* In words of the host: the leader's time, and whether one waited in vain. */
static enum sol_status measure_word(struct pair *p, double *one_way_ns)
{
    void *memory;
    SOL_TRY(gpu_alloc_pinned(p->ends[0].gpu, 2 * sizeof(uint64_t), &memory));
    uint64_t *words = memory;
    words[0] = words[1] = 0;
    const int rounds = rounds_for(p->seconds);
    const enum sol_status status = ping(p, rounds, words);
    *one_way_ns = (double)words[0] / (2.0 * (rounds - rounds / 6));
    gpu_free_pinned(p->ends[0].gpu, memory);
    return status;
}

/* ---- pairs ---- */

static enum sol_status open_end(struct pair *p, int i)
{
    struct end *e = &p->ends[i];
    SOL_TRY(gpu_open(p->ordinals[i], &e->gpu));
    SOL_TRY(gpu_stream_create(e->gpu, &e->stream));
    SOL_TRY(gpu_event_create(e->gpu, &e->begin));
    SOL_TRY(gpu_event_create(e->gpu, &e->end));
    SOL_TRY(gpu_shared_alloc(e->gpu, 2 * p->bytes + 256, p->ordinals, 2, &e->shared));
    e->from = gpu_shared_memory(e->shared);
    e->to = e->from + p->bytes;
    e->word = e->to + p->bytes;
    SOL_TRY(gpu_zero(e->stream, e->from, 2 * p->bytes));
    return gpu_wait(e->stream);
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        if (p->ends[i].stream) gpu_settle(p->ends[i].stream);
    for (int i = 0; i < 2; i++) {
        struct end *e = &p->ends[i];
        gpu_shared_free(e->shared);
        gpu_event_destroy(e->begin);
        gpu_event_destroy(e->end);
        gpu_stream_destroy(e->stream);
        gpu_close(e->gpu);
    }
}

static enum sol_status measure_link(struct pair *p, struct link *out)
{
    const double bytes = (double)p->bytes;
    SOL_TRY(measure_copy(p, engine, 0, bytes, &out->engine));
    SOL_TRY(measure_copy(p, push, 0, bytes, &out->push));
    SOL_TRY(measure_copy(p, pull, 1, bytes, &out->pull));
    SOL_TRY(measure_copy(p, both, 0, 2 * bytes, &out->both));
    SOL_TRY(measure_word(p, &out->one_way_ns));
    out->reached = true;
    return SOL_OK;
}

static enum sol_status measure_pair(int from, int to, double seconds, size_t bytes,
                                    struct link *out)
{
    struct pair p = {.ordinals = {from, to}, .bytes = bytes / 4096 * 4096, .seconds = seconds};
    struct gpu *gpu = NULL;
    *out = (struct link){.from = from, .to = to};
    SOL_TRY(gpu_open(from, &gpu));
    const bool reaches = gpu_reaches(gpu, to);
    gpu_close(gpu);
    if (!reaches) return SOL_OK;
    enum sol_status status = open_end(&p, 0);
    if (status == SOL_OK) status = open_end(&p, 1);
    if (status == SOL_OK) status = measure_link(&p, out);
    close_pair(&p);
    return status;
}

static double best_way(const struct link *l)
{
    double best = l->engine.value;
    if (l->push.value > best) best = l->push.value;
    return l->pull.value > best ? l->pull.value : best;
}

static enum sol_status measure_pairs(double seconds, size_t most, struct links *out)
{
    struct progress progress;
    enum sol_status status = SOL_OK;
    progress_start(&progress, "measuring links", "pairs", (uint64_t)(out->gpus * (out->gpus - 1)));
    for (int a = 0; a < out->gpus; a++)
        for (int b = 0; b < out->gpus && status == SOL_OK; b++) {
            if (a == b) continue;
            struct link *l = &out->pairs[out->n_pairs];
            status = measure_pair(a, b, seconds, most, l);
            if (status == SOL_OK) progress_update(&progress, (uint64_t)++out->n_pairs);
        }
    progress_end(&progress);
    for (int i = 0; i < out->n_pairs; i++) {
        const double best = out->pairs[i].reached ? best_way(&out->pairs[i]) : 0;
        if (i == 0 || best < out->link) out->link = best;
    }
    return status;
}

enum sol_status links_measure(int gpus, double seconds, size_t most, struct links *out)
{
    struct gpu_info infos[GPU_PEERS_MAX];
    int count;
    const uint64_t start = clock_ns();
    *out = (struct links){.gpus = gpus};
    SOL_TRY(gpu_list(infos, GPU_PEERS_MAX, &count));
    if (count < gpus || gpus < 2)
        return status_set(SOL_E_UNSUPPORTED,
                          "links are measured between 2 GPUs or more; the driver shows %d, and %d "
                          "are asked for",
                          count, gpus);
    SOL_TRY(measure_pairs(seconds, most, out));
    SOL_TRY(links_measure_collectives(seconds, most, out));
    out->seconds = 1e-9 * (double)(clock_ns() - start);
    return SOL_OK;
}

/* ---- JSON ---- */

static json_t *number_or_null(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *figure_json(const struct figure *f, double factor)
{
    if (f->count == 0) return json_null();
    const struct figure s = figure_scaled(f, factor);
    return json_pack("{s:f, s:o, s:o, s:f, s:f, s:I}", "median", s.value, "low",
                     number_or_null(s.low), "high", number_or_null(s.high), "least", s.least,
                     "most", s.most, "count", (json_int_t)s.count);
}

static json_t *link_json(const struct link *l)
{
    return json_pack("{s:i, s:i, s:b, s:o, s:o, s:o, s:o, s:o}", "from", l->from, "to", l->to,
                     "reached", l->reached, "engine_gb_s", figure_json(&l->engine, 1e-9),
                     "push_gb_s", figure_json(&l->push, 1e-9), "pull_gb_s",
                     figure_json(&l->pull, 1e-9), "both_gb_s", figure_json(&l->both, 1e-9),
                     "one_way_ns", number_or_null(l->one_way_ns));
}

static json_t *line_json(const struct links *links, const struct links_line *l)
{
    return json_pack("{s:s, s:s, s:I, s:i, s:o, s:f, s:f, s:o}", "op", l->op, "variant", l->variant,
                     "bytes", (json_int_t)l->bytes, "calls", l->calls, "ns", figure_json(&l->ns, 1),
                     "algorithm_gb_s", 1e-9 * l->algorithm, "bus_gb_s", 1e-9 * l->bus, "of_link",
                     links->link > 0 ? json_real(l->bus / links->link) : json_null());
}

json_t *links_json(const struct links *links)
{
    json_t *pairs = json_array(), *lines = json_array();
    for (int i = 0; i < links->n_pairs; i++)
        json_array_append_new(pairs, link_json(&links->pairs[i]));
    for (int i = 0; i < links->n_lines; i++)
        json_array_append_new(lines, line_json(links, &links->lines[i]));
    return json_pack("{s:i, s:o, s:o, s:o, s:f}", "gpus", links->gpus, "pairs", pairs,
                     "collectives", lines, "link_gb_s", number_or_null(1e-9 * links->link),
                     "seconds", links->seconds);
}
