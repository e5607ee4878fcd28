#include "cli/target.h"

#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "profile/kept.h"
#include "trace/trace_read.h"

static bool is_trace(const char *path)
{
    struct mapped_file file;
    if (mapped_file_open(path, &file) != SOL_OK) return false;
    bool yes = trace_read_begins(file.data, file.size);
    mapped_file_close(&file);
    return yes;
}

static enum sol_status open_file(struct target *a, const char *path)
{
    if (!is_trace(path)) {
        SOL_TRY(import_file(path, &a->import));
        a->timeline = a->import->timeline;
        return SOL_OK;
    }
    SOL_TRY(timeline_create(&a->traces));
    SOL_TRY(trace_read_file(a->traces, path));
    a->timeline = a->traces;
    return timeline_finish(a->traces);
}

static enum sol_status open_folder(struct target *a, const char *path)
{
    SOL_TRY(timeline_create(&a->traces));
    a->timeline = a->traces;
    return trace_read_folder(a->traces, path);
}

/* ---- runs ---- */

static enum sol_status open_run(struct target *a, struct store *store, const char *name,
                                const struct target_options *options)
{
    if (!store)
        return status_set(SOL_E_ARGUMENT, "%s: no such file, and there is no store of runs", name);
    SOL_TRY(store_find_for(store, name, STORE_FOR_ADVICE, a->id));
    SOL_TRY(store_record_read(store, a->id, &a->record));
    enum sol_status status = profile_kept_timeline(store, a->record, options->few, &a->traces);
    a->timeline = a->traces;
    return status;
}

enum sol_status target_open(struct store *store, const char *name,
                            const struct target_options *options, struct target *out)
{
    struct stat info;
    *out = (struct target){0};
    if (stat(name, &info) != 0)
        SOL_TRY(open_run(out, store, name, options));
    else
        SOL_TRY(S_ISDIR(info.st_mode) ? open_folder(out, name) : open_file(out, name));
    return out->timeline ? trace_windows_find(out->timeline, options->range, &out->windows)
                         : SOL_OK;
}

void target_close(struct target *target)
{
    trace_windows_free(&target->windows);
    timeline_destroy(target->traces);
    import_destroy(target->import);
    store_record_destroy(target->record);
    *target = (struct target){0};
}
