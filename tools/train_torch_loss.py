#!/usr/bin/env python3
"""The loss of nanochat's own training on the tokens of a file, for a few seeds: what sol's is compared with.

    tools/train_torch_loss.py --nanochat PATH --tokens FILE -o curve.json [--seeds 42,43,44] [--flags "..."]
                              [--vocab-size N] [--recipe 2026-07] [--device cuda|cpu] [--dtype float32]

PATH is a checkout of karpathy/nanochat (see nanochat_harness.py), whose base_train.py itself runs: on a GPU in
bfloat16 under torch.compile. The default is depth 12, 300 steps of 65,536 tokens, vocabulary 32768, full windows.
FILE holds tokens: sol's own kind, llm.c's, or uint16 without a header. Row r of the run has the tokens r*T to
r*T + T, so that each is predicted once (sol train's packing as a stream); after the last comes the first
again. Batch b of B rows has the rows b*B and so on. A seed is of the initial weights alone.

curve.json: flags, vocab_size, torch, device, seeds, and loss: for each seed the mean loss of each step's
micro-batches, before the update. Each seed has a process of its own. Needs torch and filelock.
"""
import argparse
import json
import os
import struct
import subprocess
import sys

import nanochat_harness as harness

FLAGS = ("--depth=12 --num-iterations=300 --total-batch-size=65536 --device-batch-size=32 --max-seq-len=2048 "
         "--window-pattern=L")
LLMC = {(20240520, 1): 2, (20240801, 7): 4}  # bytes of a token


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nanochat", required=True)
    p.add_argument("--tokens", required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--seeds", default="42,43,44")
    p.add_argument("--flags", default=FLAGS)
    p.add_argument("--vocab-size", type=int, default=32768)
    p.add_argument("--recipe", choices=list(harness.COMMITS), default="2026-07")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--dtype", choices=["bfloat16", "float32"], help="default: bfloat16 on a GPU, else float32")
    p.add_argument("--eager", action="store_true", help="without torch.compile")
    p.add_argument("--seed", type=int, help=argparse.SUPPRESS)  # one seed, in a process of its own
    return p.parse_args()


def read_tokens(path):
    import torch
    with open(path, "rb") as f:
        data = bytearray(f.read())
    at, width, count = 0, 2, len(data) // 2
    if data[:8] == b"soltoken":
        _, width, count = struct.unpack_from("<IIQ", data, 8)
        at = 64
    elif len(data) >= 1024 and struct.unpack_from("<2i", data) in LLMC:
        width, count = LLMC[struct.unpack_from("<2i", data)], struct.unpack_from("<i", data, 8)[0]
        at = 1024
    if count < 2 or at + count * width > len(data):
        sys.exit(f"{path}: {len(data)} bytes are not {count} tokens")
    return torch.frombuffer(data, dtype={2: torch.uint16, 4: torch.int32}[width], offset=at, count=count).long()


def shape_of(args):
    words = dict(word.removeprefix("--").split("=", 1) for word in harness.words_of(args.flags, "2026-07"))
    return int(words["device-batch-size"]), int(words["max-seq-len"])


def one(args):
    import torch
    tokens, (B, T), losses = read_tokens(args.tokens), shape_of(args), []
    if tokens.max() >= args.vocab_size:
        sys.exit(f"{args.tokens}: token {tokens.max()} is none of {args.vocab_size}")
    rows, within = torch.arange(B)[:, None], torch.arange(T + 1)

    def batch(i):
        chunk = tokens[((i * B + rows) * T + within) % len(tokens)]
        return chunk[:, :-1].contiguous(), chunk[:, 1:].contiguous()

    dtype = args.dtype or ("bfloat16" if args.device == "cuda" else "float32")
    job = harness.Run(args.nanochat, args.recipe, args.flags, args.vocab_size, batch, dtype=dtype,
                      compiled=not args.eager, device=args.device, seed=args.seed)

    def on_loss(step, loss):
        if step == len(losses):
            losses.append([])
        losses[step].append(loss.clone())

    job.on_loss = on_loss
    job.go()
    about = {"torch": torch.__version__, "dtype": dtype,
             "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu"}
    print(json.dumps(about | {"loss": [sum(x.item() for x in step) / len(step) for step in losses]}))


def main():
    args = options()
    if args.seed is not None:
        one(args)
        return
    result = {"flags": args.flags, "recipe": args.recipe, "vocab_size": args.vocab_size, "seeds": [], "loss": []}
    for seed in map(int, args.seeds.split(",")):
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], f"--seed={seed}"]
        said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        result["seeds"].append(seed)
        result["loss"].append(said.pop("loss"))
        result |= said
        with open(args.out, "w", encoding="utf-8") as f:  # what there is, should a later seed fail
            json.dump(result, f)
        print(f"seed {seed}: loss {result['loss'][-1][0]:.4f} to {result['loss'][-1][-1]:.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
