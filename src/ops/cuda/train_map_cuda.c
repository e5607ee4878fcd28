/* Variants of ops that treat numbers one by one, and of sums over all of them. */
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "train/map_args.h"

#define IMAGE      "train/map.cu"
#define SUMS_IMAGE TYPED_FINISH_IMAGE

/* Eight at a time where all of them come in eights. */
static bool in_eights(int64_t count, const struct map_kernel_args *k)
{
    return count % 8 == 0 && typed_aligned(k->x) && typed_aligned(k->y) && typed_aligned(k->out);
}

static void put_map(const struct op_context *context, const char *function, bool eights,
                    const struct map_kernel_args *k)
{
    const int64_t of_block = (int64_t)MAP_THREADS * MAP_PIECES * (eights ? 8 : 1);
    gpu_put(context->stream, IMAGE, function,
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(k->count, of_block)},
                                 .block = {MAP_THREADS},
                                 .overlaps = true},
            k);
}

static void put_typed(const struct op_context *context, const struct typed_names *names,
                      const struct matrix *type, const struct map_kernel_args *k)
{
    const bool eights = in_eights(k->count, k);
    put_map(context, names->of[typed_narrow(type)][eights], eights, k);
}

static const unsigned one[] = {1, 0}, both[] = {3, 0};

static void run_add(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("add");
    const struct add_args *a = args;
    put_typed(context, &names, &a->x,
              &(struct map_kernel_args){
                  .count = a->m * a->n, .x = a->x.data, .y = a->y.data, .out = a->x.data});
}

const struct op_variant add_cuda = {
    .name = "add_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = both,
    .run = run_add,
    .images = {IMAGE},
};

static void run_relu2(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("relu2");
    const struct relu2_args *a = args;
    put_typed(context, &names, &a->x,
              &(struct map_kernel_args){.count = a->m * a->n, .x = a->x.data, .out = a->x.data});
}

const struct op_variant relu2_cuda = {
    .name = "relu2_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = one,
    .run = run_relu2,
    .images = {IMAGE},
};

static void run_relu2_backward(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("relu2_backward");
    const struct relu2_backward_args *a = args;
    put_typed(context, &names, &a->d,
              &(struct map_kernel_args){
                  .count = a->m * a->n, .x = a->y.data, .y = a->d.data, .out = a->d.data});
}

const struct op_variant relu2_backward_cuda = {
    .name = "relu2_backward_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = both,
    .run = run_relu2_backward,
    .images = {IMAGE},
};

static void run_softcap(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("softcap");
    const struct softcap_args *a = args;
    put_typed(context, &names, &a->x,
              &(struct map_kernel_args){
                  .count = a->m * a->n, .x = a->x.data, .out = a->x.data, .factor = a->cap});
}

const struct op_variant softcap_cuda = {
    .name = "softcap_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = one,
    .run = run_softcap,
    .images = {IMAGE},
};

static void run_swiglu(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("swiglu");
    const struct swiglu_args *a = args;
    put_typed(context, &names, &a->gate,
              &(struct map_kernel_args){.count = a->m * a->n,
                                        .x = a->gate.data,
                                        .y = a->up.data,
                                        .out = a->gate.data,
                                        .factor = a->alpha,
                                        .limit = a->limit});
}

const struct op_variant swiglu_cuda = {
    .name = "swiglu_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = both,
    .run = run_swiglu,
    .images = {IMAGE},
};

static void run_swiglu_backward(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("swiglu_backward");
    const struct swiglu_backward_args *a = args;
    const struct swiglu_backward_kernel_args k = {.count = a->m * a->n,
                                                  .gate = a->gate.data,
                                                  .up = a->up.data,
                                                  .d = a->d.data,
                                                  .dup = a->dup.data,
                                                  .alpha = a->alpha,
                                                  .limit = a->limit};
    const bool eights = k.count % 8 == 0 && typed_aligned(k.gate) && typed_aligned(k.up) &&
                        typed_aligned(k.d) && typed_aligned(k.dup);
    const int64_t of_block = MAP_THREADS * (eights ? 8 : 1);
    gpu_put(context->stream, IMAGE, names.of[typed_narrow(&a->d)][eights],
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(k.count, of_block)},
                                 .block = {MAP_THREADS},
                                 .overlaps = true},
            &k);
}

