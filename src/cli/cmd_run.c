/* sol run: continues a prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_file.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/draft_options.h"
#include "cli/engine_options.h"
#include "cli/input.h"
#include "generate/generate.h"

struct run_options {
    struct engine_options engine;
    struct sampling_options sampling;
    struct input_options input;
    int64_t predict;
    struct draft_options draft;
    const char *schema; /* file; NULL: none */
    bool json_object;
    bool json, quiet;
};

static const struct option options[] = {
    OPTION_ENTRY(GROUP, 0, "Prompt and output", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 'p', "prompt", "TEXT", "the text to continue",
                 offsetof(struct run_options, input.text), 0, 0),
    INPUT_OPTIONS(struct run_options, input),
    OPTION_ENTRY(INT, 'n', "predict", "N", "tokens to generate at most (default 128)",
                 offsetof(struct run_options, predict), 0, 1 << 24),
    DRAFT_OPTIONS(struct run_options, draft),
    OPTION_ENTRY(STRING, 0, "json-schema", "FILE",
                 "write JSON that this JSON Schema accepts, and nothing else",
                 offsetof(struct run_options, schema), 0, 0),
    OPTION_ENTRY(FLAG, 0, "json-object", NULL, "write a JSON object, and nothing else",
                 offsetof(struct run_options, json_object), 0, 0),
    OPTION_ENTRY(FLAG, 0, "json", NULL,
                 "print one JSON object: text, ids, timings, kernels, settings",
                 offsetof(struct run_options, json), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no statistics and no progress on stderr",
                 offsetof(struct run_options, quiet), 0, 0),
    SAMPLING_OPTIONS(struct run_options, sampling),
    ENGINE_OPTIONS(struct run_options, engine),
    ENGINE_LOAD_OPTION(struct run_options, engine),
    ENGINE_BACKEND_OPTION(struct run_options, engine),
    ENGINE_GPUS_OPTION(struct run_options, engine),
    ENGINE_SIZE_OPTIONS(struct run_options, engine,
                        "positions to make room for (default: prompt and -n, 512 at least)"),
    {0},
};

static const struct command_example examples[] = {
    {"sol run -p 'Once upon a time'", "the built-in model, which comes with sol", NULL},
    {"echo 'Once upon a time' | sol run -m gpt-oss-20b.gguf", "a prompt from another program",
     NULL},
    {"sol run -m gpt-oss-20b.gguf -f prompt.txt -n 256 --greedy --json",
     "a file's text; the answer, times and kernels as JSON", NULL},
    {"sol run -p 'A person:' --json-schema person.schema.json -n 400",
     "JSON that a schema accepts (docs/STRUCTURED.md)", NULL},
    {"sol run -m synth:tiny --random-tokens 100 -n 20",
     "without any file: random weights, random tokens", NULL},
    {"sol run -m gpt-oss-20b.gguf --backend cuda -p 'Once upon a time'", "on a GPU", "a GPU"},
    {"sol run -m gpt-oss-120b.gguf --backend cuda --gpus 2 -p 'Once upon a time'",
     "on two, each with half of every layer", "two GPUs"},
    {0},
};

static const struct command_spec spec = {
    .name = "run",
    .summary = "continue a prompt",
    .arguments = "",
    .notes = "Text goes to stdout, statistics to stderr. Generation ends at a stop token of the "
             "model, after -n tokens,\n"
             "when the context is full, when the JSON that was asked for is whole, or with Ctrl-C "
             "(exit status 130).\n"
             "A synthetic model has no vocabulary: its tokens are given and printed as ids.\n"
             "\n"
             "  echo 'Once upon a time' | sol run -m gpt-oss-20b.gguf",
    .examples = examples,
    .options = options,
};

struct run {
    struct run_options options;
    struct model *model;
    struct engine_params params;
    struct engine *engine;
    struct sampler_params sampling;
    struct sampler *sampler;
    struct token_list prompt;
    struct drafting drafting;
    struct generation generation;
    struct grammar *grammar; /* what the text must be; NULL: anything */
    struct token_trie *trie;
    struct mask_cache *masks;
    int32_t *ids; /* generated, [predict] */
    char *text;   /* generated, for --json */
    size_t text_length, text_capacity;
    struct utf8_stream stream;
    char last_char; /* written to stdout, for the closing newline */
    bool interrupted;
    uint64_t started_ns;
    double load_s, prefill_s, first_token_s, decode_s;
    json_t *prefill_kernels;
};

static double seconds_since(uint64_t start_ns)
{
    return (double)(clock_ns() - start_ns) / 1e9;
}

