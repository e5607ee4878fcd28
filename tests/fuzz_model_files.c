/* A Hugging Face folder: config.json and the header of model.safetensors, which must agree. The
 * input is the number of data bytes (two, little-endian), the configuration, a zero byte and the
 * header. Whatever is accepted has a place within its file for every weight. */
#include "model/files.h"

#include <string.h>

#include "sol/status.h"
#include "support/fuzz.h"
#include "support/fuzz_folder.h"

static const char *config_path, *weights_path;

static void write_files(const uint8_t *data, size_t size)
{
    size_t n_data = (size_t)data[0] | (size_t)data[1] << 8;
    const uint8_t *config = data + 2, *zero = memchr(config, 0, size - 2);
    size_t n_config = zero ? (size_t)(zero - config) : size - 2;
    uint64_t n_header = zero ? size - 2 - n_config - 1 : 0;
    if (!config_path) {
        config_path = fuzz_file("config.json");
        weights_path = fuzz_file("model.safetensors");
    }
    unsigned char *file = calloc(1, 8 + n_header + n_data);
    FUZZ_REQUIRE(file);
    memcpy(file, &n_header, sizeof n_header);
    if (n_header) memcpy(file + 8, zero + 1, n_header);
    fuzz_write(config_path, config, n_config);
    fuzz_write(weights_path, file, 8 + n_header + n_data);
    free(file);
}

static void check_span(const struct model_files *files, struct span span)
{
    FUZZ_REQUIRE(span.file >= 0 && span.file < model_files_count(files));
    size_t size = model_files_size(files, span.file);
    FUZZ_REQUIRE(span.offset <= size && span.size <= size - span.offset);
}

/* That the last row of the last group ends within the tensor. */
static void check_place(const struct model_files *files, const struct weight *w,
                        const struct place *p)
{
    struct weight_shape shape = weight_shape(w);
    size_t row = place_row_bytes(w, p);
    check_span(files, p->data);
    FUZZ_REQUIRE(shape.groups >= 1 && shape.rows >= 1 && p->step >= 1 && p->first >= 0);
    FUZZ_REQUIRE(p->first + (shape.rows - 1) * p->step < p->group_rows);
    int64_t rows = p->layout == PLACE_COLUMNS ? shape.cols : p->group_rows;
    FUZZ_REQUIRE(row > 0 && (uint64_t)shape.groups * (uint64_t)rows <= p->data.size / row);
    if (p->layout != PLACE_HF_PAIR) return;
    check_span(files, p->scales);
    FUZZ_REQUIRE(p->scales.size * 16 == p->data.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_files *files;
    if (size < 2) return 0;
    write_files(data, size);
    enum sol_status status = model_files_open(fuzz_folder(), &files);
    FUZZ_REQUIRE((status == SOL_OK) == (files != NULL));
    if (status == SOL_OK) {
        for (int64_t i = 0; i < weight_count(&files->config); i++) {
            struct weight w = weight_at(&files->config, i);
            check_place(files, &w, &files->places[i]);
        }
    } else {
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED);
    }
    model_files_close(files);
    return 0;
}
