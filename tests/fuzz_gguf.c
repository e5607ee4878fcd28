/* A GGUF file as a stranger sends it: opening, everything that the reader then promises can be
 * read, and the tokenizer, the vocabulary and the model that it might be. */
#include "format/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "model/files.h"
#include "sol/status.h"
#include "support/fuzz.h"
#include "tok/tokenizer.h"
#include "tok/vocabulary.h"

static uint64_t read_all(const struct gguf *file)
{
    uint64_t sum = 0;
    for (size_t t = 0; t < gguf_tensor_count(file); t++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(file, t);
        for (size_t b = 0; b < tensor->size; b++) sum += ((const unsigned char *)tensor->data)[b];
    }
    for (size_t k = 0; k < gguf_key_count(file); k++) {
        char key[64], value[64];
        gguf_key_describe(file, k, key, sizeof key, value, sizeof value);
        sum += (unsigned char)value[0];
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *file;
    struct tokenizer *tokenizer;
    struct vocabulary *vocabulary;
    struct model_files *files;
    void *copy = malloc(size ? size : 1); /* aligned, and exactly as long */
    FUZZ_REQUIRE(copy);
    memcpy(copy, data, size);
    enum sol_status status = gguf_open_memory(copy, size, "fuzz", &file);
    FUZZ_REQUIRE((status == SOL_OK) == (file != NULL));
    if (status == SOL_OK) {
        FUZZ_REQUIRE(read_all(file) <=
                     256 * ((uint64_t)size + 256)); /* a use, so that the reading stays */
        if (tokenizer_from_gguf(file, &tokenizer) == SOL_OK) tokenizer_destroy(tokenizer);
        if (vocabulary_from_gguf(file, &vocabulary) == SOL_OK) vocabulary_destroy(vocabulary);
        if (model_files_from_gguf(file, &files) == SOL_OK) model_files_close(files);
    } else {
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED);
    }
    free(copy);
    return 0;
}
