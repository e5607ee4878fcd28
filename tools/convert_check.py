#!/usr/bin/env python3
"""Compares `sol model convert` with llama.cpp's converter on models that transformers makes:
quantised and unquantised experts, one file and shards. Every tensor must be the same, byte for
byte, and so must the keys that say what the model is; then the GGUF goes back to a folder whose
tensors must be those that transformers wrote.

    tools/convert_check.py build/sol PATH/convert_hf_to_gguf.py

Needs what tools/golden/requirements.txt lists, and what the converter itself needs.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from gguf import GGUFReader
from safetensors.torch import load_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
import make_hf_tiny as make  # noqa: E402

# The converter knows a tokenizer by a hash of what it does to a text, and stops at tiny ones.
WRAPPER = """
import runpy, sys
sys.path.insert(0, {folder!r})
if {local!r}: sys.path.insert(1, {local!r})
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-4o"
sys.argv = [{script!r}] + sys.argv[1:]
runpy.run_path({script!r}, run_name="__main__")
"""
# Keys that only describe the conversion, or that one side leaves to its default.
IGNORED = ("general.", "GGUF.", "tokenizer.ggml.add_", "gpt-oss.vocab_size", "quantize.")


def run_llama(script, folder, out):
    root = os.path.dirname(os.path.abspath(script))
    local = os.path.join(root, "gguf-py")
    code = WRAPPER.format(folder=root, script=script, local=local if os.path.isdir(local) else "")
    r = subprocess.run([sys.executable, "-c", code, folder, "--outtype", "bf16", "--outfile", out],
                       capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"the converter failed:\n{r.stderr[-3000:]}")


def sol(binary, *args):
    r = subprocess.run([binary, "model", *args], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"sol model {' '.join(args)} failed:\n{r.stderr}")


def field(reader, key):
    f = reader.fields[key]
    return f.contents()


def compare_gguf(theirs, ours):
    a, b = GGUFReader(theirs), GGUFReader(ours)
    ta, tb = ({t.name: t for t in r.tensors} for r in (a, b))
    problems = [f"only in one file: {n}" for n in ta.keys() ^ tb.keys()]
    for n in ta.keys() & tb.keys():
        x, y = ta[n], tb[n]
        if x.tensor_type != y.tensor_type or list(x.shape) != list(y.shape):
            problems.append(f"{n}: {x.tensor_type.name} {list(x.shape)} and "
                            f"{y.tensor_type.name} {list(y.shape)}")
        elif not np.array_equal(x.data.view(np.uint8), y.data.view(np.uint8)):
            problems.append(f"{n}: other bytes")
    keys = 0
    for key in a.fields:
        if key.startswith(IGNORED):
            continue
        keys += 1
        if key not in b.fields:
            problems.append(f"key {key} = {field(a, key)!r:.80} is missing")
        elif field(a, key) != field(b, key):
            problems.append(f"key {key}: {field(a, key)!r:.80} and {field(b, key)!r:.80}")
    return len(ta), keys, problems


def load_all(folder):
    state = {}
    for f in sorted(os.listdir(folder)):
        if f.endswith(".safetensors"):
            state.update(load_file(os.path.join(folder, f)))
    return state


def compare_folders(a, b):
    sa, sb = load_all(a), load_all(b)
    problems = [f"only in one folder: {n}" for n in sa.keys() ^ sb.keys()]
    for n in sa.keys() & sb.keys():
        if sa[n].dtype != sb[n].dtype or sa[n].shape != sb[n].shape or \
                not torch.equal(sa[n].view(torch.uint8), sb[n].view(torch.uint8)):
            problems.append(f"{n}: {sa[n].dtype} {tuple(sa[n].shape)} and "
                            f"{sb[n].dtype} {tuple(sb[n].shape)}")
    return len(sa), problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sol")
    parser.add_argument("converter", help="llama.cpp's convert_hf_to_gguf.py")
    args = parser.parse_args()
    failed = False
    cases = [("mxfp4", True, False, {}), ("bf16", False, False, {}), ("shards", True, True, {}),
             ("odd", True, True, dict(hidden=96, inter=160, layers=3, heads=6, kv_heads=3,
                                      head_dim=32, experts=7, vocab=300, seed=5)),
             ("odd bf16", False, True, dict(hidden=80, inter=48, layers=3, heads=5, kv_heads=1,
                                            head_dim=24, experts=3, vocab=300, seed=6))]
    for name, quantised, sharded, sizes in cases:
        with tempfile.TemporaryDirectory() as work:
            folder, theirs, ours, back = (os.path.join(work, n)
                                          for n in ("hf", "theirs.gguf", "ours.gguf", "back"))
            make.make_model(**sizes).save_pretrained(folder)
            make.write_tokenizer(folder, sizes.get("vocab", 288))
            if quantised:
                make.check_with_transformers(folder, make.quantise(folder))
            if sharded:
                make.split(folder, 3, scatter=False)
            run_llama(args.converter, folder, theirs)
            sol(args.sol, "convert", "-m", folder, "-o", ours)
            tensors, keys, problems = compare_gguf(theirs, ours)
            sol(args.sol, "convert", "-m", ours, "-o", back)
            n, more = compare_folders(folder, back)
            sol(args.sol, "check", "-m", back)
            problems += more
        print(f"{name}: {tensors} tensors and {keys} keys as llama.cpp's, {n} tensors there and back"
              if not problems else f"{name}: {len(problems)} differences")
        for p in problems[:20]:
            print("   ", p)
        failed |= bool(problems)
    return failed


if __name__ == "__main__":
    sys.exit(main())
