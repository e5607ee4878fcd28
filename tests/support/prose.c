#include "support/prose.h"

#include <stdio.h>
#include <string.h>

const char *prose_read(const char *path, char *room, size_t size, size_t *length)
{
    FILE *from = fopen(path, "rb");
    if (!from) return NULL;
    *length = fread(room, 1, size, from);
    fclose(from);
    const char *at = room, *end = room + *length;
    for (int i = 0; i < 2; i++) {
        const char *gap = memmem(at, (size_t)(end - at), "\n\n", 2);
        if (!gap) return room;
        at = gap + 2;
    }
    *length = (size_t)(end - at);
    return at;
}
