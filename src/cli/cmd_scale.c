/* sol scale: what a model would do on many GPUs, predicted from one. It is a command of its own,
 * since models that run and models that train are asked about alike, and no GPU is needed. */
#include <stdlib.h>

#include "base/status.h"
#include "cli/engine_options.h"
#include "cli/scale_private.h"

#define OPTION(kind, letter, name, value, help, field, min, max)                                   \
    OPTION_ENTRY(kind, letter, name, value, help, offsetof(struct scale_options, field), min, max)

static const struct option options[] = {
    OPTION(INT_LIST, 0, "gpus", "LIST", "numbers of GPUs (default 2,8,64,1024)", gpus, 1, 1 << 20),
    OPTION(GROUP, 0, "A model that runs", NULL, NULL, json, 0, 0),
    OPTION(STRING, 'm', "model", "MODEL",
           "GGUF file, folder, 'builtin', or a size without a file: synth:gpt-oss-120b", model, 0,
           0),
    OPTION(INT, 'n', "sequences", "N",
           "that generate together in a copy of the model (default 1, with --prompt none)",
           sequences, 1, 65536),
    OPTION(INT, 'p', "prompt", "N",
           "tokens of a prompt; with --sequences of a step that both share, as a server's do",
           prompt, 1, 1 << 24),
    OPTION(INT, 'd', "n-depth", "N", "tokens that each sequence has before (default 0)", depth, 0,
           1 << 24),
    OPTION(INT, 'b', "batch-size", "N", "of a prompt in a step (default 2048)", chunk, 1, 65536),
    OPTION(STRING, 0, "kv", "TYPE", "cache in f16 (default), bf16 or f32", kv, 0, 0),
    OPTION(GROUP, 0, "A model that trains", NULL, NULL, json, 0, 0),
    OPTION(INT, 0, "depth", "N", "sol train's dial: this model is trained", flags.depth, 1, 1024),
    OPTION(STRING, 0, "recipe", "2026-07|2026-01", "as for sol train", flags.recipe, 0, 0),
    OPTION(INT, 0, "max-seq-len", "N", "tokens of a sequence (default 2048)", flags.max_seq_len, 2,
           1 << 24),
    OPTION(STRING, 0, "window-pattern", "SL", "as for sol train", flags.window_pattern, 0, 0),
    OPTION(INT, 0, "device-batch-size", "N", "sequences of a micro-batch (default 32)",
           flags.device_batch_size, 1, 1 << 20),
    OPTION(INT, 0, "micro-batches", "N", "of the step that was measured (default 1)", micro_batches,
           1, 1 << 20),
    OPTION(INT, 0, "vocab-size", "N", "of the model (default 32768)", vocab, 2, 1 << 24),
    OPTION(INT, 0, "total-batch-size", "N",
           "tokens of an update, all GPUs together (default: each has as many as the one that was "
           "measured)",
           flags.total_batch_size, 1, 1LL << 40),
    OPTION(GROUP, 0, "What was measured on one GPU", NULL, NULL, json, 0, 0),
    OPTION(STRING, 0, "run", "RUN", "of the store (default: the newest with such a step)",
           given.run, 0, 0),
    OPTION(FLOAT, 0, "step-ms", "MS", "a step (a whole prompt), instead", given.step_ms, 1e-6, 1e9),
    OPTION(FLOAT, 0, "tokens-per-s", "T", "the same as a speed", given.tokens_per_s, 1e-6, 1e12),
    OPTION(FLOAT, 0, "row-ms", "MS",
           "a step of one sequence: what of it is not reading is what calls cost", given.row_ms,
           1e-6, 1e9),
    OPTION(FLOAT, 0, "update-ms", "MS", "of a step of training the optimizer's part",
           given.update_ms, 1e-6, 1e9),
    OPTION(STRINGS, 0, "op-us", "OP=US",
           "of a given step, the time of all calls of an op; may be repeated", given.op_us, 0, 0),
    OPTION(STRINGS, 0, "part-ms", "N=MS",
           "such a step (a whole prompt) of the part of one of N GPUs, alone on one, as sol bench "
           "--part-of N measures it: then that is not predicted; may be repeated",
           given.part_ms, 0, 0),
    OPTION(STRING, 0, "store", "FOLDER",
           "where runs are (default $SOL_STORE, or sol in "
           "$XDG_DATA_HOME)",
           given.store, 0, 0),
    OPTION(GROUP, 0, "The GPUs and their links", NULL, NULL, json, 0, 0),
    OPTION(STRING, 0, "device", "NAME", "as in sol device --known (default: that of the run)",
           device, 0, 0),
    OPTION(STRING, 0, "descriptions", "FILE", "of more devices, as for sol device", descriptions, 0,
           0),
    OPTION(FLOAT, 0, "memory-gb-s", "X", "what its memory gives, instead of what is published",
           memory_gb_s, 1e-3, 1e6),
    OPTION(FLOAT, 0, "tflops", "X", "what products in bf16 reach, likewise", tflops, 1e-6, 1e6),
    OPTION(STRING, 0, "links", "FILE",
           "what sol device --gpus N --json printed (default: measured between two H200)", links, 0,
           0),
    OPTION(INT, 0, "gpus-per-node", "N", "that have such links (default 8)", node, 1, 1024),
    OPTION(FLOAT, 0, "adapter-gb-s", "X",
           "of each GPU to other nodes (default 50: InfiniBand of 400 Gb/s)", adapter_gb_s, 1e-3,
           1e6),
    OPTION(FLOAT, 0, "adapter-us", "X", "a word's way to another node (default 5)", adapter_us,
           1e-3, 1e6),
    OPTION(GROUP, 0, "Output", NULL, NULL, json, 0, 0),
    OPTION(FLAG, 0, "all", NULL,
           "every way (else, of those that sol does not have, the best of each kind)", all, 0, 0),
    OPTION(STRING, 'o', "format", "FORMAT", "table (default), md, csv or json", format, 0, 0),
    JSON_OPTION(struct scale_options, json),
    WIDE_OPTION(struct scale_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol scale -m synth:gpt-oss-120b --device H200 --step-ms 1.956",
     "one sequence, which takes 1.956 ms a token on one GPU", NULL},
    {"sol scale -m synth:gpt-oss-120b -n 128 --tokens-per-s 5610 --row-ms 1.956 --device H200 "
     "--gpus 2,4,8",
     "128 sequences together", NULL},
    {"sol scale --depth 20 --tokens-per-s 162400 --device H200 --gpus 8,64,1024",
     "training, as many tokens for each GPU", NULL},
    {"sol scale --depth 20 --gpus 8,64 --links links.json",
     "from the newest run of sol train bench, and links of sol device --gpus 8 --json",
     "a run of a GPU, and its links"},
    {0},
};

