/* What a kernel is for in a transformer's step, whoever wrote it: from its name where that says it,
 * else from where it stands in the layer and how it was launched. Works for sol, llama.cpp and
 * PyTorch, eager or compiled.
 *
 *   attention kernels divide a step into layers (without any: a softmax between two products).
 *   Between two of them products stand in runs that norms divide: the first run is the output
 *   projection, the last one q, k and v, what lies between feeds forward: before the choice of
 *   experts it is the router, behind it, or where nothing is chosen, the experts. Behind the last
 *   layer the run behind the final norm is the head; also a product that is launched like no other
 *   in the step.
 *   Elementwise kernels belong to what they follow (biases, residuals), kernels that quantise to
 *   the product that they prepare.
 *
 * A fused kernel counts as what takes most of its time: one that norms and multiplies as its
 * product. What this does not place is ROLE_NOT_PLACED; nothing is guessed beyond it. */
#ifndef TRACE_ROLE_H
#define TRACE_ROLE_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "trace/timeline.h"

enum kernel_role {
    ROLE_EMBED,
    ROLE_NORM,
    ROLE_QKV,
    ROLE_ROPE,
    ROLE_ATTENTION,
    ROLE_OUT,
    ROLE_ROUTER,
    ROLE_EXPERTS, /* a dense feed-forward too */
    ROLE_ACTIVATION,
    ROLE_HEAD, /* the loss too */
    ROLE_SAMPLING,
    ROLE_COPIES, /* of the cache too */
    ROLE_OPTIMIZER,
    ROLE_NOT_PLACED,
    ROLE_COUNT
};
const char *role_name(enum kernel_role role); /* "qkv", "not placed"; "?" out of range */

/* Of the works events[i], i < n, of one step in order of their start; *out gets a role each. Names
 * are looked at once each; linear in n. */
enum sol_status role_of_events(const struct timeline *t, const uint32_t *events, size_t n,
                               enum kernel_role *out);

/* Of sol's own op within the composite `parent` (or the op itself). */
enum kernel_role role_of_op(const char *parent, const char *op);

#endif
