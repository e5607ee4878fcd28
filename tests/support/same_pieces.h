/* Weights that are read piece by piece against those of a model that holds them. */
#ifndef TESTS_SUPPORT_SAME_PIECES_H
#define TESTS_SUPPORT_SAME_PIECES_H

#include "model/model.h"

/* Opens `path` for later and reads every weight in pieces of about `bytes`, rows beginning at
 * multiples of 64, with `threads` readers taking turns. NULL when each byte of each weight is that
 * of `host` and came once; else what is wrong. */
const char *pieces_differ(const char *path, enum model_load load, size_t bytes, int threads,
                          const struct model *host);

#endif
