#include "chat/opening.h"

#include <time.h>

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
