/* sol serve: a model behind the HTTP API of OpenAI. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/start.h"
#include "base/status.h"
#include "chat/format.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/input.h"
#include "cli/serve_size.h"
#include "cli/vocabulary_option.h"
#include "generate/turn.h"
#include "serve/api_shared.h"
#include "serve/server.h"

struct serve_options {
    struct engine_options engine;
    struct serve_size size;
    const char *vocab, *name;
    const char *host;
    int64_t port, connections;
    struct string_list hosts, origins;
    const char *keys, *cert, *key;
    const char *responses, *types;
    int64_t max_waiting, max_waiting_tokens;
    bool deterministic, log;
    double drain_s, heartbeat_s, request_s;
};

#define AT(field) offsetof(struct serve_options, field)

static const struct option options[] = {
    OPTION_ENTRY(GROUP, 0, "Server", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "host", "ADDRESS",
                 "where to listen (default 127.0.0.1: this machine alone; 0.0.0.0: every network)",
                 AT(host), 0, 0),
    OPTION_ENTRY(INT, 0, "port", "N", "default 8080; 0: any that is free", AT(port), 0, 65535),
    OPTION_ENTRY(STRING, 'a', "alias", "NAME", "of the model, in answers (default: its own)",
                 AT(name), 0, 0),
    OPTION_ENTRY(STRING, 0, "api-key-file", "FILE",
                 "who may ask: lines 'KEY' or 'NAME KEY' (default: $SOL_API_KEY, else anybody)",
                 AT(keys), 0, 0),
    OPTION_ENTRY(STRING, 0, "tls-cert", "FILE", "certificate, PEM: https", AT(cert), 0, 0),
    OPTION_ENTRY(STRING, 0, "tls-key", "FILE", "its key, PEM", AT(key), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "allow-host", "NAME",
                 "a name that the server is reached by, beside addresses and localhost; '*': any; "
                 "may be repeated",
                 AT(hosts), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "cors", "ORIGIN",
                 "pages of this origin may ask, as https://example.org; '*': all; may be repeated",
                 AT(origins), 0, 0),
    OPTION_ENTRY(INT, 0, "connections", "N", "of clients at most (default 4096)", AT(connections),
                 1, 1 << 20),
    OPTION_ENTRY(FLOAT, 0, "request-timeout", "S",
                 "seconds in which a request must have come (default 30, and more for long ones)",
                 AT(request_s), 0.1, 3600),
    OPTION_ENTRY(FLOAT, 0, "heartbeat", "S",
                 "seconds of silence in a stream until a comment is sent (default 10)",
                 AT(heartbeat_s), 0.1, 3600),
    OPTION_ENTRY(FLOAT, 0, "drain", "S",
                 "seconds for what runs to end after SIGTERM or Ctrl-C (default 30)", AT(drain_s),
                 0, 86400),
    OPTION_ENTRY(STRING, 0, "responses", "FOLDER",
                 "where /v1/responses stores (default: sol in $XDG_STATE_HOME or ~/.local/state; "
                 "none: in memory)",
                 AT(responses), 0, 0),
    OPTION_ENTRY(STRING, 0, "types", "harmony|full",
                 "how functions are shown to the model: as openai-harmony does (default), or with "
                 "anyOf, $ref, const and the like kept",
                 AT(types), 0, 0),
    OPTION_ENTRY(FLAG, 0, "log", NULL, "a line for each request on stderr", AT(log), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Load", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(
        INT, 0, "parallel", "N",
        "texts at once, of all copies together (default 16; on a GPU as many as its memory is "
        "good for, of each copy 512 at most)",
        AT(size.parallel), 1, 4096),
    OPTION_ENTRY(INT, 'c', "context", "N",
                 "tokens of a prompt and its answer (default: 8192, on a GPU what the model can)",
                 AT(size.context), 1, 1 << 24),
    OPTION_ENTRY(INT, 0, "cache-tokens", "N",
                 "of all texts together, and of kept prompts (default: what memory has room for)",
                 AT(size.cache), 1, INT64_C(1) << 40),
    OPTION_ENTRY(INT, 'b', "batch", "N", "tokens in a step (default 512, on a GPU 2048)",
                 AT(engine.batch), 1, 65536),
    OPTION_ENTRY(INT, 0, "max-waiting", "N", "requests that wait; more get 429 (default 512)",
                 AT(max_waiting), 1, 1 << 20),
    OPTION_ENTRY(INT, 0, "max-waiting-tokens", "N", "of their prompts (default 1048576)",
                 AT(max_waiting_tokens), 1, INT64_C(1) << 40),
    OPTION_ENTRY(FLAG, 0, "deterministic", NULL,
                 "the same answer alone and in a crowd, cached or not, bit for bit; slower",
                 AT(deterministic), 0, 0),
    ENGINE_OPTIONS(struct serve_options, engine),
    OPTION_ENTRY(STRING, 0, "vocab", "FILE",
                 "tokenizer.json, .tiktoken or GGUF file, for a model without a vocabulary",
                 AT(vocab), 0, 0),
    ENGINE_LOAD_OPTION(struct serve_options, engine),
    ENGINE_BACKEND_OPTION(struct serve_options, engine),
    ENGINE_GPUS_OPTION(struct serve_options, engine),
    ENGINE_COPIES_OPTION(struct serve_options, engine),
    {0},
};

static const struct command_example examples[] = {
    {"sol serve", "the built-in model, for this machine", "to be stopped with Ctrl-C"},
    {"sol serve -m openai/gpt-oss-20b --backend cuda", "gpt-oss on a GPU", "a GPU"},
    {"sol serve -m openai/gpt-oss-20b --backend cuda --copies 4", "a copy on each of four GPUs",
     "four GPUs"},
    {"sol serve -m openai/gpt-oss-20b --host 0.0.0.0 --api-key-file keys.txt --allow-host box.lan",
     "for a network, with keys", "keys, and a name of this machine"},
    {0},
};

static const struct command_spec spec = {
    .name = "serve",
    .summary = "serve a model over HTTP, as OpenAI's API",
    .arguments = "",
    .notes =
        "Paths: /v1/chat/completions, /v1/responses, /v1/completions, /v1/models, /health,\n"
        "/metrics; a page to chat at /. Clients of OpenAI's API take the address and /v1 as their\n"
        "base URL. docs/SERVE.md has more.\n"
        "SIGTERM or Ctrl-C: no more requests are taken, what runs ends, then the server does, "
        "with\n"
        "status 0; a second one cuts what runs. When the GPU fails, what runs is told so, and the\n"
        "server ends with status 8; of several copies (--copies) on GPUs of their own the others "
        "go "
        "on.",
    .examples = examples,
    .options = options,
};

struct serve {
    struct serve_options options;
    struct engine_params params;
    struct model *model;
    struct turn_model *turns;
    struct engine *engines[ROUTER_COPIES_MAX];
    struct router *router;
    struct key_set *keys;
    struct api_shared *shared;
    char *cert, *key;
    struct server *server;
};

/* ---- files ---- */

