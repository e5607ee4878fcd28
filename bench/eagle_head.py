#!/usr/bin/env python3
"""An EAGLE-3 head of random numbers with the sizes of one that is published: for its time, not its guesses.

    eagle_head.py OUT            for gpt-oss-20b: 308 million parameters, 617 MB in bf16
    eagle_head.py OUT --layers 36        for gpt-oss-120b

Sizes: the configurations for gpt-oss in SpecForge. Needs numpy.
"""
import argparse
import json
from pathlib import Path

import numpy as np

HIDDEN, INTER, HEADS, KV_HEADS, HEAD_DIM, VOCAB, DRAFT = 2880, 17280, 64, 8, 64, 201088, 32000


def tensors():
    q, kv, layer = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, "midlayer."
    yield "fc.weight", (HIDDEN, 3 * HIDDEN)
    for name, rows, cols in (("self_attn.q_proj", q, 2 * HIDDEN), ("self_attn.k_proj", kv, 2 * HIDDEN),
                             ("self_attn.v_proj", kv, 2 * HIDDEN), ("self_attn.o_proj", HIDDEN, q),
                             ("mlp.gate_proj", INTER, HIDDEN), ("mlp.up_proj", INTER, HIDDEN),
                             ("mlp.down_proj", HIDDEN, INTER)):
        yield f"{layer}{name}.weight", (rows, cols)
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        yield f"{layer}{name}.weight", (HIDDEN,)
    yield "norm.weight", (HIDDEN,)
    yield "lm_head.weight", (DRAFT, HIDDEN)


def bf16(shape, rng):
    """Matrices of about the size that keeps rows as they are, gains of 1."""
    if len(shape) == 1:
        return np.full(shape, 0x3F80, np.uint16)
    values = (rng.random(shape, np.float32) - 0.5) * np.float32(3.4 / shape[1] ** 0.5)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--layers", type=int, default=24)
    a = p.parse_args()
    out, rng, header, at = Path(a.out), np.random.default_rng(1), {}, 0
    out.mkdir(parents=True, exist_ok=True)
    for name, shape in tensors():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    header["d2t"] = {"dtype": "I64", "shape": [DRAFT], "data_offsets": [at, at + 8 * DRAFT]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(out / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, shape in tensors():
            f.write(bf16(shape, rng).tobytes())
        f.write(np.zeros(DRAFT, np.int64).tobytes())
    config = dict(architectures=["LlamaForCausalLMEagle3"], hidden_act="silu", hidden_size=HIDDEN, intermediate_size=INTER,
                  num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, num_hidden_layers=1,
                  rms_norm_eps=1e-5, rope_theta=10000, vocab_size=VOCAB, draft_vocab_size=DRAFT,
                  eagle_config=dict(eagle_aux_hidden_state_layer_ids=[1, a.layers // 2 - 1, a.layers - 4]))
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
