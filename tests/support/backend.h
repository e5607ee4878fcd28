/* Where a test computes: on the CPU, or with SOL_TEST_BACKEND=cuda on a GPU, real or emulated. */
#ifndef TESTS_SUPPORT_BACKEND_H
#define TESTS_SUPPORT_BACKEND_H

#include <stdbool.h>

struct gpu;

bool test_on_gpu(void);
/* GPU 0, which the caller closes; NULL on the CPU. The test's program ends
 * with status 2 where it cannot be opened. */
struct gpu *test_gpu(void);

#endif