/* ---- setting up ---- */

static int64_t default_context(const struct run *run)
{
    int64_t wanted = (int64_t)run->prompt.count + run->options.predict;
    wanted = (wanted + 255) / 256 * 256;
    if (wanted < 512) wanted = 512;
    return wanted < run->model->config.context ? wanted : run->model->config.context;
}

/* The schema is read first: a fault in it should not wait for the model. */
static enum sol_status read_schema(struct run *run)
{
    json_t *schema;
    const char *path = run->options.schema;
    if (path && run->options.json_object)
        return status_set(SOL_E_ARGUMENT, "--json-schema and --json-object exclude each other");
    if (run->options.json_object) return grammar_any_object(GRAMMAR_SPACE_ONE, &run->grammar);
    if (!path) return SOL_OK;
    SOL_TRY(json_file_read(path, &schema));
    enum sol_status status = grammar_from_schema(schema, GRAMMAR_SPACE_ONE, &run->grammar);
    json_decref(schema);
    return status == SOL_OK ? status : status_prefix(status, "'%s'", path);
}

static enum sol_status set_up_constraint(struct run *run)
{
    if (!run->grammar) return SOL_OK;
    SOL_TRY(constraint_vocabulary(run->model, &run->trie));
    SOL_TRY(mask_cache_create(run->trie, &run->masks));
    return constraint_create(run->model, run->grammar, run->trie, run->masks,
                             &run->generation.constraint);
}

static enum sol_status set_up_draft(struct run *run)
{
    struct drafting *d = &run->drafting;
    SOL_TRY(drafting_start(&run->options.draft, run->engine, d));
    if (d->draft) draft_add(d->draft, run->prompt.ids, (int64_t)run->prompt.count);
    return SOL_OK;
}

/* With --special the prompt speaks in control tokens, so the answer may too. */
static enum sol_status set_up_generation(struct run *run)
{
    sampler_params_init(&run->sampling);
    sampling_options_params(&run->options.sampling, &run->sampling);
    SOL_TRY(
        generate_sampler(run->model, &run->sampling, run->options.input.special, &run->sampler));
    SOL_TRY(set_up_draft(run));
    run->generation = (struct generation){.engine = run->engine,
                                          .sampler = run->sampler,
                                          .limit = run->options.predict,
                                          .context = run->params.context,
                                          .draft = run->drafting.draft};
    return set_up_constraint(run);
}

static enum sol_status set_up(struct run *run)
{
    uint64_t start = clock_ns();
    SOL_TRY(read_schema(run));
    SOL_TRY(engine_options_params(&run->options.engine, &run->params));
    speculation_engine_params(&run->params, run->options.draft.most);
    SOL_TRY(engine_options_open(&run->options.engine, &run->params, &run->model));
    SOL_TRY(input_tokens(&run->options.input, "-p, -f", run->model, &run->prompt));
    if (!run->options.engine.context) run->params.context = default_context(run);
    if ((int64_t)run->prompt.count > run->params.context)
        return status_set(SOL_E_ARGUMENT, "the prompt has %zu tokens, the context %lld; %s",
                          run->prompt.count, (long long)run->params.context,
                          run->params.context < run->model->config.context
                              ? "make the context longer with -c"
                              : "that is as long as the model was made for");
    SOL_TRY(engine_options_team(&run->options.engine, run->model, &run->params));
    SOL_TRY(drafting_open(&run->options.draft, run->model, &run->params, &run->drafting));
    SOL_TRY(engine_create(run->model, &run->params, &run->engine));
    SOL_TRY(set_up_generation(run));
    run->ids = calloc((size_t)run->options.predict + 1, sizeof *run->ids);
    if (!run->ids) return status_set(SOL_E_MEMORY, "no memory for the generated tokens");
    run->load_s = seconds_since(start);
    return SOL_OK;
}

static void tear_down(struct run *run)
{
    json_decref(run->prefill_kernels);
    free(run->text);
    free(run->ids);
    token_list_free(&run->prompt);
    constraint_destroy(run->generation.constraint);
    mask_cache_destroy(run->masks);
    token_trie_destroy(run->trie);
    grammar_destroy(run->grammar);
    drafting_close(&run->drafting);
    sampler_destroy(run->sampler);
    engine_destroy(run->engine);
    engine_options_close(&run->options.engine);
    model_close(run->model);
}

/* ---- output ---- */

