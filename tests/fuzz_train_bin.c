/* Token files: whatever is accepted holds the tokens that it says, in the input; and a file that is
 * read as a corpus gives documents that cover it, or an error that names it. */
#include <string.h>

#include "support/fuzz.h"
#include "support/fuzz_folder.h"
#include "train/data_bin.h"
#include "train/data_corpus.h"

enum { VOCAB = 1000 };

static void check_file(const uint8_t *data, size_t size, int width)
{
    struct token_file file;
    unsigned char *copy = malloc(size ? size : 1); /* exactly as long, for the sanitizer */
    FUZZ_REQUIRE(copy);
    if (size) memcpy(copy, data, size);
    enum sol_status status = token_file_read(copy, size, "fuzz", width, &file);
    if (status == SOL_OK) {
        uint64_t sum = 0;
        FUZZ_REQUIRE(file.width == 2 || file.width == 4);
        FUZZ_REQUIRE(file.vocab >= 0 && file.bos >= -1 &&
                     (file.vocab == 0 || file.bos < file.vocab));
        for (uint64_t i = 0; i < file.count; i++) sum += token_file_at(&file, i);
        FUZZ_REQUIRE(sum <= file.count * UINT32_MAX);
    } else {
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED);
        FUZZ_REQUIRE(strncmp(sol_last_error(), "'fuzz'", 6) == 0);
    }
    free(copy);
}

/* Documents of one epoch follow each other without gaps. */
static void check_documents(const struct corpus *corpus, uint64_t part)
{
    struct corpus_cursor cursor = corpus_start(corpus);
    uint64_t at = cursor.offset, all = 0;
    struct token_list ids = {0};
    for (;;) {
        struct corpus_document d;
        enum sol_status status = corpus_next(corpus, part, &cursor, &d);
        if (status != SOL_OK) {
            FUZZ_REQUIRE(status == SOL_E_FORMAT && corpus_info(corpus).tokens == 0);
            break;
        }
        if (cursor.epoch > 1) break;
        FUZZ_REQUIRE(d.file == 0 && d.offset == at && d.size > 0 && cursor.offset == at + d.size);
        at += d.size;
        all += d.size;
        ids.count = 0;
        status = corpus_encode(corpus, &d, NULL, &ids);
        if (status != SOL_OK) {
            FUZZ_REQUIRE(status == SOL_E_FORMAT &&
                         strstr(sol_last_error(), "the model's vocabulary has"));
            continue;
        }
        FUZZ_REQUIRE(ids.count == d.size || (ids.count == d.size + 1 && d.first));
        for (size_t i = 0; i < ids.count; i++) FUZZ_REQUIRE(ids.ids[i] >= 0 && ids.ids[i] < VOCAB);
    }
    FUZZ_REQUIRE(all == corpus_info(corpus).tokens);
    token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *path;
    struct corpus_options options;
    if (!path) path = fuzz_file("tokens.bin");
    check_file(data, size, 2);
    check_file(data, size, 4);
    corpus_options_init(&options);
    options.path = path;
    options.vocab = VOCAB;
    fuzz_write(options.path, data, size);
    for (int way = 0; way < 4; way++) {
        struct corpus *corpus;
        options.val_path = way % 2 ? NULL : options.path;
        options.bos = way / 2 ? 1 : -1;
        enum sol_status status =
            corpus_open(&options, way % 2 ? CORPUS_VAL : CORPUS_TRAIN, &corpus);
        FUZZ_REQUIRE((status == SOL_OK) == (corpus != NULL));
        if (status != SOL_OK) {
            FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED ||
                         status == SOL_E_ARGUMENT);
            continue;
        }
        check_documents(corpus, 0);
        check_documents(corpus, 3);
        corpus_close(corpus);
    }
    return 0;
}
