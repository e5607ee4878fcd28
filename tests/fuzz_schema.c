/* Schemas from strangers: whatever is accepted can be written to its end. The first byte picks the
 * white space, then comes the schema; each byte behind it picks the next byte of a text among those
 * that are legal. */
#include <string.h>

#include "grammar/matcher.h"
#include "support/fuzz.h"

/* The pick-th legal byte, and goes there; -1 where none is. */
static int go_on(struct matcher *m, unsigned pick)
{
    int legal[256], n = 0;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        if (matcher_advance(m, &byte, 1) != SOL_OK) continue;
        FUZZ_REQUIRE(matcher_rollback(m, 1) == SOL_OK);
        legal[n++] = b;
    }
    if (n == 0) return -1;
    char byte = (char)legal[pick % (unsigned)n];
    FUZZ_REQUIRE(matcher_advance(m, &byte, 1) == SOL_OK);
    return legal[pick % (unsigned)n];
}

/* Without a pick the first legal byte that ends something. */
static void check_text(const struct grammar *grammar, const uint8_t *picks, size_t n)
{
    struct matcher *m;
    char text[160], forced[16];
    size_t length = 0;
    FUZZ_REQUIRE(matcher_create(grammar, &m) == SOL_OK);
    while (length < sizeof text && length < n + 32 && !matcher_ended(m)) {
        size_t must = matcher_forced(m, forced, sizeof forced);
        int byte = go_on(m, length < n ? picks[length] : 0);
        FUZZ_REQUIRE(byte >= 0); /* no dead end */
        FUZZ_REQUIRE(must == 0 || (unsigned char)forced[0] == byte);
        text[length++] = (char)byte;
    }
    if (matcher_accepts(m)) {
        json_error_t error;
        json_t *value = json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        FUZZ_REQUIRE(value || json_error_code(&error) == json_error_numeric_overflow);
        json_decref(value);
    }
    matcher_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar *grammar;
    json_error_t error;
    if (size < 2) return 0;
    json_t *schema = json_loadb((const char *)data + 1, size - 1,
                                JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &error);
    if (!schema) return 0;
    size_t used = (size_t)error.position + 1;
    enum grammar_space space = data[0] & 1 ? GRAMMAR_SPACE_NONE : GRAMMAR_SPACE_ONE;
    enum sol_status status = grammar_from_schema(schema, space, &grammar);
    json_decref(schema);
    if (status == SOL_OK) {
        check_text(grammar, data + used, used < size ? size - used : 0);
        grammar_destroy(grammar);
    } else {
        FUZZ_REQUIRE(!grammar && sol_last_error()[0] == '#');
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED);
    }
    return 0;
}
