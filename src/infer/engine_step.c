/* Steps of the engine: rows into a batch, the plan of its shape, what comes back; of one rank, and
 * of all together.
 *
 * A plan is made for each shape of a step that occurs, and kept: prefill chunks and decode steps
 * repeat the same few. All share buffers and scratch. */
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "gpu/device.h"
#include "infer/engine_private.h"
#include "infer/finite.h"

/* Of plans and their graphs: some hundred of a model of 36 layers. */
static const size_t plans_bytes = (size_t)128 << 20;
/* Where shapes vary, so many runs launch kernel by kernel before a graph is made. Of 128 rows and
 * more a graph saves less than a hundredth of a step, and making it takes as long as half of one.
 */
enum { RUNS_OF_VARIED = 32 };
/* Of ranks, which have to keep the same ones: a graph of one rank does not meet single calls of
 * another. */
enum { PLANS_OF_RANKS = 64 };

static struct forward_step step_of(const struct engine *e, int64_t rows, int64_t outputs,
                                   enum forward_draw draw)
{
    return (struct forward_step){.model = e->model,
                                 .batch = &e->batch,
                                 .buffers = &e->buffers.at,
                                 .rows = rows,
                                 .outputs = outputs,
                                 .draw = draw,
                                 .feeds = e->ahead.before && rows == outputs,
                                 .features = e->params.features,
                                 .n_features = e->params.n_features};
}

static enum sol_status make_plan(struct engine *e, struct cached_plan *p)
{
    SOL_TRY(plan_create(&e->params.chooser, &p->plan));
    plan_share(p->plan, e->buffers.scratch_at, e->buffers.scratch);
    if (e->params.shapes_vary && !e->params.team) plan_graph_after(p->plan, RUNS_OF_VARIED);
    const enum forward_draw draw = e->rank ? FORWARD_NO_DRAW : p->draw; /* the first rank draws */
    struct forward_step step = step_of(e, p->rows, p->outputs, draw);
    step.piece_rows = p->piece_rows;
    step.pieces = p->pieces;
    forward_build(p->plan, &step);
    e->plans_made++;
    SOL_TRY(plan_finish(p->plan));
    if (!e->params.keep) plan_narrow(p->plan);
    return SOL_OK;
}

void engine_drop_plans(struct cached_plan **from)
{
    while (*from) {
        struct cached_plan *p = *from;
        *from = p->next;
        plan_destroy(p->plan);
        free(p);
    }
}

/* A step's and that of its draw may be in use: they stay, and of the others those used last. */
static void make_room(struct engine *e)
{
    struct cached_plan **at = &e->plans;
    size_t bytes = 0;
    int steps = 0;
    for (int n = 0; *at; at = &(*at)->next, n++) {
        bytes += plan_list_bytes((*at)->plan);
        steps += (*at)->rows > 0;
        if (e->params.team ? steps > PLANS_OF_RANKS : n >= 2 && bytes > plans_bytes) break;
    }
    engine_drop_plans(at);
}

/* Afterwards it is the first one. */
static enum sol_status plan_for(struct engine *e, int64_t rows, int64_t outputs,
                                enum forward_draw draw, struct plan **out)
{
    struct cached_plan **at = &e->plans, *p;
    const int64_t piece = forward_piece_rows(&e->model->config, rows, e->gpu);
    while ((p = *at) && (p->rows != rows || p->outputs != outputs || p->draw != draw))
        at = &p->next;
    if (p) {
        *at = p->next;
    } else {
        const size_t pieces = piece < rows ? FORWARD_PIECES_MAX : 0;
        p = calloc(1, sizeof *p + pieces * sizeof *p->pieces);
        if (!p) return status_set(SOL_E_MEMORY, "no memory for a plan");
        p->rows = rows;
        p->outputs = outputs;
        p->draw = draw;
        p->piece_rows = piece;
        enum sol_status status = make_plan(e, p);
        if (status != SOL_OK) {
            engine_drop_plans(&p);
            return status;
        }
    }
    p->next = e->plans;
    e->plans = p;
    make_room(e);
    *out = p->plan;
    return SOL_OK;
}

enum sol_status engine_no_pages(const struct engine *e, int64_t missing)
{
    return status_set(
        SOL_E_MEMORY,
        "the cache is full: %lld of its %lld positions are free, %lld are needed; end "
        "a sequence, or give the cache more positions",
        (long long)(e->pages.n_free * KV_PAGE), (long long)(e->pages.n_pages * KV_PAGE),
        (long long)(missing * KV_PAGE));
}

