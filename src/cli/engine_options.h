/* What the commands that run a model share: options for model, engine and sampler, and how their
 * settings are reported. A command embeds the structs in its own and puts the fragments into its
 * table:
 *
 *     struct my_options {
 *         struct engine_options engine;
 *         int64_t n;
 *     };
 *     static const struct option options[] = {
 *         ENGINE_OPTIONS(struct my_options, engine),
 *         {OPTION_INT, 'n', "predict", "N", "...", offsetof(struct my_options, n), 0, 1e9},
 *         {0},
 *     };
 *
 * Letters taken by the fragments: m t (engine), c b (size). */
#ifndef CLI_ENGINE_OPTIONS_H
#define CLI_ENGINE_OPTIONS_H

#include <stddef.h>

#include <jansson.h>

#include "base/options.h"
#include "bench/ceiling.h"
#include "check/backend.h"
#include "generate/speculation.h"
#include "infer/engine.h"
#include "infer/sampler.h"
#include "model/shard.h"

/* ---- model and engine ---- */

enum { ENGINE_PARTS_MAX = 64 }; /* GPUs of all copies, those that share GPUs apart */

struct engine_options {
    const char *model; /* NULL: the built-in one */
    int64_t threads;   /* 0: all cores */
    const char *kv;    /* dtype of the cache, by name */
    const char *rope_rounding;
    const char *numerics; /* NULL: NUMERICS_USUAL */
    bool exact, reference;
    bool no_tuning;
    struct tuning tuning; /* read by engine_options_params; what its chooser looks into */
    struct string_list force, slow;
    const char *backend; /* NULL: the CPU */
    const char *kernel_source;
    struct gpu *gpu;        /* opened by engine_options_params */
    int64_t context, batch; /* 0: the command decides (context), 512 or 2048 (batch) */
    const char *load;       /* NULL: auto */
    bool host_weights;      /* the command computes on the CPU too */
    int64_t gpus;           /* of all copies; 0: one for each */
    bool expert_parallel;   /* whole experts for each of a copy's GPUs */
    bool pipeline_parallel; /* whole layers for each of the GPUs */
    int64_t part_of;        /* ranks, of which the first's part runs alone; 0: whole */
    int64_t copies;         /* of the model; 0: one. The GPUs of each share it; in a
                             * pipeline all copies have the same GPUs and weights */
    struct gpu
        *others[ENGINE_PARTS_MAX];       /* opened by engine_options_params: [gpus], first `gpu`;
                                          * of a pipeline's further copies by engine_options_copy */
    struct team *teams[SHARD_RANKS_MAX]; /* [copies], made by engine_options_copy */
};