static const unsigned all_four[] = {15, 0};

const struct op_variant swiglu_backward_cuda = {
    .name = "swiglu_backward_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = all_four,
    .run = run_swiglu_backward,
    .images = {IMAGE},
};

static void run_axpby(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("axpby");
    const struct axpby_args *a = args;
    put_typed(context, &names, &a->x,
              &(struct map_kernel_args){.count = a->m * a->n,
                                        .x = a->x.data,
                                        .y = a->y.data,
                                        .out = a->out.data,
                                        .a = a->a,
                                        .b = a->b,
                                        .factor = a->factor});
}

/* One that a call does without is float32. */
static bool can_axpby(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct axpby_args *a = args;
    (void)device;
    const bool same = !a->y.data || a->y.dtype == a->x.dtype;
    return same || typed_refuse(why, "matrices of two types");
}

static const unsigned axpby_typed[] = {7, 5, 0};

const struct op_variant axpby_cuda = {
    .name = "axpby_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = axpby_typed,
    .can_run = can_axpby,
    .run = run_axpby,
    .images = {IMAGE},
};

static void run_add_axpby(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("add_axpby");
    const struct add_axpby_args *a = args;
    const struct add_axpby_kernel_args k = {.count = a->m * a->n,
                                            .x = a->x.data,
                                            .first = a->first.data,
                                            .second = a->second.data,
                                            .y = a->y.data,
                                            .sum = a->sum.data,
                                            .out = a->out.data,
                                            .a = a->a,
                                            .b = a->b,
                                            .factor = a->factor};
    const bool eights = k.count % 8 == 0 && typed_aligned(k.x) && typed_aligned(k.first) &&
                        typed_aligned(k.second) && typed_aligned(k.y) && typed_aligned(k.sum) &&
                        typed_aligned(k.out);
    gpu_put(context->stream, IMAGE, names.of[typed_narrow(&a->x)][eights],
            &(struct gpu_launch){
                .grid = {(unsigned)typed_pieces(k.count, MAP_THREADS * (eights ? 8 : 1))},
                .block = {MAP_THREADS},
                .overlaps = true},
            &k);
}

static bool can_add_axpby(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct add_axpby_args *a = args;
    (void)device;
    const bool same = !a->y.data || a->y.dtype == a->x.dtype;
    return same || typed_refuse(why, "matrices of two types");
}

static const unsigned add_axpby_typed[] = {63, 47, 0}; /* with y, and without */

const struct op_variant add_axpby_cuda = {
    .name = "add_axpby_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = add_axpby_typed,
    .can_run = can_add_axpby,
    .run = run_add_axpby,
    .images = {IMAGE},
};

static void run_dropout(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("dropout");
    const struct dropout_args *a = args;
    const uint32_t limit = dropout_limit(a->rate);
    const struct dropout_kernel_args k = {.count = a->m * a->n,
                                          .x = a->x.data,
                                          .add = a->add.data,
                                          .out = a->out.data,
                                          .key = a->key,
                                          .stream = a->stream,
                                          .limit = limit,
                                          .factor = dropout_factor(limit)};
    const bool eights =
        k.count % 8 == 0 && typed_aligned(k.x) && typed_aligned(k.add) && typed_aligned(k.out);
    const int64_t of_block = (int64_t)MAP_THREADS * MAP_PIECES * (eights ? 8 : 1);
    gpu_put(context->stream, IMAGE, names.of[typed_narrow(&a->x)][eights],
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(k.count, of_block)},
                                 .block = {MAP_THREADS},
                                 .overlaps = true},
            &k);
}

