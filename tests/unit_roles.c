/* Kernels by what they do: steps of engines as they name and order their kernels. */
#include "compare/roles.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "ops/ops.h"

#define OK(call) assert_int_equal((call), SOL_OK)

/* A kernel, the blocks that it was launched with, and its role. */
struct planted {
    const char *name;
    uint32_t grid;
    enum kernel_role role;
};

enum { KERNELS_MAX = 4000 };

struct step {
    struct timeline *t;
    enum kernel_role wanted[KERNELS_MAX];
    uint32_t events[KERNELS_MAX];
    size_t n;
    int64_t time;
};

static void open_step(struct step *s)
{
    uint16_t index;
    s->n = 0;
    s->time = 0;
    OK(timeline_create(&s->t));
    OK(timeline_add_process(s->t, &(struct trace_process){.pid = 1}, &index));
    OK(timeline_add_device(s->t, &(struct trace_device){.name = TRACE_NONE}, &index));
}

/* 1 us each, 100 ns apart. */
static void put(struct step *s, const struct planted *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct kernel_shape shape = {.grid = {list[i].grid, 1, 1}, .block = {128, 1, 1}};
        bool copy = strncmp(list[i].name, "copy ", 5) == 0;
        struct trace_event e = {.start = s->time,
                                .end = s->time + 1000,
                                .detail = TRACE_NONE,
                                .kind = copy ? EVENT_COPY : EVENT_KERNEL};
        OK(timeline_string(s->t, list[i].name, strlen(list[i].name), &e.name));
        if (!copy) OK(timeline_shape(s->t, &shape, &e.detail));
        OK(timeline_add(s->t, &e));
        s->events[s->n] = (uint32_t)s->n;
        s->wanted[s->n++] = list[i].role;
        s->time += 1100;
    }
}
#define PUT(s, list) put((s), (list), sizeof(list) / sizeof *(list))

/* All of it, or turned: from kernel `first` on, and around. */
static void check_from(const struct step *s, size_t first)
{
    uint32_t events[KERNELS_MAX];
    enum kernel_role roles[KERNELS_MAX];
    for (size_t i = 0; i < s->n; i++) events[i] = s->events[(i + first) % s->n];
    OK(role_of_events(s->t, events, s->n, roles));
    for (size_t i = 0; i < s->n; i++) {
        size_t k = events[i];
        const char *name = timeline_text(s->t, s->t->events[k].name);
        if (roles[i] != s->wanted[k])
            fail_msg("from %zu: kernel %zu, %s, is %s and not %s", first, k, name,
                     role_name(roles[i]), role_name(s->wanted[k]));
    }
}

static void check(struct step *s)
{
    OK(timeline_finish(s->t));
    check_from(s, 0);
    timeline_destroy(s->t);
}

/* ---- llama.cpp ---- */

static const struct planted llama_layer[] = {
    {"void rms_norm_f32<256, true, false>(float const*)", 1, ROLE_NORM},
    {"quantize_q8_1(float const*, void*)", 3, ROLE_QKV},
    {"void mul_mat_vec_q<(ggml_type)8, 1, true, true>(void const*)", 4096, ROLE_QKV},
    {"quantize_q8_1(float const*, void*)", 3, ROLE_QKV},
    {"void mul_mat_vec_q<(ggml_type)8, 1, true, true>(void const*)", 512, ROLE_QKV},
    {"void mul_mat_vec_q<(ggml_type)8, 1, true, true>(void const*)", 512, ROLE_QKV},
    {"void rope_neox<true, false, float, float>(float const*)", 64, ROLE_ROPE},
    {"void rope_neox<true, false, float, __half>(float const*)", 8, ROLE_ROPE},
    {"void k_set_rows<float, long, __half>(float const*)", 1, ROLE_COPIES},
    {"void flash_attn_ext_vec<64, 1, (ggml_type)1, false>(char const*)", 64, ROLE_ATTENTION},
    {"void flash_attn_combine_results<64>(float const*)", 64, ROLE_ATTENTION},
    {"quantize_q8_1(float const*, void*)", 4, ROLE_OUT},
    {"void mul_mat_vec_q<(ggml_type)8, 1, true, true>(void const*)", 2880, ROLE_OUT},
    {"void k_bin_bcast<&op_add, float, float, float>(float const*)", 3, ROLE_OUT},
    {"void rms_norm_f32<256, true, false>(float const*)", 1, ROLE_NORM},
    {"void mul_mat_vec_f<float, float, 1, 128, true, false>(float const*)", 32, ROLE_ROUTER},
    {"void topk_moe_cuda<32, false>(float const*)", 1, ROLE_ROUTER},
    {"quantize_q8_1(float const*, void*)", 3, ROLE_EXPERTS},
    {"void mul_mat_vec_q<(ggml_type)39, 1, true, true>(void const*)", 2880, ROLE_EXPERTS},
    {"void unary_gated_op_kernel<&op_swiglu_oai, float>(float const*)", 4, ROLE_ACTIVATION},
    {"quantize_q8_1(float const*, void*)", 4, ROLE_EXPERTS},
    {"void mul_mat_vec_q<(ggml_type)39, 1, true, true>(void const*)", 2880, ROLE_EXPERTS},
    {"void k_bin_bcast<&op_mul, float, float, float>(float const*)", 3, ROLE_EXPERTS},
    {"void k_bin_bcast<&op_add, float, float, float, float const*>(float const*)", 3, ROLE_EXPERTS},
};
static const struct planted llama_first[] = {
    {"copy HtoD", 0, ROLE_COPIES},
    {"void k_get_rows_float<float, float>(float const*)", 1, ROLE_EMBED},
};
static const struct planted llama_last[] = {
    {"void rms_norm_f32<256, true, false>(float const*)", 1, ROLE_NORM},
    {"quantize_q8_1(float const*, void*)", 3, ROLE_HEAD},
    {"void mul_mat_vec_q<(ggml_type)8, 1, false, true>(void const*)", 201088, ROLE_HEAD},
    {"copy DtoH", 0, ROLE_COPIES},
};

