#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "base/escape.h"

static atomic_int threshold = LOG_WARN;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

/* Whether it was printed before: what every test or start finds anew is said once. A text whose
 * number was forgotten, after many others, is printed again. */
static bool said_before(const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t said[64];
    static size_t count;
    uint64_t hash = bytes_hash(text, strlen(text));
    bool known = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof said / sizeof *said && i < count; i++)
        known = known || said[i] == hash;
    if (!known) said[count++ % (sizeof said / sizeof *said)] = hash;
    pthread_mutex_unlock(&lock);
    return known;
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
    if (level == LOG_WARN && said_before(text)) return;
    char shown[2 * sizeof text]; /* for programs that call the library; sol escapes all it prints */
    escape_text(shown, sizeof shown, text);
    fprintf(stderr, "sol: %s: %s\n", names[level], shown);
}
