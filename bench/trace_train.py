#!/usr/bin/env python3
"""A deterministic training step, traced by torch.profiler or from outside.

usage: trace_train.py [--profile TRACE.json]
The steps within the NVTX range "measured" are those that torch.profiler records.
"""
import argparse
import contextlib

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--profile")
args = parser.parse_args()
torch.manual_seed(1)
WIDTH, HEADS, LAYERS, BATCH, LENGTH, VOCAB = 768, 12, 6, 8, 512, 8192


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(BATCH, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        return x + self.down(nn.functional.silu(self.up(self.norm2(x))))


embed = nn.Embedding(VOCAB, WIDTH)
model = nn.Sequential(embed, *[Block() for _ in range(LAYERS)], nn.Linear(WIDTH, VOCAB))
model = model.cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
tokens = torch.randint(VOCAB, (BATCH, LENGTH + 1)).pin_memory()


def step():
    batch = tokens.cuda(non_blocking=True)
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


for _ in range(5):
    step()
torch.cuda.synchronize()
profiler = contextlib.nullcontext()
if args.profile:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    profiler = torch.profiler.profile(activities=activities)
with profiler:
    torch.cuda.nvtx.range_push("measured")
    for _ in range(10):
        loss = step()
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
if args.profile:
    profiler.export_chrome_trace(args.profile)
print(f"loss {loss.item():.6f}")
