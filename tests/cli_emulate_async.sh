#!/usr/bin/env bash
# Kernels whose work is done behind their threads' backs, on emulated cards (tests/emulate/emulate_async.hpp): Hopper,
# and data-centre Blackwell, which the authors do not have. Copies and products are done late and in any order that is
# allowed, threads take random turns; every launch has a schedule of its own, which follows from EMULATED_SEED.
. "$SOL_SOURCE_DIR/tests/support/cli.sh"

if [ -z "${SOL_EMULATED_GPU:-}" ]; then
    echo "skipped: the emulation is made in builds by gcc, without sanitizers, for the processor that it runs on"
    exit 0
fi
export LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_DEVICES=1

verify() { # MAJOR OP VARIANT SEED OPTION...: to $work/VARIANT and .err; its status comes last
    local major=$1 op=$2 variant=$3 seed=$4
    shift 4
    FAKE_CUDA_MAJOR=$major EMULATED_SEED=$seed "$SOL_BINARY" verify --backend cuda --wide --rounds 1 --seed "$seed" \
        --op "$op=$variant" "$@" >"$work/$variant" 2>"$work/$variant.err"
    echo $? >>"$work/$variant.err"
}
check() { # VARIANT SEED
    cp "$work/$1" "$work/out"
    cp "$work/$1.err" "$work/err"
    is "sol verify, $1, seed $2" "$(tail -n 1 "$work/err")" 0
    has out "^[a-z_]+ +$1 +(exact|bf16|i8_row) +[0-9]+ .* ok"
    if grep -q 'fake driver' "$work/err"; then fail "what the driver gave was not given back"; fi
}

# One schedule of the cases that differ; SOL_TEST_WHOLE (make soak): many of all.
seeds=1 few=--brief
[ "${SOL_TEST_WHOLE:-}" ] && seeds=40 few=
for seed in $(seq $seeds); do
    verify 9 grouped_gemm grouped_gemm_wgmma_cuda "$seed" $few &
    verify 10 grouped_gemm grouped_gemm_tcgen05_cuda "$seed" $few &
    # Each case six times, a step of the ladder each.
    verify 9 grouped_gemm grouped_gemm_ladder_cuda "$seed" $few
    # Products of many rows, whose clusters have two blocks; those of few rows, whose warps help each other; the router,
    # whose clusters have eight.
    variants="gemm_wgmma_cuda moe_few_cuda moe_several_cuda moe_many_cuda moe_i8_cuda attn_in_many_cuda attn_add_many_cuda attn_route_many_cuda"
    [ "${SOL_TEST_WHOLE:-}" ] && variants="$variants moe_up_wgmma_cuda attn_out_many_cuda" # kernels of those above
    for variant in $variants; do
        verify 9 "${variant%%_[fwmis][ega8]*_cuda}" "$variant" "$seed" --brief
    done
    # Blocks that wait for each other's turn to add.
    for op in self_attention self_attention_backward; do
        verify 9 "$op" "${op}_wgmma_cuda" "$seed" $few
        variants="$variants ${op}_wgmma_cuda"
    done
    wait
    for variant in grouped_gemm_wgmma_cuda grouped_gemm_tcgen05_cuda grouped_gemm_ladder_cuda $variants; do check "$variant" "$seed"; done
done

exit $((failures != 0))
