#include "support/fuzz_tokenizer.h"

#include <string.h>

#include "support/fuzz.h"

enum {
    IDS_MAX = 1024,  /* ids looked at from either end: an id of 65535 makes as many */
    TOKENS_MAX = 64, /* of several bytes that are encoded */
    TEXT_MAX = 4096,
};

char *fuzz_expand(const void *data, size_t *size, const struct fuzz_mark *marks, size_t n_marks)
{
    char *text = malloc(*size ? *size : 1);
    FUZZ_REQUIRE(text);
    if (*size) memcpy(text, data, *size);
    for (size_t m = 0; m < n_marks; m++) {
        char *found = memchr(text, marks[m].byte, *size);
        if (!found) continue;
        size_t before = (size_t)(found - text), after = *size - before - 1;
        size_t more = strlen(marks[m].text), total = before + more + after;
        char *longer = malloc(total ? total : 1);
        FUZZ_REQUIRE(longer);
        memcpy(longer, text, before);
        memcpy(longer + before, marks[m].text, more);
        memcpy(longer + before + more, found + 1, after);
        free(text);
        text = longer;
        *size = total;
    }
    return text;
}

static void check_text(const struct tokenizer *t, struct token_list *ids, const char *text,
                       size_t length)
{
    size_t pos = 0;
    ids->count = 0;
    FUZZ_REQUIRE(tokenizer_encode(t, text, length, true, ids) == SOL_OK);
    for (size_t i = 0; i < ids->count; i++) {
        struct token_bytes token = tokenizer_bytes(t, ids->ids[i]);
        FUZZ_REQUIRE(token.length > 0 && token.length <= length - pos);
        FUZZ_REQUIRE(memcmp(token.data, text + pos, token.length) == 0);
        pos += token.length;
    }
    FUZZ_REQUIRE(pos == length);
}

void fuzz_tokenizer_use(const struct tokenizer *t, const char *file, size_t size)
{
    static const char text[] = "Hello, hello\n\n <|end|>\xff\xc3\xa9 12345 aaaaaaaa'll";
    struct token_list ids = {0};
    char bytes[256];
    int32_t count = tokenizer_vocab(t);
    int tokens = 0;
    for (int32_t id = -1; id <= count; id++) {
        if (id == IDS_MAX && count > 2 * IDS_MAX) id = count - IDS_MAX;
        (void)tokenizer_is_control(t, id);
        (void)tokenizer_is_stop(t, id);
        struct token_bytes token = tokenizer_bytes(t, id);
        if (token.length > 1 && tokens++ < TOKENS_MAX)
            check_text(t, &ids, token.data, token.length);
    }
    for (int b = 0; b < 256; b++) bytes[b] = (char)b;
    check_text(t, &ids, bytes, sizeof bytes);
    check_text(t, &ids, text, sizeof text - 1);
    check_text(t, &ids, file, size < TEXT_MAX ? size : TEXT_MAX);
    token_list_free(&ids);
}