static const struct command_spec spec = {
    .name = "scale",
    .summary = "predict a model on up to 1,024 GPUs from one: which way, what efficiency",
    .arguments = "",
    .notes =
        "A measured step of one GPU, the plans of N ranks (which ops a rank is left with, what "
        "ranks\n"
        "send each other) and links by size make the step of N. Nothing is fitted on what several\n"
        "GPUs did; how far that was off where it could be checked stands below the table.\n"
        "Ways that sol does not have are estimates, and say so. \"% of one each\" is of as many\n"
        "GPUs that each did what one does; \"most tokens\" and \"soonest\" are the best that sol\n"
        "does and that fit. The step comes from the store's newest run of sol bench or sol train\n"
        "bench that has it (--ops makes it more exact), or is given.",
    .examples = examples,
    .options = options,
};

static enum sol_status show(struct scale *s)
{
    enum table_format format;
    bool json;
    const struct scale_options *o = s->o;
    const bool trains = o->flags.depth > 0;
    SOL_TRY(cli_table_format(o->format, &format, &json));
    if (trains == (o->model != NULL))
        return status_set(SOL_E_ARGUMENT, "which model? -m MODEL for one that runs, or --depth N "
                                          "for one that trains");
    if (o->given.step_ms > 0 && o->given.tokens_per_s > 0)
        return status_set(SOL_E_ARGUMENT, "--step-ms or --tokens-per-s: one of the two");
    SOL_TRY(scale_open_links(s));
    SOL_TRY(trains ? scale_train_model(s) : scale_run_model(s));
    if (json) return json_print(scale_report_json(&s->report));
    s->report.all = o->all;
    return scale_report_print(&s->report, format);
}

static int run(int argc, char **argv)
{
    struct scale_options o = {.format = "table",
                              .kv = "f16",
                              .chunk = ENGINE_BATCH_MANY,
                              .vocab = 32768,
                              .micro_batches = 1,
                              .node = 8,
                              .adapter_gb_s = 50,
                              .adapter_us = 5,
                              .gpus = {{2, 8, 64, 1024}, 4}};
    int exit_status;
    train_flags_init(&o.flags);
    o.flags.depth = 0;
    if (!parse_options_only(&spec, argc, argv, &o, &exit_status)) return exit_status;
    struct scale *s = calloc(1, sizeof *s);
    if (!s) return cli_fail(status_set(SOL_E_MEMORY, "no memory for predictions"));
    s->o = &o;
    const enum sol_status status = show(s);
    json_decref(s->report.accounts);
    gpu_close(s->gpu);
    free(s);
    return cli_fail(status);
}

const struct command cmd_scale = {&spec, run, false};
