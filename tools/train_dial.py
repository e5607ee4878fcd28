#!/usr/bin/env python3
"""Makes tests/data/train_dial.json: what nanochat's base_train derives from its flags. For each set of flags the
size of the model, batch and horizon, rates and decays of the groups of its optimizers, and for some updates the
factor of the rates, Muon's momentum and decay.

    tools/train_dial.py --july PATH --january PATH > tests/data/train_dial.json

PATH are checkouts of karpathy/nanochat, 92d63d4 and ccf4b7f; base_train itself computes it all (see
nanochat_harness.py), on models without numbers. Needs torch and filelock.
"""
import argparse
import json
import os
import subprocess
import sys

import nanochat_harness as harness

SETS = [("2026-07", v, flags) for v, flags in (
    (32768, "--depth=4"), (32768, "--depth=12"), (32768, "--depth=20"), (65536, "--depth=24"),
    (50257, "--depth=7 --aspect-ratio=50 --max-seq-len=1024 --window-pattern=SL"),
    (32768, "--depth=26 --window-pattern=L --target-param-data-ratio=8.25 --weight-decay=0.2"),
    (32768, "--depth=12 --target-flops=1e18 --device-batch-size=16"),
    (32768, "--depth=20 --total-batch-size=131072 --device-batch-size=8 --num-iterations=1500 --warmup-steps=0"),
    (300, "--depth=3 --aspect-ratio=20 --head-dim=32 --max-seq-len=256 --device-batch-size=2 --total-batch-size=512 "
          "--num-iterations=450 --embedding-lr=1 --unembedding-lr=0.1 --matrix-lr=0.3 --scalar-lr=2 "
          "--warmup-steps=10 --warmdown-ratio=0.9 --final-lr-frac=0.1"),
)] + [("2026-01", v, flags) for v, flags in (
    (65536, "--depth=20"), (50257, "--depth=12 --target-param-data-ratio=20"),
    (65536, "--depth=7 --aspect-ratio=50 --max-seq-len=1024"), (65536, "--depth=20 --target-flops=1e19"),
    (300, "--depth=3 --aspect-ratio=20 --head-dim=32 --max-seq-len=256 --device-batch-size=2 --total-batch-size=512 "
          "--num-iterations=450 --embedding-lr=1 --unembedding-lr=0.1 --matrix-lr=0.3 --weight-decay=0.1 "
          "--adam-beta1=0.9 --adam-beta2=0.99 --warmup-ratio=0.1 --warmdown-ratio=0.3 --final-lr-frac=0.2"),
)]
GROUPS = {"2026-07": ["head", "embed", "values", "resid", "x0", "smear"], "2026-01": ["head", "embed"]}


def rates_of(job, recipe):
    groups = [g for o in job.optimizers for g in o.param_groups]
    out = {}
    for name, group in zip(GROUPS[recipe], groups):
        out[name] = {"lr": group["initial_lr"], "beta1": group["betas"][0], "beta2": group["betas"][1],
                     "decay": group["weight_decay"]}
    out["matrix"] = {"lr": groups[-1]["initial_lr"]}
    if recipe == "2026-07":
        out["matrix"] |= {"beta2": groups[-1]["beta2"], "decay": groups[-1]["weight_decay"]}
    return out


def one(nanochat, recipe, vocab, flags):
    import torch
    tokens = torch.zeros(1, 2, dtype=torch.long)
    job = harness.Run(nanochat, recipe, flags, vocab, lambda i: (tokens, tokens), meta=True)
    job.go()
    s, gpt = job.script, job.gpt
    n = s["num_iterations"]
    steps = sorted({t for t in (0, 1, 9, 39, 40, 200, 299, 300, 399, 400, 401, n // 3, n // 2, n - n // 5, n - 1)
                    if 0 <= t < n})
    out = {"recipe": recipe, "vocab_size": vocab, "flags": flags, "width": gpt.config.n_embd,
           "heads": gpt.config.n_head, "parameters": sum(p.numel() for p in gpt.parameters()),
           "scaling_parameters": s["num_scaling_params"], "flops_per_token": s["num_flops_per_token"],
           "total_batch_size": s["total_batch_size"] if recipe == "2026-07" else s["args"].total_batch_size,
           "iterations": n, "accumulation": s["grad_accum_steps"], "rates": rates_of(job, recipe), "schedule": []}
    for t in steps:
        at = {"step": t, "lr": s["get_lr_multiplier"](t), "momentum": s["get_muon_momentum"](t)}
        if recipe == "2026-07":
            at["decay"] = s["get_weight_decay"](t)
        out["schedule"].append(at)
    print(json.dumps(out))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--july", required=True)
    p.add_argument("--january", required=True)
    p.add_argument("--one", type=int, help=argparse.SUPPRESS)  # a set of flags, in a process of its own
    args = p.parse_args()
    if args.one is not None:
        recipe, vocab, flags = SETS[args.one]
        one(args.july if recipe == "2026-07" else args.january, recipe, vocab, flags)
        return
    lines = []
    for i in range(len(SETS)):
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], f"--one={i}"]
        lines.append(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
