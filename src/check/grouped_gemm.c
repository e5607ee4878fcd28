#include "check/grouped_gemm.h"

#include <stdio.h>
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"

static void shape_of(int shape, struct grouped_sizes_list *out)
{
    if (shape < TASK_TESTS)
        grouped_task_test(shape, out);
    else
        grouped_task_benchmark(shape - TASK_TESTS, out);
}

static bool is_random(int shape)
{
    return shape == CHECK_SHAPES - 1;
}

const char *grouped_check_name(int shape, char name[48])
{
    struct grouped_sizes_list list;
    if (is_random(shape)) return strcpy(name, "random groups, all codes");
    shape_of(shape, &list);
    return memcpy(name, list.name, sizeof list.name);
}

struct drawn {
    struct grouped_sizes_list sizes;
    enum grouped_gemm_values values;
};

/* A case for each layout of scales, and one with weights in tiles, beside scales in atoms. */
static bool draw(const void *arg, struct case_maker *c, void *args)
{
    const struct drawn *d = arg;
    const bool tiles = c->index == SCALES_COUNT;
    if (c->index > SCALES_COUNT) return false;
    const struct grouped_gemm_shape shape = {
        .n_groups = d->sizes.n_groups,
        .m = d->sizes.m,
        .n = d->sizes.n,
        .k = d->sizes.k,
        .format = DTYPE_NVFP4,
        .c_type = DTYPE_F16,
        .scales = tiles ? SCALES_ATOMS : (enum scale_layout)c->index,
        .weights = tiles ? WEIGHTS_TILES : WEIGHTS_ROWS,
        .factor = d->values != VALUES_TASK, /* so that results are about 1, as tolerances want */
        .values = d->values,
    };
    grouped_gemm_make(c, &shape, args);
    return true;
}

enum sol_status grouped_check(int shape, const int *variants, int count,
                              const struct chooser *chooser, struct pool *pool, uint64_t seed,
                              struct verify_result *exact, struct verify_result *random)
{
    struct drawn d = {.values = VALUES_TASK};
    struct verify_options options = {.seed = seed, .rounds = 1};
    if (is_random(shape)) { /* of every kind; the op's tolerance is the tighter one */
        memset(exact, 0, (size_t)count * sizeof *exact);
        return verify_variants(&op_grouped_gemm, variants, count, chooser, pool, &options, random);
    }
    shape_of(shape, &d.sizes);
    options.make = draw;
    options.arg = &d;
    options.absolute = TASK_ABSOLUTE;
    options.relative = TASK_RELATIVE;
    options.identical = true;
    SOL_TRY(verify_variants(&op_grouped_gemm, variants, count, chooser, pool, &options, exact));
    d.values = VALUES_ORDINARY;
    options.identical = false;
    return verify_variants(&op_grouped_gemm, variants, count, chooser, pool, &options, random);
}
