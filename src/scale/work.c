/* See work.h. */
#include "scale/work.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

static bool has_bf16(const struct plan_step *step)
{
    for (const struct op_matrix *m = step->op->matrices; m->access != OP_NONE; m++) {
        const struct matrix *x = op_matrix_of(m, step->args);
        if (x->data && x->dtype == DTYPE_BF16) return true;
    }
    return false;
}

/* Products that are exact in float32 are made of bf16 products as well, three for one, where that
 * is faster (gpu_ceiling_limits). */
static double flops_of(const struct plan_step *step, const struct work_limits *limits)
{
    const bool bf16 = step->numerics != NUMERICS_EXACT || has_bf16(step);
    return bf16 ? limits->bf16 : fmax(limits->f32, limits->bf16 / 3);
}

enum sol_status work_add_part(struct work *work, const struct work_part *part)
{
    int i = 0;
    while (i < work->n_parts && strcmp(work->parts[i].op, part->op) != 0) i++;
    if (i == WORK_PARTS_MAX) return status_set(SOL_E_MEMORY, "more than %d ops in a plan", i);
    struct work_part *into = &work->parts[i];
    if (i == work->n_parts) {
        work->n_parts++;
        *into = *part;
        return SOL_OK;
    }
    into->calls += part->calls;
    into->flops += part->flops;
    into->bytes += part->bytes;
    into->limit_ns += part->limit_ns;
    return SOL_OK;
}

enum sol_status work_add_message(struct work *work, const struct work_message *message)
{
    int i = 0;
    for (; i < work->n_messages; i++) {
        const struct work_message *m = &work->messages[i];
        if (strcmp(m->op, message->op) == 0 && m->bytes == message->bytes) break;
    }
    if (i == WORK_MESSAGES_MAX)
        return status_set(SOL_E_MEMORY, "more than %d sizes of messages in a plan", i);
    if (i == work->n_messages) {
        work->n_messages++;
        work->messages[i] = *message;
    } else {
        work->messages[i].calls += message->calls;
    }
    return SOL_OK;
}

/* The first matrix is what is sent. */
static enum sol_status add_message(struct work *work, const struct plan_step *step, double times)
{
    struct op_problem problem;
    const struct matrix *x = op_matrix_of(&step->op->matrices[0], step->args);
    step->op->problem(step->args, &problem);
    if (problem.groups < 2) return SOL_OK;
    return work_add_message(work, &(struct work_message){step->op->name, matrix_bytes(x), times});
}

static enum sol_status add_step(struct work *work, const struct plan_step *step,
                                const struct work_limits *limits, double times)
{
    if (step->op->collective) return add_message(work, step, times);
    const struct op_cost cost = step->op->cost(step->args);
    const double limit =
        1e9 * fmax(cost.bytes / limits->bytes, cost.flops / flops_of(step, limits));
    return work_add_part(work, &(struct work_part){.op = step->op->name,
                                                   .calls = times,
                                                   .flops = times * cost.flops,
                                                   .bytes = times * cost.bytes,
                                                   .limit_ns = times * limit});
}

enum sol_status work_add(struct work *work, const struct plan *plan,
                         const struct work_limits *limits, double times)
{
    for (int i = 0; i < plan_step_count(plan); i++)
        SOL_TRY(add_step(work, plan_step_at(plan, i), limits, times));
    return SOL_OK;
}

double work_calls(const struct work *work)
{
    double sum = 0;
    for (int i = 0; i < work->n_parts; i++) sum += work->parts[i].calls;
    return sum;
}

double work_limit_ns(const struct work *work)
{
    double sum = 0;
    for (int i = 0; i < work->n_parts; i++) sum += work->parts[i].limit_ns;
    return sum;
}

struct work_part work_part_of(const struct work *work, const char *op)
{
    for (int i = 0; i < work->n_parts; i++)
        if (strcmp(work->parts[i].op, op) == 0) return work->parts[i];
    return (struct work_part){.op = op};
}
