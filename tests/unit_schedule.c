/* Many requests on one engine: that each gets the tokens that it gets alone, in whatever crowd,
 * with few pages, from snapshots, and when others are cancelled; who comes first; what is refused;
 * what becomes of requests when numbers or the engine fail. SOL_TEST_BACKEND=cuda: steps of fixed
 * shapes on a GPU.
 *
 * Random schedules: SOL_SCHEDULE_SEEDS of them (3), from SOL_SCHEDULE_SEED on (1). */
#include "schedule/scheduler.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "driver/fake_cuda.h"
#include "generate/generate.h"
#include "gpu/device.h"
#include "ops/batch.h"
#include "support/backend.h"
#include "support/effort.h"
#include "support/fail_calls.h"

enum { CONTEXT = 400, TOKENS_MAX = 150 };

static struct model *tiny, *builtin;
static struct gpu *gpu; /* SOL_TEST_BACKEND=cuda; else NULL */

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

/* ---- requests and what becomes of them ---- */

struct job {
    struct scheduler *scheduler;
    int32_t prompt[CONTEXT];
    int64_t points[3], n_prompt;
    struct schedule_request request;
    struct sampler_params sampling;
    struct sampler *sampler;
    atomic_int *gate; /* on_token waits until it is not 0, from token gate_at on */
    int64_t gate_at;
    int64_t enough; /* tokens after which on_token says so; 0: never */
    uint64_t id;
    int32_t tokens[TOKENS_MAX];
    int64_t n;
    struct schedule_result result;
    char message[256];
    atomic_int told, ended;
    int64_t rank; /* of its end among those of all */
};

static atomic_int ends;

static bool on_token(void *arg, int32_t token, int64_t count)
{
    struct job *job = arg;
    if (count != job->n + 1 || count > TOKENS_MAX) abort(); /* of the scheduler's thread */
    job->tokens[job->n++] = token;
    atomic_fetch_add(&job->told, 1);
    while (job->gate && job->n >= job->gate_at && !atomic_load(job->gate)) usleep(500);
    return job->n != job->enough;
}

static void on_end(void *arg, const struct schedule_result *result)
{
    struct job *job = arg;
    job->result = *result;
    snprintf(job->message, sizeof job->message, "%s", result->message);
    job->rank = atomic_fetch_add(&ends, 1);
    atomic_fetch_add(&job->ended, 1);
}

static void open_job(struct job *job, const struct model *model, int64_t limit, uint64_t seed)
{
    sampler_params_init(&job->sampling);
    job->sampling.seed = seed;
    must(sampler_create(&job->sampling, model->config.vocab, NULL, &job->sampler));
    job->request = (struct schedule_request){.prompt = job->prompt,
                                             .n_prompt = job->n_prompt,
                                             .points = job->points,
                                             .sampler = job->sampler,
                                             .limit = limit,
                                             .on_token = on_token,
                                             .on_end = on_end,
                                             .arg = job};
}

static void submit(struct scheduler *s, struct job *job)
{
    double wait;
    job->scheduler = s;
    job->request.n_prompt = job->n_prompt;
    must(scheduler_submit(s, &job->request, &job->id, &wait));
}

static void close_jobs(struct job *jobs, int64_t n)
{
    for (int64_t i = 0; i < n; i++) sampler_destroy(jobs[i].sampler);
    free(jobs);
}

static void wait_for(const struct job *job)
{
    while (!atomic_load(&job->ended)) usleep(500);
}

/* ---- engines ---- */

struct shape {
    int64_t sequences, pages, snapshots, batch, context;
    bool exact;
    int64_t run;
};

static struct engine *open_engine(const struct model *model, struct shape shape)
{
    struct engine *engine;
    struct engine_params p;
    engine_params_init(&p);
    p.context = shape.context ? shape.context : CONTEXT;
    p.sequences = shape.sequences;
    p.cache_positions = shape.pages * KV_PAGE;
    p.snapshots = shape.snapshots;
    p.max_batch = shape.batch;
    p.max_run = shape.run;
    p.max_outputs = shape.batch;
    p.threads = 2;
    p.chooser.device.gpu = gpu;
    if (shape.exact) p.chooser.loosest = NUMERICS_EXACT;
    must(engine_create(model, &p, &engine));
    if (gpu) engine_set_timed(engine, true); /* no graphs: an emulated card is faster without */
    return engine;
}

