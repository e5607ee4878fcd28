/* Which part of a result an answer of bounded size holds: what decides comes first, whatever stands
 * first in the text. Nothing here knows a command; keys have ranks. */
#ifndef SERVE_MCP_RANK_H
#define SERVE_MCP_RANK_H

#include <jansson.h>
#include <stddef.h>

/* As much of `result` as `budget` bytes of compact JSON take; nulls are left out. *left_out:
 * {path: what of it}, the most important first, for mcp_rank_part; NULL where everything is in.
 * Both are new references; NULL without memory. */
json_t *mcp_rank_fit(const json_t *result, size_t budget, json_t **left_out);

/* The part at `path`: keys and numbers of elements with dots between, "*" for each element, "20:"
 * for the elements from the 20th on ("*.kernels", "runs.20:"). A new reference; NULL: there is
 * none. */
json_t *mcp_rank_part(const json_t *result, const char *path);

/* Real numbers as answers show them. */
char *mcp_rank_dump(const json_t *json);

#endif
