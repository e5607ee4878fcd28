/* What tuning records are good for: that variants launch what they say and composites call what
 * they say, on a GPU that runs nothing; and which ops a changed file of kernels/ is of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "driver/fake_cuda.h"
#include "gpu/gpu_private.h"
#include "ops/cases.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/device_key.h"
#include "ops/op_kernels.h"
#include "ops/ops.h"
#include "ops/tuning_file.h"

/* `run`: what a launch does; NULL: nothing. */
static struct gpu *open_gpu(int major, fake_kernel_fn run)
{
    struct gpu *gpu;
    cuda_replace(fake_cuda_start(&(struct fake_cuda_params){
        .devices = 1, .major = major, .memory = (size_t)256 << 20, .run = run}));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    return gpu;
}

static void close_gpu(struct gpu *gpu)
{
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* What kernels/<file> says. */
static const char *text_of(const char *file)
{
    for (const struct gpu_image *i = gpu_images; i->name; i++)
        if (strcmp(i->name, file) == 0) return i->source;
    for (const struct gpu_source_header *h = gpu_headers; h->name; h++)
        if (strcmp(h->name, file) == 0) return h->text;
    fail_msg("there is no kernels/%s", file);
    return NULL;
}

/* ---- cases ---- */

/* Number `index` of the op's cases of a kind, weights as a model on a GPU has them; false: none. */
static bool make_args(const struct op *op, struct arena *arena, enum op_case_kind kind, int index,
                      void **args)
{
    struct rng rng;
    rng_seed(&rng, 100u * (uint64_t)kind + (uint64_t)index);
    struct case_maker maker = {.arena = arena, .rng = &rng, .kind = kind, .index = index};
    *args = arena_alloc(arena, op->args_size, 64);
    assert_non_null(*args);
    if (!case_make(op, &maker, *args)) return false;
    for (int i = 0; i < op->n_weights; i++) {
        struct tensor *t = (struct tensor *)((char *)*args + op->weights[i]);
        void *memory = arena_alloc(arena, tensor_packed_bytes(t), 256);
        assert_non_null(memory);
        tensor_pack_host(t, memory, t);
    }
    return true;
}

typedef void (*case_fn)(const struct op *op, struct arena *arena, const void *args);

static void each_case(const struct op *op, case_fn visit)
{
    static const enum op_case_kind kinds[] = {CASE_TAIL, CASE_RANDOM};
    for (int k = 0; k < 2; k++) {
        bool more = true;
        for (int index = 0; more; index++) {
            struct arena *arena;
            void *args;
            assert_int_equal(arena_create(1 << 20, &arena), SOL_OK);
            more = make_args(op, arena, kinds[k], index, &args);
            if (more) visit(op, arena, args);
            arena_destroy(arena);
        }
    }
}

/* ---- what a variant launches, and what a composite calls ---- */

enum { VARIANTS_MAX = 64, IMAGES_MAX = 256 };

static struct {
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct chooser chooser;
    int v;                                   /* which is running */
    int runs[VARIANTS_MAX];                  /* how many of each variant of the op */
    bool launched[VARIANTS_MAX][IMAGES_MAX]; /* in the order of gpu_images */
    bool called[OP_COUNT];                   /* by the op as a composite */
} seen;

static cuda_result note_launch(const char *kernel, const struct cuda_launch *config,
                               const void *args)
{
    (void)config;
    (void)args;
    for (const struct gpu_kernel *k = seen.gpu->kernels; k; k = k->next)
        if (strcmp(k->name, kernel) == 0) {
            assert_in_range(k->module->image - gpu_images, 0, IMAGES_MAX - 1);
            seen.launched[seen.v][k->module->image - gpu_images] = true;
        }
    return CUDA_OK;
}

static void run_choices(const struct op *op, struct arena *arena, const void *args)
{
    char why[OP_REASON_MAX];
    const struct op_variant *variant = op->variants[seen.v];
    if (!chooser_can_run(&seen.chooser, op, seen.v, args, why)) return;
    struct op_context context = {.stream = seen.stream};
    size_t needed = variant->workspace ? variant->workspace(args, 1) : 0;
    context.workspace = arena_alloc(arena, needed + 1, 256);
    assert_non_null(context.workspace);
    for (int c = 0; c < op_choice_count(op, seen.v); c++) {
        if (!op_choice_serves(op, seen.v, args, &seen.chooser.device, c)) continue;
        context.choice = c;
        variant->run(&context, args);
        seen.runs[seen.v]++;
    }
    if (gpu_wait(seen.stream) != SOL_OK) fail_msg("%s: %s", variant->name, sol_last_error());
}

/* With the matrices in bf16 that may be: other kernels read them. */
static void run_narrow(const struct op *op, struct arena *arena, const void *args)
{
    void *narrow = arena_alloc(arena, op->args_size, 64);
    assert_non_null(narrow);
    memcpy(narrow, args, op->args_size);
    for (int i = 0; op->matrices[i].access; i++) {
        struct matrix *m = op_matrix_of(&op->matrices[i], narrow);
        if (op->variants[seen.v]->narrow >> i & 1 && matrix_may_be_narrow(m)) m->dtype = DTYPE_BF16;
    }
    run_choices(op, arena, narrow);
}

/* A copy with a set of its matrices in bf16: what they hold nobody reads. */
static void *make_typed(const struct op *op, struct arena *arena, const void *args, unsigned set)
{
    void *typed = arena_alloc(arena, op->args_size, 64);
    assert_non_null(typed);
    memcpy(typed, args, op->args_size);
    for (int i = 0; op->matrices[i].access; i++) {
        struct matrix *m = op_matrix_of(&op->matrices[i], typed);
        if (set >> i & 1 && m->data) m->dtype = DTYPE_BF16;
    }
    return typed;
}

static void note_call(void *arg, const struct op *op, const void *args, int chosen)
{
    (void)arg;
    (void)args;
    (void)chosen;
    seen.called[op_index(op)] = true;
}

static void force(struct chooser *chooser, const struct op *op, int v)
{
    assert_in_range(chooser->n_forces, 0, CHOOSER_FORCES_MAX - 1);
    chooser->forces[chooser->n_forces].op = op;
    chooser->forces[chooser->n_forces].choice = -1;
    chooser->forces[chooser->n_forces++].variant = op_variant_name(op, v);
}

/* False: something that it calls has no variant that takes these. */
static bool compose_all(const struct op *op, int v, struct gpu *gpu, const void *args)
{
    struct chooser chooser;
    struct plan *plan;
    chooser_init(&chooser, 1);
    chooser.device.gpu = gpu;
    for (int i = 0; i < op_table_count; i++)
        if (op_table[i]->compose)
            force(&chooser, op_table[i], op_table[i] == op ? v : op_table[i]->n_variants);
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_on_choice(plan, note_call, NULL);
    plan_call(plan, op, args);
    const enum sol_status status = plan_finish_dry(plan);
    plan_destroy(plan);
    assert_true(status == SOL_OK || (gpu && status == SOL_E_UNSUPPORTED));
    return status == SOL_OK;
}

/* As on a CPU, and with matrices in bf16 as on a GPU. */
static void compose_case(const struct op *op, struct arena *arena, const void *args)
{
    for (int v = 0; v <= op->n_variants; v++) {
        if (!op_is_composed(op, v)) continue;
        assert_true(compose_all(op, v, NULL, args));
        const unsigned *set = v < op->n_variants ? op->variants[v]->typed : NULL;
        for (; set && *set; set++)
            seen.runs[v] += compose_all(op, v, seen.gpu, make_typed(op, arena, args, *set));
    }
}

static void run_case(const struct op *op, struct arena *arena, const void *args)
{
    for (seen.v = 0; seen.v < op->n_variants; seen.v++) {
        if (op->variants[seen.v]->target != TARGET_CUDA) continue;
        run_choices(op, arena, args);
        if (op->variants[seen.v]->narrow) run_narrow(op, arena, args);
        const unsigned *set = op->variants[seen.v]->typed;
        for (; set && *set; set++) run_choices(op, arena, make_typed(op, arena, args, *set));
    }
    if (op->compose) compose_case(op, arena, args);
}

static bool says(const struct op_variant *variant, const char *image)
{
    for (int i = 0; i < OP_IMAGES_MAX && variant->images[i]; i++)
        if (strcmp(variant->images[i], image) == 0) return true;
    return false;
}

static void check_variant(const struct op *op, int v)
{
    const struct op_variant *variant = op->variants[v];
    bool cuda = variant->target == TARGET_CUDA || (variant->compose && variant->typed);
    if (cuda && !seen.runs[v]) fail_msg("%s: no case that it can run", variant->name);
    for (int i = 0; gpu_images[i].name && i < IMAGES_MAX; i++)
        if (seen.launched[v][i] != says(variant, gpu_images[i].name))
            fail_msg("%s %s %s; its images say otherwise", variant->name,
                     seen.launched[v][i] ? "launches" : "does not launch", gpu_images[i].name);
    for (int i = 0; i < OP_IMAGES_MAX && variant->images[i]; i++) text_of(variant->images[i]);
}

/* The op and all below it. */
static void mark(const struct op *op, bool marked[OP_COUNT])
{
    marked[op_index(op)] = true;
    for (int i = 0; i < OP_CALLS_MAX && op->calls[i]; i++) mark(op->calls[i], marked);
}

static void check_calls(const struct op *op)
{
    bool said[OP_COUNT] = {false};
    if (!op->compose) assert_null(op->calls[0]);
    if (!op->compose) return;
    mark(op, said);
    for (int i = 0; i < OP_COUNT; i++)
        if (seen.called[i] != said[i])
            fail_msg("%s %s %s; its calls say otherwise", op->name,
                     seen.called[i] ? "calls" : "does not call", op_table[i]->name);
}

static void run_on(int major, const struct op *op)
{
    seen.gpu = open_gpu(major, note_launch);
    assert_int_equal(gpu_stream_create(seen.gpu, &seen.stream), SOL_OK);
    chooser_init(&seen.chooser, 1);
    seen.chooser.device.gpu = seen.gpu;
    each_case(op, run_case);
    gpu_stream_destroy(seen.stream);
    close_gpu(seen.gpu);
}

/* Variants that no other card can run. */
static bool has_own(const struct op *op, int major)
{
    for (int v = 0; v < op->n_variants; v++) {
        const struct op_arch *arch = &op->variants[v]->arch;
        if ((arch->family || arch->alone) && arch->major == major) return true;
    }
    return false;
}

static void use_fake(const char *variable, const char *fake)
{
    const char *library = getenv(fake);
    if (!library) fail_msg("%s names the fake library; ctest sets it", fake);
    setenv(variable, library, 1);
}

static void ops_say_what_they_launch_and_call(void **state)
{
    (void)state;
    use_fake("SOL_CUBLASLT", "SOL_FAKE_CUBLASLT");
    use_fake("SOL_CUDNN", "SOL_FAKE_CUDNN");
    for (int i = 0; i < op_table_count; i++) {
        const struct op *op = op_table[i];
        if (op->collective) continue; /* what NCCL launches is NCCL's */
        assert_in_range(op->n_variants, 0, VARIANTS_MAX);
        memset(seen.runs, 0, sizeof seen.runs);
        memset(seen.launched, 0, sizeof seen.launched);
        memset(seen.called, 0, sizeof seen.called);
        run_on(9, op);
        if (has_own(op, 10)) run_on(10, op);
        if (has_own(op, 12)) run_on(12, op);
        for (int v = 0; v < op->n_variants; v++) check_variant(op, v);
        check_calls(op);
    }
}

/* ---- what a changed file is of ---- */

/* A folder that has the file with a line more, and nothing else. */
static void change(const char *file, char folder[64], char path[160])
{
    strcpy(folder, "/tmp/sol-kernels-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, 160, "%s/%s", folder, file);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    if (strcmp(path, folder) != 0) assert_int_equal(mkdir(path, 0700), 0);
    *slash = '/';
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "%s// changed\n", text_of(file));
    assert_int_equal(fclose(out), 0);
}

static void remove_change(const char *folder, char *path)
{
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    rmdir(folder); /* gone already where it was the file's own */
}

/* Those that have a kernel. */
static const char all[] =
    "embed rmsnorm gemm matmul rope kv_write attention add route swiglu combine sample "
    "pack_weights "
    "attn_in attn_out moe_up moe_down moe attn_moe head grouped_gemm pack_scaled axpby gated_embed "
    "relu2 softcap self_attention self_attention_backward rmsnorm_backward rotary_norm "
    "rotary_norm_backward relu2_backward axpby_backward gated_embed_backward smear "
    "smear_backward embed_backward cross_entropy cross_entropy_block "
    "cross_entropy_block_backward weighted_sum sum_squares convert adamw "
    "muon_prepare muon_apply fill clip linear_cross_entropy muon grouped_matmul grouped_wgrad "
    "gather_rows gather_rows_backward combine_backward route_backward add_bias bias_backward "
    "swiglu_backward dropout quantise delayed_scale relu2_fp8 join_columns attn_add "
    "attn_route all_reduce all_gather all_reduce_add add_rmsnorm add_axpby "
    "own_experts silu_mul ";

static void changed_files_are_of_the_ops_that_launch_them(void **state)
{
    (void)state;
    static const struct {
        const char *file, *ops;
        int major;
    } cases[] = {
        {"types.h", all, 9},
        {"sample/sample.cu", "sample ", 9},
        {"all_reduce/one_shot.cu", "all_reduce all_gather all_reduce_add ", 9},
        {"all_reduce/in_tiles.cu", "all_reduce_add ", 9},
        {"ceiling/math.cu", "", 9},
        {"pack/pack.cu", "pack_weights ", 9},
        {"attention/attention_decode.cu", "attention ", 9},
        {"attention/prefill_work.cuh", "attention ", 9},
        {"cache.cuh",
         "kv_write attention attn_in attn_out attn_add attn_route moe_up moe_down moe attn_moe "
         "head gemm ",
         9},
        {"rope/rope.cuh", "rope attn_in ", 9},
        {"rope/rope.cu", "rope attn_in ", 9},
        {"route/choose.cuh", "route attn_out attn_add attn_route moe attn_moe ", 9},
        /* launched where the op is composed */
        {"swiglu/swiglu.cu", "swiglu moe_up moe attn_moe ", 9},
        {"gemm/gemv_wide.cu",
         "gemm attn_in attn_out attn_add attn_route moe_up moe_down moe attn_moe head ", 9},
        {"gemm/gemv.cu",
         "gemm attn_in attn_out attn_add attn_route moe_up moe_down moe attn_moe head ", 9},
        /* of another op's folder */
        {"gemm/round_rows.cu",
         "gemm attn_in attn_out attn_add attn_route moe_up moe_down moe attn_moe head ", 9},
        {"combine/combine.cu", "combine moe_down moe attn_moe ", 9},
        /* through a header of a header */
        {"pack/q8_0.cuh",
         "gemm attn_in attn_out attn_add attn_route moe_up moe_down moe attn_moe head ", 9},
        {"train/bias.cu", "add_bias bias_backward ", 9},
        {"matmul/grouped_mma.cu", "grouped_matmul grouped_wgrad ", 9},
        {"train/loss.cu", "cross_entropy linear_cross_entropy ", 9},
        {"train/loss_block.cu",
         "cross_entropy_block cross_entropy_block_backward linear_cross_entropy ", 9},
        {"quantise/quantise_fp8.cu", "quantise delayed_scale relu2_fp8 linear_cross_entropy ", 9},
        {"train/muon.cu", "muon_prepare muon_apply muon ", 9},
        {"train/tables_args.h", "embed gated_embed embed_backward gated_embed_backward ", 9},
        /* by one kernel only, that not every GPU has */
        {"moe/moe_wgmma.cu", "moe attn_moe ", 9},
        {"moe/moe_i8_wgmma.cu", "moe attn_moe ", 9},
        {"moe/i8_rows_args.h", "moe attn_moe ", 9},
        {"grouped_gemm/grouped_wgmma.cuh", "grouped_gemm ", 9},
        {"grouped_gemm/grouped_ladder.cuh", "grouped_gemm ", 9},
        {"copy_across.cuh", "grouped_gemm ", 9},
        {"grouped_gemm/grouped_work.cuh", "", 10},
        {"grouped_gemm/pack_scaled.cu", "pack_scaled ", 9},
        {"moe/moe_wgmma.cu", "", 8},
        {"attn_in/attn_in_wgmma.cu", "attn_in ", 9},
        {"attn_in/attn_in_wgmma.cu", "", 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct op_kernels before, after;
        char folder[64], path[160];
        struct gpu *gpu = open_gpu(cases[i].major, NULL);
        assert_int_equal(op_kernels_hash(gpu, &before), SOL_OK);
        change(cases[i].file, folder, path);
        assert_int_equal(gpu_use_sources(gpu, folder), SOL_OK);
        assert_int_equal(op_kernels_hash(gpu, &after), SOL_OK);
        for (int o = 0; o < OP_COUNT; o++) {
            char word[64], list[1024];
            snprintf(word, sizeof word, " %s ", op_table[o]->name);
            snprintf(list, sizeof list, " %s", cases[i].ops);
            bool wanted = strstr(list, word) != NULL;
            if (wanted == (strcmp(before.of[o], after.of[o]) == 0))
                fail_msg("%s, compute capability %d: the hash of %s %s", cases[i].file,
                         cases[i].major, op_table[o]->name, wanted ? "stays" : "changes");
        }
        remove_change(folder, path);
        close_gpu(gpu);
    }
}

static void shipped_is_told(void **state)
{
    (void)state;
    struct device_key key;
    struct tuning shipped;
    struct gpu *gpu = open_gpu(9, NULL);
    assert_int_equal(device_key_of_gpu(gpu, &key), SOL_OK);
    strcpy(key.device, "NVIDIA H200");
    assert_int_equal(tuning_shipped(&key, &shipped), SOL_OK);
    print_message("entries of the shipped record that are of these kernels: %zu\n", shipped.count);
    tuning_clear(&shipped);
    close_gpu(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_say_what_they_launch_and_call),
        cmocka_unit_test(changed_files_are_of_the_ops_that_launch_them),
        cmocka_unit_test(shipped_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
