/* NVIDIA's library of matrix products as a table of functions. Handles are void pointers; what is
 * column-major there is row-major and transposed here. */
#ifndef DRIVER_CUBLASLT_H
#define DRIVER_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { CUBLAS_OK = 0, CUBLAS_E_MEMORY = 3, CUBLAS_E_UNSUPPORTED = 15 };
enum {
    CUBLAS_COMPUTE_F32 = 68,
    CUBLAS_TYPE_F32 = 0,
    CUBLAS_TYPE_F16 = 2,
    CUBLAS_TYPE_BF16 = 14,
    CUBLAS_TYPE_E4M3 = 28,
    CUBLAS_TYPE_E5M2 = 29,
    CUBLAS_PLAIN = 0, /* not transposed */
    CUBLAS_TRANSPOSE = 1
};
enum { /* of a product */
       CUBLASLT_TRANSPOSE_A = 3,
       CUBLASLT_TRANSPOSE_B = 4,
       CUBLASLT_EPILOGUE = 7,
       CUBLASLT_BIAS = 8,
       CUBLASLT_SCALE_A = 17,
       CUBLASLT_SCALE_B = 18,
       CUBLASLT_FAST_SUMS = 25,
       CUBLASLT_BIAS_TYPE = 26,
};
enum { CUBLASLT_BATCH_COUNT = 5, CUBLASLT_BATCH_STRIDE = 6 }; /* of a layout */
enum { CUBLASLT_ADD_BIAS = 4 };                               /* an epilogue */
enum { /* of a preference: A's alignment, then those of B, C, D */
       CUBLASLT_WORKSPACE_BYTES = 1,
       CUBLASLT_ALIGNMENT_A = 5,
};

struct cublaslt_algorithm {
    uint64_t data[8];
};
struct cublaslt_heuristic {
    struct cublaslt_algorithm algorithm;
    size_t workspace_bytes;
    int state; /* 0: the algorithm can run */
    float waves;
    int reserved[4];
};

struct cublaslt_api {
#define CUBLASLT_FUNCTION(field, symbol, parameters) int(*field) parameters;
#include "driver/cublaslt_functions.list"
#undef CUBLASLT_FUNCTION
};

/* Loaded once a process and kept; SOL_CUBLASLT names another file (tests). NULL where it cannot be
 * used: *why (may be NULL) says what is missing then. */
const struct cublaslt_api *cublaslt_load(const char **why);

/* SOL_OK, or an error with the library's name and number, and the call's purpose in its message. */
enum sol_status cublas_status(const char *library, int result, const char *what);

#endif
