#!/bin/sh
# The forms of linear_cross_entropy on an NVIDIA GPU: first all of them and the ops that they are made of against their
# references, then timed in turn at one shape, with what each needs of memory beside inputs, dX and dW, and how far it
# is from the plain form. Two rounds: the second says how much the first may be trusted. About five minutes.
#   usage: bench/loss_forms_device.sh [SOL]         (default build/sol)
#   QUICK=1       times only;  SHAPE=m=...,n=...,k=...  (default m=8192,n=65536,k=1280);  FORMS="plain cut:2048 ..."
set -eu
cd "$(dirname "$0")/.."
sol=${1:-build/sol}
shape=${SHAPE:-m=8192,n=65536,k=1280}
forms=${FORMS:-plain chunked chunked:512 chunked:1024 chunked:2048 chunked:4096 cut cut:1024 cut:2048 cut:3072 cut:4096}
if [ -z "${QUICK:-}" ]; then
    "$sol" verify --backend cuda --wide --rounds "${ROUNDS:-2}" --op cross_entropy --op cross_entropy_block \
        --op cross_entropy_block_backward --op linear_cross_entropy --op convert | grep -E '_cuda|chunked|cut|plain'
fi
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
ops=
for form in $forms; do ops="$ops --op linear_cross_entropy:$shape,matrices=bf16,check=plain,variant=$form"; done
for round in 1 2; do
    # shellcheck disable=SC2086 # words are what is wanted
    "$sol" bench --backend cuda --no-store --json $ops >"$results/$round"
done
python3 - "$results" "$shape" <<'PY'
import json
import sys

folder, shape = sys.argv[1:]
print(f"\nlinear_cross_entropy, {shape}, bf16; TFLOP/s of three products, whatever a form multiplies")
print(f"{'form':14s} {'ms':>8s} {'again':>8s} {'spread %':>8s} {'TFLOP/s':>8s} {'GiB':>7s} {'from plain':>11s}")
for a, b in zip(*(json.load(open(f"{folder}/{round}")) for round in (1, 2))):
    error = a["error"] if isinstance(a["error"], str) else format(a["error"], "11.1e")
    print(f"{a['variant']:14s} {a['us'] / 1e3:8.3f} {b['us'] / 1e3:8.3f} {a['spread_percent']:8.1f} {a['tflop_s']:8.0f} "
          f"{a['scratch_bytes'] / 2**30:7.3f} {error}")
PY
# What they are made of: a block of columns, and the loss of a stretch of rows.
"$sol" bench --backend cuda --no-store --op cross_entropy_block:m=8192,n=1536,matrices=bf16 \
    --op cross_entropy_block_backward:m=8192,n=1536,matrices=bf16 --op cross_entropy:m=2048,n=65536,matrices=bf16
