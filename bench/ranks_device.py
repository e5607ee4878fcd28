#!/usr/bin/env python3
"""sol train on several GPUs of one machine against one of them: are the collectives right, are the losses those of one
GPU, and how much faster is it.

usage: bench/ranks_device.py [--sol build/sol] [--gpus 2,4] [--rounds 3] [--tiny] [--out FILE]

  verify   every collective's variants against their references
  losses   50 updates in float32 of the same rows on 1 and on N GPUs: the largest difference (at most 5e-5)
  speed    depth 20, windows L, 65,536 tokens a GPU, an update after every micro-batch: 1 and N GPUs in turn, tokens/s of
           all, ratio to one GPU (wanted: 1.95 of 2, 3.8 of 4), and what part of a step collectives take
--tiny: shapes for a machine that emulates its GPUs. One JSON object a line on stdout, and in --out.

Exit status: 0 all as wanted, 1 something is not.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

WANTED = {2: 1.95, 4: 3.8}
PARITY = 5e-5
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


def sol(options, *arguments):
    done = subprocess.run([options.sol, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"sol {' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def verify(options):
    ops = [word for op in COLLECTIVES for word in ("--op", op)]
    text = sol(options, "verify", "--backend", "cuda", "--wide", *ops)
    return {"verified": [line.split()[1] for line in text.splitlines() if line.rstrip().endswith(" ok")]}


def losses(options, folder, gpus, most):
    """Of `most` micro-batches an update, however many GPUs do them."""
    text = os.path.join(folder, "text.txt")
    if not os.path.exists(text):
        with open(text, "w") as file:
            for i in range(20000):
                file.write(f"The {i % 17} mills of line {i * 7 % 101} grind {i} sacks of rye by the river.\n")
        sol(options, "tok", "train", text, "--vocab-size", "300", "-o", os.path.join(folder, "words.json"))
    length = 32 if options.tiny else 256
    steps = 2 if options.tiny else 50
    lines = sol(options, "train", "--backend", "cuda", "--gpus", gpus, "-d", text, "--tokenizer", os.path.join(folder, "words.json"),
                "--depth", 2 if options.tiny else 4, "--head-dim", 64, "--max-seq-len", length, "--device-batch-size",
                most // gpus if options.tiny else 1, "--total-batch-size", most * length, "--num-iterations", steps, "--precision", "f32",
                "--eval-every", -1, "--sample-every", -1, "--no-store", "--no-limits", "--json", *options.force)
    return [json.loads(line)["loss"] for line in lines.splitlines() if '"loss"' in line]


def speed(options, gpus):
    shape = ["--depth", 1, "--aspect-ratio", 64, "--head-dim", 64, "--max-seq-len", 32, "--device-batch-size", 1, "--vocab-size", 128, "--warmup-steps", 1,
             "--num-iterations", 1] if options.tiny else \
        ["--depth", 20, "--window-pattern", "L", "--max-seq-len", 2048, "--device-batch-size", 32, "--num-iterations", 10]
    out = json.loads(sol(options, "train", "bench", "--backend", "cuda", "--gpus", gpus, *shape, "--no-store", "--no-limits", "--json",
                         *options.force))
    total = sum(op["ns"] for op in out["ops"])
    passed = sum(op["ns"] for op in out["ops"] if op["op"] in COLLECTIVES)
    return {"tokens_per_s": out["tokens_per_s"], "collectives": passed / total, "tokens": out["tokens"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sol", default="build/sol")
    parser.add_argument("--gpus", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    options.force = ["--force", "self_attention=self_attention_mma_cuda", "--force",
                     "self_attention_backward=self_attention_backward_mma_cuda"] if options.tiny else []
    counts = [int(n) for n in options.gpus.split(",")]
    good = True

    def say(line):
        text = json.dumps(line)
        print(text, flush=True)
        if options.out:
            with open(options.out, "a") as file:
                file.write(text + "\n")

    say(verify(options))
    with tempfile.TemporaryDirectory() as folder:
        one = losses(options, folder, 1, max(counts))
        for n in counts:
            worst = max(abs(a - b) for a, b in zip(one, losses(options, folder, n, max(counts)), strict=True))
            say({"gpus": n, "losses": len(one), "largest_difference": worst, "wanted": PARITY})
            good &= worst <= PARITY
    rounds = [{n: speed(options, n) for n in [1, *counts]} for _ in range(options.rounds)]
    for n in counts:
        ratios = [r[n]["tokens_per_s"] / r[1]["tokens_per_s"] for r in rounds]
        rates = [r[n]["tokens_per_s"] for r in rounds]
        ratio = statistics.median(ratios)
        say({"gpus": n, "tokens_per_s": statistics.median(rates), "least": min(rates), "most": max(rates), "ratio": ratio,
             "ratios": ratios, "wanted": WANTED.get(n), "collectives": statistics.median(r[n]["collectives"] for r in rounds)})
        good &= options.tiny or ratio >= WANTED.get(n, 0)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"ranks_device: {error}")
