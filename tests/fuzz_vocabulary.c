/* The files that a conversion takes a vocabulary from: the input is tokenizer.json, and at the same
 * time the configurations that name special tokens. */
#include <string.h>
#include <unistd.h>

#include "support/fuzz.h"
#include "support/fuzz_folder.h"
#include "tok/vocabulary.h"

enum { ROWS = 24 };

/* One file under four names. */
static const char *input_path(void)
{
    static const char *const others[] = {"tokenizer_config.json", "config.json",
                                         "generation_config.json", "chat_template.jinja"};
    static const char *path;
    if (path) return path;
    path = fuzz_file("tokenizer.json");
    fuzz_write(path, "", 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        FUZZ_REQUIRE(link(path, fuzz_file(others[i])) == 0);
    return path;
}

static void check_id(const struct vocabulary *v, int64_t id)
{
    FUZZ_REQUIRE(id >= -1 && id < v->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vocabulary *v;
    size_t length = 0;
    fuzz_write(input_path(), data, size);
    enum sol_status status = vocabulary_from_folder(fuzz_folder(), ROWS, &v);
    FUZZ_REQUIRE((status == SOL_OK) == (v != NULL));
    if (status != SOL_OK) {
        FUZZ_REQUIRE(status == SOL_E_FORMAT);
        return 0;
    }
    FUZZ_REQUIRE(v->count == ROWS);
    for (int64_t id = 0; id < v->count; id++) {
        FUZZ_REQUIRE(v->kinds[id] >= TOKEN_NORMAL && v->kinds[id] <= TOKEN_UNUSED);
        length += strlen(v->tokens[id]);
    }
    for (size_t i = 0; i < v->n_merges; i++) length += strlen(v->merges[i]);
    check_id(v, v->bos), check_id(v, v->eos), check_id(v, v->pad);
    FUZZ_REQUIRE(length <= 2 * size + (size_t)ROWS * 8);
    vocabulary_destroy(v);
    return 0;
}
