/* Engines at work at the same time, each in a thread of its own: on two streams of one GPU, and on
 * two GPUs. Every row of logits has the bits that it has when the engine runs alone.
 *
 * What would break them is what kernels of two streams share. Attention of few rows counts the
 * pieces of a row that are finished, and the block that finds itself last puts them together: with
 * counters of the module instead of the stream, another stream's pieces are counted too, a row is
 * put together from parts that are not there yet, or never, and the counters stay wrong for all
 * that follows. Hence long contexts, in many pieces, and a model in which later layers keep what a
 * layer made of them.
 *
 * SOL_TEST_BACKEND=cuda: else skipped.
 *
 * usage: golden_streams [MODEL] */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes_hash.h"
#include "base/rng.h"
#include "gpu/device.h"
#include "infer/engine.h"
#include "support/backend.h"
#include "support/effort.h"

enum {
    PLAYERS = 2,
    SEQUENCES = 8,
    CONTEXT = 8192, /* at most; the sequences but the first begin in its middle */
    PROMPT = 700,
    STEPS = 200,  /* of all sequences */
    DRAWS = 1000, /* of one, whose kernels leave room for others on the GPU */
    HASHES = 1 + STEPS + DRAWS + 1,
    ROUNDS = 4, /* together */
};

static const char *const usual[] = {"synth:tiny", "synth:gpt-oss-20b,layers=4"};
static const char *const *names = usual;
static size_t n_names = sizeof usual / sizeof *usual;
static int64_t prompt, steps, draws, rounds; /* as many, or fewer */

struct player {
    int number;
    struct gpu *gpu;
    const struct model *model;
    pthread_barrier_t *together;
    struct engine *engine;
    uint64_t hashes[HASHES]; /* of the prompt's logits and each step's; the tokens drawn; the end */
    int n_hashes;
    int counting; /* steps of the last plan whose kernels count */
    enum sol_status status;
    char message[256];
};

static struct engine_row row_of(const struct player *p, struct rng *rng, int sequence, bool output)
{
    return (struct engine_row){.token = (int32_t)(rng_next(rng) % (uint64_t)p->model->config.vocab),
                               .sequence = sequence,
                               .output = output};
}

static enum sol_status evaluate(struct player *p, const struct engine_row *rows, int64_t n)
{
    const float *logits;
    SOL_TRY(engine_eval(p->engine, rows, n, NULL, NULL, &logits));
    p->hashes[p->n_hashes++] =
        bytes_hash((const char *)logits, (size_t)p->model->config.vocab * sizeof *logits);
    return SOL_OK;
}

static void count_counting(struct player *p)
{
    static const char *const variants[] = {"attention_decode_cuda", "attn_out_rows_cuda"};
    const struct plan *plan = engine_last_plan(p->engine);
    p->counting = 0;
    for (int i = 0; i < plan_step_count(plan); i++)
        for (int v = 0; v < 2; v++)
            p->counting += strcmp(plan_step_at(plan, i)->variant, variants[v]) == 0;
}

/* Of all sequences; the logits of one. */
static enum sol_status step(struct player *p, struct rng *rng, int looked_at)
{
    struct engine_row rows[SEQUENCES];
    for (int s = 0; s < SEQUENCES; s++) rows[s] = row_of(p, rng, s, s == looked_at);
    return evaluate(p, rows, SEQUENCES);
}

static enum sol_status draw(struct player *p, struct rng *rng)
{
    struct sampler_params params;
    struct sampler *sampler;
    struct engine_row row = row_of(p, rng, SEQUENCES - 1, true);
    sampler_params_init(&params);
    SOL_TRY(sampler_create(&params, p->model->config.vocab, NULL, &sampler));
    enum sol_status status = SOL_OK;
    for (int64_t i = 0; i < draws && status == SOL_OK; i++) {
        status = engine_eval_token(p->engine, &row, sampler, true, &row.token);
        p->hashes[p->n_hashes++] = (uint64_t)row.token;
    }
    sampler_destroy(sampler);
    return status;
}

static enum sol_status play(struct player *p)
{
    struct engine_params params;
    struct engine_row rows[PROMPT];
    struct rng rng;
    rng_seed(&rng, 7 + (uint64_t)p->number);
    engine_params_init(&params);
    params.threads = 1;
    params.context = p->model->config.context < CONTEXT ? p->model->config.context : CONTEXT;
    params.sequences = SEQUENCES;
    params.chooser.device.gpu = p->gpu;
    SOL_TRY(engine_create(p->model, &params, &p->engine));
    SOL_TRY(engine_fill_cache(p->engine));
    for (int64_t i = 0; i < prompt; i++) rows[i] = row_of(p, &rng, 0, i == prompt - 1);
    SOL_TRY(evaluate(p, rows, prompt));
    for (int s = 1; s < SEQUENCES; s++)
        SOL_TRY(engine_pretend(p->engine, s, params.context / 2 + 50 * s));
    for (int64_t i = 0; i < steps; i++) SOL_TRY(step(p, &rng, (int)(i % SEQUENCES)));
    count_counting(p);
    SOL_TRY(draw(p, &rng));
    return step(p, &rng, SEQUENCES - 1); /* whose cache is what became of what was drawn */
}

