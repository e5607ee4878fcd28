/* What a training run was like, step by step: gathered while it goes, or read from lines as
 * run_log.h writes them. A run that goes on from a checkpoint goes on here too, and a step that was
 * made twice, as after a crash, is there once, as it was made last. */
#ifndef TRAIN_HISTORY_H
#define TRAIN_HISTORY_H

#include "stats/figure.h"
#include "train/run.h"

/* A line about the weights after `step` updates: CORE, or a sample. */
struct train_note {
    int64_t step;
    char *line; /* owned */
};

struct train_history {
    struct train_step *steps; /* owned, by rising number */
    size_t n_steps, steps_room;
    struct train_evaluation *evaluations; /* owned, likewise */
    size_t n_evaluations, evaluations_room;
    struct train_note *notes; /* owned, likewise; several of a step */
    size_t n_notes, notes_room;
};

void train_history_free(struct train_history *history); /* takes a zeroed one */

/* What was known from this step on goes; of evaluations and notes what was made behind it. */
void train_history_cut(struct train_history *history, int64_t step);
enum sol_status train_history_add_step(struct train_history *history,
                                       const struct train_step *step);
enum sol_status train_history_add_evaluation(struct train_history *history,
                                             const struct train_evaluation *evaluation);
/* A line of run_log.h, NULL without memory for it; the history's from here on, also after an error.
 */
enum sol_status train_history_add_note(struct train_history *history, int64_t step, char *line);

/* Adds lines of JSON. A last line without an end, as a kill leaves it, does not count. SOL_E_FORMAT
 * with `name` and the line's number for what is no such line; those before it were added. `steps`
 * of what is read is 0. */
enum sol_status train_history_read(struct train_history *history, const char *text, size_t size,
                                   const char *name);
enum sol_status train_history_read_file(struct train_history *history, const char *path);
/* The lines again, in the order in which they came; free() it. */
enum sol_status train_history_text(const struct train_history *history, char **out);

/* Figures that everybody shows. Of `step_ns` the time of an update; tokens of an update, 0 where
 * there is none. */
enum sol_status train_history_speed(const struct train_history *history, struct figure *step_ns,
                                    int64_t *tokens);
double train_history_seconds(const struct train_history *history); /* all steps together */

#endif
