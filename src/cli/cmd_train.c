/* sol train: a GPT trained from a text, its speed measured, and a run that somebody else defined
 * done again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "bench/gpu_sensors.h"
#include "check/backend.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/train_options.h"
#include "cli/train_report.h"
#include "cli/train_tuning.h"
#include "ops/ops.h"
#include "store/store_json.h"
#include "train/replay.h"

static const struct option options[] = {
    OPTION_ENTRY(GROUP, 0, "Data", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 'd', "data", "PATH",
                 "a text, a .jsonl or .bin file, or a folder of them (docs/TRAIN.md)",
                 offsetof(struct train_options, data), 0, 0),
    OPTION_ENTRY(STRING, 0, "val", "PATH",
                 "what the model is evaluated on (default: a folder's last file, or the last part "
                 "of a file)",
                 offsetof(struct train_options, validation), 0, 0),
    OPTION_ENTRY(PERCENT, 0, "val-percent", "P", "of a single file (default 10%)",
                 offsetof(struct train_options, val_percent), 0.01, 99),
    OPTION_ENTRY(STRING, 0, "documents", "files|paragraphs",
                 "what a document of a text is: the file (default), or what stands between blank "
                 "lines",
                 offsetof(struct train_options, split), 0, 0),
    OPTION_ENTRY(STRING, 0, "tokenizer", "FILE",
                 "vocabulary: tokenizer.json (sol tok train makes one), .tiktoken or GGUF",
                 offsetof(struct train_options, tokenizer), 0, 0),
    OPTION_ENTRY(INT, 0, "token-bytes", "N", "of .bin files without a header: 2 (default) or 4",
                 offsetof(struct train_options, token_bytes), 2, 4),
    OPTION_ENTRY(STRING, 0, "packing", "bestfit|stream|pad",
                 "rows that begin with a document, what does not fit is dropped; or all text in "
                 "turn; or whole documents, rows filled up (default: bestfit, of whole texts "
                 "stream, of conversations and segments pad)",
                 offsetof(struct train_options, packing), 0, 0),
    OPTION_ENTRY(
        STRING, 0, "init-from", "PATH",
        "fine-tuning: the weights of this checkpoint, its model and vocabulary; all else is "
        "new",
        offsetof(struct train_options, init_from), 0, 0),
    TRAIN_FLAGS(struct train_options, flags),
    OPTION_ENTRY(GROUP, 0, "How it is computed", NULL, NULL, 0, 0, 0),
    BACKEND_OPTIONS(struct train_options, backend, kernel_source),
    OPTION_ENTRY(INT, 0, "gpus", "N", "so many GPUs of this machine together (default 1)",
                 offsetof(struct train_options, gpus), 1, RANKS_SPLIT_MAX),
    OPTION_ENTRY(INT, 't', "threads", "N", "threads to compute with (default: every core)",
                 offsetof(struct train_options, threads), 0, 1024),
    OPTION_ENTRY(FLAG, 0, "exact", NULL,
                 "float32 throughout, sums in a fixed order and on the CPU in float64 (slow)",
                 offsetof(struct train_options, exact), 0, 0),
    OPTION_ENTRY(FLAG, 0, "reference", NULL, "every op by its plain C reference (slow)",
                 offsetof(struct train_options, reference), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "force", "OP=VARIANT", "this variant (see sol kernels)",
                 offsetof(struct train_options, force), 0, 0),
    OPTION_ENTRY(FLAG, 0, "no-tuning", NULL, "the usual kernels, whatever sol train tune has found",
                 offsetof(struct train_options, no_tuning), 0, 0),
    OPTION_ENTRY(
        STRING, 0, "recompute", "nothing|norms|wide",
        "what the backward pass makes again instead of keeping it: norms, or also the wide "
        "activations (default: as much as it takes to fit)",
        offsetof(struct train_options, recompute), 0, 0),
    OPTION_ENTRY(
        FLAG, 0, "in-turn", NULL,
        "GPUs pass gradients and weights behind their work, not beside it (for comparison)",
        offsetof(struct train_options, in_turn), 0, 0),
    OPTION_ENTRY(FLOAT, 0, "memory", "GB",
                 "10^9 bytes that training may take (default: what is free)",
                 offsetof(struct train_options, memory), 0.001, 1e6),
    OPTION_ENTRY(GROUP, 0, "Evaluation and checkpoints", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 'o', "out", "PATH",
                 "folder of checkpoints and log.jsonl (default: nothing is kept); replay: the file "
                 "that is written (default DIR/out.safetensors)",
                 offsetof(struct train_options, out), 0, 0),
    OPTION_ENTRY(INT, 0, "eval-every", "N", "updates between evaluations (default 250, -1: none)",
                 offsetof(struct train_options, eval_every), -1, 1LL << 40),
    OPTION_ENTRY(INT, 0, "eval-tokens", "N",
                 "of an evaluation, or all there are (default 1048576; on the CPU 32768)",
                 offsetof(struct train_options, eval_tokens), 1, 1LL << 40),
    OPTION_ENTRY(STRING, 0, "core", "FOLDER",
                 "CORE's tasks, as sol eval takes them (default: CORE is not measured)",
                 offsetof(struct train_options, core), 0, 0),
    OPTION_ENTRY(INT, 0, "core-metric-every", "N",
                 "updates between measurements of CORE, and at the end (default 2000, -1: none)",
                 offsetof(struct train_options, core_every), -1, 1LL << 40),
    OPTION_ENTRY(INT, 0, "core-metric-max-per-task", "N",
                 "items of each task (default 500, -1: all)",
                 offsetof(struct train_options, core_max_per_task), -1, 1LL << 31),
    OPTION_ENTRY(INT, 0, "sample-every", "N",
                 "updates between samples: what the model says behind a few prompts, and at the "
                 "end (default 2000, -1: none)",
                 offsetof(struct train_options, sample_every), -1, 1LL << 40),
    OPTION_ENTRY(STRINGS, 0, "prompt", "TEXT", "one more of those prompts; may be repeated",
                 offsetof(struct train_options, prompts), 0, 0),
    OPTION_ENTRY(INT, 0, "save-every", "N",
                 "updates between checkpoints (default -1: at the end alone)",
                 offsetof(struct train_options, save_every), -1, 1LL << 40),
    OPTION_ENTRY(FLAG, 0, "resume", NULL, "go on from the last checkpoint in --out",
                 offsetof(struct train_options, resume), 0, 0),
    OPTION_ENTRY(INT, 0, "resume-from-step", "N", "go on from that one",
                 offsetof(struct train_options, resume_from), -1, 1LL << 40),
    OPTION_ENTRY(GROUP, 0, "bench", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(INT, 0, "vocab-size", "N",
                 "of the model (default: the tokenizer's; of bench 32768)",
                 offsetof(struct train_options, vocab), 2, 1 << 24),
    OPTION_ENTRY(INT, 0, "micro-batches", "N", "of a step (default 1)",
                 offsetof(struct train_options, micro_batches), 1, 1 << 20),
    OPTION_ENTRY(STRING, 0, "optimizer", "every|none",
                 "every (default): each step updates the weights; none: forward and backward alone",
                 offsetof(struct train_options, optimizer), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "against", "SETTINGS",
                 "a table that compares: the benchmark as it is and with these, joined by commas: "
                 "OP=VARIANT as for --force, precision=TYPE, recompute=WHAT; may be repeated",
                 offsetof(struct train_options, against), 0, 0),
    OPTION_ENTRY(GROUP, 0, "tune", NULL, NULL, 0, 0, 0),
    TUNE_OPTIONS(struct train_options),
    OPTION_ENTRY(GROUP, 0, "Results", NULL, NULL, 0, 0, 0),
    STORE_OPTIONS(struct train_options),
    OPTION_ENTRY(FLAG, 0, "no-limits", NULL,
                 "do not measure what products reach here (takes seconds); then no MFU",
                 offsetof(struct train_options, no_limits), 0, 0),
    OPTION_ENTRY(FLAG, 0, "json", NULL, "print JSON: of a run a line for each step",
                 offsetof(struct train_options, json), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL,
                 "no progress; of a run evaluations and checkpoints alone",
                 offsetof(struct train_options, quiet), 0, 0),
    WIDE_OPTION(struct train_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol train --data books --tokenizer vocabulary.json --depth 2 --head-dim 32 --max-seq-len 64 "
     "--device-batch-size 2 --total-batch-size 256 --num-iterations 3 -o story",
     "a small model of a folder of texts; sol tok train makes vocabularies", NULL},
    {"sol train --data books --resume --num-iterations 6 -o story", "three updates more", NULL},
    {"sol train bench --depth 2 --head-dim 32 --max-seq-len 64 --device-batch-size 2 "
     "--vocab-size 256 --num-iterations 3",
     "how fast a model trains here, and what the time goes to", NULL},
    {"sol train bench --depth 2 --head-dim 32 --max-seq-len 64 --device-batch-size 2 "
     "--vocab-size 256 --num-iterations 3 --against rmsnorm=reference --against recompute=wide",
     "the same in other ways, one below the other", NULL},
    {"sol train tune --depth 2 --head-dim 32 --max-seq-len 64 --device-batch-size 2 "
     "--vocab-size 256 --budget 5",
     "the fastest kernels of such a step here, kept", NULL},
    {"sol train bench --backend cuda --num-iterations 10 --warmup-steps 2",
     "the quick benchmark: depth 20", "a GPU"},
    {"sol train replay folder --exact", "a run that a folder defines, in float32", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "train",
    .summary = "train a GPT, and measure how fast that is",
    .arguments = "[bench|tune|replay DIR]",
    .notes =
        "Without a word: a model of --depth is trained on --data. Width, batch, number of updates\n"
        "and rates follow from --depth as nanochat's dial has them; each can be given. "
        "Checkpoints\n"
        "are folders in --out that sol run -m takes; Ctrl-C saves one, --resume goes on with the\n"
        "same bits. --init-from begins with a checkpoint's weights instead of random ones.\n"
        "--arch gpt-oss: that architecture in small.\n"
        "Started by mpirun or srun --mpi=pmix it trains on all ranks together.\n"
        "bench: steps of a model of --depth on random tokens, after --warmup-steps that do not\n"
        "count (default 2; --num-iterations steps that do, default 10), and one more that is\n"
        "timed op by op. A step has --micro-batches of --device-batch-size sequences. With\n"
        "--against a row for each way to do it: what cannot run here says why, and what did not\n"
        "run as asked does not count.\n"
        "tune: times every kernel that can run each problem of bench's steps, and its tiles and\n"
        "forms of the loss, on this device; what is faster than the usual one beyond the noise "
        "goes\n"
        "into the record of sol tune. sol train, bench and replay follow it, but with "
        "--no-tuning,\n"
        "--exact or --reference. What the record has is not timed again.\n"
        "replay: DIR has config.json (\"flags\", \"vocab_size\", \"steps\", \"eval_steps\"),\n"
        "init.safetensors and batches.safetensors; losses, gradients and weights of that run go\n"
        "into one file. tools/train_replay.py makes such folders from nanochat's own code.",
    .examples = examples,
    .options = options,
};

const char *const train_recompute_names[RECOMPUTE_LEVELS] = {"nothing", "norms", "wide"};

bool train_is_bf16(const struct train_command *c)
{
    const char *precision = c->o.flags.precision;
    if (c->o.exact || (precision && strcmp(precision, "f32") == 0)) return false;
    return c->gpu || (precision && strcmp(precision, "bf16") == 0);
}

bool train_updates(const struct train_command *c)
{
    return !c->o.optimizer || strcmp(c->o.optimizer, "every") == 0;
}

enum sol_status train_check_precision(const struct train_command *c)
{
    if (c->gpu || !train_is_bf16(c)) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "--precision bf16 is for a GPU (--backend cuda)");
}

void train_params_of(const struct train_command *c, const struct train_recipe *recipe,
                     struct trainer_params *out)
{
    trainer_params_init(out);
    out->recipe = recipe;
    out->sequences = recipe->device_batch;
    out->bf16 = train_is_bf16(c);
    out->tree = c->o.exact && !c->gpu;
    out->in_turn = c->o.in_turn;
    out->recompute = -1;
    for (int i = 0; c->o.recompute && i < RECOMPUTE_LEVELS; i++)
        if (strcmp(c->o.recompute, train_recompute_names[i]) == 0) out->recompute = i;
    out->memory = (size_t)(c->o.memory * 1e9);
    out->threads = ranks_threads(&c->ranks, (int)c->o.threads);
    out->communicator = c->ranks.communicator;
    out->chooser = c->chooser;
}

/* An optimizer that makes matrices orthogonal amplifies what sums in float32 lose. On the CPU all
 * sums are float64 then: of products in a variant made for it, of all else in the references. */
