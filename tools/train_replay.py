#!/usr/bin/env python3
"""Makes a folder for `sol train replay` from nanochat's own code: a small training run, defined by weights,
tokens and flags, and what nanochat computes in it.

    tools/train_replay.py make DIR --nanochat PATH --flags="--depth=4 ..." --vocab-size=96
                          [--recipe=2026-07] [--start=warm] [--eval-steps=0,1,20] [--keep=PATTERN ...]
    tools/train_replay.py again DIR --nanochat PATH --dtype=float64 -o FILE

PATH is a checkout of karpathy/nanochat: 92d63d4 for the recipe 2026-07, ccf4b7f for 2026-01. Its base_train.py
itself runs (see nanochat_harness.py), in float32 on the CPU. Needs torch, safetensors and filelock.

config.json            flags (base_train's, and --recipe), vocab_size, steps, eval_steps
init.safetensors       weights under nanochat's names
batches.safetensors    x, y [steps * micro-batches, B, T] and eval.x, eval.y [B, T], int32; -1 in y: no target
expected.safetensors   what sol is to write, float32: train.loss [steps], the mean over the micro-batches of a
                       step; and for each S of eval_steps, after S updates: eval.S.loss, eval.S.nll [B, T] (0
                       without a target), grad.S.NAME of eval.S.loss, w.S.NAME. --keep: only those gradients
                       and weights that match a pattern of a shell.

`again` does the run of a folder once more, in float64 (what rounding of float32 costs: see
train_replay_check.py) or in bfloat16 (July, as on a GPU).

--start=own: as nanochat initialises. --start=warm: every tensor that is zero at first gets small random
numbers, scales and gates lie away from neutral, and the head is large enough for the softcap to be felt, so
that no gradient is analytically zero. Weights are rounded to bfloat16 and stored so, which halves the file.
"""
import argparse
import fnmatch
import json
import os
import sys

import nanochat_harness as harness
import torch
from safetensors.torch import load_file, save_file

NO_TARGET, SHARE_WITHOUT = -1, 0.03


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["make", "again"])
    p.add_argument("folder")
    p.add_argument("--nanochat", required=True)
    p.add_argument("--flags", default="")
    p.add_argument("--recipe", choices=list(harness.COMMITS), default="2026-07")
    p.add_argument("--vocab-size", type=int, default=96)
    p.add_argument("--steps", type=int, help="default: --num-iterations of the flags")
    p.add_argument("--start", choices=["own", "warm"], default="warm")
    p.add_argument("--eval-steps", default="0,20", help="numbers of updates, divided by commas")
    p.add_argument("--keep", action="append", help="tensors to store, say 'grad.0.*'; default all")
    p.add_argument("--seed", type=int, default=1, help="of tokens and of the warm start")
    p.add_argument("--dtype", choices=["float32", "float64", "bfloat16"], default="float32")
    p.add_argument("-o", "--out", help="again: the file to write")
    args = p.parse_args()
    if args.what == "again" and not args.out:
        p.error("again needs -o FILE")
    return args


# ---- tokens ----

def flag(flags, name):
    for word in harness.words_of(flags, "2026-07"):
        if word.startswith(f"--{name}="):
            return int(word.partition("=")[2])
    sys.exit(f"--flags must have --{name}=")


def text(vocab, count, g):
    """Tokens that can be learnt: each mostly follows from the one before it."""
    successor = torch.randperm(vocab, generator=g).tolist()
    surprise = torch.rand(count, generator=g).tolist()
    fresh = (vocab * torch.rand(count, generator=g) ** 2).long().tolist()  # small ones are more frequent
    out = [fresh[0]]
    for i in range(1, count):
        out.append(successor[out[-1]] if surprise[i] < 0.6 else fresh[i])
    return torch.tensor(out, dtype=torch.int32)


