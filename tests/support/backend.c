#include "support/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"

bool test_on_gpu(void)
{
    const char *backend = getenv("SOL_TEST_BACKEND");
    return backend && strcmp(backend, "cuda") == 0;
}

struct gpu *test_gpu(void)
{
    struct gpu *gpu = NULL;
    if (!test_on_gpu() || gpu_open(0, &gpu) == SOL_OK) return gpu;
    fprintf(stderr, "SOL_TEST_BACKEND=cuda: %s\n", sol_last_error());
    exit(2);
}
