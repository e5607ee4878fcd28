#include "tok/harmony_tokens.h"

/* Ids 199998 to 200018 (source: tiktoken_ext/openai_public, o200k_harmony). The others are reserved
 * and mean nothing. */
static const char *const names[HARMONY_SPAN] = {
    [HARMONY_STARTOFTEXT] = "<|startoftext|>",
    [1] = "<|endoftext|>",
    [4] = "<|return|>",
    [5] = "<|constrain|>",
    [7] = "<|channel|>",
    [8] = "<|start|>",
    [9] = "<|end|>",
    [10] = "<|message|>",
    [14] = "<|call|>",
    [20] = "<|endofprompt|>",
};

const char *harmony_token(int32_t offset)
{
    return names[offset];
}
