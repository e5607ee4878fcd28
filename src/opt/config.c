#include "opt/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/shell.h"
#include "base/suggest.h"
#include "compare/live.h"

/* ---- presets ---- */

/* Where @MODEL@ stands, the model is put in, quoted for the shell. */
static const char preset_sol[] =
    "{"
    "\"build\": \"cmake -Wno-dev --log-level=WARNING -S . -B build-opt "
    "-DCMAKE_BUILD_TYPE=Release -DSOL_TESTS=OFF && cmake --build build-opt -j$(nproc) "
    "--target sol\","
    "\"benchmark\": \"build-opt/sol bench -m @MODEL@ -p 256 -n 64 -r 6 --ops --no-limits "
    "--no-store -q -o json\","
    "\"metrics\": [\"test:pp256\", \"test:tg64\"],"
    "\"expect\": [\"gemm\", \"attention\", \"rmsnorm\"],"
    "\"correctness\": \"build-opt/sol verify --ops-only --json\","
    "\"perplexity\": \"build-opt/sol perplexity -m @MODEL@ -f tests/data/heldout.txt --limit 4096 "
    "-q --json\","
    "\"perplexity_value\": \"json:perplexity\","
    "\"profile\": \"build-opt/sol bench -m @MODEL@ -p 256 -n 64 -r 6 --ops --no-store -q\""
    "}";

static const char preset_llama[] =
    "{"
    "\"build\": \"cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build "
    "-j$(nproc) --target llama-bench llama-completion llama-perplexity\","
    "\"benchmark\": \"build/bin/llama-bench -m @MODEL@ -p 512 -n 64 -r 3 -o json\","
    "\"metrics\": [\"test:pp512\", \"test:tg64\"],"
    "\"correctness\": \"build/bin/llama-completion -m @MODEL@ -p 'The first ten primes are' -n 32 "
    "--temp 0 --seed 1 -no-cnv --no-display-prompt 2>/dev/null\","
    "\"same_output\": true,"
    "\"perplexity\": \"build/bin/llama-perplexity -m @MODEL@ -f README.md --chunks 4 -c 512 2>&1\","
    "\"perplexity_value\": \"regex:Final estimate: PPL = ([0-9.]+)\","
    "\"profile\": null"
    "}";

static const char preset_make[] = "{"
                                  "\"build\": \"make\","
                                  "\"benchmark\": \"./bench\","
                                  "\"metrics\": [\"wall\"],"
                                  "\"correctness\": \"make check\","
                                  "\"perplexity\": null,"
                                  "\"profile\": null"
                                  "}";

static const struct preset {
    const char *name, *model, *text;
} presets[] = {
    {"sol", "builtin", preset_sol},
    {"llama.cpp", "model.gguf", preset_llama},
    {"make", "", preset_make},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };
const char *const opt_presets[] = {"sol", "llama.cpp", "make", NULL};

static json_t *put_model(const char *command, const char *model)
{
    static const char mark[] = "@MODEL@";
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    for (const char *at; (at = strstr(command, mark)); command = at + strlen(mark)) {
        fwrite(command, 1, (size_t)(at - command), to);
        shell_write(to, model);
    }
    fputs(command, to);
    json_t *json = fclose(to) == 0 ? json_string(text) : NULL;
    free(text);
    return json;
}

enum sol_status opt_config_preset(const char *name, const char *model, json_t **out)
{
    *out = NULL;
    for (size_t i = 0; i < N_PRESETS; i++) {
        const struct preset *p = &presets[i];
        if (strcmp(p->name, name) != 0) continue;
        const char *key;
        json_t *value;
        *out = json_loads(p->text, 0, NULL);
        if (!*out) return status_set(SOL_E_MEMORY, "no memory for a preset");
        json_object_foreach(*out, key, value)
        {
            if (!json_is_string(value)) continue;
            json_t *put = put_model(json_string_value(value), model ? model : p->model);
            /* A set of a key that is there keeps the iteration valid. */
            if (!put || json_object_set_new(*out, key, put) != 0) {
                json_decref(*out);
                *out = NULL;
                return status_set(SOL_E_ARGUMENT, "--model is not UTF-8");
            }
        }
        return SOL_OK;
    }
    return status_set(SOL_E_ARGUMENT, "there is no preset %s", name);
}

