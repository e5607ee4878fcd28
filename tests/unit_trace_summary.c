#include "trace/summary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "trace/category.h"
#include "trace/chrome.h"

#define OK(call) assert_int_equal((call), SOL_OK)

static struct timeline *create(void)
{
    struct timeline *t;
    uint16_t index;
    OK(timeline_create(&t));
    OK(timeline_add_process(t, &(struct trace_process){.pid = 1, .command = TRACE_NONE}, &index));
    OK(timeline_add_device(t, &(struct trace_device){.name = TRACE_NONE}, &index));
    OK(timeline_add_device(t, &(struct trace_device){.name = TRACE_NONE}, &index));
    return t;
}

static void add(struct timeline *t, uint16_t kind, const char *name, int64_t start, int64_t end,
                uint16_t device, uint32_t track)
{
    struct trace_event e = {.start = start,
                            .end = end,
                            .correlation = 1,
                            .detail = TRACE_NONE,
                            .kind = kind,
                            .device = device,
                            .track = track};
    OK(timeline_string(t, name, strlen(name), &e.name));
    if (kind == EVENT_COPY)
        OK(timeline_transfer(
            t, &(struct transfer){.bytes = 100, .from = MEMORY_PAGEABLE, .to = MEMORY_DEVICE},
            &e.detail));
    OK(timeline_add(t, &e));
}

static struct timeline *sample(void)
{
    struct timeline *t = create();
    add(t, EVENT_KERNEL, "gemm", 1000, 1400, 0, 7);
    add(t, EVENT_KERNEL, "norm", 1300, 1600, 0, 8); /* overlaps */
    add(t, EVENT_KERNEL, "gemm", 1350, 1360, 0, 9); /* within */
    add(t, EVENT_COPY, "copy HtoD", 2000, 2100, 0, 7);
    add(t, EVENT_KERNEL, "gemm", 2100, 2200, 0, 7); /* no gap */
    add(t, EVENT_KERNEL, "gemm", 1000, 1100, 1, 7); /* the other device */
    add(t, EVENT_API, "cudaLaunchKernel", 1700, 1900, TRACE_NO_DEVICE, 42);
    add(t, EVENT_OVERHEAD, "tracer: buffer", 1650, 1750, TRACE_NO_DEVICE, 42);
    add(t, EVENT_OVERHEAD, "tracer: resources", 1700, 1800, TRACE_NO_DEVICE, 42);
    add(t, EVENT_OVERHEAD, "tracer: flush", 1600, 2000, TRACE_NO_DEVICE, 77); /* CUPTI's thread */
    add(t, EVENT_MARKER, "s\"\\\n\xff", 1000, 1700, TRACE_NO_DEVICE, 42);
    OK(timeline_add_sample(t, &(struct trace_sample){.time = 1500, .sm_mhz = 1980}));
    OK(timeline_finish(t));
    return t;
}

static void test_summary(void **state)
{
    (void)state;
    struct timeline *t = sample();
    struct trace_summary s;
    OK(trace_summarize(t, TRACE_NO_DEVICE, 0, INT64_MAX, &s));
    assert_int_equal(s.kernel_count, 5);
    assert_int_equal(s.n_kernels, 2);
    assert_string_equal(timeline_text(t, s.kernels[0].name), "gemm");
    assert_int_equal(s.kernels[0].count, 4);
    assert_int_equal(s.kernels[0].total, 400 + 10 + 100 + 100);
    assert_int_equal(s.kernels[0].min, 10);
    assert_int_equal(s.kernels[0].max, 400);
    assert_int_equal(s.kernels[1].category, CATEGORY_NORM);
    assert_int_equal(s.kernel_time, 910);
    assert_int_equal(s.devices, 2);
    assert_int_equal(s.busy, 600 + 200 + 100); /* overlaps once */
    assert_int_equal(s.gap_count, 1);
    assert_int_equal(s.gap_max, 400);
    assert_int_equal(s.tracer, 150); /* two that overlap; the flush held up nobody */
    assert_int_equal(s.gap, 250);
    assert_int_equal(s.span, s.busy + s.gap + s.tracer);
    assert_int_equal(s.n_copies, 1);
    assert_int_equal(s.copies[0].bytes, 100);
    assert_int_equal(s.n_host, 4);
    trace_summary_free(&s);

    OK(trace_summarize(t, TRACE_NO_DEVICE, 900, 1200,
                       &s)); /* ns since the origin: the copy and the last gemm */
    assert_int_equal(s.kernel_count, 1);
    assert_int_equal(s.busy, 200);
    assert_int_equal(s.gap, 0);
    trace_summary_free(&s);
    OK(trace_summarize(t, TRACE_NO_DEVICE, 5000, 6000, &s));
    assert_int_equal(s.span, 0);
    trace_summary_free(&s);
    timeline_destroy(t);
}

