#!/usr/bin/env python3
"""What `sol scale` predicts of several GPUs from what one did, beside what they did: the measurements in bench/results.
No GPU needed.

    bench/predict_gpus.py --sol build/sol [--write tests/data/scale_h200.json]

Of each measurement only the speed of one GPU in the same run and the links go in; by a part: also that of the part of one
of N GPUs, alone on one (sol bench --part-of N). --write keeps what `sol scale` made of
the plans, from which tests/unit_scale.c predicts again; do so when something new was measured, not when plans change.
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = ["-m", "synth:gpt-oss-120b"]


def lines(name):
    with open(os.path.join(HERE, "results", name), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def ops_of(one, test):
    """As options: times of one GPU's ops, where that was measured."""
    sums = {}
    for key, us in one.get("us", {}).get(test, {}).items():
        sums[key.split(":")[0]] = sums.get(key.split(":")[0], 0) + us
    return [word for op, us in sums.items() if us > 0 for word in ("--op-us", f"{op}={us:.1f}")]


def part_of(name, test):
    """As options: the same step of a GPU's part, alone on one GPU, where that was measured."""
    for line in lines(name):
        if line["part"] == "alone" and test in line["ts"]:
            tokens = int(test[2:]) if test.startswith("pp") else int(test.split("x")[1]) if "x" in test else 1
            return ["--part-ms", f"{line['part_of']}={1000 * tokens / line['ts'][test]!r}"]
    return []


def shared_cases(name):
    how = {"tg64": ("decode", []), "tg64 x32": ("32 sequences", ["-n", "32"]),
           "tg64 x128": ("128 sequences", ["-n", "128"]), "pp2048": ("prompt of 2048", ["-p", "2048"]),
           "pp8192": ("prompt of 8192", ["-p", "8192"])}
    speeds = [line for line in lines(name) if line["part"] == "speed"]
    alone = next(line for line in speeds if line["gpus"] == 1)
    one = alone["ts"]
    row = ["--row-ms", repr(1000 / one["tg64"])]
    for test, (what, options) in how.items():
        line = next(line for line in speeds if line.get("test") == test)
        given = MODEL + row + options + ops_of(alone, test)
        yield "120b, " + what, line["gpus"], given, part_of(name, test), one[test], line["all"]


def training_cases(name):
    trained = [line for line in lines(name) if line["part"] == "speed"]
    speeds = sorted(line["tokens_per_s"]["1"] for line in trained if "round" in line)
    both = next(line for line in trained if "ratio" in line)
    yield "d20 in training", both["gpus"], ["--depth", "20"], [], speeds[len(speeds) // 2], both["tokens_per_s"]


def cases(gpus):
    """(what, GPUs, options, those of a part, tokens/s of one, of all), of the files of so many"""
    if os.path.exists(os.path.join(HERE, "results", f"tensor_parallel_h200_x{gpus}.jsonl")):
        yield from shared_cases(f"tensor_parallel_h200_x{gpus}.jsonl")
    if os.path.exists(os.path.join(HERE, "results", f"ranks_h200_x{gpus}.jsonl")):
        yield from training_cases(f"ranks_h200_x{gpus}.jsonl")


def predict(sol, gpus, options, speed):
    command = [sol, "scale", *options, "--tokens-per-s", repr(speed), "--device", "H200", "--gpus", str(gpus), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def built(answer, gpus, trains):
    """The way that was measured: shared by all, or of training copies."""
    return next(way for way in answer["counts"][0]["ways"] if way["built"] and way["data" if trains else "tensor"] == gpus)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sol", default="build/sol")
    parser.add_argument("--gpus", type=int, nargs="*", default=[2, 4, 8], help="of which there may be files")
    parser.add_argument("--write", metavar="FILE")
    args = parser.parse_args()
    kept = []
    print(f"{'H200':24} {'GPUs':>4} {'one':>9} {'predicted':>9} {'by a part':>9} {'measured':>9} {'off':>7} {'off':>7}")
    for what, gpus, options, part, one, measured in (case for count in args.gpus for case in cases(count)):
        answer = predict(args.sol, gpus, options, one)
        trains = "--depth" in options
        rates = [built(answer, gpus, trains)["tokens_per_s"]]
        if part:
            rates.append(built(predict(args.sol, gpus, options + part, one), gpus, trains)["tokens_per_s"])
        off = [rate / measured - 1 for rate in rates]
        alone = f"{rates[1]:9.1f}" if part else " " * 9
        print(f"{what:24} {gpus:4} {one:9.1f} {rates[0]:9.1f} {alone} {measured:9.1f} {off[0]:+7.1%} "
              + (f"{off[1]:+7.1%}" if part else " " * 7) + ("" if abs(off[-1]) <= 0.1 else "  not within 10 %"))
        accounts = [a for a in answer["accounts"] if a["ranks"] in (1, gpus) and a["divide"] == 1]
        kept.append({"what": what, "gpus": gpus, "trains": trains, "step_ns": 1e6 * answer["one"]["step_ms"],
                     "tokens": answer["one"]["tokens_per_s"] * answer["one"]["step_ms"] / 1000,
                     "call_ns": 1000 * answer["one"]["call_us"], "part_ns": 1e6 * float(part[1].split("=")[1]) if part else 0,
                     "op_us": [word.split("=") for word in options if "=" in word], "by_part": rates[-1] if part else 0, "measured": measured, "accounts": accounts})
    if args.write:
        with open(args.write, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(case) for case in kept) + "\n]\n")
    return 0


sys.exit(main())
