#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/escape.h"

static atomic_int threshold = LOG_WARN;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

void log_write(enum log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed)) return;

    /* One write per line, so that lines of several threads do not mix. */
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    char shown[2 * sizeof text]; /* for programs that call the library; sol escapes all it prints */
    escape_text(shown, sizeof shown, text);
    fprintf(stderr, "sol: %s: %s\n", names[level], shown);
}
