#!/usr/bin/env python3
"""Make the golden test vectors in tests/golden.

For each small random configuration this writes

  NAME.gguf  a complete model file in llama.cpp's layout for architecture "gpt-oss"
  NAME.bin   what transformers' GptOssForCausalLM (eager, float32, CPU) computes from it

The weights given to transformers are read back from the GGUF file and dequantised, so both
sides hold exactly the same numbers and only floating-point rounding can differ.

A second forward pass, written here in plain numpy (float64) from the description of the model
and with its own GGUF dequantisers, then checks the oracle and serves two further ends:
  * noise   how far float32 transformers lies from float64: the tolerance a test can ask for;
  * ablate  every detail of the model is broken in turn ("no sinks", "rounded YaRN", ...) and
            the change of the logits is printed. A test that passes within tolerance therefore
            proves that detail. The script fails if some detail is visible in no configuration.

Layout of NAME.bin, little endian:
  char magic[8] = "SOLGOLD1"
  u32  n_tokens, n_positions, n_layers, hidden, vocab
  i32  tokens[n_tokens]                            the prompt, positions 0..n_tokens-1
  i32  positions[n_positions]                      the rows kept below
  f32  layer_out[n_layers][n_positions][hidden]    residual stream after each layer
  f32  final_norm_out[n_positions][hidden]         after output_norm
  f32  logits[n_positions][vocab]

Usage: make_golden.py --out tests/golden [--only NAME] [--no-ablation] [--table FILE]
"""

import argparse
import math
import os
import struct
import sys
from dataclasses import dataclass

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as T
from gguf.constants import MODEL_ARCH, MODEL_ARCH_NAMES, MODEL_TENSOR, MODEL_TENSORS, TENSOR_NAMES

ALPHA, LIMIT = 1.702, 7.0
VOCAB = 288
ABLATION_FLOOR = 1e-3  # every ablation must move the logits by more, somewhere
# ... but for this one, which no input shows: below -7 the gate gives |g sigmoid(1.702 g)| < 5e-5.
INVISIBLE = {"gate clamped below too"}


@dataclass(frozen=True)
class Config:
    name: str
    seed: int
    n_tokens: int
    positions: tuple
    hidden: int
    inter: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    window: int
    dense: T            # type of q/k/v/o, embedding and head
    expert: T           # type of the expert matrices
    eps: float = 1e-5
    theta: float = 150000.0
    factor: float = 32.0
    orig_ctx: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    ctx: int = 131072
    embd_std: float = 1.0
    qk_std: float = 1.2
    sink_mean: float = 5.5
    # Some converters leave these out; a loader must know the default (32 and 1, and the row
    # count of token_embd).
    write_betas: bool = True
    write_vocab_size: bool = True


