#!/usr/bin/env python3
"""Structured output beside llguidance: masks, compilation, the vocabulary's tree, in one run on one core.

usage: bench/structured_vs_llguidance.py DRIVER VOCABULARY.tiktoken [FOLDER] [--limit N] [--steps N] [--json FILE]

DRIVER is structured_driver of a release build, FOLDER as for tools/structured_check.py (default: its own schemas).
Random texts that both allow, without white space; a token at a time, each makes its mask. Times are those of
the processor, in the driver and around the call in Python, whose overhead (some 0.5 us) is in llguidance's. "cold": no mask is kept from
before; "warm": those of the same schema's first text are.
"""
import argparse
import glob
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from structured_check import OWN, Driver, Peer, Tokens, choose  # noqa: E402


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p * len(values)))] if values else float("nan")


def row(name, values):
    us = [v / 1e3 for v in values]
    mean = sum(us) / len(us) if us else float("nan")
    print(f"{name:32} {len(us):7} {percentile(us, .5):9.1f} {mean:9.1f} {percentile(us, .99):9.1f} {max(us, default=0):9.1f}")
    return {"n": len(us), "p50_us": percentile(us, .5), "mean_us": mean, "p99_us": percentile(us, .99),
            "max_us": max(us, default=0)}


def schemas(arguments):
    if not arguments.folder:
        yield from OWN
        return
    files = sorted(glob.glob(os.path.join(arguments.folder, "*.json")) if os.path.isdir(arguments.folder)
                   else glob.glob(arguments.folder))
    if len(files) > arguments.limit:
        files = random.Random(1).sample(files, arguments.limit)
    for file in files:
        with open(file, encoding="utf-8") as stream:
            content = json.load(stream)
        yield content["schema"] if isinstance(content, dict) and "tests" in content else content


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver")
    parser.add_argument("vocabulary")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    tokens = Tokens(arguments.vocabulary).finish()
    driver = Driver(arguments.driver, arguments.vocabulary, "none")
    peer = Peer(tokens)
    rng = random.Random(1)
    closing = [tokens.index[t] for t in (b'"', b"}", b"]", b"1", b'",', b'"}', b'":', b"0", b"true") if t in tokens.index]
    ours, warm, theirs, compile_ours, compile_theirs, both = [], [], [], [], [], 0
    for schema in schemas(arguments):
        answer = driver.compile(schema)
        matcher, _ = peer.compile(schema)
        if not answer.startswith("ok") or matcher is None:
            continue
        both += 1
        compile_ours.append(int(answer.split()[1]))
        compile_theirs.append(peer.compile_ns)
        for times in (ours, warm):
            driver.ask("R")
            peer_text = matcher.deep_copy()
            for _ in range(arguments.steps):
                accepts, ended = driver.ask("A").split()
                if ended == "1":
                    break
                took, mask = driver.mask()
                times.append(took)
                took, other = peer.mask(peer_text)
                theirs.append(took)
                common = mask & other & tokens.text
                if not common:
                    break
                token = choose(common, tokens, rng, closing)
                driver.ask(f"T {token}")
                if not peer_text.consume_token(token):
                    break
    print(f"{both} schemas, {len(tokens.tokens)} tokens; tree of the vocabulary: {driver.build_ns / 1e6:.0f} ms, "
          f"{driver.bytes / 2**20:.1f} MiB")
    print(f"{'microseconds':32} {'n':>7} {'p50':>9} {'mean':>9} {'p99':>9} {'max':>9}")
    result = {"mask": row("mask, sol, cold", ours), "mask_warm": row("mask, sol, warm", warm),
              "mask_llguidance": row("mask, llguidance", theirs), "compile": row("compile, sol", compile_ours),
              "compile_llguidance": row("compile, llguidance", compile_theirs)}
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump(result, stream, indent=1)


if __name__ == "__main__":
    main()
