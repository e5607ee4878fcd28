/* Inside the readers of requests: what both APIs have in common. */
#ifndef SERVE_API_READ_H
#define SERVE_API_READ_H

#include "serve/api_request.h"

/* Reading a request, from the first field to a conversation. */
struct api_reading {
    const struct api_reader *reader;
    struct api_fault *fault;
    struct api_request *request;
    struct api_object body;
    struct text_buffer instructions; /* of the system and developer messages that come first */
    bool instructed, opened;         /* there are some; the first messages are written */
    struct chat_text format_name, format_description;
    const json_t *format_schema; /* NULL with API_JSON_OBJECT: any object */
    const char *format_field;    /* where it stands: "response_format" */
    bool *hidden;                /* [n_functions] that tool_choice leaves out */
    json_t *calls;               /* id of a call: the function's full name */
    json_t *open;                /* ids of calls that have no result yet */
    bool reasoned;               /* the reasoning before the next call is there */
    double compiled_ms;          /* processor time for schemas so far */
};

/* Begins a request that keeps `body`. */
enum sol_status api_reading_begin(struct api_reading *rd, const struct api_reader *reader,
                                  json_t *body, struct api_fault *fault);
/* Frees what only reading needs; with an error the request too. */
enum sol_status api_reading_end(struct api_reading *rd, enum sol_status status,
                                struct api_request **out);

/* Sampling, number of choices, effort and its bounds, logprobs, stream; and the fields that would
 * change the answer and are not served. `limit`: the name of the most tokens. */
enum sol_status api_read_options(struct api_reading *rd, const char *limit);
/* "verbosity" in the body, or in a response's "text". */
enum sol_status api_read_verbosity(const struct api_object *o);
/* "tools" and "tool_choice"; `flat`: as the Responses API writes them. */
enum sol_status api_read_tools(struct api_reading *rd, bool flat);
/* An object with the type of the answer: text, json_object, json_schema; the schema's fields are in
 * itself where `flat`, else in its "json_schema". NULL: text. */
enum sol_status api_read_format(struct api_reading *rd, const struct api_place *place,
                                const json_t *format, bool flat);

/* ---- messages, in their order ---- */

/* What the system or a developer says: first of all into the instructions, later a message. */
enum sol_status api_add_instruction(struct api_reading *rd, const struct chat_content *contents,
                                    size_t n);
/* Writes what comes before the first other message, once. */
enum sol_status api_open(struct api_reading *rd);
enum sol_status api_add_message(struct api_reading *rd, enum chat_role role, const char *channel,
                                struct chat_text name, const struct chat_content *contents,
                                size_t n);
enum sol_status api_add_reasoning(struct api_reading *rd, struct chat_text text);
/* What was thought before a call, if that is remembered (api_remember). */
enum sol_status api_recall_reasoning(struct api_reading *rd, struct chat_text call_id);
/* What the model calls a function, the conversation's: "functions.name", or
 * "functions.space__name"; `space` may be without data, here and below. */
enum sol_status api_full_name(struct api_reading *rd, struct chat_text space, struct chat_text name,
                              struct chat_text *full);
/* A call of a function. */
enum sol_status api_add_call(struct api_reading *rd, const struct api_place *place,
                             struct chat_text id, struct chat_text space, struct chat_text name,
                             struct chat_text arguments);
enum sol_status api_add_custom_call(struct api_reading *rd, const struct api_place *place,
                                    struct chat_text id, struct chat_text space,
                                    struct chat_text name, struct chat_text input);
enum sol_status api_add_result(struct api_reading *rd, const struct api_place *place,
                               struct chat_text id, const struct chat_content *contents, size_t n);
/* Before anything else may follow: every call must have its result. */
enum sol_status api_check_results(struct api_reading *rd, const struct api_place *place);
/* The end: effort, date, grammars. */
enum sol_status api_finish(struct api_reading *rd);

/* A text or an array of parts, each of one of the types in `types` ("text", "input_text", ...). */
enum sol_status api_read_contents(struct api_reading *rd, const struct api_object *o,
                                  const char *key, const char *const *types,
                                  const struct chat_content **contents, size_t *n);

#endif
