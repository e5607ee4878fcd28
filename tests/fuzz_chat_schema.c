/* JSON schemas as types: both ways end, within their limits. */
#include "chat/json.h"
#include "chat/typescript.h"
#include "support/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text_buffer harmony = {0}, full = {0};
    json_t *schema;
    if (chat_json_read((const char *)data, size, "fuzz", &schema) != SOL_OK) return 0;
    FUZZ_REQUIRE(typescript_schema(schema, CHAT_TYPES_HARMONY, &harmony) == SOL_OK);
    FUZZ_REQUIRE(harmony.length > 0 || json_array_size(json_object_get(schema, "oneOf")) == 0);
    enum sol_status status = typescript_schema(schema, CHAT_TYPES_FULL, &full);
    FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_UNSUPPORTED);
    FUZZ_REQUIRE(full.length > 0 && full.length <= 256 << 10);
    text_buffer_free(&harmony);
    text_buffer_free(&full);
    json_decref(schema);
    return 0;
}
