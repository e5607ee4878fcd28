#include "profile/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "trace/trace_read.h"

static enum sol_status add_file(const struct store *store, const char *id,
                                const struct store_artifact *file, struct timeline **t)
{
    char *data;
    size_t size;
    enum sol_status status = store_artifact_read(store, id, file, &data, &size);
    if (status == SOL_E_IO) {
        LOG_WARN("a trace of run %s is left out: %s", id, sol_last_error());
        return SOL_OK;
    }
    SOL_TRY(status);
    if (trace_read_begins(data, size)) {
        if (!*t) status = timeline_create(t);
        if (status == SOL_OK) status = trace_read_memory(*t, data, size, file->path);
    }
    free(data);
    return status;
}

static enum sol_status add_files(const struct store *store, const struct store_record *record,
                                 const char *kind, struct timeline **t)
{
    for (size_t i = 0; i < record->n_artifacts; i++)
        if (strcmp(record->artifacts[i].kind, kind) == 0)
            SOL_TRY(add_file(store, record->run.id, &record->artifacts[i], t));
    return SOL_OK;
}

enum sol_status profile_kept_timeline(const struct store *store, const struct store_record *record,
                                      bool few, struct timeline **out)
{
    struct timeline *t = NULL;
    *out = NULL;
    enum sol_status status = few ? add_files(store, record, "steps", &t) : SOL_OK;
    if (status == SOL_OK && !t) status = add_files(store, record, "trace", &t);
    if (status == SOL_OK && t) status = timeline_finish(t);
    if (status == SOL_OK)
        *out = t;
    else
        timeline_destroy(t);
    return status;
}
