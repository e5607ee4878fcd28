#include "hub/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/progress.h"
#include "base/status.h"
#include "hub/digest.h"

enum { CONNECTIONS = 8, PATH = 2 * HUB_PATH_MAX };

void pull_options_init(struct pull_options *options)
{
    const char *offline = getenv("HF_HUB_OFFLINE");
    const bool set = offline && *offline && strcmp(offline, "0") != 0;
    *options =
        (struct pull_options){.revision = "main", .connections = CONNECTIONS, .offline = set};
}

void pulled_free(struct pulled *pulled)
{
    hub_repository_free(&pulled->repository);
}

struct pull {
    const struct hub_name *name;
    const struct pull_options *options;
    struct http *http;
    char folder[HUB_PATH_MAX]; /* of the repository in the cache */
    struct pulled *out;
    struct progress progress;
    int64_t done; /* bytes, for the progress */
};

/* ---- files of the cache ---- */

static enum sol_status path_in(const struct pull *p, const char *kind, const char *name,
                               const char *end, char out[PATH])
{
    const int n = snprintf(out, PATH, "%s/%s/%s%s", p->folder, kind, name, end);
    if (n > 0 && n < PATH) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "%s: the path is too long", name);
}

static enum sol_status make_folders(const char *path)
{
    char part[PATH];
    for (const char *at = path; (at = strchr(at + 1, '/'));) {
        snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        if (mkdir(part, 0755) && errno != EEXIST)
            return status_set(SOL_E_IO, "cannot make %s: %s", part, strerror(errno));
    }
    return SOL_OK;
}

/* What a blob is called. */
static const char *etag(const struct hub_file *file)
{
    return *file->sha256 ? file->sha256 : file->blob;
}

static bool is_there(const struct pull *p, const struct hub_file *file)
{
    char path[PATH];
    struct stat info;
    return path_in(p, "blobs", etag(file), "", path) == SOL_OK && stat(path, &info) == 0 &&
           S_ISREG(info.st_mode) && info.st_size == file->size;
}

/* A name for the blob: a relative link, so that the cache can be moved. */
static enum sol_status link_file(const struct pull *p, const struct hub_file *file)
{
    char path[PATH], made[PATH + 16], to[PATH] = "../..";
    snprintf(path, sizeof path, "%.4000s/%s", p->out->folder, file->path);
    SOL_TRY(make_folders(path));
    for (const char *at = file->path; (at = strchr(at, '/')); at++)
        strncat(to, "/..", sizeof to - strlen(to) - 1);
    strncat(to, "/blobs/", sizeof to - strlen(to) - 1);
    strncat(to, etag(file), sizeof to - strlen(to) - 1);
    snprintf(made, sizeof made, "%s.sol-%d", path, (int)getpid());
    unlink(made);
    if (symlink(to, made) == 0 && rename(made, path) == 0) return SOL_OK;
    const int error = errno;
    unlink(made);
    return status_set(SOL_E_IO, "cannot make %s: %s", path, strerror(error));
}

/* The branch or tag is at this commit from now on. */
static enum sol_status write_ref(const struct pull *p)
{
    char path[PATH], made[PATH + 16];
    const char *commit = p->out->repository.commit;
    if (strcmp(p->options->revision, commit) == 0) return SOL_OK;
    SOL_TRY(path_in(p, "refs", p->options->revision, "", path));
    SOL_TRY(make_folders(path));
    snprintf(made, sizeof made, "%s.sol-%d", path, (int)getpid());
    FILE *file = fopen(made, "we");
    bool fine = file && fputs(commit, file) >= 0;
    if (file) fine = fclose(file) == 0 && fine;
    if (fine && rename(made, path) == 0) return SOL_OK;
    const int error = errno;
    unlink(made);
    return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(error));
}

/* ---- one file ---- */

static void show(void *arg, int64_t bytes)
{
    struct pull *p = arg;
    p->done += bytes;
    progress_update(&p->progress, (uint64_t)p->done >> 20);
}

static void show_fetched(void *arg, int64_t bytes)
{
    struct pull *p = arg;
    p->out->fetched += bytes;
    show(p, bytes);
}

/* SOL_E_MISMATCH where the bytes are others than the hub's. */
static enum sol_status check_file(struct pull *p, const struct hub_file *file, int fd)
{
    char digest[65];
    SOL_TRY(hub_digest(fd, file->size, !*file->sha256, NULL, p, digest));
    if (strcmp(digest, etag(file)) == 0) return SOL_OK;
    return status_set(SOL_E_MISMATCH, "%s: its checksum is %s, that of the hub %s", file->path,
                      digest, etag(file));
}

static enum sol_status fetch(struct pull *p, const struct hub_file *file, const char *url,
                             struct part_file *part)
{
    SOL_TRY(http_fetch(p->http, url, part, p->options->connections, show_fetched, p));
    enum sol_status status = check_file(p, file, part->fd);
    if (status != SOL_E_MISMATCH) return status;
    /* A disk that lost power, say, has holes where the table says that something is. */
    show(p, -file->size);
    part_file_restart(part);
    SOL_TRY(http_fetch(p->http, url, part, p->options->connections, show_fetched, p));
    status = check_file(p, file, part->fd);
    if (status != SOL_E_MISMATCH) return status;
    part_file_restart(part);
    return status_prefix(SOL_E_FORMAT, "the server sent wrong bytes twice");
}