static struct scheduler *open_scheduler(struct engine *engine, bool deterministic, int64_t chunk)
{
    struct scheduler *s;
    struct scheduler_params p;
    scheduler_params_init(engine, &p);
    p.deterministic = deterministic;
    p.snapshot_every = 16;
    if (chunk) p.chunk = p.prompt_rows = chunk;
    must(scheduler_create(engine, &p, &s));
    return s;
}

/* ---- alone ---- */

/* What a request gets from an engine of its own: with exact numerics however it is computed. */
static int64_t say_alone(struct engine *engine, const struct job *job, int32_t *tokens)
{
    struct sampler *sampler;
    const float *logits;
    int64_t n = 0;
    must(sampler_create(&job->sampling, engine_model(engine)->config.vocab, NULL, &sampler));
    engine_reset(engine, 0);
    must(generate_prefill(engine, 0, job->prompt, job->n_prompt, 0, &logits));
    must(sampler_next(sampler, logits, &tokens[n]));
    for (;;) {
        for (int64_t i = 0; i < job->request.n_stops; i++)
            if (job->request.stops[i] == tokens[n]) goto end;
        if (++n == job->request.limit || job->n_prompt + n > CONTEXT) break;
        const struct engine_row row = {tokens[n - 1], 0, true};
        must(engine_eval_token(engine, &row, sampler, true, &tokens[n]));
    }
end:
    sampler_destroy(sampler);
    return n;
}

static void check_alone(struct engine *engine, const struct job *job)
{
    int32_t tokens[TOKENS_MAX];
    int64_t n = say_alone(engine, job, tokens);
    const enum schedule_end end = job->result.end;
    assert_int_equal(atomic_load(&job->ended), 1);
    assert_string_equal(job->message, "");
    if (end == SCHEDULE_STOP || end == SCHEDULE_LENGTH)
        assert_int_equal(job->n, n);
    else
        assert_true(job->n <= n);
    if (end == SCHEDULE_SATISFIED) assert_int_equal(job->n, job->enough);
    assert_int_equal(job->result.generated, job->n);
    assert_memory_equal(job->tokens, tokens, (size_t)job->n * sizeof *tokens);
    if (end == SCHEDULE_STOP) assert_int_equal(job->result.stop, tokens[n]);
    assert_true(job->result.cached < job->n_prompt);
}

/* ---- random schedules ---- */

enum { JOBS = 24, BASES = 4, SUBMITTERS = 3 };

struct crowd {
    struct scheduler *scheduler;
    struct job *jobs;
    uint64_t seed;
    int first;
    atomic_int refused;
};

/* Texts that begin as others: a base, cut somewhere, and something of its own. */
static void draw_job(struct job *job, struct rng *rng, const struct model *model, int64_t longest,
                     int64_t most)
{
    static const int32_t stops[] = {3, 11, 17, 29, 41};
    int64_t base = rng_range(rng, 0, BASES - 1), same = rng_range(rng, 0, longest - 12);
    for (int64_t i = 0; i < same; i++)
        job->prompt[i] = (int32_t)((base * 7919 + i * i * 31 + i) % model->config.vocab);
    job->n_prompt = same + rng_range(rng, 1, 12);
    for (int64_t i = same; i < job->n_prompt; i++)
        job->prompt[i] = (int32_t)rng_range(rng, 0, model->config.vocab - 1);
    open_job(job, model, rng_range(rng, 0, 3) ? rng_range(rng, 1, most) : 1, rng_next(rng));
    job->points[0] = job->n_prompt;
    job->points[1] = same;
    job->points[2] = rng_range(rng, -1, 500);
    struct schedule_request *r = &job->request;
    r->n_points = rng_range(rng, 0, 3);
    r->keep_end = rng_range(rng, 0, 1);
    r->priority = (int)rng_range(rng, 0, 2);
    r->key = (uint64_t)rng_range(rng, 0, 3);
    r->salt = (uint64_t)rng_range(rng, 0, 5) == 0;
    r->stops = stops;
    r->n_stops = rng_range(rng, 0, 5);
    if (rng_range(rng, 0, 5) == 0) job->enough = rng_range(rng, 1, most);
}

