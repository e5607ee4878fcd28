"""gpt-oss in PyTorch, small enough to read in one sitting and fast enough to train.

The network is the published one with smaller numbers: alternating sliding-window and full attention with
a learned sink per head, YaRN rotary embedding (limits not rounded), top-4 mixture of experts with
biases and the clamped SwiGLU, RMSNorm, untied head. Two things differ from an inference code:

* All experts are computed for every token and the unchosen ones are multiplied by zero. With eight
  experts and four chosen that costs twice the arithmetic and saves every gather, which is a good trade
  at this width: the experts of a layer become one wide matrix product.
* Expert weights pass through `mxfp4_fake_quant`, whose output is exactly representable in MXFP4 and
  whose gradient is the identity. `Model.quant` blends from the plain weight (0) to the quantised one (1).
"""
import math
from dataclasses import dataclass, asdict

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab: int = 4096
    dim: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    experts: int = 8
    top_k: int = 4
    expert_dim: int = 192
    window: int = 128
    theta: float = 150000.0
    yarn_factor: float = 32.0
    yarn_context: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    eps: float = 1e-5
    limit: float = 7.0
    alpha: float = 1.702
    context: int = 4096  # what the file declares

    asdict = asdict


# ---------------------------------------------------------------------------------------------- MXFP4

def mxfp4_scale_and_values(w):
    """Nearest MXFP4 of w along its last dim: (scale, e2m1 value), both float, shaped [..., n/32, 32 or 1].

    The usual scale, 2^(floor(log2(max)) - 2), lets the largest value clip at 6. The next one up does not
    clip but is coarser. The block takes whichever has the smaller squared error.
    """
    b = w.float().unflatten(-1, (-1, 32))
    top = b.abs().amax(-1, keepdim=True).clamp_min(2.0 ** -100)
    # 2^floor(log2(top)), exactly: keep the exponent bits only.
    low = (top.view(torch.int32) & 0x7F800000).view(torch.float32) * 0.25

    def nearest(scale):
        x = b / scale
        a = x.abs().clamp_max(6.0)
        step = torch.where(a < 2.0, 0.5, torch.where(a < 4.0, 1.0, 2.0))  # spacing of e2m1 around a
        q = torch.round(a / step) * step * torch.sign(x)
        return q, ((q * scale - b) ** 2).sum(-1, keepdim=True)

    q0, e0 = nearest(low)
    q1, e1 = nearest(low * 2)
    up = e1 < e0
    return torch.where(up, low * 2, low), torch.where(up, q1, q0)


def mxfp4_fake_quant(w, amount):
    with torch.no_grad():
        scale, value = mxfp4_scale_and_values(w)
        step = ((scale * value).flatten(-2) - w) * amount
    return w + step


# ------------------------------------------------------------------------------------------ rotary

