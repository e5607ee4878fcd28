/* What a repository of the hub has, as its public API says. */
#ifndef HUB_REPOSITORY_H
#define HUB_REPOSITORY_H

#include "hub/choose.h"
#include "hub/http.h"

struct hub_repository {
    char commit[41];
    struct hub_files files;
};

/* $HF_ENDPOINT, else https://huggingface.co; without a slash at its end. */
enum sol_status hub_endpoint(char out[HUB_PATH_MAX]);
/* $HF_TOKEN, else what the file $HF_TOKEN_PATH or "token" in the hub's home holds; "" for none. */
void hub_token(char out[HUB_PATH_MAX]);

/* Of a branch, tag or commit. SOL_E_ARGUMENT where the hub has no such repository or revision, or
 * wants a token: what to do; SOL_E_FORMAT where the answer is not what the hub says. Zeroed memory
 * may be freed too. */
enum sol_status hub_repository_read(struct http *http, const char *repository, const char *revision,
                                    struct hub_repository *out);
/* The same from the API's answer. */
enum sol_status hub_repository_parse(const char *text, size_t length, struct hub_repository *out);
void hub_repository_free(struct hub_repository *repository);

/* Where a file is fetched from. */
enum sol_status hub_file_url(const char *repository, const char *commit, const char *path,
                             char out[HUB_PATH_MAX]);

#endif
