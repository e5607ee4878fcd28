/* Models of random weights: for benchmarks and tests where the published ones cannot be had. */
#ifndef MODEL_SYNTH_H
#define MODEL_SYNTH_H

#include "model/model.h"
#include "model/weights.h"

struct synth {
    struct model_config config;
    enum dtype dense; /* attention, embedding and head; experts are MXFP4 */
    uint64_t seed;
};

/* "NAME[,dense=...][,seed=N][,layers=N]", without "synth:"; names are the architectures'. */
enum sol_status synth_parse(const char *text, struct synth *out);

enum dtype synth_dtype(const struct synth *synth, const struct weight *weight);
size_t synth_bytes(const struct synth *synth); /* of all tensors, with their padding */

/* Allocates *pages and fills every tensor of `model`, whose config and layers are set. The caller
 * frees *pages with pages_free(*pages, synth_bytes()), also after an error. */
enum sol_status synth_fill(const struct synth *synth, struct model *model, void **pages);

/* The same numbers piece by piece, for files larger than memory. Any thread may read. */
struct synth_stream;
enum sol_status synth_stream_create(const struct synth *synth, struct synth_stream **out);
void synth_stream_destroy(struct synth_stream *stream); /* takes NULL */
/* `size` bytes at `offset` of weight number `index`, in synth_dtype. */
enum sol_status synth_stream_read(const struct synth_stream *stream, int64_t index, size_t offset,
                                  size_t size, void *dst);

#endif
