/* Variants of what training does with experts' rows and with biases (kernels/train/experts.cu,
 * bias.cu, round.cu). */
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "train/experts_args.h"
#include "train/map_args.h"

#define ROWS_IMAGE  "train/experts.cu"
#define BIAS_IMAGE  "train/bias.cu"
#define ROUND_IMAGE "train/round.cu"

static const unsigned one[] = {1, 0}, both[] = {3, 0}, all_three[] = {7, 0};

static void put_warps(const struct op_context *context, const char *image, const char *function,
                      int64_t warps, const void *k)
{
    gpu_put(context->stream, image, function,
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(warps, ROWS_WARPS)},
                                 .block = {ROWS_WARPS * 32},
                                 .overlaps = true},
            k);
}

static void put_rows(const struct op_context *context, const struct typed_names *names,
                     const struct matrix *type, int64_t rows, const struct rows_kernel_args *k)
{
    const bool eights =
        k->n % 8 == 0 && typed_aligned(k->x) && typed_aligned(k->d) && typed_aligned(k->out);
    put_warps(context, ROWS_IMAGE, names->of[typed_narrow(type)][eights], rows, k);
}

/* ---- rows ---- */

static void run_gather_rows(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("gather_rows");
    const struct gather_rows_args *a = args;
    put_rows(context, &names, &a->y, a->m,
             &(struct rows_kernel_args){
                 .m = a->m, .n = a->n, .rows = a->rows, .x = a->x.data, .out = a->y.data});
}

const struct op_variant gather_rows_cuda = {
    .name = "gather_rows_cuda",
    .summary = "a warp a row",
    .target = TARGET_CUDA,
    .typed = both,
    .run = run_gather_rows,
    .images = {ROWS_IMAGE},
};

static void put_add_rows(const struct op_context *context, const struct matrix *type,
                         const struct rows_kernel_args *k)
{
    static const struct typed_names names = TYPED_NAMES("add_rows");
    put_rows(context, &names, type, k->m, k);
}

static void run_gather_rows_backward(const struct op_context *context, const void *args)
{
    const struct gather_rows_backward_args *a = args;
    put_add_rows(context, &a->dx,
                 &(struct rows_kernel_args){.m = a->m,
                                            .n = a->n,
                                            .top_k = a->top_k,
                                            .rows = a->row_of_slot,
                                            .x = a->d.data,
                                            .out = a->dx.data});
}

const struct op_variant gather_rows_backward_cuda = {
    .name = "gather_rows_backward_cuda",
    .summary = "a warp a token",
    .target = TARGET_CUDA,
    .typed = both,
    .run = run_gather_rows_backward,
    .images = {ROWS_IMAGE},
};

static bool can_combine(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    if (!((const struct combine_args *)args)->routing.some_of) return true;
    return typed_refuse(why, "some experts are other ranks'");
}

static void run_combine(const struct op_context *context, const void *args)
{
    const struct combine_args *a = args;
    put_add_rows(context, &a->x,
                 &(struct rows_kernel_args){.m = a->m,
                                            .n = a->n,
                                            .top_k = a->top_k,
                                            .rows = a->routing.row_of_slot,
                                            .weight = a->routing.weight,
                                            .x = a->y.data,
                                            .out = a->x.data});
}

const struct op_variant combine_cuda = {
    .name = "combine_cuda",
    .summary = "a warp a token",
    .target = TARGET_CUDA,
    .can_run = can_combine,
    .typed = both,
    .run = run_combine,
    .images = {ROWS_IMAGE},
};

static void run_combine_backward(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("combine_backward");
    const struct combine_backward_args *a = args;
    put_rows(context, &names, &a->dx, a->m * a->top_k,
             &(struct rows_kernel_args){.m = a->m,
                                        .n = a->n,
                                        .top_k = a->top_k,
                                        .rows = a->routing.row_of_slot,
                                        .weight = a->routing.weight,
                                        .x = a->y.data,
                                        .d = a->dx.data,
                                        .out = a->dy.data,
                                        .dweight = a->dweight});
}

const struct op_variant combine_backward_cuda = {
    .name = "combine_backward_cuda",
    .summary = "a warp a row of experts",
    .target = TARGET_CUDA,
    .typed = all_three,
    .run = run_combine_backward,
    .images = {ROWS_IMAGE},
};

