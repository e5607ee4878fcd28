#!/usr/bin/env python3
"""sol beside llama.cpp on one NVIDIA GPU, same GGUF files; see bench/README.md.

usage: MODEL="a.gguf b.gguf" LLAMA_BENCH=llama-bench bench/cuda_vs_llama.py [option ...]
Every option is also a variable in capitals: --rounds 5 is ROUNDS=5.
"""
import argparse
import csv
import io
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time

GB = 1e9
HERE = os.path.dirname(os.path.abspath(__file__))


def say(*words):
    print(*words, flush=True)


def note(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    sys.exit("cuda_vs_llama: " + text)


def run(command, what, accept=(0,)):
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    note(f"{what}: {time.monotonic() - start:.1f} s")
    if done.returncode not in accept:
        fail(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def test_name(record):
    n = f"pp{record['n_prompt']}" if record["n_prompt"] else f"tg{record['n_gen']}"
    return n + (f" @ d{record['n_depth']}" if record["n_depth"] else "")


# ---- the two programs ----

class Engine:
    def __init__(self, name, binary, flags, args):
        self.name, self.binary, self.flags, self.args = name, binary, shlex.split(flags), args
        self.rounds = []   # for each round: test -> list of t/s
        self.records = []  # the first round's, as printed

    def bench(self, model, number):
        out = run([*self.command(model, number), "-p", self.args.prompt, "-n", self.args.generate,
                   "-d", self.args.depth, "-r", str(self.args.repetitions), "-o", "json",
                   *self.flags], f"{os.path.basename(model)}, round {number + 1}, {self.name}")
        records = json.loads(out)
        bad = [f"{test_name(r)}: {r['invalid']}" for r in records if r.get("invalid")]
        if bad:
            fail(f"{self.name} on {model}: {'; '.join(bad)}")
        self.records = self.records or records
        self.rounds.append({test_name(r): r["samples_ts"] for r in records})

    def all_samples(self, test):
        return [s for r in self.rounds for s in r.get(test, [])]

    def medians(self, test):
        return [statistics.median(r[test]) for r in self.rounds if test in r]


class Sol(Engine):
    def command(self, model, number):
        limits = [] if number == 0 else ["--no-limits"]
        return [self.binary, "bench", "-m", model, "--backend", self.args.backend, "--no-store",
                "-q", *limits]

    def few_tokens(self, model, n):
        return [self.binary, "run", "-m", model, "--backend", self.args.backend,
                "--random-tokens", "1", "-n", str(n), "-q"]


class Llama(Engine):
    def command(self, model, number):
        return [self.binary, "-m", model]

    def few_tokens(self, model, n):
        return [self.binary, "-m", model, "-p", "0", "-n", str(n), "-r", "1", "--no-warmup",
                *self.flags]


# ---- bytes ----

def weight_bytes(model, args):
    """What one token of one sequence needs: all but the embedding (a row of it), and of the experts those
    that are chosen."""
    info = json.loads(run([args.sol, "model", "info", "-m", model, "--tensors", "--json"], "info"))
    config = info["config"]
    embedding = sum(t["bytes"] for t in info["tensors"] if t["name"] == "token_embd.weight")
    unused = info["expert_bytes"] * (1 - config["top_k"] / config["experts"])
    return info["weight_bytes"] - unused - embedding * (1 - 1 / config["vocab"])


def dram_bytes(engine, model, n):
    """What kernels read from the GPU's memory while n tokens are generated, as ncu counts it."""
    command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--target-processes",
               "all", "--metrics", "dram__bytes_read.sum", "--csv", "--print-units", "base",
               *engine.few_tokens(model, n)]
    out = run(command, f"{os.path.basename(model)}, ncu, {engine.name}, {n} tokens")
    lines = out.splitlines()
    start = next((i for i, l in enumerate(lines) if l.startswith('"ID"')), None)
    if start is None:
        fail(f"ncu printed no table for {engine.name}:\n{out[-1000:]}")
    values = [float(r["Metric Value"].replace(",", ""))
              for r in csv.DictReader(io.StringIO("\n".join(lines[start:])))
              if r["Metric Name"] == "dram__bytes_read.sum"]
    return sum(values), len(values)


def measure_bytes(engine, model):
    """Per token, from the difference of two lengths: loading and the first step cancel out."""
    few, many = 2, 6
    a, b = dram_bytes(engine, model, few), dram_bytes(engine, model, many)
    return (b[0] - a[0]) / (many - few), (b[1] - a[1]) / (many - few)


# ---- reporting ----

def table(header, rows):
    widths = [max(len(str(r[i])) for r in [header, *rows]) for i in range(len(header))]
    line = lambda row: "| " + " | ".join(
        str(c).ljust(w) if i == 0 else str(c).rjust(w) for i, (c, w) in enumerate(zip(row, widths))) + " |"
    say(line(header))
    say("|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|")
    for row in rows:
        say(line(row))
    say()


def report_speed(sol, llama):
    rows = []
    for test in [test_name(r) for r in sol.records]:
        cells = [test]
        for e in (sol, llama):
            s = e.all_samples(test)
            cells.append(f"{statistics.median(s):.1f} ({min(s):.1f} to {max(s):.1f})" if s else "")
        if sol.all_samples(test) and llama.all_samples(test):
            ratios = [a / b for a, b in zip(sol.medians(test), llama.medians(test))]
            cells += [f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}"]
        else:
            cells += ["", ""]
        rows.append(cells)
    table(["test", "sol, t/s", "llama.cpp, t/s", "sol / llama.cpp", "over rounds"], rows)


def report_bytes(sol, llama, model, args):
    weights = weight_bytes(model, args)
    limit = next((r["read_limit_gb_s"] for r in sol.records if r.get("read_limit_gb_s")), None)
    say(f"weights that one token needs: {weights / GB:.3f} GB"
        + (f"; measured read limit {limit:.0f} GB/s = {limit * GB / weights:.0f} t/s" if limit else ""))
    rows = []
    for r in sol.records:
        test = test_name(r)
        if r["n_prompt"] or not llama.all_samples(test):
            continue
        needed = r["bytes_per_token"]
        row = [test, f"{needed / GB:.3f}"]
        for e in (sol, llama):
            rate = needed * statistics.median(e.all_samples(test)) / GB
            row.append(f"{rate:.0f}" + (f" ({100 * rate / limit:.0f} %)" if limit else ""))
        rows.append(row)
    table(["test", "GB a token, by sol's plan", "sol, GB/s", "llama.cpp, GB/s"], rows)
    counted = {}
    if args.bytes:
        for e in (sol, llama):
            counted[e.name] = measure_bytes(e, model)
        table(["read from memory per token (ncu)", "GB", "kernels"],
              [[name, f"{b / GB:.3f}", f"{k:.0f}"] for name, (b, k) in counted.items()])
    return {"weights": weights, "read_limit_gb_s": limit, "counted": counted}


# ---- setting up ----

def parse():
    parser = argparse.ArgumentParser(usage=__doc__)

    def add(name, default, kind=str):
        value = os.environ.get(name.upper().replace("-", "_"), default)
        parser.add_argument("--" + name, default=value, type=kind)

    add("model", "")
    add("sol", os.path.join(HERE, "../build/sol"))
    add("llama-bench", "")
    add("sol-flags", "-b 2048 -ub 2048")
    add("llama-flags", "-fa 1 -b 2048 -ub 2048 -ngl 99")
    add("backend", "cuda")
    add("prompt", "512,2048")
    add("generate", "128")
    add("depth", "0,32768")
    add("rounds", 3, int)
    add("repetitions", 3, int)
    add("bytes", 0, int)
    add("save", "")
    args = parser.parse_args()
    for variable, binary in (("SOL", args.sol), ("LLAMA_BENCH", args.llama_bench)):
        if not shutil.which(binary):
            fail(f"{variable}='{binary}' is no program")
    if args.bytes and not shutil.which("ncu"):
        fail("BYTES needs ncu (Nsight Compute) in the PATH")
    if not args.model:
        fail("name a GGUF file: MODEL=gpt-oss-20b.gguf bench/cuda_vs_llama.py")
    for path in args.model.split():
        if not os.path.isfile(path):
            fail(f"MODEL={path} is no file")
    if args.rounds < 3:
        say("note: fewer than 3 rounds say little\n")
    return args


def compare(model, args):
    sol = Sol("sol", args.sol, args.sol_flags, args)
    llama = Llama("llama.cpp", args.llama_bench, args.llama_flags, args)
    for number in range(args.rounds):
        for e in (sol, llama):
            e.bench(model, number)
    first = llama.records[0]
    say(f"{os.path.basename(model)} on {first['gpu_info']}: {args.rounds} rounds in turn, "
        f"{args.repetitions} repetitions each; sol {sol.records[0]['build_commit']}, llama.cpp "
        f"b{first['build_number']} ({first['build_commit']}, {first['backends']}) with "
        f"{args.llama_flags}\n")
    if "CUDA" not in first["backends"]:
        fail(f"this llama-bench computed with {first['backends']}")
    report_speed(sol, llama)
    bytes_read = report_bytes(sol, llama, model, args)
    return {"model": model, "bytes": bytes_read,
            "engines": [{"name": e.name, "rounds": e.rounds, "records": e.records}
                        for e in (sol, llama)]}


def main():
    args = parse()
    results = [compare(model, args) for model in args.model.split()]
    if args.save:
        with open(args.save, "w") as file:
            json.dump({"arguments": vars(args), "results": results,
                       "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}, file, indent=1)


main()
