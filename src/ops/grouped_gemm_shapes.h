/* Sizes of groups by name: those of the public task nvfp4_group_gemm, and a user's. */
#ifndef OPS_GROUPED_GEMM_SHAPES_H
#define OPS_GROUPED_GEMM_SHAPES_H

#include "ops/grouped_gemm.h"

enum { GROUPED_SHAPE_GROUPS = 64 };

struct grouped_sizes_list {
    char name[48]; /* "g8 n4096 k7168" */
    int64_t n_groups;
    int64_t m[GROUPED_SHAPE_GROUPS], n[GROUPED_SHAPE_GROUPS], k[GROUPED_SHAPE_GROUPS];
};

/* gpu-mode/reference-kernels at f83cb92a, problems/nvidia/nvfp4_group_gemm/task.yml. */
enum { TASK_TESTS = 10, TASK_BENCHMARKS = 4 };
void grouped_task_test(int i, struct grouped_sizes_list *out);
void grouped_task_benchmark(int i, struct grouped_sizes_list *out);

/* "m=80,176;n=4096;k=7168": a list for each size, one number standing for all groups. */
enum sol_status grouped_shape_parse(const char *text, struct grouped_sizes_list *out);

#endif
