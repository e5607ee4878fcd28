/* Ranks that run one model together: threads of this process, each with a GPU, or with its share of
 * the cores, a communicator and a part of the weights (model/shard.h). An engine of a team
 * (engine_params.team) is driven by one thread, which is rank 0; the others wait for what it gives
 * them to do, busily for a moment, as steps follow each other within microseconds. */
#ifndef INFER_TEAM_H
#define INFER_TEAM_H

#include "comm/communicator.h"
#include "infer/engine.h"
#include "model/shard.h"

struct team;

/* Parts of `model`, which may be opened for later and must outlive the team, on gpus[0] to
 * gpus[ranks - 1], each opened and nobody else's; NULL: on the CPU. Refused before anything is read
 * where the model cannot be shared so, or where a GPU has no room for its part and an engine like
 * `run`. Errors name the rank. */
enum sol_status team_create(const struct model *model, const struct engine_params *run, int ranks,
                            enum shard_way way, struct gpu *const gpus[], struct team **out);
/* One rank with the part that the first of `ranks` would have, on `gpu` or the CPU: it sends and
 * adds up nothing, so that its steps show what computing takes. Its logits mean nothing. */
enum sol_status team_create_alone(const struct model *model, const struct engine_params *run,
                                  int ranks, enum shard_way way, struct gpu *gpu,
                                  struct team **out);
/* Another one that works with the same weights, on GPUs that are the same devices opened again. It
 * is destroyed first. Their steps take turns. */
enum sol_status team_create_beside(struct team *first, struct gpu *const gpus[], struct team **out);
void team_destroy(struct team *team); /* takes NULL; behind its engines, before gpu_close */

int team_size(const struct team *team);
int team_alone_of(
    const struct team *team); /* ranks, of which it is the first alone; 0: it is whole */
enum shard_way team_way(const struct team *team);
const struct model *team_model(const struct team *team, int rank); /* its part, where ops read it */
struct gpu *team_gpu(const struct team *team, int rank);           /* NULL: the CPU */
struct communicator *team_communicator(const struct team *team, int rank);

/* ---- for the engine ---- */

/* What a rank does, in its thread. */
typedef enum sol_status (*team_fn)(void *arg, int rank);
/* All ranks do it; the error of the first rank that failed, which it names. */
enum sol_status team_run(struct team *team, team_fn fn, void *arg);
/* The same in two halves: ranks from 1 on begin; rank 0, the caller, does its own in between.
 * `mine`: how it went. */
void team_start(struct team *team, team_fn fn, void *arg);
enum sol_status team_finish(struct team *team, enum sol_status mine);
/* Within what is done, once: until all ranks are there. SOL_OK where `mine` is for all, else the
 * first rank's error, for all. What is common to all comes behind it. */
enum sol_status team_meet(struct team *team, int rank, enum sol_status mine);
/* What teams with the same weights do on a rank they do one after the other, all ranks in one
 * order, so that one is on the next rank meanwhile: two at a time would both be late. A ticket is
 * taken once for all ranks, each of which waits for its turn and ends it, whatever else fails. */
unsigned team_ticket(struct team *team);
void team_begin_turn(struct team *team, int rank, unsigned ticket);
void team_end_turn(struct team *team, int rank);
/* A rank that fails behind the meeting: the others would wait for it. Nothing is done any more. */
void team_break(struct team *team, int rank, enum sol_status status);

#endif
