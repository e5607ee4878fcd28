/* Which copy of a model a request goes to: choices of random loads against the rule in other words;
 * and with two engines: prefixes are followed, load spreads, limits and shares hold over both, the
 * same text comes from either, and one that fails is left out. */
#include "schedule/router.h"

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
#include "gpu/device.h"
#include "ops/batch.h"

enum { CONTEXT = 400, COPIES = 2, TOKENS = 24 };

static struct model *model;

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

/* ---- the choice ---- */

static int64_t load(const struct route_copy *c)
{
    return c->prefill + ROUTER_TEXT * c->texts;
}

/* Whether a request may stay at `at` as far as `other` goes: it is more loaded by no more than its
 * prefix saves; where that is the same, it has no more to do; then no less room. */
static bool may_stay(const struct route_copy *at, const struct route_copy *other)
{
    if (other->failed) return true;
    const int64_t more = load(at) - load(other), saves = at->kept - other->kept;
    if (more != saves) return more < saves;
    return more != 0 ? more < 0 : at->free >= other->free;
}

static void test_choice(void **state)
{
    (void)state;
    struct rng rng;
    int followed = 0, left = 0;
    rng_seed(&rng, 1);
    for (int round = 0; round < 50000; round++) {
        struct route_copy copies[ROUTER_COPIES_MAX];
        const int n = (int)rng_range(&rng, 1, ROUTER_COPIES_MAX);
        int longest = -1, working = 0;
        for (int i = 0; i < n; i++) {
            /* Few values, so that many are equal; and prefixes worth a text or not. */
            copies[i] = (struct route_copy){
                .failed = rng_range(&rng, 0, 4) == 0,
                .kept = rng_range(&rng, 0, 4) * 256,
                .prefill = rng_range(&rng, 0, 3) * 256,
                .texts = rng_range(&rng, 0, 3),
                .free = rng_range(&rng, 0, 2) * 128,
            };
            working += !copies[i].failed;
            if (!copies[i].failed && (longest < 0 || copies[i].kept > copies[longest].kept))
                longest = i;
        }
        const int chosen = route_choose(copies, n);
        assert_true(chosen < n);
        assert_int_equal(chosen >= 0, working > 0);
        if (chosen < 0) continue;
        assert_false(copies[chosen].failed);
        for (int i = 0; i < n; i++) {
            assert_true(may_stay(&copies[chosen], &copies[i]));
            if (i < chosen && !copies[i].failed)
                assert_false(may_stay(&copies[i], &copies[chosen])); /* else the first */
        }
        followed += copies[chosen].kept == copies[longest].kept;
        left += copies[chosen].kept < copies[longest].kept;
    }
    assert_true(followed > 5000 && left > 5000);
}

/* ---- requests ---- */

struct job {
    int32_t prompt[CONTEXT];
    int64_t n_prompt;
    struct schedule_request request;
    struct sampler *sampler;
    atomic_int *gate; /* on_token waits until it is not 0 */
    uint64_t id;
    int32_t tokens[TOKENS];
    int64_t n;
    struct schedule_result result;
    char message[256];
    atomic_int told, ended;
    int rank; /* of its end among those of all */
};

static atomic_int ends;

static bool on_token(void *arg, int32_t token, int64_t count)
{
    struct job *job = arg;
    if (count > TOKENS) abort();
    job->tokens[job->n++] = token;
    atomic_fetch_add(&job->told, 1);
    while (job->gate && !atomic_load(job->gate)) usleep(300);
    return true;
}

static void on_end(void *arg, const struct schedule_result *result)
{
    struct job *job = arg;
    job->result = *result;
    snprintf(job->message, sizeof job->message, "%s", result->message);
    job->rank = atomic_fetch_add(&ends, 1);
    atomic_store(&job->ended, 1);
}

