/* Each rate is the best of many passes of a few milliseconds, since other programs can only slow a
 * pass down, and rarely all of them. */
#include "bench/ceiling.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "bench/ceiling_kernels.h"
#include "stats/statistics.h"

enum { PASSES_MIN = 16, PASSES_MIN_SURVEY = 6, PASSES_MAX = 256 };

/* Where another program wants the same cores, whole time slices go by before all threads run at
 * once. */
static const double series_seconds = 0.1;

static const size_t page = 4096;
static const size_t read_chunk = (size_t)1 << 20; /* long enough for prefetchers */
static const size_t read_pass = (size_t)128 << 20;
static const size_t brief_pass = (size_t)4 << 20;
static const double brief_seconds = 0.001;

bool ceiling_is_brief(void)
{
    const char *wanted = getenv(BENCH_ENV_BRIEF_LIMITS);
    return wanted && *wanted;
}

/* Results land here so that no loop is optimised away; each thread has its own. */
static _Thread_local volatile uint64_t read_sink;
static _Thread_local volatile double multiply_sink;

static bool runs_here(unsigned needs)
{
    return (needs & ~cpu_info()->features) == 0;
}

/* Passes of one kernel; `work` is bytes or flops. */
struct series {
    double rates[PASSES_MAX];
    size_t count;
    uint64_t started_ns, pass_ns;
    double seconds; /* 0: series_seconds */
};

/* Starts the next pass; false when there were enough. */
static bool series_next(struct series *s)
{
    double seconds = s->seconds > 0 ? s->seconds : series_seconds;
    s->pass_ns = clock_ns();
    if (s->count == 0) s->started_ns = s->pass_ns;
    return s->count < (s->seconds > 0 ? PASSES_MIN_SURVEY : PASSES_MIN) ||
           (s->count < PASSES_MAX && (double)(s->pass_ns - s->started_ns) * 1e-9 < seconds);
}

static void series_end_pass(struct series *s, double work)
{
    s->rates[s->count++] = work / ((double)(clock_ns() - s->pass_ns) * 1e-9);
}

/* Keeps the better kernel of those tried so far. */
static enum sol_status keep_better(struct ceiling_rate *rate, const char *kernel,
                                   const struct series *series)
{
    struct statistics s;
    SOL_TRY(statistics_of(series->rates, series->count, &s));
    if (s.max > rate->best)
        *rate = (struct ceiling_rate){.best = s.max, .median = s.median, .kernel = kernel};
    return SOL_OK;
}

/* ---- reading ---- */

struct read_job {
    const struct ceiling_reader *reader;
    char *data;
    size_t size, chunk;
    int64_t chunks; /* in the buffer */
    int64_t first;  /* chunk that the pass starts with */
};

/* Without sanitizers, whose shadow of this buffer would be several times its size. */
__attribute__((no_sanitize("thread", "address"))) static void touch_chunks(void *arg, int64_t begin,
                                                                           int64_t end, int worker)
{
    (void)worker;
    const struct read_job *job = arg;
    for (size_t at = (size_t)begin * job->chunk; at < (size_t)end * job->chunk; at += page)
        job->data[at] = 1;
}

static void read_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct read_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        size_t at = (size_t)((job->first + i) % job->chunks);
        read_sink = job->reader->run(job->data + at * job->chunk, job->chunk);
    }
}

/* Passes follow each other around the buffer, so that each finds its part as cold as the first did.
 */
static enum sol_status measure_reader(struct pool *pool, struct read_job *job,
                                      struct ceiling_rate *rate)
{
    bool brief = ceiling_is_brief();
    struct series series = {.seconds = brief ? brief_seconds : 0};
    size_t pass = brief ? brief_pass : read_pass;
    /* Enough chunks for many threads to share evenly. */
    int64_t count = (int64_t)(pass / job->chunk),
            fair = (brief ? 1 : 32) * (int64_t)pool_size(pool);
    if (count < fair) count = fair;
    while (series_next(&series)) {
        SOL_TRY(interrupt_check());
        pool_for(pool, count, 1, read_chunks, job);
        series_end_pass(&series, (double)count * (double)job->chunk);
        job->first = (job->first + count) % job->chunks;
    }
    return keep_better(rate, job->reader->name, &series);
}