static enum sol_status force_exact(struct train_command *c)
{
    char why[OP_REASON_MAX], text[128];
    c->chooser.loosest = NUMERICS_EXACT;
    if (c->gpu) return SOL_OK;
    c->chooser.reference = true;
    for (int v = 0; v < op_matmul.n_variants; v++) {
        const struct op_variant *variant = op_matmul.variants[v];
        if (strncmp(variant->name, "matmul_f64", 10) != 0) continue;
        if (!op_variant_fits(variant, &c->chooser.device, why)) continue;
        snprintf(text, sizeof text, "matmul=%s", variant->name);
        return chooser_force(&c->chooser, text);
    }
    return SOL_OK;
}

static enum sol_status open_device(struct train_command *c)
{
    char own[32];
    const char *backend = c->o.backend;
    if (c->ranks.communicator && backend && strcmp(backend, "cuda") == 0) {
        snprintf(own, sizeof own, "cuda:%d", c->ranks.launch.local_rank);
        backend = own;
    }
    SOL_TRY(backend_open(backend, c->o.kernel_source, true, &c->gpu));
    chooser_init(&c->chooser, (int)c->o.threads);
    c->chooser.device.gpu = c->gpu;
    c->chooser.reference = c->o.reference;
    if (c->o.exact) SOL_TRY(force_exact(c));
    for (size_t i = 0; i < c->o.force.count; i++)
        SOL_TRY(chooser_force(&c->chooser, c->o.force.values[i]));
    return train_check_precision(c);
}

