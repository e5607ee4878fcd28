/* Which model it is, for files that are of use to that one only. */
#ifndef MODEL_IDENTITY_H
#define MODEL_IDENTITY_H

#include "model/model.h"

enum { MODEL_IDENTITY_SIZE = 65 };

/* SHA-256, in hexadecimal digits, of the configuration, and of each weight its shape and a
 * sample of rows: the same for one model in files of several kinds, loaded or not. The vocabulary
 * has no part in it. Not all weights are read, so that it takes a moment for a model of any size.
 * Errors: of reading. */
enum sol_status model_identity(const struct model *model, char out[MODEL_IDENTITY_SIZE]);

#endif
