/* Sessions: prompts that go on, change in the middle, or come again, against an engine that is told
 * the same steps, bit for bit, in both numerics; what is saved and read back goes on with the same
 * bits; damaged files and files of others are refused, and change nothing; and a GPU that fails. */
#include "generate/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <nettle/sha2.h>

#include "base/rng.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "model/identity.h"
#include "ops/batch.h"
#include "support/backend.h"
#include "support/effort.h"
#include "support/fail_calls.h"

enum { CONTEXT = 420, BATCH = 45, POINTS = 5, KEPT = 64 };

static const char *const names[] = {"synth:tiny", SOL_SOURCE_DIR "/tests/golden/gpt_2026_07"};
static struct model *models[2];
static struct gpu *gpu; /* SOL_TEST_BACKEND=cuda; else NULL */
static char folder[] = "/tmp/sol-session-XXXXXX";

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static int64_t context_of(const struct model *model)
{
    return CONTEXT < model->config.context ? CONTEXT : model->config.context;
}

static struct engine *open_engine(const struct model *model, bool exact, bool session)
{
    struct engine_params p;
    struct engine *engine;
    engine_params_init(&p);
    p.context = context_of(model);
    p.max_batch = BATCH;
    p.threads = 1;
    p.chooser.device.gpu = gpu;
    if (exact) p.chooser.loosest = NUMERICS_EXACT;
    if (session) {
        session_engine_params(&p);
    } else {
        p.snapshots = KEPT;
        p.cache_positions = p.context + KEPT * KV_PAGE;
    }
    must(engine_create(model, &p, &engine));
    return engine;
}

/* ---- random conversations ---- */

struct prompt {
    int32_t tokens[CONTEXT];
    int64_t n, points[POINTS];
    size_t n_points;
};

struct world {
    const struct model *model;
    struct engine *engine, *told; /* the session's, and the one that is told the same steps */
    struct session *session;
    struct rng rng;
    struct prompt held; /* what `told` holds */
    int64_t kept[KEPT]; /* where it has snapshots: beginnings of that */
    int n_kept;
    int64_t returned, went_on, from_start, saved;
};

static void add_tokens(struct world *w, struct prompt *p, int64_t n)
{
    while (n-- > 0 && p->n < context_of(w->model))
        p->tokens[p->n++] = (int32_t)rng_range(&w->rng, 0, w->model->config.vocab - 1);
}

/* The last one, changed as conversations are. */
static void next_prompt(struct world *w, struct prompt *p)
{
    int64_t what = rng_range(&w->rng, 0, 9);
    *p = w->held;
    if (what < 4 && p->n) { /* reasoning was dropped, or the user has edited */
        p->n = rng_range(&w->rng, 0, p->n);
    } else if (what == 4) {
        p->n = 0;
    }
    if (what != 5) add_tokens(w, p, rng_range(&w->rng, 0, 90));
    if (!p->n) add_tokens(w, p, 1);
    p->n_points = 0;
    for (int64_t at = 0; p->n_points + 1 < POINTS;) {
        at += rng_range(&w->rng, 1, 60);
        if (at >= p->n) break;
        p->points[p->n_points++] = at;
    }
    if (rng_range(&w->rng, 0, 3)) p->points[p->n_points++] = p->n;
}

static void keep(struct world *w, int64_t position)
{
    for (int i = 0; i < w->n_kept; i++)
        if (w->kept[i] == position) return;
    assert_true(w->n_kept < KEPT);
    must(engine_snapshot(w->told, 0, position, w->n_kept));
    w->kept[w->n_kept++] = position;
}

/* To a snapshot of what is held; later ones are forgotten, wherever they lie. */
static void go_back(struct world *w, int64_t to)
{
    int slot = -1;
    for (int i = 0; i < w->n_kept; i++)
        if (w->kept[i] == to) slot = i;
    if (to) {
        assert_true(slot >= 0);
        must(engine_restore(w->told, slot, 0));
    } else {
        engine_reset(w->told, 0);
    }
    for (int i = 0; i < w->n_kept; i++) /* positions rise */
        if (w->kept[i] > to) {
            for (int k = i; k < w->n_kept; k++) engine_drop_snapshot(w->told, k);
            w->n_kept = i;
        }
}

