/* Pieces of weights on their way to a GPU: several threads read them into pinned buffers, one hands
 * the filled ones over, in order. */
#ifndef MODEL_UPLOAD_PIPE_H
#define MODEL_UPLOAD_PIPE_H

#include "gpu/device.h"
#include "model/weight_source.h"

/* Puts the copies of a piece, whose bytes are at `data`, on `stream`, which is number `lane` of
 * 0..UPLOAD_LANES-1: what it needs beside the data, it needs once a lane. */
enum { UPLOAD_LANES = 2 };
typedef enum sol_status (*upload_piece_fn)(void *arg, const struct weight_piece *piece,
                                           const void *data, struct gpu_stream *stream, int lane);

/* Reads all pieces and calls `submit` for each, in order, on the caller's thread; returns when the
 * GPU has taken them all. Reading, copying and what `submit` launches overlap. `largest` is the
 * size of the largest piece with both its weights. Shows progress; interruptible. */
enum sol_status upload_pipe_run(struct gpu *gpu, struct weight_source *source, int threads,
                                const struct weight_piece *pieces, int64_t count, size_t largest,
                                upload_piece_fn submit, void *arg);

/* Threads worth having for `count` pieces. */
int upload_pipe_threads(int64_t count);

#endif
