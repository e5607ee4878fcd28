#include "serve/api_shared.h"

#include <stdlib.h>

enum sol_status api_shared_create(const char *folder, struct api_shared **out)
{
    *out = NULL;
    struct api_shared *shared = calloc(1, sizeof *shared);
    if (!shared) return status_set(SOL_E_MEMORY, "no memory for a server");
    enum sol_status status = schema_cache_create(&shared->schemas);
    if (status == SOL_OK) status = recall_create(API_RECALL_BYTES, &shared->recall);
    if (status == SOL_OK) status = response_keeper_create(folder, &shared->keeper);
    if (status != SOL_OK) {
        api_shared_destroy(shared);
        return status;
    }
    *out = shared;
    return SOL_OK;
}

void api_shared_destroy(struct api_shared *shared)
{
    if (!shared) return;
    response_keeper_destroy(shared->keeper);
    recall_destroy(shared->recall);
    schema_cache_destroy(shared->schemas);
    free(shared);
}

void api_reader_of(const struct request_context *r, char today[CHAT_DATE_SIZE],
                   struct api_reader *reader)
{
    const struct api_shared *shared = server_shared(r->server);
    chat_today(today);
    *reader = (struct api_reader){.model = r->engine->model,
                                  .schemas = shared->schemas,
                                  .trie = turn_model_trie(r->engine->turns),
                                  .format = turn_model_vocabulary(r->engine->turns)->format,
                                  .recall = shared->recall,
                                  .key = r->key,
                                  .types = shared->types,
                                  .today = today};
}