static bool can_dropout(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct dropout_args *a = args;
    (void)device;
    const bool same = !a->add.data || a->add.dtype == a->x.dtype;
    return same || typed_refuse(why, "matrices of two types");
}

const struct op_variant dropout_cuda = {
    .name = "dropout_cuda",
    .summary = "pieces of 16 bytes, with random bits of their own",
    .target = TARGET_CUDA,
    .typed = axpby_typed,
    .can_run = can_dropout,
    .run = run_dropout,
    .images = {IMAGE},
};

static void run_convert(const struct op_context *context, const void *args)
{
    static const char *const names[2][2][2] = {
        {{"convert_f32_x1", "convert_f32_x8"}, {"convert_f32_bf16_x1", "convert_f32_bf16_x8"}},
        {{"convert_bf16_f32_x1", "convert_bf16_f32_x8"}, {"convert_bf16_x1", "convert_bf16_x8"}}};
    const struct convert_args *a = args;
    const struct map_kernel_args k = {.count = a->m * a->n, .x = a->from.data, .out = a->to.data};
    const bool eights = in_eights(k.count, &k);
    put_map(context, names[typed_narrow(&a->from)][typed_narrow(&a->to)][eights], eights, &k);
}

static const unsigned convert_typed[] = {2, 1, 3, 0};

const struct op_variant convert_cuda = {
    .name = "convert_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = convert_typed,
    .run = run_convert,
    .images = {IMAGE},
};

static void run_fill(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("fill");
    const struct fill_args *a = args;
    put_typed(
        context, &names, &a->x,
        &(struct map_kernel_args){.count = a->m * a->n, .out = a->x.data, .factor = a->value});
}

const struct op_variant fill_cuda = {
    .name = "fill_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = one,
    .run = run_fill,
    .images = {IMAGE},
};

/* ---- sums ---- */

unsigned typed_sum_blocks(int64_t count, int64_t of)
{
    const int64_t blocks = typed_pieces(count, of);
    return (unsigned)(blocks < 1 ? 1 : blocks < SUM_BLOCKS ? blocks : SUM_BLOCKS);
}

void typed_finish(const struct op_context *context, const struct finish_kernel_args *args,
                  int64_t columns)
{
    gpu_put(context->stream, SUMS_IMAGE, "finish_sums",
            &(struct gpu_launch){
                .grid = {(unsigned)columns}, .block = {FINISH_THREADS}, .overlaps = true},
            args);
}

void typed_add_parts(const struct op_context *context, const struct parts_kernel_args *args)
{
    gpu_put(context->stream, SUMS_IMAGE, "add_parts",
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(args->count, 8 * MAP_THREADS)},
                                 .block = {MAP_THREADS},
                                 .overlaps = true},
            args);
}

static size_t axpby_backward_workspace(const void *args, int workers)
{
    (void)args, (void)workers;
    return 2 * SUM_BLOCKS * sizeof(float);
}

static void run_axpby_backward(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("axpby_backward");
    const struct axpby_backward_args *a = args;
    const struct axpby_backward_kernel_args k = {.count = a->m * a->n,
                                                 .x = a->da ? a->x.data : NULL,
                                                 .y = a->db ? a->y.data : NULL,
                                                 .d = a->d.data,
                                                 .dy = a->dy.data,
                                                 .a = a->a,
                                                 .b = a->b,
                                                 .partials = context->workspace,
                                                 .factor = a->factor,
                                                 .first = a->first};
    const bool eights = k.count % 8 == 0 && typed_aligned(k.x) && typed_aligned(k.y) &&
                        typed_aligned(k.d) && typed_aligned(k.dy);
    const unsigned blocks = typed_sum_blocks(k.count, MAP_THREADS * (eights ? 8 : 1));
    gpu_put(context->stream, IMAGE, names.of[typed_narrow(&a->d)][eights],
            &(struct gpu_launch){.grid = {blocks}, .block = {MAP_THREADS}, .overlaps = true}, &k);
    if (a->da || a->db)
        typed_finish(context,
                     &(struct finish_kernel_args){.partials = context->workspace,
                                                  .parts = blocks,
                                                  .n_first = 1,
                                                  .first = a->da,
                                                  .second = a->db,
                                                  .factor_first = 1,
                                                  .factor_second = a->factor},
                     2);
}