/* Reads a buffer of about `size` bytes with every reader that runs here. */
static enum sol_status measure_reading(struct pool *pool, size_t size, size_t chunk,
                                       struct ceiling_rate *rate, size_t *bytes)
{
    struct read_job job = {.chunk = chunk, .chunks = (int64_t)((size + chunk - 1) / chunk)};
    job.size = (size_t)job.chunks * chunk;
    void *data;
    SOL_TRY(pages_alloc(job.size, &data));
    job.data = data;
    enum sol_status status = SOL_OK;
    /* Untouched pages would all be one page of zeros, which sits in the cache. */
    pool_for(pool, job.chunks, 1, touch_chunks, &job);
    bool have_vectors = runs_here(ceiling_readers[0].needs);
    for (job.reader = ceiling_readers; status == SOL_OK && job.reader->run; job.reader++) {
        /* AVX2 and plain loads are for machines without anything wider. */
        bool narrower = job.reader->needs != ceiling_readers[0].needs;
        if (!runs_here(job.reader->needs) || (have_vectors && narrower)) continue;
        status = measure_reader(pool, &job, rate);
    }
    pages_free(data, job.size);
    *bytes = job.size;
    return status;
}

static size_t memory_buffer_size(void)
{
    size_t size = (size_t)1 << 30, available = memory_available();
    if (ceiling_is_brief()) return 4 * brief_pass;
    if (size < 4 * cpu_info()->l3) size = 4 * cpu_info()->l3;
    /* On a machine this full a smaller buffer is better than none. */
    if (available && size > available / 2) size = available / 2;
    return size > read_chunk ? size : read_chunk;
}

static enum sol_status measure_memory(struct pool *pool, size_t working_set, struct ceiling *out)
{
    SOL_TRY(
        measure_reading(pool, memory_buffer_size(), read_chunk, &out->memory, &out->memory_bytes));
    if (working_set == 0 || working_set >= 4 * cpu_info()->l3) return SOL_OK;
    /* Enough chunks for the threads to share evenly. */
    size_t chunk = working_set / (8 * (size_t)pool_size(pool)) / page * page;
    if (chunk < 4 * page) chunk = 4 * page;
    if (chunk > read_chunk) chunk = read_chunk;
    return measure_reading(pool, working_set, chunk, &out->cache, &out->cache_bytes);
}

/* ---- multiplying ---- */

struct multiply_job {
    const struct ceiling_multiplier *multiplier;
    int64_t iterations; /* of one item */
};

static void multiply_items(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct multiply_job *job = arg;
    for (int64_t i = begin; i < end; i++) multiply_sink = job->multiplier->run(job->iterations);
}

/* A quarter of a millisecond; this also wakes clocks and vector units up. */
static int64_t calibrate(const struct ceiling_multiplier *multiplier)
{
    int64_t iterations = 1024;
    for (;; iterations *= 2) {
        uint64_t start = clock_ns();
        multiply_sink = multiplier->run(iterations);
        if (clock_ns() - start > 250000) return iterations;
    }
}

static enum sol_status measure_multiplier(struct pool *pool,
                                          const struct ceiling_multiplier *multiplier,
                                          double seconds, struct ceiling_rate *rate)
{
    struct multiply_job job = {multiplier, calibrate(multiplier)};
    /* Several items: a thread that is held up leaves its share to the others. */
    int64_t items = 4 * (int64_t)pool_size(pool);
    struct series series = {.seconds = seconds};
    while (series_next(&series)) {
        SOL_TRY(interrupt_check());
        pool_for(pool, items, 1, multiply_items, &job);
        series_end_pass(&series, (double)items * (double)job.iterations * multiplier->flops);
    }
    return keep_better(rate, multiplier->name, &series);
}

