#!/usr/bin/env bash
# sol verify on a GPU that is emulated (tests/emulate), a card of compute capability 8.0, or 12.x for what only that
# can: every kernel that runs there, its threads one after the other on the processor, against the references; and whole
# steps of two engines.
. "$SOL_SOURCE_DIR/tests/support/cli.sh"

if [ -z "${SOL_EMULATED_GPU:-}" ]; then
    echo "skipped: the emulation is made in builds by gcc, without sanitizers, for the processor that it runs on"
    exit 0
fi
export LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_MAJOR=8 FAKE_CUDA_DEVICES=1
export SOL_CUBLASLT=$SOL_FAKE_CUBLASLT FAKE_CUBLAS=right # NVIDIA's library: one that multiplies
export SOL_CUDNN=$SOL_FAKE_CUDNN FAKE_CUDNN=right        # and one that does what its graphs say
export SOL_NCCL=$SOL_FAKE_NCCL                           # for one rank: cli_emulate_ranks has more

# Composites are made of these and need no run of their own. In two processes: gemm takes half of the time.
variants=$("$SOL_BINARY" kernels --wide | awk 'NF && $1 != "op" {
    if (substr($0, 1, 1) != " ") { op = $1; name = $2 } else name = $1
    if (name ~ /_cuda$/) print "--op=" op "=" name }')
verify() { # NAME OPTION...
    local name=$1
    shift
    FAKE_CUDA_SM_KIB=164 "$SOL_BINARY" verify --backend cuda --brief --rounds 1 "$@" \
        >"$work/$name" 2>"$work/$name.err"
    echo $? >"$work/$name.status"
}
# shellcheck disable=SC2046 # words are what is wanted
verify gemm $(grep 'gemm=' <<<"$variants") &
# A command line has room for so many.
# shellcheck disable=SC2046
verify first $(grep -v 'gemm=' <<<"$variants" | head -n 55)
# shellcheck disable=SC2046
verify second $(grep -v 'gemm=' <<<"$variants" | tail -n +56)
wait
for name in gemm first second; do
    cp "$work/$name" "$work/out"
    cp "$work/$name.err" "$work/err"
    is "sol verify, $name" "$(cat "$work/$name.status")" 0
done

# Which did not run, and nothing else may be missing. Sums of several GPUs have cli_emulate_ranks.
cat "$work/gemm" "$work/first" "$work/second" >"$work/out"
grep -E '_cuda .* (ok|FAILED) ' "$work/out" | awk '{ print "verified: " $1, $2 ", " $4 " cases" }'
grep -E '_cuda .* not run' "$work/out" | sed -E 's/^[a-z_]+ +([a-z0-9_]+).* not run +/skipped: \1: /'
is "variants that cannot be emulated" \
    "$(grep -E '_cuda .* not run' "$work/out" | awk '{ print $2 }' | sort | tr '\n' ' ')" \
    "all_reduce_add_one_shot_cuda all_reduce_add_tiles_cuda attention_prefill_cuda attn_add_many_cuda attn_add_row_cuda attn_add_rows_cuda attn_add_two_cuda attn_in_many_cuda attn_moe_row_cuda attn_out_many_cuda attn_out_row_cuda attn_out_rows_cuda attn_out_two_cuda attn_route_few_cuda attn_route_many_cuda fp8_matmul_cublaslt_cuda gemm_wgmma_cuda grouped_gemm_ladder_cuda grouped_gemm_mxf4_cuda grouped_gemm_tcgen05_cuda grouped_gemm_wgmma_cuda moe_few_cuda moe_i8_cuda moe_many_cuda moe_several_cuda moe_up_wgmma_cuda self_attention_backward_cudnn_cuda self_attention_backward_wgmma_cuda self_attention_cudnn_cuda self_attention_wgmma_cuda "
has out 'gemm +gemv_f32_cuda .* ok'
has out 'gemm +gemv_wide_cuda .* ok'

# What only later cards have, on cards that are told to be such.
newer() { # MINOR OPTION...
    local minor=$1
    shift
    FAKE_CUDA_MAJOR=12 FAKE_CUDA_MINOR=$minor run 0 verify --backend cuda --rounds 1 --wide "$@" \
        --op grouped_gemm=grouped_gemm_mxf4_cuda
    has out 'grouped_gemm_mxf4_cuda .* ok'
    grep -E '_cuda .* ok ' "$work/out" | awk -v minor="$minor" '{ print "verified on 12." minor ": " $2 ", " $4 " cases" }'
}
newer 0
newer 1 --brief

# The forms of the loss, in float32 and with what passes between their parts in bf16.
FAKE_CUDA_MAJOR=9 run 0 verify --backend cuda --brief --rounds 1 --wide --op linear_cross_entropy
has out 'linear_cross_entropy +chunked .* ok'
has out 'linear_cross_entropy +cut .* ok'

