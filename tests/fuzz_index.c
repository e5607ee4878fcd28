/* model.safetensors.index.json, as a stranger sends it, beside shards that are what they are: whole
 * ones and broken ones. Only files beside the index may be opened, and every tensor that is
 * accepted can be read. */
#include <string.h>

#include "format/safetensors.h"
#include "sol/status.h"
#include "support/fuzz.h"
#include "support/fuzz_folder.h"

static const struct {
    const char *name, *header, *data;
} shards[] = {
    {"a",
     "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"y\":{\"dtype\":\"F16\","
     "\"shape\":[1,1],\"data_offsets\":[2,4]}}",
     "1234"},
    {"b", "{\"z\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}", "12"},
    {"c", "{\"x\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "1"}, /* x again */
    {"d", "{}", ""},
    {"e", "{\"w\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", "12"}, /* cut off */
};

static void write_shards(void)
{
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
        char file[512];
        uint64_t length = strlen(shards[i].header);
        memcpy(file, &length, sizeof length);
        int n = snprintf(file + 8, sizeof file - 8, "%s%s", shards[i].header, shards[i].data);
        fuzz_write(fuzz_file(shards[i].name), file, 8 + (size_t)n);
    }
}

/* The index's own path; the folder is filled at the first call. */
static const char *index_path(void)
{
    static const char *path;
    if (path) return path;
    write_shards();
    path = fuzz_file("i.json");
    return path;
}

static void check(const struct safetensors *set)
{
    size_t total = 0, files = 0, folder = strlen(fuzz_folder());
    uint64_t sum = 0;
    for (int f = 0; f < safetensors_file_count(set); f++) {
        const char *name = safetensors_file_name(set, f);
        FUZZ_REQUIRE(strncmp(name, fuzz_folder(), folder) == 0 && name[folder] == '/');
        FUZZ_REQUIRE(!strchr(name + folder + 1, '/'));
        files += safetensors_file_size(set, f);
    }
    for (size_t t = 0; t < safetensors_count(set); t++) {
        const struct safetensors_tensor *tensor = safetensors_at(set, t);
        FUZZ_REQUIRE(tensor->file >= 0 && tensor->file < safetensors_file_count(set));
        FUZZ_REQUIRE(safetensors_find(set, tensor->name) == tensor);
        for (size_t b = 0; b < tensor->size; b++) sum += ((const unsigned char *)tensor->data)[b];
        total += tensor->size;
    }
    FUZZ_REQUIRE(total <= files && sum <= 255 * (uint64_t)files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *set;
    fuzz_write(index_path(), data, size);
    enum sol_status status = safetensors_open(index_path(), &set);
    FUZZ_REQUIRE((status == SOL_OK) == (set != NULL));
    if (status == SOL_OK)
        check(set);
    else
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_IO);
    safetensors_close(set);
    return 0;
}
