/* A session in a file:
 *   JSON        what schemas/session.json says; then a NUL
 *   keys and values, for each snapshot, and then for the end: layer by layer what
 *               engine_snapshot_read gives, without the whole pages of the one before
 *   64 digits   SHA-256 of all that is before them; then a line feed
 * The model is named by a hash (model/identity.h). Keys and values are kept rather than computed
 * again, since they depend on how the tokens were cut into steps, on the kernels and on the device:
 * what is read back does not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nettle/sha2.h>

#include "base/file.h"
#include "base/json_value.h"
#include "base/status.h"
#include "chat/json.h"
#include "format/output_file.h"
#include "generate/session_private.h"
#include "hub/digest.h"
#include "model/identity.h"

enum { VERSION = 1, DIGITS = 64, TRAILER = DIGITS + 1, FIRST_READ = 1 << 16 };

/* The states in the file: the snapshots, and the end. */
struct states {
    int64_t positions[SESSION_SNAPSHOTS + 1];
    int n; /* 0: nothing was computed */
};

static int64_t before(const struct states *states, int i)
{
    return i ? states->positions[i - 1] : 0;
}

static int64_t layers(const struct session *s)
{
    return engine_model(s->engine)->config.n_layers;
}

static size_t states_bytes(const struct session *s, const struct states *states)
{
    size_t bytes = 0;
    for (int i = 0; i < states->n; i++)
        for (int64_t l = 0; l < layers(s); l++)
            bytes += engine_snapshot_bytes(s->engine, l, states->positions[i], before(states, i));
    return bytes;
}

/* Room for one layer of any of them. */
static enum sol_status layer_room(const struct session *s, const struct states *states, void **out)
{
    size_t most = 1;
    for (int i = 0; i < states->n; i++)
        for (int64_t l = 0; l < layers(s); l++) {
            size_t bytes =
                engine_snapshot_bytes(s->engine, l, states->positions[i], before(states, i));
            if (bytes > most) most = bytes;
        }
    *out = malloc(most);
    return *out ? SOL_OK
                : status_set(SOL_E_MEMORY, "no memory for %zu bytes of keys and values", most);
}

static const char *cache_type(const struct session *s)
{
    return dtype_info(engine_params_of(s->engine)->kv_dtype)->name;
}

/* ---- writing ---- */

struct writer {
    FILE *to;
    struct sha256_ctx sum;
};

/* Errors of the stream show when the file is committed. */
static void put(struct writer *w, const void *data, size_t n)
{
    sha256_update(&w->sum, n, data);
    fwrite(data, 1, n, w->to);
}

static json_t *head_json(const struct session *s, const struct conversation *c,
                         const struct states *states, const char *identity)
{
    size_t n_tokens;
    const int32_t *ids = session_tokens(s, &n_tokens);
    json_t *messages = conversation_json(c, 0, conversation_count(c));
    json_t *tokens = json_array(), *points = json_array();
    for (size_t i = 0; i < n_tokens; i++) json_array_append_new(tokens, json_integer(ids[i]));
    for (int i = 0; i + 1 < states->n; i++)
        json_array_append_new(points, json_integer(states->positions[i]));
    const char *name = engine_model(s->engine)->name;
    return json_pack("{s:i, s:{s:o, s:s}, s:o, s:o, s:o, s:s}", "sol_session", VERSION, "model",
                     "name", json_text(name, strlen(name)), "identity", identity, "messages",
                     messages, "tokens", tokens, "snapshots", points, "cache", cache_type(s));
}

