/* What a tool's child process printed, as an answer of bounded size. */
#ifndef SERVE_MCP_ANSWER_H
#define SERVE_MCP_ANSWER_H

#include <jansson.h>
#include <stdbool.h>

#include "serve/mcp_next.h"
#include "serve/mcp_tools.h"

enum { MCP_ANSWER_MAX = 4095 }; /* bytes of the answer's text */

enum mcp_end { MCP_EXITED, MCP_TIMED_OUT, MCP_TOO_MUCH };

struct mcp_outcome {
    const struct mcp_tool *tool;
    const json_t *arguments; /* of the call; may be NULL */
    struct mcp_offer offer;
    enum mcp_end end;
    int exit_status;
    double seconds, max_seconds;
    const char *output; /* NUL-terminated */
    size_t output_size;
    const char *errors;  /* the end of what came on stderr */
    const char *more_id; /* under which the whole output can be asked for */
};

/* {"tool", "ok", "exit_status", "seconds", "error", "result", "evidence": [ids], "first", "next",
 * "left_out": {path: what of it}, "more"} as one compact text of at most MCP_ANSWER_MAX bytes;
 * free() it. "next" and "more" are calls, {"tool", "arguments"}, that work as they stand; "first"
 * says what to do before the next. *failed: the call itself failed, no result came. *cut: not
 * everything is in it. *next: a new reference, NULL where there is none. NULL without memory. */
char *mcp_answer(const struct mcp_outcome *outcome, bool *failed, bool *cut, json_t **next);

/* An answer that was cut. */
struct mcp_kept {
    char id[16];
    char *text; /* what the child printed */
    size_t size;
    json_t *next; /* that answer's; may be NULL */
};

/* The part at `path` (see mcp_rank_part) of one that was JSON, or its bytes from `offset` where
 * path is NULL; of a text at a path, its bytes from there. free() it. NULL: there is no such part.
 */
char *mcp_answer_part(const struct mcp_kept *kept, const char *path, size_t offset);

/* An answer that is only an error and what to do; takes the reference of `next`, which may be NULL,
 * over. */
char *mcp_answer_error(const struct mcp_tool *tool, const char *error, const char *first,
                       json_t *next);

#endif
