/* See tune_measure.h. A candidate is a plan of its own, of the calls of all layers, with its
 * variant and choice forced; on a GPU a run of it is one launch of a graph. */
#include "check/tune_measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "gpu/device.h"
#include "ops/ops.h"

/* ---- the site ---- */

enum sol_status tune_site_open(struct tune_site *site)
{
    struct gpu *gpu = site->chooser.device.gpu;
    site->start = site->end = NULL;
    if (!gpu) return SOL_OK;
    SOL_TRY(gpu_event_create(gpu, &site->start));
    return gpu_event_create(gpu, &site->end);
}

void tune_site_close(struct tune_site *site)
{
    gpu_event_destroy(site->start);
    gpu_event_destroy(site->end);
    site->start = site->end = NULL;
}

/* NULL on the CPU. */
static struct gpu_stream *stream_of(const struct tune_site *site)
{
    return site->context->stream;
}

static enum sol_status run_many(const struct tune_site *site, struct plan *plan, int times)
{
    for (int i = 0; i < times; i++) SOL_TRY(plan_run(plan, site->context, false, NULL));
    return SOL_OK;
}

enum sol_status tune_time_plan(const struct tune_site *site, struct plan *plan, int times,
                               double *ns)
{
    struct gpu_stream *stream = stream_of(site);
    if (!stream) {
        uint64_t start = clock_ns();
        SOL_TRY(run_many(site, plan, times));
        *ns = (double)(clock_ns() - start) / times;
        return SOL_OK;
    }
    double took = 0;
    enum sol_status status = gpu_event_record(site->start, stream);
    if (status == SOL_OK) status = run_many(site, plan, times);
    if (status == SOL_OK) status = gpu_event_record(site->end, stream);
    if (status == SOL_OK) status = gpu_event_elapsed(site->start, site->end, &took);
    enum sol_status waited = gpu_wait(stream);
    *ns = took / times;
    return status == SOL_OK ? waited : status;
}

enum sol_status tune_warm_up(const struct tune_site *site, struct plan *plan)
{
    struct gpu_stream *stream = stream_of(site);
    enum sol_status status = run_many(site, plan, 2);
    enum sol_status waited = stream ? gpu_wait(stream) : SOL_OK;
    return status == SOL_OK ? waited : status;
}

enum sol_status tune_plan_times(const struct tune_site *site, struct plan *plan, int *times)
{
    enum { MOST = 1000 };
    static const double wanted = 200e3; /* ns: steps of a GPU's clock are 500 */
    double ns;
    SOL_TRY(tune_time_plan(site, plan, 1, &ns));
    double needed = ns > 0 ? ceil(wanted / ns) : 1;
    *times = needed < 1 ? 1 : needed > MOST ? MOST : (int)needed;
    return SOL_OK;
}

/* ---- plans ---- */

/* Of the first n calls. dry: to be looked at. */
static enum sol_status make_plan(const struct tune_site *site, const struct tune_calls *calls,
                                 const struct tune_candidate *candidate, int n, bool dry,
                                 struct plan **out)
{
    struct chooser chooser = site->chooser;
    if (chooser.n_forces == CHOOSER_FORCES_MAX)
        return status_set(SOL_E_ARGUMENT, "--force is given too often for tuning");
    chooser.forces[chooser.n_forces].op = calls->op;
    chooser.forces[chooser.n_forces].choice = candidate->choice;
    chooser.forces[chooser.n_forces++].variant = op_variant_name(calls->op, candidate->v);
    SOL_TRY(plan_create(&chooser, out));
    if (!dry) plan_share(*out, site->scratch, site->scratch_bytes);
    for (int i = 0; i < n; i++) plan_call(*out, calls->op, calls->args[i]);
    enum sol_status status = dry ? plan_finish_dry(*out) : plan_finish(*out);
    if (status == SOL_OK) return SOL_OK;
    plan_destroy(*out);
    *out = NULL;
    return status;
}

/* ---- scratch ---- */

static enum sol_status need_of(const struct tune_site *site, const struct tune_calls *calls,
                               const struct tune_candidate *candidate, size_t *bytes)
{
    struct plan *plan;
    SOL_TRY(make_plan(site, calls, candidate, calls->n, true, &plan));
    *bytes = plan_bytes(plan);
    plan_destroy(plan);
    return SOL_OK;
}