static void run_route_backward(const struct op_context *context, const void *args)
{
    const struct route_backward_args *a = args;
    const struct route_backward_kernel_args k = {.m = a->m,
                                                 .n_experts = a->n_experts,
                                                 .top_k = a->top_k,
                                                 .scale = a->scale,
                                                 .dweight = a->dweight,
                                                 .weight = a->routing.weight,
                                                 .expert = a->routing.expert,
                                                 .group_offsets = a->routing.group_offsets,
                                                 .logits = a->logits.data,
                                                 .dlogits = a->dlogits.data,
                                                 .balance = a->balance};
    put_warps(context, ROWS_IMAGE, "route_backward", a->m, &k);
}

const struct op_variant route_backward_cuda = {
    .name = "route_backward_cuda",
    .summary = "a warp a token, in double",
    .target = TARGET_CUDA,
    .run = run_route_backward,
    .images = {ROWS_IMAGE},
};

/* ---- biases ---- */

static void run_add_bias(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("add_bias");
    const struct add_bias_args *a = args;
    const struct bias_kernel_args k = {.m = a->m,
                                       .n = a->n,
                                       .groups = a->groups,
                                       .group_offsets = a->group_offsets,
                                       .bias = a->bias,
                                       .y = a->y.data};
    const bool eights = a->n % 8 == 0 && typed_aligned(k.bias) && typed_aligned(k.y);
    put_warps(context, BIAS_IMAGE, names.of[typed_narrow(&a->y)][eights], a->m, &k);
}

const struct op_variant add_bias_cuda = {
    .name = "add_bias_cuda",
    .summary = "a warp a row",
    .target = TARGET_CUDA,
    .typed = one,
    .run = run_add_bias,
    .images = {BIAS_IMAGE},
};

static int64_t bias_stripes(const struct bias_backward_args *a)
{
    const int64_t stripes = typed_pieces(BIAS_STRIPES, a->groups);
    return stripes < BIAS_STRIPES_MIN ? BIAS_STRIPES_MIN : stripes;
}

static size_t bias_backward_workspace(const void *args, int workers)
{
    const struct bias_backward_args *a = args;
    (void)workers;
    return (size_t)(a->groups * a->n * bias_stripes(a)) * sizeof(float);
}

static void run_bias_backward(const struct op_context *context, const void *args)
{
    const struct bias_backward_args *a = args;
    const struct bias_kernel_args k = {.m = a->m,
                                       .n = a->n,
                                       .groups = a->groups,
                                       .group_offsets = a->group_offsets,
                                       .dy = a->dy.data,
                                       .partials = context->workspace,
                                       .stripes = bias_stripes(a)};
    gpu_put(context->stream, BIAS_IMAGE,
            typed_narrow(&a->dy) ? "bias_backward_bf16" : "bias_backward_f32",
            &(struct gpu_launch){.grid = {(unsigned)(a->groups * k.stripes),
                                          (unsigned)typed_pieces(a->n, BIAS_THREADS)},
                                 .block = {BIAS_THREADS},
                                 .overlaps = true},
            &k);
    typed_finish(context,
                 &(struct finish_kernel_args){.partials = k.partials,
                                              .parts = k.stripes,
                                              .n_first = a->groups * a->n,
                                              .first = a->dbias,
                                              .factor_first = 1},
                 a->groups * a->n);
}

const struct op_variant bias_backward_cuda = {
    .name = "bias_backward_cuda",
    .summary = "a thread a column of a stripe of rows",
    .target = TARGET_CUDA,
    .typed = one,
    .workspace = bias_backward_workspace,
    .run = run_bias_backward,
    .images = {BIAS_IMAGE, TYPED_FINISH_IMAGE},
};

/* ---- quantise: mxfp4 ---- */

static bool can_round(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct quantise_args *a = args;
    (void)device;
    return a->format == DTYPE_MXFP4 || typed_refuse(why, "rounds to mxfp4 alone");
}

static void run_quantise(const struct op_context *context, const void *args)
{
    const struct quantise_args *a = args;
    const struct round_kernel_args k = {
        .blocks = a->m * a->n / 32, .on = a->on, .from = a->from.data, .to = a->to.data};
    put_warps(context, ROUND_IMAGE,
              typed_narrow(&a->to) ? "quantise_mxfp4_bf16" : "quantise_mxfp4_f32", k.blocks, &k);
}

static const unsigned round_typed[] = {2, 0};

const struct op_variant quantise_mxfp4_cuda = {
    .name = "quantise_mxfp4_cuda",
    .summary = "mxfp4, a warp a block",
    .target = TARGET_CUDA,
    .typed = round_typed,
    .can_run = can_round,
    .run = run_quantise,
    .images = {ROUND_IMAGE},
};