/* `type` is the command's struct, `field` its struct engine_options. */
#define ENGINE_OPTIONS(type, field)                                                                \
    OPTION_ENTRY(GROUP, 0, "Model and engine", NULL, NULL, 0, 0, 0),                               \
        OPTION_ENTRY(                                                                              \
            STRING, 'm', "model", "MODEL",                                                         \
            "GGUF file, folder of safetensors, 'builtin' (default), or random weights of full "    \
            "size: synth:gpt-oss-20b, synth:gpt-oss-120b, synth:tiny, synth:gpt-d20 and others",   \
            offsetof(type, field.model), 0, 0),                                                    \
        OPTION_ENTRY(INT, 't', "threads", "N", "threads to compute with (default: every core)",    \
                     offsetof(type, field.threads), 0, 1024),                                      \
        OPTION_ENTRY(STRING, 0, "kv", "TYPE", "key/value cache in f16 (default), bf16 or f32",     \
                     offsetof(type, field.kv), 0, 0),                                              \
        OPTION_ENTRY(FLAG, 0, "exact", NULL,                                                       \
                     "float32 activations; weights are used as stored anyway",                     \
                     offsetof(type, field.exact), 0, 0),                                           \
        OPTION_ENTRY(                                                                              \
            STRING, 0, "numerics", "NAME",                                                         \
            "how far activations may be rounded on their way into products: exact, bf16, "         \
            "i8 (default: int8 with a scale every 32 values), i8_row (with one a row: "            \
            "experts of long prompts on Hopper, a quarter faster)",                                \
            offsetof(type, field.numerics), 0, 0),                                                 \
        OPTION_ENTRY(FLAG, 0, "reference", NULL, "every op by its plain C reference (slow)",       \
                     offsetof(type, field.reference), 0, 0),                                       \
        OPTION_ENTRY(STRINGS, 0, "force", "OP=VARIANT",                                            \
                     "use this variant where it can run (see sol kernels); may be repeated",       \
                     offsetof(type, field.force), 0, 0),                                           \
        OPTION_ENTRY(FLAG, 0, "no-tuning", NULL,                                                   \
                     "choose kernels by the usual rules, whatever sol tune has found",             \
                     offsetof(type, field.no_tuning), 0, 0),                                       \
        OPTION_ENTRY(STRING, 0, "rope-rounding", "ggml",                                           \
                     "round YaRN's bounds as ggml does, to compare with llama.cpp",                \
                     offsetof(type, field.rope_rounding), 0, 0),                                   \
        OPTION_ENTRY(STRINGS, 0, "slow", "OP=PERCENT",                                             \
                     "for testing: make every call of OP last that much longer, on the CPU",       \
                     offsetof(type, field.slow), 0, 0)

/* For commands that open their model with engine_options_open. */
#define ENGINE_LOAD_OPTION(type, field)                                                            \
    OPTION_ENTRY(STRING, 0, "load", "HOW",                                                         \
                 "map the model's file, read it into memory, or (auto, the default) map what is "  \
                 "cached and read the rest",                                                       \
                 offsetof(type, field.load), 0, 0)

/* For commands that call backend_open; `name` and `source` are strings of the command's struct. */
#define BACKEND_OPTIONS(type, name, source)                                                        \
    OPTION_ENTRY(STRING, 0, "backend", "NAME", BACKEND_HELP, offsetof(type, name), 0, 0),          \
        OPTION_ENTRY(STRING, 0, "kernel-src", "DIR", KERNEL_SOURCE_HELP, offsetof(type, source),   \
                     0, 0)

/* For commands that end with engine_options_close. */
#define ENGINE_BACKEND_OPTION(type, field) BACKEND_OPTIONS(type, field.backend, field.kernel_source)

/* For commands that call engine_options_team. */
#define ENGINE_GPUS_OPTION(type, field)                                                            \
    OPTION_ENTRY(                                                                                  \
        INT, 0, "gpus", "N",                                                                       \
        "so many GPUs of this machine share the model, from the one that --backend names "         \
        "on; with the CPU so many parts of its cores (default 1)",                                 \
        offsetof(type, field.gpus), 1, SHARD_RANKS_MAX),                                           \
        OPTION_ENTRY(FLAG, 0, "expert-parallel", NULL,                                             \
                     "each of the --gpus has some experts, whole, instead of a part of each: "     \
                     "for many texts at a time",                                                   \
                     offsetof(type, field.expert_parallel), 0, 0),                                 \
        OPTION_ENTRY(FLAG, 0, "pipeline-parallel", NULL,                                           \
                     "each of the --gpus has some layers, whole, instead of a part of each: "      \
                     "where GPUs do not reach each other, for long prompts and many texts",        \
                     offsetof(type, field.pipeline_parallel), 0, 0)

/* Tokens of a step, where nobody says: of a GPU, of some that share the model that way, or of the
 * CPU. */
int64_t usual_batch(bool on_gpu, int64_t gpus, enum shard_way way);

/* How --gpus share a model; SOL_E_ARGUMENT where one would be alone, or for both flags. */
enum sol_status sharing_way(int64_t gpus, bool expert_parallel, bool pipeline_parallel,
                            enum shard_way *out);

