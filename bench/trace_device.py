#!/usr/bin/env python3
"""Checks `sol profile` on a machine with an NVIDIA GPU; prints one line per check, exit status 1 when one
fails.

usage: trace_device.py [--sol BINARY] [--loop BINARY] [--seconds S] [--repeats N] [--out DIR]
Needs nvcc for trace_loop.cu unless --loop names the built program, and PyTorch for the comparison with
torch.profiler (skipped without). SOL_CUPTI names libcupti where the system has none; a Python package
that brings one is found by itself.
"""
import argparse
import collections
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("--sol", default=os.path.join(here, "../build/sol"))
parser.add_argument("--loop")
parser.add_argument("--seconds", type=float, default=1.5)
parser.add_argument("--repeats", type=int, default=7)
parser.add_argument("--out", default=None)
args = parser.parse_args()
sol = os.path.abspath(args.sol)
out = os.path.abspath(args.out or tempfile.mkdtemp())
os.makedirs(out, exist_ok=True)
failed = []


def check(name, good, text):
    print(f"{'ok    ' if good else 'FAILED'} {name}: {text}", flush=True)
    if not good:
        failed.append(name)


def run(command, timeout=180, **kwargs):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          text=True, **kwargs)


def profile(command, *options, name="report"):
    path = os.path.join(out, name + ".json")
    if os.path.exists(path):
        os.remove(path)
    done = run([sol, "profile", "-o", "json", "--report", path, *options, "--", *command])
    report = json.load(open(path)) if os.path.exists(path) else None
    return done, report


def find_cupti():
    if os.environ.get("SOL_CUPTI"):
        return
    for folder in sys.path:
        found = glob.glob(os.path.join(folder, "nvidia/*/lib/libcupti.so*"))
        if found:
            os.environ["SOL_CUPTI"] = found[0]
            return


def build_loop():
    if args.loop:
        return os.path.abspath(args.loop)
    path = os.path.join(out, "trace_loop")
    subprocess.run(["nvcc", "-O2", "-arch=native", "-o", path, os.path.join(here, "trace_loop.cu")],
                   check=True)
    return path


def against_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped torch: PyTorch is not here")
        return
    train = [sys.executable, os.path.join(here, "trace_train.py")]
    chrome = os.path.join(out, "torch.json")
    reference = run([*train, "--profile", chrome])
    if reference.returncode:
        check("torch.profiler", False, reference.stderr[-500:])
        return
    theirs = collections.defaultdict(lambda: [0, 0.0])
    for event in json.load(open(chrome))["traceEvents"]:
        if event.get("cat") == "kernel":
            theirs[event["name"]][0] += 1
            theirs[event["name"]][1] += event["dur"]
    plain = run(train)
    done, report = profile(train, "--range", "measured", name="train")
    check("torch output", done.stdout == plain.stdout and done.returncode == 0,
          f"{done.stdout.strip()!r} {done.stderr[-300:]!r}")
    if not report or not report["steps"]["count"]:
        check("torch range", False, str(report and report["lost"]))
        return
    ours = {k["name"]: k for k in report["kernels"] if k.get("per_step")}
    differ = [f"{name[:60]}: {ours.get(name, {}).get('per_step', 0)} not {n}"
              for name, (n, _) in theirs.items() if ours.get(name, {}).get("per_step", 0) != n]
    differ += [f"{name[:60]}: only ours" for name in ours if name not in theirs]
    check("torch kernels", not differ,
          f"{len(theirs)} names, {sum(n for n, _ in theirs.values())} kernels; differ: {differ[:5]}")
    plain = collections.Counter()
    for level in "launch", "node":
        _, whole = profile(train, "--level", level, name="train-" + level)
        listed = whole["launched"] if level == "launch" else whole["kernels"]
        for k in listed:
            n = k["launched"] + k["in_graphs"] if level == "launch" else k["count"]
            plain[k["name"]] += n if level == "launch" else -n
    differ = [f"{name[:60]}: {n:+d}" for name, n in plain.items() if n]
    check("torch kernels counted", not differ, f"{len(plain)} names at level launch as at level node; differ: {differ[:5]}")
    their_time = sum(t for _, t in theirs.values()) * 1e3
    our_time = report["steps"]["kernel_ns"]
    check("torch kernel time", abs(our_time / their_time - 1) < 0.03,
          f"{our_time / 1e6:.3f} ms, torch.profiler {their_time / 1e6:.3f} ms, "
          f"{100 * (our_time / their_time - 1):+.2f} %")