/* What a call does without is float32, the others are of one type. */
static bool can_axpby_backward(const void *args, const struct op_device *device,
                               char why[OP_REASON_MAX])
{
    const struct axpby_backward_args *a = args;
    (void)device;
    const bool same = (!a->x.data || a->x.dtype == a->d.dtype) && a->y.dtype == a->d.dtype;
    return same || typed_refuse(why, "matrices of two types");
}

static const unsigned axpby_backward_typed[] = {15, 14, 0};

const struct op_variant axpby_backward_cuda = {
    .name = "axpby_backward_cuda",
    .summary = "pieces of 16 bytes, a partial sum of each block",
    .target = TARGET_CUDA,
    .typed = axpby_backward_typed,
    .can_run = can_axpby_backward,
    .workspace = axpby_backward_workspace,
    .run = run_axpby_backward,
    .images = {IMAGE, SUMS_IMAGE},
};

static size_t sum_workspace(const void *args, int workers)
{
    (void)args, (void)workers;
    return SUM_BLOCKS * sizeof(float);
}

static void run_sum_squares(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("sum_squares");
    const struct sum_squares_args *a = args;
    const struct sum_kernel_args k = {
        .count = a->m * a->n, .x = a->x.data, .out = context->workspace};
    const bool eights = k.count % 8 == 0 && typed_aligned(k.x);
    const unsigned blocks = typed_sum_blocks(k.count, MAP_THREADS * (eights ? 8 : 1));
    gpu_put(context->stream, SUMS_IMAGE, names.of[typed_narrow(&a->x)][eights],
            &(struct gpu_launch){.grid = {blocks}, .block = {MAP_THREADS}, .overlaps = true}, &k);
    typed_finish(context,
                 &(struct finish_kernel_args){.partials = context->workspace,
                                              .parts = blocks,
                                              .n_first = 1,
                                              .first = a->sum,
                                              .factor_first = 1},
                 1);
}

const struct op_variant sum_squares_cuda = {
    .name = "sum_squares_cuda",
    .summary = "a partial sum of each block",
    .target = TARGET_CUDA,
    .typed = one,
    .workspace = sum_workspace,
    .run = run_sum_squares,
    .images = {SUMS_IMAGE},
};

static void run_weighted_sum(const struct op_context *context, const void *args)
{
    const struct weighted_sum_args *a = args;
    const struct sum_kernel_args k = {.count = a->n, .x = a->x, .scale = a->scale, .out = a->sum};
    gpu_put(context->stream, SUMS_IMAGE, "weighted_sum",
            &(struct gpu_launch){.block = {1024}, .overlaps = true}, &k);
}

const struct op_variant weighted_sum_cuda = {
    .name = "weighted_sum_cuda",
    .summary = "one block, sums in double",
    .target = TARGET_CUDA,
    .run = run_weighted_sum,
    .images = {SUMS_IMAGE},
};

static void run_clip(const struct op_context *context, const void *args)
{
    const struct clip_args *a = args;
    const struct clip_kernel_args k = {.sum = a->sum, .factor = a->factor, .limit = a->limit};
    gpu_put(context->stream, SUMS_IMAGE, "clip",
            &(struct gpu_launch){.block = {32}, .overlaps = true}, &k);
}

const struct op_variant clip_cuda = {
    .name = "clip_cuda",
    .summary = "one thread",
    .target = TARGET_CUDA,
    .run = run_clip,
    .images = {SUMS_IMAGE},
};
