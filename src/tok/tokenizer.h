/* Byte-level BPE as gpt-oss uses it (o200k). Any bytes go in and the same bytes come out. Immutable
 * after creation, safe to share between threads. */
#ifndef TOK_TOKENIZER_H
#define TOK_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/gguf.h"
#include "sol/status.h"

struct tokenizer;

/* From tokenizer.ggml.{model,pre,tokens,merges,token_type,bos_token_id,eos_token_id}; model must be
 * gpt2. Nothing of the file is needed afterwards. */
enum sol_status tokenizer_from_gguf(const struct gguf *file, struct tokenizer **out);

/* tokenizer.json of the `tokenizers` library: a BPE model over bytes with the o200k split. Whatever
 * would change the ids and is not served here (normalizers, other splits, byte_fallback, ...) is
 * refused by name (SOL_E_UNSUPPORTED). Beginning of text is <|startoftext|>, else <|bos|>, where
 * there is one; it is never added by itself. `name` is for messages. */
enum sol_status tokenizer_from_json(const char *data, size_t size, const char *name,
                                    struct tokenizer **out);

/* .tiktoken: lines "base64 rank", ranks 0, 1, 2, ... The format knows neither split nor special
 * tokens: the split is o200k's, and the special tokens of o200k_harmony follow the last rank (in
 * o200k_base.tiktoken that gives them their own ids, 199998 to 200018). */
enum sol_status tokenizer_from_tiktoken(const char *data, size_t size, const char *name,
                                        struct tokenizer **out);

/* A GGUF, tokenizer.json or .tiktoken file, told apart by content, or a folder with one. Errors
 * name the file, the entry and the fault. */
enum sol_status tokenizer_open(const char *path, struct tokenizer **out);
/* tokenizer.json in `dir`, else its only .tiktoken file, else its only .gguf file. */
enum sol_status tokenizer_from_directory(const char *dir, struct tokenizer **out);
void tokenizer_destroy(struct tokenizer *tokenizer); /* takes NULL */

int32_t tokenizer_vocab(const struct tokenizer *tokenizer);
/* Appends the ids of `text` to *ids (grown with realloc; caller frees). Special tokens written out
 * in the text are plain text unless `special` is set. */
struct token_list {
    int32_t *ids;
    size_t count, capacity;
};
void token_list_free(struct token_list *list);
enum sol_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                                 bool special, struct token_list *ids);

/* The same for text that comes in parts: appends the ids of as much of `text` as does not depend on
 * what may follow, and says in *used how many bytes that was; 0 when more is needed. The caller
 * passes the rest again with more behind it, and the last of it to tokenizer_encode. All ids
 * together are those of the whole text. */
enum sol_status tokenizer_encode_part(const struct tokenizer *tokenizer, const char *text,
                                      size_t length, bool special, size_t *used,
                                      struct token_list *ids);

/* The bytes of one token (borrowed); control tokens give their name. Length 0 for an id that is no
 * token. */
struct token_bytes {
    const char *data;
    size_t length;
};
struct token_bytes tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id);
bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t id); /* control or unused */
bool tokenizer_is_stop(const struct tokenizer *tokenizer,
                       int32_t id); /* return, call, endoftext, bos, assistant_end, eos */
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* -1 when there is none */
/* What texts that a model is trained on or scored by begin with: that, else <|endoftext|>; -1. */
int32_t tokenizer_begin(const struct tokenizer *tokenizer);
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *token); /* by name; -1 */

/* Says whether two vocabularies have the same tokens at the same ids; the same on every machine,
 * and never 0. */
uint64_t tokenizer_hash(const struct tokenizer *tokenizer);

/* Streaming output that never splits a UTF-8 character: bytes are held back until the character is
 * complete or cannot become one. */
struct utf8_stream {
    char held[4];
    int n_held;
};
/* Writes what may be shown after these bytes; `out` has room for length + 4. Returns its length. */
size_t utf8_stream_push(struct utf8_stream *stream, const char *data, size_t length, char *out);
size_t utf8_stream_flush(struct utf8_stream *stream, char *out);

#endif