static void *submit_some(void *arg)
{
    struct crowd *c = arg;
    struct rng rng;
    int first =
        atomic_fetch_add(&c->refused, 1) % SUBMITTERS; /* whose turn, until all have begun */
    rng_seed(&rng, c->seed * 977 + (uint64_t)first);
    for (int i = first; i < JOBS; i += SUBMITTERS) {
        submit(c->scheduler, &c->jobs[i]);
        if (rng_range(&rng, 0, 3) == 0) usleep((useconds_t)rng_range(&rng, 0, 3000));
        if (rng_range(&rng, 0, 4) == 0)
            scheduler_cancel(c->scheduler,
                             c->jobs[first + (i - first) / SUBMITTERS / 2 * SUBMITTERS].id);
    }
    return NULL;
}

static void run_crowd(struct engine *engine, struct engine *alone, uint64_t seed,
                      struct scheduler_stats *all)
{
    const struct model *model = engine_model(engine);
    struct crowd c = {.seed = seed, .jobs = calloc(JOBS, sizeof *c.jobs)};
    struct scheduler_stats stats;
    pthread_t threads[SUBMITTERS];
    struct rng rng;
    const int64_t free_before = engine_free_positions(engine);
    assert_non_null(c.jobs);
    rng_seed(&rng, seed);
    /* Long prompts that have much in common, or short ones whose texts grow until pages are few. */
    const int64_t longest = seed % 2 ? 30 : 300, most = seed % 2 ? TOKENS_MAX : 30;
    for (int i = 0; i < JOBS; i++) draw_job(&c.jobs[i], &rng, model, longest, most);
    c.scheduler = open_scheduler(engine, false, rng_range(&rng, 3, 30));
    for (int i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_some, &c), 0);
    for (int i = 0; i < SUBMITTERS; i++) pthread_join(threads[i], NULL);
    scheduler_drain(c.scheduler);
    scheduler_stats(c.scheduler, &stats);
    scheduler_destroy(c.scheduler);
    assert_int_equal(engine_free_positions(engine), free_before);
    for (int i = 0; i < JOBS; i++) check_alone(alone, &c.jobs[i]);
    assert_int_equal(stats.running + stats.waiting + stats.waiting_tokens, 0);
    assert_int_equal(stats.submitted, JOBS);
    all->preemptions += stats.preemptions;
    all->cached_tokens += stats.cached_tokens;
    all->prefix.evicted += stats.prefix.evicted;
    all->ended[SCHEDULE_CANCELLED] += stats.ended[SCHEDULE_CANCELLED];
    all->steps += stats.steps;
    close_jobs(c.jobs, JOBS);
}

