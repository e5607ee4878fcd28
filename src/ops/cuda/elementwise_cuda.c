/* The variants whose kernels take a thread an element or a block a row: add, swiglu,
 * silu_mul, combine. */
#include "add/add_args.h"
#include "combine/combine_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "swiglu/silu_mul_args.h"
#include "swiglu/swiglu_args.h"

static struct gpu_launch one_thread_each(int64_t count, unsigned threads)
{
    return (struct gpu_launch){.grid = {(unsigned)((count + threads - 1) / threads)},
                               .block = {threads},
                               .overlaps = true};
}

static void run_add(const struct op_context *context, const void *args)
{
    const struct add_args *a = args;
    const struct add_kernel_args k = {.count = a->m * a->n, .y = a->y.data, .x = a->x.data};
    const struct gpu_launch launch = one_thread_each(k.count, ADD_THREADS);
    gpu_put(context->stream, "add/add.cu", "add_f32", &launch, &k);
}

const struct op_variant add_f32_cuda = {
    .name = "add_f32_cuda",
    .summary = "a thread an element",
    .target = TARGET_CUDA,
    .run = run_add,
    .images = {"add/add.cu"},
};

static void run_swiglu(const struct op_context *context, const void *args)
{
    const struct swiglu_args *a = args;
    const struct swiglu_kernel_args k = {.count = a->m * a->n,
                                         .up = a->up.data,
                                         .gate = a->gate.data,
                                         .alpha = a->alpha,
                                         .limit = a->limit};
    const struct gpu_launch launch = one_thread_each(k.count, SWIGLU_THREADS);
    gpu_put(context->stream, "swiglu/swiglu.cu", "swiglu_f32", &launch, &k);
}

const struct op_variant swiglu_f32_cuda = {
    .name = "swiglu_f32_cuda",
    .summary = "a thread an element",
    .target = TARGET_CUDA,
    .run = run_swiglu,
    .images = {"swiglu/swiglu.cu"},
};

static void run_silu_mul(const struct op_context *context, const void *args)
{
    const struct silu_mul_args *a = args;
    const struct silu_mul_kernel_args k = {
        .count = a->m * a->n, .up = a->up.data, .gate = a->gate.data};
    const struct gpu_launch launch = one_thread_each(k.count, SILU_MUL_THREADS);
    gpu_put(context->stream, "swiglu/silu_mul.cu", "silu_mul_f32", &launch, &k);
}

const struct op_variant silu_mul_f32_cuda = {
    .name = "silu_mul_f32_cuda",
    .summary = "a thread an element",
    .target = TARGET_CUDA,
    .run = run_silu_mul,
    .images = {"swiglu/silu_mul.cu"},
};

static void run_combine(const struct op_context *context, const void *args)
{
    const struct combine_args *a = args;
    const struct combine_kernel_args k = {.n = a->n,
                                          .top_k = a->top_k,
                                          .y = a->y.data,
                                          .weight = a->routing.weight,
                                          .row_of_slot = a->routing.row_of_slot,
                                          .x = a->x.data};
    gpu_put(context->stream, "combine/combine.cu",
            a->routing.some_of ? "combine_f32_own" : "combine_f32",
            &(struct gpu_launch){
                .grid = {(unsigned)a->m}, .block = {COMBINE_THREADS}, .overlaps = true},
            &k);
}

const struct op_variant combine_f32_cuda = {
    .name = "combine_f32_cuda",
    .summary = "a block a row",
    .target = TARGET_CUDA,
    .run = run_combine,
    .images = {"combine/combine.cu"},
};