static enum sol_status open_store(struct train_command *c)
{
    SOL_TRY(store_label_check(c->o.label));
    if (c->o.no_store || !ranks_lead(&c->ranks)) return SOL_OK;
    return store_open_optional(c->o.store, &c->store);
}

/* What one rank cannot open, none does. */
static enum sol_status open_rank(struct train_command *c)
{
    enum sol_status status = open_device(c);
    if (status == SOL_OK) status = open_store(c);
    SOL_TRY(communicator_agree(c->ranks.communicator, status));
    SOL_TRY(train_tuning_read(c));
    if (!c->ranks.communicator || !c->gpu) return SOL_OK;
    return communicator_add_gpu(c->ranks.communicator, c->gpu);
}

/* ---- replay ---- */

static enum sol_status replay(struct train_command *c, const char *folder)
{
    char path[4096];
    struct train_replay_result result;
    if (recipe_precision(&c->o.flags) != PRECISION_PLAIN)
        return status_set(SOL_E_ARGUMENT, "the folder's flags say whether it is fp8 or nvfp4");
    if (c->o.out)
        snprintf(path, sizeof path, "%s", c->o.out);
    else
        snprintf(path, sizeof path, "%s/out.safetensors", folder);
    SOL_TRY(open_device(c));
    SOL_TRY(train_tuning_read(c));
    struct train_tuned tuned = {.chooser = &c->chooser};
    const struct train_replay_params params = {.folder = folder,
                                               .out = path,
                                               .bf16 = train_is_bf16(c),
                                               .threads = (int)c->o.threads,
                                               .chooser = c->chooser,
                                               .on_choice = train_tuned_see,
                                               .on_choice_arg = &tuned};
    SOL_TRY(train_replay(&params, &result));
    if (c->o.json)
        return json_print(
            json_pack("{s:o, s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "file", store_json_string(path),
                      "steps", (json_int_t)result.steps, "micro_batches",
                      (json_int_t)result.micro_batches, "sequences", (json_int_t)result.sequences,
                      "length", (json_int_t)result.length, "first_loss", result.first_loss,
                      "last_loss", result.last_loss, "tuned", train_tuning_json(&tuned)));
    train_tuning_print(&tuned, stdout);
    printf("%lld steps of %lld x %lld x %lld tokens: loss %.6f to %.6f\nwritten to %s\n",
           (long long)result.steps, (long long)result.micro_batches, (long long)result.sequences,
           (long long)result.length, result.first_loss, result.last_loss, path);
    return SOL_OK;
}

