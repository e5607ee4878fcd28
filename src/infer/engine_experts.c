/* Experts of steps, noted in one engine and given to another: where a router has near ties,
 * rounding decides, and what then differs says nothing about the kernels. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "gpu/device.h"
#include "infer/engine_private.h"
#include "ops/ops.h"
#include "ops/route.h"

void engine_note_experts(struct engine *e, int32_t *experts)
{
    engine_forget_ahead(e);
    e->noted = experts;
}

enum sol_status engine_give_experts(struct engine *e, struct engine_given *given)
{
    if (given && e->gpu) return status_set(SOL_E_ARGUMENT, "a GPU takes no experts as given");
    e->given = given;
    return SOL_OK;
}

static size_t choices_of(const struct engine *e)
{
    return (size_t)(e->batch.n_tokens * e->model->config.top_k);
}

enum sol_status engine_note_layer(const struct engine *e, int layer)
{
    const size_t n = choices_of(e);
    const int32_t *from = e->buffers.at.routing.expert;
    int32_t *to = e->noted + (size_t)layer * n;
    if (!e->gpu) {
        memcpy(to, from, n * sizeof *to);
        return SOL_OK;
    }
    enum sol_status status = gpu_copy_out(e->context.stream, to, from, n * sizeof *to);
    enum sol_status waited = gpu_wait(e->context.stream);
    return status == SOL_OK ? waited : status;
}

/* ---- given ---- */

static bool is_among(const int32_t *experts, int64_t n, int64_t expert)
{
    for (int64_t j = 0; j < n; j++)
        if (experts[j] == expert) return true;
    return false;
}

/* How far the least likely of `experts` is behind the likeliest of the others, in standard
 * deviations of the logits; 0: not at all. */
static double behind(const float *logits, int64_t n, const int32_t *experts, int64_t top_k)
{
    double least = INFINITY, other = -INFINITY, sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)logits[i];
        sum += x;
        squares += x * x;
        if (is_among(experts, top_k, i))
            least = fmin(least, x);
        else
            other = fmax(other, x);
    }
    const double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    return other > least && variance > 0 ? (other - least) / sqrt(variance) : 0;
}

enum sol_status engine_give_step(void *arg, const struct plan_step *step)
{
    const struct engine *e = arg;
    struct engine_given *given = e->given;
    if (step->op != &op_route) return SOL_OK;
    const struct route_args *a = step->args;
    const int32_t *experts = given->experts + (size_t)step->layer * choices_of(e);
    for (int64_t i = 0; i < a->m; i++) {
        const double gap = behind(matrix_floats(&a->logits) + i * a->n_experts, a->n_experts,
                                  experts + i * a->top_k, a->top_k);
        given->choices++;
        given->others += gap > 0;
        given->behind = fmax(given->behind, gap);
    }
    route_given(a, experts);
    return SOL_OK;
}