static const float *tell(struct world *w, const struct prompt *p, int64_t from)
{
    struct engine_row rows[BATCH];
    const float *logits = NULL;
    for (int64_t at = from; at < p->n; at += BATCH) {
        int64_t n = p->n - at < BATCH ? p->n - at : BATCH;
        bool last = at + n == p->n;
        for (int64_t i = 0; i < n; i++)
            rows[i] = (struct engine_row){p->tokens[at + i], 0, last && i == n - 1};
        must(engine_eval(w->told, rows, n, NULL, NULL, last ? &logits : NULL));
        for (size_t i = 0; i < p->n_points; i++) {
            int64_t point = p->points[i] < p->n ? p->points[i] : p->n - 1;
            if (point > 0 && point >= at && point <= at + n) keep(w, point);
        }
    }
    return logits;
}

/* The longest beginning of `p` that the session can have without computing. */
static int64_t best(const struct world *w, const struct prompt *p)
{
    int64_t same = 0, points[SESSION_SNAPSHOTS], found = 0;
    while (same < p->n && same < w->held.n && p->tokens[same] == w->held.tokens[same]) same++;
    if (same == p->n) same--;
    if (same == w->held.n) return same;
    int64_t n = session_snapshots(w->session, points);
    for (int64_t i = 0; i < n; i++)
        if (points[i] <= same) found = points[i];
    return found;
}

static void check_held(const struct world *w, const struct prompt *p)
{
    size_t n;
    const int32_t *tokens = session_tokens(w->session, &n);
    assert_int_equal(n, p->n);
    assert_memory_equal(tokens, p->tokens, n * sizeof *tokens);
}

static void turn(struct world *w)
{
    struct prompt p;
    const float *got;
    int64_t cached;
    next_prompt(w, &p);
    const int64_t wanted = best(w, &p);
    must(session_prompt(w->session, p.tokens, p.n, p.points, p.n_points, &got, &cached));
    assert_int_equal(cached, wanted);
    if (cached < w->held.n) go_back(w, cached);
    const float *told = tell(w, &p, cached);
    assert_memory_equal(got, told, (size_t)w->model->config.vocab * sizeof *got);
    w->went_on += cached == w->held.n;
    w->returned += cached && cached < w->held.n;
    w->from_start += !cached && w->held.n;
    w->held = p;
    check_held(w, &p);
}

static void open_session(struct world *w, bool exact)
{
    w->engine = open_engine(w->model, exact, true);
    must(session_create(w->engine, &w->session));
}

static void close_session(struct world *w)
{
    session_destroy(w->session);
    engine_destroy(w->engine);
}

/* ---- files ---- */

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct conversation *some_conversation(void)
{
    struct conversation *c;
    must(conversation_create(&c));
    const struct chat_message user = {.role = CHAT_USER};
    must(conversation_add_text(c, &user, CHAT_TEXT("What is 2 + 2?\nÄ \"quoted\" one.")));
    return c;
}

/* Another program goes on. */
static void save_and_load(struct world *w, bool exact)
{
    int64_t was[SESSION_SNAPSHOTS], is[SESSION_SNAPSHOTS];
    const char *path = path_of("random");
    struct conversation *c = some_conversation(), *again;
    must(conversation_create(&again));
    const int64_t n = session_snapshots(w->session, was);
    must(session_save(w->session, c, path));
    close_session(w);
    open_session(w, exact);
    if (rng_range(&w->rng, 0, 1)) { /* what is there goes */
        const int32_t other[] = {3, 2, 1};
        const int64_t point = 2;
        const float *logits;
        must(session_prompt(w->session, other, 3, &point, 1, &logits, NULL));
    }
    must(session_load(w->session, path, again));
    assert_int_equal(session_snapshots(w->session, is), n);
    assert_memory_equal(was, is, (size_t)n * sizeof *was);
    check_held(w, &w->held);
    assert_int_equal(conversation_count(again), 1);
    const struct chat_message *message = conversation_message(again, 0);
    assert_true(text_is(message->contents[0].text, "What is 2 + 2?\nÄ \"quoted\" one."));
    conversation_destroy(c);
    conversation_destroy(again);
    w->saved++;
}

