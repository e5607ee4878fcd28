#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Long enough for two paths and an explanation; longer messages are cut. */
enum { MESSAGE_SIZE = 1024 };

static _Thread_local char message[MESSAGE_SIZE];

/* One row per code: the fixed name, and the exit status that `sol --help` documents. */
static const struct {
    const char *name;
    int exit_code;
} codes[SOL_STATUS_COUNT] = {
    [SOL_OK] = {"ok", 0},
    [SOL_E_ARGUMENT] = {"argument", 2},
    [SOL_E_IO] = {"io", 3},
    [SOL_E_FORMAT] = {"format", 4},
    [SOL_E_UNSUPPORTED] = {"unsupported", 5},
    [SOL_E_MEMORY] = {"memory", 6},
    [SOL_E_MISMATCH] = {"mismatch", 7},
    [SOL_E_DEVICE] = {"device", 8},
    [SOL_E_INTERRUPTED] = {"interrupted", 130}, /* 128 + SIGINT, as shells report it */
    [SOL_E_INTERNAL] = {"internal", 70},        /* EX_SOFTWARE of sysexits.h */
};

static bool code_known(enum sol_status code)
{
    return (unsigned)code < SOL_STATUS_COUNT;
}

const char *sol_status_name(enum sol_status status)
{
    return code_known(status) ? codes[status].name : "unknown";
}

const char *sol_last_error(void)
{
    return message;
}

int status_exit_code(enum sol_status code)
{
    return codes[code_known(code) ? code : SOL_E_INTERNAL].exit_code;
}

/* The names are in parentheses because macros have the same.
 * Arguments may point into the present message (a caller that rewords it), hence the copies. */
enum sol_status(status_set)(enum sol_status code, const char *fmt, ...)
{
    char text[MESSAGE_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    memcpy(message, text, sizeof message);
    return code;
}

enum sol_status(status_prefix)(enum sol_status code, const char *fmt, ...)
{
    char text[MESSAGE_SIZE];
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (length < 0) return code;
    if ((size_t)length < sizeof text)
        snprintf(text + length, sizeof text - (size_t)length, ": %s", message);
    memcpy(message, text, sizeof message);
    return code;
}