enum sol_status ceiling_measure_numerics(struct pool *pool, enum op_numerics numerics,
                                         double seconds, struct ceiling_rate *out)
{
    const struct ceiling_multiplier *multiplier = ceiling_multipliers[numerics];
    *out = (struct ceiling_rate){.best = 0};
    while (multiplier->run && !runs_here(multiplier->needs)) multiplier++;
    return multiplier->run ? measure_multiplier(pool, multiplier, seconds, out) : SOL_OK;
}

static enum sol_status measure_arithmetic(struct pool *pool, struct ceiling *out)
{
    double seconds = ceiling_is_brief() ? brief_seconds : 0;
    for (int n = 0; n < NUMERICS_RATES; n++)
        SOL_TRY(ceiling_measure_numerics(pool, (enum op_numerics)n, seconds, &out->arithmetic[n]));
    return SOL_OK;
}

/* ---- one level of the memory at a time ---- */

/* The next slice; each thread goes round its own buffer, with a cache line of its own. */
struct access_cursor {
    size_t at;
    char apart[64 - sizeof(size_t)];
};

struct access_job {
    enum ceiling_access access;
    const struct ceiling_reader *reader;
    const struct ceiling_mover *mover;
    char *data;
    size_t stride, bytes; /* from one thread's buffer to the next; of one */
    size_t slice;         /* bytes that are passed over at a time, a divisor of `bytes` */
    int rounds;           /* slices in an item */
    struct access_cursor *cursors;
};

static void access_items(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct access_job *job = arg;
    char *own = job->data + (size_t)worker * job->stride;
    size_t at = job->cursors[worker].at;
    for (int64_t i = (end - begin) * job->rounds; i > 0; i--) {
        if (job->access == CEILING_READ)
            read_sink = job->reader->run(own + at, job->slice);
        else if (job->access == CEILING_WRITE)
            job->mover->run(own + at, NULL, job->slice);
        else
            job->mover->run(own + at / 2, own + job->bytes / 2 + at / 2, job->slice / 2);
        at = at + job->slice < job->bytes ? at + job->slice : 0;
    }
    job->cursors[worker].at = at;
}

/* The name of the job's loop number `i` and whether it runs here; NULL behind the last. */
static const char *select_loop(struct access_job *job, int i, bool *runs)
{
    if (job->access == CEILING_READ) {
        job->reader = &ceiling_readers[i];
        *runs = job->reader->run && runs_here(job->reader->needs);
        return job->reader->name;
    }
    job->mover = &(job->access == CEILING_WRITE ? ceiling_writers : ceiling_copiers)[i];
    *runs = job->mover->run && runs_here(job->mover->needs);
    return job->mover->name;
}

static enum sol_status measure_loop(struct pool *pool, struct access_job *job, double seconds,
                                    const char *name, struct ceiling_rate *out)
{
    static const size_t item_bytes = (size_t)1 << 20;
    struct series series = {.seconds = seconds};
    int64_t items = 4 * (int64_t)pool_size(pool);
    job->rounds = job->slice < item_bytes ? (int)(item_bytes / job->slice) : 1;
    pool_for(pool, items, 1, access_items, job); /* fills the caches */
    while (series_next(&series)) {
        SOL_TRY(interrupt_check());
        pool_for(pool, items, 1, access_items, job);
        series_end_pass(&series, (double)items * job->rounds * (double)job->slice);
    }
    return keep_better(out, name, &series);
}

