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
    bool begun, draws_here;    /* that there is one; some of its tokens are drawn on the host */
    enum forward_draw draw;    /* where tokens are drawn there; with lists when it finishes */
    struct cached_plan *plans; /* that of the last step first, and so on */
    int64_t plans_made;
    bool timed;
    int64_t passed; /* rows of a step that is looked at, of pieces that are through */
    engine_trace_fn trace;
    void *trace_arg;
    engine_features_fn on_features;
    void *features_arg;
};

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

/* What of a step's output comes to the host: tokens that were drawn, and logits of the outputs that
 * are `fetched`. */
enum { WANT_NOTHING, WANT_LOGITS = 1, WANT_TOKENS = 2 };

/* Errors as engine_eval's, nothing changed. */
enum sol_status engine_check_rows(const struct engine *engine, const struct engine_row *rows,
                                  int64_t n);
/* Takes the first rows that fit into a step; how many these are. */
int64_t engine_fill_batch(struct engine *engine, const struct engine_row *rows, int64_t n);
/* Starts the step of the batch; the draws are where the op reads them. On the CPU it is over then.
 * After an error the batch is forgotten. */
enum sol_status engine_start_step(struct engine *engine, unsigned wanted);
/* On a GPU: draws behind that step, by lists; the draws are on the host. */
enum sol_status engine_start_draw(struct engine *engine);
/* Its output, on the host. */
enum sol_status engine_end_step(struct engine *engine, unsigned wanted);
/* Waits for the other ranks; `mine`: how the step went here. */
enum sol_status engine_join_step(struct engine *engine, enum sol_status mine);
void engine_forget_batch(struct engine *engine);
void engine_drop_plans(struct cached_plan **from);           /* it, and those behind it */
void engine_forget(struct engine *engine, int32_t sequence); /* here, and in no other rank */
enum sol_status engine_no_pages(const struct engine *engine, int64_t missing);

#endif
