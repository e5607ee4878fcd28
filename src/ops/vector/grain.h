/* How much of a loop over rows one thread takes. */
#ifndef OPS_VECTOR_GRAIN_H
#define OPS_VECTOR_GRAIN_H

#include <stdint.h>

/* Elements below which a loop is not worth waking other threads: about 10 us of work. */
enum { ROWS_GRAIN = 1 << 14 };

static inline int64_t rows_per_job(int64_t row_elements)
{
    return ROWS_GRAIN / (row_elements + 1) + 1;
}

#endif
