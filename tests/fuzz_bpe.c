/* Any bytes through split, merges and streaming. The first byte picks the options, the second the
 * size of parts; the rest is text. */
#include <stdbool.h>
#include <string.h>

#include "support/fuzz.h"
#include "tok/pretokenize.h"
#include "tok/tokenizer.h"

/* Made at the first call and kept: it does not change. */
static const struct tokenizer *tokenizer(void)
{
    static struct tokenizer *t;
    if (!t)
        FUZZ_REQUIRE(tokenizer_open(SOL_SOURCE_DIR "/tests/data/tokenizer_small.json", &t) == 0);
    return t;
}

static bool is_utf8(const char *text, size_t length)
{
    uint32_t code;
    for (size_t pos = 0; pos < length;) {
        int size = utf8_decode(text + pos, length - pos, &code);
        FUZZ_REQUIRE(size >= -1 && size <= 4 && size <= (int)(length - pos));
        if (size <= 0) return false;
        FUZZ_REQUIRE(code <= 0x10ffff && (code < 0xd800 || code > 0xdfff));
        pos += (size_t)size;
    }
    return true;
}

static void check_split(const char *text, size_t length)
{
    for (size_t pos = 0; pos < length;) {
        size_t size = pretokenize_next(text + pos, length - pos);
        size_t part = pretokenize_next_part(text + pos, length - pos);
        FUZZ_REQUIRE(size > 0 && size <= length - pos);
        FUZZ_REQUIRE(part == 0 || part == size);
        pos += size;
    }
}

static void check_round_trip(const char *text, size_t length, const struct token_list *ids)
{
    size_t pos = 0;
    for (size_t i = 0; i < ids->count; i++) {
        struct token_bytes token = tokenizer_bytes(tokenizer(), ids->ids[i]);
        FUZZ_REQUIRE(token.length > 0 && token.length <= length - pos);
        FUZZ_REQUIRE(memcmp(token.data, text + pos, token.length) == 0);
        pos += token.length;
    }
    FUZZ_REQUIRE(pos == length);
}

/* A copy that ends where the part ends, so that reading on is seen. */
static size_t encode_part(const char *text, size_t length, bool special, struct token_list *ids)
{
    size_t used;
    char *copy = malloc(length + 1);
    FUZZ_REQUIRE(copy);
    memcpy(copy, text, length);
    FUZZ_REQUIRE(tokenizer_encode_part(tokenizer(), copy, length, special, &used, ids) == SOL_OK);
    FUZZ_REQUIRE(used <= length);
    free(copy);
    return used;
}

static void check_encoding(const char *text, size_t length, bool special, size_t step)
{
    struct token_list whole = {0}, parts = {0};
    size_t pos = 0;
    FUZZ_REQUIRE(tokenizer_encode(tokenizer(), text, length, special, &whole) == SOL_OK);
    check_round_trip(text, length, &whole);
    for (size_t end = step; end < length; end += step)
        pos += encode_part(text + pos, end - pos, special, &parts);
    FUZZ_REQUIRE(tokenizer_encode(tokenizer(), text + pos, length - pos, special, &parts) ==
                 SOL_OK);
    FUZZ_REQUIRE(whole.count == parts.count);
    for (size_t i = 0; i < whole.count; i++) FUZZ_REQUIRE(whole.ids[i] == parts.ids[i]);
    token_list_free(&whole);
    token_list_free(&parts);
}

/* What comes out is what went in; of UTF-8, only whole characters at a time. */
static void check_stream(const char *text, size_t length, size_t step)
{
    struct utf8_stream stream = {{0}, 0};
    bool utf8 = is_utf8(text, length);
    size_t total = 0;
    for (size_t pos = 0; pos < length; pos += step) {
        size_t size = length - pos < step ? length - pos : step;
        char *out = malloc(size + 4);
        FUZZ_REQUIRE(out);
        size_t got = utf8_stream_push(&stream, text + pos, size, out);
        FUZZ_REQUIRE(got <= size + 4 && got <= length - total);
        FUZZ_REQUIRE(memcmp(out, text + total, got) == 0);
        if (utf8) FUZZ_REQUIRE(is_utf8(out, got));
        total += got;
        free(out);
    }
    char rest[4];
    size_t got = utf8_stream_flush(&stream, rest);
    FUZZ_REQUIRE(got == length - total && memcmp(rest, text + total, got) == 0);
    FUZZ_REQUIRE(!utf8 || got == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    bool special = data[0] & 1;
    const char *text = (const char *)data + 2;
    size_t length = size - 2 < 4096 ? size - 2 : 4096;
    /* At most some 8 parts: each is looked at again as long as no piece ends. */
    size_t step = 1 + data[1] % 64 + length / 8;
    check_split(text, length);
    check_encoding(text, length, special, step);
    check_stream(text, length, step);
    return 0;
}