# The seeds were chosen among 30 (long: 6) for a wide router gap, i.e. so that no token sits close to
# a tie between the last expert chosen and the first left out.
CONFIGS = [
    # gpt-oss in small; the sequence goes past the window.
    Config("base_mxfp4", 10, 200, (0, 1, 2, 63, 126, 127, 128, 129, 160, 199),
           hidden=64, inter=64, layers=4, heads=4, kv_heads=2, head_dim=32, experts=8, top_k=4,
           window=128, dense=T.BF16, expert=T.MXFP4, write_betas=False, write_vocab_size=False),
    # Odd counts everywhere, another top-k and other YaRN numbers.
    Config("odd_bf16", 17, 70, (0, 1, 2, 14, 15, 16, 17, 33, 64, 69),
           hidden=32, inter=32, layers=3, heads=9, kv_heads=3, head_dim=32, experts=7, top_k=3,
           window=16, dense=T.BF16, expert=T.BF16, theta=10000.0, factor=8.0, orig_ctx=64,
           beta_fast=8.0, beta_slow=0.5, ctx=512, sink_mean=3.5),
    # Positions past the original context, with the real YaRN numbers (head_dim 64).
    Config("long_mxfp4", 4, 4200, (0, 1, 127, 128, 129, 2048, 4095, 4096, 4097, 4199),
           hidden=32, inter=32, layers=2, heads=2, kv_heads=1, head_dim=64, experts=5, top_k=4,
           window=128, dense=T.BF16, expert=T.MXFP4, qk_std=1.5, sink_mean=7.0,
           write_vocab_size=False),
    # Q8_0 attention, embedding and head as in the published GGUF files; 4:1 GQA; inter != hidden.
    Config("q8_dense", 3, 150, (0, 1, 2, 31, 63, 64, 65, 100, 128, 149),
           hidden=32, inter=64, layers=6, heads=8, kv_heads=2, head_dim=32, experts=9, top_k=4,
           window=64, dense=T.Q8_0, expert=T.MXFP4, theta=50000.0, factor=4.0, orig_ctx=256,
           ctx=1024, sink_mean=4.5),
    # All float32. The default betas make YaRN's lower bound negative, so it is clamped at 0;
    # the residual stream is small, so that eps counts.
    Config("f32_all", 14, 140, (0, 1, 2, 63, 126, 127, 128, 129, 132, 139),
           hidden=32, inter=16, layers=2, heads=4, kv_heads=2, head_dim=32, experts=32, top_k=4,
           window=128, dense=T.F32, expert=T.F32, eps=1e-3, theta=10000.0, factor=16.0,
           orig_ctx=64, ctx=1024, embd_std=0.1, write_vocab_size=False),
]

# --------------------------------------------------------------------------------------------
# Tokenizer: 256 byte tokens in GPT-2's printable form, a few merges, then specials.


