#include "inject/cupti.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
    char path[4096];
};

static int find_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *search = arg;
    (void)size;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    name = name ? name + 1 : info->dlpi_name;
    if (!name || strncmp(name, "libcupti.so", 11) != 0) return 0;
    snprintf(search->path, sizeof search->path, "%s", info->dlpi_name);
    return 1;
}

static void *open_any(const char *preferred, char *why, size_t why_size)
{
    static const char *const names[] = {
        "libcupti.so.13",
        "libcupti.so.12",
        "/usr/local/cuda/lib64/libcupti.so",
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
        "/usr/local/cuda/lib/libcupti.so.13",
    };
    struct search search = {""};
    if (dl_iterate_phdr(find_loaded, &search)) {
        void *loaded = dlopen(search.path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
        if (loaded) return loaded;
    }
    if (preferred && *preferred) {
        void *handle = dlopen(preferred, RTLD_LAZY | RTLD_LOCAL);
        if (!handle) snprintf(why, why_size, "cannot load %s: %s", preferred, dlerror());
        return handle;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *handle = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        if (handle) return handle;
    }
    snprintf(why, why_size,
             "libcupti was not found; it comes with the CUDA toolkit and the Python "
             "package nvidia-cuda-cupti, and SOL_CUPTI=FILE names it");
    return NULL;
}

bool cupti_load(struct cupti *cupti, const char *preferred, char *why, size_t why_size)
{
    memset(cupti, 0, sizeof *cupti);
    cupti->handle = open_any(preferred, why, why_size);
    if (!cupti->handle) return false;
    const char *missing = NULL;
    /* ISO C has no conversion from an object pointer to a function pointer; POSIX gives it this
     * way. */
#define LOAD(field, symbol, parameters) *(void **)&cupti->field = dlsym(cupti->handle, #symbol);
#define CHECK(field, symbol, parameters)                                                           \
    if (!cupti->field) missing = #symbol;
    CUPTI_FUNCTIONS(LOAD)
    CUPTI_OPTIONAL_FUNCTIONS(LOAD)
    CUPTI_FUNCTIONS(CHECK)
#undef LOAD
#undef CHECK
    uint32_t version = 0;
    if (missing) {
        snprintf(why, why_size, "libcupti lacks %s; CUDA 12 or newer is needed", missing);
        return false;
    }
    /* The numbers of CUDA 12.0 and newer: 18, 19, ..., then 130000. */
    if (cupti->version(&version) != CUPTI_OK || version < 18) {
        snprintf(why, why_size, "libcupti has version %u; CUDA 12 (18) or newer is needed",
                 version);
        return false;
    }
    return true;
}

const char *cupti_error(const struct cupti *cupti, int result)
{
    const char *text = NULL;
    if (cupti->result_string(result, &text) != CUPTI_OK || !text) return "an unknown CUPTI error";
    return text;
}