def overhead(loop):
    """Medians of interleaved repetitions; the report is read afterwards, outside the time. Three lengths of
    kernel: the shortest, where CUPTI alone costs 11 to 16 % of a graph of 200 kernels, about 5 and about 10
    us, as in a decode step."""
    for mode, cycles in ("stream", 0), ("graph", 0), ("graph", 9000), ("graph", 18000):
        times = collections.defaultdict(list)
        os.environ["TRACE_LOOP_CYCLES"] = str(cycles)
        for _ in range(args.repeats):
            for level in "none", "off", "launch", "graph", "node":
                command = [loop, mode, str(args.seconds)]
                if level == "none":
                    done, report = run(command), None
                else:
                    done, report = profile(command, "--level", level, name=f"loop-{mode}-{level}")
                words = done.stdout.split()
                times[level].append(float(words[0]))
                if level in ("launch", "graph", "node"):
                    check_counts(mode, level, int(words[4]), report)
        base = statistics.median(times["none"])
        for level in "off", "launch", "graph", "node":
            ratios = [a / b for a, b in zip(times[level], times["none"])]
            change = 100 * (statistics.median(ratios) - 1)
            text = (f"{statistics.median(times[level]) / 1e3:.2f} us per step, untraced "
                    f"{base / 1e3:.2f} us: {change:+.2f} % "
                    f"({100 * (min(ratios) - 1):+.2f} to {100 * (max(ratios) - 1):+.2f})")
            name = f"overhead {mode} {'10 us' if cycles > 9000 else '5 us' if cycles else 'tiny'} {level}"
            if level in ("off", "launch") and mode == "graph" or cycles > 9000 and level == "graph":
                check(name, change < 2, text)
            else:
                print(f"info   {name}: {text}", flush=True)
    del os.environ["TRACE_LOOP_CYCLES"]


counted = set()


def check_counts(mode, level, launched, report):
    if (mode, level) in counted:
        return
    counted.add((mode, level))
    whole = mode == "graph" and level == "graph"
    got = report["graph_runs"] * 200 if whole else report["kernels_run"]
    if level == "launch":
        got = sum(k["launched"] + k["in_graphs"] for k in report["launched"] if not k["name"].startswith("graph "))
    lost = {k: v for k, v in report["lost"].items() if v}
    check(f"count {mode} {level}", got == launched,
          f"{got} of {launched} kernels, steps by {report['steps']['method']} "
          f"{report['steps']['count']} of {launched // 200}, lost {lost}, "
          f"samples {report['samples']}")


def endings(loop):
    for action, status in ("return", 7), ("fork", 7), ("exec", 0), ("_exit", 7), ("segv", 139), ("kill", 137):
        for mode in "stream", "graph":
            done, report = profile([loop, mode, "2", action], name=f"end-{action}-{mode}")
            numbers = [int(line.split()[4]) for line in done.stdout.splitlines() if "per step" in line]
            got = report["kernels_run"] + 200 * report["graph_runs"]
            kept = 100 * got / sum(numbers)
            least = 100 if action in ("return", "fork") else 90
            check(f"ending {action} {mode}", done.returncode == status and kept >= least,
                  f"exit status {done.returncode}, {kept:.2f} % of {sum(numbers)} kernels kept, "
                  f"{(100 - kept) / 100 * 2000:.0f} ms of 2000 lost, processes "
                  f"{[p['complete'] for p in report['processes']]}, {done.stderr[-200:]!r}")


def untouched(loop):
    script = f'cat; echo out; echo err >&2; {loop} stream 0.1 >/dev/null; exit 41'
    plain = run(["sh", "-c", script], input="input\n")
    done = run([sol, "profile", "--report", os.devnull, "--", "sh", "-c", script], input="input\n")
    check("untouched", (done.returncode, done.stdout, done.stderr) ==
          (plain.returncode, plain.stdout, plain.stderr),
          f"{done.returncode} {done.stdout!r} {done.stderr!r}")


def rival(loop):
    train = [sys.executable, os.path.join(here, "trace_train.py"), "--profile",
             os.path.join(out, "rival.json")]
    done, report = profile(train, name="rival")
    kernels = report["kernels_run"] if report else None
    print(f"info   with torch.profiler inside: exit status {done.returncode}, sol saw {kernels} kernels, "
          f"stderr {done.stderr[-300:]!r}")


find_cupti()
start = time.time()
print("CUPTI:", os.environ.get("SOL_CUPTI"))
program = build_loop()
untouched(program)
endings(program)
against_torch()
overhead(program)
rival(program)
print(f"{len(failed)} failed {failed}, {time.time() - start:.0f} s")
sys.exit(bool(failed))
