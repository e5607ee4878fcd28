/* The hub's list of a repository's files, as a hostile server sends it: no accepted path leads out
 * of the cache, and what is chosen is in the list. */
#include <string.h>

#include "hub/repository.h"
#include "sol/status.h"
#include "support/fuzz.h"

static void check_path(const char *path)
{
    FUZZ_REQUIRE(*path && *path != '/' && path[strlen(path) - 1] != '/');
    FUZZ_REQUIRE(strncmp(path, "../", 3) != 0 && strcmp(path, "..") != 0);
    FUZZ_REQUIRE(!strstr(path, "/../") && !strstr(path, "//"));
}

static void check_file(const struct hub_file *file)
{
    char url[HUB_PATH_MAX];
    check_path(file->path);
    FUZZ_REQUIRE(file->size >= 0);
    FUZZ_REQUIRE((strlen(file->sha256) == 64) != (strlen(file->blob) == 40));
    if (hub_file_url("a/b", "c", file->path, url) != SOL_OK) return;
    FUZZ_REQUIRE(!strpbrk(strstr(url, "/resolve/"), "?#\\ \r\n"));
}

static void check_choice(struct hub_files *files)
{
    const struct hub_name name = {.repository = "a/b"};
    const char *model;
    size_t wanted = 0;
    enum sol_status status = hub_choose(files, &name, NULL);
    for (size_t i = 0; i < files->count; i++) wanted += files->files[i].wanted;
    FUZZ_REQUIRE((status == SOL_OK) == (wanted > 0));
    if (status != SOL_OK) return;
    FUZZ_REQUIRE(hub_choose_model(files, &name, &model) == SOL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub_repository r;
    enum sol_status status = hub_repository_parse((const char *)data, size, &r);
    FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_FORMAT);
    for (size_t i = 0; i < r.files.count; i++) check_file(&r.files.files[i]);
    if (status == SOL_OK) check_choice(&r.files);
    hub_repository_free(&r);
    return 0;
}