enum { FILE_MAX = 4 << 20 };

static enum sol_status read_keys(struct serve *s)
{
    const char *path = s->options.keys, *named = getenv("SOL_API_KEY");
    char *text;
    size_t length;
    if (!path && named && *named)
        return key_set_parse(named, strlen(named), "SOL_API_KEY", &s->keys);
    if (!path) return SOL_OK;
    SOL_TRY(input_read(path, FILE_MAX, &text, &length));
    enum sol_status status = key_set_parse(text, length, path, &s->keys);
    free(text);
    return status;
}

/* Ended by a NUL. */
static enum sol_status read_pem(const char *path, char **text)
{
    char *data;
    size_t length;
    SOL_TRY(input_read(path, FILE_MAX, &data, &length));
    *text = strndup(data, length);
    free(data);
    return *text ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for '%s'", path);
}

static enum sol_status read_tls(struct serve *s)
{
    if (!s->options.cert != !s->options.key)
        return status_set(SOL_E_ARGUMENT, "--tls-cert and --tls-key go together");
    if (!s->options.cert) return SOL_OK;
    SOL_TRY(read_pem(s->options.cert, &s->cert));
    return read_pem(s->options.key, &s->key);
}

/* ---- setting up ---- */

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* The name that people give: a model of the hub, or a file without its folder. */
static const char *name_of(const struct serve *s)
{
    const char *model = s->options.engine.model ? s->options.engine.model : "builtin";
    const char *slash = strrchr(model, '/');
    if (s->options.name) return s->options.name;
    return slash && (model[0] == '/' || model[0] == '.') && slash[1] ? slash + 1 : model;
}

