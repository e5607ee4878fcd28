#!/usr/bin/env python3
"""Checks and times sol's attention kernels on an H100, beside PyTorch's in the same run where there is PyTorch.

usage: attention_device.py [--program FILE] [--nvcc NVCC]
attention_device.cu is compiled unless --program names it built. A row and head that differs from a float64 sum by
more than 2 % of its norm (queries and weights are rounded to the cache's dtype; decoding: 2e-5) fails the run: exit
status 1. Flops are those of the visible half, bytes those of the cache that a row sees. Limits are measured in
the same run: a bf16 product of 8192 x 8192 x 8192 by cuBLAS, and a copy within the device, read plus written.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("--program")
parser.add_argument("--nvcc", default="nvcc")
args = parser.parse_args()

program = args.program
if not program:
    program = os.path.join(tempfile.mkdtemp(), "attention_device")
    subprocess.run([args.nvcc, "-std=c++17", "-O3", "-I", os.path.join(here, "../kernels"),
                    "-gencode=arch=compute_90a,code=sm_90a", "-o", program,
                    os.path.join(here, "attention_device.cu")], check=True)

try:
    import torch
    import torch.nn.functional as functional
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    torch = None


def median_us(run, repetitions=9):
    times = []
    for _ in range(3):
        run()
    for _ in range(repetitions):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def limits():
    if not torch:
        return 767e12, 3.02e12
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    return (2 * 8192**3 / median_us(lambda: torch.mm(a, b)) * 1e6,
            2 * source.numel() / median_us(lambda: target.copy_(source)) * 1e6)


def peers(rows, depth):
    """Microseconds of PyTorch's kernels: 64 heads, head_dim 64, bf16, no sinks."""
    found = {}
    if not torch:
        return found
    q = torch.randn(1, 64, rows, 64, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(1, 64, depth + rows, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        try:
            with sdpa_kernel(backend):
                found[name] = median_us(lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=depth == 0))
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0]}")
    return found


flops_limit, bytes_limit = limits()
print(f"limits: {flops_limit / 1e12:.0f} TFLOP/s, {bytes_limit / 1e12:.2f} TB/s")
compared = {"causal 16384": peers(16384, 0), "causal 4096": peers(4096, 0)}
failed = False
print(f"{'':34} {'us':>9} {'min':>9} {'max':>9}  {'rate':>14} {'limit':>6}  {'error':>7}")
done = subprocess.Popen([program], stdout=subprocess.PIPE, text=True)
for line in done.stdout:
    r = json.loads(line)
    if "same" in r:
        print(f"{r['name']}: {'the same bits' if r['same'] else 'FAILED'}")
        failed |= not r["same"]
        continue
    if r["bytes"]:
        rate, share = f"{r['bytes'] / r['us'] / 1e6:.3f} TB/s", r["bytes"] / r["us"] * 1e6 / bytes_limit
    else:
        rate, share = f"{r['flops'] / r['us'] / 1e6:.0f} TFLOP/s", r["flops"] / r["us"] * 1e6 / flops_limit
    good = r["error"] < (2e-5 if r["bytes"] else 2e-2)
    failed |= not good
    print(f"{r['type'] + ' ' + r['name']:34} {r['us']:9.2f} {r['min']:9.2f} {r['max']:9.2f}  {rate:>14} {share:6.1%}  "
          f"{r['error']:.1e}{'' if good else ' FAILED'}"
          + "".join(f"  {p / r['us']:.2f} x {name}" for name, p in compared.get(r["name"], {}).items()), flush=True)
sys.exit(1 if done.wait() != 0 or failed else 0)