static void run_world(const struct model *model, bool exact, uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->model = model;
    rng_seed(&w->rng, seed);
    open_session(w, exact);
    w->told = open_engine(model, exact, false);
    /* Where a card is emulated a turn takes seconds. */
    const int64_t turns = gpu ? 16 : effort("turns", 150, 40);
    for (int64_t i = 0; i < turns; i++) {
        turn(w);
        if (i % 7 == 3) save_and_load(w, exact);
    }
    print_message("%s: %lld turns: %lld went on, %lld returned, %lld began again, %lld saved\n",
                  model->name, (long long)turns, (long long)w->went_on, (long long)w->returned,
                  (long long)w->from_start, (long long)w->saved);
    assert_true(w->went_on > turns / 10 && w->returned > turns / 10 && w->saved > 1);
    assert_true(gpu || w->from_start);
    const int64_t used = engine_free_positions(w->engine);
    session_reset(w->session);
    assert_true(engine_free_positions(w->engine) > used);
    assert_true(engine_free_positions(w->engine) == engine_possible_positions(w->engine));
    close_session(w);
    engine_destroy(w->told);
    free(w);
}

static void test_conversations(void **state)
{
    (void)state;
    for (int i = 0; i < (gpu ? 1 : 2); i++)
        for (int exact = 0; exact < (gpu ? 1 : 2); exact++)
            run_world(models[i], exact, (uint64_t)(7 + i));
}

/* With exact numerics on a CPU the steps do not matter: what is held is the text, and no more. */
static void test_from_beginning(void **state)
{
    (void)state;
    if (gpu) skip();
    struct world w = {.model = models[0]};
    const float *got, *wanted;
    rng_seed(&w.rng, 3);
    open_session(&w, true);
    struct engine *alone = open_engine(models[0], true, false);
    for (int i = 0; i < 30; i++) {
        struct prompt p;
        static struct engine_row rows[CONTEXT];
        next_prompt(&w, &p);
        must(session_prompt(w.session, p.tokens, p.n, p.points, p.n_points, &got, NULL));
        engine_reset(alone, 0);
        for (int64_t k = 0; k < p.n; k++)
            rows[k] = (struct engine_row){p.tokens[k], 0, k == p.n - 1};
        must(engine_eval(alone, rows, p.n, NULL, NULL, &wanted));
        assert_memory_equal(got, wanted, (size_t)models[0]->config.vocab * sizeof *got);
        w.held = p;
    }
    engine_destroy(alone);
    close_session(&w);
}

/* Of nine points the one goes that lies nearest behind the one before it, or the beginning. */
static void test_which_snapshots_stay(void **state)
{
    (void)state;
    if (gpu) skip();
    static const int64_t asked[][SESSION_SNAPSHOTS + 1] = {
        {60, 100, 106, 150, 200, 250, 300, 350, 400}, {5, 60, 100, 150, 200, 250, 300, 350, 400}};
    static const int64_t wanted[] = {60, 100, 150, 200, 250, 300, 350, 399};
    for (int i = 0; i < 2; i++) {
        struct world w = {.model = models[0]};
        int64_t points[SESSION_SNAPSHOTS];
        const float *logits;
        open_session(&w, false);
        add_tokens(&w, &w.held, 400);
        must(session_prompt(w.session, w.held.tokens, 400, asked[i], SESSION_SNAPSHOTS + 1, &logits,
                            NULL));
        assert_int_equal(session_snapshots(w.session, points), SESSION_SNAPSHOTS);
        assert_memory_equal(points, wanted, sizeof points);
        close_session(&w);
    }
}

static void test_limits(void **state)
{
    (void)state;
    if (gpu) skip();
    struct world w = {.model = models[0]};
    const int64_t n = context_of(models[0]);
    int32_t *tokens = calloc((size_t)n + 1, sizeof *tokens);
    const int64_t points[] = {n};
    const float *logits;
    int64_t cached;
    assert_non_null(tokens);
    open_session(&w, true);
    assert_int_equal(session_context(w.session), n);
    assert_int_equal(session_prompt(w.session, tokens, 0, NULL, 0, &logits, NULL), SOL_E_ARGUMENT);
    must(session_prompt(w.session, tokens, n, points, 1, &logits, NULL));
    assert_int_equal(session_prompt(w.session, tokens, n + 1, NULL, 0, &logits, &cached),
                     SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "raise the context"));
    size_t held;
    session_tokens(w.session, &held);
    assert_int_equal(held, n); /* as it was */
    must(session_prompt(w.session, tokens, n, NULL, 0, &logits, &cached));
    assert_int_equal(cached, n - 1); /* the same again costs a token */
    tokens[n - 2] = -1;
    assert_int_equal(session_prompt(w.session, tokens, n, NULL, 0, &logits, NULL), SOL_E_ARGUMENT);
    tokens[n - 2] = 5; /* what was computed of it is kept */
    must(session_prompt(w.session, tokens, n, NULL, 0, &logits, NULL));
    struct session *second;
    assert_int_equal(session_create(w.engine, &second), SOL_E_ARGUMENT); /* it is not empty */
    assert_null(second);
    free(tokens);
    close_session(&w);
}