def make_batches(args, steps):
    B, T, total = (flag(args.flags, n) for n in ("device-batch-size", "max-seq-len", "total-batch-size"))
    if total % (B * T):
        sys.exit("--total-batch-size must be a multiple of --device-batch-size times --max-seq-len")
    g = torch.Generator().manual_seed(args.seed)
    count = steps * (total // (B * T)) + 1
    rows = text(args.vocab_size, count * B * (T + 1), g).view(count, B, T + 1)
    x, y = rows[..., :-1].contiguous(), rows[..., 1:].contiguous()
    y[torch.rand(y.shape, generator=g) < SHARE_WITHOUT] = NO_TARGET
    return {"x": x[:-1].contiguous(), "y": y[:-1].contiguous(),
            "eval.x": x[-1].contiguous(), "eval.y": y[-1].contiguous()}


# ---- weights ----

def warm(gpt, seed):
    g = torch.Generator().manual_seed(seed)
    for name, p in gpt.named_parameters():
        noise = torch.randn(p.shape, generator=g)
        if name == "resid_lambdas":
            p.add_(0.05 * noise)
        elif name == "x0_lambdas":
            p.add_(0.1 + 0.05 * noise)
        elif name == "smear_lambda":
            p.fill_(0.4)
        elif name == "backout_lambda":
            p.fill_(0.3)
        elif name.endswith("gate.weight"):
            p.copy_(0.3 * noise)
        elif name == "lm_head.weight":
            p.copy_(0.3 * noise * (32 / p.shape[1]) ** 0.5)
        elif name.endswith("c_proj.weight"):
            p.copy_(0.5 * noise * p.shape[1] ** -0.5)


def round_weights(gpt):
    for p in gpt.parameters():
        p.copy_(p.to(torch.bfloat16))


# ---- the run ----

class Recorder:
    def __init__(self, batches, config):
        self.batches, self.config, self.out = batches, config, {}
        self.losses = [[] for _ in range(config["steps"])]

    def loss(self, step, loss):
        self.losses[step].append(loss.item())

    def state(self, step, gpt):
        if step not in self.config["eval_steps"]:
            return
        x, y = self.batches["eval.x"].long(), self.batches["eval.y"].long()
        with torch.no_grad():
            nll = gpt(x, y, loss_reduction="none").view(x.shape)
        loss = gpt(x, y)
        loss.backward()
        self.out[f"eval.{step}.loss"] = harness.float32_of(loss)
        self.out[f"eval.{step}.nll"] = harness.float32_of(nll)
        for name, p in gpt.named_parameters():
            self.out[f"grad.{step}.{name}"] = harness.float32_of(p.grad)
            self.out[f"w.{step}.{name}"] = harness.float32_of(p)
        gpt.zero_grad(set_to_none=True)

    def result(self):
        rows = torch.tensor(self.losses, dtype=torch.double).mean(1)
        wide = any(t.dtype == torch.double for t in self.out.values())
        self.out["train.loss"] = rows if wide else rows.to(torch.float)
        return self.out


def run(args, config, batches, on_start):
    recipe = "2026-01" if "--recipe=2026-01" in config["flags"] else "2026-07"
    recorder = Recorder(batches, config)
    last = len(batches["x"]) - 1

    def batch(i):
        return batches["x"][min(i, last)].long(), batches["y"][min(i, last)].long()

    job = harness.Run(args.nanochat, recipe, config["flags"], config["vocab_size"], batch,
                      steps=config["steps"], dtype=args.dtype)
    job.on_start, job.on_state, job.on_loss = on_start, recorder.state, recorder.loss
    job.go()
    return recorder.result()


def make(args):
    steps = args.steps or flag(args.flags, "num-iterations")
    flags = args.flags if args.recipe == "2026-07" else f"{args.flags} --recipe={args.recipe}"
    evals = sorted({int(s) for s in args.eval_steps.split(",")})
    config = {"flags": " ".join(flags.split()), "vocab_size": args.vocab_size, "steps": steps, "eval_steps": evals}
    batches = make_batches(args, steps)
    init = {}

    def on_start(gpt):
        if args.start == "warm":
            warm(gpt, args.seed + 1)
        round_weights(gpt)
        init.update({name: p.detach().to(torch.bfloat16) for name, p in gpt.named_parameters()})

    out = run(args, config, batches, on_start)
    if args.keep:
        out = {name: t for name, t in out.items() if not name.startswith(("grad.", "w."))
               or any(fnmatch.fnmatchcase(name, pattern) for pattern in args.keep)}
    os.makedirs(args.folder, exist_ok=True)
    with open(os.path.join(args.folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    for name, tensors in (("init", init), ("batches", batches), ("expected", out)):
        save_file(tensors, os.path.join(args.folder, name + ".safetensors"))


def again(args):
    with open(os.path.join(args.folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    files = {n: load_file(os.path.join(args.folder, n + ".safetensors")) for n in ("init", "batches")}

    def on_start(gpt):
        for name, p in gpt.named_parameters():
            p.copy_(files["init"].pop(name))
        if files["init"]:
            sys.exit(f"init.safetensors has what the model has not: {', '.join(files['init'])}")

    save_file(run(args, config, files["batches"], on_start), args.out)


def main():
    args = options()
    {"make": make, "again": again}[args.what](args)


if __name__ == "__main__":
    main()