/* A folder that was not asked for may fail: then responses live as long as the server. */
static enum sol_status open_responses(struct serve *s)
{
    const char *asked = s->options.responses;
    char folder[4096];
    if (asked && strcmp(asked, "none") == 0) return api_shared_create(NULL, &s->shared);
    if (asked) return api_shared_create(asked, &s->shared);
    enum sol_status status = responses_folder(folder, sizeof folder);
    if (status == SOL_OK) status = api_shared_create(folder, &s->shared);
    if (status == SOL_OK || status == SOL_E_INTERRUPTED) return status;
    LOG_WARN("responses are not stored: %s", sol_last_error());
    return api_shared_create(NULL, &s->shared);
}

/* Listens before the model is there, so that who waits for it can ask (/health). */
static enum sol_status listen_first(struct serve *s)
{
    const struct serve_options *o = &s->options;
    struct server_params p;
    SOL_TRY(read_keys(s));
    SOL_TRY(read_tls(s));
    SOL_TRY(open_responses(s));
    s->shared->types = typescript_types_find(o->types);
    if (!is_loopback(o->host) && !s->keys)
        LOG_WARN("anybody who reaches %s may ask: --api-key-file says who may", o->host);
    server_params_init(&p);
    p.http.host = o->host;
    p.http.port = (int)o->port;
    p.http.connections = p.http.connections_per_address = o->connections;
    p.http.request_s = o->request_s;
    p.http.heartbeat_s = o->heartbeat_s;
    p.http.tls_cert = s->cert;
    p.http.tls_key = s->key;
    p.hosts = o->hosts.values;
    p.n_hosts = o->hosts.count;
    p.origins = o->origins.values;
    p.n_origins = o->origins.count;
    p.keys = s->keys;
    p.name = name_of(s);
    p.drain_s = o->drain_s;
    p.shared = s->shared;
    p.log = o->log;
    return server_create(&p, &s->server);
}

/* A model that knows no turns continues text all the same. */
static enum sol_status add_turns(struct serve *s)
{
    enum sol_status status = turn_model_create(s->model, &s->turns);
    return status == SOL_E_UNSUPPORTED ? SOL_OK : status;
}

/* By what a GPU has of the model. */
static enum sol_status settle_size(struct serve *s)
{
    struct model *part;
    s->options.size.copies = s->options.engine.copies;
    s->options.size.together = s->options.engine.pipeline_parallel;
    SOL_TRY(engine_options_part(&s->options.engine, s->model, &part));
    const enum sol_status status =
        serve_size_settle(part ? part : s->model, &s->options.size, &s->params);
    shard_destroy(part);
    return status;
}

static int copies_of(const struct serve *s)
{
    return s->options.engine.copies ? (int)s->options.engine.copies : 1;
}

static enum sol_status make_copies(struct serve *s)
{
    for (int i = 0; i < copies_of(s); i++) {
        struct engine_params own = s->params;
        SOL_TRY(engine_options_copy(&s->options.engine, s->model, i, &own));
        SOL_TRY(engine_create(s->model, &own, &s->engines[i]));
    }
    return SOL_OK;
}

/* Of a pipeline: one would leave all GPUs but one idle. */
static int64_t batches_for(int64_t gpus)
{
    const int64_t most = ENGINE_PARTS_MAX / gpus;
    return gpus < most ? gpus : most;
}