static void *play_thread(void *arg)
{
    struct player *p = arg;
    pthread_barrier_wait(p->together);
    p->status = play(p);
    if (p->status != SOL_OK) snprintf(p->message, sizeof p->message, "%s", sol_last_error());
    engine_destroy(p->engine);
    return NULL;
}

static void play_all(struct player players[], int n)
{
    pthread_t threads[PLAYERS];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        players[i].together = &together;
        assert_int_equal(pthread_create(&threads[i], NULL, play_thread, &players[i]), 0);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    for (int i = 0; i < n; i++)
        if (players[i].status != SOL_OK) fail_msg("engine %d: %s", i, players[i].message);
}

/* How many differ; the first is told. */
static int compare(const char *name, const struct player *alone, const struct player *p)
{
    int differ = 0;
    assert_int_equal(p->n_hashes, alone->n_hashes);
    for (int i = 0; i < p->n_hashes; i++) {
        if (p->hashes[i] == alone->hashes[i]) continue;
        const char *what = i == 0                ? "the prompt"
                           : i <= steps          ? "a step of all"
                           : i < p->n_hashes - 1 ? "a token drawn"
                                                 : "the last step";
        if (!differ++)
            print_error("%s, engine %d: other bits than alone, first in %s (%d of %d)\n", name,
                        p->number, what, i, p->n_hashes);
    }
    return differ;
}

static void check_model(const char *name, struct gpu *const gpus[PLAYERS])
{
    struct model *model;
    static struct player alone[PLAYERS], players[PLAYERS];
    int differ = 0;
    if (model_open(name, &model) != SOL_OK) fail_msg("%s", sol_last_error());
    for (int i = 0; i < PLAYERS; i++) {
        alone[i] = (struct player){.number = i, .gpu = gpus[i], .model = model};
        play_all(&alone[i], 1);
    }
    for (int64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < PLAYERS; i++)
            players[i] = (struct player){.number = i, .gpu = gpus[i], .model = model};
        play_all(players, PLAYERS);
        for (int i = 0; i < PLAYERS; i++) differ += compare(name, &alone[i], &players[i]);
    }
    print_message("%s: %lld times %d results of %d engines, %d kernels that count in a step\n",
                  name, (long long)rounds, alone[0].n_hashes, PLAYERS, alone[0].counting);
    bool counts = model->config.head_dim == 64; /* what attention_decode is for */
    model_close(model);
    assert_int_equal(differ, 0);
    if (counts) assert_true(alone[0].counting > 0);
}

/* Opens as many as there are wanted, or skips. */
static void open_gpus(struct gpu *gpus[], int wanted)
{
    struct gpu_info infos[PLAYERS];
    int count = 0;
    if (!test_on_gpu()) {
        print_message("skipped: SOL_TEST_BACKEND=cuda runs it on GPUs\n");
        skip();
    }
    if (gpu_list(infos, PLAYERS, &count) != SOL_OK) fail_msg("%s", sol_last_error());
    if (count < wanted) {
        print_message("skipped: it needs %d GPUs, there are %d\n", wanted, count);
        skip();
    }
    for (int i = 0; i < wanted; i++)
        if (gpu_open(i, &gpus[i]) != SOL_OK) fail_msg("%s", sol_last_error());
}

static void test_two_streams(void **state)
{
    (void)state;
    struct gpu *gpu;
    open_gpus(&gpu, 1);
    for (size_t i = 0; i < n_names; i++) check_model(names[i], (struct gpu *const[]){gpu, gpu});
    gpu_close(gpu);
}

static void test_two_gpus(void **state)
{
    (void)state;
    struct gpu *gpus[PLAYERS];
    open_gpus(gpus, PLAYERS);
    for (size_t i = 0; i < n_names; i++) check_model(names[i], gpus);
    for (int i = 0; i < PLAYERS; i++) gpu_close(gpus[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_streams),
        cmocka_unit_test(test_two_gpus),
    };
    if (argc > 1) {
        names = (const char *const *)&argv[1];
        n_names = 1;
    }
    prompt = effort("tokens of a prompt", PROMPT, 40);
    rounds = effort("rounds", ROUNDS, 1);
    steps = effort("steps of all sequences", STEPS, 5);
    draws = effort("tokens drawn", DRAWS, 5);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
