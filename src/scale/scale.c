/* See scale.h. */
#include "scale/scale.h"

#include <math.h>
#include <string.h>

#include "ops/op.h"

double scale_call_ns(const struct work *row, double row_ns)
{
    const double calls = work_calls(row), beyond = row_ns - work_limit_ns(row);
    return calls > 0 && beyond > 0 ? beyond / calls : 0;
}

/* ---- a step of one GPU, taken apart ---- */

/* An op's time, or that of several. */
struct share {
    double one_calls, one_limit, part_calls, part_limit; /* limit: ns */
    double ns;                                           /* on one GPU */
};

struct split {
    const struct scale_measured *measured;
    const struct work *one;
    double call_ns; /* no more than a step of calls alone would have */
    double slack;   /* of all that is not calls: times the least it could take */
    double timed;   /* factor for times of ops; 0: there are none */
};

/* What the parts of a sequence could take at least; 0 where the op is none of them. */
static double sequence_limit(const struct op *sequence, const char *op, const struct work *one)
{
    double sum = 0;
    bool among = false;
    for (int i = 0; i < OP_CALLS_MAX && sequence->calls[i]; i++) {
        among |= strcmp(sequence->calls[i]->name, op) == 0;
        sum += work_part_of(one, sequence->calls[i]->name).limit_ns;
    }
    return among ? sum : 0;
}

/* Of a sequence that was timed as one op its share of the least that all of it could take. */
static double timed_ns(const struct scale_measured *m, const struct work *one,
                       const struct work_part *p)
{
    double ns = 0;
    for (int i = 0; i < m->n_ops; i++) {
        const struct scale_op_time *t = &m->ops[i];
        const struct op *op = op_find(t->op);
        if (strcmp(t->op, p->op) == 0) return t->ns;
        const double limit = op && op->is_sequence ? sequence_limit(op, p->op, one) : 0;
        if (limit > 0) ns = t->ns * p->limit_ns / limit;
    }
    return ns;
}

/* Without a time: as if none were timed. */
static double untimed_ns(const struct split *s, const struct work_part *p)
{
    return p->calls * s->call_ns + s->slack * p->limit_ns;
}

static double some_ns(const struct split *s, const struct work_part *p)
{
    const double ns = timed_ns(s->measured, s->one, p);
    return ns > 0 ? ns : untimed_ns(s, p);
}

/* Times are of use where those ops have them that a step is made of: nine tenths of the least that
 * it could take. */
static double times_factor(const struct work *one, const struct split *s)
{
    double sum = 0, timed = 0;
    for (int i = 0; i < one->n_parts; i++) {
        const struct work_part *p = &one->parts[i];
        if (timed_ns(s->measured, one, p) > 0) timed += p->limit_ns;
        sum += some_ns(s, p);
    }
    const bool most = timed > 0 && timed >= 0.9 * work_limit_ns(one);
    return most && sum > 0 ? s->measured->step_ns / sum : 0;
}

static struct split split_of(const struct work *one, const struct scale_measured *m)
{
    const double calls = work_calls(one), limit = work_limit_ns(one);
    struct split s = {.measured = m, .one = one, .call_ns = m->call_ns};
    if (calls > 0) s.call_ns = fmin(s.call_ns, m->step_ns / calls);
    s.slack = limit > 0 ? (m->step_ns - calls * s.call_ns) / limit : 0;
    s.timed = times_factor(one, &s);
    return s;
}

static double one_ns(const struct split *s, const struct work_part *p)
{
    return s->timed > 0 ? s->timed * some_ns(s, p) : untimed_ns(s, p);
}

static double part_ns(const struct split *s, const struct share *x)
{
    const double call = x->one_calls > 0 ? fmin(s->call_ns, x->ns / x->one_calls) : s->call_ns;
    const double rest = x->ns - x->one_calls * call;
    const double grows =
        x->one_limit > 0 ? rest * x->part_limit / x->one_limit : s->slack * x->part_limit;
    return x->part_calls * call + grows;
}

static void add_one(struct share *x, const struct split *s, const struct work_part *p)
{
    x->one_calls += p->calls;
    x->one_limit += p->limit_ns;
    x->ns += one_ns(s, p);
}

static void add_part(struct share *x, const struct work_part *p)
{
    x->part_calls += p->calls;
    x->part_limit += p->limit_ns;
}

double scale_compute_ns(const struct work *one, const struct work *part,
                        const struct scale_measured *measured)
{
    const struct split s = split_of(one, measured);
    struct share rest = {0};
    double sum = 0;
    for (int i = 0; i < one->n_parts; i++) {
        const struct work_part *p = &one->parts[i], other = work_part_of(part, p->op);
        struct share own = {0};
        if (other.calls <= 0) {
            add_one(&rest, &s, p);
            continue;
        }
        add_one(&own, &s, p);
        add_part(&own, &other);
        sum += part_ns(&s, &own);
    }
    for (int i = 0; i < part->n_parts; i++)
        if (work_part_of(one, part->parts[i].op).calls <= 0) add_part(&rest, &part->parts[i]);
    /* attn_out is attn_add and attn_route, kernel by kernel. */
    rest.part_calls = rest.one_calls > 0 ? rest.one_calls : rest.part_calls;
    return sum + part_ns(&s, &rest);
}

double scale_messages_ns(const struct work *part, const struct network *network,
                         struct network_ranks ranks)
{
    double sum = 0;
    for (int i = 0; i < part->n_messages; i++) {
        const struct work_message *m = &part->messages[i];
        sum += m->calls * network_ns(network, m->op, m->bytes, ranks);
    }
    return sum;
}

/* ---- ways ---- */

void scale_settle(struct scale_way *w, const struct scale_goal *goal)
{
    w->step_ns = w->compute_ns + w->messages_ns + w->idle_ns;
    w->tokens_per_s = w->step_ns > 0 ? 1e9 * w->tokens / w->step_ns : 0;
    w->efficiency = w->tokens_per_s * goal->one_ns / (1e9 * goal->tokens * (double)goal->gpus);
    w->fits = goal->memory == 0 || w->memory <= goal->memory;
}

int scale_most(const struct scale_way *ways, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (ways[i].built && ways[i].fits &&
            (best < 0 || ways[i].tokens_per_s > ways[best].tokens_per_s))
            best = i;
    return best;
}

int scale_soonest(const struct scale_way *ways, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (ways[i].built && ways[i].fits && (best < 0 || ways[i].step_ns < ways[best].step_ns))
            best = i;
    return best;
}
