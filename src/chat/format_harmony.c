/* The harmony format of gpt-oss, as an entry of the table of formats. */
#include "chat/format_private.h"
#include "chat/json.h"

/* ---- tokens ---- */

static void set_uses(struct chat_vocabulary *v)
{
    v->uses = (struct chat_token_uses){
        .start = v->start,
        .in_header = v->channel,
        .answer_end = v->ret,
        .call_end = v->call,
        .other_end = v->end,
        .text_end = v->endoftext,
        .begins = {{v->start}, 1},
        .borders = {{v->start, v->end, v->ret, v->call}, 4},
        .stops = {{v->ret, v->call, v->endoftext}, v->endoftext < 0 ? 2 : 3},
        .written = {{v->start, v->message, v->channel, v->constrain, v->end, v->ret, v->call,
                     v->endoftext},
                    v->endoftext < 0 ? 7 : 8},
        .marks = {{v->start, v->end}, 2},
    };
}

static void find(struct chat_vocabulary *v, const char **missing)
{
    const struct chat_token_name names[] = {
        {"<|start|>", &v->start},     {"<|message|>", &v->message},
        {"<|channel|>", &v->channel}, {"<|constrain|>", &v->constrain},
        {"<|end|>", &v->end},         {"<|return|>", &v->ret},
        {"<|call|>", &v->call}};
    *missing = chat_tokens_find(v->tokenizer, names, sizeof names / sizeof *names);
    v->endoftext = tokenizer_find(v->tokenizer, "<|endoftext|>");
    set_uses(v);
}

/* ---- what stands before all messages ---- */

static enum sol_status open_conversation(struct conversation *c, const char *date)
{
    static const struct chat_text channels[] = {{"analysis", 8}, {"commentary", 10}, {"final", 5}};
    struct chat_system *system = conversation_alloc(c, sizeof *system);
    struct chat_content *content = conversation_alloc(c, sizeof *content);
    if (!system || !content) return SOL_E_MEMORY;
    *system = (struct chat_system){
        .identity = CHAT_TEXT("You are ChatGPT, a large language model trained by OpenAI."),
        .cutoff = CHAT_TEXT("2024-06"),
        .effort = CHAT_MEDIUM,
        .channels = channels,
        .n_channels = sizeof channels / sizeof *channels,
        .channel_required = true,
    };
    if (date) SOL_TRY(conversation_copy(c, (struct chat_text){date, strlen(date)}, &system->date));
    *content = (struct chat_content){.kind = CHAT_CONTENT_SYSTEM, .system = system};
    return conversation_add(
        c, &(struct chat_message){.role = CHAT_SYSTEM, .contents = content, .n_contents = 1});
}

static enum sol_status put_format(struct conversation *c, const struct chat_instructions *i,
                                  bool first, struct chat_content *content)
{
    struct text_buffer text = {0};
    if (!first) text_puts(&text, "\n\n");
    text_puts(&text, "# Response Formats\n\n## ");
    text_put_text(&text, i->schema_name.data ? i->schema_name : CHAT_TEXT("answer"));
    text_puts(&text, "\n\n");
    if (i->schema_description.length) {
        text_puts(&text, "// ");
        text_put_text(&text, i->schema_description);
        text_puts(&text, "\n");
    }
    chat_json_print(i->schema, &text);
    enum sol_status status = text_check(&text, "the schema of the answer");
    if (status == SOL_OK) status = conversation_copy(c, text_of(&text), &content->text);
    text_buffer_free(&text);
    return status;
}

static enum sol_status instruct(struct conversation *c, const struct chat_instructions *i)
{
    const bool functions = i->functions && i->functions->n_tools;
    struct chat_message message = {.role = CHAT_DEVELOPER};
    struct chat_developer *developer = conversation_alloc(c, sizeof *developer);
    struct chat_content *contents = conversation_alloc(c, 2 * sizeof *contents);
    if (!developer || !contents) return SOL_E_MEMORY;
    if (i->text.data) SOL_TRY(conversation_copy(c, i->text, &developer->instructions));
    if (functions) SOL_TRY(chat_tools_add(c, &developer->tools, i->functions));
    if (i->text.data || functions)
        contents[message.n_contents++] =
            (struct chat_content){.kind = CHAT_CONTENT_DEVELOPER, .developer = developer};
    if (i->schema) {
        SOL_TRY(put_format(c, i, message.n_contents == 0, &contents[message.n_contents]));
        message.n_contents++;
    }
    message.contents = contents;
    return message.n_contents ? conversation_add(c, &message) : SOL_OK;
}

const struct chat_format chat_harmony = {
    .name = "harmony",
    .reasons = true,
    .calls = true,
    .instructs = CHAT_DEVELOPER,
    .find = find,
    .open = open_conversation,
    .instruct = instruct,
    .render = harmony_render,
    .begin = harmony_begin,
    .push = harmony_push,
    .finish = harmony_finish,
};
