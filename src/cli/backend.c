#include "cli/backend.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum sol_status backend_open(const char *name, struct gpu **out)
{
    *out = NULL;
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