static void test_llama_decode(void **state)
{
    (void)state;
    struct step *s = malloc(sizeof *s);
    assert_non_null(s);
    open_step(s);
    PUT(s, llama_first);
    for (int i = 0; i < 24; i++) PUT(s, llama_layer);
    PUT(s, llama_last);
    check(s);
    free(s);
}

/* A step that was cut elsewhere: only the embedding, with nothing before it, is known as such by
 * its place. */
static void test_turned(void **state)
{
    (void)state;
    struct step *s = malloc(sizeof *s);
    assert_non_null(s);
    open_step(s);
    for (int i = 0; i < 6; i++) PUT(s, llama_layer);
    PUT(s, llama_last);
    OK(timeline_finish(s->t));
    size_t layer = sizeof llama_layer / sizeof *llama_layer;
    check_from(s, 0);
    check_from(s, layer);          /* at a layer's begin */
    check_from(s, 2 * layer + 11); /* at its output projection */
    check_from(s, 6 * layer);      /* at the last norm */
    timeline_destroy(s->t);
    free(s);
}

/* Many rows: mmq with its helpers, experts sorted by id. */
static const struct planted llama_prefill[] = {
    {"void rms_norm_f32<1024, true, false>(float const*)", 512, ROLE_NORM},
    {"void quantize_mmq_q8_1<(mmq_q8_1_ds_layout)0>(float const*)", 512, ROLE_QKV},
    {"void mul_mat_q<(ggml_type)8, 128, false>(char const*)", 132, ROLE_QKV},
    {"void mul_mat_q_stream_k_fixup<(ggml_type)8, 128, false>(int const*)", 32, ROLE_QKV},
    {"void k_bin_bcast<&op_add, float, float, float>(float const*)", 999, ROLE_QKV},
    {"void rope_neox<true, false, float, float>(float const*)", 64, ROLE_ROPE},
    {"void k_set_rows<float, long, __half>(float const*)", 512, ROLE_COPIES},
    {"void flash_attn_ext_f16<64, 64, 8, 8, false>(char const*)", 132, ROLE_ATTENTION},
    {"void flash_attn_stream_k_fixup<64, 8, 8>(float*)", 132, ROLE_ATTENTION},
    {"void quantize_mmq_q8_1<(mmq_q8_1_ds_layout)0>(float const*)", 512, ROLE_OUT},
    {"void mul_mat_q<(ggml_type)8, 128, false>(char const*)", 131, ROLE_OUT},
    {"void mul_mat_q_stream_k_fixup<(ggml_type)8, 128, false>(int const*)", 31, ROLE_OUT},
    {"void k_bin_bcast<&op_add, float, float, float>(float const*)", 998, ROLE_OUT},
    {"void rms_norm_f32<1024, true, false>(float const*)", 512, ROLE_NORM},
    {"void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_tn_align1>(Params)", 8, ROLE_ROUTER},
    {"void cublasLt::splitKreduce_kernel<32, 16, int, float>(Params)", 8, ROLE_ROUTER},
    {"void topk_moe_cuda<32, false>(float const*)", 128, ROLE_ROUTER},
    {"void mm_ids_helper<4>(int const*, int*)", 32, ROLE_EXPERTS},
    {"quantize_mmq_fp4(float const*)", 512, ROLE_EXPERTS},
    {"void mul_mat_q<(ggml_type)39, 128, false>(char const*)", 132, ROLE_EXPERTS},
    {"void unary_gated_op_kernel<&op_swiglu_oai, float>(float const*)", 512, ROLE_ACTIVATION},
    {"void mul_mat_q<(ggml_type)39, 128, false>(char const*)", 132, ROLE_EXPERTS},
    {"void k_bin_bcast<&op_mul, float, float, float>(float const*)", 512, ROLE_EXPERTS},
};