/* ---- bench ---- */

enum sol_status train_measure_limits(struct train_command *c, const struct train_recipe *recipe)
{
    const struct engine_params params = {
        .chooser = c->chooser, .threads = c->o.threads ? (int)c->o.threads : cpu_info()->cores};
    if (c->o.no_limits || !ranks_lead(&c->ranks)) return SOL_OK;
    SOL_TRY(
        engine_options_limits(&params, (size_t)recipe->parameters * sizeof(float), &c->ceiling));
    if (c->gpu) gpu_memory_peak_reset(c->gpu);
    memory_peak_reset();
    return SOL_OK;
}

/* What --num-iterations and --warmup-steps count are the steps of the benchmark; rates do not
 * matter. */
static void settle_steps(struct train_command *c)
{
    enum { STEPS = 10, WARMUP = 2, SEQUENCES_CPU = 1, VOCAB = 32768 };
    struct train_flags *f = &c->o.flags;
    if (f->num_iterations < 1) f->num_iterations = STEPS;
    c->o.warmup = f->warmup_steps == FLAG_UNSET ? WARMUP : f->warmup_steps;
    if (f->device_batch_size < 1 && !c->gpu) f->device_batch_size = SEQUENCES_CPU;
    if (f->device_batch_size > 0)
        f->total_batch_size =
            f->device_batch_size * f->max_seq_len * c->o.micro_batches * c->ranks.launch.size;
    if (!c->o.vocab) c->o.vocab = VOCAB;
}

