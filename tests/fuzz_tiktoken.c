/* .tiktoken: whatever is accepted is a tokenizer that gives back every byte. */
#include <string.h>

#include "model/tokenizer.h"
#include "support/fuzz.h"

static void use(const struct tokenizer *t, const char *text, size_t length)
{
    struct token_list ids = {0};
    size_t pos = 0;
    FUZZ_REQUIRE(tokenizer_encode(t, text, length, true, &ids) == SOL_OK);
    for (size_t i = 0; i < ids.count; i++) {
        struct token_bytes token = tokenizer_bytes(t, ids.ids[i]);
        FUZZ_REQUIRE(token.length > 0 && token.length <= length - pos);
        FUZZ_REQUIRE(memcmp(token.data, text + pos, token.length) == 0);
        pos += token.length;
    }
    FUZZ_REQUIRE(pos == length);
    token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "Hello, hello\n\n <|end|>\xff\xc3\xa9 12345 aaaaaaaa'll";
    struct tokenizer *t;
    enum sol_status status = tokenizer_from_tiktoken((const char *)data, size, "fuzz", &t);
    if (status != SOL_OK) {
        FUZZ_REQUIRE(!t && strncmp(sol_last_error(), "'fuzz': tokenizer: ", 19) == 0);
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED);
        return 0;
    }
    for (int32_t id = -1; id <= tokenizer_vocab(t); id++) {
        (void)tokenizer_is_control(t, id);
        (void)tokenizer_is_stop(t, id);
        struct token_bytes token = tokenizer_bytes(t, id);
        if (token.length) use(t, token.data, token.length);
    }
    use(t, text, sizeof text - 1);
    use(t, (const char *)data, size < 4096 ? size : 4096);
    tokenizer_destroy(t);
    return 0;
}
