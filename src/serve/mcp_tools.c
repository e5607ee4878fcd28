#include "serve/mcp_tools.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: one parameter a line */
#define TEXT(name, option, help)                                                                   \
    {                                                                                              \
        name, MCP_TEXT, option, help, 0, 0, NULL, false                                            \
    }
#define NEEDED(name, option, help)                                                                 \
    {                                                                                              \
        name, MCP_TEXT, option, help, 0, 0, NULL, true                                             \
    }
#define CHOICE(name, option, help, choices)                                                        \
    {                                                                                              \
        name, MCP_TEXT, option, help, 0, 0, choices, false                                         \
    }
#define FLAG(name, option, help)                                                                   \
    {                                                                                              \
        name, MCP_FLAG, option, help, 0, 0, NULL, false                                            \
    }
#define INTEGER(name, option, help, min, max)                                                      \
    {                                                                                              \
        name, MCP_INTEGER, option, help, min, max, NULL, false                                     \
    }
#define NUMBER(name, option, help, min, max)                                                       \
    {                                                                                              \
        name, MCP_NUMBER, option, help, min, max, NULL, false                                      \
    }
#define INTEGERS(name, option, help, min, max)                                                     \
    {                                                                                              \
        name, MCP_INTEGERS, option, help, min, max, NULL, false                                    \
    }
#define TEXTS(name, option, help)                                                                  \
    {                                                                                              \
        name, MCP_TEXTS, option, help, 0, 0, NULL, false                                           \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, MCP_TEXT, NULL, NULL, 0, 0, NULL, false                                              \
    }
#define MODEL   TEXT("model", "-m", "GGUF file, builtin (default), or synth:gpt-oss-20b and the like")
#define BACKEND TEXT("backend", "--backend", "cpu (default), cuda, cuda:N, or auto")
#define TREE    TEXT("tree", "--tree", "git tree (default: the server's working directory)")

static const struct mcp_parameter of_device[] = {
    BACKEND, FLAG("measure", "--measure", "measure the limits again"), END};
static const struct mcp_parameter of_kernels[] = {
    MODEL, BACKEND, FLAG("explain", "--explain", "say why each kernel is chosen or not"),
    INTEGERS("rows", "--rows", "tokens in a step: 1 is decoding", 1, 65536), END};
static const struct mcp_parameter of_bench[] = {
    MODEL,
    BACKEND,
    INTEGERS("prompt", "-p", "prompt lengths (default 512; 0: none)", 0, 1 << 24),
    INTEGERS("generate", "-n", "tokens to generate (default 128; 0: none)", 0, 1 << 24),
    INTEGERS("depth", "-d", "tokens in the context before", 0, 1 << 24),
    INTEGERS("parallel", "--npl", "sequences that generate together", 1, 4096),
    INTEGER("repetitions", "-r", "exactly so many (default: until precise)", 1, 1000),
    INTEGER("threads", "-t", "threads (default: every core)", 1, 1024),
    FLAG("ops", "--ops", "also the time of each kernel"),
    FLAG("no_limits", "--no-limits", "do not measure the machine's limits"),
    TEXT("label", "--label", "name to find the run by"),
    TEXTS("force", "--force", "OP=VARIANT to use where it can run"),
    END};
static const struct mcp_parameter of_profile[] = {
    MODEL,
    BACKEND,
    INTEGER("prompt", "-p", "tokens of the prefill (default 64; 0: none)", 0, 1 << 24),
    INTEGER("generate", "-n", "tokens to generate (default 16; 0: none)", 0, 1 << 24),
    INTEGER("repetitions", "-r", "timed repetitions (default 3)", 1, 1000),
    INTEGER("threads", "-t", "threads (default: every core)", 1, 1024),
    TEXT("label", "--label", "name to find the run by"),
    END};
static const struct mcp_parameter of_profile_command[] = {
    CHOICE("level", "--level", "what is traced", "off|launch|graph|node"),
    TEXT("range", "--range", "a step is an NVTX range of this name"),
    {"command", MCP_TEXTS, NULL, "program and arguments", 0, 0, NULL, true},
    END};
static const struct mcp_parameter of_advise[] = {
    TEXT("run", NULL, "stored profile or benchmark: id, label or last (default)"), END};
static const struct mcp_parameter of_compare[] = {
    NEEDED("old", NULL, "stored run: id, label, last~1"),
    NEEDED("new", NULL, "stored run: id, label, last"),
    TEXTS("metrics", "--metric", "tests that decide (default: all)"),
    FLAG("across", "--across", "runs of different machines"), END};