static enum sol_status fetch_file(struct pull *p, const struct hub_file *file)
{
    char path[PATH], final[PATH], url[HUB_PATH_MAX];
    struct part_file *part;
    SOL_TRY(path_in(p, "blobs", etag(file), ".sol-part", path));
    SOL_TRY(path_in(p, "blobs", etag(file), "", final));
    SOL_TRY(make_folders(path));
    SOL_TRY(hub_file_url(p->name->repository, p->out->repository.commit, file->path, url));
    SOL_TRY(part_file_open(path, file->size, &part));
    show(p, part_file_done(part));
    enum sol_status status = fetch(p, file, url, part), closed;
    closed = part_file_close(part, status == SOL_OK);
    if (status != SOL_OK) return status;
    SOL_TRY(closed);
    if (rename(path, final) == 0) return SOL_OK;
    return status_set(SOL_E_IO, "cannot name %s: %s", final, strerror(errno));
}

static enum sol_status check_blob(struct pull *p, const struct hub_file *file)
{
    char path[PATH];
    int fd;
    SOL_TRY(path_in(p, "blobs", etag(file), "", path));
    SOL_TRY(file_open(path, &fd));
    enum sol_status status = check_file(p, file, fd);
    close(fd);
    if (status == SOL_E_MISMATCH) unlink(path);
    return status;
}

static enum sol_status have_file(struct pull *p, const struct hub_file *file)
{
    enum sol_status status = SOL_OK;
    bool there = is_there(p, file);
    if (there && p->options->check) {
        status = check_blob(p, file);
        if (status == SOL_E_MISMATCH) {
            progress_note("%s; it is fetched again", sol_last_error());
            there = false, status = SOL_OK;
        }
    }
    if (status == SOL_OK && there) show(p, file->size);
    if (status == SOL_OK && !there) status = fetch_file(p, file);
    return status == SOL_OK ? link_file(p, file) : status;
}

/* ---- all of them ---- */

static enum sol_status check_room(const struct pull *p, int64_t missing)
{
    struct statvfs disk;
    if (!missing || statvfs(p->folder, &disk)) return SOL_OK;
    const int64_t room = (int64_t)(disk.f_bavail * disk.f_frsize);
    if (missing <= room) return SOL_OK;
    return status_set(SOL_E_IO,
                      "%s: %.1f GB are free, %.1f GB are needed; HF_HUB_CACHE names "
                      "another folder",
                      p->folder, (double)room / 1e9, (double)missing / 1e9);
}

static enum sol_status have_files(struct pull *p)
{
    const struct hub_files *files = &p->out->repository.files;
    int64_t missing = 0;
    for (size_t i = 0; i < files->count; i++) {
        if (!files->files[i].wanted) continue;
        p->out->bytes += files->files[i].size;
        if (!is_there(p, &files->files[i])) missing += files->files[i].size;
    }
    SOL_TRY(check_room(p, missing));
    progress_start(&p->progress, "pull", "MiB", (uint64_t)p->out->bytes >> 20);
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < files->count && status == SOL_OK; i++)
        if (files->files[i].wanted) status = have_file(p, &files->files[i]);
    progress_end(&p->progress);
    if (status == SOL_E_INTERRUPTED)
        return status_set(SOL_E_INTERRUPTED, "interrupted; the same command goes on from here");
    return status == SOL_OK ? write_ref(p) : status;
}

static enum sol_status locked(struct pull *p)
{
    char path[PATH];
    int lock;
    SOL_TRY(path_in(p, ".", ".sol-lock", "", path));
    SOL_TRY(make_folders(path));
    SOL_TRY(file_lock(path, &lock));
    enum sol_status status = have_files(p);
    if (lock >= 0) close(lock);
    return status;
}

static enum sol_status online(struct pull *p)
{
    char token[HUB_PATH_MAX];
    struct hub_repository *r = &p->out->repository;
    hub_token(token);
    SOL_TRY(http_create(token, &p->http));
    SOL_TRY(hub_repository_read(p->http, p->name->repository, p->options->revision, r));
    enum sol_status status = hub_choose(&r->files, p->name, p->options->pattern);
    if (p->options->list) return status == SOL_E_ARGUMENT ? SOL_OK : status;
    SOL_TRY(status);
    snprintf(p->out->folder, sizeof p->out->folder, "%s/snapshots/%s", p->folder, r->commit);
    return locked(p);
}

static enum sol_status offline(struct pull *p)
{
    struct hub_repository *r = &p->out->repository;
    char commit[HUB_NAME_MAX];
    if (!hub_cache_commit(p->name->repository, p->options->revision, commit))
        return status_set(SOL_E_IO, "%s is not in the cache, and nothing is fetched offline",
                          p->name->repository);
    snprintf(r->commit, sizeof r->commit, "%.40s", commit);
    snprintf(p->out->folder, sizeof p->out->folder, "%s/snapshots/%s", p->folder, commit);
    SOL_TRY(hub_files_of_folder(p->out->folder, &r->files));
    SOL_TRY(hub_choose(&r->files, p->name, p->options->pattern));
    for (size_t i = 0; i < r->files.count; i++)
        if (r->files.files[i].wanted) p->out->bytes += r->files.files[i].size;
    return SOL_OK;
}

enum sol_status pull_model(const struct hub_name *name, const struct pull_options *options,
                           struct pulled *out)
{
    struct pull p = {.name = name, .options = options, .out = out};
    *out = (struct pulled){.folder = ""};
    SOL_TRY(hub_cache_repository(name->repository, p.folder));
    enum sol_status status = options->offline ? offline(&p) : online(&p);
    http_destroy(p.http);
    return status;
}
