/* The special tokens of o200k_harmony, as offsets from the first id after the ordinary tokens. */
#ifndef TOK_HARMONY_TOKENS_H
#define TOK_HARMONY_TOKENS_H

#include <stdint.h>

enum {
    HARMONY_STARTOFTEXT = 0,
    HARMONY_SPAN = 21, /* offsets 0..20; some have no token */
};

/* Its name, or NULL. 0 <= offset < HARMONY_SPAN. */
const char *harmony_token(int32_t offset);

#endif
