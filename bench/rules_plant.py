#!/usr/bin/env python3
"""A GPU program with one fault, for bench/rules_device.py.  usage: rules_plant.py FAULT [STEPS]

A step is six large matrix products, put on the stream without waiting. Faults: clean, sync, pageable, missing
(no softmax, which `clean` runs once a step), transpose, unfused, tiny.
"""
import sys

import torch

fault, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 120
n = 3072
device = "cuda"
torch.manual_seed(1)
x = torch.randn(n, n, device=device, dtype=torch.bfloat16)
w = torch.randn(n, n, device=device, dtype=torch.bfloat16) / n**0.5
y = torch.empty_like(x)
row = torch.randn(64, n, device=device)
small = torch.zeros(1024, device=device)
host = torch.randn(1 << 22)  # 16 MiB, pageable
landing = torch.empty(1 << 22, device=device)

if fault == "transpose":
    import cupy

    # As a quantiser would: reads one way, writes the other, 64 MiB at a time.
    transpose = cupy.RawKernel(
        r"""extern "C" __global__ void transpose_tile(const float *from, float *to, int n) {
            int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
            if (row < n && column < n) to[(long long)column * n + row] = from[(long long)row * n + column];
        }""", "transpose_tile")
    a, b = cupy.zeros((n, n), dtype=cupy.float32), cupy.zeros((n, n), dtype=cupy.float32)


def step():
    for _ in range(6):
        torch.mm(x, w, out=y)
        if fault == "sync":
            small.sum().item()  # the program looks at a number each time
        if fault == "unfused":
            torch.nn.functional.silu(y, inplace=True)
    if fault != "missing":
        torch.softmax(row, dim=1)
    if fault == "pageable":
        landing.copy_(host, non_blocking=True)
    if fault == "transpose":
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            transpose((n // 16, n // 16), (16, 16), (a, b, n))
    if fault == "tiny":
        for _ in range(400):
            small.add_(1)


for _ in range(10):
    step()
torch.cuda.synchronize()
for _ in range(steps):
    step()
torch.cuda.synchronize()
