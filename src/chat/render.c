/* What rendering has in common in all formats. */
#include "chat/render.h"

#include <stdlib.h>

#include "base/memory.h"
#include "chat/format_private.h"

/* ---- tokens ---- */

enum sol_status render_put_token(struct token_list *ids, int32_t id)
{
    SOL_TRY(array_grow(&ids->ids, ids->count, &ids->capacity, sizeof *ids->ids, "tokens"));
    ids->ids[ids->count++] = id;
    return SOL_OK;
}

enum sol_status render_put_text(const struct chat_vocabulary *v, struct chat_text text,
                                struct token_list *ids)
{
    if (text.length == 0) return SOL_OK;
    return tokenizer_encode(v->tokenizer, text.data, text.length, false, ids);
}

/* ---- where things stand ---- */

void render_map_free(struct render_map *map)
{
    free(map->starts);
    free(map->written);
    *map = (struct render_map){0};
}

bool render_map_is_written(const struct render_map *map, size_t at, size_t *span)
{
    while (*span < map->n_written && map->written[*span].end <= at) ++*span;
    return *span < map->n_written && map->written[*span].begin <= at;
}

void render_map_start(struct render_map *map, const struct token_list *ids)
{
    if (map) map->starts[map->n_starts++] = ids->count;
}

enum sol_status render_map_written(struct render_map *map, size_t begin,
                                   const struct token_list *ids)
{
    if (!map) return SOL_OK;
    SOL_TRY(array_grow(&map->written, map->n_written, &map->room, sizeof *map->written,
                       "a map of tokens"));
    map->written[map->n_written++] = (struct render_span){begin, ids->count};
    return SOL_OK;
}

enum sol_status render_conversation(const struct chat_vocabulary *v, const struct conversation *c,
                                    const struct render_options *options, struct token_list *ids)
{
    struct render_map *map = options->map;
    if (map) {
        map->starts = calloc(conversation_count(c) + 1, sizeof *map->starts);
        if (!map->starts) return status_set(SOL_E_MEMORY, "no memory for a map of tokens");
    }
    return v->format->render(v, c, options, ids);
}
