/* What a tokenizer is made of, and how the loaders (tokenizer_gguf.c, _json.c, _tiktoken.c) fill
 * it: sizes first, then every token in the order of ids, then the merges in the order of rank. */
#ifndef TOK_TOKENIZER_PRIVATE_H
#define TOK_TOKENIZER_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tok/bpe.h"
#include "tok/token_kind.h"
#include "tok/tokenizer.h"

enum token_whole { WHOLE_UNTRIED, WHOLE_YES, WHOLE_NO };

enum {
    SPECIAL_MAX = 255, /* the longest name of a special token that is looked for in text */
    TOKEN_MAX = 1024,  /* bytes of a normal token in tokenizer.json and .tiktoken; o200k's longest
                        * has 128 */
    N_STOPS = 6,
};

struct token_slot {
    uint32_t tag; /* upper half of the hash: spares most comparisons of bytes */
    int32_t id;   /* -1: empty */
};

/* Bytes to id; open addressing, at most half full. */
struct token_lookup {
    struct token_slot *slots;
    size_t mask;
};

struct tokenizer {
    int32_t count;
    char *bytes;       /* of all tokens, one after the other */
    uint32_t *offsets; /* count + 1 */
    uint8_t *kinds;
    _Atomic unsigned char *whole; /* enum token_whole */
    size_t longest;               /* normal token, in bytes */
    struct token_lookup normal, special;
    int32_t byte_ids[256];
    struct bpe *bpe;
    bool special_begins[256];             /* some special token begins with this byte */
    bool special_length[SPECIAL_MAX + 1]; /* some special token has this length */
    size_t special_longest;
    int32_t bos, stops[N_STOPS];
    bool adds_bos;
};

/* The slot of these bytes, or the empty one where they would go. */
struct token_slot *token_slot_find(const struct tokenizer *t, const struct token_lookup *lookup,
                                   uint64_t hash, const char *data, size_t length);
int32_t token_id_find(const struct tokenizer *t, const struct token_lookup *lookup,
                      const char *data, size_t length);

/* ---- building ---- */

struct token_builder {
    const char *name; /* of the file, for messages */
    struct tokenizer *t;
    char *buffer; /* for merges */
};

/* "'file': tokenizer: ..." with SOL_E_FORMAT, or SOL_E_UNSUPPORTED. */
enum sol_status builder_fault(const struct token_builder *b, const char *fmt, ...) SOL_PRINTF(2, 3);
enum sol_status builder_unsupported(const struct token_builder *b, const char *fmt, ...)
    SOL_PRINTF(2, 3);

/* See status_same. */
#define builder_fault(...)       status_same(SOL_E_FORMAT, builder_fault(__VA_ARGS__))
#define builder_unsupported(...) status_same(SOL_E_UNSUPPORTED, builder_unsupported(__VA_ARGS__))

enum sol_status builder_create(struct token_builder *b, const char *name);
void builder_destroy(struct token_builder *b); /* with the tokenizer, unless it was taken */

/* Room for tokens 0..count-1 whose bytes are `total` at most; `n_special` of them are found by
 * name. */
enum sol_status builder_allocate(struct token_builder *b, size_t count, size_t total,
                                 size_t n_special);
static inline bool token_kind_special(enum token_kind kind)
{
    return kind == TOKEN_UNKNOWN || kind == TOKEN_CONTROL || kind == TOKEN_USER;
}

/* Token `id`, each once and in order. Its bytes; of an unused one they are ignored. _spelled takes
 * normal tokens in GPT-2's alphabet, others as they are. */
enum sol_status builder_add(struct token_builder *b, int32_t id, enum token_kind kind,
                            const char *bytes, size_t length);
enum sol_status builder_add_spelled(struct token_builder *b, int32_t id, enum token_kind kind,
                                    const char *text, size_t length);

/* After the last token and before the first merge. */
enum sol_status builder_begin_merges(struct token_builder *b, size_t n_merges);
/* Both halves in GPT-2's alphabet. They and what they make must be tokens. */
enum sol_status builder_add_merge(struct token_builder *b, uint64_t index, const char *left,
                                  size_t left_length, const char *right, size_t right_length);

/* Pieces that are tokens as a whole are taken without merging (ignore_merges, tiktoken). */
void builder_ignore_merges(struct token_builder *b);

/* Finds the stop tokens by name and hands the tokenizer over; `bos` and `eos` are -1 where the file
 * says nothing. */
void builder_finish(struct token_builder *b, int32_t bos, int32_t eos, struct tokenizer **out);

#endif
