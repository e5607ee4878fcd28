/* Any tokens through a turn: it takes them all, and does with each what its parser does; and a turn
 * whose tokens are all among those that may come has no faults and is what was asked for.
 *
 * The first three bytes say what is asked for. Then a byte is a token of its own, from 0xf5 on the
 * control tokens (support/chat.h); 0xf0 stands before two bytes that pick one that may come. */
#include <string.h>

#include "grammar/grammar.h"
#include "support/chat.h"
#include "support/fuzz.h"
#include "support/turn_check.h"

enum { CONVERSATIONS = 3, PICK = 0xf0 };

static struct model *model;
static struct turn_model *shared;
static struct grammar *grammar;
static struct conversation *conversations[CONVERSATIONS];
static int32_t byte_ids[256];

/* Made at the first call and kept: they do not change. */
static void prepare(void)
{
    static const char *const texts[CONVERSATIONS] = {
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi.\"}]}",
        "{\"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"system_content\", "
        "\"tools\": {\"python\": {\"name\": \"python\", \"tools\": []}}}]}, {\"role\": "
        "\"developer\", \"content\": [{\"type\": \"developer_content\", \"tools\": "
        "{\"functions\": {\"name\": \"functions\", \"tools\": [{\"name\": \"get\", "
        "\"description\": \"\"}]}}}]}]}",
        "{\"messages\": [{\"role\": \"assistant\", \"channel\": \"final\", \"content\": \"{\"}]}"};
    if (shared) return;
    json_t *schema = json_loads("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
                                "\"integer\"}}, \"additionalProperties\": false}",
                                0, NULL);
    FUZZ_REQUIRE(model_open(NULL, &model) == SOL_OK);
    FUZZ_REQUIRE(turn_model_create(model, &shared) == SOL_OK);
    FUZZ_REQUIRE(grammar_from_schema(schema, GRAMMAR_SPACE_ONE, &grammar) == SOL_OK);
    for (int i = 0; i < CONVERSATIONS; i++) conversations[i] = turn_check_conversation(texts[i]);
    chat_byte_ids(turn_model_vocabulary(shared), byte_ids);
    json_decref(schema);
}

static void read_params(const uint8_t *data, struct turn_params *p, struct turn_arguments *a)
{
    turn_params_init(p);
    p->calls = (enum turn_calls)(data[0] / 4 % 3);
    p->thinking = data[1] % 8 - 1;
    if (data[2] & 1) p->answer = grammar;
    if (data[2] & 2) p->effort = CHAT_EFFORT_OFF;
    if (data[2] & 4) p->only = CHAT_TEXT("functions.get");
    *a = (struct turn_arguments){.function = CHAT_TEXT("functions.get"), .grammar = grammar};
    p->arguments = a;
    p->n_arguments = data[2] >> 3 & 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct turn_params params;
    struct turn_arguments arguments;
    struct turn_check check;
    bool picked = true;
    prepare();
    if (size < 3) return 0;
    read_params(data, &params, &arguments);
    if (!turn_check_begin(&check, shared, conversations[data[0] % 4 % CONVERSATIONS], &params))
        return 0;
    for (size_t i = 3; i < size && !(picked && check.over); i++) {
        bool pick = data[i] == PICK && i + 2 < size;
        uint32_t number = pick ? (uint32_t)(data[i + 1] | data[i + 2] << 8) : 0;
        turn_check_push(&check, pick ? turn_check_pick(&check, number, false) : byte_ids[data[i]]);
        picked = picked && pick;
        i += pick ? 2 : 0;
    }
    turn_check_end(&check, picked);
    return 0;
}
