#!/usr/bin/env python3
"""Does sol learn what nanochat learns? The same first weights, the same tokens of a real text, the same number of updates, in
bf16 on one GPU, for some seeds; nanochat's own base_train under torch.compile (see tools/nanochat_harness.py).

usage: bench/train_parity_device.py --nanochat PATH --text FILE [--sol build/sol] [--seeds 1,2,3] [--depth 12] [--steps 300]
                                    [--rows 32] [--length 2048] [--vocab 32768] [--flags="--head-dim=64"] [--seconds S]
                                    [--cpu] [--out FILE]

PATH is a checkout of karpathy/nanochat, 92d63d4. A vocabulary is made of the text, its tokens are cut into rows, which are
shuffled; a step has --rows of --length tokens. Of each seed nanochat makes the weights and trains; then `sol train replay` does
with the same weights. Compared are the mean loss of the last 20 steps and the loss of a batch that nobody trained on, after
the last one. As wanted: the means over the seeds are no farther apart than nanochat's highest and lowest seed.

--cpu: in float32 on the processor and not compiled, to try it out. One JSON object a line on stdout, and in --out.

Exit status: 0 as wanted, 1 not, or something failed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

LAST = 20


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nanochat", required=True)
    p.add_argument("--text", required=True)
    p.add_argument("--sol", default="build/sol")
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--depth", type=int, default=12)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--rows", type=int, default=32)
    p.add_argument("--length", type=int, default=2048)
    p.add_argument("--vocab", type=int, default=32768)
    p.add_argument("--flags", default="", help="more of base_train's, for both")
    p.add_argument("--seconds", type=float, default=560)
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--out")
    p.add_argument("--child", type=int, help=argparse.SUPPRESS)  # a seed, of which nanochat is run
    p.add_argument("--folder", help=argparse.SUPPRESS)
    return p.parse_args()


def flags_of(args):
    return (f"--depth={args.depth} --max-seq-len={args.length} --device-batch-size={args.rows} "
            f"--total-batch-size={args.rows * args.length} --num-iterations={args.steps} {args.flags}").strip()


# ---- tokens ----

def make_batches(args, folder):
    import numpy
    from safetensors.numpy import save_file
    vocabulary = os.path.join(folder, "vocabulary.json")
    subprocess.run([args.sol, "tok", "train", args.text, "--vocab-size", str(args.vocab - 9), "--special-set", "nanochat",
                    "-o", vocabulary], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ids = os.path.join(folder, "ids")
    with open(ids, "wb") as file:
        subprocess.run([args.sol, "tok", "encode", "--vocab", vocabulary, args.text], check=True, stdout=file)
    tokens = numpy.fromfile(ids, dtype=numpy.int32, sep=" ")
    wanted, size = (args.steps + 1) * args.rows, args.length + 1
    rows = tokens[:len(tokens) // size * size].reshape(-1, size)
    order = numpy.random.default_rng(0).permutation(len(rows))
    epochs = -(-(wanted - args.rows) // (len(rows) - args.rows))
    taken = numpy.concatenate([order[:args.rows], *[order[args.rows:]] * epochs])[:wanted]  # the first are for evaluation
    batches = rows[taken].reshape(args.steps + 1, args.rows, size)
    x, y = numpy.ascontiguousarray(batches[..., :-1]), numpy.ascontiguousarray(batches[..., 1:])
    save_file({"x": x[1:], "y": y[1:], "eval.x": x[0], "eval.y": y[0]}, os.path.join(folder, "batches.safetensors"))
    return {"tokens": len(tokens), "epochs": round((wanted - args.rows) / (len(rows) - args.rows), 2),
            "bytes_per_token": round(os.path.getsize(args.text) / len(tokens), 2)}


# ---- nanochat, in a process of its own ----

def child(args):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))
    import nanochat_harness as harness
    import torch
    from safetensors.torch import load_file, save_file
    batches = load_file(os.path.join(args.folder, "batches.safetensors"))
    last, losses, out, began = len(batches["x"]) - 1, [], {}, [0.0]

    def batch(i):
        return batches["x"][min(i, last)].long(), batches["y"][min(i, last)].long()

    def on_start(gpt):
        save_file({name: p.detach().float().cpu().contiguous() for name, p in gpt.named_parameters()},
                  os.path.join(args.folder, "init.safetensors"))

    def on_state(step, gpt):
        if step == 10:
            began[0] = time.monotonic()
        if step == args.steps:
            out["seconds"] = (time.monotonic() - began[0]) * args.steps / max(args.steps - 10, 1)
            with torch.no_grad():
                x, y = batches["eval.x"].long(), batches["eval.y"].long()
                rows = [gpt(x[i:i + 4].to(run.device), y[i:i + 4].to(run.device)).item() for i in range(0, args.rows, 4)]
            out["eval"] = statistics.mean(rows)

    run = harness.Run(args.nanochat, "2026-07", flags_of(args), args.vocab, batch, steps=args.steps, seed=args.child,
                      dtype="float32" if args.cpu else "bfloat16", compiled=not args.cpu, device="cpu" if args.cpu else "cuda")
    run.on_start, run.on_state, run.on_loss = on_start, on_state, lambda _, loss: losses.append(loss.clone())
    run.go()
    out["losses"] = [loss.item() for loss in losses[:args.steps]]
    print(json.dumps(out))


# ---- both ----

class Parity:
    def __init__(self, args):
        self.args, self.began, self.file = args, time.monotonic(), open(args.out, "a") if args.out else None

    def left(self):
        return self.args.seconds - (time.monotonic() - self.began)

    def say(self, **fields):
        line = json.dumps({"at_s": round(time.monotonic() - self.began, 1), **fields})
        print(line, flush=True)
        if self.file:
            print(line, file=self.file, flush=True)

    def run(self, command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(self.left(), 1))
        if done.returncode:
            raise RuntimeError(f"{command[0]}: status {done.returncode}: {done.stderr.strip()[-800:]}")
        return done.stdout

    def nanochat(self, folder, seed):
        out = self.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--child", str(seed), "--folder", folder])
        return json.loads(out.splitlines()[-1])

    def sol(self, folder):
        from safetensors.numpy import load_file
        result, began = os.path.join(folder, "out.safetensors"), time.monotonic()
        self.run([self.args.sol, "train", "replay", folder, "-q", "-o", result,
                  *(["--exact"] if self.args.cpu else ["--backend", "cuda"])])
        out = load_file(result)
        os.remove(result)
        return {"losses": [float(loss) for loss in out["train.loss"]], "eval": float(out[f"eval.{self.args.steps}.loss"].reshape(-1)[0]),
                "seconds": time.monotonic() - began}

    def seed(self, folder, seed):
        rows = {"nanochat": self.nanochat(folder, seed), "sol": self.sol(folder)}
        for engine, row in rows.items():
            row["last"] = statistics.mean(row["losses"][-LAST:])
            self.say(engine=engine, seed=seed, last=row["last"], eval=row["eval"], seconds=round(row["seconds"], 1),
                     losses=[round(loss, 5) for loss in row["losses"][::max(self.args.steps // 30, 1)]])
        return rows

    def compare(self, seeds, what):
        means, spreads = {}, {}
        for engine in ("nanochat", "sol"):
            values = [rows[engine][what] for rows in seeds]
            means[engine], spreads[engine] = statistics.mean(values), max(values) - min(values)
        apart = means["sol"] - means["nanochat"]
        good = abs(apart) <= spreads["nanochat"]
        self.say(what=what, seeds=len(seeds), nanochat=means["nanochat"], sol=means["sol"], sol_minus_nanochat=apart,
                 spread=spreads["nanochat"], spread_sol=spreads["sol"],
                 each=[rows["sol"][what] - rows["nanochat"][what] for rows in seeds], good=good)
        return good

    def go(self):
        args, seeds, good = self.args, [], True
        with tempfile.TemporaryDirectory() as folder:
            self.say(text=make_batches(args, folder), flags=flags_of(args), vocab=args.vocab)
            with open(os.path.join(folder, "config.json"), "w") as file:
                json.dump({"flags": flags_of(args), "vocab_size": args.vocab, "steps": args.steps, "eval_steps": [args.steps]}, file)
            for seed in map(int, args.seeds.split(",")):
                try:
                    seeds.append(self.seed(folder, seed))
                except (RuntimeError, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
                    good = False
                    self.say(seed=seed, failed=f"{type(error).__name__}: {error}"[-1000:])
        if not seeds:
            return False
        return all([self.compare(seeds, what) for what in ("last", "eval")]) and good


def main():
    args = options()
    if args.child is not None:
        child(args)
        return 0
    return 0 if Parity(args).go() else 1


if __name__ == "__main__":
    sys.exit(main())