/* ---- damaged files, and those of others ---- */

static unsigned char *read_whole(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *data = malloc(1 << 24);
    assert_non_null(data);
    *size = fread(data, 1, 1 << 24, f);
    fclose(f);
    return data;
}

static const char *write_whole(const unsigned char *data, size_t size, bool sign)
{
    const char *path = path_of("changed");
    struct sha256_ctx sum;
    uint8_t digest[SHA256_DIGEST_SIZE];
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    sha256_init(&sum);
    sha256_update(&sum, size, data);
    sha256_digest(&sum, sizeof digest, digest);
    for (size_t i = 0; sign && i < sizeof digest; i++) fprintf(f, "%02x", digest[i]);
    if (sign) fputc('\n', f);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* A session that holds something, and must hold it still. */
static void refused(struct world *w, const char *path, enum sol_status wanted, const char *word)
{
    struct conversation *c = some_conversation();
    enum sol_status status = session_load(w->session, path, c);
    if (status != wanted)
        fail_msg("%d, not %d for '%s': %s", status, wanted, word, sol_last_error());
    if (!strstr(sol_last_error(), word)) fail_msg("'%s' does not say '%s'", sol_last_error(), word);
    assert_int_equal(conversation_count(c), 1);
    check_held(w, &w->held);
    conversation_destroy(c);
}

static void begin(struct world *w)
{
    const float *logits;
    next_prompt(w, &w->held);
    must(session_prompt(w->session, w->held.tokens, w->held.n, w->held.points, w->held.n_points,
                        &logits, NULL));
}

static const char *saved_file(struct world *w)
{
    struct conversation *c = some_conversation();
    const char *path = path_of("whole");
    must(session_save(w->session, c, path));
    conversation_destroy(c);
    return path;
}

static void test_damage(void **state)
{
    (void)state;
    if (gpu) skip();
    struct world w = {.model = models[0]};
    size_t size;
    rng_seed(&w.rng, 11);
    open_session(&w, true);
    begin(&w);
    unsigned char *data = read_whole(saved_file(&w), &size);
    for (int64_t i = 0, n = effort("damaged files", 300, 60); i < n; i++) {
        size_t at = (size_t)rng_range(&w.rng, 0, (int64_t)size - 1);
        if (i % 3 == 0) {
            refused(&w, write_whole(data, at, false), SOL_E_FORMAT, "damaged");
            continue;
        }
        unsigned char bit = (unsigned char)(1u << rng_range(&w.rng, 0, 7));
        data[at] ^= bit;
        refused(&w, write_whole(data, size, false), SOL_E_FORMAT, "damaged");
        data[at] ^= bit;
    }
    data[size] = 'x';
    refused(&w, write_whole(data, size + 1, false), SOL_E_FORMAT, "damaged");
    refused(&w, path_of("nothing"), SOL_E_IO, "nothing");
    refused(&w, folder, SOL_E_IO, "directory");
    free(data);
    close_session(&w);
}

/* Its SHA-256 is right, and it lies: `from`, once in the text, becomes `to`. */
static void lies(struct world *w, const char *from, const char *to, enum sol_status wanted,
                 const char *word)
{
    size_t size, old = strlen(from), new = strlen(to);
    unsigned char *data = read_whole(path_of("whole"), &size);
    char *at = strstr((char *)data, from);
    if (!at) fail_msg("no '%s' in the file", from);
    size -= 65;
    memmove(at + new, at + old, size - (size_t)(at - (char *)data) - old);
    memcpy(at, to, new);
    refused(w, write_whole(data, size - old + new, true), wanted, word);
    free(data);
}

static void test_lies(void **state)
{
    (void)state;
    if (gpu) skip();
    struct world w = {.model = models[0]};
    char first[32];
    rng_seed(&w.rng, 12);
    open_session(&w, true);
    while (w.held.n_points < 3) begin(&w);
    saved_file(&w);
    snprintf(first, sizeof first, "\"tokens\": [%d", (int)w.held.tokens[0]);
    lies(&w, "\"sol_session\": 1", "\"sol_session\": 2", SOL_E_UNSUPPORTED, "version");
    lies(&w, "\"sol_session\": 1", "\"sol_session\": []", SOL_E_FORMAT, "damaged");
    lies(&w, "\"identity\":\"", "\"identity\":\"0", SOL_E_UNSUPPORTED, "another model");
    lies(&w, "\"cache\": \"f16\"", "\"cache\": \"f32\"", SOL_E_UNSUPPORTED, "f32");
    lies(&w, first, "\"tokens\": [-1", SOL_E_FORMAT, "token");
    lies(&w, first, "\"tokens\": [\"x\"", SOL_E_FORMAT, "token");
    lies(&w, first, "\"tokens\": [99999999999999999999", SOL_E_FORMAT, "token");
    lies(&w, "\"tokens\"", "\"takens\"", SOL_E_FORMAT, "tokens");
    lies(&w, "\"snapshots\": [", "\"snapshots\": [0,", SOL_E_FORMAT, "snapshots");
    lies(&w, "\"snapshots\": [", "\"snapshots\": [1,1,", SOL_E_FORMAT, "snapshots");
    lies(&w, "\"snapshots\": [", "\"snapshots\": [900,", SOL_E_FORMAT, "snapshots");
    lies(&w, "\"snapshots\": [", "\"snapshots\": [1,2,3,4,5,6,7,8,9,", SOL_E_FORMAT, "snapshots");
    lies(&w, "\"role\": \"user\"", "\"role\": \"x\"", SOL_E_FORMAT, "messages[0]");
    lies(&w, "\"messages\": [", "\"messages\": [[", SOL_E_FORMAT, "its text");
    lies(&w, "\n}\n", "\n}\n{", SOL_E_FORMAT, "its text");
    size_t size;
    unsigned char *data = read_whole(path_of("whole"), &size);
    refused(&w, write_whole(data, size - 65 - 1, true), SOL_E_FORMAT, "size");
    refused(&w, write_whole(data, size - 65 + 1, true), SOL_E_FORMAT, "size");
    /* The last number of a key or a value is none. */
    struct conversation *c = some_conversation();
    data[size - 65 - 1] = 0x7c;
    data[size - 65 - 2] = 0;
    const char *path = write_whole(data, size - 65, true);
    assert_int_equal(session_load(w.session, path, c), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "finite"));
    session_tokens(w.session, &size);
    assert_int_equal(size, 0); /* it was begun: the session is empty, and of use */
    w.held.n = 0;
    begin(&w);
    conversation_destroy(c);
    free(data);
    close_session(&w);
}

