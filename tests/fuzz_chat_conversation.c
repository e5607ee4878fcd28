/* JSON of a conversation, from anybody. What is accepted can be rendered or is refused with a
 * message; written as JSON again it has the same tokens; and its tokens can be parsed. */
#include <string.h>

#include "chat/json.h"
#include "chat/parser.h"
#include "chat/render.h"
#include "support/chat.h"
#include "support/fuzz.h"

static const struct chat_vocabulary *vocabulary(void)
{
    static struct chat_vocabulary v;
    if (!v.tokenizer) chat_builtin(&v);
    return &v;
}

static enum sol_status render(const struct conversation *c, bool full, bool open,
                              struct token_list *ids)
{
    struct render_options options = {.next = CHAT_ASSISTANT,
                                     .types = full ? CHAT_TYPES_FULL : CHAT_TYPES_HARMONY,
                                     .history = open ? CHAT_HISTORY_OPEN : CHAT_HISTORY_ALL};
    enum sol_status status = render_conversation(vocabulary(), c, &options, ids);
    FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_FORMAT ||
                 (full && status == SOL_E_UNSUPPORTED));
    return status;
}

static void check_again(const struct conversation *c, const struct token_list *ids)
{
    struct conversation *again;
    struct token_list same = {0};
    json_t *list = json_array();
    for (size_t i = 0; i < conversation_count(c); i++)
        json_array_append_new(list, chat_message_json(conversation_message(c, i)));
    json_t *json = json_pack("{s:o}", "messages", list);
    FUZZ_REQUIRE(conversation_create(&again) == SOL_OK);
    FUZZ_REQUIRE(conversation_add_json(again, json) == SOL_OK);
    json_decref(json);
    FUZZ_REQUIRE(render(again, false, false, &same) == SOL_OK && same.count == ids->count);
    FUZZ_REQUIRE(memcmp(same.ids, ids->ids, same.count * sizeof *same.ids) == 0);
    token_list_free(&same);
    conversation_destroy(again);
}

static void check_parsed(const struct chat_vocabulary *v, const struct token_list *ids)
{
    struct chat_parser *p;
    struct chat_step step;
    FUZZ_REQUIRE(chat_parser_create(v, CHAT_NOBODY, &p) == SOL_OK);
    for (size_t i = 0; i < ids->count; i++)
        FUZZ_REQUIRE(chat_parser_push(p, ids->ids[i], &step) == SOL_OK);
    FUZZ_REQUIRE(chat_parser_finish(p, &step) == SOL_OK);
    chat_parser_destroy(p);
}

/* In nanochat's format, which has no form for most that harmony has. */
static void check_nanochat(const struct conversation *c, bool open)
{
    static struct chat_vocabulary v;
    struct token_list ids = {0};
    struct render_map map = {0};
    const struct render_options options = {
        .next = CHAT_ASSISTANT,
        .history = open ? CHAT_HISTORY_OPEN : CHAT_HISTORY_ALL,
        .map = &map,
    };
    if (!v.tokenizer) chat_small_nanochat(&v);
    enum sol_status status = render_conversation(&v, c, &options, &ids);
    FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_FORMAT);
    if (status == SOL_OK) {
        FUZZ_REQUIRE(map.n_starts == conversation_count(c));
        check_parsed(&v, &ids);
    }
    render_map_free(&map);
    token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conversation *c;
    json_t *json;
    if (chat_json_read((const char *)data, size, "fuzz", &json) != SOL_OK) return 0;
    FUZZ_REQUIRE(conversation_create(&c) == SOL_OK);
    if (conversation_add_json(c, json) == SOL_OK) {
        struct token_list ids = {0}, other = {0};
        conversation_pin_date(c, "2026-11-24");
        if (render(c, false, false, &ids) == SOL_OK) {
            check_again(c, &ids);
            check_parsed(vocabulary(), &ids);
            render(c, true, true, &other);
        }
        for (int open = 0; open < 2; open++) check_nanochat(c, open);
        token_list_free(&ids);
        token_list_free(&other);
    } else {
        FUZZ_REQUIRE(conversation_count(c) == 0);
    }
    json_decref(json);
    conversation_destroy(c);
    return 0;
}
