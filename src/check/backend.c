#include "check/backend.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/progress.h"
#include "check/verdict.h"
#include "gpu/kernel.h"

static enum sol_status open_gpu(int ordinal, bool trusted, struct gpu **out)
{
    SOL_TRY(gpu_open(ordinal, out));
    enum sol_status status = trusted ? verdict_check(*out) : SOL_OK;
    if (status == SOL_OK) return SOL_OK;
    gpu_close(*out);
    *out = NULL;
    return status;
}

/* The first that can be used. Why the last one cannot is said; that there is none is no news. */
static void open_any(bool trusted, struct gpu **out)
{
    int count = 0;
    struct gpu_info info;
    enum sol_status status = gpu_list(&info, 1, &count);
    for (int i = 0; i < count && !*out; i++) status = open_gpu(i, trusted, out);
    if (!*out && status != SOL_OK) progress_note("the CPU computes: %s", sol_last_error());
}

static bool is_auto(const char *name)
{
    return name && strcasecmp(name, "auto") == 0;
}

static enum sol_status open_named(const char *name, bool trusted, struct gpu **out)
{
    if (!name || strcasecmp(name, "cpu") == 0) return SOL_OK;
    if (is_auto(name)) {
        open_any(trusted, out);
        return SOL_OK;
    }
    if (strcasecmp(name, "cuda") == 0) return open_gpu(0, trusted, out);
    if (strncasecmp(name, "cuda:", 5) == 0) {
        char *end;
        long ordinal = strtol(name + 5, &end, 10);
        if (end != name + 5 && !*end && ordinal >= 0 && ordinal < 1024)
            return open_gpu((int)ordinal, trusted, out);
    }
    return status_set(SOL_E_ARGUMENT, "backend %s: expected cpu, cuda, cuda:N or auto", name);
}

enum sol_status backend_open(const char *name, const char *kernel_source, bool trusted,
                             struct gpu **out)
{
    *out = NULL;
    SOL_TRY(open_named(name, trusted, out));
    if (!*out || !kernel_source) return SOL_OK;
    enum sol_status status = gpu_use_sources(*out, kernel_source);
    if (status == SOL_OK) return SOL_OK;
    gpu_close(*out);
    *out = NULL;
    return status;
}

void backend_fit(const char *name, const struct model *model, const struct engine_params *run,
                 struct gpu **gpu)
{
    struct engine_params there = *run;
    there.chooser.device.gpu = *gpu;
    if (!*gpu || !is_auto(name) || fit_upload_check(model, &there) == SOL_OK) return;
    progress_note("the CPU computes: %s", sol_last_error());
    gpu_close(*gpu);
    *gpu = NULL;
}
