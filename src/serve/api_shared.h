/* What the handlers of both APIs for conversations keep between requests. */
#ifndef SERVE_API_SHARED_H
#define SERVE_API_SHARED_H

#include "chat/opening.h"
#include "chat/typescript.h"
#include "serve/recall.h"
#include "serve/response_keeper.h"
#include "serve/schema_cache.h"
#include "serve/server.h"

struct api_shared {
    struct schema_cache *schemas;
    struct recall *recall;
    struct response_keeper *keeper;
    enum chat_types types; /* how functions are shown to the model; 0 from api_shared_create */
};

enum { API_RECALL_BYTES = 64 << 20 };

/* `folder`: where responses are stored, made if it is not there; NULL: they are kept in memory, and
 * lost with it. Errors: the folder's, the database's. */
enum sol_status api_shared_create(const char *folder, struct api_shared **out);
/* No request may be running any more. Takes NULL. */
void api_shared_destroy(struct api_shared *shared);

/* What reading the requests of `r` needs; `today` is its memory. */
void api_reader_of(const struct request_context *r, char today[CHAT_DATE_SIZE],
                   struct api_reader *reader);

#endif
