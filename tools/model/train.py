#!/usr/bin/env python3
"""Train the built-in model (tokenizer and network) and write it as GGUF.

    train.py --corpus DIR --out DIR [--held-out frankenstein.txt] [--steps N] [--teacher CKPT] ...

The defaults are the built-in model's. DIR holds plain-text books. Output: OUT/tokenizer.json, OUT/model.gguf, OUT/model.pt, OUT/log.json.

Recipe: Muon for the matrices, Adam for embedding, head, gains, biases and sinks; constant learning rate,
then linear decay to zero; dropout; a load-balancing loss for the router; from --quant-from on, the experts
are rounded to MXFP4 in the forward pass, so the file's experts are exactly the trained ones. The corpus
is small (about 3.7 M tokens), so what limits the result is overfitting, not time. Other models trained
before with the same script, wider ones too (--dim, --expert-dim, ...), can serve as --teacher: their mean
prediction tells the small model more than the bare text does.
"""
import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import data
import score
from gguf_io import read_gguf, write_gguf
from model import Config, Model


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--corpus", required=True, help="folder of .txt books")
    p.add_argument("--out", required=True, help="output folder")
    p.add_argument("--held-out", default="frankenstein.txt", help="book that is only measured on")
    p.add_argument("--extra-text", help="another held-out text to measure on")
    for name in ("vocab", "dim", "layers", "heads", "kv_heads", "experts", "expert_dim"):
        p.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(Config, name))
    p.add_argument("--steps", type=int, default=8641)
    p.add_argument("--max-seconds", type=float, default=1e9, help="shorten the schedule to fit into this")
    p.add_argument("--batch", type=int, default=16, help="windows per step")
    p.add_argument("--window", type=int, default=1024, help="tokens per window")
    p.add_argument("--lr", type=float, default=0.015, help="Muon's; Adam's rates are scaled along")
    p.add_argument("--decay", type=float, default=0.4, help="decoupled weight decay")
    p.add_argument("--dropout", type=float, default=0.15)
    p.add_argument("--flat", type=float, default=0.2, help="share of steps before the rate starts to fall")
    p.add_argument("--quant-from", type=float, default=0.5, help="share of steps without MXFP4 rounding")
    p.add_argument("--balance", type=float, default=0.03)
    p.add_argument("--chat", type=float, default=0.06, help="share of windows from harmony conversations")
    p.add_argument("--conversations", type=int, default=5000, help="how many of them are made")
    p.add_argument("--prepared", help="folder of tokenizer.json and tokens.npz (default: --out)")
    p.add_argument("--prepare-only", action="store_true", help="make these two and stop")
    p.add_argument("--teacher", nargs="*", default=[], help="GGUF files of the same vocabulary, see above")
    p.add_argument("--distill", type=float, default=0.7, help="share of the loss that the teacher sets")
    p.add_argument("--seed", type=int, default=2)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--no-compile", action="store_true")
    return p.parse_args()


# ---------------------------------------------------------------------------------------- optimizer

def orthogonal(g):
    """Five Newton-Schulz steps: a batch of matrices to about the nearest orthogonal ones (Muon)."""
    x = g.bfloat16()
    tall = x.size(-2) > x.size(-1)
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if tall else x).float()


