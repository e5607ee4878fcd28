#!/bin/sh
# gpt-oss in training on an NVIDIA GPU. First every op that it has beside GPT's is held against its reference, and a
# small model's losses against the processor's; then nanochat's runs are done again, since products are shared; then ops
# are timed at the sizes of the built-in model (16 sequences of 1024 tokens) and of a layer of gpt-oss-20b (8192 tokens),
# with TFLOP/s and GB/s of what an op has to do (its cost); last whole steps. About five minutes.
#   usage: bench/train_gpt_oss_device.sh [SOL]         (default build/sol)
#   QUICK=1       times only;  ROUNDS=n        rounds of every case (default 2)
set -eu
cd "$(dirname "$0")/.."
sol=$(realpath "${1:-build/sol}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

losses() { sed -nE 's/.*"loss":([0-9.]+).*"norm":([0-9.]+).*/\1 \2/p' "$1/log.jsonl"; }
# small FOLDER OPTION...: eight updates of a model of four experts, rounded to MXFP4 from the fifth on
small() {
    folder=$1
    shift
    "$sol" train --arch gpt-oss --depth 2 --width 64 --head-dim 64 --kv-heads 1 --experts 4 --top-k 2 \
        --sliding-window 32 --max-seq-len 128 --device-batch-size 2 --total-batch-size 512 --num-iterations 8 \
        --warmup-steps 1 --matrix-lr 0.2 --embedding-lr 3 --unembedding-lr 0.1 --scalar-lr 3 --balance 0.1 \
        --mxfp4-from 0.5 --eval-every 100 --eval-tokens 512 -d README.md --tokenizer "$work/words.json" \
        -o "$work/$folder" -q "$@" >/dev/null
}
# beside FOLDER LIMIT: against the processor's
beside() {
    losses "$work/cpu" >"$work/left"
    losses "$work/$1" | paste -d ' ' "$work/left" - | awk -v name="$1" -v limit="$2" '
        { for (i = 1; i < 3; i++) { d = ($i - $(i + 2)) / $i; if (d < 0) d = -d; if (d > worst) worst = d } }
        END { ok = NR == 8 && worst <= limit
              printf "%-8s 8 losses and norms: largest difference %.1e, limit %s: %s\n", name, worst, limit, ok ? "ok" : "FAILED" }'
}

if [ -z "${QUICK:-}" ]; then
    "$sol" verify --backend cuda --wide --rounds "${ROUNDS:-2}" --op grouped_matmul=grouped_matmul_mma_cuda \
        --op grouped_matmul=grouped_matmul_any_cuda --op grouped_wgrad=grouped_wgrad_mma_cuda \
        --op grouped_wgrad=grouped_wgrad_any_cuda --op matmul=matmul_f32_split_cuda --op matmul=matmul_f32_any_cuda \
        --op gather_rows=gather_rows_cuda --op gather_rows_backward=gather_rows_backward_cuda \
        --op combine=combine_cuda --op combine_backward=combine_backward_cuda --op route=route_count_cuda \
        --op route_backward=route_backward_cuda --op add_bias=add_bias_cuda --op bias_backward=bias_backward_cuda \
        --op swiglu=swiglu_cuda --op swiglu_backward=swiglu_backward_cuda --op rope=rope_cuda \
        --op rmsnorm=rmsnorm_cuda --op rmsnorm_backward=rmsnorm_backward_cuda --op quantise=quantise_mxfp4_cuda \
        --op self_attention --op self_attention_backward | grep _cuda || true
    "$sol" tok train --vocab-size 512 -o "$work/words.json" README.md >/dev/null
    small cpu --backend cpu
    small f32 --backend cuda --precision f32
    small bf16 --backend cuda
    small again --backend cuda
    beside f32 1e-3
    beside bf16 2e-2
    if cmp -s "$work/bf16/step_000008/model.safetensors" "$work/again/step_000008/model.safetensors"; then
        echo "two runs: the same bits"
    else
        echo "two runs: FAILED: other bits"
    fi
    for name in january_warm july_accum july_own july_warm july_windows; do
        cp -r "tests/train_replay/$name" "$work"
        "$sol" train replay "$work/$name" --exact --backend cuda -q >/dev/null || echo "failed: replay of $name"
        printf '%-14s ' "$name" && tools/train_replay_check.py "$work/$name" | tail -n 1
    done
fi

# op:sizes of the built-in model, then of gpt-oss-20b; products of gate and up forward, of what went in, of weights; down.
specs=
for spec in grouped_matmul:m=65536,n=192,k=256,groups=8 grouped_matmul:m=65536,n=256,k=192,groups=8,transposed=no \
    grouped_matmul:m=65536,n=256,k=192,groups=8 grouped_wgrad:m=65536,n=192,k=256,groups=8 \
    gather_rows:m=16384,n=256,top_k=4 gather_rows_backward:m=16384,n=256,top_k=4 combine:m=16384,n=256,top_k=4 \
    combine_backward:m=16384,n=256,top_k=4 add_bias:m=65536,n=192,groups=8 bias_backward:m=65536,n=192,groups=8 \
    swiglu:m=65536,n=192 swiglu_backward:m=65536,n=192 rope:m=16384,n=4,head_dim=64 \
    grouped_matmul:m=32768,n=2880,k=2880,groups=32 grouped_matmul:m=32768,n=2880,k=2880,groups=32,transposed=no \
    grouped_wgrad:m=32768,n=2880,k=2880,groups=32 gather_rows:m=8192,n=2880,top_k=4 \
    gather_rows_backward:m=8192,n=2880,top_k=4 combine:m=8192,n=2880,top_k=4 combine_backward:m=8192,n=2880,top_k=4 \
    add_bias:m=32768,n=2880,groups=32 bias_backward:m=32768,n=2880,groups=32 swiglu:m=32768,n=2880 \
    swiglu_backward:m=32768,n=2880 rope:m=8192,n=64,head_dim=64 quantise:mxfp4,m=92160,n=2880; do
    specs="$specs --op $spec,matrices=bf16"
done
for spec in route:m=16384,n=8,top_k=4 route_backward:m=16384,n=8,top_k=4 route:m=8192,n=32,top_k=4 \
    route_backward:m=8192,n=32,top_k=4 matmul:m=8,n=256,k=16384,transposed=a matmul:m=32,n=2880,k=8192,transposed=a; do
    specs="$specs --op $spec"
done
# shellcheck disable=SC2086 # words
"$sol" bench --backend cuda --no-store --json --force matmul=matmul_f32_split_cuda $specs >"$work/times.json"
python3 - "$work/times.json" <<'PY'
import json
import sys

for r in json.load(open(sys.argv[1])):
    print(f"{r['op']:22s} {r['shape']:46s} {r['us']:9.1f} us {r.get('tflop_s', 0):7.1f} TFLOP/s {1e3 * r['tb_s']:7.0f} GB/s")
PY

# The built-in model with its optimizer and without; two layers of gpt-oss-20b's sizes, which a card has room for.
built_in="--depth 6 --width 256 --max-seq-len 1024 --device-batch-size 16 --vocab-size 4096"
layers="--depth 2 --width 2880 --expert-width 2880 --heads 64 --kv-heads 8 --experts 32 --max-seq-len 2048
    --device-batch-size 2 --vocab-size 8192"
for optimizer in every none; do
    echo "optimizer: $optimizer"
    for model in "$built_in" "$layers"; do
        # shellcheck disable=SC2086 # words
        "$sol" train bench --backend cuda --arch gpt-oss $model --optimizer "$optimizer" --num-iterations 20 || echo "failed: $model"
    done
done