static enum sol_status emit(struct run *run, const char *data, size_t length)
{
    if (length == 0) return SOL_OK;
    if (!run->options.json) {
        run->last_char = data[length - 1];
        if (fwrite(data, 1, length, stdout) != length || fflush(stdout) != 0)
            return status_set(SOL_E_IO, "cannot write the text to standard output");
        return SOL_OK;
    }
    if (run->text_length + length > run->text_capacity) {
        size_t capacity = 2 * (run->text_length + length) + 256;
        char *grown = realloc(run->text, capacity);
        if (!grown) return status_set(SOL_E_MEMORY, "no memory for the generated text");
        run->text = grown;
        run->text_capacity = capacity;
    }
    memcpy(run->text + run->text_length, data, length);
    run->text_length += length;
    return SOL_OK;
}

static enum sol_status emit_token(struct run *run, int32_t id)
{
    char out[320];
    if (!run->model->tokenizer) {
        int length = snprintf(out, sizeof out, "%s%d", run->generation.count > 1 ? " " : "", id);
        return emit(run, out, (size_t)length);
    }
    struct token_bytes bytes = tokenizer_bytes(run->model->tokenizer, id);
    /* In pieces, so that the longest token fits too. */
    for (size_t at = 0; at < bytes.length; at += 256) {
        size_t piece = bytes.length - at < 256 ? bytes.length - at : 256;
        SOL_TRY(emit(run, out, utf8_stream_push(&run->stream, bytes.data + at, piece, out)));
    }
    return SOL_OK;
}

static enum sol_status emit_end(struct run *run)
{
    char out[16];
    SOL_TRY(emit(run, out, utf8_stream_flush(&run->stream, out)));
    if (!run->options.json && run->generation.count && run->last_char != '\n')
        return emit(run, "\n", 1);
    return SOL_OK;
}

/* ---- generating ---- */

static enum sol_status generate(struct run *run, const float *logits)
{
    struct generation *g = &run->generation;
    SOL_TRY(generate_first(g, logits));
    for (int64_t shown = 0; shown < g->count;) {
        run->ids[shown++] = g->token;
        if (shown == 1) run->first_token_s = seconds_since(run->started_ns);
        SOL_TRY(emit_token(run, g->token));
        if (!g->end) SOL_TRY(generate_next(g));
    }
    return SOL_OK;
}

static enum sol_status work(struct run *run)
{
    const float *logits = NULL;
    run->started_ns = clock_ns();
    SOL_TRY(generate_prefill(run->engine, 0, run->prompt.ids, (int64_t)run->prompt.count,
                             run->params.max_batch, &logits));
    uint64_t prefilled = clock_ns();
    run->prefill_s = seconds_since(run->started_ns);
    run->prefill_kernels = plan_kernels_json(engine_last_plan(run->engine));
    enum sol_status status = generate(run, logits);
    run->decode_s = seconds_since(prefilled);
    return status;
}

/* ---- reports ---- */

/* The first token comes with the prompt; each later one costs a step. */
static double decode_rate(const struct run *run)
{
    int64_t later = run->generation.count - 1;
    return later > 0 && run->decode_s > 0 ? (double)later / run->decode_s : 0;
}

static double prefill_rate(const struct run *run)
{
    return run->prefill_s > 0 ? (double)run->prompt.count / run->prefill_s : 0;
}

static const char *stop_name(const struct run *run)
{
    static const char *const names[] = {[GENERATE_GOES_ON] = "none",
                                        [GENERATE_STOP_TOKEN] = "stop_token",
                                        [GENERATE_LENGTH] = "length",
                                        [GENERATE_CONTEXT] = "context",
                                        [GENERATE_WHOLE] = "whole"};
    return run->interrupted ? "interrupted" : names[run->generation.end];
}

static void describe_stop(const struct run *run, char text[80])
{
    enum generate_end end = run->generation.end;
    if (run->interrupted) {
        snprintf(text, 80, "interrupted");
    } else if (end == GENERATE_STOP_TOKEN) {
        struct token_bytes name = tokenizer_bytes(run->model->tokenizer, run->generation.token);
        snprintf(text, 80, "the model stopped with %.*s", (int)name.length, name.data);
    } else if (end == GENERATE_WHOLE) {
        snprintf(text, 80, "the JSON is whole");
    } else if (end == GENERATE_CONTEXT) {
        snprintf(text, 80, "stopped: the context of %lld is full (-c)",
                 (long long)run->params.context);
    } else {
        snprintf(text, 80, "stopped after -n %lld", (long long)run->options.predict);
    }
}

