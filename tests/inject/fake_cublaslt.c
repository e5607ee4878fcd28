/* A cuBLASLt that multiplies nothing: it counts calls and what was made and not given back, fails
 * the call that it is told to, and remembers the last product. */
#include "inject/fake_cublaslt.h"

#include <stdlib.h>
#include <string.h>

#include "driver/cublaslt.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_cublaslt *fake_cublaslt_state(void);

static struct fake_cublaslt state;

struct fake_cublaslt *fake_cublaslt_state(void)
{
    return &state;
}

/* Whether this is the call that fails. */
static int fails(void)
{
    return ++state.calls == state.fail ? state.result : 0;
}

static int make(void **out)
{
    int result = fails();
    *out = NULL;
    if (result) return result;
    *out = malloc(1);
    if (!*out) return CUBLAS_E_MEMORY;
    state.live++;
    return 0;
}

static int give_back(void *object)
{
    free(object);
    state.live--;
    return 0;
}

#define FAKE(name, parameters)                                                                     \
    EXPORT int name parameters;                                                                    \
    EXPORT int name parameters

FAKE(cublasLtCreate, (void **handle))
{
    return make(handle);
}

FAKE(cublasLtDestroy, (void *handle))
{
    return give_back(handle);
}

FAKE(cublasLtMatmulDescCreate, (void **desc, int compute, int scale_type))
{
    if (compute != CUBLAS_COMPUTE_F32 || scale_type != CUBLAS_TYPE_F32) return 7;
    return make(desc);
}

FAKE(cublasLtMatmulDescDestroy, (void *desc))
{
    return give_back(desc);
}

FAKE(cublasLtMatmulDescSetAttribute, (void *desc, int which, const void *value, size_t size))
{
    (void)desc;
    if (which == CUBLASLT_BIAS && size == sizeof state.bias) memcpy(&state.bias, value, size);
    if (which == CUBLASLT_EPILOGUE && size == sizeof state.epilogue)
        memcpy(&state.epilogue, value, size);
    return fails();
}

FAKE(cublasLtMatrixLayoutCreate,
     (void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride))
{
    state.rows = rows, state.columns = columns, state.stride = stride, state.type = type;
    return make(layout);
}

FAKE(cublasLtMatrixLayoutDestroy, (void *layout))
{
    return give_back(layout);
}

FAKE(cublasLtMatmulPreferenceCreate, (void **preference))
{
    return make(preference);
}

FAKE(cublasLtMatmulPreferenceDestroy, (void *preference))
{
    return give_back(preference);
}

FAKE(cublasLtMatmulPreferenceSetAttribute,
     (void *preference, int which, const void *value, size_t size))
{
    (void)preference;
    (void)which;
    (void)value;
    (void)size;
    return fails();
}

FAKE(cublasLtMatmulAlgoGetHeuristic,
     (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
      struct cublaslt_heuristic *found, int *count))
{
    int result = fails();
    *count = 0;
    if (result) return result;
    if (!handle || !desc || !a || !b || !c || !d || !preference || wanted < 1) return 7;
    state.choices++;
    if (state.no_algorithm) return 0;
    *count = 1;
    found[0] = (struct cublaslt_heuristic){.algorithm = {{(uint64_t)state.choices}},
                                           .state = state.bad_algorithm ? CUBLAS_E_UNSUPPORTED : 0};
    return 0;
}

FAKE(cublasLtMatmul,
     (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
      void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
      const struct cublaslt_algorithm *algorithm, void *workspace, size_t workspace_bytes,
      void *stream))
{
    int result = fails();
    if (result) return result;
    if (!handle || !desc || !a_layout || !b_layout || !c_layout || !d_layout || c != d) return 7;
    if (*(const float *)alpha != 1 || *(const float *)beta != 0 || !workspace || !stream) return 7;
    state.w = a, state.x = b, state.c = d;
    state.workspace_bytes = workspace_bytes;
    state.algorithm = algorithm->data[0];
    state.products++;
    return 0;
}
