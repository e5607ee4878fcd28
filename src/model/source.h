/* What the text after -m means, for model_open and for `sol model info`, which reads no weights. */
#ifndef MODEL_SOURCE_H
#define MODEL_SOURCE_H

#include "format/gguf.h"
#include "model/model.h"

/* The description after "synth:", or NULL for another kind of source. */
const char *source_synth(const char *source);

/* A path, or the built-in file for NULL and "builtin". */
enum sol_status source_open_gguf(const char *source, struct gguf **out);

/* Where the weights of a model are that was opened for later: in files (then `mapped` says whether
 * to take them from the mapping), or to be made up. NULL: not that. */
struct model_files;
struct synth;
const struct model_files *model_files_of(const struct model *model, bool *mapped);
/* The vocabulary that comes with a model's files, as model_open takes it: NULL, with a warning,
 * where there is none. Errors where text could not be read or written with it. */
enum sol_status model_vocabulary(const struct model_files *files, struct tokenizer **out);
const struct synth *model_synth(const struct model *model);

#endif