/* For commands that call engine_options_copy for each. */
#define ENGINE_COPIES_OPTION(type, field)                                                          \
    OPTION_ENTRY(INT, 0, "copies", "K",                                                            \
                 "so many copies of the model, each on its own of the --gpus (default one each), " \
                 "or its share of the CPU's cores: data parallel (default 1); with "               \
                 "--pipeline-parallel so many batches on their way through the same GPUs "         \
                 "(default as many as GPUs)",                                                      \
                 offsetof(type, field.copies), 1, SHARD_RANKS_MAX)

/* For commands that search for the fastest kernels: a double `budget`, and bools `dry_run` and
 * `again`, of the command's struct. */
#define TUNE_OPTIONS(type)                                                                         \
    OPTION_ENTRY(FLOAT, 0, "budget", "SECONDS",                                                    \
                 "stop measuring then; what is not reached stays as it was (default 120)",         \
                 offsetof(type, budget), 0.001, 1e6),                                              \
        OPTION_ENTRY(FLAG, 0, "dry-run", NULL, "list what would be timed, and time nothing",       \
                     offsetof(type, dry_run), 0, 0),                                               \
        OPTION_ENTRY(FLAG, 0, "again", NULL, "time also what the record has already",              \
                     offsetof(type, again), 0, 0)

/* For commands that measure, and keep what they measured: strings `store` and `label` and a bool
 * `no_store` of the command's struct. */
#define STORE_OPTIONS(type)                                                                        \
    OPTION_ENTRY(                                                                                  \
        STRING, 0, "store", "FOLDER",                                                              \
        "keep the run there (default $SOL_STORE, or sol in $XDG_DATA_HOME); see sol runs",         \
        offsetof(type, store), 0, 0),                                                              \
        OPTION_ENTRY(FLAG, 0, "no-store", NULL, "do not keep the run", offsetof(type, no_store),   \
                     0, 0),                                                                        \
        OPTION_ENTRY(STRING, 0, "label", "NAME", "a name to find the run by",                      \
                     offsetof(type, label), 0, 0)

/* For commands that write a text: an int64_t `field` of the command's struct. */
#define DRAFT_OPTION(type, field)                                                                  \
    OPTION_ENTRY(                                                                                  \
        INT, 0, "draft", "N",                                                                      \
        "guess up to N tokens where the text repeats itself, and check them in one step: "         \
        "faster there (default 0: off)",                                                           \
        offsetof(type, field), 0, DRAFT_MOST)

/* How long and how wide, for commands that have no lists for it. */
#define ENGINE_SIZE_OPTIONS(type, field, context_help)                                             \
    OPTION_ENTRY(INT, 'c', "context", "N", context_help, offsetof(type, field.context), 1,         \
                 1 << 24),                                                                         \
        OPTION_ENTRY(                                                                              \
            INT, 'b', "batch", "N",                                                                \
            "tokens that are processed in one step (default 512, on a GPU 4096, on several 2048, " \
            "with --pipeline-parallel 8192)",                                                      \
            offsetof(type, field.batch), 1, 65536)

/* cli_parse for a command that takes options and nothing else: other words are wrong usage. */
bool parse_options_only(const struct command_spec *spec, int argc, char **argv, void *into,
                        int *exit_status);

void engine_options_init(struct engine_options *options);

/* Fills every field of `params` that an option governs; the rest as engine_params_init. A context
 * of 0 leaves its default. Opens the GPU that --backend names. Errors: unknown cache type, op or
 * variant, no such GPU. Reads the device's tuning record; when
 * one is there and useless, a warning says so. */
enum sol_status engine_options_params(struct engine_options *options, struct engine_params *params);
/* With --gpus: puts parts of the model on them, for engines up to the size of `params`, which then
 * have the team. Behind engine_options_open; else nothing happens. */
enum sol_status engine_options_team(struct engine_options *options, const struct model *model,
                                    struct engine_params *params);
/* The same for a copy of the model, from 0 on, whose GPU or share of the cores `params` then has.
 */