static enum sol_status take_scratch(struct tune_site *site, size_t bytes)
{
    struct gpu *gpu = site->chooser.device.gpu;
    if (bytes == 0) return SOL_OK;
    SOL_TRY(gpu ? gpu_alloc(gpu, "scratch", bytes, &site->scratch)
                : pages_alloc(bytes, &site->scratch));
    site->scratch_bytes = bytes;
    return SOL_OK;
}

static void give_scratch(struct tune_site *site)
{
    if (site->scratch_bytes && site->chooser.device.gpu)
        gpu_free(site->chooser.device.gpu, site->scratch);
    else if (site->scratch_bytes)
        pages_free(site->scratch, site->scratch_bytes);
    site->scratch = NULL;
    site->scratch_bytes = 0;
}

/* One stretch of memory for all candidates; those that need the most of it are left out until it is
 * there. */
static enum sol_status make_room(struct tune_site *site, const struct tune_calls *calls,
                                 struct tune_candidate *candidates, int n, int usual)
{
    size_t need[TUNE_CANDIDATES_MAX] = {0};
    for (int i = 0; i < n; i++) {
        const enum sol_status found = need_of(site, calls, &candidates[i], &need[i]);
        candidates[i].slow = found == SOL_E_UNSUPPORTED && i != usual; /* it does not start */
        if (!candidates[i].slow) SOL_TRY(found);
        candidates[i].large = i != usual && site->most_scratch && need[i] > site->most_scratch;
    }
    for (;;) {
        size_t most = 0;
        for (int i = 0; i < n; i++)
            if (!candidates[i].large && need[i] > most) most = need[i];
        enum sol_status status = take_scratch(site, most);
        if (status != SOL_E_MEMORY || most == need[usual]) return status;
        for (int i = 0; i < n; i++) candidates[i].large |= need[i] == most;
    }
}

/* ---- checking ---- */

/* Outputs of one call, on the host. */
struct picture {
    const struct op_output *outputs;
    int n;
    size_t bytes[OP_OUTPUTS_MAX]; /* of each that are kept */
    void *data[OP_OUTPUTS_MAX];
    enum op_numerics numerics;
};

/* Of long outputs the first rows say enough. */
static size_t looked_at(const struct op_output *output)
{
    const size_t most = (size_t)32 << 20,
                 row = (size_t)((output->row > 0 ? output->row : 1) * op_output_size(output));
    return output->bytes <= most ? output->bytes : most / row * row;
}

static struct picture picture_to_compare(const struct op_output *outputs, int n)
{
    struct picture p = {.outputs = outputs, .n = n, .numerics = NUMERICS_EXACT};
    for (int i = 0; i < n; i++) p.bytes[i] = looked_at(&outputs[i]);
    return p;
}

static bool is_updated(const struct op *op, const struct op_output *output)
{
    bool updated = false;
    for (const struct op_matrix *m = op->matrices; m->access; m++)
        updated |= m->access == OP_UPDATES && m->offset == output->offset;
    return updated;
}

/* What a call updates is its input too: each candidate must find all of it as it was, also where
 * nobody has made it (primitives of a composite that a kernel serves). */
static struct picture picture_to_put_back(const struct op *op, const struct op_output *outputs,
                                          int n)
{
    struct picture p = picture_to_compare(outputs, n);
    for (int i = 0; i < n; i++)
        if (is_updated(op, &outputs[i])) p.bytes[i] = outputs[i].bytes;
    return p;
}

static void *output_at(const void *args, const struct op_output *output)
{
    return *(void **)((uintptr_t)args + output->offset);
}

static enum sol_status take_picture(struct gpu_stream *stream, const void *args, struct picture *p)
{
    for (int i = 0; i < p->n; i++) {
        size_t bytes = p->bytes[i];
        void *from = output_at(args, &p->outputs[i]);
        if (!p->outputs[i].is_number) continue;
        if (!p->data[i]) p->data[i] = malloc(bytes + 1);
        if (!p->data[i]) return status_set(SOL_E_MEMORY, "no memory for results");
        if (stream)
            SOL_TRY(gpu_copy_out(stream, p->data[i], from, bytes));
        else
            memcpy(p->data[i], from, bytes);
    }
    return stream ? gpu_wait(stream) : SOL_OK;
}

static bool is_whole(const struct picture *p)
{
    bool whole = true;
    for (int i = 0; i < p->n; i++) whole &= p->bytes[i] == p->outputs[i].bytes;
    return whole;
}

