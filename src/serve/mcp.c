/* One thread, one loop: read lines, answer what can be answered at once, start children for the
 * rest, watch them. Nothing but messages is written to the output. */
#include "serve/mcp.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "serve/mcp_answer.h"
#include "serve/mcp_child.h"
#include "store/store_json.h"

enum {
    PARSE_ERROR = -32700,
    INVALID_REQUEST = -32600,
    NO_METHOD = -32601,
    INVALID_PARAMS = -32602
};
enum { UNSUPPORTED_VERSION = -32022 };
enum { KEPT = 16 }; /* whole outputs, for "more" */

static const char modern[] = "2026-07-28";
static const char *const legacy[] = {"2025-11-25", "2025-06-18", "2024-11-05"};
enum { N_LEGACY = sizeof legacy / sizeof *legacy };

static const char key_version[] = "io.modelcontextprotocol/protocolVersion";
static const char key_capabilities[] = "io.modelcontextprotocol/clientCapabilities";
static const char key_server[] = "io.modelcontextprotocol/serverInfo";

static const char instructions[] =
    "Measure and speed up programs. An answer's \"next\" is a call, {tool, arguments}, that works "
    "as "
    "it stands, after what \"first\" says in words; \"more\" is the call for what was left out. A "
    "change goes opt_init (once), opt_start, edit, opt_benchmark, opt_compare, opt_accept or "
    "opt_record and opt_revert.";
static const char fewer_instructions[] =
    "Measure programs. An answer's \"next\" is a call, {tool, arguments}, that works as it stands, "
    "after what \"first\" says in words; \"more\" is the call for what was left out. Tools that "
    "run "
    "commands of their arguments or of a tree, as to try a change (opt_start and the like), are "
    "offered "
    "when "
    "the server is started as sol mcp --allow-commands.";

struct call {
    json_t *id, *token, *arguments; /* token and arguments may be NULL */
    const struct mcp_tool *tool;
    struct mcp_words words;
    struct mcp_child child;
    uint64_t started_ns, told_ns;
    bool is_modern, running, cancelled, timed_out;
};

struct mcp_server {
    struct mcp_params params;
    int out;
    bool initialized;                  /* the handshake of the legacy versions */
    bool broken;                       /* output */
    struct call *calls[MCP_CALLS_MAX]; /* in order of arrival */
    size_t n_calls;
    struct mcp_kept kept[KEPT];
    unsigned long n_kept;
};

/* ---- writing ---- */

/* In pieces that a pipe takes without blocking once it is writable, so that a client that does not
 * read cannot hold the server for ever. */
static void write_all(struct mcp_server *s, const char *text, size_t size)
{
    while (size && !s->broken) {
        struct pollfd fd = {.fd = s->out, .events = POLLOUT};
        int ready = poll(&fd, 1, 30000);
        if (ready < 0 && errno == EINTR && !interrupt_requested()) continue;
        ssize_t put = ready > 0 ? write(s->out, text, size < 4096 ? size : 4096) : -1;
        if (put < 0 && ready > 0 && (errno == EINTR || errno == EAGAIN)) continue;
        s->broken = put <= 0;
        if (s->broken) break;
        text += put;
        size -= (size_t)put;
    }
}

/* Takes the reference over. */
static void send_message(struct mcp_server *s, json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text) return;
    size_t size = strlen(text);
    text[size++] = '\n'; /* in place of the NUL */
    if (s->params.write)
        s->params.write(s->params.to, text, size);
    else
        write_all(s, text, size);
    free(text);
}

static void send_error(struct mcp_server *s, json_t *id, int code, const char *message,
                       json_t *data)
{
    json_t *error = json_pack("{s:i, s:s}", "code", code, "message", message);
    if (data) json_object_set_new(error, "data", data);
    send_message(s, json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id",
                              id ? json_incref(id) : json_null(), "error", error));
}

static json_t *server_info(const struct mcp_server *s)
{
    return json_pack("{s:s, s:s}", "name", "sol", "version", s->params.version);
}

