/* See flags.h. */
#include "train/flags.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

void train_flags_init(struct train_flags *flags)
{
    *flags = (struct train_flags){.recipe = "2026-07",
                                  .arch = "gpt",
                                  .depth = 20,
                                  .aspect_ratio = 64,
                                  .max_seq_len = 2048,
                                  .balance = NAN,
                                  .mxfp4_from = NAN,
                                  .dropout = NAN,
                                  .num_iterations = -1,
                                  .target_flops = -1,
                                  .target_param_data_ratio = NAN,
                                  .device_batch_size = -1,
                                  .total_batch_size = -1,
                                  .embedding_lr = NAN,
                                  .unembedding_lr = NAN,
                                  .matrix_lr = NAN,
                                  .scalar_lr = NAN,
                                  .weight_decay = NAN,
                                  .embedding_decay = NAN,
                                  .adam_beta1 = NAN,
                                  .adam_beta2 = NAN,
                                  .grad_clip = NAN,
                                  .warmup_steps = FLAG_UNSET,
                                  .warmup_ratio = NAN,
                                  .warmdown_ratio = NAN,
                                  .final_lr_frac = NAN,
                                  .schedule = "dial",
                                  .seed = 42};
}

/* ---- the model alone ---- */

struct model_flag {
    const char *name;
    size_t offset;
    bool is_text;
};
#define INTEGER(name, field)                                                                       \
    {                                                                                              \
        name, offsetof(struct train_flags, field), false                                           \
    }
#define TEXT(name, field)                                                                          \
    {                                                                                              \
        name, offsetof(struct train_flags, field), true                                            \
    }
static const struct model_flag model_flags[] = {
    TEXT("recipe", recipe),
    TEXT("arch", arch),
    INTEGER("depth", depth),
    INTEGER("aspect-ratio", aspect_ratio),
    INTEGER("head-dim", head_dim),
    INTEGER("max-seq-len", max_seq_len),
    TEXT("window-pattern", window_pattern),
    INTEGER("width", width),
    INTEGER("heads", heads),
    INTEGER("kv-heads", kv_heads),
    INTEGER("experts", experts),
    INTEGER("top-k", top_k),
    INTEGER("expert-width", expert_width),
    INTEGER("sliding-window", sliding_window),
};

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

enum sol_status train_flags_take_model(struct train_flags *flags, const struct train_flags *from)
{
    struct train_flags none;
    train_flags_init(&none);
    for (size_t i = 0; i < sizeof model_flags / sizeof *model_flags; i++) {
        const struct model_flag *m = &model_flags[i];
        char *to = (char *)flags + m->offset;
        const char *unset = (const char *)&none + m->offset;
        const char *source = (const char *)from + m->offset;
        const size_t size = m->is_text ? sizeof(char *) : sizeof(int64_t);
        const bool given =
            m->is_text ? !same_text(*(char **)(void *)to, *(char *const *)(const void *)unset)
                       : memcmp(to, unset, size) != 0;
        if (given)
            return status_set(SOL_E_ARGUMENT, "the model is that of --init-from: leave --%s out",
                              m->name);
        memcpy(to, source, size);
    }
    return SOL_OK;
}

/* ---- written as a command line ---- */

/* What base_train has besides, for those who hand over all of its flags. */
struct all_flags {
    struct train_flags flags;
    const char *ignored;
    double ignored_number;
    bool ignored_flag;
};

#define IGNORED(name) TRAIN_FLAG(STRING, name, "X", "", struct all_flags, ignored, 0, 0)

static const struct option all_options[] = {
    TRAIN_FLAGS(struct all_flags, flags),
    TRAIN_FLAG(STRING, "fp8-recipe", "tensorwise", "", struct all_flags, ignored, 0, 0),
    IGNORED("run"),
    IGNORED("device-type"),
    IGNORED("eval-every"),
    IGNORED("eval-tokens"),
    IGNORED("core-metric-every"),
    IGNORED("core-metric-max-per-task"),
    IGNORED("sample-every"),
    IGNORED("save-every"),
    IGNORED("resume-from-step"),
    IGNORED("model-tag"),
    {0},
};

static const struct command_spec all_spec = {.name = "flags", .options = all_options};

enum { WORDS_MAX = 256 };

/* base_train of January wrote --max_seq_len. */
static void dash_name(char *word)
{
    if (strncmp(word, "--", 2) != 0) return;
    for (char *c = word; *c && *c != '='; c++)
        if (*c == '_') *c = '-';
}

enum sol_status train_flags_parse(const char *name, const char *text, struct train_flags *out,
                                  char **memory)
{
    char *words[WORDS_MAX] = {(char *)(uintptr_t) "flags"}, *rest = NULL;
    const char *args[WORDS_MAX];
    int n = 1, n_args = 0;
    bool help = false;
    struct all_flags all = {0};
    train_flags_init(&all.flags);
    *memory = strdup(text);
    if (!*memory) return status_set(SOL_E_MEMORY, "no memory for flags");
    for (char *w = strtok_r(*memory, " \t\n", &rest); w; w = strtok_r(NULL, " \t\n", &rest)) {
        if (n == WORDS_MAX)
            return status_set(SOL_E_FORMAT, "%s: more than %d flags", name, WORDS_MAX - 1);
        dash_name(w);
        words[n++] = w;
    }
    enum sol_status status = options_parse(&all_spec, n, words, &all, args, &n_args, &help);
    if (status != SOL_OK) return status_set(SOL_E_FORMAT, "%s: flags: %s", name, sol_last_error());
    if (help || n_args)
        return status_set(SOL_E_FORMAT, "%s: flags: '%s' is no flag", name,
                          n_args ? args[0] : "--help");
    *out = all.flags;
    return SOL_OK;
}
