#include "serve/mcp_tools.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
/* An option under its own name or another, one that must be there, and words. */
#define OPTION(name)            {name, name, false, {0}}
#define NAMED(name, option)     {name, option, false, {0}}
#define NEEDED(name)            {name, name, true, {0}}
#define TEXT(name, text)        {name, NULL, false, {.kind = OPTION_STRING, .help = text}}
#define NEEDED_TEXT(name, text) {name, NULL, true, {.kind = OPTION_STRING, .help = text}}
#define END                     {NULL, NULL, false, {0}}

static const struct mcp_parameter of_device[] = {OPTION("backend"), OPTION("measure"), END};
static const struct mcp_parameter of_kernels[] = {
    OPTION("model"), OPTION("backend"), OPTION("explain"), OPTION("rows"), END};
static const struct mcp_parameter of_bench[] = {
    OPTION("model"), OPTION("backend"), NAMED("prompt", "n-prompt"), NAMED("generate", "n-gen"),
    NAMED("depth", "n-depth"), NAMED("parallel", "npl"), OPTION("repetitions"), OPTION("threads"),
    OPTION("ops"), NAMED("no_limits", "no-limits"), OPTION("label"), OPTION("force"), END};
static const struct mcp_parameter of_profile[] = {
    OPTION("model"), OPTION("backend"), OPTION("prompt"), OPTION("generate"), OPTION("repetitions"),
    OPTION("threads"), OPTION("label"), END};
static const struct mcp_parameter of_profile_command[] = {
    OPTION("level"), OPTION("range"),
    {"command", NULL, true, {.kind = OPTION_STRINGS, .help = "program and arguments"}}, END};
static const struct mcp_parameter of_advise[] = {
    TEXT("run", "stored profile or benchmark: id, label or last (default)"),
    NAMED("what_if", "what-if"), OPTION("phase"), END};
static const struct mcp_parameter of_compare[] = {
    NEEDED_TEXT("old", "stored run: id, label, last~1"),
    NEEDED_TEXT("new", "stored run: id, label, last"), NAMED("metrics", "metric"), OPTION("across"),
    OPTION("roles"), END};
static const struct mcp_parameter of_compare_live[] = {
    NEEDED_TEXT("old", "command"), NEEDED_TEXT("new", "command"), NAMED("metrics", "metric"),
    NAMED("max_pairs", "max-pairs"), NAMED("last_pair_seconds", "max-seconds"),
    NAMED("same_output", "same-output"), END};
static const struct mcp_parameter of_runs[] = {
    OPTION("kind"), OPTION("label"), OPTION("limit"), END};
static const struct mcp_parameter of_run_show[] = {
    NEEDED_TEXT("run", "id, label, last, last~2"), END};
static const struct mcp_parameter of_import[] = {
    OPTION("label"), {"files", NULL, true, {.kind = OPTION_STRINGS, .help = "results to keep as runs"}},
    END};
static const struct mcp_parameter of_report[] = {
    NEEDED("output"), TEXT("run", "stored run: id, label or last (default)"), END};
static const struct mcp_parameter of_verify[] = {
    NAMED("ops", "op"), OPTION("model"), OPTION("backend"), NAMED("ops_only", "ops-only"), END};
static const struct mcp_parameter of_gemm_check[] = {
    OPTION("backend"), OPTION("quick"), OPTION("seed"), OPTION("threads"), END};
static const struct mcp_parameter of_gemm_bench[] = {
    OPTION("backend"), NAMED("shapes", "shape"), OPTION("type"), OPTION("scales"), OPTION("layout"),
    OPTION("results"), OPTION("gated"), OPTION("resident"), OPTION("force"), OPTION("profile"),
    NAMED("no_limits", "no-limits"), OPTION("threads"), OPTION("label"), END};
static const struct mcp_parameter of_tune[] = {
    OPTION("model"), OPTION("backend"), OPTION("rows"), OPTION("depth"), OPTION("budget"),
    OPTION("threads"), OPTION("again"), NAMED("dry_run", "dry-run"), END};
static const struct mcp_parameter of_opt_tree[] = {OPTION("tree"), END};
static const struct mcp_parameter of_opt_init[] = {
    OPTION("tree"), OPTION("preset"), OPTION("model"), OPTION("build"), OPTION("benchmark"),
    NAMED("metrics", "metric"), OPTION("correctness"), OPTION("profile"), OPTION("force"), END};
