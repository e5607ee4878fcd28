"""Measures of a model on a text: bits per byte, and perplexity the way llama-perplexity takes it."""
import math

import torch
import torch.nn.functional as F


@torch.no_grad()
def nll(model, rows, first, batch=16, autocast=False):
    """Summed negative log-likelihood (nats) of rows[:, first+1:], and how many tokens that are."""
    dev = model.embed.weight.device
    total = 0.0
    for i in range(0, len(rows), batch):
        ids = rows[i:i + batch].to(dev).long()
        with torch.autocast(dev.type, torch.bfloat16, enabled=autocast):
            h, _ = model.hidden(ids[:, :-1])
            logits = model.head(h[:, first:]).float()
        total += F.cross_entropy(logits.flatten(0, 1), ids[:, first + 1:].flatten(), reduction="sum").double().item()
    return total, rows[:, first + 1:].numel()


def bits_per_byte(model, ids, n_bytes, window=1024, autocast=False):
    """Every token but the first is predicted from at least window/2 tokens of context (where there are so many)."""
    ids = torch.as_tensor(ids)
    half = window // 2
    total, _ = nll(model, ids[None, :half + 1], 0, autocast=autocast)
    starts = list(range(0, len(ids) - window, half))
    if starts:
        t, _ = nll(model, torch.stack([ids[s:s + window + 1] for s in starts]), half, autocast=autocast)
        total += t
    at = (starts[-1] + window) if starts else half  # last position predicted so far
    if at + 1 < len(ids):
        s = max(0, len(ids) - 1 - window)
        t, _ = nll(model, ids[None, s:], at - s, autocast=autocast)
        total += t
    return total / math.log(2) / n_bytes


def llama_perplexity(model, ids, n_ctx=512):
    """Disjoint windows of n_ctx; the second half of each is scored, its first scored token excepted."""
    ids = torch.as_tensor(ids)
    n = len(ids) // n_ctx
    rows = ids[:n * n_ctx].view(n, n_ctx)
    total, count = nll(model, rows, n_ctx // 2)
    return math.exp(total / count)


@torch.no_grad()
def generate(model, prompt, count, temperature=0.8, top_p=0.95, seed=0, stop=()):
    """Sampled continuation (ids) of one prompt. No cache: the text is short and the model small."""
    dev = model.embed.weight.device
    gen = torch.Generator(dev).manual_seed(seed)
    ids = torch.tensor([list(prompt)], device=dev)
    for _ in range(count):
        h, _ = model.hidden(ids)
        p = (model.head(h[:, -1]).float() / temperature).softmax(-1)
        sp, order = p.sort(descending=True)
        sp[sp.cumsum(-1) - sp > top_p] = 0
        nxt = order.gather(-1, torch.multinomial(sp, 1, generator=gen))
        ids = torch.cat((ids, nxt), -1)
        if nxt.item() in stop:
            break
    return ids[0, len(prompt):].tolist()
