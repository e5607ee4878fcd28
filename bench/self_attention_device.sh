#!/bin/sh
# Attention in training on an NVIDIA GPU: 32 sequences of 2048 tokens, 10 heads of 128, first against the references, then
# timed, forward and backward, beside PyTorch's cuDNN where PyTorch is there.
#   usage: bench/self_attention_device.sh [SOL]         (default build/sol)
set -eu
cd "$(dirname "$0")/.."
sol=${1:-build/sol}
"$sol" verify --backend cuda --op self_attention --op self_attention_backward --wide | grep _cuda || true
shape=m=2048,n=10,k=10,head_dim=128,sequences=32,matrices=bf16
"$sol" bench --backend cuda --no-store --op "self_attention:$shape" --op "self_attention_backward:$shape" \
    --op "self_attention:$shape,window=513" --op "self_attention_backward:$shape,window=513"
python3 - <<'PY' || true
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

B, H, T, D = 32, 10, 2048, 128
q, k, v = (torch.randn(B, H, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
flops = 4 * B * H * D * T * (T + 1) / 2


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


for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
    with sdpa_kernel(getattr(SDPBackend, name)):
        forward = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = forward()
        grad = torch.randn_like(out)
        ms = time(forward)
        back = time(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
        print(f"{name}: forward {ms:.3f} ms, {flops / ms * 1e-9:.0f} TFLOP/s; "
              f"backward {back:.3f} ms, {2.5 * flops / back * 1e-9:.0f} TFLOP/s")
PY
