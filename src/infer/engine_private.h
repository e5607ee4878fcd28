/* What the files of the engine share. */
#ifndef INFER_ENGINE_PRIVATE_H
#define INFER_ENGINE_PRIVATE_H

#include "infer/buffers.h"
#include "infer/engine.h"
#include "infer/kv_pages.h"
#include "infer/team.h"

/* A sequence as it was: what the window saw lies in buffers.kept, the rest in pages. */
struct engine_snapshot {
    int64_t position; /* 0: none is kept here */
    int64_t n_pages;
    int32_t *pages; /* [n_pages] */
    int32_t last;   /* the token before `position` */
};

struct cached_plan {
    struct plan *plan;
    int64_t rows, outputs;
    enum forward_draw draw;
    struct cached_plan *next;
    int64_t piece_rows;            /* of a pipeline: that pass at once */
    struct forward_piece pieces[]; /* [FORWARD_PIECES_MAX] where these are not all */
};

/* What is sent for a step and what comes back (engine_turns.c): of the step that runs, and of one
 * that is begun ahead of its turn (engine_ahead.c). */
enum { ENGINE_TURNS = 2, ENGINE_NO_TURN = -1 };
struct engine_turns {
    void *pinned;
    int32_t *step[ENGINE_TURNS]; /* in pinned memory, as buffers.step */
    struct sample_draw *draws;   /* [max_outputs] of the step that was packed last; no places yet */
    int now;                     /* whose turn it is */
};
struct engine_ahead {
    struct gpu_event *before; /* behind the step before it; NULL: there is never one ahead */
    struct rng *saved;        /* [max_outputs] */
    int turn;                 /* of the step that is begun ahead; ENGINE_NO_TURN: there is none */
    bool in_vain;             /* one that nobody asked for may still run */
    bool drawn;               /* its tokens are those that the step before draws */
    int64_t n;                /* its rows, which are its outputs */
    enum forward_draw draw;
};

struct engine {
    const struct model *model; /* whose weights the ops read: `uploaded` on a GPU */
    const struct model *original;
    /* Of a team: [team_size] the engines of all ranks, which do what the first is told; NULL where
     * this is not the first. */
    struct engine **ranks;
    int rank;
    const struct engine_row *taken; /* what engine_fill_batch was given last */
    int64_t n_taken;
    bool joint;             /* a step that all ranks do is not over */
    struct model *uploaded; /* its own; NULL where the caller's is used */
    struct gpu *gpu;        /* params.chooser.device.gpu; NULL: the CPU */
    struct engine_params params;
    struct op_context context;
    struct gpu_stream *own_stream; /* NULL where the caller's is used */
    struct kv_pages pages;         /* of the layers that see everything */
    int64_t *position;             /* [sequences] tokens held */
    int32_t *last;                 /* [sequences] the last of them */
    int64_t *length;    /* [sequences] what engine_eval is asked for would make of them */
    struct batch batch; /* as the ops see it */
    struct batch host;  /* what a step writes; on the CPU the same arrays */
    int32_t *offsets;   /* GPU: at.routing.host_offsets, [n_experts + 1] */
    struct buffers buffers;
    void *memory, *pinned; /* the buffers' */
    uint32_t *banned;      /* GPU: what a step's samplers ban */
    bool banned_there;     /* that a list was sent, which is host.banned */
    int64_t *oldest;       /* [sequences] position before the last step that it took part in */
    struct engine_snapshot *snapshots; /* [params.snapshots] */
    int32_t *kept_pages;               /* theirs, [snapshots][sequence_pages] */
    /* Of the step between its two halves: [max_outputs] who draws, or NULL; whose logits come. */
    struct sampler **drawing;
    bool *fetched;
    struct engine_turns turns; /* on a GPU */
    struct engine_ahead ahead;
    bool begun, draws_here;    /* that there is one; some of its tokens are drawn on the host */
    enum forward_draw draw;    /* where tokens are drawn there; with lists when it finishes */
    struct cached_plan *plans; /* that of the last step first, and so on */
    int64_t plans_made;
    bool timed;
    int64_t passed; /* rows of a step that is looked at, of pieces that are through */
    engine_trace_fn trace;
    void *trace_arg;
    int32_t *noted; /* engine_note_experts; NULL: nobody wants them */
    struct engine_given *given;
    engine_features_fn on_features;
    void *features_arg;
    struct gpu_event *stepped; /* behind what a step itself does; NULL: nobody wants features */
    bool follows;              /* what was put behind that is not waited for */
};