static const struct mcp_parameter of_opt_start[] = {
    OPTION("tree"), NEEDED_TEXT("hypothesis", "what you try, in words"),
    NAMED("predict_percent", "predict"), OPTION("rule"), NAMED("with_changes", "with-changes"), END};
static const struct mcp_parameter of_opt_compare[] = {
    OPTION("tree"), NAMED("max_pairs", "max-pairs"), NAMED("last_pair_seconds", "max-seconds"), END};
static const struct mcp_parameter of_opt_record[] = {OPTION("tree"), OPTION("note"), END};
static const struct mcp_parameter of_opt_accept[] = {
    OPTION("tree"), NAMED("even_if", "even-if"), OPTION("reason"), OPTION("message"),
    NAMED("no_commit", "no-commit"), END};
static const struct mcp_parameter of_opt_revert[] = {
    OPTION("tree"), OPTION("keep"), OPTION("note"), END};
static const struct mcp_parameter of_opt_restore[] = {
    OPTION("tree"), OPTION("change"),
    TEXT("iteration", "of this iteration: #3, id, last (default)"), END};
static const struct mcp_parameter of_opt_history[] = {
    OPTION("tree"), OPTION("all"), OPTION("limit"),
    TEXT("iteration", "one of them, with its diff: #3, id, last"), END};
static const struct mcp_parameter of_more[] = {
    NEEDED_TEXT("id", "that the answer names in its \"more\""),
    TEXT("path", "what of it, as \"left_out\" names it (default: the bytes as they came)"),
    {"offset", NULL, false,
     {.kind = OPTION_INT, .help = "from this byte of a text (default 0)", .max = 1 << 30}}, END};

/* clang-format on */

const struct mcp_tool mcp_tools[] = {
    {"device", "This machine and its measured limits.", "device -o json", of_device, "bench", 300,
     true, MCP_ADDS, false},
    {"kernels", "Ops and kernels, and which ones serve a model here.", "kernels --json", of_kernels,
     "bench --ops", 60, false, MCP_READS, false},
    {"bench",
     "Time a model: tokens per second with intervals, beside the machine's limits; kept as a run.",
     "bench -q -o json", of_bench, "advise RUN", 600, true, MCP_ADDS, false},
    {"profile", "Time a model kernel by kernel and layer by layer; kept as a run.",
     "profile -q -o json", of_profile, "advise RUN", 600, true, MCP_ADDS, false},
    {"profile_command", "Trace a CUDA program: kernels, copies, gaps, steps.", "profile -o json",
     of_profile_command, "runs show RUN", 600, true, MCP_ADDS, true},
    {"advise", "What limits a stored run, with evidence and predicted gains.", "advise -o json",
     of_advise, "runs show RUN", 120, false, MCP_ADDS, false},
    {"compare", "Compare two stored runs (historical; opt_compare decides changes).",
     "compare -q -o json", of_compare, "runs show RUN", 120, false, MCP_ADDS, false},
    {"compare_live", "Is the second command faster? Runs both in turn.",
     "compare --live -q -o json", of_compare_live, "runs show RUN", 1200, true, MCP_ADDS, true},
    {"runs", "Stored runs, the newest first.", "runs -o json", of_runs, "runs show RUN", 60, false,
     MCP_READS, false},
    {"run_show", "One stored run: metrics, kernels, advice.", "runs -o json show", of_run_show,
     "advise RUN", 60, false, MCP_READS, false},
    {"import", "Keep results of nsys, ncu, llama-bench and nvbench as runs.", "import -o json",
     of_import, "advise RUN", 300, false, MCP_ADDS, false},
    {"report", "Write one HTML file about a run.", "report --json", of_report, "runs show RUN", 120,
     false, MCP_REPLACES, false},
    {"verify", "Check every kernel against its reference.", "verify --json", of_verify, "bench",
     900, true, MCP_ADDS, false},
    {"gemm_check", "Check grouped products of NVFP4 matrices on the public task's sizes.",
     "gemm check -q -o json", of_gemm_check, "gemm bench", 900, true, MCP_READS, false},
    {"gemm_bench", "Time grouped products of block-scaled matrices, beside cuBLAS; kept as a run.",
     "gemm bench -q -o json", of_gemm_bench, "runs show RUN", 900, true, MCP_ADDS, false},
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
    {"more", "What an answer left out.", NULL, of_more, NULL, 10, false, MCP_READS, false},
    {NULL, NULL, NULL, NULL, NULL, 0, false, MCP_READS, false},
};

