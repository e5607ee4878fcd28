/* What a token is, in the numbers of GGUF's tokenizer.ggml.token_type. */
#ifndef TOK_TOKEN_KIND_H
#define TOK_TOKEN_KIND_H

enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER, /* found by its name as control tokens are, but shown in output */
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

#endif