static void test_llama_prefill(void **state)
{
    (void)state;
    struct step *s = malloc(sizeof *s);
    assert_non_null(s);
    open_step(s);
    PUT(s, llama_first);
    for (int i = 0; i < 8; i++) PUT(s, llama_prefill);
    PUT(s, llama_last);
    check(s);
    free(s);
}

/* ---- PyTorch ---- */

#define AT_ELEMENT "void at::native::vectorized_elementwise_kernel<4, at::native::"

/* A dense model, nothing fused: the norm is a power, a mean and a root. */
static const struct planted eager_layer[] = {
    {AT_ELEMENT "(anonymous namespace)::pow_tensor_scalar_kernel_impl<float>>()", 1, ROLE_NORM},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<>>>()",
     1, ROLE_NORM},
    {AT_ELEMENT "rsqrt_kernel_cuda(at::TensorIteratorBase&)>()", 1, ROLE_NORM},
    {AT_ELEMENT "BinaryFunctor<float, float, float, MulFunctor<float>>>()", 1, ROLE_NORM},
    {"nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 24, ROLE_QKV},
    {"nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 8, ROLE_QKV},
    {AT_ELEMENT "neg_kernel_cuda(at::TensorIteratorBase&)>()", 1, ROLE_ROPE},
    {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<c10::BFloat16>()", 1,
     ROLE_COPIES},
    {AT_ELEMENT "CUDAFunctor_add<c10::BFloat16>>()", 1, ROLE_ROPE},
    {"void at::native::index_elementwise_kernel<128, 4, index_copy>()", 1, ROLE_COPIES},
    {"void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64>>()", 8,
     ROLE_ATTENTION},
    {"void pytorch_flash::flash_fwd_splitkv_combine_kernel<traits<64>>()", 8, ROLE_ATTENTION},
    {"void gemv2T_kernel_val<int, int, __nv_bfloat16>()", 72, ROLE_OUT},
    {AT_ELEMENT "CUDAFunctor_add<c10::BFloat16>>()", 1, ROLE_OUT},
    {AT_ELEMENT "(anonymous namespace)::pow_tensor_scalar_kernel_impl<float>>()", 1, ROLE_NORM},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<>>>()",
     1, ROLE_NORM},
    {AT_ELEMENT "rsqrt_kernel_cuda(at::TensorIteratorBase&)>()", 1, ROLE_NORM},
    {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16>(Params)", 96,
     ROLE_EXPERTS},
    {AT_ELEMENT "(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)>()", 1,
     ROLE_ACTIVATION},
    {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16>(Params)", 48,
     ROLE_EXPERTS},
    {AT_ELEMENT "CUDAFunctor_add<c10::BFloat16>>()", 1, ROLE_EXPERTS},
};
static const struct planted eager_first[] = {
    {"void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>()", 1,
     ROLE_COPIES},
};
static const struct planted eager_last[] = {
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<>>>()",
     1, ROLE_NORM},
    {"nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 999, ROLE_HEAD},
    {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>()", 1, ROLE_SAMPLING},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps<float>>>()", 1,
     ROLE_SAMPLING},
};

static void test_torch_eager(void **state)
{
    (void)state;
    struct step *s = malloc(sizeof *s);
    assert_non_null(s);
    open_step(s);
    PUT(s, eager_first);
    for (int i = 0; i < 5; i++) PUT(s, eager_layer);
    PUT(s, eager_last);
    check(s);
    free(s);
}

