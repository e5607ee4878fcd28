/* What the formats' own files share. */
#ifndef CHAT_FORMAT_PRIVATE_H
#define CHAT_FORMAT_PRIVATE_H

#include "chat/format.h"

struct chat_token_name {
    const char *name;
    int32_t *id;
};
/* Sets the ids, -1 for a token that is not there; the first name of these, or NULL. */
const char *chat_tokens_find(const struct tokenizer *tokenizer, const struct chat_token_name *names,
                             size_t n);

/* ---- render_*.c, parser_*.c: entries of the table ---- */

enum sol_status harmony_render(const struct chat_vocabulary *v, const struct conversation *c,
                               const struct render_options *options, struct token_list *ids);
void harmony_begin(struct chat_parser *p, enum chat_role role);
enum sol_status harmony_push(struct chat_parser *p, int32_t id, struct chat_step *step);
enum sol_status harmony_finish(struct chat_parser *p, struct chat_step *step);

enum sol_status nanochat_render(const struct chat_vocabulary *v, const struct conversation *c,
                                const struct render_options *options, struct token_list *ids);
void nanochat_begin(struct chat_parser *p, enum chat_role role);
enum sol_status nanochat_push(struct chat_parser *p, int32_t id, struct chat_step *step);
enum sol_status nanochat_finish(struct chat_parser *p, struct chat_step *step);

/* ---- render.c ---- */

enum sol_status render_put_token(struct token_list *ids, int32_t id);
/* As ordinary tokens, whatever the text looks like. */
enum sol_status render_put_text(const struct chat_vocabulary *v, struct chat_text text,
                                struct token_list *ids);
/* The next message begins at the end of *ids; what the assistant writes does, from `begin` to
 * there. `map` may be NULL. */
void render_map_start(struct render_map *map, const struct token_list *ids);
enum sol_status render_map_written(struct render_map *map, size_t begin,
                                   const struct token_list *ids);

#endif
