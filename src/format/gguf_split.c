/* Split models, as llama-gguf-split makes them: NAME-00001-of-0000N.gguf and so on. Each part is a
 * GGUF file of its own with split.no (from 0), split.count and split.tensors.count; the model's
 * keys are in the first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "format/gguf_private.h"

enum { MAX_PARTS = 1024, SUFFIX = 20 /* "-00001-of-00003.gguf" */ };

struct split {
    uint64_t number, count, tensors;
};

/* count is 1 for a file that is no part. */
static enum sol_status get_split(const struct gguf *file, struct split *out)
{
    bool found;
    *out = (struct split){.count = 1};
    SOL_TRY(gguf_get_u64(file, "split.count", &out->count, &found));
    if (!found || out->count <= 1) {
        out->count = 1;
        return SOL_OK;
    }
    if (out->count > MAX_PARTS)
        return gguf_fail(file, SOL_E_FORMAT, "split.count %llu is beyond %d",
                         (unsigned long long)out->count, MAX_PARTS);
    SOL_TRY(gguf_get_u64(file, "split.no", &out->number, NULL));
    SOL_TRY(gguf_get_u64(file, "split.tensors.count", &out->tensors, NULL));
    if (out->number >= out->count)
        return gguf_fail(file, SOL_E_FORMAT, "split.no %llu is not below split.count %llu",
                         (unsigned long long)out->number, (unsigned long long)out->count);
    return SOL_OK;
}

/* The path of part `number` (from 0), made from the path of another part. */
static enum sol_status part_path(const struct gguf *file, const char *path,
                                 const struct split *split, uint64_t number, char *out, size_t size)
{
    char suffix[32];
    size_t length = strlen(path);
    snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", (int)split->number + 1,
             (int)split->count);
    if (length <= SUFFIX || strcmp(path + length - SUFFIX, suffix) != 0) {
        return gguf_fail(file, SOL_E_UNSUPPORTED,
                         "part %d of %d of a split model; its name must end in '%s' so that the "
                         "others are found (or merge them with llama-gguf-split --merge)",
                         (int)split->number + 1, (int)split->count, suffix);
    }
    int n = snprintf(out, size, "%.*s-%05d-of-%05d.gguf", (int)(length - SUFFIX), path,
                     (int)number + 1, (int)split->count);
    if (n < 0 || (size_t)n >= size) return gguf_fail(file, SOL_E_FORMAT, "the path is too long");
    return SOL_OK;
}

static enum sol_status open_part(const char *path, const struct gguf *first,
                                 const struct split *want, uint64_t number, struct gguf **out)
{
    struct split split;
    enum sol_status status = gguf_open(path, out);
    if (status == SOL_E_IO)
        return status_prefix(status, "part %d of %d of the model is missing", (int)number + 1,
                             (int)want->count);
    SOL_TRY(status);
    SOL_TRY(get_split(*out, &split));
    if (split.number == number && split.count == want->count && split.tensors == want->tensors)
        return SOL_OK;
    return gguf_fail(*out, SOL_E_FORMAT,
                     "part %d of %d with %d tensors in all, but %s belongs to another split (%d "
                     "parts, %d tensors)",
                     (int)split.number + 1, (int)split.count, (int)split.tensors, first->name,
                     (int)want->count, (int)want->tensors);
}

static enum sol_status open_others(struct gguf *first, const char *path, const struct split *split)
{
    char part[4096];
    first->parts = ARENA_NEW(first->arena, struct gguf *, split->count);
    if (!first->parts) return SOL_E_MEMORY;
    for (uint64_t number = 1; number < split->count; number++) {
        SOL_TRY(part_path(first, path, split, number, part, sizeof part));
        struct gguf **slot = &first->parts[number - 1];
        enum sol_status status = open_part(part, first, split, number, slot);
        if (*slot) first->n_parts++;
        SOL_TRY(status);
    }
    SOL_TRY(gguf_merge_parts(first));
    if (first->n_tensors != split->tensors)
        return gguf_fail(first, SOL_E_FORMAT,
                         "the parts hold %zu tensors, split.tensors.count "
                         "says %llu",
                         first->n_tensors, (unsigned long long)split->tensors);
    return SOL_OK;
}

enum sol_status gguf_open_parts(const char *path, struct gguf **out)
{
    struct split split;
    struct gguf *file = NULL;
    char first[4096];
    *out = NULL;
    SOL_TRY(gguf_open(path, &file));
    enum sol_status status = get_split(file, &split);
    if (status == SOL_OK && split.count > 1) {
        status = part_path(file, path, &split, 0, first, sizeof first);
        if (status == SOL_OK && split.number != 0) {
            struct split of_first = {0};
            gguf_close(file);
            file = NULL;
            status = gguf_open(first, &file);
            if (status == SOL_OK) status = get_split(file, &of_first);
            if (status == SOL_OK && (of_first.number != 0 || of_first.count != split.count))
                status =
                    gguf_fail(file, SOL_E_FORMAT, "not the first of %d parts", (int)split.count);
            split.number = 0;
        }
        if (status == SOL_OK) status = open_others(file, first, &split);
    }
    if (status != SOL_OK) {
        gguf_close(file);
        return status;
    }
    *out = file;
    return SOL_OK;
}
