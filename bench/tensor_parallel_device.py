#!/usr/bin/env python3
"""Inference on several GPUs of one machine against one of them, in the same run: are the logits those of one GPU, how fast
is decoding, are prompts and batches, and where does a step's time go.

usage: bench/tensor_parallel_device.py [--sol build/sol] [--gpus 2] [--parts verify,decode,...] [--model NAME,...]
                                       [--rounds 1] [--seconds 280] [--tiny] [--out FILE]

  verify   the collectives and joins of the table on N GPUs; then logits of N GPUs against one, over 512 tokens of a model
           cut to 6 layers: divergence (KL), same likeliest token
  decode   tokens/s at batch 1, on 1 and N GPUs, ratio (120b wanted: 1.2 of 2, 1.4 of 4)
  prompt   2,048 and 8,192 tokens (120b wanted for 8,192: 1.8 of 2, 3.3 of 4)
  batch    32 and 128 sequences that decode together at depth 512
  step     time of each op of one decode step on N GPUs, and what part the collectives are
The models are random ones of full size (synth:), made on the way onto the GPUs: no file is needed. Parts run alone; what
fails is said, and the others run. Largest figures first within --seconds: what does not fit any more is said too.
--tiny: shapes for a machine that emulates its GPUs. One JSON object a line on stdout, and in --out.

Exit status: 0 all that ran is as wanted, 1 something is not, or failed.
"""
import argparse
import json
import subprocess
import sys
import time

WANTED = {("decode", 2): 1.2, ("decode", 4): 1.4, ("prompt", 2): 1.8, ("prompt", 4): 3.3}
PARTS = ("verify", "decode", "prompt", "batch", "step")
COLLECTIVES = ("all_reduce", "all_gather")


