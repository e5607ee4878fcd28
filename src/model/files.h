/* Where each weight of a model lies in its files, whatever they are: GGUF of either dialect, split
 * or not, Hugging Face safetensors, or the `original/` checkpoint. Everything that reads a model
 * (loading, checking, converting, `sol model info`) asks here; model/rows.h turns a place into rows
 * in the layout of model.h. Opening checks every tensor against its expected name, shape and type,
 * and reads no weight. */
#ifndef MODEL_FILES_H
#define MODEL_FILES_H

#include "base/arena.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/model.h"
#include "model/weights.h"

enum place_layout {
    PLACE_ROWS,     /* rows as model.h wants them, `step` apart */
    PLACE_HF_ORDER, /* MXFP4 blocks with scale, nibbles in HF order (dialect gptoss) */
    PLACE_HF_PAIR,  /* MXFP4 in two tensors: blocks in HF order, and scales */
    PLACE_COLUMNS,  /* [groups][cols][rows]: unquantised experts of HF files */
};

struct span {
    int file;
    size_t offset, size; /* of the whole tensor in the file */
};

/* Row r of group g is row g * group_rows + first + r * step of the tensor (column, for
 * PLACE_COLUMNS). The rows of a vector are its elements. */
struct place {
    enum place_layout layout;
    enum dtype dtype; /* in the file; MXFP4 for HF_ORDER and HF_PAIR */
    int64_t group_rows, first, step;
    struct span data, scales; /* scales: HF_PAIR only */
};

struct model_files {
    struct model_config config;
    const char *name;   /* for messages and reports */
    const char *folder; /* of safetensors files: tokenizer.json is looked for there; or NULL */
    struct gguf *gguf;  /* one of these two */
    struct safetensors *set;
    struct place *places; /* [weight_count(&config)] */
    struct arena *arena;
};

/* A path: GGUF, safetensors (file, index or folder); NULL or "builtin" for the built-in model. */
enum sol_status model_files_open(const char *source, struct model_files **out);
/* From an open file, which the result then owns (also when this fails). */
enum sol_status model_files_from_gguf(struct gguf *file, struct model_files **out);
void model_files_close(struct model_files *files); /* takes NULL */

int model_files_count(const struct model_files *files);
const char *model_files_name(const struct model_files *files, int file);
const void *model_files_data(const struct model_files *files, int file); /* the mapping */
size_t model_files_size(const struct model_files *files, int file);

/* A weight as rows: a vector has its elements as rows of one column. */
struct weight_shape {
    int64_t groups, rows, cols;
};
struct weight_shape weight_shape(const struct weight *weight);

/* The type that a weight has once it is in the layout of model.h: float32 for vectors, what the
 * file has for the others. */
enum dtype place_model_dtype(const struct weight *weight, const struct place *place);
/* Bytes of a weight in that type. */
size_t place_model_bytes(const struct weight *weight, const struct place *place);
/* Whether the weight can be used where it lies. */
bool place_is_final(const struct weight *weight, const struct place *place);
/* Bytes of one of its rows in the file (of the blocks, for HF_PAIR; of a column for COLUMNS). */
size_t place_row_bytes(const struct weight *weight, const struct place *place);

#endif
