/* Picks the next token from logits. Reproducible: the same seed, logits and settings give the same
 * token on every machine. */
#ifndef INFER_SAMPLER_H
#define INFER_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/args.h"
#include "sol/status.h"

struct sampler;

struct sampler_params {
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: off */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off; relative to the likeliest */
    uint64_t seed;
};

void sampler_params_init(
    struct sampler_params *params); /* temperature 1, everything else off, seed 0 */

/* `banned[vocab]` (may be NULL, copied): nonzero entries are never sampled. */
enum sol_status sampler_create(const struct sampler_params *params, int64_t vocab,
                               const unsigned char *banned, struct sampler **out);
void sampler_destroy(struct sampler *sampler); /* takes NULL */

/* From now on only tokens whose bit is set are drawn: bit id % 32 of bits[id / 32], [(vocab + 31) /
 * 32]; those that are banned stay so. `bits` is the caller's, and read at each draw. NULL: all. */
void sampler_allow(struct sampler *sampler, const uint32_t *bits);

/* Order: temperature, top_k, top_p, min_p, draw. Equal logits: the lower id first. NaN logits are
 * never chosen; SOL_E_ARGUMENT when nothing is left. */
enum sol_status sampler_next(struct sampler *sampler, const float *logits, int32_t *token);

/* For op sample, which draws without top_k and top_p: what the next draw needs, its random number
 * taken; without a list. false, and nothing taken, when it cannot do what is asked. */
bool sampler_request(struct sampler *sampler, struct sample_draw *out);
/* The same, whatever it can do, `turns` draws from now, and nothing taken: what a guess of that
 * token should be drawn with. */
struct sample_draw sampler_foresee(const struct sampler *sampler, int64_t turns);
bool sampler_can_request(const struct sampler *sampler);   /* that it would not be false */
bool sampler_is_restricted(const struct sampler *sampler); /* by sampler_allow */
/* Whether both are banned from the same tokens. */
bool sampler_bans_as(const struct sampler *sampler, const struct sampler *other);
/* For draws that are made before it is known whether they count: the random numbers as they are
 * now, and back to them; and as if a token had been drawn. */
struct rng;
void sampler_save(const struct sampler *sampler, struct rng *out);
void sampler_restore(struct sampler *sampler, const struct rng *saved);
void sampler_skip(struct sampler *sampler);
/* As bits, [(vocab + 31) / 32]: what it is banned from; what it may draw now. */
void sampler_banned(const struct sampler *sampler, uint32_t *bits);
void sampler_list(const struct sampler *sampler, uint32_t *bits);

#endif
