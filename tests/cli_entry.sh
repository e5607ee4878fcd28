#!/usr/bin/env bash
# The public entry of grouped_gemm on a GPU that is emulated (tests/emulate): its results against the reference.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

if [ -z "${SOL_EMULATED_GPU:-}" ]; then
    echo "skipped: the emulation is made in builds by gcc, without sanitizers, for the processor that it runs on"
    exit 0
fi
export LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_MAJOR=8 FAKE_CUDA_DEVICES=1 XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"

# The verdict that lets the library use this card is what the test leaves in the cache.
SOL_TEST_BACKEND=cuda SOL_TEST_VERDICT=1 SOL_TEST_VARIANT=grouped_gemm_mma_cuda \
    "$SOL_BUILD_DIR/unit_grouped_entry" >"$work/out" 2>"$work/err"
is "unit_grouped_entry" $? 0
has out 'OK . results'
if grep -q 'fake driver' "$work/err"; then fail "something was not given back"; fi

exit $((failures != 0))
