/* vocab and merges of a tokenizer.json. They are nearly all of its 27 MB, and a tree of them takes
 * jansson 0.4 s of processor time (o200k, AMD EPYC VM) and 150 MB; read in one pass they take a
 * tenth of it. Everything else is small and jansson's. */
#ifndef TOK_JSON_TABLES_H
#define TOK_JSON_TABLES_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct json_token {
    const char *text; /* ends with a zero byte too; contains none */
    uint32_t length;
    int64_t id;
};

/* "left right" (right is NULL) or ["left", "right"]. */
struct json_merge {
    const char *left, *right;
    uint32_t left_length, right_length;
};

struct json_tables {
    struct json_token *tokens;
    size_t n_tokens;
    struct json_merge *merges;
    size_t n_merges;
    char *strings; /* what the pointers above lead to */
    char *rest;    /* the document with {} and [] in their places; no terminating zero */
    size_t rest_length;
};

/* Takes out model.vocab and model.merges, in whatever order they come. What is not there, or is
 * no object or list, stays in the rest. Both are read strictly; the rest is not looked at closely.
 * On failure the message is "line N: ..." (SOL_E_FORMAT). */
enum sol_status json_tables_read(const char *data, size_t size, struct json_tables *out);
void json_tables_free(struct json_tables *tables); /* takes a zeroed one */

#endif