static int64_t from_environment(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

/* Few pages and few sequences, so that requests are preempted. */
static void test_crowds(void **state)
{
    (void)state;
    if (gpu) skip();
    struct scheduler_stats all = {0};
    const int64_t first = from_environment("SOL_SCHEDULE_SEED", 1);
    const int64_t n = from_environment("SOL_SCHEDULE_SEEDS", effort("schedules", 4, 1));
    struct engine *alone = open_engine(tiny, (struct shape){1, 0, 0, 64, 0, true, 0});
    for (int64_t seed = first; seed < first + n; seed++) {
        struct engine *engine =
            open_engine(tiny, (struct shape){3 + seed % 3, 4 + seed % 2, seed % 4 * 3, 32, 0, true,
                                             seed % 3 * 7});
        run_crowd(engine, alone, (uint64_t)seed, &all);
        engine_destroy(engine);
    }
    print_message(
        "%lld schedules: %lld steps, %lld preemptions, %lld tokens reused, %lld snapshots "
        "given up, %lld cancelled\n",
        (long long)n, (long long)all.steps, (long long)all.preemptions,
        (long long)all.cached_tokens, (long long)all.prefix.evicted,
        (long long)all.ended[SCHEDULE_CANCELLED]);
    engine_destroy(alone);
    if (n < 3) return;
    assert_true(all.preemptions > 0 && all.cached_tokens > 0 && all.prefix.evicted > 0);
}

/* ---- the same bits ---- */

enum { CHUNK = 20, SUBJECT = 70 };

/* Greedy tokens would hide small differences: drawn ones less, as every draw looks at all weights;
 * and what differs goes on differing. */
static void draw_subject(struct job *job, const struct model *model, uint64_t number)
{
    memset(job, 0, sizeof *job);
    job->n_prompt = SUBJECT + (int64_t)number % 3 * CHUNK;
    for (int64_t i = 0; i < job->n_prompt; i++)
        job->prompt[i] = (int32_t)((i * i * 31 + i * 7 + 5) % model->config.vocab);
    open_job(job, model, gpu ? 6 : 30, number);
}

/* Alone, then in a crowd, then again when its beginning is cached, and once more when it has been
 * preempted. */
static void deterministic(const struct model *model, struct shape shape, int64_t crowd)
{
    const int64_t n = crowd + 1;
    struct job *jobs = calloc((size_t)n, sizeof *jobs), *alone = calloc(1, sizeof *alone);
    struct engine *engine = open_engine(model, shape);
    struct scheduler *s = open_scheduler(engine, true, CHUNK);
    struct scheduler_stats stats;
    struct rng rng;
    assert_true(jobs && alone);
    rng_seed(&rng, 12);
    draw_subject(alone, model, 4);
    submit(s, alone);
    scheduler_drain(s);
    scheduler_destroy(s);
    s = open_scheduler(engine, true, CHUNK);
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 1)
            draw_subject(&jobs[i], model, 4);
        else
            draw_job(&jobs[i], &rng, model, gpu ? 30 : 100, gpu ? 12 : 60);
        jobs[i].request.priority = i % 4 == 1 ? -1 : 0;
        submit(s, &jobs[i]);
        if (i % 8 == 1) usleep(20000);
    }
    scheduler_drain(s);
    scheduler_stats(s, &stats);
    scheduler_destroy(s);
    int64_t preempted = 0, cached = 0;
    for (int64_t i = 1; i < n; i += 4) {
        assert_int_equal(jobs[i].n, alone->n);
        assert_memory_equal(jobs[i].tokens, alone->tokens, (size_t)alone->n * sizeof(int32_t));
        preempted += jobs[i].result.preemptions;
        cached += jobs[i].result.cached;
        assert_int_equal(jobs[i].result.cached % CHUNK, 0);
    }
    print_message("%s: %lld steps, %lld rows of which %lld were padding; the same text %lld times "
                  "preempted, %lld of its tokens cached\n",
                  model->name, (long long)stats.steps, (long long)stats.rows,
                  (long long)stats.padding, (long long)preempted, (long long)cached);
    assert_true(cached > 0);
    engine_destroy(engine);
    close_jobs(jobs, n);
    close_jobs(alone, 1);
}

/* Whoever is preempted in its text, for one of higher priority, goes on as if it had not been. */
static void deterministic_preempted(const struct model *model, bool exact)
{
    struct engine *engine = open_engine(model, (struct shape){2, 0, 4, 40, 0, exact, 0});
    struct job *jobs = calloc(4, sizeof *jobs);
    atomic_int gate = 1;
    assert_non_null(jobs);
    for (int i = 0; i < 4; i++) draw_subject(&jobs[i], model, i < 2 ? 4 : 5);
    for (int round = 0; round < 2; round++) {
        struct scheduler *s = open_scheduler(engine, true, CHUNK);
        jobs[round].gate = &gate;
        jobs[round].gate_at = 8;
        submit(s, &jobs[round]);
        while (round && atomic_load(&jobs[1].told) < 8) usleep(500);
        for (int i = 2; round && i < 4; i++) {
            jobs[i].request.priority = 1;
            submit(s, &jobs[i]);
        }
        atomic_store(&gate, 1);
        scheduler_drain(s);
        scheduler_destroy(s);
        atomic_store(&gate, 0);
    }
    assert_int_equal(jobs[1].result.preemptions, 1);
    assert_int_equal(jobs[0].n, jobs[1].n);
    assert_memory_equal(jobs[0].tokens, jobs[1].tokens, (size_t)jobs[0].n * sizeof(int32_t));
    engine_destroy(engine);
    close_jobs(jobs, 4);
}

