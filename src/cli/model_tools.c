#include "cli/model_tools.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/engine_options.h"
#include "format/output_file.h"
#include "gpu/device.h"
#include "infer/fit.h"
#include "model/check.h"
#include "model/convert.h"
#include "model/requantise.h"
#include "model/shard.h"
#include "model/source.h"
#include "model/upload.h"
#include "store/store_json.h"
#include "tok/tokenizer.h"

/* ---- check ---- */

struct check_output {
    json_t *problems; /* NULL: print lines */
};

static void on_problem(void *arg, const char *tensor, bool faulty, const char *what)
{
    const struct check_output *out = arg;
    if (out->problems)
        json_array_append_new(out->problems,
                              json_pack("{s:o, s:b, s:s}", "tensor", store_json_string(tensor),
                                        "faulty", (int)faulty, "what", what));
    else
        printf("%s %s: %s\n", faulty ? "fault " : "strange", tensor, what);
}

/* What `sol run` takes the vocabulary with; `message` keeps why it would not. */
static enum sol_status check_vocabulary(const struct model_files *files,
                                        struct check_output *output, char message[1024])
{
    struct tokenizer *tokenizer;
    enum sol_status status = model_vocabulary(files, &tokenizer);
    tokenizer_destroy(tokenizer);
    if (status == SOL_OK) return SOL_OK;
    snprintf(message, 1024, "%s", sol_last_error());
    on_problem(output, "vocabulary", true, message);
    return status;
}

enum sol_status model_tool_check(const struct model_options *o)
{
    struct model_files *files;
    struct check_summary summary;
    char message[1024];
    struct check_output output = {o->json ? json_array() : NULL};
    if (source_synth(o->model))
        return status_set(SOL_E_ARGUMENT, "'%s' is made up and has no file to check", o->model);
    SOL_TRY(model_files_open(o->model, &files));
    enum sol_status vocabulary = check_vocabulary(files, &output, message);
    enum sol_status status = model_check(files, on_problem, &output, &summary);
    if (status != SOL_OK) goto done;
    if (o->json) {
        status = json_print(
            json_pack("{s:o, s:I, s:I, s:I, s:I, s:O}", "model", store_json_string(files->name),
                      "tensors", (json_int_t)summary.tensors, "weight_bytes",
                      (json_int_t)summary.bytes, "faulty", (json_int_t)summary.faulty, "suspicious",
                      (json_int_t)summary.suspicious, "problems", output.problems));
    } else {
        char bytes[16];
        printf("%s: %" PRId64 " tensors, %s: names, shapes and types are right; %" PRId64
               " with numbers that are not finite, %" PRId64 " strange\n",
               files->name, summary.tensors, format_bytes(summary.bytes, bytes), summary.faulty,
               summary.suspicious);
    }
    if (status == SOL_OK && summary.faulty)
        status = status_set(SOL_E_FORMAT, "%s: %" PRId64 " tensors are damaged; download it again",
                            files->name, summary.faulty);
    else if (status == SOL_OK && vocabulary != SOL_OK)
        status = status_set(vocabulary, "%s", message);
done:
    json_decref(output.problems);
    model_files_close(files);
    return status;
}

/* ---- convert and synth ---- */

/* True: a Hugging Face folder. */
static enum sol_status output_kind(const struct model_options *o, bool *folder)
{
    if (!o->output || !*o->output)
        return status_set(SOL_E_ARGUMENT, "where to? give -o FILE.gguf or -o FOLDER");
    size_t length = strlen(o->output);
    *folder = length < 5 || strcmp(o->output + length - 5, ".gguf") != 0;
    if (o->format) *folder = strcmp(o->format, "hf") == 0;
    if (o->model) SOL_TRY(output_file_apart(o->output, o->model));
    if (*folder || o->split_gib > 0) return SOL_OK; /* they see when they know the names */
    return output_file_check(o->output, o->overwrite ? 0 : OUTPUT_NEW);
}

static enum sol_status write_model(const struct model_options *o, const struct weight_input *input,
                                   const struct vocabulary *vocabulary)
{
    bool folder;
    size_t part = (size_t)(o->split_gib * (1 << 30));
    SOL_TRY(output_kind(o, &folder));
    if (folder)
        SOL_TRY(convert_to_folder(input, vocabulary, o->output, part));
    else
        SOL_TRY(convert_to_gguf(input, vocabulary, o->output, part, o->overwrite));
    if (!o->json) return SOL_OK;
    return json_print(json_pack("{s:o, s:s}", "output", store_json_string(o->output), "format",
                                folder ? "hf" : "gguf"));
}

static enum sol_status read_vocabulary(const struct model_files *files, struct vocabulary **out)
{
    bool found;
    struct gguf_array tokens;
    char path[4096];
    struct stat info;
    *out = NULL;
    if (files->gguf) {
        SOL_TRY(gguf_get_array(files->gguf, "tokenizer.ggml.tokens", &tokens, &found));
        if (found) return vocabulary_from_gguf(files->gguf, out);
    } else {
        snprintf(path, sizeof path, "%s/tokenizer.json", files->folder);
        if (stat(path, &info) == 0)
            return vocabulary_from_folder(files->folder, files->config.vocab, out);
    }
    LOG_WARN("%s has no vocabulary; the result will have none either", files->name);
    return SOL_OK;
}

