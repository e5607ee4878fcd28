/* .tiktoken: whatever is accepted is a tokenizer that gives back every byte. The byte 1 stands for
 * the lines of the 256 bytes. */
#include <string.h>

#include "support/fuzz.h"
#include "support/fuzz_tokenizer.h"
#include "tok/tokenizer.h"

static const struct fuzz_mark *marks(void)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char lines[256 * 16];
    static struct fuzz_mark list[] = {{1, lines}};
    if (lines[0]) return list;
    size_t at = 0;
    for (int byte = 0; byte < 256; byte++)
        at += (size_t)snprintf(lines + at, sizeof lines - at, "%c%c== %d\n", digits[byte >> 2],
                               digits[byte << 4 & 63], byte);
    return list;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t;
    size_t length = size;
    char *file = fuzz_expand(data, &length, marks(), 1);
    enum sol_status status = tokenizer_from_tiktoken(file, length, "fuzz", &t);
    if (status == SOL_OK) {
        fuzz_tokenizer_use(t, (const char *)data, size);
        tokenizer_destroy(t);
    } else {
        FUZZ_REQUIRE(!t && strncmp(sol_last_error(), "'fuzz': tokenizer: ", 19) == 0);
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED);
    }
    free(file);
    return 0;
}
