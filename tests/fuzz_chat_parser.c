/* Any tokens through the parser: it takes them all, what it streams is what it keeps, and no text
 * is lost. A byte is a token of its own, from 0xf5 on the control tokens (support/chat.h); 0xf0 to
 * 0xf4 stand before two bytes of a token's number, any number. The first byte says who speaks, and
 * from 0x80 on that the format is nanochat's. */
#include <string.h>

#include "chat/header_grammar.h"
#include "chat/parser.h"
#include "support/chat.h"
#include "support/fuzz.h"

/* Of harmony, and of nanochat. */
static struct chat_vocabulary vocabularies[2];
static int32_t byte_ids[2][256];
static struct header_grammar *grammar;

/* Made at the first call and kept: they do not change. */
static void prepare(void)
{
    static const struct chat_text tools[] = {CHAT_TEXT("functions.get"), CHAT_TEXT("python")};
    struct header_rules rules = {.functions = tools,
                                 .n_functions = 1,
                                 .builtins = tools + 1,
                                 .n_builtins = 1,
                                 .analysis = true,
                                 .final = true};
    if (grammar) return;
    chat_builtin(&vocabularies[0]);
    chat_small_nanochat(&vocabularies[1]);
    for (int i = 0; i < 2; i++) chat_byte_ids(&vocabularies[i], byte_ids[i]);
    FUZZ_REQUIRE(header_grammar_create(&vocabularies[0], &rules, &grammar) == SOL_OK);
}

/* How many Z there are: text that nothing else brings. */
static size_t count_z(struct chat_text text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.length; i++) n += text.data[i] == 'Z';
    return n;
}

struct seen {
    struct text_buffer text; /* of the open message, by its deltas */
    size_t messages, pushed, owed, given;
};

static void check_step(const struct chat_parser *p, const struct chat_step *step, struct seen *s)
{
    FUZZ_REQUIRE(!step->began || s->text.length == 0);
    text_put_text(&s->text, step->delta);
    if (!step->ended) {
        FUZZ_REQUIRE(step->delta.length == 0 || chat_parser_state(p) == CHAT_IN_CONTENT);
        return;
    }
    const struct chat_message *m = conversation_message(chat_parser_messages(p), s->messages++);
    FUZZ_REQUIRE(m->n_contents == 1 && m->contents->text.length == s->text.length);
    FUZZ_REQUIRE(!s->text.length ||
                 memcmp(m->contents->text.data, s->text.data, s->text.length) == 0);
    json_t *json = chat_message_json(m); /* fails where a text is no UTF-8 */
    FUZZ_REQUIRE(json_object_get(json, "content"));
    FUZZ_REQUIRE(!m->channel.data == !json_object_get(json, "channel"));
    FUZZ_REQUIRE(!m->recipient.data == !json_object_get(json, "recipient"));
    FUZZ_REQUIRE(!m->content_type.data == !json_object_get(json, "content_type"));
    json_decref(json);
    s->given += count_z(text_of(&s->text));
    s->text.length = 0;
}

static int32_t next_id(const int32_t ids[256], const uint8_t **data, size_t *size)
{
    uint8_t byte = **data;
    ++*data;
    --*size;
    if (byte < 0xf0 || byte >= CHAT_MARK || *size < 2) return ids[byte];
    uint32_t id = (uint32_t)((*data)[0] | (*data)[1] << 8);
    *data += 2;
    *size -= 2;
    return (int32_t)(id | (uint32_t)(byte - 0xf0) << 29);
}

static void push(const struct chat_vocabulary *v, struct chat_parser *p, int32_t id, struct seen *s)
{
    struct chat_step step;
    char room[CHAT_TOKEN_NAME_MAX];
    size_t z = count_z(chat_token_text(v, id, room));
    bool owed = chat_parser_state(p) != CHAT_IN_HEADER;
    FUZZ_REQUIRE(chat_parser_push(p, id, &step) == SOL_OK);
    s->pushed += z;
    s->owed += owed ? z : 0;
    check_step(p, &step, s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat_parser *p;
    struct chat_step step;
    struct seen seen = {0};
    struct token_list ids = {0};
    bool text;
    prepare();
    if (size == 0) return 0;
    const bool nanochat = *data & 0x80;
    const struct chat_vocabulary *v = &vocabularies[nanochat];
    enum chat_role role = (*data++ & 0x7f) % (CHAT_NOBODY + 1);
    size--;
    FUZZ_REQUIRE(chat_parser_create(v, role, &p) == SOL_OK);
    while (size) push(v, p, next_id(byte_ids[nanochat], &data, &size), &seen);
    if (!nanochat) {
        FUZZ_REQUIRE(chat_next_tokens(p, v, grammar, &ids, &text) == SOL_OK);
        FUZZ_REQUIRE(ids.count > 0);
    }
    FUZZ_REQUIRE(chat_parser_finish(p, &step) == SOL_OK);
    check_step(p, &step, &seen);
    FUZZ_REQUIRE(seen.text.length == 0 && chat_parser_state(p) == CHAT_EXPECT_START);
    FUZZ_REQUIRE(seen.messages == conversation_count(chat_parser_messages(p)));
    FUZZ_REQUIRE(seen.owed <= seen.given && seen.given <= seen.pushed);
    text_buffer_free(&seen.text);
    token_list_free(&ids);
    chat_parser_destroy(p);
    return 0;
}