/* An entry a line; what people read with its parts below each other. */
static enum sol_status print_head(json_t *head, struct text_buffer *to)
{
    const char *key, *between = "{\n";
    json_t *value;
    json_object_foreach(head, key, value)
    {
        const bool wide = strcmp(key, "messages") == 0;
        char *text = json_dumps(value, JSON_ENCODE_ANY | (wide ? JSON_INDENT(1) : JSON_COMPACT));
        if (!text) return status_set(SOL_E_MEMORY, "no memory to write a conversation");
        text_puts(to, between);
        text_puts(to, " \"");
        text_puts(to, key);
        text_puts(to, "\": ");
        text_puts(to, text);
        free(text);
        between = ",\n";
    }
    text_puts(to, "\n}\n");
    return text_check(to, "a conversation");
}

/* What could not be read again is not written: schemas are a few levels deeper there. */
static enum sol_status make_head(json_t *head, struct text_buffer *to)
{
    json_t *again;
    SOL_TRY(print_head(head, to));
    SOL_TRY(chat_json_read(to->data, to->length, "the conversation, as it would be saved", &again));
    json_decref(again);
    return SOL_OK;
}

static enum sol_status put_states(struct writer *w, struct session *s, const struct states *states)
{
    void *room;
    SOL_TRY(layer_room(s, states, &room));
    enum sol_status status = SOL_OK;
    for (int i = 0; i < states->n; i++) {
        const int32_t slot = i + 1 < states->n ? s->slots[i] : SESSION_SAVING;
        for (int64_t l = 0; l < layers(s) && status == SOL_OK; l++) {
            status = engine_snapshot_read(s->engine, slot, l, before(states, i), room);
            if (status == SOL_OK)
                put(w, room,
                    engine_snapshot_bytes(s->engine, l, states->positions[i], before(states, i)));
        }
    }
    free(room);
    return status;
}

static void put_trailer(struct writer *w)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_digest(&w->sum, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) fprintf(w->to, "%02x", digest[i]);
    fputc('\n', w->to);
}

static enum sol_status write_file(struct session *s, const struct text_buffer *head,
                                  const struct states *states, FILE *to)
{
    struct writer w = {.to = to};
    sha256_init(&w.sum);
    put(&w, head->data, head->length);
    put(&w, "", 1);
    SOL_TRY(put_states(&w, s, states));
    put_trailer(&w);
    return SOL_OK;
}

static enum sol_status save_states(struct session *s, const struct text_buffer *head,
                                   const struct states *states, const char *path)
{
    struct output_file *file;
    FILE *to = NULL;
    if (states->n)
        SOL_TRY(engine_snapshot(s->engine, 0, states->positions[states->n - 1], SESSION_SAVING));
    enum sol_status status = output_file_create(path, 0, OUTPUT_STREAM, &file);
    if (status == SOL_OK) status = output_file_stream(file, &to);
    if (status == SOL_OK) status = write_file(s, head, states, to);
    if (status == SOL_OK) status = output_file_commit(file);
    output_file_destroy(file);
    engine_drop_snapshot(s->engine, SESSION_SAVING);
    return status;
}

enum sol_status session_save(struct session *s, const struct conversation *c, const char *path)
{
    struct states states = {0};
    struct text_buffer text = {0};
    char identity[MODEL_IDENTITY_SIZE];
    const int64_t held = engine_position(s->engine, 0);
    SOL_TRY(model_identity(engine_model(s->engine), identity));
    if (held) {
        memcpy(states.positions, s->points, sizeof s->points);
        states.positions[s->n_points] = held;
        states.n = s->n_points + 1;
    }
    json_t *head = head_json(s, c, &states, identity);
    enum sol_status status = head ? make_head(head, &text)
                                  : status_set(SOL_E_MEMORY, "no memory to write a conversation");
    if (status == SOL_OK) status = save_states(s, &text, &states, path);
    text_buffer_free(&text);
    json_decref(head);
    return status;
}

/* ---- reading: what is there ---- */

struct reader {
    int fd;
    int64_t size, head_size; /* of all; of the JSON with its NUL */
    json_t *head;
    struct states states;
    int32_t *tokens;
    int64_t n_tokens;
};

