/* Progress on stderr for work that takes over a second; silent when it is quicker, when stderr is
 * no terminal (then one line every ten seconds), or when --quiet was given. In programs that link
 * the library nothing is said: only main() of sol switches it on. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *label; /* borrowed */
    const char *unit;  /* borrowed: "tokens", "MiB" */
    uint64_t total;    /* 0 when unknown */
    uint64_t started_ns, shown_ns;
    bool shown;
};

void progress_quiet(bool quiet);
void progress_start(struct progress *p, const char *label, const char *unit, uint64_t total);
void progress_update(struct progress *p, uint64_t done);
void progress_end(struct progress *p); /* erases the line */

/* A line on stderr, "sol: ...", unless --quiet was given. */
void progress_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
