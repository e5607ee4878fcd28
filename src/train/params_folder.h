/* Weights of architectures whose files are laid out otherwise than a model in memory: to and from a
 * folder in the layout that their other tools read, where experts' gate and up are one tensor. */
#ifndef TRAIN_PARAMS_FOLDER_H
#define TRAIN_PARAMS_FOLDER_H

#include "train/params.h"

/* Whether they are; others have files by name (params_file.h). */
bool params_are_of_folder(const struct params *params);

/* folder/model.safetensors, without loss. `stream` on a GPU. */
enum sol_status params_save_folder(const struct params *params, struct gpu_stream *stream,
                                   const char *folder);
/* From a folder with config.json that is of the same model. */
enum sol_status params_load_folder(struct params *params, struct gpu_stream *stream,
                                   const char *folder);

#endif
