#include "chat/opening.h"

#include <time.h>

#include "chat/json.h"

void chat_today(char date[CHAT_DATE_SIZE])
{
    struct tm parts = {0};
    time_t now = time(NULL);
    localtime_r(&now, &parts);
    strftime(date, CHAT_DATE_SIZE, "%Y-%m-%d", &parts);
}

enum sol_status conversation_open(struct conversation *c, const char *date)
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

size_t conversation_head(const struct conversation *c)
{
    size_t n = 0;
    while (n < conversation_count(c)) {
        enum chat_role role = conversation_message(c, n)->role;
        if (role != CHAT_SYSTEM && role != CHAT_DEVELOPER) break;
        n++;
    }
    return n;
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

enum sol_status conversation_instruct(struct conversation *c, const struct chat_instructions *i)
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
