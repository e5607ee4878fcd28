#include "chat/opening.h"

#include <time.h>

#include "chat/format.h"

void chat_today(char date[CHAT_DATE_SIZE])
{
    struct tm parts = {0};
    time_t now = time(NULL);
    localtime_r(&now, &parts);
    strftime(date, CHAT_DATE_SIZE, "%Y-%m-%d", &parts);
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

enum sol_status conversation_open(const struct chat_format *format, struct conversation *c,
                                  const char *date)
{
    return format->open(c, date);
}

enum sol_status conversation_instruct(const struct chat_format *format, struct conversation *c,
                                      const struct chat_instructions *instructions)
{
    return format->instruct(c, instructions);
}