static enum sol_status damaged(const char *how)
{
    return status_set(SOL_E_FORMAT, "%s: no saved session, or a damaged one", how);
}

static enum sol_status read_at(const struct reader *r, int64_t at, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(r->fd, (char *)to + done, n - done, (off_t)(at + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return status_set(SOL_E_IO, "cannot be read: %s", strerror(errno));
        if (got == 0) return damaged("it ends too soon");
        done += (size_t)got;
    }
    return SOL_OK;
}

static enum sol_status check_digest(struct reader *r)
{
    struct stat info;
    char digest[DIGITS + 1], trailer[TRAILER];
    if (fstat(r->fd, &info) != 0)
        return status_set(SOL_E_IO, "cannot be read: %s", strerror(errno));
    r->size = info.st_size;
    if (r->size <= TRAILER) return damaged("it is too short");
    SOL_TRY(read_at(r, r->size - TRAILER, trailer, TRAILER));
    SOL_TRY(hub_digest(r->fd, r->size - TRAILER, false, NULL, NULL, digest));
    if (memcmp(trailer, digest, DIGITS) != 0 || trailer[DIGITS] != '\n')
        return damaged("its SHA-256 is another");
    return SOL_OK;
}

/* Up to the first NUL, which text has not. */
static enum sol_status read_head(struct reader *r, char **text)
{
    const int64_t end = r->size - TRAILER;
    size_t have = 0, room = FIRST_READ;
    *text = NULL;
    while (have < (size_t)end && have < CHAT_JSON_BYTES_MAX) {
        size_t n = room - have < (size_t)end - have ? room - have : (size_t)end - have;
        char *more = realloc(*text, room);
        if (!more) return status_set(SOL_E_MEMORY, "no memory to read a session");
        *text = more;
        SOL_TRY(read_at(r, (int64_t)have, more + have, n));
        const char *nul = memchr(more + have, 0, n);
        have += n;
        room *= 2;
        if (!nul) continue;
        r->head_size = nul - more + 1;
        return SOL_OK;
    }
    return damaged("its text has no end");
}

static enum sol_status check_kind(const struct session *s, const json_t *head)
{
    char identity[MODEL_IDENTITY_SIZE];
    const json_t *model = json_object_get(head, "model");
    const char *type = json_string_value(json_object_get(head, "cache"));
    const char *id = json_string_value(json_object_get(model, "identity"));
    const char *name = json_string_value(json_object_get(model, "name"));
    if (!json_is_integer(json_object_get(head, "sol_session")) || !type || !id || !name)
        return damaged("it does not say what it is");
    if (json_integer_value(json_object_get(head, "sol_session")) != VERSION)
        return status_set(SOL_E_UNSUPPORTED, "its form is of another version of sol");
    SOL_TRY(model_identity(engine_model(s->engine), identity));
    if (strcmp(id, identity) != 0)
        return status_set(SOL_E_UNSUPPORTED,
                          "it was saved with another model, '%s', and not with '%s'", name,
                          engine_model(s->engine)->name);
    if (strcmp(type, cache_type(s)) != 0)
        return status_set(SOL_E_UNSUPPORTED, "its keys and values are %.16s, those here %s", type,
                          cache_type(s));
    return SOL_OK;
}

static enum sol_status read_tokens(const struct session *s, struct reader *r)
{
    const json_t *list = json_object_get(r->head, "tokens"), *id;
    const int64_t vocab = engine_model(s->engine)->config.vocab;
    size_t i;
    if (!json_is_array(list)) return damaged("it has no tokens");
    r->n_tokens = (int64_t)json_array_size(list);
    if (r->n_tokens > s->context)
        return status_set(SOL_E_ARGUMENT,
                          "it has %lld tokens, the context %lld positions; raise the context",
                          (long long)r->n_tokens, (long long)s->context);
    r->tokens = malloc(((size_t)r->n_tokens + 1) * sizeof *r->tokens);
    if (!r->tokens) return status_set(SOL_E_MEMORY, "no memory to read a session");
    json_array_foreach(list, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= vocab)
            return damaged("what it has as a token is none");
        r->tokens[i] = (int32_t)json_integer_value(id);
    }
    return SOL_OK;
}

