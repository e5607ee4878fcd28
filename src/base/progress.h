/* Progress on stderr for work that takes over a second; silent when it is quicker, when stderr is
 * no terminal (then one line every ten seconds), or when --quiet was given. In programs that link
 * the library nothing is said: only main() of sol switches it on. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Work of several parts that follow each other, each with a progress of its own: "test 2 of 5". */
struct progress_whole {
    const char *name;     /* of a part, borrowed: "test" */
    size_t number, count; /* the part that runs, from 1, and how many there are */
    double later_s;       /* what those after it will take; below 0: as long as these so far */
    double before_s;      /* that those before it took; progress_end adds to it */
    double share;         /* of all that was shown so far: it never goes back */
};

struct progress {
    const char *label; /* borrowed */
    const char *unit;  /* borrowed: "tokens", "MiB" */
    uint64_t total;    /* 0 when unknown; may be corrected while the work goes on */
    uint64_t started_ns, shown_ns;
    struct progress_whole *whole; /* borrowed; NULL: this is all */
    bool shown;
};

enum { PROGRESS_TEXT = 200 };
/* What is shown when `done` of p->total is done after `seconds`: "prompt: 3/12 MiB (25 %), 1.5
 * MiB/s, 6 s left"; of a part "test 2 of 5, tg128: 34 %, 3 min left", which is the share of all by
 * time. Without the total there is no share. */
void progress_text(const struct progress *p, uint64_t done, double seconds,
                   char text[PROGRESS_TEXT]);

void progress_quiet(bool quiet);
/* Of this thread alone: of several that do the same, one tells. */
void progress_quiet_here(bool quiet);
/* p->whole may be set behind it. */
void progress_start(struct progress *p, const char *label, const char *unit, uint64_t total);
void progress_update(struct progress *p, uint64_t done);
void progress_end(struct progress *p); /* erases the line */

/* A line on stderr, "sol: ...", unless --quiet was given. */
void progress_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
