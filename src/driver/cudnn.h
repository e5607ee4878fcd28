/* NVIDIA's library of neural networks' kernels as a table of functions. What it computes is
 * described as a graph: descriptors of a type get attributes, are finished, and cannot be changed
 * then. Handles and descriptors are void pointers. */
#ifndef DRIVER_CUDNN_H
#define DRIVER_CUDNN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    CUDNN_OK = 0,
    CUDNN_E_UNSUPPORTED = 3000, /* and what is up to 999 above it */
    CUDNN_E_HOST_MEMORY = 4003,
    CUDNN_E_DEVICE_MEMORY = 4004,
};
enum { /* types of descriptors */
       CUDNN_POINTWISE = 0,
       CUDNN_ENGINE_CONFIG = 3,
       CUDNN_HEURISTIC = 4,
       CUDNN_PLAN = 5,
       CUDNN_OPERATION_POINTWISE = 13,
       CUDNN_GRAPH = 15,
       CUDNN_PACK = 16, /* of addresses */
       CUDNN_TENSOR = 17,
       CUDNN_MATMUL = 18,
       CUDNN_OPERATION_MATMUL = 19,
       CUDNN_REDUCTION = 21,
       CUDNN_OPERATION_REDUCTION = 22,
       CUDNN_OPERATION_RESHAPE = 31,
       CUDNN_DEVICE = 38, /* properties of one; since 9.8 */
};
enum { /* types of attributes */
       CUDNN_IS_HANDLE = 0,
       CUDNN_IS_DATA_TYPE = 1,
       CUDNN_IS_BOOLEAN = 2,
       CUDNN_IS_INT64 = 3,
       CUDNN_IS_POINTER = 6,
       CUDNN_IS_HEURISTIC_MODE = 8,
       CUDNN_IS_POINTWISE_MODE = 14,
       CUDNN_IS_DESCRIPTOR = 15,
       CUDNN_IS_REDUCTION = 18,
       CUDNN_IS_CHAR = 24,
};
enum { /* attributes; their values' types are in cuDNN's documents */
       CUDNN_POINTWISE_MODE = 0,
       CUDNN_POINTWISE_PRECISION = 1,
       CUDNN_POINTWISE_AXIS = 9,
       CUDNN_HEURISTIC_MODE = 200,
       CUDNN_HEURISTIC_GRAPH = 201,
       CUDNN_HEURISTIC_RESULTS = 202,
       CUDNN_HEURISTIC_DEVICE = 204,
       CUDNN_PLAN_HANDLE = 400,
       CUDNN_PLAN_CONFIG = 401,
       CUDNN_PLAN_WORKSPACE = 402,
       CUDNN_PLAN_DEVICE = 407,
       CUDNN_POINTWISE_OF = 750,
       CUDNN_POINTWISE_X = 751,
       CUDNN_POINTWISE_B = 752,
       CUDNN_POINTWISE_Y = 753,
       CUDNN_POINTWISE_T = 758, /* what BINARY_SELECT chooses by */
       CUDNN_GRAPH_HANDLE = 800,
       CUDNN_GRAPH_OPERATIONS = 801,
       CUDNN_TENSOR_ALIGNMENT = 900,
       CUDNN_TENSOR_TYPE = 901,
       CUDNN_TENSOR_SIZES = 902,
       CUDNN_TENSOR_STRIDES = 903,
       CUDNN_TENSOR_ID = 906,
       CUDNN_TENSOR_VIRTUAL = 907, /* it is in no memory */
       CUDNN_TENSOR_BY_VALUE = 908,
       CUDNN_PACK_IDS = 1000,
       CUDNN_PACK_POINTERS = 1001,
       CUDNN_PACK_WORKSPACE = 1003,
       CUDNN_MATMUL_PRECISION = 1500,
       CUDNN_MATMUL_A = 1520,
       CUDNN_MATMUL_B = 1521,
       CUDNN_MATMUL_C = 1522,
       CUDNN_MATMUL_OF = 1523,
       CUDNN_REDUCTION_OPERATOR = 1600,
       CUDNN_REDUCTION_PRECISION = 1601,
       CUDNN_REDUCTION_X = 1610,
       CUDNN_REDUCTION_Y = 1611,
       CUDNN_REDUCTION_OF = 1612,
       CUDNN_RESHAPE_X = 2200,
       CUDNN_RESHAPE_Y = 2201,
       CUDNN_DEVICE_JSON = 2702,
};
enum { CUDNN_F32 = 0, CUDNN_INT32 = 4, CUDNN_BF16 = 9, CUDNN_BOOLEAN = 11 };
enum { /* modes of a pointwise operation */
       CUDNN_ADD = 0,
       CUDNN_MULTIPLY = 1,
       CUDNN_DIVIDE = 6,
       CUDNN_SUBTRACT = 9,
       CUDNN_EXP = 13,
       CUDNN_LOG = 15,
       CUDNN_IDENTITY = 21,
       CUDNN_GREATER = 302,
       CUDNN_GREATER_OR_EQUAL = 303,
       CUDNN_INDEX = 501, /* each number's place on an axis */
       CUDNN_SELECT = 601,
};
enum { CUDNN_REDUCE_ADD = 0, CUDNN_REDUCE_MAX = 3 };
enum { CUDNN_HEURISTIC_FALLBACK = 2, CUDNN_HEURISTIC_A = 3 };

struct cudnn_api {
#define CUDNN_FUNCTION(field, symbol, result, parameters) result(*field) parameters;
#include "driver/cudnn_functions.list"
#undef CUDNN_FUNCTION
};

/* Loaded once a process and kept; SOL_CUDNN names another file (tests). NULL where it cannot be
 * used: *why (may be NULL) says what is missing then. Versions before 9.16 are refused: they want
 * other graphs for lengths that are no multiples of 128. */
const struct cudnn_api *cudnn_load(const char **why);

/* SOL_OK, or an error with the library's number, what it says itself, and the call's purpose. */
enum sol_status cudnn_status(const struct cudnn_api *api, int result, const char *what);

#endif