static enum sol_status put_back(const struct tune_site *site, const void *args,
                                const struct picture *p)
{
    struct gpu_stream *stream = stream_of(site);
    for (int i = 0; i < p->n; i++) {
        void *to = output_at(args, &p->outputs[i]);
        if (!p->data[i]) continue;
        if (stream)
            SOL_TRY(gpu_copy_in(stream, to, p->data[i], p->bytes[i]));
        else
            memcpy(to, p->data[i], p->bytes[i]);
    }
    return stream ? gpu_wait(stream) : SOL_OK;
}

static void free_picture(struct picture *p)
{
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) free(p->data[i]);
}

/* What a candidate makes of the first call, and how long that takes the second time; what it
 * updates is as before afterwards. */
static enum sol_status picture_of(const struct tune_site *site, const struct tune_calls *calls,
                                  const struct tune_candidate *candidate,
                                  const struct picture *before, struct picture *out, double *ns)
{
    struct gpu_stream *stream = stream_of(site);
    struct plan *plan;
    SOL_TRY(make_plan(site, calls, candidate, 1, false, &plan));
    enum sol_status status = run_many(site, plan, 1);
    if (status == SOL_OK) status = take_picture(stream, calls->args[0], out);
    if (status == SOL_OK) status = tune_time_plan(site, plan, 1, ns);
    if (status == SOL_OK) status = put_back(site, calls->args[0], before);
    for (int i = 0; i < plan_step_count(plan); i++)
        if (plan_step_at(plan, i)->numerics > out->numerics)
            out->numerics = plan_step_at(plan, i)->numerics;
    if (stream) gpu_wait(stream); /* before its scratch goes */
    plan_destroy(plan);
    return status;
}

/* One number beside others: a sum over all of them, whose terms may cancel, so that other orders of
 * it are far apart. */
static bool is_lone(const struct picture *p, const struct op_output *o)
{
    return p->n > 1 && o->bytes == (size_t)op_output_size(o);
}

/* A step of the output's format, relatively: what is rounded to it once may fall to either side. */
static double step_of(const struct op_output *o)
{
    return o->dtype == DTYPE_BF16 ? 0x1p-8 : o->dtype == DTYPE_F16 ? 0x1p-11 : 0;
}

/* Rows within the tolerances of both, and of a model's activations, which are no random numbers.
 * Rows that are not finite say nothing. */
static bool agree(const struct op *op, const struct picture *a, const struct picture *b)
{
    enum { ROOM = 4 };
    enum op_numerics loosest = a->numerics > b->numerics ? a->numerics : b->numerics;
    const double tolerance = ROOM * (double)op->tolerance.rel[loosest];
    for (int i = 0; i < a->n; i++) {
        if (!a->data[i] || a->outputs[i].row < 1 || is_lone(a, &a->outputs[i])) continue;
        const struct op_output *o = &a->outputs[i];
        const double allowed = tolerance + step_of(o);
        int64_t n = o->row, rows = (int64_t)looked_at(o) / op_output_size(o) / n;
        double all = 0;
        for (int64_t j = 0; j < rows * n; j++) {
            double x = op_output_number(o, a->data[i], j);
            if (isfinite(x)) all += x * x / (double)rows;
        }
        for (int64_t r = 0; r < rows; r++) {
            double error = 0, norm = 0;
            for (int64_t j = r * n; j < (r + 1) * n; j++) {
                double x = op_output_number(o, a->data[i], j);
                double d = op_output_number(o, b->data[i], j) - x;
                error += d * d;
                norm += x * x;
            }
            if (isfinite(norm) && !(error <= allowed * allowed * fmax(norm, all))) return false;
        }
    }
    return true;
}

/* Also sorts out what is far slower even so: to run it over all layers would take most of the time.
 */
