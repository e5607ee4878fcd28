#!/usr/bin/env python3
"""How often does `sol compare` of stored runs find a difference where there is none? Runs of one command, one start
each, and of several starts, compared with each other; before that the machine is calibrated, as a user would.

    bench/stored_aa.py --sol build/sol [--runs 24] [--comparisons 200] [--out FILE]

About three minutes. The share of wrong verdicts is tested against 5 % (binomial); exit status 1 above that."""
import argparse
import collections
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--sol", default="build/sol")
parser.add_argument("--runs", type=int, default=24)
parser.add_argument("--comparisons", type=int, default=200)
parser.add_argument("--model", default="synth:tiny")
parser.add_argument("--out")
args = parser.parse_args()
sol = os.path.abspath(args.sol)
os.environ["SOL_STORE"] = tempfile.mkdtemp()
bench = ["bench", "-q", "-m", args.model, "--no-limits", "-p", "64", "-n", "32", "-r", "8"]


def run(*words):
    done = subprocess.run([sol, *words], capture_output=True, text=True)
    return done.returncode, done.stdout


def more(hits, trials, rate):
    """The chance of so many or more."""
    return sum(math.comb(trials, k) * rate ** k * (1 - rate) ** (trials - k) for k in range(hits, trials + 1))


run("compare", "--calibrate", "-q")
for i in range(args.runs):
    run(*bench, "--label", f"one{i}")
for i in range(args.runs // 4):
    run(*bench, "--starts", "3", "--label", f"three{i}")
noisy = sum(r["badge"] == "noisy" for r in json.loads(run("runs", "-n", "0", "--kind", "bench", "-o", "json")[1])["runs"])
rng = random.Random(1)
result, bad = {"runs": args.runs, "noisy": noisy, "verdicts": {}}, 0
for kind, count in (("one", args.runs), ("three", args.runs // 4)):
    pairs = list(itertools.permutations(range(count), 2))
    verdicts = collections.Counter()
    for a, b in (rng.choice(pairs) for _ in range(args.comparisons)):
        verdicts[json.loads(run("compare", f"{kind}{a}", f"{kind}{b}", "-o", "json")[1])["verdict"]] += 1
    wrong = verdicts["faster"] + verdicts["slower"]
    p = more(wrong, args.comparisons, 0.05)
    bad += p < 0.025
    result["verdicts"][kind] = {**verdicts, "wrong": wrong, "p": p}
    print(f"{kind}: of {args.comparisons} {dict(verdicts)}: {wrong} wrong, p of more than 5 %: {p:.3g}")
print(f"{noisy} runs were noisy; load {os.getloadavg()[0]:.1f}")
if args.out:
    with open(args.out, "w") as out:
        json.dump({**result, "load": os.getloadavg()[0]}, out, indent=1)
sys.exit(bad > 0)
