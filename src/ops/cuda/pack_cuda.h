/* Weights in the layout that GPU kernels read best (kernels/formats.list): in tiles, each group on
 * its own, or as they are. */
#ifndef OPS_CUDA_PACK_CUDA_H
#define OPS_CUDA_PACK_CUDA_H

#include <stdbool.h>

#include "gpu/device.h"
#include "ops/tensor.h"

/* Bytes of the tensor in that layout: what `memory` below must have, 256-byte aligned. */
size_t tensor_packed_bytes(const struct tensor *tensor);

/* The tensor as it is in `memory`, once it is there. */
struct tensor tensor_packed(const struct tensor *tensor, void *memory);

/* Of one in MXFP4: for each row of its tiles the largest scale (kernels/pack/mxfp4_tiles.h). */
const uint8_t *tensor_row_largest(const struct tensor *packed);

/* Whether that layout is another one than the tensor's own. */
bool tensor_is_repacked(const struct tensor *tensor);

/* Puts `n` rows of group `group` from row `row` on, which begins a piece (a multiple of PACK_ROWS),
 * where they belong in `memory` of the GPU, from `rows` on the host; pinned, nobody waits. `tensor`
 * says the shape, `staging` on the GPU has room for these rows; only tiles need it. */
enum { PACK_ROWS = 64 };
enum sol_status tensor_pack_piece(struct gpu_stream *stream, const struct tensor *tensor,
                                  int64_t group, int64_t row, int64_t n, const void *rows,
                                  void *memory, void *staging);

/* The same on the host: the reference of pack_weights. */
void tensor_pack_host(const struct tensor *tensor, void *memory, struct tensor *out);

/* What kernels call the tensor's format: DTYPE_... or TILES_... of kernels/format_args.h. */
int32_t tensor_kernel_type(const struct tensor *tensor);

#endif