static enum sol_status check_all(const struct tune_site *site, const struct tune_calls *calls,
                                 struct tune_candidate *candidates, int n, int usual)
{
    static const double hopeless = 5;
    double usual_ns = 0, ns = 0;
    struct op_output outputs[OP_OUTPUTS_MAX];
    int count = op_outputs(calls->op, calls->args[0], false, outputs);
    struct picture before = picture_to_put_back(calls->op, outputs, count);
    struct picture right = picture_to_compare(outputs, count), other = right;
    enum sol_status status = take_picture(stream_of(site), calls->args[0], &before);
    if (status == SOL_OK)
        status = picture_of(site, calls, &candidates[usual], &before, &right, &usual_ns);
    for (int i = 0; status == SOL_OK && i < n; i++) {
        if (i == usual || candidates[i].large || candidates[i].slow) continue;
        other.numerics = NUMERICS_EXACT;
        status = picture_of(site, calls, &candidates[i], &before, &other, &ns);
        if (status == SOL_E_DEVICE || status == SOL_E_UNSUPPORTED) {
            /* Such as a library that does not start; a device that failed fails the usual one too.
             */
            status = picture_of(site, calls, &candidates[usual], &before, &right, &usual_ns);
            candidates[i].slow = true;
            continue;
        }
        candidates[i].slow = ns > hopeless * usual_ns;
        candidates[i].wrong = status == SOL_OK && !agree(calls->op, &right, &other);
    }
    if (status == SOL_OK && !is_whole(&before)) status = site->renew(site->renew_arg);
    free_picture(&before);
    free_picture(&right);
    free_picture(&other);
    return status;
}

/* ---- timing ---- */

struct measurement {
    struct tune_site *site;
    struct plan *plans[TUNE_CANDIDATES_MAX];
    const int64_t *depths;
    size_t n_depths;
    int times, calls;
};

/* With several depths their geometric mean, so that each counts the same. */
static enum sol_status time_candidate(void *arg, int candidate, double *ns)
{
    struct measurement *m = arg;
    double logs = 0, one;
    SOL_TRY(interrupt_check());
    for (size_t i = 0; i < m->n_depths; i++) {
        if (m->n_depths > 1) SOL_TRY(m->site->place(m->site->arg, m->depths[i]));
        SOL_TRY(tune_time_plan(m->site, m->plans[candidate], m->times, &one));
        logs += log(one > 0 ? one : 1);
    }
    *ns = exp(logs / (double)m->n_depths) / m->calls;
    return SOL_OK;
}

/* Among those that have plans; `which` of all they are. */
static enum sol_status choose(struct measurement *m, const int *which, int count, int usual,
                              struct tune_choice *out)
{
    struct tune_choice choice;
    SOL_TRY(tune_plan_times(m->site, m->plans[usual], &m->times));
    SOL_TRY(tune_select(time_candidate, m, count, usual, TUNE_LEAST_GAIN, &choice));
    *out = choice;
    out->fastest = which[choice.fastest];
    memset(out->each, 0, sizeof out->each);
    for (int i = 0; i < count; i++) out->each[which[i]] = choice.each[i];
    return SOL_OK;
}

static enum sol_status race(struct tune_site *site, const struct tune_calls *calls,
                            const struct tune_candidate *candidates, int n, int usual,
                            struct tune_choice *out)
{
    struct measurement m = {.site = site, .depths = site->depths, .n_depths = 1, .calls = calls->n};
    if (calls->op == &op_attention && site->place) m.n_depths = site->n_depths;
    int which[TUNE_CANDIDATES_MAX], count = 0, mine = 0;
    enum sol_status status = SOL_OK;
    for (int i = 0; status == SOL_OK && i < n; i++) {
        if (candidates[i].wrong || candidates[i].slow || candidates[i].large) continue;
        if (i == usual) mine = count;
        status = make_plan(site, calls, &candidates[i], calls->n, false, &m.plans[count]);
        if (status == SOL_OK) status = tune_warm_up(site, m.plans[count]);
        which[count++] = i;
    }
    if (status == SOL_OK) status = choose(&m, which, count, mine, out);
    for (int i = 0; i < count; i++) plan_destroy(m.plans[i]);
    if (m.n_depths > 1) { /* as the caller left it */
        enum sol_status placed = site->place(site->arg, site->depths[0]);
        if (status == SOL_OK) status = placed;
    }
    return status;
}

enum sol_status tune_measure(struct tune_site *site, const struct tune_calls *calls,
                             struct tune_candidate *candidates, int n, int usual,
                             struct tune_choice *out)
{
    enum sol_status status = make_room(site, calls, candidates, n, usual);
    if (status == SOL_OK) status = check_all(site, calls, candidates, n, usual);
    if (status == SOL_OK) status = race(site, calls, candidates, n, usual, out);
    if (site->context->stream) gpu_settle(site->context->stream); /* before its scratch goes */
    give_scratch(site);
    return status;
}
