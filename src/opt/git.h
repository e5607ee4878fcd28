/* Git, driven through its commands. Nothing that a tree's configuration names runs (hooks, file
 * system monitors, garbage collection), but for a commit's hooks where a call asks for them.
 * Filters (clean, smudge) do run: without them git could not tell a file's content; and where a
 * partial clone lacks an object, git fetches it. */
#ifndef OPT_GIT_H
#define OPT_GIT_H

#include <jansson.h>

#include "base/process.h"

struct git {
    const char *folder; /* in the tree */
    const char *index;  /* a private index; NULL: the tree's own */
    const char *input;  /* file for standard input; NULL: none */
    const char *output; /* file that takes standard output, whatever its size; NULL: memory */
    bool hooks;         /* of the user run */
    bool finish;        /* changes what is the user's: never stopped half-way, see process_finish */
};

/* `words` end with NULL; the macros below take them one by one. A git that fails is SOL_E_IO with
 * its last lines; where a lock file was in its way, SOL_E_ARGUMENT with the lock's name and what to
 * do. SOL_E_INTERRUPTED after Ctrl-C. */
enum sol_status git_run_words(const struct git *call, struct process_result *out,
                              const char *const *words);
enum sol_status git_do_words(const struct git *call, const char *const *words);
enum sol_status git_line_words(const struct git *call, char *out, size_t size,
                               const char *const *words);
enum sol_status git_names_words(const struct git *call, json_t **out, const char *const *words);

#define GIT_WORDS(...)          ((const char *const[]){__VA_ARGS__, NULL})
#define git_run(call, out, ...) git_run_words(call, out, GIT_WORDS(__VA_ARGS__))
/* Where nothing that it prints matters. */
#define git_do(call, ...) git_do_words(call, GIT_WORDS(__VA_ARGS__))
/* The one line that it prints, without its end. */
#define git_line(call, out, size, ...) git_line_words(call, out, size, GIT_WORDS(__VA_ARGS__))
/* What it prints as names that each end with a NUL; `call->output` names the file to use. A new
 * reference. Names that are not UTF-8 are SOL_E_UNSUPPORTED: they could not be kept. */
#define git_names(call, out, ...) git_names_words(call, out, GIT_WORDS(__VA_ARGS__))

/* Git would read these instead of the folder's own; a hook's or an alias' children have them. */
void git_forget_environment(void);

#endif
