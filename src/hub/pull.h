/* From a model's name to its files in the hub's cache. */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include "hub/repository.h"

struct pull_options {
    const char *revision; /* "main" */
    const char *pattern;  /* NULL: what sol needs */
    int connections;
    bool offline; /* only what is there */
    bool check;   /* what is there is read and compared too */
    bool list;    /* fetches nothing */
};
/* revision main, 8 connections; offline as HF_HUB_OFFLINE says. */
void pull_options_init(struct pull_options *options);

struct pulled {
    struct hub_repository repository; /* its wanted files are there, unless `list` */
    char folder[2 * HUB_PATH_MAX];    /* of the snapshot */
    int64_t bytes, fetched;           /* of the wanted files; those that came over the network */
};

/* An interrupted one goes on when it is called again; a file that is not what the hub says is
 * fetched once more, then given up. Until all is there and checked the name finds what it found
 * before. Errors: those of choose.h, http.h and repository.h; SOL_E_IO for a full disk;
 * SOL_E_FORMAT for wrong bytes. `out` is to be freed in any case. */
enum sol_status pull_model(const struct hub_name *name, const struct pull_options *options,
                           struct pulled *out);
void pulled_free(struct pulled *pulled);

#endif
