/* One conversation on one sequence of an engine: what the program has that talks with one user. It
 * holds the tokens that were computed. Each turn has the whole prompt anew; only what is new in it
 * is computed.
 *
 * A prompt rarely goes on exactly where the last turn ended, as reasoning is dropped from a history
 * once there is an answer. The engine cannot go back far (windows are rings), so the session keeps
 * snapshots at the points that a prompt names, and computes from the last one that both share. */
#ifndef GENERATE_SESSION_H
#define GENERATE_SESSION_H

#include "chat/conversation.h"
#include "generate/speculation.h"
#include "generate/turn.h"
#include "infer/engine.h"

/* Besides them one for saving. Of a gpt-oss-20b each takes 4 MiB and a page. */
enum { SESSION_SNAPSHOTS = 8 };

struct session;

/* What a session wants of its engine: one sequence, snapshots, pages for them. The rest, the
 * context too, stays as it is. */
void session_engine_params(struct engine_params *params);

/* `engine`, empty, is the session's until that is destroyed. It must have been made with what
 * session_engine_params says (SOL_E_ARGUMENT). */
enum sol_status session_create(struct engine *engine, struct session **out);
void session_destroy(struct session *s); /* before the engine; takes NULL */

/* Tokens that are held. [*n], until the session's next call. */
const int32_t *session_tokens(const struct session *s, size_t *n);
int64_t session_context(const struct session *s); /* positions that there are */
int64_t session_snapshots(const struct session *s, int64_t positions[SESSION_SNAPSHOTS]);
void session_reset(struct session *s); /* forgets all */

/* Makes the session hold tokens[n], at least one, and hands back the logits of the last, until the
 * engine's next call. *cached (may be NULL): how many were held already. `points`: positions worth
 * a snapshot, rising; n itself counts as n - 1, so that the same prompt can be asked again.
 * Errors: more tokens than the context (SOL_E_ARGUMENT, nothing changed); a token outside the
 * vocabulary; SOL_E_INTERRUPTED between steps. After an error the session holds what was computed,
 * and the same call goes on from there. */
enum sol_status session_prompt(struct session *s, const int32_t *tokens, int64_t n,
                               const int64_t *points, size_t n_points, const float **logits,
                               int64_t *cached);

/* ---- turns ---- */

enum session_end {
    SESSION_STOP,        /* the model has finished */
    SESSION_LENGTH,      /* `limit` tokens */
    SESSION_CONTEXT,     /* the context is full */
    SESSION_STOPPED,     /* on_event said so */
    SESSION_INTERRUPTED, /* Ctrl-C (base/interrupt.h) */
};

/* After each token, and once at the end: what it did, which may be nothing. false: stop here. */
typedef bool (*session_event_fn)(void *arg, const struct turn_event *event);

struct session_params {
    struct sampler *sampler; /* turn_sampler's */
    int64_t limit;           /* tokens at most, headers and all */
    struct draft *draft;     /* the caller's, for texts of the context; NULL: no guesses */
    session_event_fn on_event;
    void *arg;
};

struct session_result {
    enum session_end end;
    int64_t prompt, cached; /* tokens; of them held already */
    int64_t generated;      /* with the one that ended it */
    struct speculation_counts counts;
    double prompt_s, generate_s;
};

/* Computes the turn's prompt and writes it to its end; then turn_messages has what belongs into the
 * conversation, whatever ended it. *result is filled after an error too; errors are
 * session_prompt's (of an interruption only where nothing was written), turn_push's and the
 * engine's. The session can go on with any next turn. */
enum sol_status session_turn(struct session *s, struct turn *turn,
                             const struct session_params *params, struct session_result *result);

/* ---- files ---- */

/* The file begins with JSON that a human can read (sol schema session): `c`, the tokens. Behind it
 * lie keys and values, of the snapshots too, so that nothing is computed again and what comes next
 * has the bits that it would have had in the program that wrote it. It appears only when it is
 * complete (format/output_file.h). */
enum sol_status session_save(struct session *s, const struct conversation *c, const char *path);
/* Appends the messages to `c`. Checked whole before anything changes. SOL_E_FORMAT: damaged;
 * SOL_E_UNSUPPORTED: of another model, or a cache of another type; SOL_E_ARGUMENT: longer than the
 * context. Should reading fail after that, the session is empty. */
enum sol_status session_load(struct session *s, const char *path, struct conversation *c);

#endif
