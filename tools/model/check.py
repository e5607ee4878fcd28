#!/usr/bin/env python3
"""The built-in model without sol: the oracles of tools/golden, numpy in float64 and transformers, on its file.

    check.py --gguf FILE [--transformers] [--tokenizer tokenizer.json [--text FILE]... [--prompt FILE [-n N]]]

--transformers (needs torch): its logits of random tokens must agree. --text: bits per byte and perplexity, windows of 1024
with 512 tokens before what is scored, and as llama-perplexity -c 512 takes it. --prompt: what greedy decoding makes of a
text, in which control tokens are written out (what tests and samples of sol are held against).
"""
import argparse
import math
import sys
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "golden"))
import make_golden as golden
from tokenizer_cases import encode, load


class Model:
    def __init__(self, path):
        self.weights = golden.read_gguf(path)
        fields = gguf.GGUFReader(path).fields
        get = lambda key: fields["gpt-oss." + key].contents()
        self.fixed = dict(
            name=path, seed=0, dense=golden.T.Q8_0, expert=golden.T.MXFP4, layers=get("block_count"),
            hidden=get("embedding_length"), inter=get("expert_feed_forward_length"), heads=get("attention.head_count"),
            kv_heads=get("attention.head_count_kv"), head_dim=get("attention.key_length"), experts=get("expert_count"),
            top_k=get("expert_used_count"), window=get("attention.sliding_window"),
            eps=get("attention.layer_norm_rms_epsilon"), theta=get("rope.freq_base"), factor=get("rope.scaling.factor"),
            orig_ctx=get("rope.scaling.original_context_length"), beta_fast=get("rope.scaling.yarn_beta_fast"),
            beta_slow=get("rope.scaling.yarn_beta_slow"), ctx=get("context_length"))

    def logits(self, ids, first=0, run=golden.run_numpy):
        """[len(ids) - first][vocabulary]"""
        config = golden.Config(n_tokens=len(ids), positions=tuple(range(first, len(ids))), **self.fixed)
        return run(config, self.weights, np.asarray(ids))[2]


def lost(model, ids, first):
    """Nats of each of ids[first + 1:]."""
    logits = model.logits(ids[:-1], first)
    logits -= logits.max(axis=-1, keepdims=True)
    return np.log(np.exp(logits).sum(axis=-1)) - logits[np.arange(len(logits)), ids[first + 1:]]


def bits_per_byte(model, ids, n_bytes, window=1024):
    """Every token but the first; where there are so many, from at least window / 2 tokens before it."""
    half, total, known = window // 2, 0.0, 0  # known: the last one scored
    while known + 1 < len(ids):
        end = min(len(ids), known + 1 + (window if known == 0 else half))
        start = max(0, end - 1 - window)
        total += lost(model, ids[start:end], known - start).sum()
        known = end - 1
    return total / math.log(2) / n_bytes


def llama_perplexity(model, ids, context=512):
    """Of the second half of each whole window."""
    losses = [lost(model, ids[at:at + context], context // 2) for at in range(0, len(ids) - context + 1, context)]
    return math.exp(np.mean(losses))


def against_transformers(model):
    ids = np.random.default_rng(3).integers(0, 4000, 300)
    ours, theirs = model.logits(ids), model.logits(ids, run=golden.run_transformers)
    error = golden.rel(theirs, ours)
    print(f"transformers: relative error of the logits {error:.2e}, largest {np.abs(ours - theirs).max():.2e}")
    assert error < 1e-5, "differs from transformers"


def greedy(model, tok, text, count):
    tok.encode_special_tokens = False
    ids, prompt = tok.encode(text, add_special_tokens=False).ids, text
    ends = {tok.token_to_id(t) for t in ("<|return|>", "<|call|>", "<|endoftext|>")}
    for _ in range(count):
        ids.append(int(model.logits(ids, len(ids) - 1)[0].argmax()))
        if ids[-1] in ends:
            break
    return tok.decode(ids, skip_special_tokens=False)[len(prompt):]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--gguf", required=True)
    p.add_argument("--transformers", action="store_true")
    p.add_argument("--tokenizer")
    p.add_argument("--text", action="append", default=[])
    p.add_argument("--prompt")
    p.add_argument("-n", type=int, default=64)
    a = p.parse_args()
    model = Model(a.gguf)
    print(f"{a.gguf}: {Path(a.gguf).stat().st_size} bytes, {sum(w.size for w in model.weights.values())} parameters")
    if a.transformers:
        against_transformers(model)
    tok = load(a.tokenizer)[0] if a.tokenizer else None
    for path in a.text:
        text = Path(path).read_text(encoding="utf-8")
        ids, n_bytes = encode(tok, text), len(text.encode())
        print(f"{path}: {n_bytes} bytes, {len(ids)} tokens: {bits_per_byte(model, ids, n_bytes):.4f} bits per byte, "
              f"perplexity (512) {llama_perplexity(model, ids):.4f}", flush=True)
    if a.prompt:
        print(greedy(model, tok, Path(a.prompt).read_text(encoding="utf-8"), a.n))


if __name__ == "__main__":
    main()