/* All rows, of however many steps, have room, or none is begun. */
static enum sol_status check_room(const struct engine *e, const struct engine_row *rows, int64_t n)
{
    int64_t *length = e->length, missing = 0;
    memcpy(length, e->position, (size_t)e->params.sequences * sizeof *length);
    for (int64_t i = 0; i < n; i++) length[rows[i].sequence]++;
    for (int32_t s = 0; s < e->params.sequences; s++) {
        if (length[s] > e->params.context)
            return status_set(
                SOL_E_ARGUMENT,
                "sequence of %lld tokens does not fit the context of %lld; raise the context",
                (long long)length[s], (long long)e->params.context);
        missing += kv_pages_missing(&e->pages, s, length[s]);
    }
    return missing > e->pages.n_free ? engine_no_pages(e, missing) : SOL_OK;
}

enum sol_status engine_make_plan(struct engine *e, const struct chooser *chooser, int64_t rows,
                                 int64_t outputs, plan_choice_fn on_choice, void *arg,
                                 struct plan **out)
{
    SOL_TRY(plan_create(chooser, out));
    plan_on_choice(*out, on_choice, arg);
    const struct forward_step step = step_of(e, rows, outputs, FORWARD_NO_DRAW);
    forward_build(*out, &step);
    enum sol_status status = plan_finish(*out);
    if (status == SOL_OK) return SOL_OK;
    plan_destroy(*out);
    *out = NULL;
    return status;
}

enum sol_status engine_check_rows(const struct engine *e, const struct engine_row *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (rows[i].token < 0 || rows[i].token >= e->model->config.vocab)
            return status_set(SOL_E_ARGUMENT, "token %d is outside the vocabulary of %lld",
                              rows[i].token, (long long)e->model->config.vocab);
        if (rows[i].sequence < 0 || rows[i].sequence >= e->params.sequences)
            return status_set(SOL_E_ARGUMENT, "sequence %d of %lld", rows[i].sequence,
                              (long long)e->params.sequences);
    }
    return check_room(e, rows, n);
}

/* A plan is of one number of rows and outputs, so to each of its runs this is the same. */
static void point_there(struct engine *e)
{
    const struct step_parts p =
        buffers_step_parts(&e->buffers, e->buffers.step, e->batch.n_tokens, e->batch.n_outputs);
    engine_point_batch(&e->batch, &p);
    e->buffers.at.draws = p.draws;
}

/* Rows of the same sequence keep their order, so the first n rows that fit are taken as they come.
 */
int64_t engine_fill_batch(struct engine *e, const struct engine_row *rows, int64_t n)
{
    struct batch *b = &e->host;
    e->taken = rows;
    e->n_taken = n;
    b->n_tokens = b->n_outputs = 0;
    for (int64_t i = 0; i < n && i < e->params.max_batch; i++)
        e->oldest[rows[i].sequence] = e->position[rows[i].sequence];
    for (int64_t i = 0; i < n && i < e->params.max_batch; i++) {
        int32_t sequence = rows[i].sequence;
        if (rows[i].output && b->n_outputs == e->params.max_outputs) break;
        if (e->position[sequence] - e->oldest[sequence] == e->params.max_run) break;
        if (rows[i].output) b->output_rows[b->n_outputs++] = (int32_t)i;
        b->token[i] = rows[i].token;
        b->sequence[i] = sequence;
        b->previous[i] = e->position[sequence] ? e->last[sequence] : -1;
        e->last[sequence] = rows[i].token;
        b->position[i] = (int32_t)e->position[sequence]++;
        kv_pages_hold(&e->pages, sequence, e->position[sequence]);
        b->n_tokens++;
    }
    e->batch.n_tokens = b->n_tokens;
    e->batch.n_outputs = b->n_outputs;
    if (e->gpu) point_there(e);
    return b->n_tokens;
}

void engine_forget_batch(struct engine *e)
{
    engine_forget_ahead(e);
    for (int64_t i = e->host.n_tokens - 1; i >= 0; i--) {
        int32_t sequence = e->host.sequence[i];
        e->last[sequence] = e->host.previous[i];
        kv_pages_hold(&e->pages, sequence, --e->position[sequence]);
    }
}

/* Rows that a layer has just had, in the engine's x. */
struct passed {
    const float *x;
    int64_t rows;
};

static enum sol_status fetch_layer(const struct engine *e, const struct passed *p, float *x)
{
    const struct model_config *c = &e->model->config;
    SOL_TRY(gpu_copy_out(e->context.stream, x, p->x, (size_t)(p->rows * c->hidden) * sizeof *x));
    if (c->n_experts)
        SOL_TRY(gpu_copy_out(e->context.stream, e->offsets, e->buffers.at.routing.group_offsets,
                             (size_t)(c->n_experts + 1) * sizeof *e->offsets));
    return gpu_wait(e->context.stream);
}