/* Prompts of different `text` have nothing in common. */
static struct job *new_job(int text, int64_t n_prompt)
{
    struct job *job = calloc(1, sizeof *job);
    struct sampler_params sampling;
    sampler_params_init(&sampling);
    for (int64_t i = 0; i < n_prompt; i++)
        job->prompt[i] = (int32_t)((text * 37 + i * i * 3 + i) % model->config.vocab);
    must(sampler_create(&sampling, model->config.vocab, NULL, &job->sampler));
    job->n_prompt = n_prompt;
    job->request = (struct schedule_request){.prompt = job->prompt,
                                             .n_prompt = n_prompt,
                                             .sampler = job->sampler,
                                             .limit = TOKENS,
                                             .on_token = on_token,
                                             .on_end = on_end,
                                             .arg = job};
    return job;
}

static void submit(struct router *router, struct job *job, uint64_t beside)
{
    double wait = 0;
    must(router_submit(router, &job->request, beside, &job->id, &wait));
}

static void wait_for(atomic_int *what)
{
    for (int i = 0; i < 60000 && !atomic_load(what); i++) usleep(1000);
    assert_true(atomic_load(what));
}

static void free_job(struct job *job)
{
    sampler_destroy(job->sampler);
    free(job);
}

/* Runs one to its end. How many of its tokens were kept; `*copy`: where it ran. */
static int64_t run_one(struct router *router, int text, int64_t n_prompt, int *copy)
{
    struct scheduler_stats before[COPIES], after;
    struct job *job = new_job(text, n_prompt);
    for (int i = 0; i < COPIES; i++) router_copy_stats(router, i, &before[i]);
    submit(router, job, 0);
    wait_for(&job->ended);
    assert_int_equal(job->result.end, SCHEDULE_LENGTH);
    *copy = -1;
    for (int i = 0; i < COPIES; i++) {
        router_copy_stats(router, i, &after);
        if (after.submitted > before[i].submitted) *copy = i;
    }
    int64_t cached = job->result.cached;
    free_job(job);
    return cached;
}

/* ---- copies ---- */

struct copies {
    struct engine *engines[COPIES];
    struct gpu *gpus[COPIES];
    struct router *router;
};

static void open_copies(struct copies *c, int64_t sequences, int64_t max_waiting)
{
    struct engine_params p;
    struct scheduler_params how;
    for (int i = 0; i < COPIES; i++) {
        engine_params_init(&p);
        p.context = CONTEXT;
        p.sequences = sequences;
        p.cache_positions = 24 * KV_PAGE;
        p.snapshots = 16;
        p.max_batch = p.max_outputs = 64;
        p.threads = 1;
        p.chooser.loosest = NUMERICS_EXACT;
        p.chooser.device.gpu = c->gpus[i];
        must(engine_create(model, &p, &c->engines[i]));
    }
    scheduler_params_init(c->engines[0], &how);
    how.snapshot_every = 32;
    if (max_waiting) how.max_waiting = max_waiting;
    must(router_create(c->engines, COPIES, &how, &c->router));
    assert_int_equal(router_copies(c->router), COPIES);
}

static void close_copies(struct copies *c)
{
    router_destroy(c->router);
    for (int i = 0; i < COPIES; i++) engine_destroy(c->engines[i]);
}

static int64_t submitted(const struct copies *c, int copy)
{
    struct scheduler_stats t;
    router_copy_stats(c->router, copy, &t);
    return t.submitted;
}

/* ---- prefixes and load ---- */

static void test_prefix(void **state)
{
    (void)state;
    struct copies c = {0};
    struct scheduler_stats all;
    int first, second, again;
    open_copies(&c, 4, 0);
    assert_int_equal(run_one(c.router, 1, 150, &first), 0);
    /* Equal load: the other one has more of its cache free. */
    assert_int_equal(run_one(c.router, 2, 150, &second), 0);
    assert_int_not_equal(first, second);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(run_one(c.router, 1, 200, &again), round ? 192 : 128);
        assert_int_equal(again, first);
        assert_int_equal(run_one(c.router, 2, 200, &again), round ? 192 : 128);
        assert_int_equal(again, second);
    }
    router_stats(c.router, &all);
    assert_int_equal(all.submitted, 8);
    assert_int_equal(all.cached_tokens, 2 * (128 + 192 + 192));
    close_copies(&c);
}

