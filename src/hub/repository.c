#include "hub/repository.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/status.h"

enum { ANSWER_BYTES = 32 << 20, FILES_MAX = 100000 };

/* ---- where, and who asks ---- */

enum sol_status hub_endpoint(char out[HUB_PATH_MAX])
{
    const char *set = getenv("HF_ENDPOINT");
    if (!set || !*set) set = "https://huggingface.co";
    if (strncmp(set, "https://", 8) != 0 && strncmp(set, "http://", 7) != 0)
        return status_set(SOL_E_ARGUMENT, "HF_ENDPOINT is '%.200s'; it begins with https://", set);
    if (strlen(set) > HUB_PATH_MAX / 4)
        return status_set(SOL_E_ARGUMENT, "HF_ENDPOINT is too long");
    snprintf(out, HUB_PATH_MAX, "%s", set);
    for (size_t n = strlen(out); n && out[n - 1] == '/'; n--) out[n - 1] = '\0';
    return SOL_OK;
}

void hub_token(char out[HUB_PATH_MAX])
{
    char path[HUB_PATH_MAX + 8], home[HUB_PATH_MAX];
    const char *set = getenv("HF_TOKEN"), *file = getenv("HF_TOKEN_PATH");
    out[0] = '\0';
    if (set && *set) {
        snprintf(out, HUB_PATH_MAX, "%s", set);
        return;
    }
    if (hub_home(home) != SOL_OK) return;
    snprintf(path, sizeof path, "%s/token", home);
    FILE *from = fopen(file && *file ? file : path, "re");
    if (!from) return;
    if (!fgets(out, HUB_PATH_MAX, from)) out[0] = '\0';
    fclose(from);
    out[strcspn(out, " \t\r\n")] = '\0';
}

/* Every byte that has a meaning in a URL, or is none of ASCII, as %XX. */
static enum sol_status append_escaped(char *out, const char *text, const char *kept)
{
    size_t n = strlen(out);
    for (const char *at = text; *at; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (n + 4 > HUB_PATH_MAX) return status_set(SOL_E_ARGUMENT, "%s: too long", text);
        if (isalnum(byte) || strchr(kept, byte))
            out[n++] = (char)byte, out[n] = '\0';
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", byte);
    }
    return SOL_OK;
}

enum sol_status hub_file_url(const char *repository, const char *commit, const char *path,
                             char out[HUB_PATH_MAX])
{
    SOL_TRY(hub_endpoint(out));
    SOL_TRY(append_escaped(out, "/", "/"));
    SOL_TRY(append_escaped(out, repository, "-_./"));
    SOL_TRY(append_escaped(out, "/resolve/", "/"));
    SOL_TRY(append_escaped(out, commit, ""));
    SOL_TRY(append_escaped(out, "/", "/"));
    return append_escaped(out, path, "-_./~");
}

/* ---- the answer ---- */

static enum sol_status bad_answer(const char *what)
{
    return status_set(SOL_E_FORMAT, "the hub's list of files has %s", what);
}

static enum sol_status add_file(struct hub_files *files, const json_t *entry)
{
    const char *path = json_string_value(json_object_get(entry, "rfilename"));
    const char *blob = json_string_value(json_object_get(entry, "blobId"));
    const json_t *size = json_object_get(entry, "size"), *lfs = json_object_get(entry, "lfs");
    struct hub_file *file;
    if (!path) return bad_answer("a file without a name");
    SOL_TRY(hub_files_add(files, path, &file));
    if (json_is_object(lfs)) {
        const char *sha256 = json_string_value(json_object_get(lfs, "sha256"));
        size = json_object_get(lfs, "size");
        if (!hub_is_hex(sha256, 64)) return bad_answer("a large file without its SHA-256");
        snprintf(file->sha256, sizeof file->sha256, "%s", sha256);
    } else {
        if (!hub_is_hex(blob, 40)) return bad_answer("a file without its Git blob");
        snprintf(file->blob, sizeof file->blob, "%s", blob);
    }
    file->size = (int64_t)json_integer_value(size);
    if (!json_is_integer(size) || file->size < 0 || file->size > (int64_t)1 << 50)
        return bad_answer("a file of no size");
    return SOL_OK;
}

