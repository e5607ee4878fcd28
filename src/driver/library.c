#include "driver/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *open_first(const struct library_spec *spec, char why[LIBRARY_REASON_MAX])
{
    for (int i = 0; spec->names[i]; i++) {
        void *handle = dlopen(spec->names[i], RTLD_NOW | RTLD_LOCAL);
        if (handle) return handle;
        const char *error = dlerror();
        snprintf(why, LIBRARY_REASON_MAX, "%s cannot be loaded: %.150s", spec->what,
                 error ? error : spec->names[i]);
    }
    return NULL;
}

bool library_load(const struct library_spec *spec, void *table, char why[LIBRARY_REASON_MAX])
{
    void *handle = open_first(spec, why);
    if (!handle) return false;
    for (size_t i = 0; i < spec->n_symbols; i++) {
        const struct library_symbol *s = &spec->symbols[i];
        void *address = dlsym(handle, s->name);
        memcpy((char *)table + s->offset, &address, sizeof address);
        if (address || s->optional) continue;
        snprintf(why, LIBRARY_REASON_MAX, "%s is too old: it has no %s; update it", spec->what,
                 s->name);
        for (size_t j = 0; j <= i; j++)
            memset((char *)table + spec->symbols[j].offset, 0, sizeof address);
        dlclose(handle);
        return false;
    }
    why[0] = '\0';
    return true;
}
