#!/usr/bin/env python3
"""See lab_selftest.sh. Exit status 0 when both hold: false alarms are not more than 5 % (binomial test,
one-sided, p > 0.05), and at least 90 % of the planted delays are found and blamed on the right op."""
import json
import math
import os
import subprocess
import sys
import time

SOL = os.path.abspath(sys.argv[1])
TRIALS = int(os.environ.get("TRIALS", 400))
PLANTED = int(os.environ.get("PLANTED", 60))
METRIC = os.environ.get("METRIC", "cpu")
DELTA = os.environ.get("DELTA", "")
BENCH = f"{SOL} bench --no-limits --no-store -q -t 1 -p 0 -n 16 -r 3 --ops -o json"
OPS = ["gemm", "attention", "rope", "kv_write", "swiglu", "rmsnorm"]


def compare(a, b):
    command = [SOL, "compare", "--live", "--no-store", "-q", "-o", "json", "--metric", METRIC, a, b]
    if DELTA:
        command += ["--delta", DELTA]
    done = subprocess.run(command, capture_output=True)
    result = json.loads(done.stdout)
    assert done.returncode == result["exit_status"], done.stderr
    return result


def more_by_chance(hits, trials, rate):
    """The chance of so many hits or more."""
    return sum(math.comb(trials, k) * rate**k * (1 - rate)**(trials - k) for k in range(hits, trials + 1))


def tell(label, results, since):
    count = {}
    for r in results:
        count[r["verdict"]] = count.get(r["verdict"], 0) + 1
    pairs = sorted(r["pairs"] for r in results)
    others = sum(r["other_cores"] for r in results) / len(results)
    print(f"{label}: " + ", ".join(f"{n} {v}" for v, n in sorted(count.items())) +
          f"; median {pairs[len(pairs) // 2]} pairs; delta {results[0]['delta_percent']:.2f} %; "
          f"other programs kept {others:.1f} cores busy; {time.time() - since:.0f} s", flush=True)
    return count


def same_thing():
    since, results = time.time(), []
    for i in range(TRIALS):
        results.append(compare(BENCH, BENCH))
        if i % 50 == 49:
            print(f"{i + 1} of {TRIALS}, {time.time() - since:.0f} s", file=sys.stderr, flush=True)
    count = tell(f"{TRIALS} comparisons of the same thing, {METRIC}", results, since)
    alarms = count.get("faster", 0) + count.get("slower", 0)
    small = sum(r["metrics"][0]["p"] <= 0.05 for r in results)
    chance = more_by_chance(alarms, TRIALS, 0.05)
    sizes = sorted(abs(r["metrics"][0]["change_percent"]) for r in results)
    print(f"  false alarms {alarms} of {TRIALS} = {100 * alarms / TRIALS:.1f} % (5 % is not exceeded unless "
          f"the chance of so many is small: {chance:.2g}); p <= 0.05 in {small}; 95th percentile of the "
          f"differences {sizes[int(0.95 * len(sizes))]:.2f} %")
    return chance > 0.05


def shares():
    """Of each op in the time of a token, middle of several starts."""
    seen = {}
    for _ in range(11):
        record = json.loads(subprocess.run(BENCH.split(), capture_output=True, check=True).stdout)[0]
        now = {}
        for k in record["kernels"]:
            now[k["op"]] = now.get(k["op"], 0) + k["share"]
        for op, share in now.items():
            seen.setdefault(op, []).append(share)
    return {op: sorted(values)[len(values) // 2] for op, values in seen.items()}


def planted():
    share = shares()
    since, results, found, right, wrong = time.time(), [], 0, 0, []
    percent = 2 * compare(BENCH, BENCH)["delta_percent"]
    for i in range(PLANTED):
        op = OPS[i % len(OPS)]
        r = compare(BENCH, f"{BENCH} --slow {op}={percent / share[op]:.4g}")
        blamed = r["blame"][0]["culprit"] if r["blame"] else None
        results.append(r)
        found += r["verdict"] == "slower"
        right += r["verdict"] == "slower" and blamed == op
        if r["verdict"] != "slower" or blamed != op:
            wrong.append(f"{op}: {r['verdict']} {r['metrics'][0]['change_percent']:+.2f} %, blamed {blamed}")
    tell(f"{PLANTED} delays of {percent:.1f} % of the time in one op, {METRIC}", results, since)
    print(f"  found {found}, found and blamed on the right op {right} of {PLANTED} = {100 * right / PLANTED:.0f} %")
    for line in wrong:
        print("  missed:", line)
    return right >= 0.9 * PLANTED


def main():
    good = [same_thing() if TRIALS else True, planted() if PLANTED else True]
    print("passed" if all(good) else "FAILED")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
