#!/usr/bin/env python3
"""Check a GGUF file of the built-in model against transformers and measure it on texts.

    check.py --gguf FILE [--tokenizer tokenizer.json] [--text FILE ...]

Its dequantised weights are put into transformers' GptOssForCausalLM; logits must agree to float32
tolerance. For each text: bits per byte, and perplexity as llama-perplexity -c 512 takes it, with the exact
rotary table and with ggml's rounded one.
"""
import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer

import data
import score
from gguf_io import read_gguf


def to_transformers(model):
    from transformers import GptOssConfig, GptOssForCausalLM
    c = model.c
    cfg = GptOssConfig(
        num_hidden_layers=c.layers, num_local_experts=c.experts, vocab_size=c.vocab, hidden_size=c.dim,
        intermediate_size=c.expert_dim, head_dim=c.head_dim, num_attention_heads=c.heads,
        num_key_value_heads=c.kv_heads, sliding_window=c.window, rms_norm_eps=c.eps,
        num_experts_per_tok=c.top_k, max_position_embeddings=131072, attn_implementation="eager",
        rope_parameters=dict(rope_type="yarn", rope_theta=c.theta, factor=c.yarn_factor, beta_fast=c.beta_fast,
                             beta_slow=c.beta_slow, truncate=False, original_max_position_embeddings=c.yarn_context))
    hf = GptOssForCausalLM(cfg).float().eval()
    s, new = model.state_dict(), {}
    new["model.embed_tokens.weight"], new["model.norm.weight"] = s["embed.weight"], s["norm.weight"]
    new["lm_head.weight"] = s["head.weight"]
    for i in range(c.layers):
        b = f"model.layers.{i}."
        new[b + "input_layernorm.weight"] = s[f"attn_norm.{i}.weight"]
        new[b + "post_attention_layernorm.weight"] = s[f"moe_norm.{i}.weight"]
        new[b + "self_attn.sinks"] = s[f"attn.{i}.sinks"]
        for p in "qkvo":
            for kind in ("weight", "bias"):
                new[b + f"self_attn.{p}_proj.{kind}"] = s[f"attn.{i}.{p}.{kind}"]
        for kind in ("weight", "bias"):
            new[b + f"mlp.router.{kind}"] = s[f"moe.{i}.router.{kind}"]
        pair = lambda x, y: torch.stack((x, y), 2).flatten(1, 2)  # rows interleave: gate, up, gate, up, ...
        m = f"moe.{i}."
        new[b + "mlp.experts.gate_up_proj"] = pair(s[m + "gate"], s[m + "up"]).transpose(1, 2).contiguous()
        new[b + "mlp.experts.gate_up_proj_bias"] = torch.stack((s[m + "gate_bias"], s[m + "up_bias"]), 2).flatten(1)
        new[b + "mlp.experts.down_proj"] = s[m + "down"].transpose(1, 2).contiguous()
        new[b + "mlp.experts.down_proj_bias"] = s[m + "down_bias"]
    hf.load_state_dict(new)
    return hf


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--gguf", required=True)
    p.add_argument("--tokenizer", help="tokenizer.json; needed for --text")
    p.add_argument("--text", nargs="*", default=[])
    p.add_argument("--device", default="cpu")
    a = p.parse_args()
    model, _ = read_gguf(a.gguf)
    print(f"{a.gguf}: {Path(a.gguf).stat().st_size} bytes, {sum(q.numel() for q in model.parameters())} parameters")
    ids = torch.randint(0, model.c.vocab - len(data.SPECIALS), (2, 300), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        ours, theirs = model(ids)[0], to_transformers(model)(ids).logits
    error = ((ours - theirs).norm() / theirs.norm()).item()
    print(f"transformers: relative error of the logits {error:.2e} (largest {(ours - theirs).abs().max():.2e})")
    assert error < 1e-5, "differs from transformers"
    model = model.to(a.device)
    tok = Tokenizer.from_file(a.tokenizer) if a.tokenizer else None
    for path in a.text:
        text = data.clean(Path(path).read_text(encoding="utf-8"))
        ids = data.encode(tok, text)
        print(f"{path}: {len(text.encode())} bytes, {len(ids)} tokens")
        for rounded in (False, True):
            model.set_rope(rounded)
            bpb = score.bits_per_byte(model, ids, len(text.encode()))
            ppl = score.llama_perplexity(model, ids)
            print(f"  rotary {'rounded' if rounded else 'exact'}: {bpb:.4f} bits per byte, perplexity (512) {ppl:.4f}")


if __name__ == "__main__":
    main()
