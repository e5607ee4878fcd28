/* The tools that gpt-oss was trained with: their texts belong to the format. */
#ifndef CHAT_BUILTIN_TOOLS_H
#define CHAT_BUILTIN_TOOLS_H

#include "chat/conversation.h"

/* "browser" or "python"; SOL_E_ARGUMENT for another name. */
enum sol_status builtin_tools_add(struct conversation *c, struct chat_tools *tools,
                                  const char *name);

#endif