/* What --experts and --dense ask for. */
static enum sol_status find_types(const struct model_options *o, struct requantise *r)
{
    r->experts = r->dense = DTYPE_COUNT;
    if (o->experts && (!dtype_from_name(o->experts, &r->experts) || r->experts != DTYPE_MXFP4))
        return status_set(SOL_E_ARGUMENT, "--experts %s is not mxfp4", o->experts);
    if (!o->dense) return SOL_OK;
    const bool known = dtype_from_name(o->dense, &r->dense);
    if (known && (r->dense == DTYPE_BF16 || r->dense == DTYPE_Q8_0 || r->dense == DTYPE_F32))
        return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "--dense %s is not one of bf16, q8_0, f32", o->dense);
}

enum sol_status model_tool_convert(const struct model_options *o)
{
    struct requantise rounded = {0};
    struct weight_input as_asked = {0};
    struct model_files *files = NULL;
    struct vocabulary *vocabulary = NULL;
    struct weight_input input = {0};
    bool folder;
    if (source_synth(o->model))
        return status_set(SOL_E_ARGUMENT, "'%s' is made up; sol model synth writes it", o->model);
    SOL_TRY(output_kind(o, &folder)); /* before anything that takes long */
    SOL_TRY(find_types(o, &rounded));
    SOL_TRY(model_files_open(o->model, &files));
    enum sol_status status = read_vocabulary(files, &vocabulary);
    if (status == SOL_OK) status = weight_input_from_files(files, &input);
    if (status == SOL_OK) status = requantise_create(&rounded, &input, &as_asked);
    if (status == SOL_OK) status = write_model(o, &as_asked, vocabulary);
    requantise_destroy(&rounded);
    weight_input_close(&input);
    vocabulary_destroy(vocabulary);
    model_files_close(files);
    return status;
}

/* The name behind "synth:" that --like and its options make. */
static void synth_text(const struct model_options *o, char text[200])
{
    char dense[32] = "", seed[40] = "", layers[40] = "";
    /* What is behind the name stays unless an option says otherwise. */
    if (o->dense) snprintf(dense, sizeof dense, ",dense=%.20s", o->dense);
    if (o->seed >= 0) snprintf(seed, sizeof seed, ",seed=%" PRId64, o->seed);
    if (o->layers) snprintf(layers, sizeof layers, ",layers=%" PRId64, o->layers);
    snprintf(text, 200, "%.80s%s%s%s", o->like, dense, seed, layers);
}

enum sol_status model_tool_synth(const struct model_options *o)
{
    struct synth synth;
    struct vocabulary *vocabulary = NULL;
    struct weight_input input = {0};
    char text[200];
    if (!o->like)
        return status_set(SOL_E_ARGUMENT,
                          "what size? give --like gpt-oss-20b, gpt-d20, tiny or another");
    synth_text(o, text);
    SOL_TRY(synth_parse(text, &synth));
    enum sol_status status = vocabulary_synth(synth.config.vocab, &vocabulary);
    if (status == SOL_OK) status = weight_input_from_synth(&synth, text, &input);
    if (status == SOL_OK) status = write_model(o, &input, vocabulary);
    weight_input_close(&input);
    vocabulary_destroy(vocabulary);
    return status;
}

/* ---- fit ---- */

struct fit {
    struct model *model, *part, *outline; /* part: of --gpus, or NULL; outline: as a GPU gets it */
    struct gpu *gpu;                      /* described, not opened */
    struct engine_params params;
    struct engine_parts parts;
    size_t weights, memory;
    int64_t longest;
};

/* A GPU that is not here is taken for an H100: how much scratch a step needs depends on kernels. */
static enum sol_status describe_gpu(double memory_gib, struct gpu **out)
{
    const struct gpu_info info = {.name = "GPU",
                                  .major = 9,
                                  .sm_count = 132,
                                  .memory_bytes = (size_t)(memory_gib * (1 << 30)),
                                  .shared_per_block = 227 << 10,
                                  .shared_per_sm = 228 << 10};
    return gpu_describe(&info, out);
}

static enum sol_status fit_request(const struct model_options *o, struct fit *f, enum shard_way way)
{
    const struct model_config *c = &f->model->config;
    struct engine_params *p = &f->params;
    engine_params_init(p);
    p->context = o->context;
    p->sequences = o->sequences;
    p->cache_positions = o->positions;
    p->chooser.device.gpu = f->gpu;
    p->max_batch = o->batch ? o->batch : usual_batch(f->gpu, o->gpus, way);
    if (!dtype_from_name(o->kv, &p->kv_dtype) ||
        (p->kv_dtype != DTYPE_F16 && p->kv_dtype != DTYPE_BF16 && p->kv_dtype != DTYPE_F32))
        return status_set(SOL_E_ARGUMENT, "--kv %s: the cache is kept in f16, bf16 or f32", o->kv);
    if (p->context > c->context)
        return status_set(SOL_E_ARGUMENT, "context %" PRId64 " is longer than the model's %" PRId64,
                          p->context, c->context);
    return SOL_OK;
}

