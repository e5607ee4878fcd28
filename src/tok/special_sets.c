#include "tok/special_sets.h"

#include <stddef.h>

#include "tok/harmony_tokens.h"

static const char *const nanochat[] = {
    "<|bos|>",           "<|user_start|>",   "<|user_end|>",   "<|assistant_start|>",
    "<|assistant_end|>", "<|python_start|>", "<|python_end|>", "<|output_start|>",
    "<|output_end|>",
};

const char *special_set_name(enum special_set set)
{
    return set == SPECIAL_NANOCHAT ? "nanochat" : "harmony";
}

int32_t special_set_span(enum special_set set)
{
    return set == SPECIAL_NANOCHAT ? (int32_t)(sizeof nanochat / sizeof *nanochat) : HARMONY_SPAN;
}

const char *special_set_token(enum special_set set, int32_t offset)
{
    return set == SPECIAL_NANOCHAT ? nanochat[offset] : harmony_token(offset);
}