/* What costs and callers want to see is copied only here, for those who look. */
static enum sol_status show_layer(const struct engine *e, int layer, const struct passed *p,
                                  float *x)
{
    SOL_TRY(fetch_layer(e, p, x));
    e->trace(e->trace_arg, layer, x, p->rows);
    return SOL_OK;
}

/* Of a step in pieces those of the last: then all rows have been in the layer. */
static bool all_passed(struct engine *e, int layer, struct passed *out)
{
    const struct model_config *c = &e->model->config;
    const int64_t rows = e->batch.n_tokens, first = e->passed;
    const bool last = first + e->plans->piece_rows >= rows;
    *out = (struct passed){e->buffers.at.x + first * c->hidden, rows - first};
    if (!last && layer == c->first_layer + c->n_layers - 1) e->passed += e->plans->piece_rows;
    return last;
}

static enum sol_status after_layer(void *arg, int layer)
{
    struct engine *e = arg;
    struct passed p;
    if (e->noted && layer >= 0) SOL_TRY(engine_note_layer(e, layer));
    if (!e->trace || layer < 0 || !all_passed(e, layer, &p)) return SOL_OK;
    if (!e->gpu) {
        e->trace(e->trace_arg, layer, p.x, p.rows);
        return SOL_OK;
    }
    float *x = malloc((size_t)(p.rows * e->model->config.hidden) * sizeof *x);
    if (!x) return status_set(SOL_E_MEMORY, "no memory to look at layer %d", layer);
    enum sol_status status = show_layer(e, layer, &p, x);
    if (status != SOL_OK)
        gpu_settle(e->context.stream); /* before `x` goes, no copy is on its way there */
    free(x);
    return status;
}

/* New pages are in the table before the step whose rows they are for; few steps have any. */
static enum sol_status send_batch(struct engine *e, bool draws)
{
    struct kv_pages *p = &e->pages;
    engine_forget_ahead(e);
    if (!e->gpu) return SOL_OK;
    if (p->unsent)
        SOL_TRY(gpu_copy_in(e->context.stream, e->buffers.page_table + p->changed,
                            p->table + p->changed, (size_t)p->unsent * sizeof *p->table));
    kv_pages_sent(p);
    return engine_send_batch(e, draws);
}

enum sol_status engine_place(struct engine *e, const struct engine_row *rows, int64_t n)
{
    SOL_TRY(engine_check_rows(e, rows, n));
    engine_fill_batch(e, rows, n);
    enum sol_status status = send_batch(e, false);
    engine_forget_batch(e);
    enum sol_status waited = e->gpu ? gpu_wait(e->context.stream) : SOL_OK;
    return status == SOL_OK ? waited : status;
}

/* Outputs that follow each other in one copy. */
static enum sol_status fetch_logits(struct engine *e)
{
    const struct buffers *b = &e->buffers;
    const int64_t n = e->host.n_outputs, vocab = e->model->config.vocab;
    for (int64_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && e->fetched[end]; end++) continue;
        if (end == i) continue;
        e->follows = false;
        SOL_TRY(gpu_copy_out(e->context.stream, b->host.logits + i * vocab,
                             b->at.logits + i * vocab,
                             (size_t)((end - i) * vocab) * sizeof(float)));
    }
    return SOL_OK;
}

static enum sol_status wait_for_output(struct engine *e, bool logits)
{
    if (logits) SOL_TRY(fetch_logits(e));
    return engine_wait(e);
}

/* Waits, so that the staging arrays may be written again. */
enum sol_status engine_end_step(struct engine *e, bool logits)
{
    enum sol_status status = e->gpu ? wait_for_output(e, logits) : SOL_OK;
    status = engine_join_step(e, status);
    if (status != SOL_OK) engine_forget_batch(e);
    return status;
}

/* All that can fail before something runs. */
static enum sol_status prepare_step(struct engine *e, enum forward_draw draw, struct plan **plan)
{
    if (!e->batch.n_outputs) draw = FORWARD_NO_DRAW;
    SOL_TRY(plan_for(e, e->batch.n_tokens, e->batch.n_outputs, draw, plan));
    return send_batch(e, draw == FORWARD_DRAW);
}

static enum sol_status run_plan(struct engine *e, struct plan *plan)
{
    const struct plan_observer observer = {after_layer, e->given ? engine_give_step : NULL, e};
    const bool observed = e->trace || e->noted || e->given;
    e->passed = 0;
    return plan_run(plan, &e->context, e->timed, observed ? &observer : NULL);
}

/* ---- steps of all ranks ---- */