def byte_tokens():
    """GPT-2's bytes_to_unicode, in token-id order (printable bytes first)."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return [chr(b) for b in keep] + [chr(256 + i) for i in range(len(rest))]


def tokenizer():
    merges = ["Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t",
              "Ġ w", "Ġ o", "e n", "in g", "i t", "Ġa n"]
    specials = ["startoftext", "endoftext", "return", "constrain", "channel", "start", "end",
                "message", "call", "endofprompt"]
    toks = byte_tokens() + [m.replace(" ", "") for m in merges]
    types = [gguf.TokenType.NORMAL] * len(toks)
    toks += [f"<|{s}|>" for s in specials]
    types += [gguf.TokenType.CONTROL] * len(specials)
    while len(toks) < VOCAB:  # rows that are no token
        toks.append(f"[PAD{len(toks)}]")
        types.append(gguf.TokenType.UNUSED)
    assert len(toks) == VOCAB and len(set(toks)) == VOCAB
    return toks, types, merges


# --------------------------------------------------------------------------------------------
# Random weights, and the GGUF file.


def tensor_name(kind, layer=None, suffix="weight"):
    assert kind in MODEL_TENSORS[MODEL_ARCH.GPT_OSS]
    base = TENSOR_NAMES[kind]
    return (base if layer is None else base.format(bid=layer)) + "." + suffix


def random_weights(c):
    """name -> (float32 array in GGUF row order, ggml type)."""
    rng = np.random.default_rng(c.seed)
    out = {}

    def n(*shape, std=1.0, mean=0.0):
        return (mean + std * rng.standard_normal(shape)).astype(np.float32)

    def experts(rows, cols, std):
        # Blocks of 32 get different magnitudes, so that the MXFP4 scale bytes differ, and one
        # block is all zero (scale byte 0).
        w = n(c.experts, rows, cols, std=std)
        blocks = max(1, cols // 32)
        scale = 2.0 ** rng.uniform(-1.5, 1.5, (c.experts, rows, blocks))
        scale /= math.sqrt(np.mean(scale ** 2))
        w *= np.repeat(scale, cols // blocks, axis=-1).astype(np.float32)
        w[0, 0, : min(cols, 32)] = 0.0
        return w

    def put(kind, layer, w, qtype=T.F32, suffix="weight"):
        out[tensor_name(kind, layer, suffix)] = (w, qtype)

    M = MODEL_TENSOR
    q_rows, kv_rows = c.heads * c.head_dim, c.kv_heads * c.head_dim
    s = 1 / math.sqrt(c.hidden)
    put(M.TOKEN_EMBD, None, n(VOCAB, c.hidden, std=c.embd_std), c.dense)
    for l in range(c.layers):
        put(M.ATTN_NORM, l, n(c.hidden, std=0.25, mean=1.0))
        put(M.ATTN_Q, l, n(q_rows, c.hidden, std=c.qk_std * s), c.dense)
        put(M.ATTN_Q, l, n(q_rows, std=0.3), suffix="bias")
        put(M.ATTN_K, l, n(kv_rows, c.hidden, std=c.qk_std * s), c.dense)
        put(M.ATTN_K, l, n(kv_rows, std=0.3), suffix="bias")
        put(M.ATTN_V, l, n(kv_rows, c.hidden, std=s), c.dense)
        put(M.ATTN_V, l, n(kv_rows, std=0.3), suffix="bias")
        put(M.ATTN_OUT, l, n(c.hidden, q_rows, std=2 / math.sqrt(q_rows)), c.dense)
        put(M.ATTN_OUT, l, n(c.hidden, std=0.2), suffix="bias")
        put(M.ATTN_SINKS, l, n(c.heads, std=1.5, mean=c.sink_mean))
        put(M.ATTN_POST_NORM, l, n(c.hidden, std=0.25, mean=1.0))
        put(M.FFN_GATE_INP, l, n(c.experts, c.hidden, std=1.5 * s))
        put(M.FFN_GATE_INP, l, n(c.experts, std=0.5), suffix="bias")
        # gate and up have a standard deviation of about 4: several per cent go past +-7.
        put(M.FFN_GATE_EXP, l, experts(c.inter, c.hidden, 4 * s), c.expert)
        put(M.FFN_GATE_EXP, l, n(c.experts, c.inter, std=0.5), suffix="bias")
        put(M.FFN_UP_EXP, l, experts(c.inter, c.hidden, 4 * s), c.expert)
        put(M.FFN_UP_EXP, l, n(c.experts, c.inter, std=0.5), suffix="bias")
        put(M.FFN_DOWN_EXP, l, experts(c.hidden, c.inter, 0.15 / math.sqrt(c.inter)), c.expert)
        put(M.FFN_DOWN_EXP, l, n(c.experts, c.hidden, std=0.3), suffix="bias")
    put(M.OUTPUT_NORM, None, n(c.hidden, std=0.25, mean=1.0))
    put(M.OUTPUT, None, n(VOCAB, c.hidden, std=1.5 * s), c.dense)
    tokens = rng.integers(0, VOCAB, c.n_tokens).astype(np.int32)
    return out, tokens, rng


def quantise(w, qtype, rng):
    if qtype == T.F32:
        return w
    raw = gguf.quants.quantize(np.ascontiguousarray(w), qtype)
    if qtype == T.MXFP4:
        # The quantiser never picks code 8 (minus zero). Files made elsewhere hold it.
        blocks = raw.reshape(-1, 17)
        for mask, sign in ((0x0F, 0x08), (0xF0, 0x80)):
            nib = blocks[:, 1:]
            zero = ((nib & mask) == 0) & (rng.random(nib.shape) < 0.5)
            blocks[:, 1:] = np.where(zero, nib | sign, nib)
        raw = blocks.reshape(raw.shape)
    return raw


def write_gguf(c, path, weights, rng):
    w = gguf.GGUFWriter(path, MODEL_ARCH_NAMES[MODEL_ARCH.GPT_OSS])
    w.add_type(gguf.GGUFType.MODEL)
    w.add_name(f"golden {c.name}")
    w.add_file_type({T.F32: gguf.LlamaFileType.ALL_F32,
                     T.BF16: gguf.LlamaFileType.MOSTLY_BF16,
                     T.MXFP4: gguf.LlamaFileType.MOSTLY_MXFP4_MOE}[c.expert])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_block_count(c.layers)
    w.add_context_length(c.ctx)
    w.add_embedding_length(c.hidden)
    w.add_feed_forward_length(c.inter)
    w.add_head_count(c.heads)
    w.add_head_count_kv(c.kv_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.eps)
    w.add_sliding_window(c.window)
    w.add_expert_count(c.experts)
    w.add_expert_used_count(c.top_k)
    w.add_expert_feed_forward_length(c.inter)
    w.add_rope_freq_base(c.theta)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(c.factor)
    w.add_rope_scaling_orig_ctx_len(c.orig_ctx)
    if c.write_betas:
        w.add_rope_scaling_yarn_beta_fast(c.beta_fast)
        w.add_rope_scaling_yarn_beta_slow(c.beta_slow)
    if c.write_vocab_size:
        w.add_vocab_size(VOCAB)
    toks, types, merges = tokenizer()
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list(toks)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(toks.index("<|startoftext|>"))
    w.add_eos_token_id(toks.index("<|return|>"))
    w.add_pad_token_id(toks.index("<|endoftext|>"))
    for name, (arr, qtype) in weights.items():
        w.add_tensor(name, quantise(arr, qtype, rng), raw_dtype=qtype)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# --------------------------------------------------------------------------------------------
# Reading the file back, with dequantisers of our own.

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def dequantise(raw, qtype, shape, wrong_nibbles=False):
    """The exact values, as float64."""
    raw = np.ascontiguousarray(raw).reshape(-1)
    if qtype == T.F32:
        out = raw.view(np.float32).astype(np.float64)
    elif qtype == T.BF16:
        out = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    elif qtype == T.Q8_0:
        b = raw.view(np.uint8).reshape(-1, 34)
        d = np.ascontiguousarray(b[:, :2]).view(np.float16).astype(np.float64)
        out = d * b[:, 2:].view(np.int8)
    elif qtype == T.MXFP4:
        b = raw.view(np.uint8).reshape(-1, 17)
        low, high = E2M1[b[:, 1:] & 15], E2M1[b[:, 1:] >> 4]
        v = np.stack([low, high], axis=-1).reshape(-1, 32) if wrong_nibbles \
            else np.concatenate([low, high], axis=-1)
        out = v * np.exp2(b[:, :1].astype(np.float64) - 127)
    else:
        raise ValueError(qtype)
    return out.reshape(shape)


def read_gguf(path, wrong_nibbles=False):
    out = {}
    for t in gguf.GGUFReader(path).tensors:
        shape = [int(d) for d in reversed(t.shape)]
        out[t.name] = dequantise(t.data, t.tensor_type, shape, wrong_nibbles)
        if not wrong_nibbles:  # ours against the gguf package
            theirs = gguf.quants.dequantize(t.data, t.tensor_type).reshape(shape)
            assert np.array_equal(out[t.name].astype(np.float32), theirs), t.name
            assert np.array_equal(out[t.name], out[t.name].astype(np.float32)), t.name
    return out


# --------------------------------------------------------------------------------------------
# YaRN, as the reference implementation has it (bounds not rounded).


def yarn(c, rounded=False, plain=False, mscale=True):
    i = np.arange(c.head_dim // 2, dtype=np.float64)
    f = c.theta ** (2 * i / c.head_dim)
    scale = 0.1 * math.log(c.factor) + 1.0 if mscale else 1.0
    if plain:
        return 1 / f, scale

    def bound(rotations):
        return c.head_dim / 2 * math.log(c.orig_ctx / (rotations * 2 * math.pi)) / math.log(c.theta)

    low, high = bound(c.beta_fast), bound(c.beta_slow)
    if rounded:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, c.head_dim - 1)
    mask = 1 - np.clip((i - low) / (high - low), 0, 1)
    return (1 - mask) / (c.factor * f) + mask / f, scale


# --------------------------------------------------------------------------------------------
# The oracle: transformers.


def transformers_model(c, W):
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM

    cfg = GptOssConfig(
        num_hidden_layers=c.layers, num_local_experts=c.experts, vocab_size=len(W["output.weight"]),
        hidden_size=c.hidden, intermediate_size=c.inter, head_dim=c.head_dim,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, sliding_window=c.window,
        rms_norm_eps=float(np.float32(c.eps)), num_experts_per_tok=c.top_k,
        max_position_embeddings=c.ctx, tie_word_embeddings=False, use_cache=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": c.theta, "factor": c.factor,
                         "beta_fast": c.beta_fast, "beta_slow": c.beta_slow, "truncate": False,
                         "original_max_position_embeddings": c.orig_ctx})
    cfg._attn_implementation = "eager"
    cfg._experts_implementation = "eager"
    model = GptOssForCausalLM(cfg).float().eval()
    assert model.config._attn_implementation == "eager"
    assert model.config._experts_implementation == "eager"
    assert model.config.layer_types == [
        "full_attention" if l % 2 else "sliding_attention" for l in range(c.layers)]

    # transformers' YaRN numbers against our formula.
    inv_freq, scale = yarn(c)
    got = model.model.rotary_emb.inv_freq.double().numpy()
    assert model.config.rope_parameters["truncate"] is False
    assert np.max(np.abs(got / inv_freq - 1)) < 1e-6, "inv_freq differs"
    assert abs(model.model.rotary_emb.attention_scaling - scale) < 1e-9

    state = {"model.embed_tokens.weight": W["token_embd.weight"],
             "model.norm.weight": W["output_norm.weight"], "lm_head.weight": W["output.weight"]}
    for l in range(c.layers):
        b, h = f"blk.{l}.", f"model.layers.{l}."
        for ours, theirs in (("q", "q"), ("k", "k"), ("v", "v"), ("output", "o")):
            for s in ("weight", "bias"):
                state[f"{h}self_attn.{theirs}_proj.{s}"] = W[f"{b}attn_{ours}.{s}"]
        state[h + "self_attn.sinks"] = W[b + "attn_sinks.weight"]
        state[h + "input_layernorm.weight"] = W[b + "attn_norm.weight"]
        state[h + "post_attention_layernorm.weight"] = W[b + "post_attention_norm.weight"]
        state[h + "mlp.router.weight"] = W[b + "ffn_gate_inp.weight"]
        state[h + "mlp.router.bias"] = W[b + "ffn_gate_inp.bias"]
        # [E, out, in] here, [E, in, out] there; gate in the even outputs, up in the odd ones.
        gate_up = np.empty((c.experts, c.hidden, 2 * c.inter))
        gate_up[:, :, 0::2] = W[b + "ffn_gate_exps.weight"].transpose(0, 2, 1)
        gate_up[:, :, 1::2] = W[b + "ffn_up_exps.weight"].transpose(0, 2, 1)
        gate_up_bias = np.empty((c.experts, 2 * c.inter))
        gate_up_bias[:, 0::2] = W[b + "ffn_gate_exps.bias"]
        gate_up_bias[:, 1::2] = W[b + "ffn_up_exps.bias"]
        state[h + "mlp.experts.gate_up_proj"] = gate_up
        state[h + "mlp.experts.gate_up_proj_bias"] = gate_up_bias
        state[h + "mlp.experts.down_proj"] = W[b + "ffn_down_exps.weight"].transpose(0, 2, 1)
        state[h + "mlp.experts.down_proj_bias"] = W[b + "ffn_down_exps.bias"]
    state = {k: torch.from_numpy(np.array(v, dtype=np.float32, order="C")) for k, v in state.items()}
    model.load_state_dict(state, strict=True)
    return model


def run_transformers(c, W, tokens):
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = transformers_model(c, W)
    kept = {}
    rows = list(c.positions)

    def keep(key):
        def hook(_module, _inputs, output):
            out = output[0] if isinstance(output, tuple) else output
            kept[key] = out[0, rows].numpy().copy()
        return hook

    for l, layer in enumerate(model.model.layers):
        layer.register_forward_hook(keep(l))
    model.model.norm.register_forward_hook(keep("norm"))
    with torch.no_grad():
        ids = torch.from_numpy(tokens.astype(np.int64))[None]
        logits = model(input_ids=ids).logits[0, rows].numpy()
    return np.stack([kept[l] for l in range(c.layers)]), kept["norm"], logits


# --------------------------------------------------------------------------------------------
# The same model in numpy, float64, with switches that break one detail each.

ABLATIONS = {
    # attention
    "no sinks": "no_sinks",
    "sinks scaled by 1/sqrt(d)": "sink_scaled",
    "window dropped": "no_window",
    "window one longer": "window_plus",
    "window one shorter": "window_minus",
    "odd layers slide": "odd_slides",
    "all layers slide": "all_slide",
    "no 1/sqrt(d)": "no_scale",
    "KV head = h mod n_kv": "gqa_mod",
    "no q bias": "no_q_bias",
    "no k bias": "no_k_bias",
    "no v bias": "no_v_bias",
    "no o bias": "no_o_bias",
    # rotary embedding
    "YaRN bounds rounded": "yarn_rounded",
    "plain RoPE": "rope_plain",
    "no YaRN cos/sin factor": "no_mscale",
    "RoPE on adjacent pairs": "rope_pairs",
    "positions wrap at 4096": "wrap",
    # experts
    "no clamp": "no_clamp",
    "gate clamped below too": "gate_low",
    "up clamped above only": "up_high",
    "no +1 on up": "no_plus_one",
    "SiLU (alpha 1)": "alpha_one",
    "gate and up swapped": "swap",
    "no gate bias": "no_gate_bias",
    "no up bias": "no_up_bias",
    "no down bias": "no_down_bias",
    "down bias not weighted": "down_unweighted",
    "MXFP4 nibbles in HF order": "nibbles",
    # router
    "softmax over all experts": "softmax_all",
    "top k-1": "topk_minus",
    "uniform expert weights": "uniform",
    "no router bias": "no_router_bias",
    # norms and head
    "eps 1e-5 / 1e-6": "eps",
    "no attn_norm gain": "no_attn_gain",
    "no post_attention_norm gain": "no_post_gain",
    "no output_norm gain": "no_final_gain",
    "head tied to embedding": "tied",
}


def run_numpy(c, W, tokens, off="", stats=None):
    eps = float(np.float32(c.eps))
    if off == "eps":
        eps = 1e-6 if c.eps == 1e-5 else 1e-5
    n, d, half, group = len(tokens), c.head_dim, c.head_dim // 2, c.heads // c.kv_heads
    rows = np.array(c.positions)

    def rms(x, gain, drop):
        y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
        return y if off == drop else y * gain

    def linear(x, name, drop):
        y = x @ W[name + ".weight"].T
        return y if off == drop else y + W[name + ".bias"]

    inv_freq, mscale = yarn(c, rounded=off == "yarn_rounded", plain=off == "rope_plain",
                            mscale=off != "no_mscale")
    pos = np.arange(n)
    rope_pos = pos % 4096 if off == "wrap" else pos
    cos = np.cos(rope_pos[:, None] * inv_freq)[:, None] * mscale
    sin = np.sin(rope_pos[:, None] * inv_freq)[:, None] * mscale

    def rope(x):  # [n, heads, d]
        y = np.empty_like(x)
        a, b = (np.s_[..., 0::2], np.s_[..., 1::2]) if off == "rope_pairs" \
            else (np.s_[..., :half], np.s_[..., half:])
        y[a] = x[a] * cos - x[b] * sin
        y[b] = x[b] * cos + x[a] * sin
        return y

    window = c.window + {"window_plus": 1, "window_minus": -1}.get(off, 0)
    causal = pos[None, :] <= pos[:, None]
    local = causal & (pos[:, None] - pos[None, :] < window)

    x = W["token_embd.weight"][tokens]
    layer_out = []
    for l in range(c.layers):
        b = f"blk.{l}."
        # attention
        h = rms(x, W[b + "attn_norm.weight"], "no_attn_gain")
        q = rope(linear(h, b + "attn_q", "no_q_bias").reshape(n, c.heads, d))
        k = rope(linear(h, b + "attn_k", "no_k_bias").reshape(n, c.kv_heads, d))
        v = linear(h, b + "attn_v", "no_v_bias").reshape(n, c.kv_heads, d)
        slides = (l % 2 == 1) if off == "odd_slides" else (l % 2 == 0)
        slides = off != "no_window" and (slides or off == "all_slide")
        mask = local if slides else causal
        att = np.empty((n, c.heads, d))
        for head in range(c.heads):
            kv = head % c.kv_heads if off == "gqa_mod" else head // group
            s = q[:, head] @ k[:, kv].T
            if off != "no_scale":
                s /= math.sqrt(d)
            sink = W[b + "attn_sinks.weight"][head]
            if off == "sink_scaled":
                sink /= math.sqrt(d)
            if off == "no_sinks":
                sink = -np.inf
            s[~mask] = -np.inf
            top = np.maximum(s.max(axis=-1, keepdims=True), sink)
            s -= top
            np.exp(s, out=s)
            s /= s.sum(axis=-1, keepdims=True) + np.exp(sink - top)
            att[:, head] = s @ v[:, kv]
        x = x + linear(att.reshape(n, -1), b + "attn_output", "no_o_bias")

        # experts
        h = rms(x, W[b + "post_attention_norm.weight"], "no_post_gain")
        router = linear(h, b + "ffn_gate_inp", "no_router_bias")
        top_k = c.top_k - (off == "topk_minus")
        order = np.argsort(-router, axis=-1, kind="stable")
        if stats is not None:
            ranked = np.take_along_axis(router, order, axis=-1)
            gap = np.min(ranked[:, c.top_k - 1] - ranked[:, c.top_k])
            stats["gap"] = min(stats.get("gap", np.inf), gap)
        chosen = order[:, :top_k]
        logit = np.take_along_axis(router, chosen, axis=-1)
        if off == "softmax_all":
            weight = np.exp(logit) / np.exp(router).sum(axis=-1, keepdims=True)
        elif off == "uniform":
            weight = np.full(logit.shape, 1 / top_k)
        else:
            weight = np.exp(logit - logit.max(axis=-1, keepdims=True))
            weight /= weight.sum(axis=-1, keepdims=True)
        y = np.zeros_like(x)
        for e in range(c.experts):
            t, slot = np.nonzero(chosen == e)
            if not len(t):
                continue

            def proj(inp, kind, drop):
                r = inp @ W[f"{b}ffn_{kind}_exps.weight"][e].T
                return r if off == drop else r + W[f"{b}ffn_{kind}_exps.bias"][e]

            gate, up = proj(h[t], "gate", "no_gate_bias"), proj(h[t], "up", "no_up_bias")
            if off == "swap":
                gate, up = up, gate
            if stats is not None:
                for key, hit in (("gate>7", gate > LIMIT), ("gate<-7", gate < -LIMIT),
                                 ("abs(up)>7", np.abs(up) > LIMIT)):
                    stats.setdefault(key, []).append(hit.mean())
            if off != "no_clamp":
                gate = np.clip(gate, -LIMIT if off == "gate_low" else None, LIMIT)
                up = np.clip(up, None if off == "up_high" else -LIMIT, LIMIT)
            alpha = 1.0 if off == "alpha_one" else ALPHA
            act = gate / (1 + np.exp(-alpha * gate)) * (up + (off != "no_plus_one"))
            w = weight[t, slot][:, None]
            if off == "down_unweighted":
                y[t] += w * proj(act, "down", off) + W[f"{b}ffn_down_exps.bias"][e]
            else:
                y[t] += w * proj(act, "down", "no_down_bias")
        x = x + y
        layer_out.append(x[rows])
    final = rms(x[rows], W["output_norm.weight"], "no_final_gain")
    head = W["token_embd.weight" if off == "tied" else "output.weight"]
    return np.stack(layer_out), final, final @ head.T


# --------------------------------------------------------------------------------------------


def rel(a, b):
    """Relative L2 distance."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def applies(c, switch):
    """False where a switch cannot change anything in this configuration, by construction."""
    if switch == "nibbles":
        return c.expert == T.MXFP4
    if switch == "gqa_mod":
        return c.kv_heads > 1
    if switch == "wrap":
        return c.n_tokens > 4096
    return True


