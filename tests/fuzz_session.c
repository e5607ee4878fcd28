/* Saved sessions: the JSON of one, behind which the target puts keys and values of the size that it
 * asks for, and the right SHA-256. "@model@" stands for the model's identity. What is accepted is
 * held as it was said, can be saved, and is then the same; what is refused is refused with a
 * reason, and the session keeps what it held. */
#include <string.h>

#include <jansson.h>
#include <nettle/sha2.h>

#include "generate/session.h"
#include "model/identity.h"
#include "support/fuzz.h"
#include "support/fuzz_folder.h"

enum { CONTEXT = 80, DATA_MAX = 1 << 20 };

static struct world {
    struct model *model;
    struct engine *engine;
    struct session *session;
    char identity[MODEL_IDENTITY_SIZE];
    const char *path, *again;
} w;

static void close_world(void)
{
    session_destroy(w.session);
    engine_destroy(w.engine);
    model_close(w.model);
}

static void open_world(void)
{
    struct engine_params p;
    FUZZ_REQUIRE(model_open("synth:tiny,layers=2", &w.model) == SOL_OK);
    FUZZ_REQUIRE(model_identity(w.model, w.identity) == SOL_OK);
    engine_params_init(&p);
    p.context = CONTEXT;
    p.threads = 1;
    session_engine_params(&p);
    FUZZ_REQUIRE(engine_create(w.model, &p, &w.engine) == SOL_OK);
    FUZZ_REQUIRE(session_create(w.engine, &w.session) == SOL_OK);
    w.path = fuzz_file("session");
    w.again = fuzz_file("again");
    atexit(close_world);
}

/* ---- the file ---- */

/* As src/generate/session_file.c says; 0 where it would refuse anyhow. */
static size_t data_size(const char *text, size_t length)
{
    json_t *head = json_loadb(text, length, 0, NULL);
    const json_t *points = json_object_get(head, "snapshots");
    const int64_t tokens = (int64_t)json_array_size(json_object_get(head, "tokens"));
    const size_t n = json_array_size(points);
    int64_t before = 0;
    size_t size = 0;
    if (tokens > CONTEXT || n > SESSION_SNAPSHOTS) size = DATA_MAX + 1;
    for (size_t i = 0; i <= n && tokens && size <= DATA_MAX; i++) {
        int64_t at = i < n ? json_integer_value(json_array_get(points, i)) : tokens;
        if (at < before || at < 1 || at > tokens) break;
        for (int64_t l = 0; l < w.model->config.n_layers; l++)
            size += engine_snapshot_bytes(w.engine, l, at, before);
        before = at;
    }
    json_decref(head);
    return size > DATA_MAX ? 0 : size;
}

static char *put_identity(const uint8_t *data, size_t size, size_t *length)
{
    static const char word[] = "@model@";
    char *text = malloc(size + sizeof w.identity + 1), *at;
    FUZZ_REQUIRE(text);
    memcpy(text, data, size);
    text[size] = 0;
    *length = strlen(text); /* to the first NUL */
    if (!(at = strstr(text, word))) return text;
    const size_t skip = sizeof word - 1, put = sizeof w.identity - 1;
    memmove(at + put, at + skip, *length - (size_t)(at - text) - skip + 1);
    memcpy(at, w.identity, put);
    *length += put - skip;
    return text;
}

static void write_file(const uint8_t *input, size_t size)
{
    struct sha256_ctx sum;
    uint8_t digest[SHA256_DIGEST_SIZE];
    size_t length;
    char *text = put_identity(input, size, &length);
    const size_t bytes = data_size(text, length), signed_size = length + 1 + bytes;
    char *file = calloc(1, signed_size + 2 * sizeof digest + 2);
    FUZZ_REQUIRE(file);
    memcpy(file, text, length);
    /* Some numbers of any kind: those behind the text's NUL, if it has one. */
    for (size_t i = 0, from = strnlen((const char *)input, size) + 1; i < bytes && from + i < size;
         i++)
        file[length + 1 + i] = (char)input[from + i];
    sha256_init(&sum);
    sha256_update(&sum, signed_size, (const uint8_t *)file);
    sha256_digest(&sum, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(file + signed_size + 2 * i, 3, "%02x", digest[i]);
    file[signed_size + 2 * sizeof digest] = '\n';
    fuzz_write(w.path, file, signed_size + 2 * sizeof digest + 1);
    free(file);
    free(text);
}

/* ---- what must be ---- */

static const int32_t held[] = {5, 6, 7};

static void hold(void)
{
    const float *logits;
    session_reset(w.session);
    FUZZ_REQUIRE(session_prompt(w.session, held, 3, NULL, 0, &logits, NULL) == SOL_OK);
}

static size_t count(void)
{
    size_t n;
    session_tokens(w.session, &n);
    return n;
}

static void check_accepted(const struct conversation *c)
{
    int32_t tokens[CONTEXT];
    int64_t points[SESSION_SNAPSHOTS], same[SESSION_SNAPSHOTS];
    const size_t n = count();
    const int64_t n_points = session_snapshots(w.session, points);
    struct conversation *again;
    size_t n_again;
    memcpy(tokens, session_tokens(w.session, &n_again), n * sizeof *tokens);
    FUZZ_REQUIRE(n == n_again && n <= CONTEXT);
    for (size_t i = 0; i < n; i++)
        FUZZ_REQUIRE(tokens[i] >= 0 && tokens[i] < w.model->config.vocab);
    FUZZ_REQUIRE(session_save(w.session, c, w.again) == SOL_OK);
    hold();
    FUZZ_REQUIRE(conversation_create(&again) == SOL_OK);
    FUZZ_REQUIRE(session_load(w.session, w.again, again) == SOL_OK);
    FUZZ_REQUIRE(count() == n && conversation_count(again) == conversation_count(c));
    FUZZ_REQUIRE(memcmp(session_tokens(w.session, &n_again), tokens, n * sizeof *tokens) == 0);
    FUZZ_REQUIRE(session_snapshots(w.session, same) == n_points);
    FUZZ_REQUIRE(memcmp(points, same, (size_t)n_points * sizeof *points) == 0);
    conversation_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conversation *c;
    if (!w.model) open_world();
    write_file(data, size);
    hold();
    FUZZ_REQUIRE(conversation_create(&c) == SOL_OK);
    const enum sol_status status = session_load(w.session, w.path, c);
    if (status == SOL_OK) {
        check_accepted(c);
    } else {
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED ||
                     status == SOL_E_ARGUMENT);
        FUZZ_REQUIRE(strstr(sol_last_error(), w.path) && conversation_count(c) == 0);
        FUZZ_REQUIRE(count() == 3 || (count() == 0 && strstr(sol_last_error(), "finite")));
    }
    conversation_destroy(c);
    session_reset(w.session);
    return 0;
}
