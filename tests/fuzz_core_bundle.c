/* Folders of CORE's tasks: up to the first zero byte core.yaml, behind it eval_meta_data.csv. What
 * is accepted is whole, and errors name one of the two. */
#include <string.h>

#include "support/fuzz.h"
#include "support/fuzz_folder.h"
#include "train/core_bundle.h"

static void check_bundle(const struct core_bundle *b)
{
    FUZZ_REQUIRE(b->count > 0);
    for (size_t i = 0; i < b->count; i++) {
        const struct core_entry *e = &b->entries[i];
        FUZZ_REQUIRE(e->label && e->delimiter && e->options.delimiter == e->delimiter);
        FUZZ_REQUIRE(e->path && strstr(e->path, "/eval_data/"));
        FUZZ_REQUIRE(e->baseline >= 0 && e->baseline < 100);
        FUZZ_REQUIRE(e->options.kind <= CORE_LANGUAGE_MODELING && e->options.max_items == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *yaml, *csv;
    struct core_bundle *bundle;
    if (!yaml) {
        yaml = fuzz_file("core.yaml");
        csv = fuzz_file("eval_meta_data.csv");
    }
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    const size_t first = zero ? (size_t)(zero - data) : size;
    fuzz_write(yaml, data, first);
    fuzz_write(csv, data + first + (zero != NULL), size - first - (zero != NULL));
    enum sol_status status = core_bundle_open(fuzz_folder(), &bundle);
    FUZZ_REQUIRE((status == SOL_OK) == (bundle != NULL));
    if (status == SOL_OK) {
        check_bundle(bundle);
        core_bundle_close(bundle);
    } else {
        FUZZ_REQUIRE(status == SOL_E_FORMAT);
        FUZZ_REQUIRE(strstr(sol_last_error(), "core.yaml'") ||
                     strstr(sol_last_error(), "eval_meta_data.csv'"));
    }
    return 0;
}
