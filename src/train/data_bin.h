/* Token files: a text that was tokenized before. Three kinds are read, told apart by their first
 * bytes; all are little-endian.
 *
 * sol's own: a header of 64 bytes, then the tokens.
 *    0  8 bytes  "soltoken"
 *    8  uint32   1, the version
 *   12  uint32   bytes a token has, 2 or 4
 *   16  uint64   tokens that follow
 *   24  uint32   size of the vocabulary: all tokens are below it
 *   28  int32    the token that begins every document, -1: none does
 *   32  uint64   tokenizer_hash of the vocabulary, 0: unknown
 *   40  24 bytes 0
 * llm.c's (source: karpathy/llm.c, dev/data/data_common.py): 256 int32, the first three of them
 * magic, version and how many tokens follow. Magic 20240520, version 1: uint16 tokens of GPT-2.
 * Magic 20240801, version 7: uint32 tokens of Llama 3. Anything else is taken for tokens without a
 * header, as nanoGPT's prepare.py writes them. */
#ifndef TRAIN_DATA_BIN_H
#define TRAIN_DATA_BIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sol/status.h"

enum token_file_kind { TOKEN_FILE_SOL, TOKEN_FILE_LLMC, TOKEN_FILE_PLAIN };

enum { TOKEN_FILE_HEADER = 64 };

struct token_file {
    enum token_file_kind kind;
    const unsigned char *tokens; /* in the caller's memory */
    uint64_t count;
    int width;     /* bytes of a token, 2 or 4 */
    int64_t vocab; /* of the header, 0: it says nothing */
    int32_t bos;   /* begins documents; -1: the file says nothing, or none does */
    uint64_t hash; /* of the vocabulary, 0: unknown */
};

/* `plain_width` is that of tokens without a header. SOL_E_FORMAT names the file and what is wrong
 * with it: a header that makes no sense, more or fewer bytes than it says. Tokens are not looked
 * at. */
enum sol_status token_file_read(const void *data, size_t size, const char *name, int plain_width,
                                struct token_file *out);

static inline uint32_t token_file_at(const struct token_file *file, uint64_t index)
{
    const unsigned char *at = file->tokens + index * (unsigned)file->width;
    uint32_t low = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    return file->width == 2 ? low : low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The header of sol's own kind, for who writes one. `width` is 2 or 4. */
void token_file_header(unsigned char out[TOKEN_FILE_HEADER], int width, uint64_t count,
                       int64_t vocab, int32_t bos, uint64_t hash);

#endif
