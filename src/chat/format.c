#include "chat/format.h"

const struct chat_format *const chat_formats[] = {&chat_harmony, &chat_nanochat, NULL};

enum sol_status chat_format_effort(const struct chat_format *format, enum chat_effort effort)
{
    if (format->reasons || effort == CHAT_EFFORT_UNSET || effort == CHAT_EFFORT_OFF) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "the model's chat format, %s, has no levels of reasoning: leave the effort "
                      "out, or set it to none",
                      format->name);
}

enum sol_status chat_format_calls(const struct chat_format *format)
{
    if (format->calls) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED,
                      "the model's chat format, %s, has no calls of functions: leave them out",
                      format->name);
}

enum sol_status chat_format_set_effort(const struct chat_format *format, struct conversation *c,
                                       enum chat_effort effort)
{
    SOL_TRY(chat_format_effort(format, effort));
    return format->reasons ? conversation_set_effort(c, effort) : SOL_OK;
}
