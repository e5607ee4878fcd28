/* What people are told of a run beside its columns. */
#ifndef STORE_RUN_TEXT_H
#define STORE_RUN_TEXT_H

#include "store/store.h"

/* The command as a shell would take it, "sol bench -p 16 --label 'a b'", to be freed; NULL where
 * none was recorded, or without memory. `argv_json` may be NULL. */
char *store_command_text(const char *argv_json);

/* What the run's payload says: of a comparison the verdict ("slower"), of an import the name of the
 * file that it was read from. "" where there is none; what is too long is cut. */
struct store_outcome {
    char verdict[24], source[256];
};
void store_run_outcome(const struct store_run *run, struct store_outcome *out);

#endif