static const struct mcp_parameter of_compare_live[] = {
    NEEDED("old", NULL, "command"),
    NEEDED("new", NULL, "command"),
    TEXTS("metrics", "--metric",
          "what decides: wall, user, cpu, test:NAME, regex:PATTERN, json:PATH"),
    INTEGER("max_pairs", "--max-pairs", "most pairs of starts", 6, 1000),
    FLAG("same_output", "--same-output", "outputs must be the same"),
    END};
static const struct mcp_parameter of_runs[] = {
    CHOICE("kind", "--kind", "only such runs", "bench|profile|compare|import"),
    TEXT("label", "--label", "with this label"),
    INTEGER("limit", "-n", "the newest so many", 1, 1000), END};
static const struct mcp_parameter of_run_show[] = {NEEDED("run", NULL, "id, label, last, last~2"),
                                                   END};
static const struct mcp_parameter of_report[] = {
    NEEDED("output", "--output", "HTML file to write"),
    TEXT("run", NULL, "stored run: id, label or last (default)"), END};
static const struct mcp_parameter of_verify[] = {
    TEXTS("ops", "--op", "only these ops"), MODEL, BACKEND,
    FLAG("ops_only", "--ops-only", "no model, only the ops"), END};
static const struct mcp_parameter of_tune[] = {
    MODEL,
    BACKEND,
    INTEGERS("rows", "--rows", "tokens in a step (default 1 to 2048)", 1, 65536),
    INTEGERS("depth", "-d", "tokens in the context before, for attention", 0, 1 << 24),
    NUMBER("budget", "--budget", "seconds of measuring (default 120)", 0.001, 1e6),
    INTEGER("threads", "-t", "threads (default: every core)", 1, 1024),
    FLAG("dry_run", "--dry-run", "list what would be timed"),
    END};
static const struct mcp_parameter of_opt_tree[] = {TREE, END};
static const struct mcp_parameter of_opt_init[] = {
    TREE, CHOICE("preset", "--preset", "kind of tree", "sol|llama.cpp|make"),
    TEXT("model", "-m", "put into the preset's commands"),
    FLAG("force", "--force", "replace sol-opt.json"), END};
static const struct mcp_parameter of_opt_start[] = {
    TREE,
    NEEDED("hypothesis", NULL, "what you try, in words"),
    NUMBER("predict_percent", "--predict", "expected gain: percent less time", 0.001, 99.9),
    TEXT("rule", "--rule", "advice rule that it follows"),
    FLAG("with_changes", "--with-changes", "what is already edited belongs to it"),
    END};
static const struct mcp_parameter of_opt_compare[] = {
    TREE, INTEGER("max_pairs", "--max-pairs", "most pairs of starts", 6, 1000), END};
static const struct mcp_parameter of_opt_record[] = {
    TREE, TEXT("note", "--note", "what was learned"), END};
static const struct mcp_parameter of_opt_accept[] = {
    TREE,
    CHOICE("even_if", "--even-if", "accept without a gain, or with another test slower",
           "same|trade"),
    TEXT("reason", "--reason", "why, with even_if"),
    TEXT("message", "--message", "first line of the commit message"),
    FLAG("no_commit", "--no-commit", "leave the commit to the user"),
    END};
static const struct mcp_parameter of_opt_revert[] = {
    TREE, FLAG("keep", "--keep", "end it, leave the files as they are"),
    TEXT("note", "--note", "what was learned"), END};
static const struct mcp_parameter of_opt_restore[] = {
    TREE,
    INTEGER("change", "--change", "number of a recorded change (default: the newest)", 1, 1 << 30),
    TEXT("iteration", NULL, "of this iteration: #3, id, last (default)"), END};
static const struct mcp_parameter of_opt_history[] = {
    TREE, FLAG("all", "--all", "of all trees"),
    INTEGER("limit", "-n", "the newest so many", 1, 1000),
    TEXT("iteration", NULL, "one of them, with its diff: #3, id, last"), END};
static const struct mcp_parameter of_more[] = {
    NEEDED("id", NULL, "the \"more\" of a cut answer"),
    INTEGER("offset", NULL, "from this byte of the whole (default 0)", 0, 1 << 30), END};