static enum sol_status add_files(struct hub_repository *out, const json_t *root)
{
    const json_t *list = json_object_get(root, "siblings"), *entry;
    const char *commit = json_string_value(json_object_get(root, "sha"));
    size_t i;
    if (!hub_is_hex(commit, 40)) return bad_answer("no commit");
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    if (!json_is_array(list)) return bad_answer("no files");
    if (json_array_size(list) > FILES_MAX) return bad_answer("over 100000 files");
    json_array_foreach(list, i, entry) SOL_TRY(add_file(&out->files, entry));
    return SOL_OK;
}

enum sol_status hub_repository_parse(const char *text, size_t length, struct hub_repository *out)
{
    json_error_t error;
    *out = (struct hub_repository){.commit = ""};
    json_t *root = json_loadb(text, length, 0, &error);
    if (!root)
        return status_set(SOL_E_FORMAT, "the hub's list of files is no JSON: %s", error.text);
    enum sol_status status = add_files(out, root);
    json_decref(root);
    if (status != SOL_OK) hub_repository_free(out);
    return status;
}

void hub_repository_free(struct hub_repository *r)
{
    hub_files_free(&r->files);
}

/* ---- what the hub refuses ---- */

static enum sol_status refused(const struct http_answer *a, const char *repository,
                               const char *revision)
{
    char endpoint[HUB_PATH_MAX];
    SOL_TRY(hub_endpoint(endpoint));
    if (strcmp(a->error, "GatedRepo") == 0)
        return status_set(
            SOL_E_ARGUMENT,
            "%s is for those who accepted its terms: do so at %s/%s, and set HF_TOKEN "
            "to a token of yours",
            repository, endpoint, repository);
    if (strcmp(a->error, "RevisionNotFound") == 0)
        return status_set(SOL_E_ARGUMENT, "%s has no branch, tag or commit '%s'", repository,
                          revision);
    if (strcmp(a->error, "RepoNotFound") == 0 || a->code == 404)
        return status_set(SOL_E_ARGUMENT,
                          "%s/%s: there is no such repository, or it is a private one and HF_TOKEN "
                          "is no token for it",
                          endpoint, repository);
    if (a->code == 401 || a->code == 403)
        return status_set(SOL_E_ARGUMENT,
                          "%s/%s: the hub does not accept this token (HF_TOKEN)%s%s", endpoint,
                          repository, *a->message ? ": " : "", a->message);
    return status_set(SOL_E_IO, "%s/%s: the server answers %ld%s%s", endpoint, repository, a->code,
                      *a->message ? ": " : "", a->message);
}

enum sol_status hub_repository_read(struct http *http, const char *repository, const char *revision,
                                    struct hub_repository *out)
{
    char url[HUB_PATH_MAX];
    struct http_answer answer;
    *out = (struct hub_repository){.commit = ""};
    SOL_TRY(hub_endpoint(url));
    SOL_TRY(append_escaped(url, "/api/models/", "/"));
    SOL_TRY(append_escaped(url, repository, "-_./"));
    SOL_TRY(append_escaped(url, "/revision/", "/"));
    SOL_TRY(append_escaped(url, revision, "-_."));
    SOL_TRY(append_escaped(url, "?blobs=true", "?="));
    enum sol_status status = http_get(http, url, ANSWER_BYTES, &answer);
    if (status == SOL_OK && answer.code != 200) status = refused(&answer, repository, revision);
    if (status == SOL_OK) status = hub_repository_parse(answer.body, answer.length, out);
    free(answer.body);
    return status;
}