static enum sol_status bench(struct train_command *c)
{
    SOL_TRY(open_rank(c));
    settle_steps(c);
    if (c->o.against.count && c->ranks.communicator)
        return status_set(SOL_E_UNSUPPORTED, "--against is for one rank");
    return c->o.against.count ? train_against(c) : train_bench_one(c);
}

/* Of the steps that bench has. */
static enum sol_status tune(struct train_command *c)
{
    SOL_TRY(ranks_open(&c->ranks)); /* alone */
    SOL_TRY(open_device(c));
    settle_steps(c);
    return train_tune(c);
}

/* ---- the command ---- */

static enum sol_status pretrain(struct train_command *c)
{
    SOL_TRY(open_rank(c));
    return train_pretrain(c);
}

/* This process as one rank, or as all of them. */
static enum sol_status run_ranks(struct train_command *c,
                                 enum sol_status (*run)(struct train_command *c))
{
    const char *backend = c->o.backend;
    if (c->o.gpus == 1) {
        SOL_TRY(ranks_open(&c->ranks));
        return run(c);
    }
    if (!backend || strcmp(backend, "cuda") != 0)
        return status_set(SOL_E_ARGUMENT, "--gpus wants --backend cuda");
    SOL_TRY(ranks_refuse("sol train", "--gpus"));
    SOL_TRY(train_threads_start(c, run));
    return run(c);
}

static enum sol_status work(struct train_command *c, const char *const *args, int n_args)
{
    const char *verb = n_args ? args[0] : "";
    if (c->o.against.count && strcmp(verb, "bench") != 0)
        return status_set(SOL_E_ARGUMENT, "--against is for sol train bench");
    if (n_args == 0) return run_ranks(c, pretrain);
    if (strcmp(verb, "bench") == 0 && n_args == 1) return run_ranks(c, bench);
    if (strcmp(verb, "tune") == 0 && n_args == 1 && c->o.gpus > 1)
        return status_set(SOL_E_ARGUMENT,
                          "sol train tune is for one GPU; --gpus follow its record");
    if (c->o.gpus == 1) SOL_TRY(ranks_refuse("sol train", verb));
    if (strcmp(verb, "tune") == 0 && n_args == 1) return tune(c);
    if (strcmp(verb, "replay") == 0 && n_args == 2) return replay(c, args[1]);
    if (strcmp(verb, "replay") == 0)
        return status_set(SOL_E_ARGUMENT, "sol train replay takes one folder");
    return status_set(SOL_E_ARGUMENT, "sol train takes bench, tune, replay or no word, not '%s'",
                      n_args > 1 ? args[1] : verb);
}

static int run(int argc, char **argv)
{
    struct train_command c = {.o = {.gpus = 1,
                                    .micro_batches = 1,
                                    .budget = 120,
                                    .val_percent = 10,
                                    .token_bytes = 2,
                                    .eval_every = 250,
                                    .save_every = -1,
                                    .core_every = 2000,
                                    .core_max_per_task = 500,
                                    .sample_every = FLAG_UNSET,
                                    .resume_from = -1}};
    int exit_status, n_args;
    const char **args = calloc((size_t)argc + 1, sizeof *args);
    if (!args) return cli_fail(status_set(SOL_E_MEMORY, "no memory for the command line"));
    train_flags_init(&c.o.flags);
    if (cli_parse(&spec, argc, argv, &c.o, args, &n_args, &exit_status)) {
        progress_quiet(c.o.quiet);
        c.argc = argc;
        c.argv = argv;
        const enum sol_status status = work(&c, args, n_args);
        exit_status = ranks_close(&c.ranks, status);
        train_threads_join(&c);
        store_close(c.store);
        tuning_clear(&c.tuning);
        gpu_close(c.gpu);
    }
    free(args);
    return exit_status;
}

const struct command cmd_train = {&spec, run, false};
