/* Finding out what kind of vocabulary a path leads to. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ends_with.h"
#include "base/memory.h"
#include "base/status.h"
#include "tok/tokenizer.h"

enum { PATH_SIZE = 4096 };

static enum sol_status open_gguf(const char *path, struct tokenizer **out)
{
    struct gguf *file;
    SOL_TRY(gguf_open(path, &file));
    enum sol_status status = tokenizer_from_gguf(file, out);
    gguf_close(file);
    return status;
}

/* The first line is base64, a space and a number. */
static bool looks_like_tiktoken(const char *data, size_t size)
{
    const char *end = memchr(data, '\n', size);
    size_t length = end ? (size_t)(end - data) : size;
    const char *space = memchr(data, ' ', length);
    if (!space || space == data || space + 1 == data + length) return false;
    for (const char *at = data; at < space; at++)
        if (!*at ||
            !strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", *at))
            return false;
    return space[1] >= '0' && space[1] <= '9';
}

static enum sol_status open_text(const char *path, const struct mapped_file *file,
                                 struct tokenizer **out)
{
    const char *data = file->data;
    size_t blank = 0;
    while (blank < file->size && data[blank] && strchr(" \t\r\n", data[blank])) blank++;
    if (blank < file->size && data[blank] == '{')
        return tokenizer_from_json(data, file->size, path, out);
    if (file->size && looks_like_tiktoken(data, file->size))
        return tokenizer_from_tiktoken(data, file->size, path, out);
    return status_set(SOL_E_FORMAT,
                      "'%s' is no vocabulary: neither GGUF nor tokenizer.json nor .tiktoken", path);
}

enum sol_status tokenizer_open(const char *path, struct tokenizer **out)
{
    struct stat info;
    struct mapped_file file;
    *out = NULL;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return tokenizer_from_directory(path, out);
    SOL_TRY(mapped_file_open(path, &file));
    bool gguf = file.size >= 4 && memcmp(file.data, "GGUF", 4) == 0;
    enum sol_status status = gguf ? SOL_OK : open_text(path, &file, out);
    mapped_file_close(&file);
    return gguf ? open_gguf(path, out) : status;
}

/* ---- folders ---- */

/* The only file in `dir` with this ending; "" when there is none. */
static enum sol_status find_only(const char *dir, const char *ending, char path[PATH_SIZE])
{
    DIR *folder = opendir(dir);
    path[0] = '\0';
    if (!folder)
        return status_set(SOL_E_IO, "cannot list the folder '%s': %s", dir, strerror(errno));
    enum sol_status status = SOL_OK;
    for (const struct dirent *entry; status == SOL_OK && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' || !ends_with(entry->d_name, ending)) continue;
        if (path[0])
            status = status_set(SOL_E_ARGUMENT,
                                "the folder '%s' has several %s files; name the one to read", dir,
                                ending);
        else
            snprintf(path, PATH_SIZE, "%s/%s", dir, entry->d_name);
    }
    closedir(folder);
    return status;
}

enum sol_status tokenizer_from_directory(const char *dir, struct tokenizer **out)
{
    static const char *const endings[] = {".tiktoken", ".gguf"};
    char path[PATH_SIZE];
    *out = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    if (access(path, F_OK) == 0) return tokenizer_open(path, out);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        SOL_TRY(find_only(dir, endings[i], path));
        if (path[0]) return tokenizer_open(path, out);
    }
    return status_set(SOL_E_FORMAT,
                      "the folder '%s' has no vocabulary: neither tokenizer.json nor a .tiktoken "
                      "or .gguf file",
                      dir);
}
