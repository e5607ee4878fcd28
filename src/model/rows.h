/* Rows of a weight, in the layout of model.h, from wherever model/files.h found it. A reader holds
 * a bounded buffer and belongs to one thread. */
#ifndef MODEL_ROWS_H
#define MODEL_ROWS_H

#include "model/files.h"

struct row_reader;

/* `mapped` takes the bytes from the mapping (the built-in model: always); otherwise the files are
 * read, past the page cache where the file system can. The files must outlive the reader. */
enum sol_status row_reader_create(const struct model_files *files, bool mapped,
                                  struct row_reader **out);
void row_reader_destroy(struct row_reader *reader); /* takes NULL */

/* Rows row..row+n-1 of group `group`, in place_model_dtype; `dst` has room for them. Successive
 * calls for two weights that lie interleaved (gate and up) read the file once. */
enum sol_status rows_read(struct row_reader *reader, const struct weight *weight,
                          const struct place *place, int64_t group, int64_t row, int64_t n,
                          void *dst);

/* How many rows of this weight make about `bytes` of the file. At least 1. */
int64_t rows_per_chunk(const struct weight *weight, const struct place *place, size_t bytes);

/* The weight whose rows alternate with those of number `index` in the file, among the few that
 * follow; -1: none. */
int64_t rows_partner(const struct model_files *files, int64_t index);

/* 16 bytes of nibbles between the order of HF files and GGUF's, n blocks. `blocks` are
 * struct block_mxfp4, whose scale is `scales[i]`. */
void mxfp4_from_hf(const uint8_t *nibbles, const uint8_t *scales, struct block_mxfp4 *blocks,
                   int64_t n);
void mxfp4_to_hf(const struct block_mxfp4 *blocks, uint8_t *nibbles, uint8_t *scales, int64_t n);

/* Opens `path` for reading past the page cache if the file system can, else as usual. */
enum sol_status direct_open(const char *path, int *fd);
enum { DIRECT_ALIGN = 4096 }; /* of offset, size and memory; enough for every disk in use */
/* Reads [begin, begin + size), which may go past the end of the file by less than DIRECT_ALIGN;
 * `needed` bytes at least must be there. */
enum sol_status direct_read(int fd, const char *path, size_t begin, size_t size, size_t needed,
                            void *dst);

#endif