/* Of another model, into a smaller context, and into other steps. */
static void test_others(void **state)
{
    (void)state;
    if (gpu) skip();
    struct world w = {.model = models[0]}, other = {.model = models[1]};
    struct engine_params p;
    rng_seed(&w.rng, 13);
    rng_seed(&other.rng, 14);
    open_session(&w, true);
    while (w.held.n < 200) begin(&w);
    saved_file(&w);
    open_session(&other, true);
    begin(&other);
    refused(&other, path_of("whole"), SOL_E_UNSUPPORTED, "another model");
    close_session(&other);

    other = (struct world){.model = models[0]};
    engine_params_init(&p);
    p.context = w.held.n - 1;
    p.threads = 1;
    p.chooser.device.gpu = gpu;
    session_engine_params(&p);
    must(engine_create(models[0], &p, &other.engine));
    must(session_create(other.engine, &other.session));
    refused(&other, path_of("whole"), SOL_E_ARGUMENT, "raise the context");
    close_session(&other);

    p.context = w.held.n; /* and rings of other lengths */
    p.max_batch = 7;
    p.max_run = 0;
    session_engine_params(&p);
    must(engine_create(models[0], &p, &other.engine));
    must(session_create(other.engine, &other.session));
    struct conversation *c = some_conversation();
    must(session_load(other.session, path_of("whole"), c));
    other.held = w.held;
    check_held(&other, &w.held);
    conversation_destroy(c);
    close_session(&other);
    close_session(&w);
}

