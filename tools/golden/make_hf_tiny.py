#!/usr/bin/env python3
"""Makes tests/data/hf_tiny: a gpt-oss model of a few kilobytes as transformers and the safetensors
library write it, with MXFP4 experts, in two shards. tools/convert_check.py makes larger ones with
the functions below.

The blocks are packed here, by code of our own after the OCP specification; transformers then reads
the folder back and dequantises it, and must find the numbers that went in.

    tools/golden/make_hf_tiny.py tests/data/hf_tiny
"""
import argparse
import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM

SPLIT = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message",
            "call", "endofprompt"]


def write_tokenizer(folder, vocab):
    """256 bytes, a few merges, the special tokens; the rows that are left are no token."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(b) for b in keep] + [chr(256 + i) for i in range(256 - len(keep))]
    merges = [("Ġ", "t"), ("h", "e"), ("i", "n"), ("r", "e"), ("Ġt", "he"), ("e", "r"), ("in", "g")]
    tokens = alphabet + [a + b for a, b in merges]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(f"<|{s}|>", normalized=False) for s in SPECIALS])
    assert t.get_vocab_size() <= vocab
    t.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|startoftext|>",
                   "eos_token": "<|return|>", "pad_token": "<|endoftext|>"}, f, indent=1)


def make_model(vocab=288, hidden=32, inter=32, layers=2, heads=4, kv_heads=2, head_dim=16,
               experts=4, seed=1):
    torch.manual_seed(seed)
    config = GptOssConfig(
        num_hidden_layers=layers, num_local_experts=experts, vocab_size=vocab, hidden_size=hidden,
        intermediate_size=inter, head_dim=head_dim, num_attention_heads=heads,
        num_key_value_heads=kv_heads, sliding_window=16, num_experts_per_tok=2,
        max_position_embeddings=1024, tie_word_embeddings=False, pad_token_id=257 + 7,
        rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
                         "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                         "original_max_position_embeddings": 32})
    model = GptOssForCausalLM(config).to(torch.bfloat16).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape) * (0.3 if p.dim() == 1 else 1.5 / p.shape[-1] ** 0.5)
            p.copy_(noise + (1.0 if name.endswith("norm.weight") else 0.0))
    return model


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def pack(w):
    """float32 [E, out, in] to blocks [E, out, in/32, 16] and scales [E, out, in/32]."""
    groups = w.reshape(*w.shape[:2], -1, 32)
    top = np.abs(groups).max(-1)
    exponent = np.floor(np.log2(np.maximum(top, 1e-30))) - 2
    scaled = groups / np.exp2(exponent)[..., None]
    code = np.abs(scaled[..., None] - E2M1).argmin(-1).astype(np.uint8)
    return code[..., 0::2] | code[..., 1::2] << 4, (exponent + 127).astype(np.uint8)


def unpack(blocks, scales):
    code = np.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:3], 32)
    return (E2M1[code] * np.exp2(scales.astype(np.float32) - 127)[..., None]).reshape(
        *blocks.shape[:2], -1)


def quantise(folder):
    """Replaces the experts of a saved folder by blocks and scales; returns what they now are."""
    path = os.path.join(folder, "model.safetensors")
    state, values = load_file(path), {}
    for name in [n for n in state if n.endswith(("gate_up_proj", "down_proj")) and "experts" in n]:
        w = state.pop(name).float().transpose(1, 2).contiguous().numpy()  # [E, out, in]
        blocks, scales = pack(w)
        values[name] = unpack(blocks, scales)
        state[name + "_blocks"] = torch.from_numpy(blocks)
        state[name + "_scales"] = torch.from_numpy(scales)
    save_file(state, path, {"format": "pt"})
    edit_config(folder, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})
    return values


def edit_config(folder, **changes):
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        config = json.load(f)
    config.update(changes)
    with open(path, "w") as f:
        json.dump(config, f, indent=1)


def hash_part(name, shards):
    """The same shard for a tensor's blocks and scales."""
    return sum(name.removesuffix("_blocks").removesuffix("_scales").encode()) % shards


def split(folder, shards=2, scatter=True):
    """model.safetensors into shards with an index, as transformers does for large models. `scatter`
    puts neighbours into different shards, blocks and their scales too (llama.cpp wants those
    together)."""
    path = os.path.join(folder, "model.safetensors")
    state, index = load_file(path), {}
    names = sorted(state)
    for s in range(shards):
        file = f"model-{s:05d}-of-{shards:05d}.safetensors"  # gpt-oss counts from 0
        take = names[s::shards] if scatter else [
            n for n in names if hash_part(n, shards) == s]
        part = {n: state[n] for n in take}
        save_file(part, os.path.join(folder, file), {"format": "pt"})
        index.update({n: file for n in part})
    os.remove(path)
    with open(path + ".index.json", "w") as f:
        json.dump({"metadata": {}, "weight_map": index}, f, indent=0, sort_keys=True)


def logits(model, tokens):
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        return model.float()(torch.tensor([tokens])).logits[0].numpy()


def check_with_transformers(folder, values):
    from transformers import Mxfp4Config
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.bfloat16)
    state = model.state_dict()
    for name, want in values.items():
        got = state[name].float().transpose(1, 2).numpy()
        assert np.array_equal(got, want), f"{name}: transformers unpacks other numbers"
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    make_model().save_pretrained(folder)
    write_tokenizer(folder, 288)
    values = quantise(folder)
    model = check_with_transformers(folder, values)
    tokens = [(i * 37 + 11) % 256 for i in range(24)]
    got = logits(model, tokens)
    np.concatenate([np.array([len(tokens), got.shape[1]], np.float32), np.array(tokens, np.float32),
                    got.reshape(-1)[-4 * got.shape[1]:]]).astype("<f4").tofile(
                        os.path.join(folder, "logits.bin"))
    split(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{folder}: {size} bytes")
    return size > 110_000


if __name__ == "__main__":
    sys.exit(main())