/* ---- schemas ---- */

const struct command_spec *mcp_tool_spec(const struct mcp_tool *tool, mcp_find_fn find)
{
    if (!tool->command || !find) return NULL;
    char *name = strndup(tool->command, strcspn(tool->command, " "));
    const struct command_spec *spec = name ? find(name) : NULL;
    free(name);
    return spec;
}

const struct option *mcp_parameter_option(const struct mcp_parameter *parameter,
                                          const struct command_spec *spec)
{
    return parameter->option ? options_find(spec, parameter->option) : &parameter->word;
}

static bool is_whole(const struct option *o)
{
    return o->kind == OPTION_INT || o->kind == OPTION_INT_LIST;
}

static bool has_limits(const struct option *o)
{
    return o->min != 0 || o->max != 0;
}

static json_t *number_json(const struct option *o)
{
    bool whole = is_whole(o);
    json_t *schema = json_pack("{s:s}", "type", whole ? "integer" : "number");
    if (!has_limits(o)) return schema;
    json_object_set_new(schema, "minimum",
                        whole ? json_integer((json_int_t)o->min) : json_real(o->min));
    json_object_set_new(schema, "maximum",
                        whole ? json_integer((json_int_t)o->max) : json_real(o->max));
    return schema;
}

static json_t *text_json(const struct option *o)
{
    json_t *schema = json_pack("{s:s}", "type", "string"), *list = json_array();
    const char *choice;
    size_t length;
    for (size_t n = 0; (choice = option_choice(o, n, &length)); n++)
        json_array_append_new(list, json_stringn(choice, length));
    if (json_array_size(list)) json_object_set(schema, "enum", list);
    json_decref(list);
    return schema;
}

static json_t *parameter_json(const struct option *o)
{
    json_t *schema = NULL;
    switch (o->kind) {
    case OPTION_FLAG:
        schema = json_pack("{s:s}", "type", "boolean");
        break;
    case OPTION_INT:
    case OPTION_FLOAT:
    case OPTION_PERCENT:
        schema = number_json(o);
        break;
    case OPTION_STRING:
        schema = text_json(o);
        break;
    case OPTION_INT_LIST:
        schema = json_pack("{s:s, s:o}", "type", "array", "items", number_json(o));
        break;
    case OPTION_STRINGS:
        schema = json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string");
        break;
    case OPTION_GROUP:
        break;
    }
    size_t length;
    bool named = o->value && !option_choice(o, 0, &length); /* "N: the newest N" */
    json_object_set_new(schema, "description",
                        json_sprintf("%s%s%s", named ? o->value : "", named ? ": " : "", o->help));
    return schema;
}