class Run:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.good = True
        self.out = open(options.out, "a") if options.out else None

    def left(self):
        return self.options.seconds - (time.monotonic() - self.began)

    def say(self, **fields):
        line = json.dumps({"at_s": round(time.monotonic() - self.began, 1), **fields})
        print(line, flush=True)
        if self.out:
            print(line, file=self.out, flush=True)

    def sol(self, *arguments, least=5):
        if self.left() < least:
            raise RuntimeError(f"no time left for sol {' '.join(map(str, arguments))}")
        began = time.monotonic()
        try:
            done = subprocess.run([self.options.sol, *map(str, arguments)], capture_output=True, text=True,
                                  timeout=max(self.left(), least))
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"sol {' '.join(map(str, arguments))}: stopped after {error.timeout:.0f} s") from error
        if done.returncode:
            raise RuntimeError(f"sol {' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout, time.monotonic() - began


def place(gpus):
    return ["--backend", "cuda", "--gpus", gpus]


def verify(run, model):
    options = run.options
    if model == options.models[0]:
        ops = [word for op in (*COLLECTIVES, "join_columns", "attn_add", "attn_route") for word in ("--op", op)]
        text, took = run.sol("verify", "--backend", "cuda", "--rounds", 1, "--wide", *ops)
        rows = [line.split() for line in text.splitlines() if "_cuda " in line]
        run.say(part="verify", verified=[row[1] for row in rows if "ok" in row], failed=[row[1] for row in rows if "FAILED" in row],
                seconds=round(took, 1))
    layers = 2 if options.tiny else 6
    for flags in ([], ["--exact"]):
        text, took = run.sol("perplexity", "-m", f"{model},layers={layers}", "--random-tokens", 40 if options.tiny else 512, "-q", "--json",
                             "--kl-one", *flags, *place(options.gpus))
        out = json.loads(text)
        reference = out["reference"]
        # Random weights: the likeliest token is not far ahead, so a change is a fault only where the logits say so.
        good = reference["kl_mean"] < 1e-3 and reference["top_margin"] <= reference["tolerance"]
        run.good &= good
        run.say(part="verify", model=model, layers=layers, gpus=options.gpus, exact=bool(flags), kl_mean=reference["kl_mean"],
                kl_max=reference["kl_max"], same_top=reference["same_top"], top_margin=reference["top_margin"],
                tolerance=reference["tolerance"], nll=out["nll"], nll_one=reference["nll"], good=good,
                kernels=sorted({kernel["variant"] for kernel in out["kernels"]}), seconds=round(took, 1))


def bench(run, model, gpus, *tests):
    text, took = run.sol("bench", "-m", model, "--no-limits", "--no-store", "-q", "--json", *tests, *place(gpus), least=20)
    return json.loads(text), took


def name_of(result):
    name = f"pp{result['n_prompt']}" if result["n_prompt"] else f"tg{result['n_gen']}"
    return name + (f" x{result['n_parallel']}" if result["n_parallel"] > 1 else "") + (f" d{result['n_depth']}" if result["n_depth"] else "")


def compare(run, part, model, tests):
    one, took_one = bench(run, model, 1, *tests)
    all_, took = bench(run, model, run.options.gpus, *tests)
    first = {name_of(result): result for result in one}
    for result in all_:
        name, speed = name_of(result), result["ts"]
        single = first.get(name, {}).get("ts")
        ratio = speed / single if single else None
        wanted = WANTED.get((part, run.options.gpus)) if "120b" in model and (part != "prompt" or name == "pp8192") else None
        good = (wanted is None or (ratio or 0) >= wanted) and result["proved"]
        run.good &= good
        run.say(part=part, model=model, test=name, gpus=run.options.gpus, one=single, all=speed, ratio=ratio, proved=result["proved"], wanted=wanted,
                good=good, seconds_one=round(took_one, 1), seconds=round(took, 1))


def decode(run, model):
    tests = ["-p", 0, "-n", 4, "-r", 1] if run.options.tiny else ["-p", 0, "-n", 128, "-d", 512, "-r", 5]
    compare(run, "decode", model, tests)


def prompt(run, model):
    tests = ["-p", "16,40", "-n", 0, "-r", 1] if run.options.tiny else ["-p", "2048,8192", "-n", 0, "-r", 4]
    compare(run, "prompt", model, tests)


def batch(run, model):
    tests = ["-p", 0, "-n", 2, "-npl", "3", "-r", 1] if run.options.tiny else ["-p", 0, "-n", 32, "-d", 512, "-npl", "32,128", "-r", 3]
    compare(run, "batch", model, tests)


def step(run, model):
    tests = ["-p", 0, "-n", 2, "-r", 1] if run.options.tiny else ["-p", 0, "-n", 32, "-d", 512, "-r", 1]
    out, took = bench(run, model, run.options.gpus, *tests, "--ops")
    for result in out:
        kernels = result["kernels"]
        times = {f"{kernel['op']}:{kernel['variant']}": kernel["us_per_step"] for kernel in kernels}
        run.say(part="step", model=model, test=name_of(result), gpus=run.options.gpus, proved=result["proved"],
                us=round(sum(times.values()), 1),
                collectives_us=round(sum(us for name, us in times.items() if name.split(":")[0] in COLLECTIVES), 1),
                us_per_step={name: round(us, 1) for name, us in sorted(times.items(), key=lambda item: -item[1])[:16]},
                seconds=round(took, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sol", default="build/sol")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--model", default="synth:gpt-oss-120b,synth:gpt-oss-20b")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    options.models = ["synth:small"] if options.tiny else options.model.split(",")
    run = Run(options)
    parts = [part for part in PARTS if part in options.parts.split(",")]
    for part in parts:
        for model in options.models:
            for _ in range(1 if part in ("verify", "step") else options.rounds):
                try:
                    globals()[part](run, model)
                except (RuntimeError, KeyError, ValueError, TypeError) as error:
                    run.good = False
                    run.say(part=part, model=model, gpus=options.gpus, failed=f"{type(error).__name__}: {error}")
    run.say(part="all", good=run.good)
    sys.exit(0 if run.good else 1)


if __name__ == "__main__":
    main()
