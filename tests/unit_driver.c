/* The types and constants of driver/cuda.h against the driver's own header, where it is installed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "driver/cuda.h"
#include "driver/library.h"

#if __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"

#define SAME(ours, theirs)                                                                         \
    _Static_assert((long long)(ours) == (long long)(theirs), #ours " is " #theirs)

SAME(CUDA_OK, CUDA_SUCCESS);
SAME(CUDA_E_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_E_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CUDA_E_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CUDA_E_BAD_PTX, CUDA_ERROR_INVALID_PTX);
SAME(CUDA_E_PTX_TOO_NEW, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(CUDA_E_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_E_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CUDA_E_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CUDA_E_LAUNCH, CUDA_ERROR_LAUNCH_FAILED);
SAME(CUDA_E_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(CUDA_E_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CUDA_E_ECC, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CUDA_E_BAD_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(CUDA_ATTRIBUTE_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME(CUDA_ATTRIBUTE_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CUDA_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
SAME(CUDA_ATTRIBUTE_MEMORY_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(CUDA_ATTRIBUTE_MEMORY_BUS_BITS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(CUDA_ATTRIBUTE_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(CUDA_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CUDA_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CUDA_ATTRIBUTE_SHARED_PER_SM, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME(CUDA_ATTRIBUTE_REGISTERS_PER_SM, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
SAME(CUDA_ATTRIBUTE_SHARED_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CUDA_ATTRIBUTE_PAGEABLE_HOST_ACCESS,
     CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
SAME(CUDA_FUNCTION_THREADS_MAX, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CUDA_FUNCTION_SHARED_STATIC, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(CUDA_FUNCTION_LOCAL, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(CUDA_FUNCTION_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(CUDA_FUNCTION_SHARED_DYNAMIC_MAX, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CUDA_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CUDA_E_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CUDA_PHYSICAL_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CUDA_PLACE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CUDA_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(sizeof(struct cuda_physical), sizeof(CUmemAllocationProp));
SAME(offsetof(struct cuda_physical, place), offsetof(CUmemAllocationProp, location));
SAME(offsetof(struct cuda_physical, windows), offsetof(CUmemAllocationProp, win32HandleMetaData));
SAME(sizeof(struct cuda_access), sizeof(CUmemAccessDesc));
SAME(offsetof(struct cuda_access, flags), offsetof(CUmemAccessDesc, flags));
SAME(CUDA_NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL);
SAME(CUDA_LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(CUDA_LAUNCH_PROGRAMMATIC, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(CUDA_LAUNCH_SHARED, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
SAME(sizeof(struct cuda_launch), sizeof(CUlaunchConfig));
SAME(offsetof(struct cuda_launch, block), offsetof(CUlaunchConfig, blockDimX));
SAME(offsetof(struct cuda_launch, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(struct cuda_launch, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(struct cuda_launch, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(struct cuda_launch, n_attributes), offsetof(CUlaunchConfig, numAttrs));
SAME(sizeof(struct cuda_launch_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(struct cuda_launch_attribute, value), offsetof(CUlaunchAttribute, value));
SAME(sizeof(struct cuda_tensor_map), sizeof(CUtensorMap));
SAME(_Alignof(struct cuda_tensor_map), _Alignof(CUtensorMap));
SAME(sizeof(cuda_address), sizeof(CUdeviceptr));

/* The header renames functions to the version that it declares: the names asked for are those. */
#define TEXT(x)       #x
#define NAME_OF(call) TEXT(call)
static void test_names(void **state)
{
    (void)state;
    assert_string_equal(NAME_OF(cuDeviceTotalMem), "cuDeviceTotalMem_v2");
    assert_string_equal(NAME_OF(cuDevicePrimaryCtxRelease), "cuDevicePrimaryCtxRelease_v2");
    assert_string_equal(NAME_OF(cuMemGetInfo), "cuMemGetInfo_v2");
    assert_string_equal(NAME_OF(cuMemAlloc), "cuMemAlloc_v2");
    assert_string_equal(NAME_OF(cuMemFree), "cuMemFree_v2");
    assert_string_equal(NAME_OF(cuMemcpyHtoDAsync), "cuMemcpyHtoDAsync_v2");
    assert_string_equal(NAME_OF(cuMemcpyDtoHAsync), "cuMemcpyDtoHAsync_v2");
    assert_string_equal(NAME_OF(cuMemcpyDtoDAsync), "cuMemcpyDtoDAsync_v2");
    assert_string_equal(NAME_OF(cuStreamDestroy), "cuStreamDestroy_v2");
    assert_string_equal(NAME_OF(cuStreamBeginCapture), "cuStreamBeginCapture_v2");
    assert_string_equal(NAME_OF(cuEventDestroy), "cuEventDestroy_v2");
}
#else
static void test_names(void **state)
{
    (void)state;
    print_message("skipped: cuda.h is not installed\n");
    skip();
}
#endif

static void test_missing_library(void **state)
{
    (void)state;
    static const char *const none[] = {"libsol-no-such-library.so.1", NULL};
    static const char *const c[] = {"libc.so.6", NULL};
    static const struct library_symbol missing[] = {
        {"malloc", 0, false}, {"sol_no_such_function", sizeof(void *), false}};
    static const struct library_symbol optional[] = {
        {"malloc", 0, false}, {"sol_no_such_function", sizeof(void *), true}};
    void *table[2] = {NULL, NULL};
    char why[LIBRARY_REASON_MAX];
    assert_false(library_load(&(struct library_spec){"a test", none, missing, 2}, table, why));
    assert_non_null(strstr(why, "a test cannot be loaded"));
    assert_false(library_load(&(struct library_spec){"a test", c, missing, 2}, table, why));
    assert_non_null(strstr(why, "too old: it has no sol_no_such_function"));
    assert_null(table[0]);
    assert_true(library_load(&(struct library_spec){"a test", c, optional, 2}, table, why));
    assert_non_null(table[0]);
    assert_null(table[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_missing_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