def write_bin(c, path, tokens, layer_out, final, logits):
    with open(path, "wb") as f:
        f.write(b"SOLGOLD1")
        f.write(struct.pack("<5I", len(tokens), len(c.positions), c.layers, c.hidden, VOCAB))
        f.write(tokens.astype("<i4").tobytes())
        f.write(np.array(c.positions, dtype="<i4").tobytes())
        for a in (layer_out, final, logits):
            f.write(np.ascontiguousarray(a).astype("<f4").tobytes())


def make(c, out_dir, ablate):
    path = os.path.join(out_dir, c.name + ".gguf")
    weights, tokens, rng = random_weights(c)
    write_gguf(c, path, weights, rng)
    W = read_gguf(path)
    assert set(W) == set(weights)
    layer_out, final, logits = run_transformers(c, W, tokens)
    assert all(np.isfinite(a).all() for a in (layer_out, final, logits))
    write_bin(c, os.path.join(out_dir, c.name + ".bin"), tokens, layer_out, final, logits)

    stats = {}
    ref_layers, ref_final, ref_logits = run_numpy(c, W, tokens, stats=stats)
    noise = {
        "layers": max(rel(a, b) for a, b in zip(layer_out, ref_layers)),
        "norm": rel(final, ref_final),
        "logits": rel(logits, ref_logits),
        "max abs logit error": float(np.max(np.abs(logits - ref_logits))),
        "logit std": float(np.std(ref_logits)),
        "router gap": float(stats["gap"]),
        **{k: float(np.mean(stats[k])) for k in ("gate>7", "gate<-7", "abs(up)>7")},
    }
    print(c.name, {k: f"{v:.3g}" for k, v in noise.items()}, flush=True)
    assert noise["logits"] < 1e-4, "transformers and the numpy model disagree"

    table = {}
    if ablate:
        for label, switch in ABLATIONS.items():
            if not applies(c, switch):
                table[label] = None
                continue
            broken = read_gguf(path, wrong_nibbles=True) if switch == "nibbles" else W
            table[label] = rel(run_numpy(c, broken, tokens, switch)[2], ref_logits)
    return noise, table


