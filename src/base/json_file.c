#include "base/json_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/status.h"

enum sol_status json_file_read(const char *path, json_t **out)
{
    FILE *from;
    json_error_t error;
    *out = NULL;
    SOL_TRY(file_stream(path, &from));
    errno = 0;
    *out = json_loadf(from, JSON_REJECT_DUPLICATES, &error);
    bool lost = ferror(from) != 0;
    int why = errno;
    fclose(from);
    if (*out) return SOL_OK;
    SOL_TRY(interrupt_check());
    if (lost) return status_set(SOL_E_IO, "cannot read '%s': %s", path, strerror(why));
    return status_set(SOL_E_FORMAT, "%s:%d: %s", path, error.line, error.text);
}