static enum sol_status load(struct serve *s)
{
    struct serve_options *o = &s->options;
    struct scheduler_params how;
    if (o->engine.pipeline_parallel && !o->engine.copies && o->engine.gpus)
        o->engine.copies = batches_for(o->engine.gpus);
    SOL_TRY(engine_options_params(&o->engine, &s->params));
    s->params.shapes_vary = true;
    if (o->size.context) s->params.context = o->size.context;
    /* All texts wait for a step. */
    if (!o->engine.batch && s->params.max_batch > ENGINE_BATCH_MANY)
        s->params.max_batch = ENGINE_BATCH_MANY;
    SOL_TRY(engine_options_open(&o->engine, &s->params, &s->model));
    SOL_TRY(vocabulary_add(s->model, s->options.vocab));
    SOL_TRY(add_turns(s));
    SOL_TRY(settle_size(s));
    SOL_TRY(make_copies(s));
    scheduler_params_init(s->engines[0], &how);
    if (o->max_waiting) how.max_waiting = o->max_waiting;
    if (o->max_waiting_tokens) how.max_waiting_tokens = o->max_waiting_tokens;
    how.deterministic = o->deterministic;
    return router_create(s->engines, copies_of(s), &how, &s->router);
}

static void tear_down(struct serve *s)
{
    router_destroy(s->router);
    server_destroy(s->server);
    api_shared_destroy(s->shared);
    turn_model_destroy(s->turns);
    for (int i = 0; i < ROUTER_COPIES_MAX; i++) engine_destroy(s->engines[i]);
    engine_options_close(&s->options.engine);
    model_close(s->model);
    key_set_destroy(s->keys);
    free(s->cert);
    free(s->key);
}

/* ---- what is said ---- */

static void print_where(const struct serve *s)
{
    const struct engine_params *p = engine_params_of(s->engines[0]);
    const int copies = copies_of(s);
    const char *address = server_address(s->server), *more = "";
    int64_t positions = p->cache_positions ? p->cache_positions : p->context * p->sequences;
    printf("%s: ", server_model_name(s->server));
    if (copies > 1)
        printf("%d %s; ", copies,
               s->options.engine.pipeline_parallel ? "batches on their way" : "copies");
    printf("%lld texts at once, context %lld, cache of %lld tokens; ",
           (long long)p->sequences * copies, (long long)p->context, (long long)positions * copies);
    if (s->turns)
        printf("chat format %s\n", turn_model_vocabulary(s->turns)->format->name);
    else
        puts("no chat format, it continues text");
    printf("listening on %s\n", address);
    if (s->keys) more = "-H \"Authorization: Bearer $SOL_API_KEY\" ";
    if (s->turns)
        printf("try: curl %s%s/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", "
               "\"content\": \"Hello\"}]}'\n",
               more, address);
    else if (s->model->tokenizer)
        printf("try: curl %s%s/v1/completions -d '{\"prompt\": \"Once upon a time\", "
               "\"max_tokens\": 32}'\n",
               more, address);
    else
        printf("try: curl %s%s/v1/completions -d '{\"prompt\": [1, 2, 3], \"max_tokens\": 32}'\n",
               more, address);
    fflush(stdout);
}

static enum sol_status serve(struct serve *s)
{
    struct job_engine engine;
    signal(SIGPIPE, SIG_IGN); /* TLS writes to connections that may be closed */
    SOL_TRY(listen_first(s));
    SOL_TRY(load(s));
    SOL_TRY(interrupt_check());
    interrupt_defer();
    job_engine_init(&engine, s->model, s->router, s->turns,
                    engine_params_of(s->engines[0])->context);
    server_open(s->server, &engine);
    print_where(s);
    return server_run(s->server);
}

static int run(int argc, char **argv)
{
    struct server_params usual;
    server_params_init(&usual);
    struct serve s = {.options = {.host = usual.http.host,
                                  .port = usual.http.port,
                                  .connections = usual.http.connections,
                                  .request_s = usual.http.request_s,
                                  .heartbeat_s = usual.http.heartbeat_s,
                                  .drain_s = usual.drain_s}};
    int exit_status;
    engine_options_init(&s.options.engine);
    if (!parse_options_only(&spec, argc, argv, &s.options, &exit_status)) return exit_status;
    start_without_thread_caches(argv - 1); /* of main, before the command's name */
    enum sol_status status = serve(&s);
    tear_down(&s);
    return cli_fail(status);
}

const struct command cmd_serve = {&spec, run, true};
