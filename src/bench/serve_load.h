/* What is asked of a server, and when: lengths of prompts and answers, and arrivals. All by a seed,
 * so that a load can be repeated. */
#ifndef BENCH_SERVE_LOAD_H
#define BENCH_SERVE_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"

enum serve_lengths_kind { SERVE_RANDOM, SERVE_PREFIX, SERVE_SHAREGPT };

struct serve_lengths {
    enum serve_lengths_kind kind;
    int64_t prompt, output; /* tokens; of SERVE_PREFIX the prompt without it */
    int64_t prefix;         /* tokens that all prompts begin with */
    double range;           /* each length is drawn from +- this part of it */
};

enum { SERVE_LENGTHS_TEXT = 80, SERVE_TOKENS_MAX = 1 << 20 };

/* "random:IN,OUT", "random:IN,OUT,RANGE", "prefix:PREFIX,IN,OUT", "sharegpt". SOL_E_ARGUMENT. */
enum sol_status serve_lengths_parse(const char *text, struct serve_lengths *out);
/* As it is written. Returns `text`. */
char *serve_lengths_text(const struct serve_lengths *lengths, char text[SERVE_LENGTHS_TEXT]);

struct serve_size {
    int64_t prompt, output; /* tokens; the prompt with its prefix */
};
/* Of request number `index`; the same for the same seed, in whatever order it is asked. */
struct serve_size serve_size_of(const struct serve_lengths *lengths, uint64_t seed, uint64_t index);

/* A number for request `index` of a seed, to seed others with. */
uint64_t serve_seed_of(uint64_t seed, uint64_t index);

/* Poisson: the times between arrivals are independent and exponential. */
struct serve_arrivals {
    struct rng rng;
    double rate, at; /* a second; seconds since the beginning */
};
void serve_arrivals_begin(struct serve_arrivals *arrivals, double rate, uint64_t seed);
double serve_arrivals_next(struct serve_arrivals *arrivals);

#endif