static void test_spread(void **state)
{
    (void)state;
    struct copies c = {0};
    struct job *jobs[10];
    atomic_int gate = 0;
    int copy, other;
    open_copies(&c, 8, 0);
    run_one(c.router, 1, 300, &copy);
    for (int i = 0; i < 8; i++) {
        jobs[i] = new_job(10 + i, 40);
        jobs[i]->gate = &gate;
        submit(c.router, jobs[i], 0);
    }
    assert_int_equal(submitted(&c, copy), 1 + 4);
    assert_int_equal(submitted(&c, 1 - copy), 4);
    /* Equally loaded: the prefix decides. Then a text more outweighs it. */
    for (int i = 8; i < 10; i++) {
        jobs[i] = new_job(1, 320);
        jobs[i]->gate = &gate;
        submit(c.router, jobs[i], 0);
        assert_int_equal(submitted(&c, copy), 1 + 4 + 1);
        assert_int_equal(submitted(&c, 1 - copy), 4 + (i == 9));
    }
    atomic_store(&gate, 1);
    for (int i = 0; i < 10; i++) wait_for(&jobs[i]->ended);
    assert_int_equal(jobs[8]->result.cached, 288);
    assert_int_equal(jobs[9]->result.cached, 0);
    for (int i = 0; i < 10; i++) free_job(jobs[i]);
    run_one(c.router, 1, 320, &other); /* both have it now */
    close_copies(&c);
}

/* ---- over both together ---- */

static void test_limits(void **state)
{
    (void)state;
    struct copies c = {0};
    struct job *jobs[7];
    struct scheduler_stats all;
    atomic_int gate = 0;
    double wait = 0;
    open_copies(&c, 1, 4);
    for (int i = 0; i < 7; i++) {
        jobs[i] = new_job(i, 20);
        jobs[i]->gate = &gate;
    }
    for (int i = 0; i < 2; i++) {
        submit(c.router, jobs[i], 0);
        wait_for(&jobs[i]->told); /* it runs, and its copy waits for the gate */
    }
    for (int i = 2; i < 6; i++) submit(c.router, jobs[i], i < 5 ? jobs[0]->id : 0);
    assert_int_equal(router_submit(c.router, &jobs[6]->request, 0, &jobs[6]->id, &wait),
                     SOL_E_MEMORY);
    assert_non_null(strstr(sol_last_error(), "4 requests with 80 tokens wait already"));
    assert_true(wait > 0);
    router_stats(c.router, &all);
    assert_int_equal(all.running, 2);
    assert_int_equal(all.waiting, 4);
    assert_int_equal(all.refused, 1);
    /* Room once one of them is gone, whichever copy it waited for. */
    router_cancel(c.router, jobs[2]->id);
    atomic_store(&gate, 1);
    for (int i = 0; i < 6; i++) wait_for(&jobs[i]->ended);
    assert_int_equal(jobs[2]->result.end, SCHEDULE_CANCELLED);
    assert_int_equal(jobs[1]->result.end, SCHEDULE_LENGTH);
    submit(c.router, jobs[6], 0);
    wait_for(&jobs[6]->ended);
    for (int i = 0; i < 7; i++) free_job(jobs[i]);
    close_copies(&c);
}

/* What a key was given by one copy counts at the other. */
static void test_shares(void **state)
{
    (void)state;
    struct copies c = {0};
    struct job *jobs[4];
    atomic_int gate = 0;
    static const uint64_t keys[] = {3, 1, 1, 2};
    open_copies(&c, 1, 0);
    for (int i = 0; i < 4; i++) {
        jobs[i] = new_job(i, i == 1 ? 300 : 20);
        jobs[i]->request.key = keys[i];
        jobs[i]->gate = &gate;
    }
    submit(c.router, jobs[0], 0);
    wait_for(&jobs[0]->told);
    submit(c.router, jobs[1], 0);
    wait_for(&jobs[1]->told); /* key 1 has 300 rows by the other copy */
    submit(c.router, jobs[2], jobs[0]->id);
    submit(c.router, jobs[3], jobs[0]->id);
    atomic_store(&gate, 1);
    for (int i = 0; i < 4; i++) wait_for(&jobs[i]->ended);
    assert_true(jobs[3]->rank < jobs[2]->rank);
    for (int i = 0; i < 4; i++) free_job(jobs[i]);
    close_copies(&c);
}

