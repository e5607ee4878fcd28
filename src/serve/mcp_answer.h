/* What a tool's child process printed, condensed to an answer of bounded size. */
#ifndef SERVE_MCP_ANSWER_H
#define SERVE_MCP_ANSWER_H

#include <jansson.h>
#include <stdbool.h>

#include "serve/mcp_tools.h"

enum { MCP_ANSWER_MAX = 4000 }; /* bytes of the answer's text */

enum mcp_end { MCP_EXITED, MCP_TIMED_OUT, MCP_TOO_MUCH };

struct mcp_outcome {
    const struct mcp_tool *tool;
    enum mcp_end end;
    int exit_status;
    double seconds, max_seconds;
    const char *output; /* NUL-terminated */
    size_t output_size;
    const char *errors;  /* the end of what came on stderr */
    const char *more_id; /* under which the whole output can be asked for */
};

/* {"tool", "ok", "exit_status", "seconds", "result", "evidence": [ids], "error", "more", "next"} as
 * one compact text below MCP_ANSWER_MAX bytes; free() it. *failed: the call itself failed, no
 * result came. *cut: not everything is in it. NULL without memory. */
char *mcp_answer(const struct mcp_outcome *outcome, bool *failed, bool *cut);

/* A part of `text` from `offset`, with where the next begins; free() it. */
char *mcp_answer_part(const char *id, const char *text, size_t size, size_t offset);

/* An answer that is only an error and what to do. */
char *mcp_answer_error(const struct mcp_tool *tool, const char *error, const char *next);

#endif