static void test_deterministic(void **state)
{
    (void)state;
    if (gpu) {
        deterministic(tiny, (struct shape){4, 7, 8, 24, 200, false, 0}, 9);
        return;
    }
    deterministic(builtin, (struct shape){4, 4, 8, 40, 200, false, 0}, 24);
    deterministic(builtin, (struct shape){4, 4, 8, 40, 200, true, 0}, 24);
    deterministic(tiny, (struct shape){4, 4, 8, 40, 200, false, 0}, 24);
    deterministic_preempted(builtin, false);
    deterministic_preempted(builtin, true);
}

/* ---- order ---- */

static struct job *same_jobs(int64_t n, int64_t n_prompt, int64_t limit)
{
    struct job *jobs = calloc((size_t)n, sizeof *jobs);
    assert_non_null(jobs);
    for (int64_t i = 0; i < n; i++) {
        jobs[i].n_prompt = n_prompt;
        for (int64_t k = 0; k < n_prompt; k++) jobs[i].prompt[k] = (int32_t)((i * 41 + k) % 97);
        open_job(&jobs[i], tiny, limit, (uint64_t)i);
    }
    return jobs;
}

/* One sequence, so that all but the first wait. Those of higher priority come first, and displace
 * it; of two keys neither waits for all of the other's. */
static void test_order(void **state)
{
    (void)state;
    if (gpu) skip();
    struct engine *engine = open_engine(tiny, (struct shape){1, 0, 0, 32, 0, true, 0});
    struct scheduler *s = open_scheduler(engine, false, 0);
    struct job *jobs = same_jobs(13, 30, 20);
    atomic_int gate = 0;
    const int64_t before = atomic_load(&ends);
    for (int i = 0; i < 12; i++) jobs[i].request.key = i >= 10;
    jobs[0].gate = &gate;
    jobs[12].request.priority = 1;
    submit(s, &jobs[0]);
    while (!atomic_load(&jobs[0].told)) usleep(500);
    for (int i = 1; i < 13; i++) submit(s, &jobs[i]);
    atomic_store(&gate, 1);
    scheduler_drain(s);
    assert_int_equal(jobs[12].rank - before, 0);
    assert_int_equal(jobs[0].rank - before, 1);
    assert_int_equal(jobs[0].result.preemptions, 1);
    assert_int_equal(jobs[10].rank - before, 2); /* its key was given nothing so far */
    assert_true(jobs[11].rank - before <= 4);
    for (int i = 2; i < 10; i++) assert_true(jobs[i].rank > jobs[i - 1].rank);
    scheduler_destroy(s);
    engine_destroy(engine);
    close_jobs(jobs, 13);
}

/* A long prompt does not keep a short one behind it waiting, nor a running text. */
static void test_short_passes(void **state)
{
    (void)state;
    if (gpu) skip();
    struct engine *engine = open_engine(tiny, (struct shape){4, 0, 0, 64, 0, true, 0});
    struct scheduler *s = open_scheduler(engine, false, 8);
    struct job *jobs = same_jobs(3, 4, 60);
    submit(s, &jobs[0]);
    jobs[1].n_prompt = 390;
    jobs[1].request.limit = 1;
    submit(s, &jobs[1]);
    jobs[2].request.limit = 1;
    submit(s, &jobs[2]);
    scheduler_drain(s);
    assert_true(jobs[2].rank < jobs[1].rank);
    /* Steps of 8 rows of prompts: 49 for the long one, in which the first text went on. */
    scheduler_destroy(s);
    engine_destroy(engine);
    close_jobs(jobs, 3);
}

/* ---- refusals ---- */

