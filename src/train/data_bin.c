#include "train/data_bin.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/status.h"

enum {
    LLMC_HEADER = 1024,
    GPT2_VOCAB = 50257, /* <|endoftext|>, the last, begins documents */
    LLAMA3_VOCAB = 128256,
    LLAMA3_BOS = 128000,
};

static const char own_magic[8] = {'s', 'o', 'l', 't', 'o', 'k', 'e', 'n'};

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> 8 * i);
}

/* What follows the header must be `count` tokens. */
static enum sol_status check_length(const struct token_file *file, size_t bytes, const char *name)
{
    uint64_t there = bytes / (unsigned)file->width;
    if (there < file->count)
        return status_set(SOL_E_FORMAT,
                          "'%s' is truncated: its header says %" PRIu64 " tokens, and %" PRIu64
                          " follow",
                          name, file->count, there);
    if (there > file->count || bytes % (unsigned)file->width)
        return status_set(SOL_E_FORMAT,
                          "'%s': its header says %" PRIu64
                          " tokens of %d bytes, and %zu bytes follow",
                          name, file->count, file->width, bytes);
    return SOL_OK;
}

static enum sol_status read_own(const unsigned char *data, size_t size, const char *name,
                                struct token_file *out)
{
    if (size < TOKEN_FILE_HEADER)
        return status_set(SOL_E_FORMAT, "'%s' is truncated: %zu bytes of a header of %d", name,
                          size, TOKEN_FILE_HEADER);
    uint64_t version = get(data + 8, 4), width = get(data + 12, 4), vocab = get(data + 24, 4);
    int32_t bos = (int32_t)get(data + 28, 4);
    if (version != 1)
        return status_set(SOL_E_UNSUPPORTED, "'%s': token file of version %" PRIu64 "; 1 is known",
                          name, version);
    if (width != 2 && width != 4)
        return status_set(SOL_E_FORMAT, "'%s': tokens of %" PRIu64 " bytes; 2 or 4 are possible",
                          name, width);
    if (vocab < 1 || vocab > INT32_MAX)
        return status_set(SOL_E_FORMAT, "'%s': a vocabulary of %" PRIu64 " tokens", name, vocab);
    if (bos < -1 || bos >= (int64_t)vocab)
        return status_set(SOL_E_FORMAT,
                          "'%s': documents begin with token %d of a vocabulary of %" PRIu64, name,
                          bos, vocab);
    *out = (struct token_file){.kind = TOKEN_FILE_SOL,
                               .tokens = data + TOKEN_FILE_HEADER,
                               .count = get(data + 16, 8),
                               .width = (int)width,
                               .vocab = (int64_t)vocab,
                               .bos = bos,
                               .hash = get(data + 32, 8)};
    return check_length(out, size - TOKEN_FILE_HEADER, name);
}

static enum sol_status read_llmc(const unsigned char *data, size_t size, const char *name,
                                 bool llama, struct token_file *out)
{
    if (size < LLMC_HEADER)
        return status_set(SOL_E_FORMAT, "'%s' is truncated: %zu bytes of llm.c's header of %d",
                          name, size, LLMC_HEADER);
    uint64_t version = get(data + 4, 4), known = llama ? 7 : 1, count = get(data + 8, 4);
    if (version != known)
        return status_set(SOL_E_UNSUPPORTED,
                          "'%s': llm.c's token file of version %" PRIu64 "; %" PRIu64 " is known",
                          name, version, known);
    if (count > INT32_MAX)
        return status_set(SOL_E_FORMAT, "'%s': its header says %d tokens", name, (int32_t)count);
    *out = (struct token_file){.kind = TOKEN_FILE_LLMC,
                               .tokens = data + LLMC_HEADER,
                               .count = count,
                               .width = llama ? 4 : 2,
                               .vocab = llama ? LLAMA3_VOCAB : GPT2_VOCAB,
                               .bos = llama ? LLAMA3_BOS : GPT2_VOCAB - 1};
    return check_length(out, size - LLMC_HEADER, name);
}

enum sol_status token_file_read(const void *data, size_t size, const char *name, int plain_width,
                                struct token_file *out)
{
    const unsigned char *bytes = data;
    uint64_t magic = size >= 4 ? get(bytes, 4) : 0;
    *out = (struct token_file){0};
    if (size >= sizeof own_magic && memcmp(bytes, own_magic, sizeof own_magic) == 0)
        return read_own(bytes, size, name, out);
    if (magic == 20240520 || magic == 20240801)
        return read_llmc(bytes, size, name, magic == 20240801, out);
    *out = (struct token_file){.kind = TOKEN_FILE_PLAIN,
                               .tokens = bytes,
                               .count = size / (unsigned)plain_width,
                               .width = plain_width,
                               .bos = -1};
    if (size % (unsigned)plain_width == 0) return SOL_OK;
    return status_set(SOL_E_FORMAT,
                      "'%s' has no header, and its %zu bytes are no whole tokens of %d bytes", name,
                      size, plain_width);
}

void token_file_header(unsigned char out[TOKEN_FILE_HEADER], int width, uint64_t count,
                       int64_t vocab, int32_t bos, uint64_t hash)
{
    memset(out, 0, TOKEN_FILE_HEADER);
    memcpy(out, own_magic, sizeof own_magic);
    put(out + 8, 1, 4);
    put(out + 12, (uint64_t)width, 4);
    put(out + 16, count, 8);
    put(out + 24, (uint64_t)vocab, 4);
    put(out + 28, (uint32_t)bos, 4);
    put(out + 32, hash, 8);
}
