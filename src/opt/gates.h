/* What each gate said about each content that an iteration's tree had, kept with the iteration as
 * {"gates": [{"gate", "result", "detail", "tree", "time"}]} in its verify_json, the oldest first.
 */
#ifndef OPT_GATES_H
#define OPT_GATES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "store/store.h"

/* "passed", "failed", "missing" (its step was not made), "none" (nothing is configured). */
enum gate_result { GATE_PASSED, GATE_FAILED, GATE_MISSING, GATE_NONE };
const char *gate_result_name(enum gate_result result);

/* A new list of what `verify_json` holds; NULL, which is an empty one, is fine. */
json_t *gates_read(const char *verify_json);

/* Notes a result about content `tree` (a git hash), in place of this gate's earlier one about it.
 */
void gates_note(json_t *gates, const char *tree, const char *gate, enum gate_result result,
                const char *detail);

/* The gate of this content that failed, the first of them; NULL where none did. An edit while the
 * gates ran says nothing of what was measured, so that is none. */
const json_t *gates_failed(const json_t *gates, const char *tree);
/* What gate `name` said about this content; NULL where nothing. */
const json_t *gates_of(const json_t *gates, const char *tree, const char *name);
/* The content that was looked at last; NULL where none was. */
const char *gates_newest(const json_t *gates);

/* What an iteration counts in the ledger and in summaries: what was realised where it was accepted;
 * else never a gain: 0, or less where it was slower. NaN where nothing says: not compared, or
 * faster, unchecked and given up. `state` is that at its end. */
double gates_gain(const struct store_iteration *it, const char *state);
/* "correctness failed", "6 passed", "" */
void gates_summary(const struct store_iteration *it, char text[80]);

/* A table of the newest result of each gate. `tree`: the content at hand; results about another are
 * marked. NULL: that of the newest. */
enum sol_status gates_print(const json_t *gates, const char *tree, FILE *to);

#endif