/* Takes the result's reference over. */
static void send_result(struct mcp_server *s, json_t *id, bool is_modern, json_t *result)
{
    if (is_modern) {
        json_object_set_new(result, "resultType", json_string("complete"));
        json_object_set_new(result, "_meta", json_pack("{s:o}", key_server, server_info(s)));
    }
    send_message(s, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

/* Takes `text` over. */
static void send_text(struct mcp_server *s, json_t *id, bool is_modern, char *text, bool failed)
{
    send_result(s, id, is_modern,
                json_pack("{s:[{s:s, s:s}], s:b}", "content", "type", "text", "text",
                          text ? text : "{\"ok\":false,\"error\":\"no memory\"}", "isError",
                          failed));
    free(text);
}

/* ---- what is answered at once ---- */

static struct mcp_offer offer_of(const struct mcp_server *s)
{
    return (struct mcp_offer){s->params.find, s->params.allow_commands};
}

static bool is_offered(const struct mcp_server *s, const struct mcp_tool *tool)
{
    struct mcp_offer offer = offer_of(s);
    return mcp_is_offered(&offer, tool);
}

static const char *instructions_for(const struct mcp_server *s)
{
    return s->params.allow_commands ? instructions : fewer_instructions;
}

static json_t *versions_json(void)
{
    json_t *list = json_pack("[s]", modern);
    for (int i = 0; i < N_LEGACY; i++) json_array_append_new(list, json_string(legacy[i]));
    return list;
}

static void initialize(struct mcp_server *s, json_t *id, const json_t *params)
{
    const char *wanted = json_string_value(json_object_get(params, "protocolVersion"));
    const char *version = legacy[0];
    if (!wanted) {
        send_error(s, id, INVALID_PARAMS, "initialize needs protocolVersion", NULL);
        return;
    }
    for (int i = 0; i < N_LEGACY; i++)
        if (strcmp(legacy[i], wanted) == 0) version = legacy[i];
    s->initialized = true;
    send_result(s, id, false,
                json_pack("{s:s, s:{s:{}}, s:o, s:s}", "protocolVersion", version, "capabilities",
                          "tools", "serverInfo", server_info(s), "instructions",
                          instructions_for(s)));
}

static void discover(struct mcp_server *s, json_t *id)
{
    send_result(s, id, true,
                json_pack("{s:o, s:{s:{}}, s:s, s:i, s:s}", "supportedVersions", versions_json(),
                          "capabilities", "tools", "instructions", instructions_for(s), "ttlMs",
                          3600000, "cacheScope", "public"));
}

static void list_tools(struct mcp_server *s, json_t *id, bool is_modern, const json_t *params)
{
    if (json_object_get(params, "cursor")) {
        send_error(s, id, INVALID_PARAMS, "there is only one page of tools", NULL);
        return;
    }
    json_t *tools = json_array();
    for (const struct mcp_tool *t = mcp_tools; t->name; t++)
        if (is_offered(s, t))
            json_array_append_new(tools, mcp_tool_json(t, mcp_tool_spec(t, s->params.find)));
    json_t *result = json_pack("{s:o}", "tools", tools);
    if (is_modern) {
        json_object_set_new(result, "ttlMs", json_integer(3600000));
        json_object_set_new(result, "cacheScope", json_string("public"));
    }
    send_result(s, id, is_modern, result);
}

/* ---- calls ---- */

static void free_call(struct call *c)
{
    json_decref(c->id);
    json_decref(c->token);
    json_decref(c->arguments);
    mcp_words_free(&c->words);
    mcp_child_remove(&c->child);
    free(c);
}

static const struct mcp_tool *find_tool(const char *name)
{
    for (const struct mcp_tool *t = mcp_tools; name && t->name; t++)
        if (strcmp(t->name, name) == 0) return t;
    return NULL;
}

static void refuse_commands(struct mcp_server *s, json_t *id, bool is_modern,
                            const struct mcp_tool *tool)
{
    char message[200];
    snprintf(message, sizeof message,
             "%s runs commands, its arguments' or a tree's, and this server may run none",
             tool->name);
    send_text(s, id, is_modern,
              mcp_answer_error(tool, message,
                               "ask the user to start the server as: sol mcp --allow-commands",
                               NULL),
              true);
}

static void answer_more(struct mcp_server *s, json_t *id, bool is_modern,
                        const struct mcp_tool *tool, const json_t *arguments)
{
    const char *name = json_string_value(json_object_get(arguments, "id"));
    json_int_t offset = json_integer_value(json_object_get(arguments, "offset"));
    const char *path = json_string_value(json_object_get(arguments, "path"));
    const char *error = "there is no such answer any more";
    for (size_t i = 0; i < KEPT; i++) {
        if (!s->kept[i].text || strcmp(s->kept[i].id, name) != 0) continue;
        char *text = mcp_answer_part(&s->kept[i], path, (size_t)offset);
        if (text) {
            send_text(s, id, is_modern, text, false);
            return;
        }
        error = "that answer has no such path";
    }
    send_text(s, id, is_modern,
              mcp_answer_error(tool, error, "call the tool again that gave it", NULL), true);
}

static void add_call(struct mcp_server *s, json_t *id, bool is_modern, const json_t *params,
                     const struct mcp_tool *tool, struct mcp_words *words)
{
    json_t *token = json_object_get(json_object_get(params, "_meta"), "progressToken");
    struct call *c = calloc(1, sizeof *c);
    if (!c || s->n_calls == MCP_CALLS_MAX || !s->params.program) {
        free(c);
        mcp_words_free(words);
        send_text(
            s, id, is_modern,
            mcp_answer_error(tool, "too many calls are under way", "wait for their answers", NULL),
            true);
        return;
    }
    *c = (struct call){.id = json_incref(id),
                       .tool = tool,
                       .words = *words,
                       .is_modern = is_modern,
                       .child = {.out = -1, .err = -1}};
    c->arguments = json_incref(json_object_get(params, "arguments"));
    if (json_is_string(token) || json_is_integer(token)) c->token = json_incref(token);
    s->calls[s->n_calls++] = c;
}

static void call_tool(struct mcp_server *s, json_t *id, bool is_modern, const json_t *params)
{
    const char *name = json_string_value(json_object_get(params, "name"));
    const json_t *arguments = json_object_get(params, "arguments");
    const struct mcp_tool *tool = find_tool(name);
    struct mcp_words words;
    if (tool && tool->commands && !s->params.allow_commands) {
        refuse_commands(s, id, is_modern, tool);
        return;
    }
    if (!tool || !is_offered(s, tool)) {
        /* Names of tools are shorter; a cut might end within a character. */
        bool is_short = name && strlen(name) <= 100;
        char message[200];
        snprintf(message, sizeof message, "unknown tool: %s",
                 is_short ? name
                 : name   ? "(a long name)"
                          : "(no name)");
        send_error(s, id, INVALID_PARAMS, message, NULL);
        return;
    }
    if (json_is_null(arguments)) arguments = NULL;
    if (mcp_tool_words(tool, mcp_tool_spec(tool, s->params.find), arguments, &words) != SOL_OK) {
        send_text(s, id, is_modern,
                  mcp_answer_error(tool, sol_last_error(),
                                   "correct the arguments and call it again", NULL),
                  true);
        return;
    }
    if (tool->command) {
        add_call(s, id, is_modern, params, tool, &words);
    } else {
        answer_more(s, id, is_modern, tool, arguments);
        mcp_words_free(&words);
    }
}

/* No answer to a cancelled call; its child is asked to end. */
static void cancel(struct mcp_server *s, const json_t *params)
{
    const json_t *id = json_object_get(params, "requestId");
    for (size_t i = 0; i < s->n_calls; i++) {
        struct call *c = s->calls[i];
        if (!id || !json_equal(c->id, id)) continue;
        c->cancelled = true;
        if (c->running) mcp_child_stop(&c->child);
    }
}

/* ---- a message ---- */

/* Whether the request says its version; *good: and it is one that is served so. Else it is
 * answered. */
static bool check_modern(struct mcp_server *s, json_t *id, const json_t *meta, bool *good)
{
    const json_t *version = json_object_get(meta, key_version);
    *good = false;
    if (!version) return false;
    const char *text = json_string_value(version);
    if (!text)
        send_error(s, id, INVALID_PARAMS, "the protocol version must be a text", NULL);
    else if (strcmp(text, modern) != 0)
        send_error(s, id, UNSUPPORTED_VERSION, "Unsupported protocol version",
                   json_pack("{s:o, s:s}", "supported", versions_json(), "requested", text));
    else if (!json_is_object(json_object_get(meta, key_capabilities)))
        send_error(s, id, INVALID_PARAMS, "_meta lacks the client's capabilities", NULL);
    else
        *good = true;
    return true;
}

static void request(struct mcp_server *s, json_t *id, const char *method, const json_t *params)
{
    bool good, is_modern = check_modern(s, id, json_object_get(params, "_meta"), &good);
    if (is_modern && !good) return;
    bool known = strcmp(method, "tools/list") == 0 || strcmp(method, "tools/call") == 0;
    if (is_modern && strcmp(method, "server/discover") == 0)
        discover(s, id);
    else if (!is_modern && strcmp(method, "initialize") == 0)
        initialize(s, id, params);
    else if (!is_modern && strcmp(method, "ping") == 0)
        send_result(s, id, false, json_object());
    else if (known && !is_modern && !s->initialized)
        send_error(s, id, INVALID_PARAMS,
                   "send initialize first, or the protocol version in _meta (2026-07-28)", NULL);
    else if (strcmp(method, "tools/list") == 0)
        list_tools(s, id, is_modern, params);
    else if (strcmp(method, "tools/call") == 0)
        call_tool(s, id, is_modern, params);
    else
        send_error(s, id, NO_METHOD, "method not found", NULL);
}

static bool is_active(const struct mcp_server *s, const json_t *id)
{
    for (size_t i = 0; i < s->n_calls; i++)
        if (!s->calls[i]->cancelled && json_equal(s->calls[i]->id, id)) return true;
    return false;
}

static void take_message(struct mcp_server *s, const json_t *message)
{
    json_t *id = json_object_get(message, "id");
    const char *version = json_string_value(json_object_get(message, "jsonrpc"));
    const json_t *method = json_object_get(message, "method");
    const json_t *params = json_object_get(message, "params");
    bool good_id = json_is_string(id) || json_is_integer(id);
    if (!json_is_object(message))
        send_error(s, NULL, INVALID_REQUEST, "not a request object (batches are not taken)", NULL);
    else if (!method && (json_object_get(message, "result") || json_object_get(message, "error")))
        return; /* an answer to something that was never asked */
    else if (!version || strcmp(version, "2.0") != 0 || !json_is_string(method))
        send_error(s, good_id ? id : NULL, INVALID_REQUEST, "not a JSON-RPC 2.0 request", NULL);
    else if (id && !good_id)
        send_error(s, NULL, INVALID_REQUEST, "an id must be a text or a whole number", NULL);
    else if (params && !json_is_object(params))
        send_error(s, id, INVALID_PARAMS, "params must be an object", NULL);
    else if (id && is_active(s, id))
        send_error(s, id, INVALID_REQUEST, "a request with this id is under way", NULL);
    else if (id)
        request(s, id, json_string_value(method), params);
    else if (strcmp(json_string_value(method), "notifications/cancelled") == 0)
        cancel(s, params);
}

/* \u0000 in any text: it would end there for whoever reads it as C does. */
static bool has_nul(const json_t *json)
{
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_string(json)) return memchr(json_string_value(json), 0, json_string_length(json));
    json_array_foreach((json_t *)(uintptr_t)json, i, value) if (has_nul(value)) return true;
    json_object_foreach((json_t *)(uintptr_t)json, key, value) if (has_nul(value)) return true;
    return false;
}

static void refuse_nul(struct mcp_server *s, const json_t *message)
{
    json_t *id = json_object_get(message, "id");
    bool good_id = (json_is_string(id) && !has_nul(id)) || json_is_integer(id);
    if (json_is_object(message) && !id) return; /* a notification: nobody waits */
    send_error(s, good_id ? id : NULL, INVALID_REQUEST, "a text holds \\u0000, which none may",
               NULL);
}

void mcp_server_line(struct mcp_server *s, const char *line, size_t size)
{
    while (size && strchr(" \t\r", line[size - 1])) size--;
    while (size && strchr(" \t\r", *line)) {
        line++;
        size--;
    }
    if (size == 0) return;
    json_error_t error;
    json_t *message =
        json_loadb(line, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!message) {
        send_error(s, NULL, PARSE_ERROR, "not JSON", json_string(error.text));
        return;
    }
    if (has_nul(message))
        refuse_nul(s, message);
    else
        take_message(s, message);
    json_decref(message);
}

/* ---- running ---- */

static void start_call(struct mcp_server *s, struct call *c)
{
    char *argv[MCP_ARGUMENTS_MAX + 2] = {(char *)(uintptr_t) "sol"};
    memcpy(argv + 1, c->words.words, c->words.count * sizeof *argv);
    c->started_ns = c->told_ns = clock_ns();
    c->running = mcp_child_start(s->params.program, argv, &c->child) == SOL_OK;
}

/* Waiting calls in order, but only one that measures at a time. */
static void start_calls(struct mcp_server *s)
{
    bool measuring = false;
    for (size_t i = 0; i < s->n_calls; i++)
        measuring = measuring || (s->calls[i]->running && s->calls[i]->tool->measures);
    for (size_t i = 0; i < s->n_calls; i++) {
        struct call *c = s->calls[i];
        if (c->running || c->cancelled || (measuring && c->tool->measures)) continue;
        start_call(s, c);
        measuring = measuring || (c->running && c->tool->measures);
    }
}

static double seconds_since(uint64_t ns)
{
    return 1e-9 * (double)(clock_ns() - ns);
}

static void keep_output(struct mcp_server *s, struct call *c, json_t *next)
{
    struct mcp_kept *k = &s->kept[s->n_kept % KEPT];
    free(k->text);
    json_decref(k->next);
    k->next = json_incref(next);
    snprintf(k->id, sizeof k->id, "a%lu", ++s->n_kept);
    k->text = c->child.output;
    k->size = c->child.size;
    c->child.output = NULL;
}

static void answer_call(struct mcp_server *s, struct call *c)
{
    char next_id[16];
    bool failed, cut;
    snprintf(next_id, sizeof next_id, "a%lu", s->n_kept + 1);
    json_t *next;
    struct mcp_outcome o = {
        .tool = c->tool,
        .arguments = c->arguments,
        .offer = offer_of(s),
        .end = c->timed_out        ? MCP_TIMED_OUT
               : c->child.too_much ? MCP_TOO_MUCH
                                   : MCP_EXITED,
        .exit_status = c->child.exit_status,
        .seconds = seconds_since(c->started_ns),
        .max_seconds = c->words.max_seconds,
        .output = c->child.output ? c->child.output : "",
        .output_size = c->child.size,
        .errors = c->child.errors,
        .more_id = next_id,
    };
    char *text = mcp_answer(&o, &failed, &cut, &next);
    if (cut) keep_output(s, c, next);
    json_decref(next);
    send_text(s, c->id, c->is_modern, text, failed);
}

static void tell_progress(struct mcp_server *s, struct call *c)
{
    if (!c->token || c->cancelled || seconds_since(c->told_ns) < 1) return;
    char line[160];
    size_t end = c->child.errors_size;
    const char *text = c->child.errors;
    while (end && strchr(" \r\n", text[end - 1])) end--;
    size_t start = end;
    while (start && !strchr("\r\n", text[start - 1])) start--;
    snprintf(line, sizeof line, "%.*s", (int)(end - start), text + start);
    c->told_ns = clock_ns();
    json_t *message = store_json_string(line);
    send_message(s, json_pack("{s:s, s:s, s:{s:O, s:f, s:f, s:o}}", "jsonrpc", "2.0", "method",
                              "notifications/progress", "params", "progressToken", c->token,
                              "progress", floor(seconds_since(c->started_ns) * 10) / 10, "total",
                              c->words.max_seconds, "message",
                              message && *line ? message : json_string(c->tool->name)));
    if (!*line) json_decref(message);
}

/* True when the call is over. */
static bool watch_call(struct mcp_server *s, struct call *c)
{
    if (!c->running) {
        if (c->cancelled) return true;
        if (c->started_ns == 0) return false;
        send_text(
            s, c->id, c->is_modern,
            mcp_answer_error(c->tool, "no process could be started", "call it again later", NULL),
            true);
        return true;
    }
    mcp_child_read(&c->child);
    if (mcp_child_ended(&c->child)) {
        if (!c->cancelled) answer_call(s, c);
        return true;
    }
    bool late = seconds_since(c->started_ns) > c->words.max_seconds;
    if (late && !c->cancelled) c->timed_out = true;
    if (late || c->child.too_much) mcp_child_stop(&c->child);
    tell_progress(s, c);
    return false;
}

static void watch_calls(struct mcp_server *s)
{
    size_t left = 0;
    for (size_t i = 0; i < s->n_calls; i++)
        if (watch_call(s, s->calls[i]))
            free_call(s->calls[i]);
        else
            s->calls[left++] = s->calls[i];
    s->n_calls = left;
}

bool mcp_server_turn(struct mcp_server *s, int in, int wait_ms)
{
    struct pollfd fds[2 * MCP_CALLS_MAX + 1] = {{.fd = in, .events = POLLIN}};
    nfds_t count = 1;
    start_calls(s);
    for (size_t i = 0; i < s->n_calls; i++) {
        const struct mcp_child *c = &s->calls[i]->child;
        if (!s->calls[i]->running) continue;
        if (c->out >= 0) fds[count++] = (struct pollfd){.fd = c->out, .events = POLLIN};
        if (c->err >= 0) fds[count++] = (struct pollfd){.fd = c->err, .events = POLLIN};
        /* A child that closed its output has no other way to be noticed. */
        int tick = c->out < 0 || c->err < 0 ? 10 : 100;
        if (wait_ms > tick) wait_ms = tick;
    }
    bool ready = poll(fds, count, wait_ms) > 0 && fds[0].revents;
    watch_calls(s);
    return ready;
}

size_t mcp_server_calls(const struct mcp_server *server)
{
    return server->n_calls;
}

/* ---- the server ---- */

enum sol_status mcp_server_create(const struct mcp_params *params, struct mcp_server **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "no memory for a server");
    (*out)->params = *params;
    (*out)->out = -1;
    return SOL_OK;
}

