/* JSON of a request to a server, from anybody: /v1/chat/completions where the first byte is even,
 * else /v1/responses, then what followed it as its history. What is accepted can be rendered, and
 * what is refused has a message and says where the fault is. */
#include <string.h>

#include "chat/json.h"
#include "chat/render.h"
#include "serve/api_request.h"
#include "support/chat.h"
#include "support/fuzz.h"

static struct api_reader reader;

static void set_up(void)
{
    if (reader.schemas) return;
    FUZZ_REQUIRE(schema_cache_create(&reader.schemas) == SOL_OK);
    FUZZ_REQUIRE(recall_create(1 << 16, &reader.recall) == SOL_OK);
    reader.key = key_of_everybody();
    reader.format = &chat_harmony;
    reader.today = "2026-11-24";
    api_remember(reader.recall, 0, CHAT_TEXT("c"), CHAT_TEXT("thought"));
}

static void render(const struct api_request *request)
{
    static struct chat_vocabulary v;
    struct token_list ids = {0};
    struct render_options options = {.next = CHAT_ASSISTANT, .history = CHAT_HISTORY_OPEN};
    if (!v.tokenizer) chat_builtin(&v);
    FUZZ_REQUIRE(request->date && strlen(request->date) == 10);
    FUZZ_REQUIRE(request->job.n >= 1 && request->job.n <= JOB_CHOICES_MAX);
    FUZZ_REQUIRE(request->job.n_stops <= JOB_STOPS_MAX && request->job.limit >= 0);
    enum sol_status status = render_conversation(&v, request->conversation, &options, &ids);
    FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_UNSUPPORTED); /* a schema without an end */
    token_list_free(&ids);
}

static bool read_one(bool chat, json_t *json, json_t *history, json_t **items)
{
    struct api_request *request;
    struct api_fault fault;
    enum sol_status status =
        chat ? api_read_chat(&reader, json, &fault, &request)
             : api_read_response(&reader, json, history, NULL, &fault, &request);
    FUZZ_REQUIRE((status == SOL_OK) == (request != NULL));
    if (status != SOL_OK) {
        FUZZ_REQUIRE(*fault.param && *sol_last_error());
        FUZZ_REQUIRE(status == SOL_E_ARGUMENT || status == SOL_E_UNSUPPORTED ||
                     status == SOL_E_FORMAT);
        return false;
    }
    render(request);
    if (!chat && items) *items = api_input_items(json);
    api_request_destroy(request);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json, *items = NULL;
    if (size == 0) return 0;
    set_up();
    if (chat_json_read((const char *)data + 1, size - 1, "fuzz", &json) != SOL_OK) return 0;
    if (json_is_object(json) && read_one(data[0] % 2 == 0, json, NULL, &items) && items)
        read_one(false, json, items, NULL);
    json_decref(items);
    json_decref(json);
    return 0;
}
