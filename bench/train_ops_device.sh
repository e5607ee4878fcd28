#!/bin/sh
# The ops of training that memory bounds, on an NVIDIA GPU: first against their references, then timed at the sizes of
# a micro-batch of nanochat's d20 (32 sequences of 2048 tokens) and of its parameters, with matrices in bf16. Printed
# are GB/s of what an op has to touch (its cost), and that over what the card copies at best. About three minutes.
#   usage: bench/train_ops_device.sh [SOL]         (default build/sol)
#   QUICK=1       times only;  ROUNDS=n        rounds of every case (default 2)
set -eu
cd "$(dirname "$0")/.."
sol=${1:-build/sol}
if [ -z "${QUICK:-}" ]; then
    for op in add dropout relu2 relu2_backward axpby axpby_backward softcap convert fill sum_squares weighted_sum clip rmsnorm \
        rmsnorm_backward rotary_norm rotary_norm_backward smear smear_backward embed gated_embed embed_backward \
        gated_embed_backward cross_entropy cross_entropy_block cross_entropy_block_backward adamw muon_prepare muon_apply; do
        "$sol" verify --backend cuda --wide --rounds "${ROUNDS:-2}" --op $op="${op}_cuda" | grep _cuda
    done
fi
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
"$sol" device --backend cuda --store "$results" -q --json >"$results/device.json"
rows=m=65536,n=1280
specs=
for spec in add:$rows,matrices=bf16 axpby:$rows,matrices=bf16 axpby_backward:$rows,matrices=bf16 \
    fill:$rows,matrices=bf16 rmsnorm:$rows,matrices=bf16 rmsnorm_backward:$rows,matrices=bf16 \
    relu2:m=65536,n=5120,matrices=bf16 relu2_backward:m=65536,n=5120,matrices=bf16 \
    rotary_norm:m=65536,n=10,head_dim=128,matrices=bf16 rotary_norm_backward:m=65536,n=10,head_dim=128,matrices=bf16 \
    smear:m=2048,n=1280,k=24,sequences=32,matrices=bf16 smear_backward:m=2048,n=1280,k=24,sequences=32,matrices=bf16 \
    embed:$rows,dtype=bf16,matrices=bf16 embed_backward:$rows,matrices=bf16 \
    gated_embed:$rows,k=12,groups=10,dtype=bf16,matrices=bf16 \
    gated_embed_backward:$rows,k=12,groups=10,dtype=bf16,matrices=bf16 \
    cross_entropy:m=8192,n=32768,matrices=bf16 cross_entropy:m=8192,n=32768 cross_entropy:m=4096,n=65536,matrices=bf16 \
    cross_entropy_block:m=8192,n=1536,matrices=bf16 cross_entropy_block_backward:m=8192,n=1536,matrices=bf16 \
    weighted_sum:n=65536 sum_squares:m=5120,n=1280 sum_squares:m=32768,n=1280,matrices=bf16 \
    adamw:m=32768,n=1280,matrices=bf16 adamw:m=32768,n=1280 \
    muon_prepare:m=1280,n=1280,groups=20,matrices=bf16 muon_prepare:m=5120,n=1280,groups=4,matrices=bf16 \
    muon_apply:m=1280,n=1280,groups=20,matrices=bf16 muon_apply:m=1280,n=5120,groups=4,matrices=bf16 \
    convert:m=5120,n=1280,matrices=bf16 convert:m=5120,n=1280 softcap:m=8192,n=32768; do
    specs="$specs --op $spec"
done
# shellcheck disable=SC2086 # words
"$sol" bench --backend cuda --no-store --json $specs >"$results/times.json"
python3 - "$results" <<'PY'
import json
import sys

folder = sys.argv[1]
device = json.load(open(f"{folder}/device.json"))
memory = device["limits"]["memory_gb_s"]
best = memory["copy"]["best"] if "copy" in memory else device["machine"]["memory_gb_s_nominal"]
print(f"{device['machine']['gpu']}: copies {best:.0f} GB/s, nominal {device['machine']['memory_gb_s_nominal']:.0f}")

for r in json.load(open(f"{folder}/times.json")):
    gb_s = 1e3 * r["tb_s"]
    print(f"{r['op']:22s} {r['shape']:46s} {r['us']:9.1f} us {gb_s:7.0f} GB/s {100 * gb_s / best:5.1f} %")
PY