def markdown(results):
    names = list(results)
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for key in next(iter(results.values()))[0]:
        lines.append(f"| {key} | " + " | ".join(f"{results[n][0][key]:.2g}" for n in names) + " |")
    lines.append("")
    if next(iter(results.values()))[1]:
        lines += ["| broken detail | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for label in ABLATIONS:
            row = [results[n][1][label] for n in names]
            lines.append(f"| {label} | " + " | ".join("-" if v is None else f"{v:.2g}" for v in row) + " |")
    return "\n".join(lines) + "\n"


def main():
    ap = argparse.ArgumentParser(description="Make the golden test vectors (see the file's head).")
    ap.add_argument("--out", required=True, metavar="DIR", help="where NAME.gguf and NAME.bin go")
    ap.add_argument("--only", action="append", choices=[c.name for c in CONFIGS],
                    help="this configuration only (may be repeated)")
    ap.add_argument("--no-ablation", action="store_true", help="skip the ablation table")
    ap.add_argument("--table", metavar="FILE", help="write the tables there too, as Markdown")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    results = {c.name: make(c, args.out, not args.no_ablation)
               for c in CONFIGS if not args.only or c.name in args.only}
    text = markdown(results)
    print(text)
    if args.table:
        with open(args.table, "w", encoding="utf-8") as f:
            f.write(text)
    if args.no_ablation or args.only:
        return 0
    blind = [label for label in ABLATIONS if label not in INVISIBLE
             and max(t[label] or 0 for _, t in results.values()) <= ABLATION_FLOOR]
    if blind:
        print("visible in no configuration:", ", ".join(blind), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