/* torch.compile names a kernel after all that it does. */
static const struct planted compiled_first[] = {
    {"triton_red_fused__to_copy_add_embedding_mean_mul_pow_rsqrt_0", 1, ROLE_EMBED},
};
static const struct planted compiled_layer[] = {
    {"triton_tem_fused_mm_1", 24, ROLE_QKV},
    {"triton_poi_fused__to_copy_add_cat_cos_mul_neg_sin_2", 9, ROLE_ROPE},
    {"triton_per_fused__softmax_add_bmm_3", 9, ROLE_ATTENTION},
    {"triton_tem_fused_mm_4", 48, ROLE_OUT},
    {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_5", 1, ROLE_NORM},
    {"triton_tem_fused_mm_6", 96, ROLE_EXPERTS},
    {"triton_poi_fused_mul_silu_7", 9, ROLE_ACTIVATION},
    {"triton_tem_fused_mm_8", 40, ROLE_EXPERTS},
    {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_9", 1, ROLE_NORM},
};
static const struct planted compiled_last[] = {
    {"triton_tem_fused_mm_10", 999, ROLE_HEAD},
    {"triton_red_fused_argmax_11", 1, ROLE_SAMPLING},
};

static void test_torch_compiled(void **state)
{
    (void)state;
    struct step *s = malloc(sizeof *s);
    struct planted layer[9];
    assert_non_null(s);
    memcpy(layer, compiled_layer, sizeof layer);
    layer[2].name = "void pytorch_flash::flash_fwd_kernel<traits<64>>()";
    open_step(s);
    PUT(s, compiled_first);
    for (int i = 0; i < 5; i++) PUT(s, layer);
    PUT(s, compiled_last);
    check(s);
    free(s);
}

/* Attention without a kernel of its own, and experts chosen by a softmax that is none. */
static const struct planted plain_layer[] = {
    {"layer_norm", 1, ROLE_NORM},          {"sgemm_qkv", 3, ROLE_QKV},
    {"batched_gemm", 8, ROLE_ATTENTION},   {"softmax_warp_forward", 8, ROLE_ATTENTION},
    {"batched_gemm", 9, ROLE_ATTENTION},   {"sgemm", 4, ROLE_OUT},
    {"layer_norm", 1, ROLE_NORM},          {"sgemm", 5, ROLE_ROUTER},
    {"bitonic_sort_topk", 1, ROLE_ROUTER}, {"softmax_warp_forward", 1, ROLE_ROUTER},
    {"grouped_gemm", 6, ROLE_EXPERTS},     {"gelu_kernel", 1, ROLE_ACTIVATION},
    {"grouped_gemm", 7, ROLE_EXPERTS},
};

static void test_plain_attention(void **state)
{
    (void)state;
    struct step *s = malloc(sizeof *s);
    assert_non_null(s);
    open_step(s);
    for (int i = 0; i < 4; i++) PUT(s, plain_layer);
    check(s);
    free(s);
}

/* ---- sol ---- */

static const struct planted sol_layer[] = {
    {"attn_in_row", 720, ROLE_QKV},           {"attention_decode_bf16", 264, ROLE_ATTENTION},
    {"attn_out_add_bf16", 180, ROLE_OUT},     {"attn_out_logits_bf16", 8, ROLE_ROUTER},
    {"moe_up_row_chosen", 240, ROLE_EXPERTS}, {"moe_down_row_chosen", 362, ROLE_EXPERTS},
};
static const struct planted sol_first[] = {{"embed_bf16", 1, ROLE_EMBED}};
static const struct planted sol_last[] = {{"gemv_wide_1_normed", 264, ROLE_HEAD},
                                          {"sample_pieces", 1, ROLE_SAMPLING}};

static void test_sol(void **state)
{
    (void)state;
    struct step *s = malloc(sizeof *s);
    assert_non_null(s);
    open_step(s);
    PUT(s, sol_first);
    for (int i = 0; i < 24; i++) PUT(s, sol_layer);
    PUT(s, sol_last);
    check(s);
    free(s);
}

/* What is no product says by its name what it is: of products it depends on the layer. */
static void test_training(void **state)
{
    (void)state;
    static const struct planted list[] = {
        {"embed_bf16", 64, ROLE_EMBED},
        {"smear_bf16_x8", 64, ROLE_EMBED},
        {"rmsnorm_train_bf16", 64, ROLE_NORM},
        {"rotary_norm_bf16", 64, ROLE_ROPE},
        {"self_attention_wgmma", 64, ROLE_ATTENTION},
        {"relu2_bf16_x8", 64, ROLE_ACTIVATION},
        {"cross_entropy_bf16", 64, ROLE_HEAD},
        {"weighted_sum", 1, ROLE_HEAD},
        {"self_attention_backward_wgmma", 64, ROLE_ATTENTION},
        {"embed_backward_bf16", 64, ROLE_EMBED},
        {"sum_squares_f32", 64, ROLE_OPTIMIZER},
        {"adamw_f32_x8", 64, ROLE_OPTIMIZER},
        {"muon_apply_f32", 64, ROLE_OPTIMIZER},
        {"quantise_mxfp4_f32", 64, ROLE_COPIES},
    };
    struct step *s = malloc(sizeof *s);
    assert_non_null(s);
    open_step(s);
    PUT(s, list);
    check(s);
    free(s);
}

/* Every op has a role; those that are parts of others take theirs. */
static void test_ops(void **state)
{
    (void)state;
    for (int i = 0; i < op_table_count; i++) {
        static const char *const parts[] = {"gemm",      "matmul",         "add",
                                            "axpby",     "axpby_backward", "add_bias",
                                            "add_axpby", "bias_backward",  "fp8_matmul"};
        const char *name = op_table[i]->name;
        bool part = false;
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            part = part || strcmp(name, parts[k]) == 0;
        if ((role_of_op(name, name) == ROLE_NOT_PLACED) != part) fail_msg("no role for %s", name);
    }
    assert_int_equal(role_of_op("attn_in", "gemm"), ROLE_QKV);
    assert_int_equal(role_of_op("attn_in", "rmsnorm"), ROLE_NORM);
    assert_int_equal(role_of_op("attn_out", "add"), ROLE_OUT);
    assert_int_equal(role_of_op("moe_down", "gemm"), ROLE_EXPERTS);
    assert_int_equal(role_of_op(NULL, "nothing"), ROLE_NOT_PLACED);
}

/* ---- what nobody can place ---- */

static void test_not_placed(void **state)
{
    (void)state;
    static const struct planted list[] = {
        {"zebra", 1, ROLE_NOT_PLACED},
        {"sgemm", 2, ROLE_NOT_PLACED},
        {"elementwise_add", 1, ROLE_NOT_PLACED},
        {"sgemm", 3, ROLE_NOT_PLACED},
        {"", 1, ROLE_NOT_PLACED},
        {"copy DtoD", 1, ROLE_COPIES},
        {"ncclDevKernel_AllReduce", 1, ROLE_NOT_PLACED},
    };
    struct step *s = malloc(sizeof *s);
    assert_non_null(s);
    open_step(s);
    PUT(s, list);
    check(s);
    free(s);
}

/* Rows add up to the step, whatever overlaps, and whatever was not placed. */
static void test_sum(void **state)
{
    (void)state;
    static const struct planted odd[] = {{"zebra", 1, ROLE_NOT_PLACED}};
    struct step *s = malloc(sizeof *s);
    struct trace_window_set windows;
    struct roles_side side;
    assert_non_null(s);
    open_step(s);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < 3; i++) PUT(s, sol_layer);
        s->time -= 600; /* starts while the one before runs */
        PUT(s, odd);
        s->time += 5000;
    }
    OK(timeline_finish(s->t));
    OK(trace_windows_find(s->t, NULL, &windows));
    assert_int_equal(windows.count, 5);
    OK(roles_of_timeline(s->t, &windows, 2, "x", &side));
    double sum = 0;
    for (int i = 0; i < ROLES_PARTS; i++) sum += side.ns[i];
    double step = 18 * 1100 + 1100 - 600 + 5000;
    assert_true(fabs(side.whole_ns - step / 2) < 1e-6);
    assert_true(fabs(sum - side.whole_ns) < 1e-6);
    assert_true(fabs(side.ns[ROLE_NOT_PLACED] - (1000 - 500) / 2.0) < 1e-6);
    assert_true(fabs(side.ns[ROLE_QKV] - 3 * 1000 / 2.0) < 1e-6);
    assert_true(fabs(side.calls[ROLE_EXPERTS] - 3) < 1e-6);
    roles_side_free(&side);
    windows.count = 0;
    assert_int_equal(roles_of_timeline(s->t, &windows, 1, "x", &side), SOL_E_ARGUMENT);
    roles_side_free(&side);
    windows.count = 5;
    trace_windows_free(&windows);
    timeline_destroy(s->t);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_decode),
        cmocka_unit_test(test_turned),
        cmocka_unit_test(test_llama_prefill),
        cmocka_unit_test(test_torch_eager),
        cmocka_unit_test(test_torch_compiled),
        cmocka_unit_test(test_plain_attention),
        cmocka_unit_test(test_sol),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_not_placed),
        cmocka_unit_test(test_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
