/* NVIDIA's library of matrix products for what cuBLASLt has not: many products in a call. Matrices
 * as in cublaslt.h, which has the numbers of both. */
#ifndef DRIVER_CUBLAS_H
#define DRIVER_CUBLAS_H

#include "driver/cublaslt.h"

struct cublas_api {
#define CUBLAS_FUNCTION(field, symbol, parameters) int(*field) parameters;
#include "driver/cublas_functions.list"
#undef CUBLAS_FUNCTION
};

/* As cublaslt_load; SOL_CUBLAS names another file (tests). */
const struct cublas_api *cublas_load(const char **why);

#endif