static void test_empty(void **state)
{
    (void)state;
    if (gpu) skip();
    struct world w = {.model = models[0]};
    struct conversation *c = some_conversation();
    open_session(&w, true);
    must(session_save(w.session, c, path_of("empty")));
    must(session_load(w.session, path_of("empty"), c));
    assert_int_equal(conversation_count(c), 2);
    check_held(&w, &w.held);
    assert_int_equal(session_save(w.session, c, "/nonexistent/file"), SOL_E_IO);
    /* What could not be read again is not written, and what was there stays. */
    static const char begin[] =
        "{\"messages\": [{\"role\": \"developer\", \"content\": [{\"type\": "
        "\"developer_content\", \"tools\": {\"f\": {\"name\": \"f\", \"tools\": "
        "[{\"name\": \"g\", \"description\": \"\", \"parameters\": ";
    char text[512];
    int at = snprintf(text, sizeof text, "%s", begin);
    for (int i = 0; i < 60; i++) at += snprintf(text + at, sizeof text - (size_t)at, "[");
    for (int i = 0; i < 60; i++) at += snprintf(text + at, sizeof text - (size_t)at, "]");
    snprintf(text + at, sizeof text - (size_t)at, "}]}}}]}]}");
    json_t *deep = json_loads(text, 0, NULL);
    assert_non_null(deep);
    must(conversation_add_json(c, deep));
    json_decref(deep);
    assert_int_equal(session_save(w.session, c, path_of("empty")), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "as it would be saved"));
    must(session_load(w.session, path_of("empty"), c));
    conversation_destroy(c);
    close_session(&w);
}

/* ---- which model ---- */

static void test_identity(void **state)
{
    (void)state;
    if (gpu) skip();
    static const char *const sources[] = {"synth:tiny", "synth:tiny,seed=2", "synth:tiny,layers=2",
                                          "synth:tiny,dense=q8_0"};
    char id[4][MODEL_IDENTITY_SIZE], later[MODEL_IDENTITY_SIZE];
    for (int i = 0; i < 4; i++) {
        struct model *model;
        must(model_open(sources[i], &model));
        must(model_identity(model, id[i]));
        model_close(model);
        must(model_open_with(sources[i], &(struct model_params){.later = true}, &model));
        must(model_identity(model, later));
        model_close(model);
        assert_string_equal(id[i], later);
        assert_int_equal(strlen(later), 64);
        for (int k = 0; k < i; k++) assert_string_not_equal(id[i], id[k]);
    }
}

/* ---- a GPU ---- */

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)64 << 20};

static enum sol_status gpu_scenario(void)
{
    struct engine *e = NULL;
    struct session *s = NULL;
    struct engine_params p;
    struct gpu *card;
    int32_t tokens[60] = {1, 2, 3};
    const int64_t points[] = {10, 40, 60};
    const float *logits;
    SOL_TRY(gpu_open(0, &card));
    struct conversation *c = some_conversation();
    engine_params_init(&p);
    p.context = 100;
    p.max_batch = 30;
    p.threads = 1;
    p.chooser.device.gpu = card;
    session_engine_params(&p);
    enum sol_status status = engine_create(models[0], &p, &e);
    if (status == SOL_OK) status = session_create(e, &s);
    if (status == SOL_OK) status = session_prompt(s, tokens, 60, points, 3, &logits, NULL);
    if (status == SOL_OK) status = session_save(s, c, path_of("gpu"));
    tokens[50] = 7;
    if (status == SOL_OK) status = session_prompt(s, tokens, 60, points, 3, &logits, NULL);
    if (status == SOL_OK) status = session_load(s, path_of("gpu"), c);
    session_destroy(s);
    engine_destroy(e);
    gpu_close(card);
    conversation_destroy(c);
    return status;
}

static void test_gpu_failures(void **state)
{
    (void)state;
    if (gpu) skip();
    fail_each_call(&hopper, gpu_scenario, effort("failing calls", 60, 20));
}

static int open_models(void **state)
{
    (void)state;
    gpu = test_gpu();
    if (!mkdtemp(folder)) return -1;
    for (int i = 0; i < 2; i++)
        if (model_open(gpu && !i ? "synth:tiny,layers=2" : names[i], &models[i]) != SOL_OK)
            return -1;
    return 0;
}

static int close_models(void **state)
{
    static const char *const files[] = {"random", "changed", "whole", "empty", "gpu"};
    (void)state;
    for (int i = 0; i < 2; i++) model_close(models[i]);
    gpu_close(gpu);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(path_of(files[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversations), cmocka_unit_test(test_from_beginning),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_lies),          cmocka_unit_test(test_others),
        cmocka_unit_test(test_empty),         cmocka_unit_test(test_identity),
        cmocka_unit_test(test_gpu_failures),  cmocka_unit_test(test_which_snapshots_stay),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
