#!/usr/bin/env python3
"""Checks nanochat_pt.py on checkpoints that nanochat's own code trained, saved and loads, on the CPU: there and
back every tensor and group must be the same, of July also for two ranks, which train with its own distributed
code over gloo; and groups made without the metadata must be those that nanochat made.

    tools/nanochat_pt_check.py --july PATH --january PATH

PATH are checkouts of karpathy/nanochat, 92d63d4 and ccf4b7f. Needs torch, safetensors and filelock.
"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import nanochat_harness as harness
import torch
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(HERE, "nanochat_pt.py")
FLAGS = ("--depth=3 --aspect-ratio=16 --head-dim=16 --max-seq-len=32 --device-batch-size=2 --total-batch-size=64 "
         "--num-iterations=3")
STEP, VOCAB = 3, 60


def save_code(nanochat):
    """nanochat's checkpoint_manager, which the harness replaces."""
    path = os.path.join(nanochat, "nanochat", "checkpoint_manager.py")
    spec = importlib.util.spec_from_file_location("checkpoint_manager", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Finished:
    def get_future(self):
        return self

    def wait(self):
        pass


def put_collectives(rank, world):
    """gloo has neither averages nor futures."""
    dist = torch.distributed
    add, gather = dist.all_reduce, dist.all_gather

    def all_reduce(tensor, **_):
        add(tensor)
        tensor /= world
        return Finished()

    def reduce_scatter_tensor(out, whole, **_):
        whole = whole.clone()
        all_reduce(whole)
        out.copy_(whole.chunk(world)[rank])
        return Finished()

    def all_gather_into_tensor(out, mine, **_):
        parts = [torch.empty_like(mine) for _ in range(world)]
        gather(parts, mine.contiguous())
        out.copy_(torch.cat(parts))
        return Finished()

    dist.all_reduce, dist.reduce_scatter_tensor = all_reduce, reduce_scatter_tensor
    dist.all_gather_into_tensor = all_gather_into_tensor


def train(nanochat, recipe, folder):
    """Trains and saves; the process of one rank."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    for name in ("LOCAL_RANK", "WORLD_SIZE"):  # base_train itself wants NCCL for more than one
        os.environ.pop(name, None)
    g = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCAB, (8, 2, 33), generator=g)
    inputs, targets = tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
    job = harness.Run(nanochat, recipe, FLAGS, VOCAB, lambda i: (inputs[i], targets[i]))

    def start(gpt):
        for p in gpt.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=g))
        if world > 1:
            torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
            put_collectives(rank, world)

    def state(step, gpt):
        if step != STEP:
            return
        optimizers = [o.state_dict() for o in job.optimizers]
        meta = {"step": STEP, "model_config": {"vocab_size": VOCAB}, "total_batch_size": 64, "user_config": {}}
        save_code(nanochat).save_checkpoint(folder, STEP, gpt.state_dict(),
                                            optimizers[0] if recipe == "2026-07" else optimizers, meta, rank)
        fresh = {"2026-07": "setup_optimizer", "2026-01": "setup_optimizers"}[recipe]
        again = getattr(gpt, fresh)()
        again = again if isinstance(again, list) else [again]
        for optimizer, there in zip(again, optimizers):
            optimizer.load_state_dict(there)

    job.on_start, job.on_state = start, state
    job.go()


def run(*words):
    subprocess.run([sys.executable, *map(str, words)], check=True)


def trained(nanochat, recipe, folder, ranks=1):
    env = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    command = [sys.executable, os.path.abspath(__file__), "--train", recipe, nanochat, folder]
    jobs = [subprocess.Popen(command, env=dict(env, RANK=str(r))) for r in range(ranks)]
    if any([job.wait() for job in jobs]):
        sys.exit(f"{recipe}, {ranks} ranks: training failed")


def same(a, b, where):
    """Equal, tensors bit for bit."""
    if isinstance(a, torch.Tensor):
        if not (isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)):
            sys.exit(f"{where}: tensors differ")
    elif isinstance(a, dict):
        if list(a) != list(b) and set(a) != set(b):
            sys.exit(f"{where}: {set(a) ^ set(b)}")
        for key in a:
            same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        if type(a) is not type(b) or len(a) != len(b):
            sys.exit(f"{where}: {a} and {b}")
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}[{i}]")
    elif a != b:
        sys.exit(f"{where}: {a!r} and {b!r}")


def same_files(a, b):
    names = sorted(os.listdir(a))
    if names != sorted(os.listdir(b)):
        sys.exit(f"{names} and {sorted(os.listdir(b))}")
    for name in names:
        if name.endswith(".pt"):
            one, other = (torch.load(os.path.join(f, name), weights_only=True) for f in (a, b))
            if name.startswith("model") and list(one) != list(other):
                sys.exit(f"{name}: another order")
            same(one, other, name)
        else:
            one, other = (json.load(open(os.path.join(f, name), encoding="utf-8")) for f in (a, b))
            same(one, other, name)
    return len(names)


def round_trip(work, name, ranks):
    source, folder, back = (os.path.join(work, name + end) for end in ("", ".sol", ".back"))
    run(TOOL, "in", source, STEP, "-o", folder)
    run(TOOL, "out", folder, "-o", back, "--ranks", ranks)
    print(f"{name}: {same_files(source, back)} files there and back are the same")
    for file in ("model", "optimizer"):  # as another program writes them: in any order, without metadata
        path = os.path.join(folder, file + ".safetensors")
        tensors = load_file(path)
        save_file(dict(sorted(tensors.items())), path)
    run(TOOL, "out", folder, "-o", back, "--ranks", ranks)
    fresh = [torch.load(os.path.join(f, f"optim_{STEP:06d}_rank0.pt"), weights_only=True) for f in (source, back)]
    for one, other in zip(*(f if isinstance(f, list) else [f] for f in fresh)):
        for there, made in zip(one["param_groups"], other["param_groups"]):
            # what base_train sets at each step may be anything
            free = {"lr", "momentum", "weight_decay"} if there.get("kind", "muon") == "muon" else {"lr"}
            same({k: v for k, v in there.items() if k not in free and k != "initial_lr"},
                 {k: v for k, v in made.items() if k not in free and k != "initial_lr"}, f"{name} made groups")
            if abs(there["initial_lr"] - made["initial_lr"]) > 1e-12:
                sys.exit(f"{name}: initial_lr {there['initial_lr']} and {made['initial_lr']}")
        same(one["state"], other["state"], f"{name} made state")
    print(f"{name}: groups made without metadata are nanochat's")
    return load_file(os.path.join(folder, "optimizer.safetensors"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--july", required=True)
    p.add_argument("--january", required=True)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as work:
        trained(args.july, "2026-07", os.path.join(work, "july"))
        trained(args.july, "2026-07", os.path.join(work, "july2"), ranks=2)
        trained(args.january, "2026-01", os.path.join(work, "january"))
        one = round_trip(work, "july", 1)
        two = round_trip(work, "july2", 2)
        round_trip(work, "january", 1)
        apart = max((two[name] - one[name]).abs().max().item() / (one[name].abs().max().item() or 1) for name in one)
        if set(one) != set(two) or apart > 1e-3:
            sys.exit(f"two ranks on the same tokens: states differ by {apart}")
        print(f"one rank and two on the same tokens: {len(one)} states, apart by {apart:.1e}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[3], sys.argv[2], sys.argv[4])
    else:
        main()
