/* sol opt: iterations of an optimisation, from a hypothesis to a commit or back.
 *
 * States of an iteration:
 *   open      started; the working tree may hold anything
 *   recorded  its files are in the store, as a numbered change
 *   accepted  every gate passed; committed (or --no-commit)
 *   reverted  the recorded files are as in the base commit again
 *   abandoned ended with the files left as they are
 * An iteration ends in one of the last three; one at a time is unfinished in a tree.
 *
 * What was measured, verified and recorded is kept with the hash of the tree's content, so that an
 * edit in between is noticed. A process killed at any moment leaves a state from which the same
 * command goes on: before the tree is changed, the store says what will be done. Whatever a command
 * overwrites is in the store before, and nothing that was recorded is ever replaced there. */
#ifndef OPT_OPT_H
#define OPT_OPT_H

#include <stdio.h>

#include "base/arena.h"
#include "base/next.h"
#include "opt/config.h"
#include "opt/gates.h"
#include "opt/tree.h"
#include "store/store.h"

struct opt_options {
    const char *folder; /* in the tree; NULL: the working directory */
    const char *store;  /* NULL: the usual one */
    const char *hypothesis, *rule, *note, *even_if, *reason, *subject, *preset, *model;
    const char *build, *benchmark, *correctness, *profile; /* of init, in place of the preset's */
    struct string_list metrics;                            /* the same */
    double predict;                                        /* gain; NaN: none */
    bool force, keep, with_changes, no_commit, all, diff, staged;
    int64_t limit;      /* of history; 0: all */
    int64_t pairs;      /* most pairs of a comparison; 0: as configured */
    int64_t change;     /* number of a recorded change; 0: the newest */
    double max_seconds; /* of a comparison; 0: as configured */
    int argc;
    char **argv; /* for the runs that are stored */
};

/* What a verb has to say: for people, and the same for programs. */
struct opt_answer {
    FILE *text; /* lines; the next step is not among them */
    char *lines;
    size_t size;
    json_t *json;
    struct next next; /* the one thing to do now; also after an error, where one is known */
    int exit_status;  /* of a verdict or a refusal; 0 else */
};
enum sol_status opt_answer_init(struct opt_answer *answer);
void opt_answer_free(struct opt_answer *answer); /* takes a zeroed one */

enum opt_verb {
    OPT_INIT,
    OPT_STATUS,
    OPT_START,
    OPT_BENCHMARK,
    OPT_PROFILE,
    OPT_COMPARE,
    OPT_RECORD,
    OPT_ACCEPT,
    OPT_REVERT,
    OPT_RESTORE,
    OPT_HISTORY,
    OPT_SUMMARY,
    OPT_VERB_COUNT
};
const char *opt_verb_name(enum opt_verb verb);

/* SOL_OK with answer->exit_status != 0: it worked, and the answer is no. An error leaves verb,
 * tree, "error" and the next step in the answer. */
enum sol_status opt_do(enum opt_verb verb, const struct opt_options *options,
                       struct opt_answer *answer);

/* ---- inside src/opt ---- */

struct opt {
    const struct opt_options *options;
    struct opt_answer *answer;
    struct store *store;
    struct opt_tree tree;
    struct opt_config config;     /* of the iteration, or of the file where there is none */
    struct store_iterations *own; /* holds the texts of `it` */
    struct store_iteration it;    /* the newest of the tree; id "" when there is none */
    json_t *notes;                /* its payload, see opt.c */
    json_t *gates;                /* what its gates said, see gates.h */
    struct arena *arena;          /* of new texts of `it` */
};

bool opt_is_unfinished(const struct opt *o);
/* Takes the first of o->own for the iteration at hand. */
enum sol_status opt_use_iteration(struct opt *o);
/* Writes it->payload_json from `notes`, it->verify_json from `gates`, and saves. */
enum sol_status opt_save(struct opt *o);
/* A note about the present content: {"tree": HASH, ...}; NULL when it is of other content. */
json_t *opt_note_of(const struct opt *o, const char *key, const char *hash);
enum sol_status opt_snapshot(const struct opt *o, struct opt_snapshot *out);
/* Builds the working tree. Files that the build makes are left out of the change from now on. */
enum sol_status opt_build(struct opt *o);
/* Keeps that a gate said no of what the tree holds now, because of the last error; returns it. */
enum sol_status opt_gate_failed(struct opt *o, const char *gate, enum sol_status error);
enum sol_status opt_baseline(struct opt *o);
enum sol_status opt_record_verb(struct opt *o);
/* Keeps what the tree and the index hold as a change, unless the newest one is the same. */
enum sol_status opt_record(struct opt *o, const struct opt_snapshot *now);
enum sol_status opt_revert(struct opt *o);
enum sol_status opt_restore(struct opt *o);
/* Those of `a` and of `b`, each once. A new reference. */
json_t *opt_all_names(const json_t *a, const json_t *b);
void opt_print_files(const struct opt *o, const json_t *files);
enum sol_status opt_end(struct opt *o, const char *state);
/* Whether `verb` was stopped half-way. */
bool opt_is_doing(const struct opt *o, const char *verb);
/* Takes `text`, malloc'd, over into the iteration's arena. */
enum sol_status opt_keep_text(struct opt *o, char *text, const char **field);

/* The next step, see next.c: sol opt WORDS for this tree and store, in place of an earlier one,
 * with what is to be done before in `first` (may be NULL). */
void opt_next(struct opt *o, const char *words, const char *first);
/* The same, that keeps what is to be done before. */
void opt_step(struct opt *o, const char *words);
/* As it was asked for, where `hypothesis` is given; else with words to be replaced. */
void opt_next_start(struct opt *o, const char *hypothesis, bool with_changes);
/* The first one of an iteration, or of a tree without a configuration. Needs the tree's lock. */
void opt_next_begin(struct opt *o);
/* Names of the files that differ from commit `head`, in the tree or the index. A new reference. */
enum sol_status opt_edited(const struct opt *o, const char *head, json_t **names);
/* By the state of the iteration and what the tree holds now. */
void opt_choose_next(struct opt *o, const struct opt_snapshot *now);
/* After an error that chose none. */
void opt_next_after_error(struct opt *o);

/* Text or null. */
json_t *opt_text(const char *text);
json_t *opt_number(double value);

enum sol_status opt_benchmark(struct opt *o);
enum sol_status opt_profile(struct opt *o);
enum sol_status opt_compare(struct opt *o);
/* What the newest comparison found, in words, and its run. */
void opt_comparison_text(const struct opt *o, char *text, size_t size);
enum sol_status opt_accept(struct opt *o);
/* Goes on with an accept that was interrupted after its commit. */
enum sol_status opt_accept_finish(struct opt *o);
enum sol_status opt_history(struct opt *o);
enum sol_status opt_summary(struct opt *o);
/* The ledger entry of an iteration that ends as `state`, once. */
enum sol_status opt_ledger(struct opt *o, const char *state);
json_t *opt_iteration_json(const struct store_iteration *it);

#endif