/* Nobody knows what a command does, so a tool that runs any promises nothing. */
json_t *mcp_tool_json(const struct mcp_tool *tool, const struct command_spec *spec)
{
    json_t *properties = json_object(), *required = json_array();
    for (const struct mcp_parameter *p = tool->parameters; p->name; p++) {
        json_object_set_new(properties, p->name, parameter_json(mcp_parameter_option(p, spec)));
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

struct argument {
    const struct mcp_parameter *parameter;
    const struct option *option;
    const json_t *value;
};

/* As --name=value, so that a value beginning with - stays a value; a word as it is. */
static enum sol_status add_text(struct mcp_words *w, const struct argument *a, const char *value)
{
    char *text = NULL;
    if (!a->parameter->option) return add_word(w, value);
    if (asprintf(&text, "--%s=%s", a->option->name, value) < 0)
        return status_set(SOL_E_MEMORY, "no memory for a command");
    enum sol_status status = add_word(w, text);
    free(text);
    return status;
}

static enum sol_status wrong(const struct argument *a, const char *what)
{
    return status_set(SOL_E_ARGUMENT, "\"%s\" must be %s", a->parameter->name, what);
}

static enum sol_status number_text(const struct argument *a, const json_t *value, char text[64])
{
    const struct option *o = a->option;
    double number = json_number_value(value);
    bool whole = is_whole(o);
    if (!json_is_number(value) || (whole && !json_is_integer(value)))
        return wrong(a, whole ? "a whole number" : "a number");
    if (has_limits(o) && !(number >= o->min && number <= o->max))
        return status_set(SOL_E_ARGUMENT, "\"%s\" must be from %.15g to %.15g", a->parameter->name,
                          o->min, o->max);
    if (whole)
        snprintf(text, 64, "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, 64, "%.15g", number);
    return SOL_OK;
}

static enum sol_status check_text(const struct argument *a, const json_t *value)
{
    const char *text = json_string_value(value), *choice;
    size_t length;
    if (!text || !*text || strlen(text) != json_string_length(value))
        return wrong(a, "a text that is not empty");
    if (!option_choice(a->option, 0, &length)) return SOL_OK;
    for (size_t n = 0; (choice = option_choice(a->option, n, &length)); n++)
        if (strlen(text) == length && memcmp(text, choice, length) == 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "\"%s\" must be one of %s", a->parameter->name,
                      a->option->value);
}

static enum sol_status add_integers(struct mcp_words *w, const struct argument *a)
{
    char text[2048] = "", one[64];
    size_t n = json_array_size(a->value);
    if (n == 0 || n > OPTION_LIST_MAX) return wrong(a, "a list of 1 to 64 whole numbers");
    for (size_t i = 0; i < n; i++) {
        SOL_TRY(number_text(a, json_array_get(a->value, i), one));
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s%s", length ? "," : "", one);
    }
    return add_text(w, a, text);
}

static enum sol_status add_texts(struct mcp_words *w, const struct argument *a)
{
    if (json_array_size(a->value) == 0) return wrong(a, "a list of texts");
    for (size_t i = 0; i < json_array_size(a->value); i++) {
        SOL_TRY(check_text(a, json_array_get(a->value, i)));
        SOL_TRY(add_text(w, a, json_string_value(json_array_get(a->value, i))));
    }
    return SOL_OK;
}

static enum sol_status add_flag(struct mcp_words *w, const struct argument *a)
{
    char text[64];
    if (!json_is_boolean(a->value)) return wrong(a, "true or false");
    if (!json_is_true(a->value)) return SOL_OK;
    snprintf(text, sizeof text, "--%s", a->option->name);
    return add_word(w, text);
}

static enum sol_status add_value(struct mcp_words *w, const struct argument *a)
{
    char text[64];
    switch (a->option->kind) {
    case OPTION_FLAG:
        return add_flag(w, a);
    case OPTION_INT:
    case OPTION_FLOAT:
    case OPTION_PERCENT:
        SOL_TRY(number_text(a, a->value, text));
        return add_text(w, a, text);
    case OPTION_STRING:
        SOL_TRY(check_text(a, a->value));
        return add_text(w, a, json_string_value(a->value));
    case OPTION_INT_LIST:
        return add_integers(w, a);
    case OPTION_STRINGS:
        return add_texts(w, a);
    case OPTION_GROUP:
        break;
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
static enum sol_status make_words(const struct mcp_tool *tool, const struct command_spec *spec,
                                  const json_t *arguments, struct mcp_words *out)
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
            const struct argument a = {p, mcp_parameter_option(p, spec),
                                       json_object_get(arguments, p->name)};
            if (!a.value && p->required)
                return status_set(SOL_E_ARGUMENT, "\"%s\" is needed: %s", p->name, a.option->help);
            if (a.value && (p->option == NULL) == (words == 1)) SOL_TRY(add_value(out, &a));
        }
    }
    return SOL_OK;
}

enum sol_status mcp_tool_words(const struct mcp_tool *tool, const struct command_spec *spec,
                               const json_t *arguments, struct mcp_words *out)
{
    *out = (struct mcp_words){.count = 0};
    enum sol_status status = make_words(tool, spec, arguments, out);
    if (status != SOL_OK) mcp_words_free(out);
    return status;
}

void mcp_words_free(struct mcp_words *words)
{
    for (size_t i = 0; i < words->count; i++) free(words->words[i]);
    *words = (struct mcp_words){.count = 0};
}