def yarn_tables(c, length, rounded=False):
    """cos and sin [length, head_dim/2]. `rounded` is ggml's variant, which rounds the ramp's ends outward."""
    def ramp_end(rotations):
        return c.head_dim * math.log(c.yarn_context / (rotations * 2 * math.pi)) / (2 * math.log(c.theta))

    low, high = ramp_end(c.beta_fast), ramp_end(c.beta_slow)
    if rounded:
        low, high = math.floor(low), math.ceil(high)
    i = torch.arange(c.head_dim // 2, dtype=torch.float64)
    freq = c.theta ** (-2 * i / c.head_dim)
    keep = 1 - ((i - low) / (high - low)).clamp(0, 1)
    inv = freq / c.yarn_factor * (1 - keep) + freq * keep
    angle = torch.arange(length, dtype=torch.float64)[:, None] * inv
    gain = 0.1 * math.log(c.yarn_factor) + 1
    return (angle.cos() * gain).float(), (angle.sin() * gain).float()


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


# ------------------------------------------------------------------------------------------- layers

class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def softmax_with_sink(s, sink):
    """Softmax over the last dim; the sink only widens the denominator."""
    m = torch.maximum(s.amax(-1, keepdim=True), sink).detach()
    e = torch.exp(s - m)
    return e / (e.sum(-1, keepdim=True) + torch.exp(sink - m))


class Attention(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.c = c
        self.window = c.window if index % 2 == 0 else 0
        self.q = nn.Linear(c.dim, c.heads * c.head_dim)
        self.k = nn.Linear(c.dim, c.kv_heads * c.head_dim)
        self.v = nn.Linear(c.dim, c.kv_heads * c.head_dim)
        self.o = nn.Linear(c.heads * c.head_dim, c.dim)
        self.sinks = nn.Parameter(torch.zeros(c.heads))

    def forward(self, x, cos, sin):
        c, (B, T, _) = self.c, x.shape
        group = c.heads // c.kv_heads
        q = rotate(self.q(x).view(B, T, c.heads, c.head_dim).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(B, T, c.kv_heads, c.head_dim).transpose(1, 2), cos, sin)
        v = self.v(x).view(B, T, c.kv_heads, c.head_dim).transpose(1, 2)
        if self.window and T % self.window == 0:
            return self.o(self.local(q, k, v).transpose(1, 2).reshape(B, T, -1))
        # The query heads that share a key head are stacked along time: one product per key head.
        q = q.reshape(B, c.kv_heads, group * T, c.head_dim)
        s = (q @ k.transpose(-1, -2)).float().view(B, c.heads, T, T) * c.head_dim ** -0.5
        row = torch.arange(T, device=x.device)[:, None]
        col = torch.arange(T, device=x.device)[None, :]
        seen = col <= row
        if self.window:
            seen = seen & (col > row - self.window)
        p = softmax_with_sink(s.masked_fill(~seen, float("-inf")), self.sinks.float().view(1, c.heads, 1, 1))
        y = p.to(v.dtype).view(B, c.kv_heads, group * T, T) @ v
        return self.o(y.view(B, c.heads, T, c.head_dim).transpose(1, 2).reshape(B, T, -1))

    def local(self, q, k, v):
        """The sliding window in blocks of its own width: a block of queries meets its own keys and the
        block before. The same numbers as the masked product, in time linear in T."""
        c, W, (B, _, T, D) = self.c, self.window, q.shape
        n, group = T // W, c.heads // c.kv_heads
        pair = lambda x: torch.cat((F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x), -2)
        k = pair(k.reshape(B, c.kv_heads, n, W, D))
        v = pair(v.reshape(B, c.kv_heads, n, W, D))
        q = q.reshape(B, c.kv_heads, group, n, W, D).transpose(2, 3).reshape(B, c.kv_heads, n, group * W, D)
        s = (q @ k.transpose(-1, -2)).float().view(B, c.kv_heads, n, group, W, 2 * W) * D ** -0.5
        i = torch.arange(W, device=q.device)[:, None]
        j = torch.arange(2 * W, device=q.device)
        block = torch.arange(n, device=q.device)[:, None, None, None]
        seen = (j > i) & (j <= i + W) & ((block > 0) | (j >= W))
        p = softmax_with_sink(s.masked_fill(~seen, float("-inf")),
                              self.sinks.float().view(c.kv_heads, 1, group, 1, 1))
        y = p.to(v.dtype).view(B, c.kv_heads, n, group * W, 2 * W) @ v
        return y.view(B, c.kv_heads, n, group, W, D).transpose(2, 3).reshape(B, c.heads, T, D)


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        E, D, I = c.experts, c.dim, c.expert_dim
        self.router = nn.Linear(D, E)
        self.gate = nn.Parameter(torch.randn(E, I, D) * D ** -0.5)
        self.up = nn.Parameter(torch.randn(E, I, D) * D ** -0.5)
        self.down = nn.Parameter(torch.zeros(E, D, I))
        self.gate_bias = nn.Parameter(torch.zeros(E, I))
        self.up_bias = nn.Parameter(torch.zeros(E, I))
        self.down_bias = nn.Parameter(torch.zeros(E, D))
        self.register_buffer("quant", torch.zeros(()), persistent=False)

    def forward(self, x):
        """x [N, dim] -> (output [N, dim], load-balancing loss)."""
        c = self.c
        E, I = c.experts, c.expert_dim
        with torch.autocast(x.device.type, enabled=False):  # the choice of experts is made in float32
            logits = F.linear(x.float(), self.router.weight, self.router.bias)
        top, index = logits.topk(c.top_k, -1)
        weight = torch.zeros_like(logits).scatter(-1, index, top.softmax(-1))  # [N, E], zero if unchosen
        # Switch-Transformer balance: share of tokens an expert gets times its mean probability.
        share = (weight.detach() > 0).float().mean(0) / c.top_k
        balance = E * (share * logits.softmax(-1).mean(0)).sum()

        gate_w = mxfp4_fake_quant(self.gate, self.quant).reshape(E * I, c.dim)
        up_w = mxfp4_fake_quant(self.up, self.quant).reshape(E * I, c.dim)
        down_w = mxfp4_fake_quant(self.down, self.quant).permute(1, 0, 2).reshape(c.dim, E * I)
        g = F.linear(x, gate_w, self.gate_bias.view(-1)).float().clamp(max=c.limit)
        u = F.linear(x, up_w, self.up_bias.view(-1)).float().clamp(-c.limit, c.limit)
        h = (u + 1) * g * torch.sigmoid(c.alpha * g)
        h = (h.view(-1, E, I) * weight[:, :, None]).view(-1, E * I)
        return F.linear(h, down_w) + weight @ self.down_bias, balance


class Model(nn.Module):
    def __init__(self, c, dropout=0.0):
        super().__init__()
        self.c = c
        self.dropout = dropout
        self.embed = nn.Embedding(c.vocab, c.dim)
        self.attn_norm = nn.ModuleList(Norm(c.dim, c.eps) for _ in range(c.layers))
        self.attn = nn.ModuleList(Attention(c, i) for i in range(c.layers))
        self.moe_norm = nn.ModuleList(Norm(c.dim, c.eps) for _ in range(c.layers))
        self.moe = nn.ModuleList(Experts(c) for _ in range(c.layers))
        self.norm = Norm(c.dim, c.eps)
        self.head = nn.Linear(c.dim, c.vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.5)
        nn.init.zeros_(self.head.weight)
        for a, m in zip(self.attn, self.moe):
            for lin in (a.q, a.k, a.v):
                nn.init.normal_(lin.weight, std=c.dim ** -0.5)
                nn.init.zeros_(lin.bias)
            nn.init.zeros_(a.o.weight)
            nn.init.zeros_(a.o.bias)
            nn.init.normal_(m.router.weight, std=0.02)
            nn.init.zeros_(m.router.bias)
        self.set_rope(False)

    def set_rope(self, rounded, length=0):
        cos, sin = yarn_tables(self.c, length or self.c.context, rounded)
        dev = self.embed.weight.device
        self.register_buffer("cos", cos.to(dev), persistent=False)
        self.register_buffer("sin", sin.to(dev), persistent=False)

    def set_quant(self, amount):
        for m in self.moe:
            m.quant.fill_(amount)

    def hidden(self, ids):
        """[B, T] ids -> (final normalised hidden state, mean balance loss)."""
        B, T = ids.shape
        cos, sin = self.cos[:T], self.sin[:T]
        drop = lambda v: F.dropout(v, self.dropout, self.training)
        x = drop(self.embed(ids).float())
        balance = 0.0
        for n1, attn, n2, moe in zip(self.attn_norm, self.attn, self.moe_norm, self.moe):
            x = x + drop(attn(n1(x), cos, sin))
            y, b = moe(n2(x).view(B * T, -1))
            x = x + drop(y.view(B, T, -1))
            balance = balance + b
        return self.norm(x), balance / self.c.layers

    def forward(self, ids):
        h, balance = self.hidden(ids)
        return self.head(h).float(), balance
