#include "hub/choose.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ends_with.h"
#include "base/status.h"

/* ---- the list ---- */

void hub_files_free(struct hub_files *files)
{
    for (size_t i = 0; i < files->count; i++) free(files->files[i].path);
    free(files->files);
    *files = (struct hub_files){0};
}

/* A relative path whose parts are names: it becomes one below the cache. */
static bool is_safe(const char *path)
{
    if (!*path || strlen(path) >= HUB_PATH_MAX / 2) return false;
    for (const char *part = path;;) {
        size_t n = strcspn(part, "/");
        if (!n || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (!part[n]) return true;
        part += n + 1;
    }
}

enum sol_status hub_files_add(struct hub_files *files, const char *path, struct hub_file **out)
{
    *out = NULL;
    if (!is_safe(path))
        return status_set(SOL_E_FORMAT, "the repository has a file of the name '%.200s'", path);
    if ((files->count & (files->count - 1)) == 0) { /* a power of two: full */
        const size_t room = files->count ? 2 * files->count : 1;
        struct hub_file *more = realloc(files->files, room * sizeof *more);
        if (!more) return status_set(SOL_E_MEMORY, "no memory for a list of files");
        files->files = more;
    }
    struct hub_file *file = &files->files[files->count];
    *file = (struct hub_file){.path = strdup(path)};
    if (!file->path) return status_set(SOL_E_MEMORY, "no memory for a list of files");
    files->count++;
    *out = file;
    return SOL_OK;
}

static enum sol_status add_entry(struct hub_files *files, const char *folder, const char *name)
{
    char path[2 * HUB_PATH_MAX];
    struct stat info;
    struct hub_file *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (stat(path, &info) || !S_ISREG(info.st_mode)) return SOL_OK; /* a link to nothing, too */
    SOL_TRY(hub_files_add(files, name, &file));
    file->size = (int64_t)info.st_size;
    return SOL_OK;
}

/* One level of folders is what repositories of GGUF files have. */
static enum sol_status add_folder(struct hub_files *files, const char *folder, const char *below)
{
    char path[2 * HUB_PATH_MAX], name[HUB_PATH_MAX];
    const struct dirent *entry;
    enum sol_status status = SOL_OK;
    snprintf(path, sizeof path, "%s/%s", folder, below);
    DIR *at = opendir(path);
    if (!at) return *below ? SOL_OK : status_set(SOL_E_IO, "cannot read %s", folder);
    while (status == SOL_OK && (entry = readdir(at))) {
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s%s%s", below, *below ? "/" : "", entry->d_name);
        status = add_entry(files, folder, name);
        if (status == SOL_OK && !*below && entry->d_type == DT_DIR)
            status = add_folder(files, folder, name);
    }
    closedir(at);
    return status;
}

static int by_path(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

enum sol_status hub_files_of_folder(const char *folder, struct hub_files *out)
{
    *out = (struct hub_files){0};
    enum sol_status status = add_folder(out, folder, "");
    if (status != SOL_OK) hub_files_free(out);
    if (out->count) qsort(out->files, out->count, sizeof *out->files, by_path);
    return status;
}

/* ---- which one ---- */

/* "-00001-of-00003.gguf": the number, and where it begins; 0 for a file that is whole. */
static int part_number(const char *path, size_t *at)
{
    enum { TAIL = 20 };
    const size_t n = strlen(path);
    int number, count, end = 0;
    *at = n;
    if (n < TAIL) return 0;
    if (sscanf(path + n - TAIL, "-%5d-of-%5d.gguf%n", &number, &count, &end) != 2 || end != TAIL)
        return 0;
    *at = n - TAIL;
    return number;
}

static bool contains(const char *text, const char *part)
{
    return !*part || strcasestr(text, part);
}

/* A GGUF file that `name` can mean, and of one in parts the first. Projectors of images are no
 * language models. */
static bool is_candidate(const struct hub_file *file, const struct hub_name *name)
{
    size_t at;
    return ends_with(file->path, ".gguf") && !strcasestr(file->path, "mmproj") &&
           contains(file->path, name->part) && part_number(file->path, &at) <= 1;
}

static bool has_safetensors(const struct hub_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        if (!strchr(files->files[i].path, '/') && ends_with(files->files[i].path, ".safetensors"))
            return true;
    return false;
}

static enum sol_status several(const struct hub_files *files, const struct hub_name *name)
{
    char list[1200] = "";
    size_t n = 0;
    for (size_t i = 0; i < files->count && n < sizeof list - 1; i++)
        if (is_candidate(&files->files[i], name))
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s (%.1f GB)", n ? ", " : "",
                                  files->files[i].path, (double)files->files[i].size / 1e9);
    return status_set(
        SOL_E_ARGUMENT,
        "%s has several models; say which by a part of its name behind a colon, as in "
        "%s:Q8_0: %s",
        name->repository, name->repository, list);
}

/* MXFP4 is what the model was made in, so it is meant where nothing else is said. */
static enum sol_status choose_gguf(const struct hub_files *files, const struct hub_name *name,
                                   const char **out)
{
    const char *mxfp4 = NULL;
    int found = 0, found_mxfp4 = 0;
    for (size_t i = 0; i < files->count; i++) {
        const char *path = files->files[i].path;
        if (!is_candidate(&files->files[i], name)) continue;
        if (!found++) *out = path;
        if (strcasestr(path, "mxfp4") && !found_mxfp4++) mxfp4 = path;
    }
    if (found > 1 && found_mxfp4 != 1) return several(files, name);
    if (found > 1) *out = mxfp4;
    if (found) return SOL_OK;
    return status_set(*name->part ? SOL_E_ARGUMENT : SOL_E_UNSUPPORTED, "%s has no %s%s%s",
                      name->repository,
                      *name->part ? "GGUF file whose name contains " : "GGUF or safetensors files",
                      name->part, *name->part ? "" : " that sol can run");
}

enum sol_status hub_choose_model(const struct hub_files *files, const struct hub_name *name,
                                 const char **out)
{
    *out = "";
    if (!*name->part && has_safetensors(files)) return SOL_OK;
    return choose_gguf(files, name, out);
}

/* ---- what to fetch ---- */

/* The same name up to the number of the part. */
static bool is_part_of(const char *path, const char *first)
{
    size_t a, b;
    const int number = part_number(first, &b);
    if (number == 0) return strcmp(path, first) == 0;
    return part_number(path, &a) > 0 && a == b && strncmp(path, first, a) == 0;
}

static bool goes_with_safetensors(const char *path)
{
    static const char *const ends[] = {".safetensors", ".json",   ".jinja",
                                       ".model",       "LICENSE", "README.md"};
    if (strchr(path, '/')) return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(path, ends[i])) return true;
    return false;
}

static enum sol_status choose_pattern(struct hub_files *files, const struct hub_name *name,
                                      const char *pattern)
{
    bool any = false;
    for (size_t i = 0; i < files->count; i++) {
        files->files[i].wanted = fnmatch(pattern, files->files[i].path, 0) == 0;
        any |= files->files[i].wanted;
    }
    if (any) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "%s has no file that matches '%s'; see: sol pull --list %s",
                      name->repository, pattern, name->repository);
}

enum sol_status hub_choose(struct hub_files *files, const struct hub_name *name,
                           const char *pattern)
{
    const char *model;
    if (pattern) return choose_pattern(files, name, pattern);
    SOL_TRY(hub_choose_model(files, name, &model));
    for (size_t i = 0; i < files->count; i++) {
        const char *path = files->files[i].path;
        files->files[i].wanted = *model ? is_part_of(path, model) : goes_with_safetensors(path);
    }
    return SOL_OK;
}
