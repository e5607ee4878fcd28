#!/bin/sh
# Attention in training on an NVIDIA GPU: 32 sequences of 2048 tokens, 10 heads of 128, forward and backward, with a window
# and without. First all variants against the references, cuDNN's too where that is installed; then each timed by
# itself, beside PyTorch's cuDNN where PyTorch is there; then a training step with each.
#   usage: bench/self_attention_device.sh [SOL]         (default build/sol)
#   SOL_CUDNN=FILE       the library (default: the system's, else that of Python's package nvidia-cudnn)
#   QUICK=1              times only
#   DEPTH=n              of the model whose steps are timed (default 20; 0: none)
set -eu
cd "$(dirname "$0")/.."
sol=${1:-build/sol}
if [ -z "${SOL_CUDNN:-}" ] && ! ldconfig -p | grep -q 'libcudnn\.so\.9'; then
    SOL_CUDNN=$(python3 -c 'import glob, nvidia
print((glob.glob(list(nvidia.__path__)[0] + "/cudnn/lib/libcudnn.so.9") or [""])[0])' 2>/dev/null || true)
    # its parts are looked for by their names
    [ "$SOL_CUDNN" ] && export SOL_CUDNN LD_LIBRARY_PATH="${SOL_CUDNN%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
echo "cuDNN: ${SOL_CUDNN:-of the system}"

failed=0
if [ -z "${QUICK:-}" ]; then
    for op in self_attention self_attention_backward; do
        "$sol" verify --backend cuda --wide --op "$op" | grep _cuda || failed=1
    done
fi

shape=m=2048,n=10,k=10,head_dim=128,sequences=32,matrices=bf16
grouped=m=2048,n=16,k=4,head_dim=64,sequences=16,matrices=bf16
specs=
for op in self_attention self_attention_backward; do
    for sizes in "$shape" "$shape,window=513" "$grouped"; do
        for way in wgmma mma cudnn; do specs="$specs --op $op:$sizes,variant=${op}_${way}_cuda"; done
    done
done
# shellcheck disable=SC2086 # words
"$sol" bench --backend cuda --no-store --wide $specs || failed=1
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

# A whole step with each, and with what else can be exchanged: losses as they are listed. Rows that cannot be had say why.
depth=${DEPTH:-20}
[ "$depth" = 0 ] && exit $failed
with() { echo "self_attention=self_attention_$1_cuda,self_attention_backward=self_attention_backward_$1_cuda"; }
losses=$("$sol" kernels --wide | awk 'substr($0, 1, 1) != " " { op = $1 }
    op == "linear_cross_entropy" { v = substr($0, 1, 1) == " " ? $1 : $2; if (v != "reference") print "--against " op "=" v }')
# shellcheck disable=SC2086 # words
"$sol" train bench --backend cuda --depth "$depth" --device-batch-size 16 --window-pattern L --num-iterations 10 --wide -q \
    --no-store --against "$(with mma)" --against "$(with any)" --against "$(with cudnn)" \
    --against matmul=matmul_f32_any_cuda $losses --against precision=fp8 --against recompute=wide || failed=1
exit $failed