static size_t total_of(const struct fit *f)
{
    return f->weights + engine_parts_total(&f->parts);
}

/* The model of -m, or one that --like describes. */
static enum sol_status open_fitted(const struct model_options *o, struct model **out)
{
    static const struct model_params later = {.later = true};
    char text[200], source[208];
    if (!o->like && (o->dense || o->layers || o->seed >= 0))
        return status_set(SOL_E_ARGUMENT, "--dense, --layers and --seed go with --like");
    if (!o->like) return model_open_with(o->model, &later, out);
    if (o->model)
        return status_set(SOL_E_ARGUMENT, "-m %s and --like %s: which of the two?", o->model,
                          o->like);
    synth_text(o, text);
    snprintf(source, sizeof source, "synth:%s", text);
    return model_open_with(source, &later, out);
}

/* The part that needs most. */
static enum sol_status share(const struct model_options *o, struct fit *f, enum shard_way way)
{
    const int gpus = (int)o->gpus;
    if (gpus < 2) return SOL_OK;
    SOL_TRY(shard_check(f->model, gpus, way));
    return shard_create(f->model, shard_heaviest(f->model, gpus, way), gpus, way, &f->part);
}

static enum sol_status compute(const struct model_options *o, struct fit *f)
{
    enum shard_way way;
    SOL_TRY(open_fitted(o, &f->model));
    if (o->device_gib > 0) SOL_TRY(describe_gpu(o->device_gib, &f->gpu));
    SOL_TRY(sharing_way(o->gpus, o->expert_parallel, o->pipeline_parallel, &way));
    SOL_TRY(fit_request(o, f, way));
    SOL_TRY(share(o, f, way));
    const struct model *model = f->part ? f->part : f->model;
    if (f->gpu) SOL_TRY(model_upload_outline(model, f->gpu, &f->outline));
    if (f->gpu) model = f->outline;
    f->weights = f->gpu ? model_upload_bytes(model) : model->weight_bytes;
    f->memory = f->gpu ? gpu_info(f->gpu)->memory_bytes : memory_available();
    SOL_TRY(fit_engine(model, &f->params, &f->parts));
    size_t room = f->memory > f->weights ? f->memory - f->weights : 0;
    f->longest = fit_longest_context(model, &f->params, room, model->config.context);
    return SOL_OK;
}

static void add_line(void *list, const char *name, size_t bytes)
{
    json_object_set_new(list, name, json_integer((json_int_t)bytes));
}

static enum sol_status print_fit(const struct fit *f, bool json)
{
    const double gib = 1 << 30;
    const struct engine_params *p = &f->params;
    size_t buffers = f->parts.buffers + f->parts.scratch, total = total_of(f);
    if (json) {
        json_t *lines = json_object();
        SOL_TRY(fit_report(f->gpu ? f->outline : f->part ? f->part : f->model, p, add_line, lines));
        return json_print(json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:o}", "weights", (json_int_t)f->weights,
            "cache", (json_int_t)f->parts.cache, "buffers", (json_int_t)buffers, "total",
            (json_int_t)total, "memory", (json_int_t)f->memory, "fits", total <= f->memory,
            "longest_context", (json_int_t)f->longest, "context", (json_int_t)p->context,
            "sequences", (json_int_t)p->sequences, "parts", lines));
    }
    const int64_t gpus = f->part ? f->part->config.ranks : 1;
    if (gpus > 1) printf("of each of %" PRId64 ", for the one that has most:\n", gpus);
    printf("weights      %8.2f GiB\n", (double)f->weights / gib);
    printf("cache        %8.2f GiB  (context %" PRId64 " x %" PRId64 " sequences in %s)\n",
           (double)f->parts.cache / gib, p->context, p->sequences, dtype_info(p->kv_dtype)->name);
    printf("buffers      %8.2f GiB  (steps of %" PRId64 " tokens)\n", (double)buffers / gib,
           p->max_batch);
    printf("total        %8.2f GiB of %.2f GiB %s\n", (double)total / gib, (double)f->memory / gib,
           f->gpu ? "device memory" : "free memory");
    if (f->longest) printf("longest context that fits: %" PRId64 "\n", f->longest);
    return SOL_OK;
}

enum sol_status model_tool_fit(const struct model_options *o)
{
    struct fit f = {0};
    enum sol_status status = compute(o, &f);
    if (status == SOL_OK) status = print_fit(&f, o->json);
    if (status == SOL_OK && total_of(&f) > f.memory)
        status = status_set(SOL_E_MEMORY, "%.2f GiB are needed, %.2f GiB are there%s",
                            (double)total_of(&f) / (1 << 30), (double)f.memory / (1 << 30),
                            f.longest ? "; lower the context, the sequences or the batch"
                                      : "; the weights alone are too large");
    model_upload_destroy(f.outline, f.gpu);
    shard_destroy(f.part);
    gpu_close(f.gpu);
    model_close(f.model);
    return status;
}
