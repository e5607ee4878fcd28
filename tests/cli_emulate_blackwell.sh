#!/usr/bin/env bash
# Kernels for a card that its authors do not have: data-centre Blackwell, emulated (tests/emulate/emulate_async.hpp).
# Copies and products are done late and in any order that is allowed, threads take random turns; every block of every
# launch has a schedule of its own, which follows from EMULATED_SEED.
. "$SOL_SOURCE_DIR/tests/support/cli.sh"

if [ -z "${SOL_EMULATED_GPU:-}" ]; then
    echo "skipped: the emulation is made in builds by gcc, without sanitizers, for the processor that it runs on"
    exit 0
fi
export LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_MAJOR=10 FAKE_CUDA_DEVICES=1

# SOL_TEST_WHOLE (make soak): more schedules.
seeds=1
[ "${SOL_TEST_WHOLE:-}" ] && seeds=40
for seed in $(seq $seeds); do
    EMULATED_SEED=$seed run 0 verify --backend cuda --wide --rounds 1 --seed "$seed" \
        --op grouped_gemm=grouped_gemm_tcgen05_cuda
    has out '^grouped_gemm +grouped_gemm_tcgen05_cuda +exact +[0-9]+ .* ok'
    if grep -q 'fake driver' "$work/err"; then fail "what the driver gave was not given back"; fi
done

exit $((failures != 0))