static bool has_file(const char *tree, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", tree, name);
    return access(path, F_OK) == 0;
}

const char *opt_config_guess(const char *tree)
{
    if (has_file(tree, "src/ops/ops.list")) return "sol";
    return has_file(tree, "ggml/CMakeLists.txt") ? "llama.cpp" : "make";
}

bool opt_config_exists(const char *tree)
{
    return has_file(tree, OPT_CONFIG_FILE);
}

/* ---- reading ---- */

enum field_kind { FIELD_TEXT, FIELD_COMMAND, FIELD_LIST, FIELD_BOOL, FIELD_NUMBER, FIELD_COUNT };

static const struct field {
    const char *key;
    enum field_kind kind;
    size_t offset;
    bool required; /* null must be written where it is meant */
    double min, max;
} fields[] = {
    {"build", FIELD_COMMAND, offsetof(struct opt_config, build), false, 0, 0},
    {"benchmark", FIELD_COMMAND, offsetof(struct opt_config, benchmark), true, 0, 0},
    {"metrics", FIELD_LIST, offsetof(struct opt_config, metrics), false, 0, 0},
    {"expect", FIELD_LIST, offsetof(struct opt_config, expect), false, 0, 0},
    {"manifest", FIELD_COMMAND, offsetof(struct opt_config, manifest), false, 0, 0},
    {"correctness", FIELD_COMMAND, offsetof(struct opt_config, correctness), true, 0, 0},
    {"same_output", FIELD_BOOL, offsetof(struct opt_config, same_output), false, 0, 0},
    {"ignore_lines", FIELD_TEXT, offsetof(struct opt_config, ignore_lines), false, 0, 0},
    {"perplexity", FIELD_COMMAND, offsetof(struct opt_config, perplexity), true, 0, 0},
    {"perplexity_value", FIELD_TEXT, offsetof(struct opt_config, perplexity_value), false, 0, 0},
    {"perplexity_percent", FIELD_NUMBER, offsetof(struct opt_config, perplexity_percent), false,
     1e-9, 100},
    {"profile", FIELD_COMMAND, offsetof(struct opt_config, profile), false, 0, 0},
    {"exclude", FIELD_LIST, offsetof(struct opt_config, exclude), false, 0, 0},
    {"link", FIELD_LIST, offsetof(struct opt_config, link), false, 0, 0},
    {"delta_percent", FIELD_NUMBER, offsetof(struct opt_config, delta_percent), false, 0.01, 100},
    {"min_pairs", FIELD_COUNT, offsetof(struct opt_config, min_pairs), false, COMPARE_PAIRS_MIN,
     1000},
    {"max_pairs", FIELD_COUNT, offsetof(struct opt_config, max_pairs), false, COMPARE_PAIRS_MIN,
     1000},
    {"max_seconds", FIELD_NUMBER, offsetof(struct opt_config, max_seconds), false, 0, 1e6},
    {"warmup", FIELD_COUNT, offsetof(struct opt_config, warmup), false, 1, 100},
    {"timeout_seconds", FIELD_NUMBER, offsetof(struct opt_config, timeout_s), false, 0.01, 1e6},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static enum sol_status wrong(const char *origin, const struct field *f, const char *what)
{
    return status_set(SOL_E_FORMAT, "%s: \"%s\" must be %s", origin, f->key, what);
}

static enum sol_status read_list(const char *origin, const struct field *f, const json_t *value,
                                 struct string_list *list)
{
    if (!json_is_array(value) || json_array_size(value) > OPTION_LIST_MAX)
        return wrong(origin, f, "a list of at most 64 texts");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (!text || !*text) return wrong(origin, f, "a list of texts that are not empty");
        list->values[list->count++] = text;
    }
    return SOL_OK;
}