static enum sol_status read_states(const struct session *s, struct reader *r)
{
    const json_t *list = json_object_get(r->head, "snapshots"), *value;
    int64_t last = 0;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > SESSION_SNAPSHOTS)
        return damaged("its snapshots are not as they must be");
    json_array_foreach(list, i, value)
    {
        const int64_t position = json_integer_value(value);
        if (!json_is_integer(value) || position <= last || position > r->n_tokens)
            return damaged("its snapshots are not as they must be");
        r->states.positions[i] = last = position;
    }
    if (r->n_tokens) {
        r->states.n = (int)json_array_size(list) + 1;
        r->states.positions[r->states.n - 1] = r->n_tokens;
    }
    if (states_bytes(s, &r->states) != (size_t)(r->size - TRAILER - r->head_size))
        return damaged("its keys and values have another size");
    return SOL_OK;
}

static enum sol_status read_all(const struct session *s, struct reader *r)
{
    char *text;
    SOL_TRY(check_digest(r));
    enum sol_status status = read_head(r, &text);
    if (status == SOL_OK)
        status = chat_json_read(text, (size_t)r->head_size - 1, "its text", &r->head);
    free(text);
    SOL_TRY(status);
    SOL_TRY(check_kind(s, r->head));
    SOL_TRY(read_tokens(s, r));
    return read_states(s, r);
}

/* ---- reading: into the session ---- */

static enum sol_status take_state(struct session *s, const struct reader *r, int i, int64_t *at,
                                  void *room)
{
    const struct states *states = &r->states;
    const int32_t slot = i + 1 < states->n ? s->slots[i] : SESSION_SAVING;
    const int64_t position = states->positions[i];
    SOL_TRY(engine_snapshot_make(s->engine, slot, position, r->tokens[position - 1],
                                 i ? s->slots[i - 1] : -1));
    for (int64_t l = 0; l < layers(s); l++) {
        size_t bytes = engine_snapshot_bytes(s->engine, l, position, before(states, i));
        SOL_TRY(read_at(r, *at, room, bytes));
        SOL_TRY(engine_snapshot_write(s->engine, slot, l, before(states, i), room));
        *at += (int64_t)bytes;
    }
    if (slot == SESSION_SAVING) return engine_restore(s->engine, slot, 0);
    s->points[s->n_points++] = position;
    return SOL_OK;
}

static enum sol_status take_states(struct session *s, const struct reader *r)
{
    int64_t at = r->head_size;
    void *room;
    SOL_TRY(layer_room(s, &r->states, &room));
    enum sol_status status = SOL_OK;
    session_reset(s);
    for (int i = 0; i < r->states.n && status == SOL_OK; i++)
        status = take_state(s, r, i, &at, room);
    memcpy(s->tokens, r->tokens, (size_t)r->n_tokens * sizeof *s->tokens);
    engine_drop_snapshot(s->engine, SESSION_SAVING);
    if (status != SOL_OK) session_reset(s);
    free(room);
    return status;
}

enum sol_status session_load(struct session *s, const char *path, struct conversation *c)
{
    struct reader r = {0};
    const size_t count = conversation_count(c);
    SOL_TRY(file_open(path, &r.fd));
    enum sol_status status = read_all(s, &r);
    if (status == SOL_OK) status = conversation_add_json(c, r.head);
    if (status == SOL_OK) status = take_states(s, &r);
    if (status != SOL_OK) {
        conversation_truncate(c, count);
        status = status_prefix(status, "'%s'", path);
    }
    close(r.fd);
    free(r.tokens);
    json_decref(r.head);
    return status;
}
