/* A draft head of random numbers, in a folder, for tests; also with one thing wrong. */
#ifndef TESTS_SUPPORT_EAGLE_FILE_H
#define TESTS_SUPPORT_EAGLE_FILE_H

#include <stdint.h>

#include "model/model.h"

struct eagle_file {
    const struct model_config *target;
    int64_t hidden; /* 0: the target's */
    int64_t draft_vocab;
    const char *layer;  /* NULL: "midlayer" */
    const char *type;   /* of matrices: "BF16" where it is NULL, or "F32" */
    const char *config; /* JSON of an object that goes over config.json; NULL: none */
    const char *without, *more, *longer; /* tensors: not there, too many, with a row too many */
    int64_t far;                         /* added to the last number of d2t */
};

/* Into `folder`, which is there. */
void eagle_file_write(const char *folder, const struct eagle_file *file);

#endif
