/* What the schedulers behind one door have in common: how much may wait, and what each key was
 * given, so that both hold over all of them together. Any thread may call. */
#ifndef SCHEDULE_ADMISSION_H
#define SCHEDULE_ADMISSION_H

#include <stdint.h>

#include "sol/status.h"

struct admission;

/* So many requests may wait, with prompts of so many tokens together; one alone may have more. */
enum sol_status admission_create(int64_t max_waiting, int64_t max_waiting_tokens,
                                 struct admission **out);
void admission_destroy(struct admission *a); /* takes NULL; behind the schedulers */

/* ---- who waits ---- */

/* What one scheduler has of it; the scheduler's, written here alone. */
struct admission_part {
    int64_t waiting, tokens; /* requests that have not begun; of their prompts */
    double rows_per_s;       /* of its steps, lately; 0: not known */
};

/* One more waits, with so many tokens: it is counted in `part`. SOL_E_MEMORY: too many do, and
 * *wait_s says after how many seconds there may be room, going by what was seen so far. */
enum sol_status admission_enter(struct admission *a, struct admission_part *part, int64_t tokens,
                                double *wait_s);
void admission_update(struct admission *a, struct admission_part *part,
                      const struct admission_part *now);

/* ---- keys ----
 * Each has an account of the rows that were computed for it while it has requests. Who comes back
 * after a while begins at the least that anybody who is there was given, so that time away saves
 * nothing up. */

enum sol_status admission_open(struct admission *a, uint64_t key); /* it has one request more */
void admission_close(struct admission *a, uint64_t key);           /* one less */
void admission_charge(struct admission *a, uint64_t key, int64_t rows);
int64_t admission_rows(struct admission *a, uint64_t key); /* so far */

#endif