class Muon:
    """Momentum, then orthogonalised update. Matrices of one shape are handled as one batch."""

    def __init__(self, params, lr, decay, momentum=0.95, fn=orthogonal):
        self.base, self.decay, self.momentum, self.fn = lr, decay, momentum, fn
        shapes = {}
        for p in params:
            shapes.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.groups = [(ps, [torch.zeros_like(p) for p in ps]) for ps in shapes.values()]

    @torch.no_grad()
    def step(self, factor):
        lr = self.base * factor
        for ps, ms in self.groups:
            gs = [p.grad for p in ps]
            torch._foreach_lerp_(ms, gs, 1 - self.momentum)
            gs = torch._foreach_lerp(gs, ms, self.momentum)  # Nesterov
            rows, cols = ps[0].shape[-2:]
            u = self.fn(torch.cat([g.reshape(-1, rows, cols) for g in gs]))
            u = u.split([p.numel() // (rows * cols) for p in ps])
            torch._foreach_mul_(ps, 1 - lr * self.decay)
            torch._foreach_add_(ps, [v.view_as(p) for v, p in zip(u, ps)],
                                alpha=-lr * max(1, rows / cols) ** 0.5)


def make_optimizers(model, a, compiled):
    matrices, tables, small = [], [], []
    for name, p in model.named_parameters():
        if name.startswith(("embed", "head")):
            tables.append(p)
        elif p.ndim >= 2 and "router" not in name and "bias" not in name:
            matrices.append(p)
        else:
            small.append(p)
    k = a.lr / 0.02
    groups = [dict(params=[model.embed.weight], lr=0.006 * k, weight_decay=a.decay),
              dict(params=[model.head.weight], lr=0.003 * k, weight_decay=a.decay),
              dict(params=small, lr=0.003 * k, weight_decay=0.0)]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-10, fused=model.embed.weight.is_cuda)
    for g in adam.param_groups:
        g["base"] = g["lr"]
    fn = torch.compile(orthogonal) if compiled else orthogonal
    return Muon(matrices, a.lr, a.decay, fn=fn), adam


# ----------------------------------------------------------------------------------------- training

def window_starts(n_ids, window, generator):
    """Endless window starts: every epoch covers the stream once, at a new offset, shuffled."""
    while True:
        offset = int(torch.randint(window, (1,), generator=generator))
        starts = torch.arange(offset, n_ids - window - 1, window)
        yield from starts[torch.randperm(len(starts), generator=generator)].tolist()


def prepare(a):
    """Tokenizer and token arrays (train, val, held, chat), made once and kept in --prepared."""
    books, held_text = data.load_books(a.corpus, a.held_out)
    folder = Path(a.prepared or a.out)
    if not (folder / "tokens.npz").exists():
        folder.mkdir(parents=True, exist_ok=True)
        tok = data.train_tokenizer([t for _, t in books], a.vocab)
        tok.save(str(folder / "tokenizer.json"))
        ids, val = data.book_streams(tok, books)
        np.savez_compressed(folder / "tokens.npz", train=ids, val=val, held=data.encode(tok, held_text),
                            chat=data.chat_stream(tok, books, a.conversations))
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tok.get_vocab_size() == a.vocab
    tokens = np.load(folder / "tokens.npz")
    return tok, {k: tokens[k].astype(np.int64) for k in tokens.files}, held_text


def make_batches(tokens, a, dev):
    """A function that gives the next (input, target) batch: book windows and a few conversations."""
    gen = torch.Generator().manual_seed(a.seed)
    ids = {k: torch.tensor(tokens[k], device=dev) for k in ("train", "chat")}
    starts = {k: window_starts(len(v), a.window, gen) for k, v in ids.items()}
    span = torch.arange(a.window + 1)
    n_chat = a.batch * a.chat

    def rows(k, n):
        return ids[k][(torch.tensor([next(starts[k]) for _ in range(n)])[:, None] + span).to(dev)]

    def batch():
        n = int(n_chat) + int(torch.rand((), generator=gen) < n_chat % 1)
        r = rows("train", a.batch - n)
        if n:
            r = torch.cat((rows("chat", n), r))
        return r[:, :-1], r[:, 1:]

    return batch


def train(model, a, tokens, measure, dev):
    """Run the schedule; returns (steps taken, list of measurements)."""
    compiled = not a.no_compile
    muon, adam = make_optimizers(model, a, compiled)
    teachers = [read_gguf(t)[0].to(dev).requires_grad_(False) for t in a.teacher]

    def loss_fn(x, y):
        logits, balance = model(x)
        logits = logits.flatten(0, 1)
        loss = ce = F.cross_entropy(logits, y.flatten())
        if teachers:
            with torch.no_grad():
                soft = sum(t(x)[0].softmax(-1) for t in teachers) / len(teachers)
            loss = (1 - a.distill) * ce + a.distill * F.cross_entropy(logits, soft.flatten(0, 1))
        return loss + a.balance * balance, ce, balance

    step_fn = torch.compile(loss_fn) if compiled else loss_fn
    batch = make_batches(tokens, a, dev)
    log, start, steps = [], time.time(), a.steps
    i, mark, next_look = 0, None, 0.1
    while i < steps:
        if i % 250 == 50 and a.max_seconds < 1e9:  # fit the schedule to the pace of the last 250 steps
            now = time.time()
            if mark:
                pace = (now - mark[1]) / (i - mark[0])
                steps = max(i + 1, min(a.steps, int(i + (a.max_seconds - (now - start)) / pace)))
            mark = (i, now)
        done = i / steps
        model.set_quant(1.0 if done >= a.quant_from else 0.0)
        factor = min(1.0, (i + 1) / 100, (1 - done) / (1 - a.flat))
        with torch.autocast(dev.type, torch.bfloat16, enabled=dev.type == "cuda"):
            loss, ce, balance = step_fn(*batch())
        loss.backward()
        muon.step(factor)
        for g in adam.param_groups:
            g["lr"] = g["base"] * factor
        adam.step()
        adam.zero_grad()
        i += 1
        if i / steps >= next_look or i == steps:
            next_look += 0.1
            row = dict(step=i, ce=ce.item(), balance=balance.item(), **measure(model), seconds=time.time() - start)
            log.append(row)
            say(" ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    return steps, log


def measure_export(model, exported, tok, texts):
    """Bits per byte and perplexity of the trained model and of the file's weights, in float32."""
    result = {}
    for name, text in texts.items():
        ids, n_bytes = data.encode(tok, text), len(text.encode())
        for key, amount in (("unquantised", 0.0), ("trained", 1.0)):
            model.set_quant(amount)
            result[f"{name}_bpb_{key}"] = score.bits_per_byte(model, ids, n_bytes)
        for key, rounded in (("", False), ("_rounded_rope", True)):
            exported.set_rope(rounded)
            result[f"{name}_bpb_file{key}"] = score.bits_per_byte(exported, ids, n_bytes)
            result[f"{name}_ppl512_file{key}"] = score.llama_perplexity(exported, ids)
        exported.set_rope(False)
    return result


@torch.no_grad()
def expert_shares(model, ids):
    """Smallest and largest share of a layer's expert slots that one expert gets (even: 1 / experts)."""
    c, chosen = model.c, []
    hooks = [m.register_forward_pre_hook(lambda mod, x: chosen.append(
        F.linear(x[0], mod.router.weight, mod.router.bias).topk(c.top_k, -1)[1])) for m in model.moe]
    model.hidden(ids)
    for h in hooks:
        h.remove()
    use = [torch.bincount(t.flatten(), minlength=c.experts).div(t.numel()) for t in chosen]
    return dict(expert_share_min=min(u.min().item() for u in use), expert_share_max=max(u.max().item() for u in use))


def samples(model, tok, seed=0):
    out = []
    for prompt in ("It was a dark and stormy night", "\u201cMy dear,\u201d said", "The old man looked at"):
        ids = score.generate(model, data.encode(tok, prompt), 160, seed=seed)
        out.append(prompt + tok.decode(ids, skip_special_tokens=False))
    return out


def say(*m):
    print(*m, flush=True)


def main():
    a = arguments()
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    dev = torch.device(a.device)

    tok, tokens, held_text = prepare(a)
    if a.prepare_only:
        return
    val_bytes = len(tok.decode(tokens["val"].tolist(), skip_special_tokens=False).encode())
    held_bytes = len(held_text.encode())
    say(", ".join(f"{k} {len(v)} tokens" for k, v in tokens.items()), f"; held-out book {held_bytes} bytes")

    c = Config(**{k: getattr(a, k) for k in ("vocab", "dim", "layers", "heads", "kv_heads", "experts", "expert_dim")})
    model = Model(c, a.dropout).to(dev)
    n_params = sum(p.numel() for p in model.parameters())
    say(f"{n_params / 1e6:.2f} M parameters, {a.steps} steps of {a.batch * a.window} tokens")

    def measure(m):
        m.eval()
        bpb = lambda k, n: score.bits_per_byte(m, tokens[k], n, autocast=dev.type == "cuda")
        row = dict(val=bpb("val", val_bytes), held=bpb("held", held_bytes))
        m.train()
        return row

    steps, log = train(model, a, tokens, measure, dev)
    torch.save(dict(config=c.asdict(), state=model.state_dict()), out / "model.pt")
    model.eval()
    torch.set_float32_matmul_precision("highest")
    write_gguf(out / "model.gguf", model, tok)
    exported = read_gguf(out / "model.gguf")[0].to(dev)
    texts = {"held_out_book": held_text}
    if a.extra_text:
        texts["extra"] = Path(a.extra_text).read_text(encoding="utf-8")
    n_tokens = steps * a.batch * a.window
    held = torch.tensor(tokens["held"][:len(tokens["held"]) // 1024 * 1024][:8192], device=dev).view(-1, 1024)
    result = dict(bytes=(out / "model.gguf").stat().st_size, parameters=n_params, steps=steps, tokens=n_tokens,
                  epochs=n_tokens * (1 - a.chat) / len(tokens["train"]), **measure_export(model, exported, tok, texts),
                  **(expert_shares(exported, held) if len(held) else {}))
    say(json.dumps(result, indent=1))
    result.update(args=vars(a), log=log, samples=samples(exported, tok) if dev.type == "cuda" else [])
    (out / "log.json").write_text(json.dumps(result, indent=1))
    say("\n---\n".join(result["samples"]))


if __name__ == "__main__":
    main()
