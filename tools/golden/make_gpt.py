#!/usr/bin/env python3
"""Make the golden vectors of GPT in tests/golden, by nanochat's own code, and by transformers.

For each preset (2026-07, 2026-01) this writes a folder NAME/ with

  model.safetensors  a small random model under nanochat's names; July's matrices in bfloat16
  config.json        what nanochat saves beside a checkpoint (meta_NNNNNN.json)

and NAME.bin, the logits that nanochat's GPT class computes from it in float32 on the CPU:
  char magic[8] = "SOLGPT_1"
  u32  n_tokens, n_positions, vocab
  i32  tokens[n_tokens]                the text, positions 0..n_tokens-1
  i32  positions[n_positions]          the rows kept below
  f32  logits[n_positions][vocab]

Nothing is as nanochat begins training: every weight, scale and gate is drawn away from zero, so that
each feature moves the logits. --ablate breaks one after the other and prints by how much (relative
L2 distance over all kept rows); the script fails if one moves them by less than 1e-3.

The folder gpt_transformers is a model of transformers' NanoChatForCausalLM, as it saves one.

NANOCHAT is a git repository of karpathy/nanochat: July is read at 92d63d4, January at ccf4b7f,
whose rotary tables are kept in float32 here instead of bfloat16, and nothing else is changed.

Usage: make_gpt.py --nanochat NANOCHAT --out tests/golden [--ablate]
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict

os.environ["NANOCHAT_DTYPE"] = "float32"

import numpy as np
import torch
from safetensors.torch import save_file

COMMITS = {"2026-07": "92d63d4", "2026-01": "ccf4b7f"}
N_TOKENS = 200  # longer than the window of 129
VOCAB = 50  # no multiple of 64
FLOOR = 1e-3
COMMON_SIZES = dict(sequence_len=512, vocab_size=VOCAB, n_embd=32)
SIZES = {  # the last layer of July would have a window, were it not the last
    "2026-07": COMMON_SIZES | dict(n_layer=4, n_head=4, n_kv_head=2, window_pattern="SSL"),
    "2026-01": COMMON_SIZES | dict(n_layer=2, n_head=2, n_kv_head=2),
}
POSITIONS = [0, 1, 2, 63, 127, 128, 129, 130, 197, 198, 199]


def checkout(repository, commit, folder):
    archive = subprocess.run(["git", "-C", repository, "archive", commit, "nanochat"], check=True,
                             capture_output=True)
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)


def load(preset, repository):
    """The module nanochat.gpt of that commit."""
    folder = tempfile.mkdtemp(prefix="nanochat-")
    checkout(repository, COMMITS[preset], folder)
    if preset == "2026-01":
        path = os.path.join(folder, "nanochat", "gpt.py")
        text = open(path).read()
        changed = text.replace("cos, sin = cos.bfloat16(), sin.bfloat16()", "cos, sin = cos, sin")
        changed = changed.replace("self.cos.dtype == torch.bfloat16", "self.cos.dtype == torch.float32")
        assert changed.count("bfloat16") == text.count("bfloat16") - 3
        open(path, "w").write(changed)
    for name in [n for n in sys.modules if n.split(".")[0] == "nanochat"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    import nanochat.gpt as module
    sys.path.pop(0)
    module.print0 = lambda text: None
    return module


def draw(model, seed):
    """Random numbers for every parameter, with a size that keeps activations near 1."""
    g = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=g)
        if name.startswith(("transformer.wte", "model.embed")) or name.startswith("value_embeds"):
            p.data = noise
        elif name == "resid_lambdas":
            p.data = 1 + 0.2 * noise
        elif name == "x0_lambdas":
            p.data = 0.4 + 0.2 * noise
        elif name in ("smear_lambda", "backout_lambda"):
            p.data = 0.6 + 0.1 * noise
        elif name == "lm_head.weight":
            p.data = 8 * noise / p.shape[1] ** 0.5  # the softcap of 15 is felt
        else:
            p.data = 1.5 * noise / p.shape[-1] ** 0.5
        if p.dim() > 1:
            p.data = p.data.bfloat16().float()


def logits_of(model, tokens):
    with torch.inference_mode():
        return model(torch.tensor([tokens]))[0][POSITIONS].numpy()


def write(path, tokens, logits):
    with open(path, "wb") as f:
        f.write(b"SOLGPT_1")
        f.write(struct.pack("<3I", len(tokens), len(POSITIONS), logits.shape[1]))
        f.write(np.asarray(tokens, "<i4").tobytes())
        f.write(np.asarray(POSITIONS, "<i4").tobytes())
        f.write(logits.astype("<f4").tobytes())


# ---- ablation ----


def rotated_forwards(module, model):
    def turn(x, cos, sin):
        d = x.shape[3] // 2
        return torch.cat([x[..., :d] * cos - x[..., d:] * sin, x[..., :d] * sin + x[..., d:] * cos], 3)

    module.apply_rotary_emb = turn


def swapped_kv_heads(module, model):
    for block in model.transformer.h:
        for p in (block.attn.c_k.weight, block.attn.c_v.weight):
            p.data = p.data.roll(p.shape[0] // 2, 0)


def scaled(name, factor):
    def change(module, model):
        p = dict(model.named_parameters())[name]
        p.data = p.data * factor

    return change


def windows(lengths):
    def change(module, model):
        model.window_sizes = [(n, 0) for n in lengths(model.window_sizes)]

    return change


def with_base(base):
    def change(module, model):
        dim = model.config.n_embd // model.config.n_head
        model.cos, model.sin = model._precompute_rotary_embeddings(model.rotary_seq_len, dim, base)

    return change


def patched(name, old, new):
    """Runs the class with one line of its source changed."""

    def change(module, model):
        import inspect
        import textwrap
        owner = {"attention": module.CausalSelfAttention, "mlp": module.MLP, "gpt": module.GPT}[name]
        source = textwrap.dedent(inspect.getsource(owner.forward))
        assert source.count(old) >= 1, old
        scope = {}
        exec(compile(source.replace(old, new), "ablation", "exec"), vars(module), scope)
        owner.forward = scope["forward"]

    return change


COMMON = {
    "relu for relu2": patched("mlp", ".square()", ""),
    "no softcap": patched("gpt", "softcap * torch.tanh(logits / softcap)", "logits"),
    "softcap 30": patched("gpt", "softcap = 15", "softcap = 30"),
    "no norm of q and k": patched("attention", "q, k = norm(q), norm(k)", "q, k = q, k"),
    "no norm of the embedding": patched("gpt", "x = norm(x)", "x = x * 1.0"),
    "KV heads the other way": swapped_kv_heads,
    "rotated by +theta": rotated_forwards,
}
ABLATIONS = {
    "2026-01": COMMON | {"base 100000": with_base(100000)},
    "2026-07": COMMON | {
        "base 10000": with_base(10000),
        "no 1.2 on q and k": patched("attention", "* 1.2", "* 1.0"),
        "no smear": scaled("smear_lambda", 0),
        "smear by half": scaled("smear_lambda", 0.5),
        "smear gate always one half": scaled("smear_gate.weight", 0),
        "smear from the smeared": patched("gpt", "gate * x[:, :-1]], dim=1)\n    else",
                                          "gate * torch.cat([x[:, :1], x[:, 1:-1] + gate[:, :-1] * x[:, :-2]], dim=1)], dim=1)\n    else"),
        "no backout": scaled("backout_lambda", 0),
        "backout a layer later": patched("gpt", "n_layer // 2", "n_layer // 2 + 1"),
        "no x0": scaled("x0_lambdas", 0),
        "resid lambdas 1": lambda module, model: model.resid_lambdas.data.fill_(1),
        "value gates one half": scaled("transformer.h.1.attn.ve_gate.weight", 0),
        "value gate times 2": patched("attention", "3 * torch.sigmoid", "2 * torch.sigmoid"),
        "no value embedding in layer 1": scaled("value_embeds.1.weight", 0),
        "value embeddings of another token": lambda module, model: [
            e.weight.data.copy_(e.weight.data.roll(1, 0)) for e in model.value_embeds.values()],
        "window dropped": windows(lambda w: [512] * len(w)),
        "window one longer": windows(lambda w: [n + 1 for n, _ in w]),
        "window one shorter": windows(lambda w: [n - 1 for n, _ in w]),
        "windows in all layers": windows(lambda w: [128] * len(w)),
        "windows LSS": windows(lambda w: [512, 128, 128, 512]),
        "window in the last layer": windows(lambda w: [128, 128, 512, 128]),
    },
}


def ablate(preset, repository, build, tokens, logits):
    weak = []
    for name, change in ABLATIONS[preset].items():
        module = load(preset, repository)
        model = build(module)
        change(module, model)
        other = logits_of(model, tokens)
        moved = np.linalg.norm(other - logits) / np.linalg.norm(logits)
        print(f"| {name} | {moved:.2g} |")
        if moved < FLOOR:
            weak.append(name)
    if weak:
        raise SystemExit(f"{preset}: not seen: {', '.join(weak)}")


# ---- all ----


def make(preset, repository, out, want_ablation):
    name = "gpt_" + preset.replace("-", "_")

    def build(module):
        model = module.GPT(module.GPTConfig(**SIZES[preset]))
        model.init_weights()
        draw(model, 7)
        return model.eval()

    torch.set_num_threads(1)
    model = build(load(preset, repository))
    rng = np.random.default_rng(11)
    tokens = [int(t) for t in rng.integers(0, VOCAB, N_TOKENS)]
    logits = logits_of(model, tokens)
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    narrow = preset == "2026-07"
    save_file({k: v.bfloat16() if narrow and v.dim() > 1 else v.contiguous()
               for k, v in model.state_dict().items()},
              os.path.join(folder, "model.safetensors"))
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"step": 0, "model_config": asdict(model.config)}, f, indent=2)
        f.write("\n")
    write(folder + ".bin", tokens, logits)
    share = np.mean(np.abs(logits) > 7.5)
    print(f"{name}: logits of deviation {logits.std():.2f}, {share:.0%} beyond half of the softcap")
    if want_ablation:
        ablate(preset, repository, build, tokens, logits)


def make_transformers(out):
    from transformers import NanoChatConfig, NanoChatForCausalLM

    torch.set_num_threads(1)
    model = NanoChatForCausalLM(NanoChatConfig(
        vocab_size=64, hidden_size=32, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512,
        rms_norm_eps=1e-3, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0})).eval()
    draw(model, 7)
    tokens = [int(t) for t in np.random.default_rng(11).integers(0, 64, N_TOKENS)]
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0][POSITIONS].numpy()
    folder = os.path.join(out, "gpt_transformers")
    model.bfloat16().save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    write(folder + ".bin", tokens, logits)
    print(f"gpt_transformers: logits of deviation {logits.std():.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanochat", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--ablate", action="store_true")
    options = parser.parse_args()
    for preset in COMMITS:
        make(preset, options.nanochat, options.out, options.ablate)
    make_transformers(options.out)


if __name__ == "__main__":
    main()