# Training in FP8.
fp8="train bench --no-limits --backend cuda --depth 1 --aspect-ratio 128 --head-dim 128 --max-seq-len 32 --device-batch-size 1
    --vocab-size 128 --num-iterations 1 --warmup-steps 0 --fp8 --json -q"
export FAKE_CUDA_MAJOR=9
run 0 verify --backend cuda --rounds 1 --wide --op fp8_matmul=fp8_matmul_cublaslt_cuda
has out 'fp8_matmul_cublaslt_cuda .* ok'
# Attention as cuDNN is told of it, all cases; and that what is verified can fail.
cudnn="--op self_attention=self_attention_cudnn_cuda --op self_attention_backward=self_attention_backward_cudnn_cuda"
# shellcheck disable=SC2086 # words
{
    run 0 verify --backend cuda --rounds 1 --wide $cudnn
    has out ' self_attention_cudnn_cuda .* ok'
    has out ' self_attention_backward_cudnn_cuda .* ok'
    FAKE_CUDNN=wrong run 7 verify --backend cuda --brief --rounds 1 $cudnn
}
# shellcheck disable=SC2086 # words
{
    run 2 $fp8 --precision nvfp4
    # every op takes as long there, so quantising takes too much
    run 7 $fp8 --force relu2_fp8=relu2_fp8_cuda
}
has out '"variant": "fp8_matmul_cublaslt_cuda"'
has out '"variant": "relu2_fp8_cuda"'
has out '"loss": 4\.[0-9]'
has out '"invalid": "quantising and transposing take 1'
export FAKE_CUDA_MAJOR=8

# What the emulation cannot do fails, rather than doing nothing.
FAKE_CUDA_MAJOR=9 run 8 verify --backend cuda --brief --rounds 1 --op attention=attention_prefill_cuda
has err 'is not emulated'

# Two engines at a time, on two streams of one such card and on two of them.
SOL_TEST_BACKEND=cuda SOL_TEST_EFFORT=1 FAKE_CUDA_DEVICES=2 \
    "$SOL_BUILD_DIR/golden_streams" synth:tiny,layers=2 >"$work/out" 2>"$work/err"
is "golden_streams" $? 0
has out 'test_two_gpus'

# Sequences from snapshots, sessions from files, draws of one step, and texts in steps of a fixed shape among others: the
# same bits. The first three use graphs, which on an emulated card do launches again but no products of a library.
export SOL_TEST_EFFORT=40 # of what only repeats
[ "${SOL_TEST_WHOLE:-}" ] && SOL_TEST_EFFORT=100
for name in unit_snapshots unit_session unit_draws unit_ahead unit_eagle; do
    SOL_TEST_BACKEND=cuda SOL_CUBLASLT=/nonexistent "$SOL_BUILD_DIR/$name" >"$work/out" 2>"$work/err"
    is "$name" $? 0
done
SOL_TEST_BACKEND=cuda "$SOL_BUILD_DIR/unit_schedule" >"$work/out" 2>"$work/err"
is unit_schedule $? 0
has out 'padding; the same text 0 times preempted, [1-9][0-9]* of its tokens cached'

# A GPT, which has no sinks.
gpt=$SOL_SOURCE_DIR/tests/golden/gpt_transformers
nll() { sed -nE 's/^nll +([0-9.]+) .*/\1/p' "$work/out"; }
words="--tokens 9,2,3,44,5,6,7,8,20,10,11,12 -c 16 --kv f32 --exact -q"
# shellcheck disable=SC2086 # words
{
    LD_LIBRARY_PATH='' run 0 perplexity -m "$gpt" $words
    wanted=$(nll)
    FAKE_CUDA_MAJOR=9 run 0 perplexity -m "$gpt" --backend cuda $words
}
awk -v a="$(nll)" -v b="$wanted" 'BEGIN { d = a - b; exit !(a != "" && d * d < 1e-10) }' ||
    fail "nll of a GPT: '$(nll)' on the GPU, $wanted on the processor"

# Experts that the card chose, given to the reference.
FAKE_CUDA_MAJOR=9 run 0 perplexity -m synth:tiny --backend cuda --random-tokens 25 -c 24 --kl --same-experts -q --json
same=$(sed -nE 's/.*"same_experts": ([0-9.]+).*/\1/p' "$work/out")
awk -v a="$same" 'BEGIN { exit !(a != "" && a > 0.9) }' || fail "'$same' of the experts are the same"

lacks() { if grep -qE -- "$2" "$work/$1"; then fail "'$2' in $1"; fi; }
lacks out skipped
lacks err 'fake driver'

exit $((failures != 0))