enum sol_status engine_options_copy(struct engine_options *options, const struct model *model,
                                    int copy, struct engine_params *params);
/* What the GPU of --gpus that has most gets of the model (with --part-of the first), with shapes
 * and types only, for those who look at sizes before; given back with shard_destroy. Without --gpus
 * NULL. */
enum sol_status engine_options_part(const struct engine_options *options, const struct model *model,
                                    struct model **out);
/* Gives the GPUs back; after the engine, before the model. */
void engine_options_close(struct engine_options *options);

/* Opens the model as --load says; for a GPU without its weights, which engine_create or
 * model_upload will read. Refuses, with the figures, when weights, cache and buffers of a run with
 * these parameters do not fit into the memory that is free; with --backend auto a GPU without room
 * is given up instead, and options and params are the CPU's. */
enum sol_status engine_options_open(struct engine_options *options, struct engine_params *params,
                                    struct model **out);

/* Measures what bounds a model of `working_set` bytes of weights there: with as many threads as the
 * engine would have, or on its GPU. Nothing, and zeroes, where BENCH_ENV_NO_LIMITS is set. */
enum sol_status engine_options_limits(const struct engine_params *params, size_t working_set,
                                      struct ceiling *out);

/* Settings as they took effect: {"threads", "context", "batch", "kv", "numerics", "forced", ...}.
 */
json_t *engine_settings_json(const struct engine_params *params);

/* ---- sampling ---- */

/* Below 0: not given. */
struct sampling_options {
    double temperature, top_p, min_p;
    int64_t top_k, seed;
    bool greedy;
};

#define SAMPLING_OPTIONS(type, field)                                                              \
    OPTION_ENTRY(GROUP, 0, "Sampling", NULL, NULL, 0, 0, 0),                                       \
        OPTION_ENTRY(                                                                              \
            FLOAT, 0, "temperature", "T",                                                          \
            "default 1, in a chat what the model's file says; 0 takes the likeliest token",        \
            offsetof(type, field.temperature), 0, 1000),                                           \
        OPTION_ENTRY(INT, 0, "top-k", "K", "only the K likeliest tokens (default 0: all)",         \
                     offsetof(type, field.top_k), 0, 1 << 30),                                     \
        OPTION_ENTRY(FLOAT, 0, "top-p", "P",                                                       \
                     "only the likeliest that reach P together (default 1: all)",                  \
                     offsetof(type, field.top_p), 0, 1),                                           \
        OPTION_ENTRY(FLOAT, 0, "min-p", "P",                                                       \
                     "only tokens at least P times as likely as the likeliest (default 0: all)",   \
                     offsetof(type, field.min_p), 0, 1),                                           \
        OPTION_ENTRY(INT, 0, "seed", "N",                                                          \
                     "of the random numbers (default 0: the same text each time)",                 \
                     offsetof(type, field.seed), 0, 9e18),                                         \
        OPTION_ENTRY(FLAG, 0, "greedy", NULL, "the likeliest token each time: --temperature 0",    \
                     offsetof(type, field.greedy), 0, 0)

void sampling_options_init(struct sampling_options *options);
/* What was given, over what `params` has. */
void sampling_options_params(const struct sampling_options *options, struct sampler_params *params);
json_t *sampling_json(const struct sampler_params *params);
/* What became of guesses, up to `most` at a time. */
json_t *draft_json(int64_t most, const struct speculation_counts *counts);

/* ---- reports ---- */

/* Which kernels a plan runs: [{"op", "variant", "numerics", "calls"}], in order of first use. */
json_t *plan_kernels_json(const struct plan *plan);

/* {"name", "parameters", "weight_bytes", "layers", ...} */
json_t *model_json(const struct model *model);

/* Prints one object, indented, and releases it. Takes NULL (SOL_E_MEMORY). */
enum sol_status json_print(json_t *object);

/* A byte count for people, "11.3 GiB". Returns `text`. */
char *format_bytes(size_t bytes, char text[16]);

#endif
