/* tokenizer.json: whatever is accepted is a tokenizer that gives back every byte. The bytes 1, 2
 * and 3 stand for what every accepted file has, see marks. */
#include <string.h>

#include "support/fuzz.h"
#include "support/fuzz_tokenizer.h"
#include "tok/alphabet.h"
#include "tok/pretokenize.h"
#include "tok/tokenizer.h"

static size_t escape(char *out, const char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '"' || text[i] == '\\') out[n++] = '\\';
        out[n++] = text[i];
    }
    return n;
}

/* "!":0,"\"":1, ... */
static char *write_bytes(void)
{
    static char out[256 * 16];
    size_t at = 0;
    uint8_t order[256];
    alphabet_order(order);
    for (int id = 0; id < 256; id++) {
        char spelled[2];
        size_t n = alphabet_write((const char *)&order[id], 1, spelled);
        out[at++] = '"';
        at += escape(out + at, spelled, n);
        at += (size_t)snprintf(out + at, sizeof out - at, id < 255 ? "\":%d," : "\":%d", id);
    }
    return out;
}

static const struct fuzz_mark *marks(void)
{
    static char pattern[2048];
    static struct fuzz_mark list[] = {
        {1, NULL}, /* the 256 bytes of vocab */
        {2, "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
            "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\3\"},\"behavior\":\"Isolated\","
            "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
            "false}]}"},
        {3, pattern}, /* the split, escaped */
    };
    if (!list[0].text) {
        list[0].text = write_bytes();
        escape(pattern, pretokenize_pattern, strlen(pretokenize_pattern));
    }
    return list;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t;
    size_t length = size;
    char *file = fuzz_expand(data, &length, marks(), 3);
    enum sol_status status = tokenizer_from_json(file, length, "fuzz", &t);
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
