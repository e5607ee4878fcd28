#include "base/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"
#include "base/number.h"

static const uint64_t second = 1000000000u;
static const char clear[] = "\r\033[K"; /* the line */

static atomic_bool quiet_mode = true;
static _Thread_local bool quiet_here;

void progress_quiet(bool quiet)
{
    atomic_store(&quiet_mode, quiet);
}

void progress_quiet_here(bool quiet)
{
    quiet_here = quiet;
}

static bool is_quiet(void)
{
    return quiet_here || atomic_load(&quiet_mode);
}

void progress_start(struct progress *p, const char *label, const char *unit, uint64_t total)
{
    uint64_t now = clock_ns();
    *p = (struct progress){
        .label = label, .unit = unit, .total = total, .started_ns = now, .shown_ns = now};
}

/* "45 s", "3 min", "2 h 5 min" */
static void duration_text(double seconds, char text[40])
{
    double minutes = ceil(seconds / 60);
    if (seconds < 100)
        snprintf(text, 40, "%.0f s", seconds);
    else if (minutes < 100)
        snprintf(text, 40, "%.0f min", minutes);
    else
        snprintf(text, 40, "%.0f h %.0f min", floor(minutes / 60), fmod(minutes, 60));
}

/* Of a part: the share of all by time, since parts differ in what they do. */
static void whole_text(const struct progress *p, uint64_t done, double seconds,
                       char text[PROGRESS_TEXT])
{
    char left_text[40];
    struct progress_whole *w = p->whole;
    int at =
        snprintf(text, PROGRESS_TEXT, "%s %zu of %zu, %s", w->name, w->number, w->count, p->label);
    if (!p->total || !done || at >= PROGRESS_TEXT) return;
    uint64_t total = p->total > done ? p->total : done;
    double left = seconds * (double)(total - done) / (double)done;
    double later = w->later_s;
    if (later < 0)
        later = (double)(w->count - w->number) * (w->before_s + seconds + left) / (double)w->number;
    double share = (w->before_s + seconds) / (w->before_s + seconds + left + later);
    if (share > w->share) w->share = share;
    duration_text(left + later, left_text);
    snprintf(text + at, (size_t)(PROGRESS_TEXT - at), ": %.0f %%, %s left",
             fmin(100 * w->share, 99), left_text);
}

void progress_text(const struct progress *p, uint64_t done, double seconds,
                   char text[PROGRESS_TEXT])
{
    char rate[NUMBER_SIZE], left[40];
    if (p->whole) {
        whole_text(p, done, seconds, text);
        return;
    }
    double speed = (double)done / seconds;
    int at = snprintf(text, PROGRESS_TEXT, "%s: %llu", p->label, (unsigned long long)done);
    size_t room = at < PROGRESS_TEXT ? (size_t)(PROGRESS_TEXT - at) : 0;
    number_text(speed, 3, rate);
    if (p->total <= done) {
        snprintf(text + at, room, " %s, %s %s/s", p->unit, rate, p->unit);
        return;
    }
    duration_text(speed > 0 ? (double)(p->total - done) / speed : 0, left);
    snprintf(text + at, room, "/%llu %s (%.0f %%), %s %s/s%s%s%s", (unsigned long long)p->total,
             p->unit, floor(100.0 * (double)done / (double)p->total), rate, p->unit,
             done ? ", " : "", done ? left : "", done ? " left" : "");
}

void progress_update(struct progress *p, uint64_t done)
{
    char text[PROGRESS_TEXT];
    uint64_t now = clock_ns();
    bool terminal = isatty(STDERR_FILENO);
    /* A terminal gets its line after one second and then ten a second; a log one in ten seconds. */
    uint64_t pause = !terminal ? 10 * second : p->shown ? second / 10 : second;
    if (now - p->shown_ns < pause || is_quiet()) return;

    if (terminal) escape_not(stderr, clear);
    progress_text(p, done, (double)(now - p->started_ns) / (double)second, text);
    fprintf(stderr, "%s%s", text, terminal ? "" : "\n");
    fflush(stderr);
    p->shown_ns = now;
    p->shown = true;
}

void progress_end(struct progress *p)
{
    if (p->shown && isatty(STDERR_FILENO)) {
        escape_not(stderr, clear);
    }
    if (p->whole) p->whole->before_s += (double)(clock_ns() - p->started_ns) / (double)second;
    p->shown = false;
}

void progress_note(const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (is_quiet()) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "sol: %s\n", text);
}