/* For engine_note_experts, behind a layer; for engine_give_experts, behind a plan's step. */
enum sol_status engine_note_layer(const struct engine *engine, int layer);
enum sol_status engine_give_step(void *engine, const struct plan_step *step);

/* The engines that what is told to this one goes to: those of all ranks, or itself. */
static inline int engine_count(const struct engine *e)
{
    return e->ranks ? team_size(e->params.team) : 1;
}
static inline struct engine *engine_of(struct engine *e, int rank)
{
    return e->ranks ? e->ranks[rank] : e;
}

/* Its number among the layers that this rank has; -1: another rank has it. */
static inline int64_t engine_layer(const struct engine *e, int64_t layer)
{
    const int64_t own = layer - e->model->config.first_layer;
    return own >= 0 && own < e->model->config.n_layers ? own : -1;
}

/* Errors as engine_eval's, nothing changed. */
enum sol_status engine_check_rows(const struct engine *engine, const struct engine_row *rows,
                                  int64_t n);
/* Takes the first rows that fit into a step; how many these are. */
int64_t engine_fill_batch(struct engine *engine, const struct engine_row *rows, int64_t n);
/* How output i is drawn, into turns.draws. */
void engine_set_draw(struct engine *engine, int64_t i, int32_t list);

/* A step's rows are there. */
void engine_point_batch(struct batch *batch, const struct step_parts *parts);
enum sol_status engine_turns_create(struct engine *engine);
void engine_turns_destroy(struct engine *engine); /* when nothing runs */
/* The arrays of a turn, of as many rows as the batch on the host has; where on the GPU one of them
 * belongs. */
struct step_parts engine_parts_of(const struct engine *engine, int turn);
void *engine_there(const struct engine *engine, int turn, const void *part);
/* Puts the batch on the host into a turn; and how to draw its outputs. */
void engine_pack_rows(struct engine *engine, int turn);
void engine_pack_draws(struct engine *engine, int turn);
/* Sends the batch in the present turn, with how to draw its outputs or without. */
enum sol_status engine_send_batch(struct engine *engine, bool draws);
/* Sends how to draw them, for a draw behind the step. */
enum sol_status engine_send_draws(struct engine *engine);
/* Where output i's token goes. */
static inline int32_t engine_place_of(const struct engine *e, int turn, int64_t i)
{
    return (int32_t)(turn * e->params.max_outputs + i);
}
/* What was drawn in this turn. */
const int32_t *engine_drawn(const struct engine *engine, int turn);

/* Begins the step behind the one that was just begun, where that is possible: a row for each of its
 * rows, of the tokens that it draws or of `then`. */
enum sol_status engine_go_on(struct engine *engine, const int32_t *then);
/* Whether the step of the batch is the one that was begun ahead. It is forgotten otherwise. */
bool engine_take_ahead(struct engine *engine);
static inline void engine_forget_ahead(struct engine *e)
{
    e->ahead.in_vain |= e->ahead.turn != ENGINE_NO_TURN;
    e->ahead.turn = ENGINE_NO_TURN;
}
/* Until what was begun is over, but for a step that was begun ahead. */
enum sol_status engine_wait(struct engine *engine);

/* Starts the step of the batch; the draws are where the op reads them. On the CPU it is over then.
 * After an error the batch is forgotten. */
enum sol_status engine_start_step(struct engine *engine, enum forward_draw draw);
/* On a GPU: draws behind that step, by lists; the draws are on the host. */
enum sol_status engine_start_draw(struct engine *engine);
/* Its output, on the host: what was drawn, and with `logits` those of outputs that are `fetched`.
 */
enum sol_status engine_end_step(struct engine *engine, bool logits);
/* Waits for the other ranks; `mine`: how the step went here. */
enum sol_status engine_join_step(struct engine *engine, enum sol_status mine);
void engine_forget_batch(struct engine *engine);
void engine_drop_plans(struct cached_plan **from);           /* it, and those behind it */
void engine_forget(struct engine *engine, int32_t sequence); /* here, and in no other rank */
enum sol_status engine_no_pages(const struct engine *engine, int64_t missing);

#endif
