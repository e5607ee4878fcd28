#!/usr/bin/env python3
"""The work of cpu_vs_peers.sh; see bench/README.md."""
import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time

MIB = 1 << 20


def say(*words):
    print(*words, flush=True)


def fail(text):
    sys.exit("cpu_vs_peers: " + text)


# ---- running ----

def machine_ticks():
    """Busy and total ticks of all cores."""
    values = [int(v) for v in open("/proc/stat").readline().split()[1:9]]
    idle = values[3] + values[4]
    return sum(values) - idle, sum(values)


def anonymous_bytes(pid):
    """Resident memory that no file backs: a mapped model is not in it, a repacked one is."""
    try:
        lines = open(f"/proc/{pid}/status").read().splitlines()
    except OSError:
        return 0
    kib = {k: int(v.split()[0]) for k, v in (l.split(":", 1) for l in lines)
           if k in ("RssAnon", "RssShmem")}
    return 1024 * sum(kib.values())


def run(command, watch_memory=False):
    """Runs a command; what it printed, its wall time, the cores that others used, its memory."""
    busy, total = machine_ticks()
    before = os.times()
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = 0
    if watch_memory:
        # What the programs print fits a pipe, so it need not be drained meanwhile.
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.02)
    out, err = process.communicate()
    seconds = time.monotonic() - start
    after = os.times()
    busy_now, total_now = machine_ticks()
    own = (after.children_user + after.children_system - before.children_user -
           before.children_system) * os.sysconf("SC_CLK_TCK")
    others = max(0.0, busy_now - busy - own) / max(1, total_now - total) * os.cpu_count()
    if process.returncode:
        fail(f"{shlex.join(command)} ended with {process.returncode}:\n{err[-2000:]}")
    return {"out": out, "seconds": seconds, "other_cores": others, "anonymous": peak}


class Engine:
    def __init__(self, name, binary, flags, args):
        self.name, self.binary, self.flags, self.args = name, binary, shlex.split(flags), args
        self.samples = {"pp": [], "tg": []}  # a list of t/s for each round
        self.others = []
        self.anonymous, self.own_report, self.limits = None, None, None
        self.first_token = []

    def bench_command(self, prompt, generate, repetitions):
        return [self.binary, "-m", self.args.model, "-t", str(self.args.threads), "-p", str(prompt),
                "-n", str(generate), "-r", str(repetitions), "-o", "json", *self.flags]

    def bench(self, prompt, generate, repetitions, **options):
        result = run(self.bench_command(prompt, generate, repetitions), **options)
        result["records"] = json.loads(result["out"])
        return result

    def round(self):
        result = self.bench(self.args.prompt, self.args.generate, self.args.repetitions)
        self.others.append(result["other_cores"])
        for record in result["records"]:
            self.samples["pp" if record["n_prompt"] else "tg"].append(record["samples_ts"])

    def measure_memory(self):
        result = self.bench(self.args.prompt, self.args.generate, 1, watch_memory=True)
        self.anonymous = result["anonymous"]

    def time_first_token(self):
        """Without a warm-up, so that loading, repacking and the 16 tokens are all that is timed."""
        self.first_token.append(run([*self.bench_command(16, 0, 1), *self.cold])["seconds"])

    def medians(self, kind):
        return [statistics.median(samples) for samples in self.samples[kind]]


class Sol(Engine):
    def bench_command(self, *sizes):
        command = super().bench_command(*sizes)
        return [command[0], "bench", *command[1:], "-q", "--no-limits"]

    def measure_memory(self):
        super().measure_memory()
        command = [c for c in self.bench_command(self.args.prompt, self.args.generate, 1)
                   if c != "--no-limits"]
        records = json.loads(run(command)["out"])
        self.own_report = max(r["memory"]["engine"] for r in records)
        self.limits = records[0]["limits"]
        self.percent = {"pp": records[0]["arithmetic_limit_percent"],
                        "tg": records[-1]["memory_limit_percent"]}

    def time_first_token(self):
        command = [self.binary, "run", "-m", self.args.model, "-t", str(self.args.threads),
                   "--random-tokens", "16", "-n", "1", "--json", "-q", *self.flags]
        result = run(command)
        timings = json.loads(result["out"])["timings"]
        self.inside = timings["load_s"] + timings["first_token_s"]
        self.first_token.append(result["seconds"])


