/* /v1/chat/completions: from what a job tells to what a client reads. No HTTP here.
 *
 * A stream is: for each choice a chunk with the role alone, together with the first text; then
 * chunks of content, of reasoning (under both names in use), of tool calls: one with id and name,
 * then their arguments in pieces; a chunk with finish_reason. Behind all choices a chunk with the
 * usage, if asked for, and [DONE]. */
#ifndef SERVE_CHAT_WRITER_H
#define SERVE_CHAT_WRITER_H

#include "serve/api_request.h"

struct chat_writer;

struct chat_writer_params {
    const struct api_request *request; /* outlives the writer */
    const char *model;                 /* its name, likewise */
    int64_t created;                   /* time(2) */
    struct recall *recall;             /* for reasoning before calls; may be NULL */
    uint64_t salt;
};

enum sol_status chat_writer_create(const struct chat_writer_params *params,
                                   struct chat_writer **out);
void chat_writer_destroy(struct chat_writer *w); /* takes NULL */

/* As the sink of a job has them. In a stream, what is to be written is appended to `to`; else all
 * is kept until the end. */
void chat_writer_event(struct chat_writer *w, int64_t choice, const struct turn_event *event,
                       const struct job_token *tokens, size_t n, struct text_buffer *to);
void chat_writer_choice(struct chat_writer *w, int64_t choice, const struct job_choice *result,
                        struct text_buffer *to);
/* The end of the stream, or the whole answer. SOL_OK, or why there is no answer: a choice failed,
 * or there was no memory; the message is set. In a stream the error is then appended. */
enum sol_status chat_writer_end(struct chat_writer *w, const struct job_usage *usage,
                                struct text_buffer *to);

#endif