const struct mcp_tool mcp_tools[] = {
    {"device", "This machine and its measured limits.", "device -o json", of_device, "bench", 300,
     true, MCP_ADDS, false},
    {"kernels", "Ops and kernels, and which ones serve a model here.", "kernels --json", of_kernels,
     "bench with ops true", 60, false, MCP_READS, false},
    {"bench",
     "Time a model: tokens per second with intervals, beside the machine's limits; kept as a run.",
     "bench -q -o json", of_bench, "advise, or opt_start to try a change", 600, true, MCP_ADDS,
     false},
    {"profile", "Time a model kernel by kernel and layer by layer; kept as a run.",
     "profile -q -o json", of_profile, "advise", 600, true, MCP_ADDS, false},
    {"profile_command", "Trace a CUDA program: kernels, copies, gaps, steps.", "profile -o json",
     of_profile_command, "advise", 600, true, MCP_ADDS, true},
    {"advise", "What limits a stored run, with evidence and predicted gains.", "advise -o json",
     of_advise, "opt_start with the first rule and its likely gain", 120, false, MCP_ADDS, false},
    {"compare", "Compare two stored runs (historical; opt_compare decides changes).",
     "compare -q -o json", of_compare, "opt_start to try a change", 120, false, MCP_ADDS, false},
    {"compare_live", "Is the second command faster? Runs both in turn.",
     "compare --live -q -o json", of_compare_live, "keep the faster one", 1200, true, MCP_ADDS,
     true},
    {"runs", "Stored runs, the newest first.", "runs -o json", of_runs, "run_show with an id", 60,
     false, MCP_READS, false},
    {"run_show", "One stored run: metrics, kernels, advice.", "runs -o json show", of_run_show,
     "advise", 60, false, MCP_READS, false},
    {"report", "Write one HTML file about a run.", "report --json", of_report, "open the file", 120,
     false, MCP_REPLACES, false},
    {"verify", "Check every kernel against its reference.", "verify --json", of_verify, "bench",
     900, true, MCP_ADDS, false},
    {"tune", "Find the fastest kernels and tiles for this device and keep them for later runs.",
     "tune -q --json", of_tune, "bench", 900, true, MCP_REPLACES, false},
    {"opt_init", "Write sol-opt.json: how a tree is built, measured and checked.",
     "opt init -o json", of_opt_init, NULL, 60, false, MCP_REPLACES, false},
    {"opt_status", "The open iteration and its next step.", "opt status -o json", of_opt_tree, NULL,
     60, false, MCP_READS, true},
    {"opt_start", "Begin an iteration: hypothesis, predicted gain.", "opt start -o json",
     of_opt_start, NULL, 60, false, MCP_ADDS, true},
    {"opt_benchmark", "Build and measure the working tree once, beside the baseline.",
     "opt benchmark -q -o json", of_opt_tree, NULL, 3600, true, MCP_ADDS, true},
    {"opt_profile", "Build and profile the working tree as configured.", "opt profile -q -o json",
     of_opt_tree, NULL, 3600, true, MCP_ADDS, true},
    {"opt_compare", "Baseline and working tree in turn until the difference is known.",
     "opt compare -q -o json", of_opt_compare, NULL, 3600, true, MCP_ADDS, true},
    {"opt_record", "Keep the diff of the iteration in the store.", "opt record -o json",
     of_opt_record, NULL, 120, false, MCP_ADDS, true},
    {"opt_accept", "Run the gates (faster, correct, perplexity, kernels), then commit.",
     "opt accept -q -o json", of_opt_accept, NULL, 3600, true, MCP_REPLACES, true},
    {"opt_revert", "Put the recorded files back to the base commit.", "opt revert -o json",
     of_opt_revert, NULL, 120, false, MCP_REPLACES, true},
    {"opt_restore", "Bring a recorded change back: the files, and what was staged.",
     "opt restore -o json", of_opt_restore, NULL, 120, false, MCP_REPLACES, true},
    {"opt_history", "Iterations of a tree.", "opt history -o json", of_opt_history, NULL, 60, false,
     MCP_READS, false},
    {"opt_summary", "What each advice rule promised and what came true.", "opt summary -o json",
     of_opt_tree, NULL, 60, false, MCP_READS, false},
    {"more", "The rest of an answer that was cut.", NULL, of_more,
     "call the tool again if you need it anew", 10, false, MCP_READS, false},
    {NULL, NULL, NULL, NULL, NULL, 0, false, MCP_READS, false},
};
/* clang-format on */

/* ---- schemas ---- */

static json_t *number_limits(json_t *schema, const struct mcp_parameter *p)
{
    if (p->max > p->min) {
        bool whole = p->kind != MCP_NUMBER;
        json_object_set_new(schema, "minimum",
                            whole ? json_integer((json_int_t)p->min) : json_real(p->min));
        json_object_set_new(schema, "maximum",
                            whole ? json_integer((json_int_t)p->max) : json_real(p->max));
    }
    return schema;
}