class Llama(Engine):
    cold = ["--no-warmup"]


class IkLlama(Engine):
    cold = ["-w", "0"]


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


def report_speed(engines, args):
    sol = engines[0]
    for kind, label in (("pp", f"pp{args.prompt}"), ("tg", f"tg{args.generate}")):
        rows = []
        for e in engines:
            values = [s for samples in e.samples[kind] for s in samples]
            if not values:
                continue
            ratios = [a / b for a, b in zip(sol.medians(kind), e.medians(kind))]
            ratio = "" if e is sol else f"{statistics.median(ratios):.3f}"
            spread = "" if e is sol else f"{min(ratios):.3f} to {max(ratios):.3f}"
            rows.append([e.name, f"{statistics.median(values):.3f}", f"{min(values):.3f}",
                         f"{max(values):.3f}", len(values), ratio, spread,
                         f"{statistics.median(e.others):.2f}"])
        if rows:
            table([label, "median t/s", "min", "max", "samples", "sol / peer", "over rounds",
                   "other cores"], rows)


def report_rest(engines):
    rows = []
    for e in engines:
        own = f"{e.own_report / MIB:.1f}" if e.own_report is not None else ""
        first = statistics.median(e.first_token)
        rows.append([e.name, f"{e.anonymous / MIB:.1f}", own, f"{first:.3f}",
                     f"{min(e.first_token):.3f} to {max(e.first_token):.3f}"])
    table(["", "anonymous peak, MiB", "own report, MiB", "first token, s", "over rounds"], rows)
    sol = engines[0]
    say(f"sol's first token without process start and end: {sol.inside:.3f} s")
    memory, i8 = sol.limits["memory_read_gb_s"], sol.limits["i8_gflop_s"]
    say(f"limits of this machine: read {memory['best']:.1f} GB/s"
        + (f", int8 {i8['best']:.0f} GFLOP/s" if i8 else "")
        + "; sol in one run: " + ", ".join(f"{k} {v:.1f} %" for k, v in sol.percent.items()))


def save(engines, args):
    record = {"arguments": vars(args), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "engines": [{"name": e.name, "samples_ts": e.samples, "other_cores": e.others,
                           "anonymous_peak": e.anonymous, "own_report": e.own_report,
                           "first_token_s": e.first_token, "limits": e.limits} for e in engines]}
    with open(args.save, "w") as file:
        json.dump(record, file, indent=2)


# ---- setting up ----

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--sol", required=True)
    for name in ("--llama", "--ik", "--sol-flags", "--llama-flags", "--ik-flags", "--save"):
        parser.add_argument(name, default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=16)
    args = parser.parse_args()
    if args.rounds < 3:
        say("note: fewer than 3 rounds say little\n")
    return args


def find_engines(args):
    if not shutil.which(args.sol):
        fail(f"no sol at {args.sol}; build it or set SOL")
    engines = [Sol("sol", args.sol, args.sol_flags, args)]
    for kind, name, binary, flags, variable in (
            (Llama, "llama.cpp", args.llama, args.llama_flags, "LLAMA_BENCH"),
            (IkLlama, "ik_llama.cpp", args.ik, args.ik_flags, "IK_LLAMA_BENCH")):
        if not binary:
            say(f"{name} is missing: set {variable} to its llama-bench")
        elif not shutil.which(binary):
            fail(f"{variable}={binary} is no program")
        else:
            engines.append(kind(name, binary, flags, args))
    return engines


def fill_page_cache(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(16 * MIB):
            pass


def main():
    args = parse()
    if not os.path.isfile(args.model):
        fail(f"MODEL={args.model} is no file")
    engines = find_engines(args)
    fill_page_cache(args.model)
    for n in range(args.rounds):
        for e in engines:
            print(f"round {n + 1} of {args.rounds}: {e.name}", file=sys.stderr)
            e.round()
    for n in range(args.rounds):
        for e in engines:
            print(f"first token {n + 1} of {args.rounds}: {e.name}", file=sys.stderr)
            e.time_first_token()
    for e in engines:
        print(f"memory: {e.name}", file=sys.stderr)
        e.measure_memory()
    say(f"{os.path.basename(args.model)}, {args.threads} threads, {args.rounds} rounds in turn, "
        f"{args.repetitions} repetitions each\n")
    report_speed(engines, args)
    report_rest(engines)
    if args.save:
        save(engines, args)


main()