void mcp_server_destroy(struct mcp_server *server)
{
    if (!server) return;
    for (size_t i = 0; i < server->n_calls; i++)
        if (server->calls[i]->running) mcp_child_stop(&server->calls[i]->child);
    /* Long enough for sol to end its own children. */
    for (int i = 0; i < 100; i++) {
        bool all = true;
        for (size_t k = 0; k < server->n_calls; k++)
            all = (!server->calls[k]->running || mcp_child_ended(&server->calls[k]->child)) && all;
        if (all) break;
        poll(NULL, 0, 20);
    }
    for (size_t i = 0; i < server->n_calls; i++) free_call(server->calls[i]);
    for (size_t i = 0; i < KEPT; i++) {
        free(server->kept[i].text);
        json_decref(server->kept[i].next);
    }
    free(server);
}

struct reader {
    char *line; /* MCP_LINE_MAX + 1 */
    size_t size;
    bool skipping; /* the rest of a line that is too long */
};

static void take_bytes(struct mcp_server *s, struct reader *r, const char *bytes, size_t size)
{
    while (size) {
        const char *end = memchr(bytes, '\n', size);
        size_t part = end ? (size_t)(end - bytes) : size;
        if (!r->skipping && r->size + part > MCP_LINE_MAX) {
            send_error(s, NULL, INVALID_REQUEST, "the line is longer than 1 MiB", NULL);
            r->skipping = true;
        }
        if (!r->skipping) {
            memcpy(r->line + r->size, bytes, part);
            r->size += part;
        }
        if (end) {
            if (!r->skipping) mcp_server_line(s, r->line, r->size);
            r->size = 0;
            r->skipping = false;
            part++;
        }
        bytes += part;
        size -= part;
    }
}

static void serve(struct mcp_server *s, int in, struct reader *r)
{
    char bytes[8192];
    while (!s->broken && !interrupt_requested()) {
        if (!mcp_server_turn(s, in, 500)) continue;
        ssize_t got = read(in, bytes, sizeof bytes);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) return;
        take_bytes(s, r, bytes, (size_t)got);
    }
}

enum sol_status mcp_serve(int in, int out, const struct mcp_params *params)
{
    struct mcp_server *s;
    struct reader r = {.line = malloc(MCP_LINE_MAX + 1)};
    if (!r.line) return status_set(SOL_E_MEMORY, "no memory for a server");
    enum sol_status status = mcp_server_create(params, &s);
    if (status == SOL_OK) {
        struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
        sigaction(SIGPIPE, &ignore, &before);
        s->out = out;
        serve(s, in, &r);
        if (s->broken) status = status_set(SOL_E_IO, "the client does not read any more");
        mcp_server_destroy(s);
        sigaction(SIGPIPE, &before, NULL);
    }
    free(r.line);
    return status;
}