static void test_refused(void **state)
{
    (void)state;
    if (gpu) skip();
    struct engine *engine = open_engine(tiny, (struct shape){1, 2, 0, 16, 0, true, 0});
    struct scheduler_params p;
    struct scheduler *s;
    struct job *jobs = same_jobs(8, 20, 40);
    struct scheduler_stats stats;
    double wait;
    uint64_t id;
    scheduler_params_init(engine, &p);
    p.max_waiting = 3;
    p.max_waiting_tokens = 50;
    must(scheduler_create(engine, &p, &s));
    jobs[0].prompt[7] = (int32_t)tiny->config.vocab;
    assert_int_equal(scheduler_submit(s, &jobs[0].request, &id, &wait), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "outside the vocabulary"));
    jobs[0].request.n_prompt = 300;
    jobs[0].prompt[7] = 1;
    assert_int_equal(scheduler_submit(s, &jobs[0].request, &id, &wait), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "does not fit the cache of 256"));
    jobs[0].request.n_prompt = 0;
    assert_int_equal(scheduler_submit(s, &jobs[0].request, &id, &wait), SOL_E_ARGUMENT);
    assert_true(wait == 0);
    int taken = 0, refused = 0;
    for (int i = 1; i < 8; i++) {
        enum sol_status status = scheduler_submit(s, &jobs[i].request, &id, &wait);
        taken += status == SOL_OK;
        refused += status != SOL_OK;
        if (status == SOL_OK) continue;
        assert_int_equal(status, SOL_E_MEMORY);
        assert_true(wait > 0);
        assert_non_null(strstr(sol_last_error(), "wait already"));
    }
    assert_true(taken >= 2 && refused >= 1);
    scheduler_drain(s);
    assert_int_equal(scheduler_submit(s, &jobs[0].request, &id, &wait), SOL_E_ARGUMENT);
    jobs[0].request.n_prompt = 4;
    assert_int_equal(scheduler_submit(s, &jobs[0].request, &id, &wait), SOL_E_INTERRUPTED);
    scheduler_stats(s, &stats);
    assert_int_equal(stats.submitted, taken);
    assert_int_equal(stats.refused, refused + 1);
    scheduler_destroy(s);
    p.deterministic = true;
    p.chunk = 17;
    assert_int_equal(scheduler_create(engine, &p, &s), SOL_E_ARGUMENT);
    assert_null(s);
    engine_destroy(engine);
    close_jobs(jobs, 8);
}

/* A text that fills the cache by itself ends, with what it has; what does not fit the context too.
 */
static void test_full(void **state)
{
    (void)state;
    if (gpu) skip();
    struct engine *engine = open_engine(tiny, (struct shape){2, 1, 2, 16, 160, true, 0});
    struct scheduler *s = open_scheduler(engine, false, 0);
    struct job *jobs = same_jobs(2, 100, 60);
    submit(s, &jobs[0]);
    submit(s, &jobs[1]);
    scheduler_drain(s);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(jobs[i].result.end, SCHEDULE_CONTEXT);
        assert_int_equal(jobs[i].n, 29); /* the last was not computed */
    }
    scheduler_destroy(s);
    engine_destroy(engine);
    engine = open_engine(tiny, (struct shape){1, 0, 0, 16, 110, true, 0});
    s = open_scheduler(engine, false, 0);
    close_jobs(jobs, 2);
    jobs = same_jobs(1, 110, 60);
    submit(s, &jobs[0]);
    scheduler_drain(s);
    assert_int_equal(jobs[0].result.end, SCHEDULE_CONTEXT);
    assert_int_equal(jobs[0].n, 1);
    scheduler_destroy(s);
    engine_destroy(engine);
    close_jobs(jobs, 1);
}

/* ---- ends ---- */

static void test_cancel(void **state)
{
    (void)state;
    if (gpu) skip();
    struct engine *engine = open_engine(tiny, (struct shape){2, 0, 0, 16, 0, true, 0});
    struct scheduler *s = open_scheduler(engine, false, 0);
    struct job *jobs = same_jobs(6, 200, 60);
    atomic_int gate = 0;
    jobs[0].gate = &gate; /* until all is said */
    for (int i = 0; i < 6; i++) submit(s, &jobs[i]);
    scheduler_cancel(s, jobs[5].id); /* that waits */
    scheduler_cancel(s, jobs[0].id);
    scheduler_cancel(s, 12345);
    atomic_store(&gate, 1);
    wait_for(&jobs[5]);
    wait_for(&jobs[0]);
    assert_int_equal(jobs[0].result.end, SCHEDULE_CANCELLED);
    assert_int_equal(jobs[5].result.end, SCHEDULE_CANCELLED);
    assert_true(jobs[5].n == 0 && !atomic_load(&jobs[4].ended));
    scheduler_destroy(s); /* with those that are there */
    for (int i = 0; i < 6; i++) assert_int_equal(atomic_load(&jobs[i].ended), 1);
    assert_int_equal(jobs[4].result.end, SCHEDULE_CANCELLED);
    engine_destroy(engine);
    close_jobs(jobs, 6);
}

