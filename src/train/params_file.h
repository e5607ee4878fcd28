/* Parameters in safetensors files, under nanochat's names. */
#ifndef TRAIN_PARAMS_FILE_H
#define TRAIN_PARAMS_FILE_H

#include "format/safetensors.h"
#include "format/safetensors_write.h"
#include "train/params.h"

/* Values from a file that has just these tensors, in F32, BF16 or F16. Errors name file, tensor and
 * fault. Copies are to be made anew (trainer_refresh). */
enum sol_status params_load(struct params *params, struct gpu_stream *stream,
                            const struct safetensors *from);
/* One of them into any matrix of a parameter's shape. */
enum sol_status params_load_matrix(const struct params *params, struct gpu_stream *stream,
                                   const struct safetensors *from, const char *name,
                                   const struct matrix *to);

/* The numbers of one that has `count`, as the model has them. */
enum sol_status params_read_tensor(const struct safetensors *from, const char *name, float *to,
                                   int64_t count);

/* Announces a tensor of the parameter's shape as nanochat has it, prefix before its name; in F32,
 * or with `as_stored` in the matrix's own type. */
void params_announce(struct safetensors_out *out, const struct param *param, const char *prefix,
                     const char *suffix, const struct matrix *matrix, bool as_stored);
/* Its numbers, as announced. */
enum sol_status params_save(const struct params *params, struct gpu_stream *stream,
                            struct safetensors_out *out, size_t tensor, const struct matrix *matrix,
                            bool as_stored);

#endif
