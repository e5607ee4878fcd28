#!/usr/bin/env python3
"""What --draft is worth with the built-in model: sol run in turn without and with, tokens a second from its JSON.

usage: speculation.py SOL [GUESSES [ROUNDS]]

Texts: code that is written again with one change, which a schema holds the model to; the same with a change in every
third line; prose by its own will at temperature 1; and at 0, where it soon repeats itself.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

CODE = os.path.join(os.path.dirname(__file__), "..", "src", "generate", "generate.c")


def again(folder, name, old, new):
    """Arguments that have `new` written behind `old`, both as strings of JSON."""
    schema = os.path.join(folder, name)
    with open(schema, "w") as f:
        json.dump({"const": new}, f)
    return ["-p", f"Before: {json.dumps(old)}\nAfter: ", "-n", "2000", "--temperature", "0", "--json-schema", schema]


def cases(folder):
    code = open(CODE).read()
    old = code[code.index("enum sol_status generate_prefill"):code.index("/* ---- token by token")]
    lines = old.split("\n")
    often = "\n".join(re.sub(r"\w+", "other", line, count=1) if i % 3 == 0 else line for i, line in enumerate(lines))
    return {
        "code, one change": again(folder, "one", old, old.replace("status == SOL_OK", "!status", 1)),
        "code, every third line": again(folder, "many", old, often),
        "prose, temperature 1": ["-p", "The captain looked at the sea", "-n", "600", "--temperature", "1", "--seed", "1"],
        "prose, greedy": ["-p", "The captain looked at the sea", "-n", "600", "--greedy"],
    }


def run(sol, arguments):
    return json.loads(subprocess.run([sol, "run", "-q", "--json", *arguments], check=True, capture_output=True).stdout)


def main():
    sol, guesses, rounds = sys.argv[1], *(sys.argv[2:4] + ["8", "9"][len(sys.argv) - 2:])
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in cases(folder).items():
            ratios, rates, counts = [], [], {}
            for _ in range(int(rounds)):
                without = run(sol, arguments)["timings"]["decode_tokens_per_s"]
                result = run(sol, [*arguments, "--draft", guesses])
                ratios.append(result["timings"]["decode_tokens_per_s"] / without)
                rates.append(without)
                counts = result["draft"] | {"tokens": len(result["ids"])}
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{name}: {statistics.median(rates):.0f} t/s without; with {middle:.2f} of it ({low:.2f} to {high:.2f}); "
                  f"{counts['tokens']} tokens in {counts['steps']} steps, {counts['accepted']} of {counts['guessed']} right",
                  flush=True)


main()
