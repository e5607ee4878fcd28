#include "hub/cache.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/ends_with.h"
#include "base/status.h"
#include "hub/choose.h"

/* ---- names ---- */

/* Owner or name: what the hub allows. */
static bool is_word(const char *text, size_t n)
{
    if (!n || n > 96 || text[0] == '-' || text[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i])) return false;
    for (size_t i = 1; i < n; i++) /* ".." leads out of a folder, "--" stands for the slash */
        if (text[i - 1] == text[i] && (text[i] == '.' || text[i] == '-')) return false;
    return true;
}

bool hub_name_parse(const char *text, struct hub_name *out)
{
    const char *colon = strchr(text, ':'), *end = colon ? colon : text + strlen(text);
    const char *slash = memchr(text, '/', (size_t)(end - text));
    *out = (struct hub_name){.repository = ""};
    if (!slash || !is_word(text, (size_t)(slash - text)) ||
        !is_word(slash + 1, (size_t)(end - slash - 1)))
        return false;
    if (colon && (!colon[1] || strchr(colon, '/') || strlen(colon + 1) >= sizeof out->part))
        return false;
    if (!colon &&
        (ends_with(text, ".gguf") || ends_with(text, ".safetensors") || ends_with(text, ".json")))
        return false;
    snprintf(out->repository, sizeof out->repository, "%.*s", (int)(end - text), text);
    if (colon) snprintf(out->part, sizeof out->part, "%s", colon + 1);
    return true;
}

/* ---- folders ---- */

static enum sol_status copy(char out[HUB_PATH_MAX], const char *path)
{
    const int n = snprintf(out, HUB_PATH_MAX, "%s", path);
    if (n > 0 && n < HUB_PATH_MAX) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "a path of %d bytes is too long", n);
}

static enum sol_status join(char out[HUB_PATH_MAX], const char *folder, const char *name)
{
    int n = snprintf(out, HUB_PATH_MAX, "%s/%s", folder, name);
    if (n > 0 && n < HUB_PATH_MAX) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "%s/%s: the path is too long", folder, name);
}

static const char *set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

enum sol_status hub_home(char out[HUB_PATH_MAX])
{
    const char *home = set("HF_HOME"), *cache = set("XDG_CACHE_HOME");
    if (home) return copy(out, home);
    if (cache) return join(out, cache, "huggingface");
    home = set("HOME");
    if (home) return join(out, home, ".cache/huggingface");
    return status_set(SOL_E_IO, "no folder for models: set HF_HUB_CACHE or HOME");
}

enum sol_status hub_cache_folder(char out[HUB_PATH_MAX])
{
    char home[HUB_PATH_MAX];
    const char *folder = set("HF_HUB_CACHE");
    if (folder) return copy(out, folder);
    SOL_TRY(hub_home(home));
    return join(out, home, "hub");
}

enum sol_status hub_cache_repository(const char *repository, char out[HUB_PATH_MAX])
{
    char folder[HUB_PATH_MAX], name[2 * HUB_NAME_MAX];
    const char *slash = strchr(repository, '/');
    SOL_TRY(hub_cache_folder(folder));
    snprintf(name, sizeof name, "models--%.*s--%s", (int)(slash - repository), repository,
             slash + 1);
    return join(out, folder, name);
}

/* ---- what is there ---- */

bool hub_is_hex(const char *text, size_t digits)
{
    return text && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static bool has_snapshot(const char *folder, const char *commit)
{
    char path[HUB_PATH_MAX + HUB_NAME_MAX];
    snprintf(path, sizeof path, "%s/snapshots/%s", folder, commit);
    return access(path, F_OK) == 0;
}

bool hub_cache_commit(const char *repository, const char *revision, char out[HUB_NAME_MAX])
{
    char folder[HUB_PATH_MAX], path[HUB_PATH_MAX + HUB_NAME_MAX + 8];
    if (hub_cache_repository(repository, folder) != SOL_OK) return false;
    snprintf(out, HUB_NAME_MAX, "%s", revision);
    if (hub_is_hex(revision, HUB_COMMIT)) return has_snapshot(folder, revision);
    snprintf(path, sizeof path, "%s/refs/%s", folder, revision);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    const bool read = fgets(out, HUB_NAME_MAX, file);
    fclose(file);
    out[strcspn(out, "\r\n")] = '\0';
    return read && hub_is_hex(out, HUB_COMMIT) && has_snapshot(folder, out);
}

/* The repository of the cache whose name, without owner, is `name`; false unless there is one. */
static bool owner_of(const char *name, struct hub_name *out)
{
    char folder[HUB_PATH_MAX];
    const struct dirent *entry;
    int found = 0;
    const char *colon = strchr(name, ':');
    const size_t n = colon ? (size_t)(colon - name) : strlen(name);
    if (!is_word(name, n) || hub_cache_folder(folder) != SOL_OK) return false;
    DIR *at = opendir(folder);
    while (at && (entry = readdir(at))) {
        const char *owner = entry->d_name + strlen("models--"), *end;
        if (strncmp(entry->d_name, "models--", 8) != 0 || !(end = strstr(owner, "--"))) continue;
        if (strlen(end + 2) != n || strncasecmp(end + 2, name, n) != 0) continue;
        snprintf(out->repository, sizeof out->repository, "%.*s/%s", (int)(end - owner), owner,
                 end + 2);
        snprintf(out->part, sizeof out->part, "%s", colon ? colon + 1 : "");
        found++;
    }
    if (at) closedir(at);
    return found == 1;
}

/* The files of a snapshot as those of a repository, of which the model's are chosen. */
static enum sol_status choose_in(const char *snapshot, const struct hub_name *name,
                                 char out[HUB_PATH_MAX])
{
    struct hub_files files;
    const char *chosen = NULL;
    SOL_TRY(hub_files_of_folder(snapshot, &files));
    enum sol_status status = hub_choose_model(&files, name, &chosen);
    if (status == SOL_OK && *chosen) status = join(out, snapshot, chosen);
    if (status == SOL_OK && !*chosen) status = copy(out, snapshot);
    hub_files_free(&files);
    return status;
}

enum sol_status hub_cache_find(const char *source, char room[HUB_PATH_MAX], const char **path)
{
    struct hub_name name;
    char commit[HUB_NAME_MAX], folder[HUB_PATH_MAX], snapshot[2 * HUB_PATH_MAX];
    *path = source;
    if (access(source, F_OK) == 0) return SOL_OK;
    const bool full = hub_name_parse(source, &name);
    if (!full && !owner_of(source, &name)) return SOL_OK; /* who opens it says that it is missing */
    if (!hub_cache_commit(name.repository, "main", commit))
        return status_set(SOL_E_IO,
                          "%s: there is no such file, and no model of that name was pulled; "
                          "try: sol pull %s",
                          source, source);
    SOL_TRY(hub_cache_repository(name.repository, folder));
    snprintf(snapshot, sizeof snapshot, "%s/snapshots/%s", folder, commit);
    *path = room;
    return choose_in(snapshot, &name, room);
}