static enum sol_status read_field(const char *origin, const struct field *f, const json_t *value,
                                  void *into)
{
    const char *text = json_string_value(value);
    double number = json_number_value(value);
    switch (f->kind) {
    case FIELD_TEXT:
    case FIELD_COMMAND:
        if (!text || !text[strspn(text, " \t\r\n")])
            return wrong(origin, f, f->kind == FIELD_TEXT ? "a text" : "a command, or null");
        *(const char **)into = text;
        return SOL_OK;
    case FIELD_LIST:
        return read_list(origin, f, value, into);
    case FIELD_BOOL:
        if (!json_is_boolean(value)) return wrong(origin, f, "true or false");
        *(bool *)into = json_is_true(value);
        return SOL_OK;
    case FIELD_NUMBER:
    case FIELD_COUNT:
        break;
    }
    if (!json_is_number(value) || !(number >= f->min && number <= f->max) ||
        (f->kind == FIELD_COUNT && !json_is_integer(value)))
        return status_set(SOL_E_FORMAT, "%s: \"%s\" must be a %snumber from %g to %g", origin,
                          f->key, f->kind == FIELD_COUNT ? "whole " : "", f->min, f->max);
    if (f->kind == FIELD_COUNT)
        *(int64_t *)into = json_integer_value(value);
    else
        *(double *)into = number;
    return SOL_OK;
}

static enum sol_status check_keys(const json_t *json, const char *origin)
{
    const char *names[N_FIELDS], *key;
    json_t *value;
    for (size_t i = 0; i < N_FIELDS; i++) names[i] = fields[i].key;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < N_FIELDS; i++) known = known || strcmp(key, names[i]) == 0;
        if (known) continue;
        const char *near = suggest_name(key, names, N_FIELDS);
        return status_set(SOL_E_FORMAT, "%s: unknown key \"%s\"%s%s%s", origin, key,
                          near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    return SOL_OK;
}

static enum sol_status check_whole(const struct opt_config *c, const char *origin)
{
    if (!c->benchmark) return status_set(SOL_E_FORMAT, "%s: \"benchmark\" is null", origin);
    if (!c->correctness && !c->same_output)
        return status_set(SOL_E_FORMAT,
                          "%s: \"correctness\" may be null only with \"same_output\": true, for "
                          "then the benchmark's own output is compared",
                          origin);
    if (c->perplexity && !c->perplexity_value)
        return status_set(SOL_E_FORMAT,
                          "%s: \"perplexity\" needs \"perplexity_value\", for example "
                          "\"json:perplexity\" or \"regex:PPL = ([0-9.]+)\"",
                          origin);
    if (c->min_pairs > c->max_pairs)
        return status_set(SOL_E_FORMAT, "%s: \"min_pairs\" is more than \"max_pairs\"", origin);
    return SOL_OK;
}

static enum sol_status fill(const char *origin, struct opt_config *c)
{
    if (!json_is_object(c->json)) return status_set(SOL_E_FORMAT, "%s: not a JSON object", origin);
    SOL_TRY(check_keys(c->json, origin));
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        const json_t *value = json_object_get(c->json, f->key);
        if (f->required && !value)
            return status_set(SOL_E_FORMAT, "%s: \"%s\" is missing (null says that there is none)",
                              origin, f->key);
        if (value && !json_is_null(value))
            SOL_TRY(read_field(origin, f, value, (char *)c + f->offset));
    }
    return check_whole(c, origin);
}

enum sol_status opt_config_from_json(json_t *json, const char *origin, struct opt_config *out)
{
    *out = (struct opt_config){.json = json,
                               .perplexity_percent = 0.1,
                               .min_pairs = COMPARE_PAIRS_MIN,
                               .max_pairs = COMPARE_PAIRS_MAX,
                               .max_seconds = COMPARE_SECONDS,
                               .warmup = 1,
                               .timeout_s = 3600};
    enum sol_status status = fill(origin, out);
    if (status != SOL_OK) opt_config_free(out);
    return status;
}

enum sol_status opt_config_read(const char *tree, struct opt_config *out)
{
    char path[4096];
    json_error_t error;
    *out = (struct opt_config){0};
    snprintf(path, sizeof path, "%s/%s", tree, OPT_CONFIG_FILE);
    if (access(path, F_OK) != 0)
        return status_set(SOL_E_ARGUMENT,
                          "%s has no %s; make one with: sol opt init --preset sol (or llama.cpp, "
                          "or make)",
                          tree, OPT_CONFIG_FILE);
    int fd;
    SOL_TRY(file_open(path, &fd));
    json_t *json = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error);
    close(fd);
    if (!json) return status_set(SOL_E_FORMAT, "%s:%d: %s", path, error.line, error.text);
    return opt_config_from_json(json, path, out);
}

void opt_config_free(struct opt_config *config)
{
    json_decref(config->json);
    *config = (struct opt_config){0};
}
