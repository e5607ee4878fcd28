#!/usr/bin/env python3
"""Compares what `sol train replay` wrote with what nanochat's code computed (tools/train_replay.py).

    tools/train_replay_check.py DIR [--out FILE] [--limits FILE] [--all]

DIR holds expected.safetensors, init.safetensors, limits.json and, unless --out names it, out.safetensors.
Every tensor of expected.safetensors is looked for in the other file, which may have more. A difference is
  of losses (train.loss, eval.S.loss, eval.S.nll)   the largest of one number, in nats
  of a gradient (grad.S.NAME)                       its length over the gradient's length
  of a weight (w.S.NAME)                            its length over that of the change since init.safetensors;
                                                    at S = 0 the largest of one number
limits.json is an object of patterns, as a shell has them; the first that matches a tensor's name counts. A
limit is a number, or {"absolute": number} for the largest difference of one number, where the expected tensor
is noise. A tensor without a limit is a miss, and so are a missing one, another shape, and no finite number.
For each pattern the worst tensor is printed; --all prints every tensor.

Needs Python alone. Exit status: 0 all within limits, 1 a miss, 2 a file is missing or damaged.
"""
import argparse
import array
import fnmatch
import json
import math
import os
import re
import struct
import sys

CODES = {"F32": "f", "F64": "d"}


class Damaged(Exception):
    pass


class File:
    """A safetensors file: names, shapes, and numbers as arrays."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as f:
                self.bytes = f.read()
            size, = struct.unpack_from("<Q", self.bytes)
            self.header = json.loads(self.bytes[8:8 + size])
        except (OSError, ValueError, struct.error) as error:
            raise Damaged(f"{path}: {error}") from error
        self.header.pop("__metadata__", None)
        self.at = 8 + size

    def shape(self, name):
        return self.header[name]["shape"]

    def numbers(self, name):
        entry = self.header[name]
        start, end = (self.at + offset for offset in entry["data_offsets"])
        raw = self.bytes[start:end]
        if entry["dtype"] == "BF16":  # the upper half of a float32
            wide = bytearray(2 * len(raw))
            wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
            values = array.array("f", bytes(wide))
        elif entry["dtype"] in CODES:
            values = array.array(CODES[entry["dtype"]], raw)
        else:
            raise Damaged(f"{self.path}: {name} is in {entry['dtype']}")
        if sys.byteorder == "big":
            values.byteswap()
        if len(values) != math.prod(entry["shape"]):
            raise Damaged(f"{self.path}: {name} is cut off")
        return values


def length(values):
    return math.sqrt(math.fsum(v * v for v in values))


def largest(a, b):
    return max((abs(x - y) for x, y in zip(a, b)), default=0.0)


def relative(difference, of):
    return difference / of if of else (0.0 if difference == 0 else math.inf)


def difference(name, got, wanted, init, absolute):
    """NaN and infinity come out as infinity."""
    if not all(map(math.isfinite, got)):
        return math.inf
    kind, step, weight = (re.match(r"(grad|w)\.(\d+)\.(.+)$", name) or re.match("()()()", name)).groups()
    if absolute or not kind or (kind == "w" and step == "0"):
        return largest(got, wanted)
    apart = length([x - y for x, y in zip(got, wanted)])
    if kind == "grad":
        return relative(apart, length(wanted))
    start = init.numbers(weight)
    return relative(apart, length([x - y for x, y in zip(wanted, start)]))


def limit_of(name, limits):
    for pattern, limit in limits.items():
        if fnmatch.fnmatchcase(name, pattern):
            if isinstance(limit, dict):
                return pattern, limit["absolute"], True
            return pattern, limit, False
    return "(no limit)", -1.0, False


def compare(out, expected, init, limits):
    """Yields name, pattern, difference, limit, absolute."""
    for name in sorted(expected.header):
        pattern, limit, absolute = limit_of(name, limits)
        if name not in out.header:
            yield name, "(missing)", math.inf, limit, absolute
        elif math.prod(out.shape(name)) != math.prod(expected.shape(name)) or (
                [n for n in out.shape(name) if n != 1] != [n for n in expected.shape(name) if n != 1]):
            yield name, "(another shape)", math.inf, limit, absolute
        else:
            d = difference(name, out.numbers(name), expected.numbers(name), init, absolute)
            yield name, pattern, d, limit, absolute


def show(rows, everything):
    worst = {}
    for row in rows:
        key = row[0] if everything else row[1]
        if key not in worst or row[2] > worst[key][2]:
            worst[key] = row
    for name, pattern, d, limit, absolute in worst.values():
        unit = "absolute" if absolute else "relative" if name.startswith(("grad", "w.")) else "nats"
        print(f"{'MISS' if not d <= limit else 'ok':4}  {d:9.2e}  limit {limit:8.1e}  {unit:8}  {name}"
              + ("" if everything else f"  (worst of {pattern})"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--out")
    p.add_argument("--limits")
    p.add_argument("--all", action="store_true", help="every tensor, not the worst of each pattern")
    args = p.parse_args()
    try:
        inside = lambda name: os.path.join(args.folder, name)  # noqa: E731
        with open(args.limits or inside("limits.json"), encoding="utf-8") as f:
            limits = json.load(f)
        out, expected, init = (File(path) for path in (args.out or inside("out.safetensors"),
                                                       inside("expected.safetensors"),
                                                       inside("init.safetensors")))
        rows = list(compare(out, expected, init, limits))
    except (Damaged, OSError, ValueError) as error:
        print(f"train_replay_check.py: {error}", file=sys.stderr)
        return 2
    show(rows, args.all)
    misses = sum(not row[2] <= row[3] for row in rows)
    print(f"{len(rows)} tensors compared, {misses} outside limits")
    return int(misses > 0 or not rows)


if __name__ == "__main__":
    sys.exit(main())
