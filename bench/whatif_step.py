#!/usr/bin/env python3
"""A transformer's forward pass in PyTorch, step by step, to be traced; see bench/whatif.sh.

usage: whatif_step.py [--mode eager|graph|compile] [--attention flash|math] [--float tf32|f32] [--rows N] [--seconds S]
Each step is an NVTX range "step" and ends with a wait for the device, as a decode step that needs its token does.
"""
import argparse
import time

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="eager", choices=["eager", "graph", "compile"])
parser.add_argument("--attention", default="flash", choices=["flash", "math"])
parser.add_argument("--float", default="bf16", choices=["bf16", "tf32", "f32"])
parser.add_argument("--rows", type=int, default=1)
parser.add_argument("--seconds", type=float, default=0.4)
args = parser.parse_args()
torch.manual_seed(1)
WIDTH, HEADS, LAYERS, VOCAB = 2048, 16, 12, 32000
torch.backends.cuda.matmul.allow_tf32 = args.float == "tf32"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows = x.shape[0]
        q, k, v = self.qkv(self.norm1(x)).view(1, rows, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(rows, WIDTH))
        h = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


model = nn.Sequential(*[Block() for _ in range(LAYERS)], nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCAB))
model = model.cuda().to(torch.bfloat16 if args.float == "bf16" else torch.float32).eval()
x = torch.randn(args.rows, WIDTH, device="cuda", dtype=next(model.parameters()).dtype)
run = torch.compile(model) if args.mode == "compile" else model
backend = SDPBackend.MATH if args.attention == "math" else [SDPBackend.FLASH_ATTENTION,
                                                             SDPBackend.EFFICIENT_ATTENTION]
with torch.inference_mode(), sdpa_kernel(backend):
    for _ in range(5):
        run(x).argmax(-1)
    torch.cuda.synchronize()
    if args.mode == "graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            token = run(x).argmax(-1)
        step = graph.replay
    else:
        def step():
            return run(x).argmax(-1)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    end, steps = time.monotonic() + args.seconds, 0
    while steps < 20 or time.monotonic() < end and steps < 400:
        torch.cuda.nvtx.range_push("step")
        step()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
        steps += 1
print(f"{steps} steps")
