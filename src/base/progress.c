#include "base/progress.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"

static const uint64_t second = 1000000000u;
static const char clear[] = "\r\033[K"; /* the line */

static atomic_bool quiet_mode = true;

void progress_quiet(bool quiet)
{
    atomic_store(&quiet_mode, quiet);
}

void progress_start(struct progress *p, const char *label, const char *unit, uint64_t total)
{
    uint64_t now = clock_ns();
    *p = (struct progress){
        .label = label, .unit = unit, .total = total, .started_ns = now, .shown_ns = now};
}

static void print_state(const struct progress *p, uint64_t done, double seconds)
{
    double rate = (double)done / seconds;
    fprintf(stderr, "%s: %llu", p->label, (unsigned long long)done);
    if (p->total)
        fprintf(stderr, "/%llu %s (%.0f%%)", (unsigned long long)p->total, p->unit,
                100.0 * (double)done / (double)p->total);
    else
        fprintf(stderr, " %s", p->unit);
    fprintf(stderr, ", %.3g %s/s", rate, p->unit);
    if (p->total > done && done) fprintf(stderr, ", %.0f s left", (double)(p->total - done) / rate);
}

void progress_update(struct progress *p, uint64_t done)
{
    uint64_t now = clock_ns();
    bool terminal = isatty(STDERR_FILENO);
    /* A terminal gets its line after one second and then ten a second; a log one in ten seconds. */
    uint64_t pause = !terminal ? 10 * second : p->shown ? second / 10 : second;
    if (now - p->shown_ns < pause || atomic_load(&quiet_mode)) return;

    if (terminal) escape_not(clear);
    print_state(p, done, (double)(now - p->started_ns) / (double)second);
    if (!terminal) fputc('\n', stderr);
    fflush(stderr);
    p->shown_ns = now;
    p->shown = true;
}

void progress_end(struct progress *p)
{
    if (p->shown && isatty(STDERR_FILENO)) {
        escape_not(clear);
    }
    p->shown = false;
}

void progress_note(const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (atomic_load(&quiet_mode)) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "sol: %s\n", text);
}