enum sol_status ceiling_measure_access(struct pool *pool, enum ceiling_access access, size_t bytes,
                                       double seconds, struct ceiling_rate *out)
{
    static const size_t slice_most = (size_t)8 << 20;
    size_t unit = bytes >= 2 * slice_most ? slice_most : 2 * page;
    struct access_job job = {.access = access, .bytes = bytes / unit * unit};
    size_t size;
    void *data;
    *out = (struct ceiling_rate){.best = 0};
    if (job.bytes == 0) return SOL_OK;
    job.slice = unit == slice_most ? unit : job.bytes;
    job.cursors = calloc((size_t)pool_size(pool), sizeof *job.cursors);
    if (!job.cursors) return status_set(SOL_E_MEMORY, "no memory for a measurement");
    /* A page and a line apart, so that buffers do not share the same few sets of a cache. */
    job.stride = job.bytes + page;
    size = job.stride * (size_t)pool_size(pool);
    enum sol_status status = pages_alloc(size, &data);
    if (status != SOL_OK) {
        free(job.cursors);
        return status;
    }
    job.data = data;
    for (size_t at = 0; at < size; at += page) job.data[at] = 1;
    bool runs;
    const char *name;
    for (int i = 0; status == SOL_OK && (name = select_loop(&job, i, &runs)); i++)
        if (runs) status = measure_loop(pool, &job, seconds, name, out);
    pages_free(data, size);
    free(job.cursors);
    return status;
}

/* ---- results ---- */

enum sol_status ceiling_measure(struct pool *pool, size_t working_set, struct ceiling *out)
{
    struct watch watch;
    watch_start(&watch);
    *out = (struct ceiling){.threads = pool_size(pool)};
    SOL_TRY(measure_memory(pool, working_set, out));
    SOL_TRY(measure_arithmetic(pool, out));
    watch_stop(&watch, &out->watch);
    return SOL_OK;
}

static void merge_rate(struct ceiling_rate *into, const struct ceiling_rate *other)
{
    if (other->best > into->best) *into = *other;
}

void ceiling_merge(struct ceiling *into, const struct ceiling *other)
{
    merge_rate(&into->memory, &other->memory);
    merge_rate(&into->cache, &other->cache);
    for (int n = 0; n < NUMERICS_RATES; n++)
        merge_rate(&into->arithmetic[n], &other->arithmetic[n]);
    if (other->watch.other_cores < into->watch.other_cores) into->watch = other->watch;
}

double ceiling_read_rate(const struct ceiling *ceiling)
{
    /* Noise aside, a cache is never slower than memory. */
    return ceiling->cache.best > ceiling->memory.best ? ceiling->cache.best : ceiling->memory.best;
}

double ceiling_flop_rate(const struct ceiling *ceiling, enum op_numerics numerics)
{
    double rate = ceiling->arithmetic[numerics == NUMERICS_I8_ROW ? NUMERICS_I8 : numerics].best;
    return rate > 0 ? rate : ceiling->arithmetic[NUMERICS_EXACT].best;
}

static json_t *rate_json(const struct ceiling_rate *rate, size_t bytes)
{
    if (rate->best == 0) return json_null();
    json_t *json = json_pack("{s:f, s:f, s:s}", "best", rate->best * 1e-9, "median",
                             rate->median * 1e-9, "kernel", rate->kernel);
    if (json && bytes) json_object_set_new(json, "buffer_bytes", json_integer((json_int_t)bytes));
    return json;
}

json_t *ceiling_json(const struct ceiling *ceiling)
{
    const struct ceiling_rate *a = ceiling->arithmetic;
    return json_pack("{s:i, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "threads", ceiling->threads,
                     "seconds", ceiling->watch.seconds, "other_cores", ceiling->watch.other_cores,
                     "memory_read_gb_s", rate_json(&ceiling->memory, ceiling->memory_bytes),
                     "cache_read_gb_s", rate_json(&ceiling->cache, ceiling->cache_bytes),
                     "f32_gflop_s", rate_json(&a[NUMERICS_EXACT], 0), "bf16_gflop_s",
                     rate_json(&a[NUMERICS_BF16], 0), "i8_gflop_s", rate_json(&a[NUMERICS_I8], 0));
}
