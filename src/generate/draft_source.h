/* What a source of guesses is to draft.c; its own struct begins with a struct draft. */
#ifndef GENERATE_DRAFT_SOURCE_H
#define GENERATE_DRAFT_SOURCE_H

#include "generate/draft.h"

struct draft_source {
    void (*destroy)(struct draft *draft); /* of what calloc gave */
    void (*reset)(struct draft *draft);
    void (*add)(struct draft *draft, const int32_t *tokens, int64_t n);
    enum sol_status (*guess)(struct draft *draft, const struct sampler *sampler, int64_t most,
                             int32_t *guesses, int64_t *n);
    /* Or NULL. */
    void (*learn)(struct draft *draft, const struct draft_step *step);
};

struct draft {
    const struct draft_source *source;
};

enum sol_status draft_check_most(int64_t most);

#endif