static void test_same_text(void **state)
{
    (void)state;
    struct copies c = {0};
    struct job *holds[COPIES], *jobs[COPIES];
    atomic_int gate = 0;
    open_copies(&c, 4, 0);
    for (int i = 0; i < COPIES; i++) {
        holds[i] = new_job(i, 20);
        holds[i]->gate = &gate;
        submit(c.router, holds[i], 0);
    }
    for (int i = 0; i < COPIES; i++) {
        jobs[i] = new_job(9, 100);
        submit(c.router, jobs[i], holds[i]->id);
    }
    atomic_store(&gate, 1);
    for (int i = 0; i < COPIES; i++) {
        wait_for(&holds[i]->ended);
        wait_for(&jobs[i]->ended);
    }
    assert_int_equal(submitted(&c, 0), 2);
    assert_int_equal(submitted(&c, 1), 2);
    assert_memory_equal(jobs[0]->tokens, jobs[1]->tokens, sizeof jobs[0]->tokens);
    for (int i = 0; i < COPIES; i++) {
        free_job(holds[i]);
        free_job(jobs[i]);
    }
    close_copies(&c);
}

/* ---- one fails ---- */

static const struct fake_cuda_params two_cards = {
    .devices = COPIES, .major = 9, .minor = 0, .memory = (size_t)64 << 20};

static void test_one_fails(void **state)
{
    (void)state;
    struct copies c = {0};
    struct scheduler_stats t;
    double wait = 0;
    struct job *jobs[5];
    atomic_int gate = 0;
    cuda_replace(fake_cuda_start(&two_cards));
    for (int i = 0; i < COPIES; i++) must(gpu_open(i, &c.gpus[i]));
    open_copies(&c, 3, 0);
    for (int i = 0; i < 5; i++) jobs[i] = new_job(i, 40);
    for (int i = 0; i < COPIES; i++) {
        jobs[i]->gate = &gate;
        submit(c.router, jobs[i], 0);
        assert_int_equal(submitted(&c, i), 1);
        wait_for(&jobs[i]->told);
    }
    fake_cuda_fail(1, 700, true);
    fake_cuda_fail_on(1);
    atomic_store(&gate, 1);
    for (int i = 0; i < COPIES; i++) wait_for(&jobs[i]->ended);
    assert_int_equal(jobs[0]->result.end, SCHEDULE_LENGTH);
    assert_int_equal(jobs[1]->result.end, SCHEDULE_FAILED);
    assert_int_equal(jobs[1]->result.status, SOL_E_DEVICE);
    assert_true(strlen(jobs[1]->message) > 10);
    assert_int_equal(router_check(c.router), SOL_OK);
    router_copy_stats(c.router, 1, &t);
    assert_int_equal(t.broken, SOL_E_DEVICE);
    router_stats(c.router, &t);
    assert_int_equal(t.broken, SOL_OK);
    assert_int_equal(t.running + t.waiting + t.prefill_tokens, 0); /* nobody waits for them */
    for (int i = 2; i < 4; i++) submit(c.router, jobs[i], 0);      /* to the other one */
    for (int i = 2; i < 4; i++) {
        wait_for(&jobs[i]->ended);
        assert_int_equal(jobs[i]->result.end, SCHEDULE_LENGTH);
    }
    fake_cuda_fail_on(0);
    submit(c.router, jobs[4], 0);
    wait_for(&jobs[4]->ended);
    assert_int_equal(jobs[4]->result.end, SCHEDULE_FAILED);
    assert_int_equal(router_check(c.router), SOL_E_DEVICE);
    router_stats(c.router, &t);
    assert_int_equal(t.broken, SOL_E_DEVICE);
    assert_int_equal(router_submit(c.router, &jobs[4]->request, 0, &jobs[4]->id, &wait),
                     SOL_E_DEVICE);
    for (int i = 0; i < 5; i++) free_job(jobs[i]);
    close_copies(&c);
    for (int i = 0; i < COPIES; i++) gpu_close(c.gpus[i]);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static int set_up(void **state)
{
    (void)state;
    return model_open("synth:tiny", &model) == SOL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),    cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_spread),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_shares),    cmocka_unit_test(test_same_text),
        cmocka_unit_test(test_one_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