static json_t *choices_json(const char *choices)
{
    json_t *list = json_array();
    for (const char *at = choices; *at;) {
        size_t length = strcspn(at, "|");
        json_array_append_new(list, json_stringn(at, length));
        at += length + (at[length] == '|');
    }
    return list;
}

static json_t *parameter_json(const struct mcp_parameter *p)
{
    static const char *const types[] = {"string", "integer", "number", "boolean", "array", "array"};
    json_t *schema = json_pack("{s:s, s:s}", "type", types[p->kind], "description", p->help);
    if (p->kind == MCP_INTEGER || p->kind == MCP_NUMBER) number_limits(schema, p);
    if (p->kind == MCP_INTEGERS)
        json_object_set_new(schema, "items",
                            number_limits(json_pack("{s:s}", "type", "integer"), p));
    if (p->kind == MCP_TEXTS)
        json_object_set_new(schema, "items", json_pack("{s:s}", "type", "string"));
    if (p->choices) json_object_set_new(schema, "enum", choices_json(p->choices));
    return schema;
}

/* Nobody knows what a command does, so a tool that runs any promises nothing. */
json_t *mcp_tool_json(const struct mcp_tool *tool)
{
    json_t *properties = json_object(), *required = json_array();
    for (const struct mcp_parameter *p = tool->parameters; p->name; p++) {
        json_object_set_new(properties, p->name, parameter_json(p));
        if (p->required) json_array_append_new(required, json_string(p->name));
    }
    if (tool->command)
        json_object_set_new(properties, "max_seconds",
                            json_pack("{s:s, s:s, s:i, s:i, s:f}", "type", "number", "description",
                                      "ended after so many seconds", "minimum", 1, "maximum",
                                      MCP_MAX_SECONDS, "default", tool->seconds));
    json_t *schema = json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties,
                               "additionalProperties", 0);
    if (json_array_size(required))
        json_object_set_new(schema, "required", required);
    else
        json_decref(required);
    return json_pack("{s:s, s:s, s:o, s:{s:b, s:b, s:b}}", "name", tool->name, "description",
                     tool->description, "inputSchema", schema, "annotations", "readOnlyHint",
                     tool->effect == MCP_READS && !tool->commands, "destructiveHint",
                     tool->effect == MCP_REPLACES || tool->commands, "openWorldHint",
                     tool->commands);
}

/* ---- command lines ---- */

static enum sol_status add_word(struct mcp_words *w, const char *text)
{
    if (w->count == MCP_ARGUMENTS_MAX)
        return status_set(SOL_E_ARGUMENT, "more than %d arguments", MCP_ARGUMENTS_MAX);
    w->words[w->count] = strdup(text);
    return w->words[w->count++] ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a command");
}

/* As --name=value, or two words for a letter, so that a value beginning with - stays a value. */
static enum sol_status add_option(struct mcp_words *w, const char *option, const char *value)
{
    char *text = NULL;
    if (!value) return SOL_OK; /* checked by callers */
    if (!option) return add_word(w, value);
    bool is_long = option[1] == '-';
    if (asprintf(&text, is_long ? "%s=%s" : "%s%s", option, value) < 0)
        return status_set(SOL_E_MEMORY, "no memory for a command");
    enum sol_status status = add_word(w, text);
    free(text);
    return status;
}

static enum sol_status wrong(const struct mcp_parameter *p, const char *what)
{
    return status_set(SOL_E_ARGUMENT, "\"%s\" must be %s", p->name, what);
}

static enum sol_status number_text(const struct mcp_parameter *p, const json_t *value,
                                   char text[64])
{
    double number = json_number_value(value);
    bool whole = p->kind != MCP_NUMBER;
    if (!json_is_number(value) || (whole && !json_is_integer(value)))
        return wrong(p, whole ? "a whole number" : "a number");
    if (p->max > p->min && !(number >= p->min && number <= p->max))
        return status_set(SOL_E_ARGUMENT, "\"%s\" must be from %g to %g", p->name, p->min, p->max);
    if (whole)
        snprintf(text, 64, "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, 64, "%.15g", number);
    return SOL_OK;
}

static enum sol_status check_text(const struct mcp_parameter *p, const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) != json_string_length(value))
        return wrong(p, "a text that is not empty");
    if (!p->choices) return SOL_OK;
    for (const char *at = p->choices; *at;) {
        size_t length = strcspn(at, "|");
        if (strlen(text) == length && strncmp(text, at, length) == 0) return SOL_OK;
        at += length + (at[length] == '|');
    }
    return status_set(SOL_E_ARGUMENT, "\"%s\" must be one of %s", p->name, p->choices);
}