static void test_categories(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum kernel_category category;
    } cases[] = {
        {"nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT", CATEGORY_GEMM},
        {"void "
         "cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>"
         "(T1::Params)",
         CATEGORY_GEMM},
        {"void cutlass::device_kernel<flash::FlashAttnFwdSm90<x>>(T::Params)", CATEGORY_ATTENTION},
        {"void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64>>(x)", CATEGORY_ATTENTION},
        {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
         "at::native::ArgMaxOps<float>>>(x)",
         CATEGORY_REDUCE},
        {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*)",
         CATEGORY_SOFTMAX},
        {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)",
         CATEGORY_NORM},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::softmax_thing>(int)",
         CATEGORY_ELEMENTWISE},
        {"void mul_mat_q<(ggml_type)39, 8, false>(char const*)", CATEGORY_GEMM},
        {"quantize_q8_1(float const*, void*)", CATEGORY_QUANTIZE},
        {"void topk_moe_cuda<32, true>(float const*)", CATEGORY_MOE},
        {"void rope_neox<true, false, float>(float const*)", CATEGORY_ROPE},
        {"rms_norm_f32", CATEGORY_NORM},
        {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         CATEGORY_COMMUNICATION},
        {"_Z13transpose_f16Pf", CATEGORY_TRANSPOSE},
        {"argmax_f32", CATEGORY_SAMPLING},
        {"my_kernel", CATEGORY_OTHER},
        {"", CATEGORY_OTHER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (category_of(cases[i].name) != cases[i].category)
            fail_msg("%s: %s, not %s", cases[i].name, category_name(category_of(cases[i].name)),
                     category_name(cases[i].category));
    for (int c = 0; c < CATEGORY_COUNT; c++)
        assert_string_not_equal(category_name((enum kernel_category)c), "?");
}

static void test_chrome(void **state)
{
    (void)state;
    struct timeline *t = sample();
    char *text = NULL;
    size_t size = 0, complete = 0, flows = 0;
    FILE *to = open_memstream(&text, &size);
    OK(chrome_write(t, to, "memory"));
    fclose(to);
    json_t *json = json_loadb(text, size, 0, NULL);
    assert_non_null(json);
    json_t *events = json_object_get(json, "traceEvents"), *event;
    size_t i;
    json_array_foreach(events, i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        complete += strcmp(phase, "X") == 0;
        flows += strcmp(phase, "s") == 0 || strcmp(phase, "f") == 0;
        const char *name = json_string_value(json_object_get(event, "name"));
        assert_non_null(name);
        if (strcmp(name, "norm") == 0) {
            assert_float_equal(json_number_value(json_object_get(event, "ts")), 0.3, 1e-9);
            assert_float_equal(json_number_value(json_object_get(event, "dur")), 0.3, 1e-9);
        }
    }
    assert_int_equal(complete, t->count);
    assert_int_equal(flows, 6 + 1);
    json_decref(json);
    free(text);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        assert_int_equal(chrome_write(t, full, "/dev/full"), SOL_E_IO);
        fclose(full);
    }
    timeline_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_summary),
                                       cmocka_unit_test(test_categories),
                                       cmocka_unit_test(test_chrome)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
