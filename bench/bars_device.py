#!/usr/bin/env python3
"""The engine's bars on one NVIDIA GPU in about a minute; see bench/README.md.

usage: bench/bars_device.py [--sol build/sol] [--model ...] [--big ...] [--save file.json] [sol bench's options]
"""
import argparse
import json
import shlex
import subprocess
import sys

# What `sol bench` is asked for, the bar of docs/PERFORMANCE.md and the goal, in tokens a second.
BARS = [
    ("decode, one sequence", "-p 0 -n 64", 550, 700),
    ("the same at depth 32768", "-p 0 -n 64 -d 32768", 430, 600),
    ("decode, 8 sequences", "-p 0 -n 32 -npl 8", None, None),
    ("decode, 32 sequences", "-p 0 -n 32 -npl 32", None, None),
    ("decode, 128 sequences", "-p 0 -n 32 -npl 128 -d 512", 8500, 20000),
    ("prompt of 512", "-p 512 -n 0", None, None),
    ("prompt of 2048", "-p 2048 -n 0", 36000, 70000),
    ("the same at depth 32768", "-p 2048 -n 0 -d 32768", 20000, 40000),
]
BIG = [("decode, one sequence", "-p 0 -n 32", 400, None)]
MEMORY_BAR = 1.5e9  # beyond weights and cache


def bench(args, model, options):
    command = [args.sol, "bench", "-m", model, "--backend", args.backend, "-q", "-o", "json",
               "--max-time", str(args.max_time), *shlex.split(options), *args.rest]
    command += ["--store", args.store] if args.store else ["--no-store"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 8):  # 8: too few repetitions for the width wanted
        return None, done.stderr.strip()[-500:]
    return json.loads(done.stdout)[-1], None


def verdict(value, bar, goal):
    if bar is None:
        return ""
    if value < bar:
        return f"MISSED, bar {bar:,}"
    return f"bar {bar:,}" + (f", goal {goal:,}" + (" reached" if value >= goal else "") if goal else "")


def beyond_cache(record):
    """Bytes beside weights and cache."""
    return record["memory"]["buffers"] + record["memory"]["scratch"]


def row(record, title, bar, goal):
    spread = record["half_width_percent"]
    share = record.get("limit_percent")
    return [title, record["run"] or "", f"{record['median_ts']:,.1f}", f"{spread:.2f} %" if spread is not None else "",
            f"{share:.1f} %" if share else "", f"{beyond_cache(record) / 2**20:,.0f}",
            verdict(record["median_ts"], bar, goal)]


def show(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for r in rows:
        print("  ".join(c.ljust(w) if i in (0, 1, 6) else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))),
              flush=True)


def run_all(args, model, bars, records):
    rows, missed = [["test", "run", "t/s", "+- 95 %", "of limit", "MiB", ""]], 0
    for title, options, bar, goal in bars:
        record, error = bench(args, model, options)
        if error is not None:
            print(f"{model}, {title}: {error}", file=sys.stderr)
            missed += bar is not None
            continue
        records.append(record | {"bar": bar, "goal": goal, "title": title})
        rows.append(row(record, title, bar, goal))
        missed += bar is not None and record["median_ts"] < bar
        if record["n_prompt"] and beyond_cache(record) > MEMORY_BAR:
            print(f"{title}: more than {MEMORY_BAR / 1e9} GB beside weights and cache", file=sys.stderr)
            missed += 1
    print(model)
    show(rows)
    print()
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sol", default="build/sol")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--model", default="synth:gpt-oss-20b,dense=bf16", help="the bars' model")
    parser.add_argument("--big", default="synth:gpt-oss-120b,dense=bf16", help="or '' for none")
    parser.add_argument("--max-time", type=float, default=4, help="seconds for a test")
    parser.add_argument("--store", help="a folder to keep the runs in")
    parser.add_argument("--save", help="a JSON file for every record")
    args, args.rest = parser.parse_known_args()
    records = []
    missed = run_all(args, args.model, BARS, records)
    if args.big:
        missed += run_all(args, args.big, BIG, records)
    if args.save:
        with open(args.save, "w", encoding="utf-8") as out:
            json.dump(records, out, indent=1)
    print("every bar met" if not missed else f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