static enum sol_status add_integers(struct mcp_words *w, const struct mcp_parameter *p,
                                    const json_t *list)
{
    char text[2048] = "", one[64];
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > 64)
        return wrong(p, "a list of 1 to 64 whole numbers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        SOL_TRY(number_text(p, json_array_get(list, i), one));
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s%s", length ? "," : "", one);
    }
    return add_option(w, p->option, text);
}

static enum sol_status add_texts(struct mcp_words *w, const struct mcp_parameter *p,
                                 const json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) == 0) return wrong(p, "a list of texts");
    for (size_t i = 0; i < json_array_size(list); i++) {
        SOL_TRY(check_text(p, json_array_get(list, i)));
        SOL_TRY(add_option(w, p->option, json_string_value(json_array_get(list, i))));
    }
    return SOL_OK;
}

static enum sol_status add_value(struct mcp_words *w, const struct mcp_parameter *p,
                                 const json_t *value)
{
    char text[64];
    switch (p->kind) {
    case MCP_TEXT:
        SOL_TRY(check_text(p, value));
        return add_option(w, p->option, json_string_value(value));
    case MCP_INTEGER:
    case MCP_NUMBER:
        SOL_TRY(number_text(p, value, text));
        return add_option(w, p->option, text);
    case MCP_FLAG:
        if (!json_is_boolean(value)) return wrong(p, "true or false");
        return json_is_true(value) && p->option ? add_word(w, p->option) : SOL_OK;
    case MCP_INTEGERS:
        return add_integers(w, p, value);
    case MCP_TEXTS:
        return add_texts(w, p, value);
    }
    return SOL_OK;
}

static enum sol_status check_names(const struct mcp_tool *tool, const json_t *arguments)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)arguments, key, value)
    {
        bool known = tool->command && strcmp(key, "max_seconds") == 0;
        for (const struct mcp_parameter *p = tool->parameters; p->name; p++)
            known = known || strcmp(key, p->name) == 0;
        if (!known) return status_set(SOL_E_ARGUMENT, "%s has no argument \"%s\"", tool->name, key);
    }
    return SOL_OK;
}

static enum sol_status add_command(struct mcp_words *w, const char *command)
{
    char word[64];
    while (command && *command) {
        size_t length = strcspn(command, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, command);
        SOL_TRY(add_word(w, word));
        command += length + (command[length] == ' ');
    }
    return SOL_OK;
}

/* Options first; behind "--" nothing is taken for one. */
static enum sol_status make_words(const struct mcp_tool *tool, const json_t *arguments,
                                  struct mcp_words *out)
{
    const json_t *seconds = json_object_get(arguments, "max_seconds");
    if (arguments && !json_is_object(arguments))
        return status_set(SOL_E_ARGUMENT, "\"arguments\" must be an object");
    SOL_TRY(check_names(tool, arguments));
    out->max_seconds = tool->seconds;
    if (seconds) {
        out->max_seconds = json_number_value(seconds);
        if (!(out->max_seconds >= 1 && out->max_seconds <= MCP_MAX_SECONDS))
            return status_set(SOL_E_ARGUMENT, "\"max_seconds\" must be from 1 to %d",
                              MCP_MAX_SECONDS);
    }
    SOL_TRY(add_command(out, tool->command));
    for (int words = 0; words < 2; words++) {
        if (words) SOL_TRY(add_word(out, "--"));
        for (const struct mcp_parameter *p = tool->parameters; p->name; p++) {
            const json_t *value = json_object_get(arguments, p->name);
            if (!value && p->required)
                return status_set(SOL_E_ARGUMENT, "\"%s\" is needed: %s", p->name, p->help);
            if (value && (p->option == NULL) == (words == 1)) SOL_TRY(add_value(out, p, value));
        }
    }
    return SOL_OK;
}

enum sol_status mcp_tool_words(const struct mcp_tool *tool, const json_t *arguments,
                               struct mcp_words *out)
{
    *out = (struct mcp_words){.count = 0};
    enum sol_status status = make_words(tool, arguments, out);
    if (status != SOL_OK) mcp_words_free(out);
    return status;
}

void mcp_words_free(struct mcp_words *words)
{
    for (size_t i = 0; i < words->count; i++) free(words->words[i]);
    *words = (struct mcp_words){.count = 0};
}
