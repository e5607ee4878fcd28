#include "tok/special_sets.h"

#include <stdio.h>

/* Ids 199998 to 200018 there. */
static const char *const harmony[] = {
    [0] = "<|startoftext|>", [1] = "<|endoftext|>",    [4] = "<|return|>", [5] = "<|constrain|>",
    [7] = "<|channel|>",     [8] = "<|start|>",        [9] = "<|end|>",    [10] = "<|message|>",
    [14] = "<|call|>",       [20] = "<|endofprompt|>",
};

static const char *const nanochat[] = {
    "<|bos|>",           "<|user_start|>",   "<|user_end|>",   "<|assistant_start|>",
    "<|assistant_end|>", "<|python_start|>", "<|python_end|>", "<|output_start|>",
    "<|output_end|>",
};

static const struct {
    const char *name;
    const char *const *tokens;
    int32_t span;
} sets[SPECIAL_SETS] = {
    [SPECIAL_HARMONY] = {"harmony", harmony, sizeof harmony / sizeof *harmony},
    [SPECIAL_NANOCHAT] = {"nanochat", nanochat, sizeof nanochat / sizeof *nanochat},
};

const char *special_set_name(enum special_set set)
{
    return sets[set].name;
}

int32_t special_set_span(enum special_set set)
{
    return sets[set].span;
}

int special_set_token(enum special_set set, int32_t first, int32_t offset,
                      char name[SPECIAL_NAME_MAX])
{
    const char *token = sets[set].tokens[offset];
    return token ? snprintf(name, SPECIAL_NAME_MAX, "%s", token)
                 : snprintf(name, SPECIAL_NAME_MAX, "<|reserved_%d|>", first + offset);
}
