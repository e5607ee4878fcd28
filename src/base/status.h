/* Raising and passing on errors. The message is made once, where the fault is seen; callers pass
 * the code on with SOL_TRY (nothing to clean up) or `goto fail`. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "sol/status.h"

#define SOL_TRY(call)                                                                              \
    do {                                                                                           \
        enum sol_status sol_try_status_ = (call);                                                  \
        if (sol_try_status_ != SOL_OK) return sol_try_status_;                                     \
    } while (0)

#define SOL_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))

/* Sets this thread's message and returns `code`, so that `return status_set(...)` reads well. */
enum sol_status status_set(enum sol_status code, const char *fmt, ...) SOL_PRINTF(2, 3);

/* Puts "text: " before the present message (a file name, say). Returns `code`. */
enum sol_status status_prefix(enum sol_status code, const char *fmt, ...) SOL_PRINTF(2, 3);

/* The code comes back through inline code, so that compilers and the static analyser see that it is
 * not SOL_OK and do not follow SOL_TRY past an error (they would warn of what is unset there).
 * `code` is evaluated twice. */
static inline enum sol_status status_same(enum sol_status code, enum sol_status returned)
{
    (void)returned;
    return code;
}
#define status_set(code, ...)    status_same((code), status_set(code, __VA_ARGS__))
#define status_prefix(code, ...) status_same((code), status_prefix(code, __VA_ARGS__))

/* The documented process exit status for `code` (table in docs and in `sol --help`). */
int status_exit_code(enum sol_status code);

#endif
