/* Writing a model, from files of any dialect or made up, as GGUF or as a Hugging Face folder.
 * Streams in bounded memory, whatever the model's size. */
#ifndef MODEL_CONVERT_H
#define MODEL_CONVERT_H

#include "model/files.h"
#include "model/synth.h"
#include "tok/vocabulary.h"

/* Weights that somebody else keeps. */
struct weight_keeper {
    enum dtype (*dtype)(void *arg, int64_t index);
    /* As weight_input_rows. */
    enum sol_status (*rows)(void *arg, int64_t index, int64_t group, int64_t row, int64_t n,
                            void *dst);
    void *arg;
};

/* Where weights come from: files, a synthetic model, or a keeper. */
struct weight_input {
    const char *name;
    const struct model_config *config;
    const struct weight_keeper *keeper; /* one of these three */
    const struct model_files *files;
    const struct synth_stream *stream;
    const struct synth *synth;
    struct row_reader *reader;
};

/* `files` or `synth` must outlive the input. */
enum sol_status weight_input_from_files(const struct model_files *files, struct weight_input *out);
enum sol_status weight_input_from_synth(const struct synth *synth, const char *name,
                                        struct weight_input *out);
void weight_input_close(struct weight_input *input);

enum dtype weight_input_dtype(const struct weight_input *input, int64_t index);
/* Rows (of a vector: elements) in that type. */
enum sol_status weight_input_rows(const struct weight_input *input, int64_t index, int64_t group,
                                  int64_t row, int64_t n, void *dst);

/* The layout of llama.cpp's converter: gate and up apart, router and vectors in float32. Files
 * that exist are an error unless `replace`. */
enum sol_status convert_to_gguf(const struct weight_input *input,
                                const struct vocabulary *vocabulary, const char *path,
                                size_t part_bytes, bool replace);
/* The layout of transformers: gate and up rows alternate, MXFP4 as blocks and scales, float32 that
 * bfloat16 holds exactly as bfloat16. Q8_0 has no equivalent and is refused. */
enum sol_status convert_to_folder(const struct weight_input *input,
                                  const struct vocabulary *vocabulary, const char *folder,
                                  size_t shard_bytes);
/* Its tensors alone, as model.safetensors of a folder that is there. */
enum sol_status convert_weights_to_folder(const struct weight_input *input, const char *folder);

#endif