struct joint_step {
    struct engine *first;
    enum forward_draw draw;
    unsigned ticket;
};

/* None begins to run what others would wait for before all are ready. Ranks but the first, whose
 * caller has something else to do meanwhile, come back when their part is over; the first's turn
 * ends with the step. */
static enum sol_status do_step(void *arg, int rank)
{
    const struct joint_step s = *(const struct joint_step *)arg; /* gone behind the meeting */
    struct engine *e = s.first->ranks[rank];
    struct team *team = e->params.team;
    struct plan *plan = NULL;
    if (rank) engine_fill_batch(e, s.first->taken, s.first->n_taken);
    enum sol_status status = prepare_step(e, s.draw, &plan);
    status = team_meet(team, rank, status);
    team_begin_turn(team, rank, s.ticket);
    if (status == SOL_OK) {
        status = run_plan(e, plan);
        if (status == SOL_OK && rank && e->gpu) status = gpu_wait(e->context.stream);
        if (status != SOL_OK) team_break(team, rank, status);
    }
    if (rank || status != SOL_OK) team_end_turn(team, rank);
    if (status != SOL_OK && rank) engine_forget_batch(e);
    return status;
}

enum sol_status engine_join_step(struct engine *e, enum sol_status mine)
{
    if (!e->ranks || !e->joint) return mine;
    e->joint = false;
    team_end_turn(e->params.team, 0);
    if (mine != SOL_OK) team_break(e->params.team, 0, mine);
    return team_finish(e->params.team, mine);
}

static enum sol_status start_joint_step(struct engine *e, enum forward_draw draw)
{
    struct joint_step s = {e, draw, team_ticket(e->params.team)};
    team_start(e->params.team, do_step, &s);
    const enum sol_status status = do_step(&s, 0);
    if (status != SOL_OK) return team_finish(e->params.team, status);
    e->joint = true;
    return SOL_OK;
}

/* Their work goes behind the step's, which is over without it. */
static enum sol_status pass_features(struct engine *e)
{
    enum sol_status status = SOL_OK;
    if (!e->on_features) return SOL_OK;
    if (e->stepped) status = gpu_event_record(e->stepped, e->context.stream);
    e->follows = e->stepped;
    if (status == SOL_OK)
        status = e->on_features(e->features_arg, &e->batch, e->buffers.at.features);
    if (status != SOL_OK && e->gpu) gpu_settle(e->context.stream);
    return status;
}

enum sol_status engine_start_step(struct engine *e, enum forward_draw draw)
{
    struct plan *plan;
    enum sol_status status;
    if (e->ranks) {
        status = start_joint_step(e, draw);
    } else {
        status = prepare_step(e, draw, &plan);
        if (status == SOL_OK) status = run_plan(e, plan);
        if (status == SOL_OK) status = pass_features(e);
    }
    if (status != SOL_OK) engine_forget_batch(e);
    return status;
}

/* The step's own plan stays the last one. */
enum sol_status engine_start_draw(struct engine *e)
{
    struct plan *plan;
    e->follows = false;
    SOL_TRY(plan_for(e, 0, e->host.n_outputs, FORWARD_DRAW_LISTS, &plan));
    struct cached_plan *draw = e->plans, *step = draw->next;
    draw->next = step->next;
    step->next = draw;
    e->plans = step;
    SOL_TRY(engine_send_draws(e));
    return plan_run(plan, &e->context, e->timed, NULL);
}

/* Logits: of all outputs. */
static enum sol_status run_step(struct engine *e, bool logits)
{
    for (int64_t i = 0; i < e->params.max_outputs; i++) e->fetched[i] = true;
    SOL_TRY(engine_start_step(e, FORWARD_NO_DRAW));
    return engine_end_step(e, logits);
}

enum sol_status engine_eval(struct engine *e, const struct engine_row *rows, int64_t n,
                            engine_logits_fn on_logits, void *arg, const float **logits)
{
    const float *at = e->buffers.host.logits;
    if (logits) *logits = NULL;
    SOL_TRY(engine_check_rows(e, rows, n));
    for (int64_t done = 0; done < n;) {
        SOL_TRY(interrupt_check());
        int64_t step = engine_fill_batch(e, rows + done, n - done);
        bool wanted = logits || on_logits;
        SOL_TRY(run_step(e, wanted));
        if (wanted) SOL_TRY(finite_check(e->original, e->context.pool, at, e->host.n_outputs));
        if (on_logits && e->host.n_outputs)
            SOL_TRY(on_logits(arg, done, e->host.output_rows, e->host.n_outputs, at));
        done += step;
    }
    if (logits) *logits = at;
    return SOL_OK;
}