/* Logits of those who want them: those that each token was drawn from, told before it. The others'
 * tokens are what they are without. */
struct watched {
    struct job job;
    int64_t seen;
};

static void on_logits(void *arg, int32_t token, const float *logits)
{
    struct watched *w = arg;
    for (int64_t i = 0; i < tiny->config.vocab; i++)
        if (logits[i] > logits[token]) abort(); /* it is greedy */
    if (w->seen++ != w->job.n) abort();
}

static void test_logits(void **state)
{
    (void)state;
    struct engine *engine = open_engine(tiny, (struct shape){4, 0, 2, 16, 0, true, 0});
    struct engine *alone = open_engine(tiny, (struct shape){1, 0, 0, 64, 0, true, 0});
    struct scheduler *s = open_scheduler(engine, false, 0);
    struct watched *w = calloc(6, sizeof *w);
    const int tokens = (int)effort("tokens of a text with logits", 20, 8);
    assert_non_null(w);
    for (int i = 0; i < 6; i++) {
        struct job *job = &w[i].job;
        job->n_prompt = 5 + 3 * i;
        for (int64_t k = 0; k < job->n_prompt; k++) job->prompt[k] = (int32_t)(7 * i + k) % 90;
        open_job(job, tiny, tokens, (uint64_t)i);
        if (i % 2 == 0) {
            sampler_destroy(job->sampler);
            job->sampling.temperature = 0;
            must(sampler_create(&job->sampling, tiny->config.vocab, NULL, &job->sampler));
            job->request.sampler = job->sampler;
            job->request.on_logits = on_logits;
        }
        submit(s, job);
    }
    scheduler_drain(s);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(w[i].job.n, tokens);
        assert_int_equal(w[i].seen, i % 2 == 0 ? tokens : 0);
        if (!gpu) check_alone(alone, &w[i].job);
    }
    scheduler_destroy(s);
    engine_destroy(engine);
    engine_destroy(alone);
    for (int i = 0; i < 6; i++) sampler_destroy(w[i].job.sampler);
    free(w);
}

/* Behind a mark one token alone is allowed, then all again. */
enum { MASK_WORDS = 64 };
struct marked {
    struct job job;
    uint32_t bits[MASK_WORDS];
    int32_t next; /* -1: any */
    int64_t forced;
};

static bool on_marked(void *arg, int32_t token, int64_t count)
{
    struct marked *m = arg;
    if (m->next >= 0 && token != m->next) abort();
    m->forced += m->next >= 0;
    bool mark = m->next < 0 && (m->job.request.n_marks < 0 || token % 3 == 0);
    m->next = mark ? (token * 5 + 1) % 96 : -1;
    memset(m->bits, 0, sizeof m->bits);
    if (mark) m->bits[m->next / 32] = UINT32_C(1) << (m->next % 32);
    sampler_allow(m->job.sampler, mark ? m->bits : NULL);
    return on_token(&m->job, token, count);
}

static void test_marks(void **state)
{
    (void)state;
    int32_t thirds[32 * MASK_WORDS], n = 0;
    assert_true(tiny->config.vocab <= 32 * MASK_WORDS);
    for (int32_t id = 0; id < tiny->config.vocab; id += 3) thirds[n++] = id;
    struct engine *engine = open_engine(tiny, (struct shape){4, 0, 2, 16, 0, false, 0});
    struct scheduler *s = open_scheduler(engine, false, 0);
    struct marked *m = calloc(6, sizeof *m);
    assert_non_null(m);
    for (int i = 0; i < 6; i++) {
        struct job *job = &m[i].job;
        job->n_prompt = 4 + i;
        for (int64_t k = 0; k < job->n_prompt; k++) job->prompt[k] = (int32_t)(5 * i + k) % 90;
        open_job(job, tiny, 60, (uint64_t)i);
        m[i].next = -1;
        job->request.on_token = on_marked;
        job->request.marks = thirds;
        job->request.n_marks = i % 2 ? n : -1;
        submit(s, job);
    }
    scheduler_drain(s);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(m[i].job.n, 60);
        assert_true(i % 2 ? m[i].forced > 3 : m[i].forced == 30);
    }
    scheduler_destroy(s);
    engine_destroy(engine);
    for (int i = 0; i < 6; i++) sampler_destroy(m[i].job.sampler);
    free(m);
}

