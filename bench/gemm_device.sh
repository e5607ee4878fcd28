#!/bin/sh
# The products of many rows on an NVIDIA GPU, at gpt-oss-20b's sizes, in about a minute: first against their
# references (cases of every kind, then the real sizes against the float32 kernel), then timed. Weights are
# drawn anew for several sets that together exceed the cache four times; 15 repetitions, each a graph of all
# sets; medians.
#   usage: bench/gemm_device.sh [SOL]         (default build/sol)
#   QUICK=1       no comparison at the real sizes (the float32 kernel takes most of the minute)
#   FORCE="--force gemm=VARIANT"              times another variant
set -eu
cd "$(dirname "$0")/.."
sol=${1:-build/sol}
for op in gemm moe_up moe_down route; do
    "$sol" verify --backend cuda --op $op | grep -E '_cuda|composed'
done
check=,check=gemm_f32_any_cuda
if [ -n "${QUICK:-}" ]; then check=; fi
time_ops() {
    args=
    for spec in "$@"; do args="$args --op $spec"; done
    # shellcheck disable=SC2086 # options apart
    "$sol" bench --backend cuda ${FORCE:-} $args
}
echo "== dense bf16: q, o, k or v, the head of 128 sequences, a cube"
time_ops gemm:m=2048,n=4096,k=2880$check gemm:m=2048,n=2880,k=4096$check gemm:m=2048,n=512,k=2880$check \
    gemm:m=128,n=201088,k=2880 gemm:m=128,n=4096,k=2880$check gemm:m=4096,n=4096,k=4096
echo "== experts, 2048 tokens and top 4 of 32: even and skewed"
time_ops moe_up:m=2048,n=2880,k=2880$check moe_down:m=2048,n=2880,k=2880$check \
    gemm:m=2048,n=2880,k=2880,groups=32,top_k=4,dtype=mxfp4 moe_up:m=2048,n=2880,k=2880,skew=2
echo "== experts, batches of 128, 32, 8 sequences"
time_ops moe_up:m=128,n=2880,k=2880 moe_down:m=128,n=2880,k=2880 moe_up:m=32,n=2880,k=2880 \
    moe_down:m=32,n=2880,k=2880 moe_up:m=8,n=2880,k=2880 moe_down:m=8,n=2880,k=2880
