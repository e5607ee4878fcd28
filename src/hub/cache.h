/* The local cache of models from the Hugging Face hub, in the layout that the hub documents and
 * that its own programs, transformers, vLLM and llama.cpp share: what one of them fetched, all
 * find.
 *
 *   FOLDER/models--OWNER--NAME/blobs/ETAG               a file's bytes
 *                              snapshots/COMMIT/PATH    a link to its blob
 *                              refs/REVISION            the commit that a branch or tag was at
 */
#ifndef HUB_CACHE_H
#define HUB_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "sol/status.h"

enum { HUB_PATH_MAX = 1024, HUB_NAME_MAX = 200, HUB_COMMIT = 40 /* digits */ };

/* "openai/gpt-oss-20b", "openai/gpt-oss-20b:mxfp4". */
struct hub_name {
    char repository[HUB_NAME_MAX]; /* "OWNER/NAME" */
    char part[HUB_NAME_MAX];       /* what a GGUF file's name contains; "" for any */
};

/* Whether `text` can be a repository's name. What ends as model files do is a path. */
bool hub_name_parse(const char *text, struct hub_name *out);

/* So many hexadecimal digits and nothing else; false for NULL. */
bool hub_is_hex(const char *text, size_t digits);

/* $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub ($XDG_CACHE_HOME for ~/.cache).
 * Nothing is made. */
enum sol_status hub_cache_folder(char out[HUB_PATH_MAX]);
/* $HF_HOME, or what stands for it. */
enum sol_status hub_home(char out[HUB_PATH_MAX]);

/* A repository's folder in the cache, there or not. */
enum sol_status hub_cache_repository(const char *repository, char out[HUB_PATH_MAX]);

/* The commit that `revision` was at when it was pulled, or `revision` itself where that is a commit
 * of the cache. false where there is none. */
bool hub_cache_commit(const char *repository, const char *revision, char out[HUB_NAME_MAX]);

/* What can be opened, in `*path`: `source` itself where there is such a file or it is no name; else
 * the model of that name in the cache, a folder of safetensors or a GGUF file, written to `room`. A
 * name without owner will do where one repository of the cache has it. SOL_E_IO says what to do
 * where a name is not in the cache, SOL_E_ARGUMENT where several files could be meant. */
enum sol_status hub_cache_find(const char *source, char room[HUB_PATH_MAX], const char **path);

#endif