/* One request's numbers are none of the others', who get what they get alone. */
static void test_not_finite(void **state)
{
    (void)state;
    if (gpu) skip();
    struct model *broken;
    must(model_open("synth:tiny", &broken));
    const struct tensor *embed = &broken->embed;
    const size_t row = dtype_row_bytes(embed->dtype, broken->config.hidden);
    enum { BAD = 96 };
    memset((char *)(uintptr_t)embed->data + BAD * row, 0xff, row);
    struct engine *engine = open_engine(broken, (struct shape){4, 6, 4, 32, 0, true, 0});
    struct engine *alone = open_engine(broken, (struct shape){1, 0, 0, 64, 0, true, 0});
    struct scheduler *s = open_scheduler(engine, false, 0);
    struct job *jobs = same_jobs(12, 40, 20);
    for (int i = 0; i < 12; i++)
        for (int64_t k = 0; k < 40; k++) jobs[i].prompt[k] %= BAD;
    for (int i = 0; i < 12; i++) {
        if (i % 3 == 1) jobs[i].prompt[20 + i] = BAD;
        submit(s, &jobs[i]);
    }
    scheduler_drain(s);
    for (int i = 0; i < 12; i++) {
        if (i % 3 == 1) {
            assert_int_equal(jobs[i].result.end, SCHEDULE_FAILED);
            assert_int_equal(jobs[i].result.status, SOL_E_MISMATCH);
            assert_non_null(strstr(jobs[i].message, "not finite"));
        } else if (jobs[i].result.end != SCHEDULE_FAILED) { /* none drew the bad token */
            check_alone(alone, &jobs[i]);
        }
    }
    scheduler_destroy(s);
    engine_destroy(engine);
    engine_destroy(alone);
    close_jobs(jobs, 12);
    model_close(broken);
}

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)64 << 20};

/* The device fails in some step: all end and are told why, and no more are taken. */
static void test_engine_fails(void **state)
{
    (void)state;
    if (gpu) skip();
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    struct engine *engine = open_engine(tiny, (struct shape){3, 0, 4, 16, 0, false, 0});
    struct scheduler *s = open_scheduler(engine, false, 0);
    struct job *jobs = same_jobs(8, 20, 60);
    double wait;
    uint64_t id;
    fake_cuda_fail(300, 700, true);
    for (int i = 0; i < 7; i++)
        if (scheduler_submit(s, &jobs[i].request, &id, &wait) != SOL_OK) jobs[i].ended = 9;
    for (int i = 0; i < 7; i++) wait_for(&jobs[i]);
    int failed = 0;
    for (int i = 0; i < 7; i++)
        if (jobs[i].ended == 1 && jobs[i].result.end == SCHEDULE_FAILED) {
            failed++;
            assert_int_equal(jobs[i].result.status, SOL_E_DEVICE);
            assert_true(strlen(jobs[i].message) > 10);
        }
    assert_true(failed > 0);
    assert_int_equal(scheduler_submit(s, &jobs[7].request, &id, &wait), SOL_E_DEVICE);
    scheduler_destroy(s);
    engine_destroy(engine);
    gpu_close(gpu);
    gpu = NULL;
    cuda_replace(NULL);
    fake_cuda_stop();
    close_jobs(jobs, 8);
}

static int set_up(void **state)
{
    (void)state;
    gpu = test_gpu();
    /* An emulated card needs seconds for a step. */
    if (model_open(gpu ? "synth:tiny,layers=2" : "synth:tiny", &tiny) != SOL_OK) return -1;
    return model_open(SOL_SOURCE_DIR "/models/builtin.gguf", &builtin) == SOL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    model_close(builtin);
    model_close(tiny);
    gpu_close(gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowds),       cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_order),        cmocka_unit_test(test_short_passes),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_full),
        cmocka_unit_test(test_cancel),       cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_logits),       cmocka_unit_test(test_marks),
        cmocka_unit_test(test_engine_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
