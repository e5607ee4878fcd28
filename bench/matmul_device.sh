#!/bin/sh
# Products of training on an NVIDIA GPU, in bf16, at the sizes of a model of 20 layers and 1280 channels with 65536 tokens
# a step: first against the references, then timed with each variant, beside PyTorch's where PyTorch is there. Forward:
# B transposed; gradients of activations: none; of weights: A transposed, k 65536. Then Muon's products, in batches.
#   usage: bench/matmul_device.sh [SOL]         (default build/sol)
#   VARIANTS="matmul_cublaslt_cuda:second"      another variant, or one of a variant's choices
#   QUICK=1       no comparison with the references
set -eu
cd "$(dirname "$0")/.."
sol=${1:-build/sol}
variants=${VARIANTS:-matmul_cublaslt_cuda}
if [ -z "${QUICK:-}" ]; then
    "$sol" verify --backend cuda --op matmul --wide | grep _cuda || true
    for transposed in no a b; do # at a real size, against float32
        "$sol" bench --backend cuda --no-store --no-limits --max-time 2 --force matmul=matmul_cublaslt_cuda \
            --op "matmul:m=2048,n=1280,k=5120,transposed=$transposed,matrices=bf16,check=matmul_f32_any_cuda"
    done
fi
shapes="m=65536,n=1280,k=1280,transposed=b m=65536,n=1280,k=1280,transposed=no m=1280,n=1280,k=65536,transposed=a
m=65536,n=5120,k=1280,transposed=b m=65536,n=1280,k=5120,transposed=no m=5120,n=1280,k=65536,transposed=a
m=65536,n=1280,k=5120,transposed=b m=65536,n=5120,k=1280,transposed=no m=1280,n=5120,k=65536,transposed=a
m=8192,n=32768,k=1280,transposed=b m=8192,n=1280,k=32768,transposed=no m=32768,n=1280,k=8192,transposed=a
groups=80,m=1280,n=1280,k=1280,transposed=b,symmetric=yes groups=80,m=1280,n=1280,k=1280,transposed=no,symmetric=yes
groups=80,m=1280,n=1280,k=1280,transposed=no
groups=20,m=1280,n=1280,k=5120,transposed=b,symmetric=yes groups=20,m=1280,n=5120,k=1280,transposed=no"
args=
for shape in $shapes; do args="$args --op matmul:$shape,matrices=bf16"; done
for variant in $variants; do
    echo "== $variant"
    # shellcheck disable=SC2086 # options apart
    "$sol" bench --backend cuda --no-store --max-time 3 --force "matmul=$variant" $args
done
SHAPES="$shapes" python3 - <<'PY' || true
import os
import statistics

import torch


def time(call, n=20):
    times = []
    for i in range(n + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def matrix(groups, rows, columns, transposed):
    shape = (groups, columns, rows) if transposed else (groups, rows, columns)
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    x = x if groups > 1 else x[0]
    return x.transpose(-1, -2) if transposed else x


print("== torch.matmul")
for shape in os.environ["SHAPES"].split():
    p = dict(part.split("=") for part in shape.split(","))
    groups, m, n, k = (int(p.get(key, 1)) for key in ("groups", "m", "n", "k"))
    a = matrix(groups, m, k, p["transposed"] == "a")
    b = matrix(groups, k, n, p["transposed"] == "b")
    ms = time(lambda: torch.matmul(a, b))
    print(f"{shape}: {1000 * ms:.1f} us, {2 * groups * m * n * k / ms * 1e-9:.0f} TFLOP/s")
PY
