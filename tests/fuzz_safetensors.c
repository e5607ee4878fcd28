/* A safetensors file as a stranger sends it. */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "sol/status.h"
#include "support/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t sum = 0;
    struct safetensors *set;
    unsigned char *copy = malloc(size ? size : 1); /* exactly as long, for the sanitizer */
    FUZZ_REQUIRE(copy);
    if (size) memcpy(copy, data, size);
    /* Eight random bytes are hardly ever the length of what follows: half of the inputs get the
     * right one. */
    if (size >= 8 && copy[7] & 1) {
        uint64_t rest = size - 8, header = copy[6] < 128 ? rest : rest - rest * copy[6] / 1024;
        memcpy(copy, &header, sizeof header);
    }
    enum sol_status status = safetensors_open_memory(copy, size, "fuzz", &set);
    FUZZ_REQUIRE((status == SOL_OK) == (set != NULL));
    if (status == SOL_OK) {
        size_t total = 0;
        for (size_t t = 0; t < safetensors_count(set); t++) {
            const struct safetensors_tensor *tensor = safetensors_at(set, t);
            for (size_t b = 0; b < tensor->size; b++)
                sum += ((const unsigned char *)tensor->data)[b];
            FUZZ_REQUIRE(safetensors_find(set, tensor->name) == tensor);
            total += tensor->size;
        }
        FUZZ_REQUIRE(total < size && sum <= 255 * (uint64_t)size);
    } else {
        FUZZ_REQUIRE(status == SOL_E_FORMAT);
    }
    safetensors_close(set);
    free(copy);
    return 0;
}
