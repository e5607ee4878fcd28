#include "cli/backend.h"

#include "gpu/kernel.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static enum sol_status open_named(const char *name, struct gpu **out)
{
    if (!name || strcasecmp(name, "cpu") == 0) return SOL_OK;
    if (strcasecmp(name, "auto") == 0) {
        int count;
        struct gpu_info info;
        return gpu_list(&info, 1, &count) == SOL_OK && count > 0 ? gpu_open(0, out) : SOL_OK;
    }
    if (strcasecmp(name, "cuda") == 0) return gpu_open(0, out);
    if (strncasecmp(name, "cuda:", 5) == 0) {
        char *end;
        long ordinal = strtol(name + 5, &end, 10);
        if (end != name + 5 && !*end && ordinal >= 0 && ordinal < 1024)
            return gpu_open((int)ordinal, out);
    }
    return status_set(SOL_E_ARGUMENT, "--backend %s: expected cpu, cuda, cuda:N or auto", name);
}

enum sol_status backend_open(const char *name, const char *kernel_source, struct gpu **out)
{
    *out = NULL;
    SOL_TRY(open_named(name, out));
    if (!*out || !kernel_source) return SOL_OK;
    enum sol_status status = gpu_use_sources(*out, kernel_source);
    if (status == SOL_OK) return SOL_OK;
    gpu_close(*out);
    *out = NULL;
    return status;
}
