#!/usr/bin/env python3
"""Several GPUs of one machine: what passes between them, and sol train on them against one of them.

usage: bench/ranks_device.py [--sol build/sol] [--gpus 2] [--parts verify,links,small,losses,speed,exposed] [--rounds 3] [--tiny] [--out FILE]

  verify   every collective's variants against their references
  links    sol device --gpus of each count: links, and collectives by size; the whole JSON goes to --out
  small    11.5 KB in a graph: sol's kernel, NCCL, and PyTorch's symmetric-memory one-shot in the same minute where there
           is a PyTorch (wanted: 6.4 us on 2, 8 on 4; goal 4 and 5)
  losses   50 updates in float32 of the same rows on 1 and on N GPUs: the largest difference (at most 5e-5)
  speed    depth 20, windows L, 65,536 tokens a GPU, an update after every micro-batch: 1 and N GPUs in turn, tokens/s of
           all, ratio to one GPU (wanted: 1.95 of 2, 3.8 of 4), and what part of a step collectives take by themselves;
           N GPUs also --in-turn, their collectives behind their work: what running beside it gains
  exposed  what GPUs cost each other, from traces of decoding (--model) and of training: exposed communication of a step,
           what of it is waiting, and how far the ends of a collective are apart on two GPUs' clocks
Parts run in this order; one that fails says so and does not stop the others. The first three take about a minute and a
half on two GPUs. --tiny: shapes for a machine that emulates its GPUs. One JSON object a line on stdout, and in --out.

Exit status: 0 all as wanted, 1 something is not.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

WANTED = {2: 1.95, 4: 3.8}
SMALL = {2: 6.4, 4: 8}
BYTES = 11520  # 2880 numbers
PARTS = ("verify", "links", "small", "losses", "speed", "exposed")
PARITY = 5e-5
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


def sol(options, *arguments, limit=240):
    done = subprocess.run([options.sol, *map(str, arguments)], capture_output=True, text=True, timeout=limit)
    if done.returncode:
        raise RuntimeError(f"sol {' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def verify(options):
    """A table also where something is wrong."""
    ops = [word for op in COLLECTIVES for word in ("--op", op)]
    done = subprocess.run([options.sol, "verify", "--backend", "cuda", "--wide", "--brief", "--rounds", "1", *ops], capture_output=True,
                          text=True, timeout=240)
    lines = [line for line in done.stdout.splitlines() if line.startswith(COLLECTIVES)]
    good = [line.split()[1] for line in lines if line.rstrip().endswith(" ok")]
    return {"verified": good, "status": done.returncode, "table": lines,
            "good": done.returncode == 0 and "all_reduce_one_shot_cuda" in good and "all_reduce_nccl_cuda" in good}


def links(options, gpus):
    """The links in short, and the whole."""
    tiny = ["--most", 1, "--seconds", 0.0001] if options.tiny else ["--seconds", 0.03]
    whole = json.loads(sol(options, "device", "--gpus", gpus, "--measure", "--json", *tiny))
    short = [{key: (pair[key] or {}).get("median") for key in pair if key.endswith("_gb_s")} |
             {"from": pair["from"], "to": pair["to"], "one_way_ns": pair["one_way_ns"]} for pair in whole["links"]["pairs"]]
    lines = [[line["op"], line["variant"], line["bytes"], line["ns"]["median"] / 1e3, line["bus_gb_s"], line["of_link"]]
             for line in whole["links"]["collectives"]]
    return {"pairs": short, "seconds": whole["links"]["seconds"]}, lines, whole


def small(options, gpus, lines):
    """us of a call of BYTES: sol's two, and PyTorch's."""
    us = {line[1]: line[3] for line in lines if line[0] == "all_reduce" and line[2] == BYTES}
    out = {"sol_one_shot_us": us.get("all_reduce_one_shot_cuda"), "sol_nccl_us": us.get("all_reduce_nccl_cuda"), "bytes": BYTES,
           "wanted_us": SMALL.get(gpus)}
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "all_reduce_torch.py")
    try:
        done = subprocess.run([sys.executable, script, "--gpus", str(gpus), "--bytes", str(BYTES)], capture_output=True, text=True,
                              timeout=90)
        peer = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip()[-300:]}
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        peer = {"error": str(error)[:300]}
    out["torch"] = peer
    if peer.get("one_shot_us") and out["sol_one_shot_us"]:
        out["torch_over_sol"] = peer["one_shot_us"] / out["sol_one_shot_us"]
    out["good"] = options.tiny or bool(out["sol_one_shot_us"] and out["sol_one_shot_us"] <= SMALL.get(gpus, 1e9))
    return out


def losses(options, folder, gpus, most):
    """Of `most` micro-batches an update, however many GPUs do them."""
    text = os.path.join(folder, "text.txt")
    if not os.path.exists(text):
        with open(text, "w") as file:
            for i in range(20000):
                file.write(f"The {i % 17} mills of line {i * 7 % 101} grind {i} sacks of rye by the river.\n")
        sol(options, "tok", "train", text, "--vocab-size", "300", "-o", os.path.join(folder, "words.json"))
    length = 32 if options.tiny else 256
    steps = 2 if options.tiny else 50
    lines = sol(options, "train", "--backend", "cuda", "--gpus", gpus, "-d", text, "--tokenizer", os.path.join(folder, "words.json"),
                "--depth", 2 if options.tiny else 4, "--head-dim", 64, "--max-seq-len", length, "--device-batch-size",
                most // gpus if options.tiny else 1, "--total-batch-size", most * length, "--num-iterations", steps, "--precision", "f32",
                "--eval-every", -1, "--sample-every", -1, "--no-store", "--no-limits", "--json", *options.force)
    return [json.loads(line)["loss"] for line in lines.splitlines() if '"loss"' in line]


def speed(options, gpus, *more):
    shape = ["--depth", 1, "--aspect-ratio", 64, "--head-dim", 64, "--max-seq-len", 32, "--device-batch-size", 1, "--vocab-size", 128, "--warmup-steps", 1,
             "--num-iterations", 1] if options.tiny else \
        ["--depth", 20, "--window-pattern", "L", "--max-seq-len", 2048, "--device-batch-size", 32, "--num-iterations", 10]
    out = json.loads(sol(options, "train", "bench", "--backend", "cuda", "--gpus", gpus, *shape, "--no-store", "--no-limits", "--json",
                         *options.force, *more))
    total = sum(op["ns"] for op in out["ops"])
    passed = sum(op["ns"] for op in out["ops"] if op["op"] in COLLECTIVES)
    return {"tokens_per_s": out["tokens_per_s"], "collectives": passed / total, "tokens": out["tokens"]}


def ends_apart(path):
    """us between the ends of a collective on the first two ranks: median, and most of 90 %."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    ranks = sorted({e["pid"] for e in events if e["name"] == "process_sort_index"})[:2]
    ends = [[e["ts"] + e["dur"] for e in events if e["ph"] == "X" and e["pid"] == pid and "waited_us" in e["args"]] for pid in ranks]
    apart = sorted(abs(a - b) for a, b in zip(*ends)) if len(ends) == 2 else []
    return {"median_us": statistics.median(apart), "most_us": apart[len(apart) * 9 // 10]} if apart else None


def exposed(options, gpus, what):
    """Of a traced command; where GPUs are emulated, and nothing traces them, by the timers of a plan."""
    with tempfile.TemporaryDirectory() as folder:
        report, trace = os.path.join(folder, "report.json"), os.path.join(folder, "trace.json")
        out = ["--no-store", "--json", "--report", report, "--trace", trace]
        if options.tiny:
            sol(options, "profile", "-m", "synth:small,layers=1", "--backend", "cuda", "--exact", "--kv", "f32", "--gpus", gpus, "-p", 0, "-n", 2,
                "-d", 0, "-r", 1, "--no-limits", "-q", "--force", "attn_out=composed", "--force", "attn_add=composed", "--force",
                "attn_route=composed", *out)
        elif what == "train":
            sol(options, "profile", "--level", "node", "--range", "step", *out, "--", options.sol, "train", "bench", "--backend", "cuda", "--gpus", gpus,
                "--depth", 20, "--window-pattern", "L", "--max-seq-len", 2048, "--device-batch-size", 32, "--num-iterations", 5, "--no-store",
                "--no-limits", "--json")
        else:
            sol(options, "profile", "--level", "node", *out, "--", options.sol, "bench", "-m", options.model, "--backend", "cuda", "--gpus", gpus,
                "-p", 0, "-n", 32, "-r", 2, "--no-store", "--no-limits", "-q")
        with open(report) as file:
            whole = json.load(file)
        c = whole["phases"][0]["communication"] if options.tiny else whole["communication"]
        wanted = bool(c) and c["ranks"] == gpus and c["waiting_ns"] is not None
        return {"what": what, "gpus": gpus, "communication": c, "ends_apart": ends_apart(trace), "good": wanted}


class Run:
    """Says lines, and remembers whether all is as wanted."""

    def __init__(self, options):
        self.options, self.good, self.began = options, True, time.monotonic()

    def say(self, part, line, more=None):
        line = {"part": part, "at_s": round(time.monotonic() - self.began, 1), **line}
        self.good &= line.get("good", True)
        print(json.dumps(line), flush=True)
        if self.options.out:
            with open(self.options.out, "a") as file:
                file.write(json.dumps({**line, **(more or {})}) + "\n")

    def attempt(self, part, work):
        try:
            return work()
        except (RuntimeError, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            self.say(part, {"good": False, "error": f"{type(error).__name__}: {error}"[-600:]})
            return None


def passing(run, parts, counts):
    """What passes between GPUs."""
    options = run.options
    if "verify" in parts:
        run.attempt("verify", lambda: run.say("verify", verify(options)))
    for n in counts:
        measured = run.attempt("links", lambda n=n: links(options, n)) if "links" in parts or "small" in parts else None
        if measured:
            run.say("links", {"gpus": n, **measured[0]}, {"whole": measured[2]})
            for line in measured[1]:
                print("  %-15s %-26s %10d B %10.2f us %8.1f GB/s bus %s" %
                      (*line[:5], "" if line[5] is None else "%.0f %% of a link" % (100 * line[5])), flush=True)
        if "small" in parts:
            run.attempt("small", lambda n=n, m=measured: run.say("small", {"gpus": n, **small(options, n, m[1] if m else [])}))


def compare_losses(run, counts):
    options = run.options
    with tempfile.TemporaryDirectory() as folder:
        one = losses(options, folder, 1, max(counts))
        for n in counts:
            worst = max(abs(a - b) for a, b in zip(one, losses(options, folder, n, max(counts)), strict=True))
            run.say("losses", {"gpus": n, "losses": len(one), "largest_difference": worst, "wanted": PARITY, "good": worst <= PARITY})


def compare_speed(run, counts):
    options = run.options
    rounds, in_turn = [], []
    for _ in range(options.rounds):
        rounds.append({n: speed(options, n) for n in [1, *counts]})
        in_turn.append({n: speed(options, n, "--in-turn")["tokens_per_s"] for n in counts})
        run.say("speed", {"round": len(rounds), "tokens_per_s": {n: rounds[-1][n]["tokens_per_s"] for n in rounds[-1]},
                          "in_turn": in_turn[-1]})
    for n in counts:
        ratios = [r[n]["tokens_per_s"] / r[1]["tokens_per_s"] for r in rounds]
        rates = [r[n]["tokens_per_s"] for r in rounds]
        ratio = statistics.median(ratios)
        beside = statistics.median(r[n]["tokens_per_s"] / t[n] for r, t in zip(rounds, in_turn, strict=True))
        run.say("speed", {"gpus": n, "tokens_per_s": statistics.median(rates), "least": min(rates), "most": max(rates), "ratio": ratio,
                          "ratios": ratios, "in_turn": statistics.median(t[n] for t in in_turn),
                          "beside_over_in_turn": beside, "wanted": WANTED.get(n), "collectives": statistics.median(r[n]["collectives"] for r in rounds),
                          "good": options.tiny or ratio >= WANTED.get(n, 0)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sol", default="build/sol")
    parser.add_argument("--gpus", default="2")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--model", default="synth:gpt-oss-120b", help="of the traced decoding")
    parser.add_argument("--out")
    options = parser.parse_args()
    options.force = ["--force", "self_attention=self_attention_mma_cuda", "--force",
                     "self_attention_backward=self_attention_backward_mma_cuda"] if options.tiny else []
    counts = [int(n) for n in options.gpus.split(",")]
    parts = options.parts.split(",")
    if set(parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast stays off
    run = Run(options)
    passing(run, parts, counts)
    if "losses" in parts:
        run.attempt("losses", lambda: compare_losses(run, counts))
    if "speed" in parts:
        run.attempt("speed", lambda: compare_speed(run, counts))
    for what in ("decode", "train") if "exposed" in parts else ():
        for n in counts:
            run.attempt("exposed", lambda n=n, what=what: run.say("exposed", exposed(options, n, what)))
    return 0 if run.good else 1


if __name__ == "__main__":
    sys.exit(main())