static void print_stats(const struct run *run)
{
    char why[80], weights[16], memory[16], peak[16];
    describe_stop(run, why);
    fprintf(stderr, "prompt     %6zu tokens  %9.2f t/s  %.3f s to the first token\n",
            run->prompt.count, prefill_rate(run), run->first_token_s);
    fprintf(stderr, "generated  %6lld tokens  %9.2f t/s  %s\n", (long long)run->generation.count,
            decode_rate(run), why);
    const struct speculation_counts *counts = &run->generation.speculation.counts;
    if (run->drafting.draft)
        fprintf(stderr, "guessed    %6lld tokens, %lld of them right; %lld steps\n",
                (long long)counts->guessed, (long long)counts->accepted, (long long)counts->steps);
    fprintf(stderr, "memory     %s of weights, %s beyond them, peak resident %s\n",
            format_bytes(run->model->weight_bytes, weights),
            format_bytes(engine_memory(run->engine), memory),
            format_bytes(memory_peak_rss(), peak));
    if (run->options.engine.gpu)
        fprintf(stderr, "           at most %s of %s\n",
                format_bytes(gpu_memory_peak(run->options.engine.gpu), peak),
                gpu_info(run->options.engine.gpu)->name);
}

static json_t *timings_json(const struct run *run)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "load_s", run->load_s, "prefill_s",
                     run->prefill_s, "first_token_s", run->first_token_s, "decode_s", run->decode_s,
                     "prefill_tokens_per_s", prefill_rate(run), "decode_tokens_per_s",
                     decode_rate(run));
}

static json_t *run_json(const struct run *run)
{
    const struct generation *g = &run->generation;
    bool tokens_only = !run->model->tokenizer;
    json_t *kernels = json_pack("{s:O?, s:o}", "prefill", run->prefill_kernels, "last_step",
                                plan_kernels_json(engine_last_plan(run->engine)));
    json_t *draft =
        run->drafting.draft ? draft_json(run->options.draft.most, &g->speculation.counts) : NULL;
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:{s:I, s:I, s:I}, s:o, s:o, s:o, s:o*}", "text",
        tokens_only ? json_null() : json_text(run->text, run->text_length), "stop", stop_name(run),
        "stop_token", g->end == GENERATE_STOP_TOKEN ? json_integer(g->token) : json_null(), "ids",
        json_ids(run->ids, (size_t)g->count), "prompt_ids",
        json_ids(run->prompt.ids, run->prompt.count), "timings", timings_json(run), "model",
        model_json(run->model), "memory", "weights", (json_int_t)run->model->weight_bytes, "engine",
        (json_int_t)engine_memory(run->engine), "peak_resident", (json_int_t)memory_peak_rss(),
        "sampling", sampling_json(&run->sampling), "settings", engine_settings_json(&run->params),
        "kernels", kernels, "draft", draft);
}

/* JSON that was cut is no JSON, so those who read it are told, also with --quiet. */
static void warn_of_cut(const struct run *run)
{
    const struct generation *g = &run->generation;
    if (!g->constraint || matcher_accepts(g->constraint->matcher)) return;
    LOG_WARN("the JSON is cut, and not whole: %s; more tokens: %s",
             run->interrupted             ? "interrupted"
             : g->end == GENERATE_CONTEXT ? "the context is full"
                                          : "as many tokens as -n allows",
             g->end == GENERATE_CONTEXT ? "-c" : "-n");
}

/* What came before an interruption is a result too. After another error the text that is out ends
 * with its line, and nothing follows that was not computed. */
static enum sol_status report(struct run *run, enum sol_status status)
{
    int64_t count = run->generation.count;
    run->interrupted = status == SOL_E_INTERRUPTED;
    if (status != SOL_OK && status != SOL_E_INTERRUPTED) {
        bool open = !run->options.json && count && run->last_char != '\n';
        if (open && fputc('\n', stdout) != EOF) fflush(stdout);
        return count ? status_prefix(status, "after %lld tokens", (long long)count) : status;
    }
    SOL_TRY(emit_end(run));
    warn_of_cut(run);
    if (!run->options.quiet) print_stats(run);
    if (run->options.json) SOL_TRY(json_print(run_json(run)));
    return status;
}

static int run_command(int argc, char **argv)
{
    struct run run = {.options.predict = 128};
    engine_options_init(&run.options.engine);
    sampling_options_init(&run.options.sampling);
    int exit_status;
    if (!parse_options_only(&spec, argc, argv, &run.options, &exit_status)) return exit_status;
    progress_quiet(run.options.quiet);
    enum sol_status status = set_up(&run);
    if (status == SOL_OK) status = report(&run, work(&run));
    tear_down(&run);
    return cli_fail(status);
}

const struct command cmd_run = {&spec, run_command, true};
