#!/usr/bin/env python3
"""Compares sol chat with openai-harmony, one process each, on random conversations and completions.

usage: TIKTOKEN_ENCODINGS_BASE=FOLDER tools/chat/compare.py SOL [--count N] [--seed S]
       (needs: pip install openai-harmony==0.0.8; FOLDER has o200k_base.tiktoken)

Ids of rendered conversations must be equal, and so must the parser's state, text and header after every token, and its
messages, wherever the library's parser takes the tokens. Exit status 1 when anything differs; what does is printed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import draw
from library import Library


def run(sol, verb, documents, *options):
    """What sol prints for each document."""
    vocabulary = os.path.join(os.environ["TIKTOKEN_ENCODINGS_BASE"], "o200k_base.tiktoken")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for document in documents:
            file.write(json.dumps(document) + "\n")
        file.flush()
        done = subprocess.run([sol, "chat", verb, "--vocab", vocabulary, "--lines", *options, file.name],
                              capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"sol chat {verb}: status {done.returncode}: {done.stderr.decode()[-1000:]}")
    return [json.loads(x) for x in done.stdout.decode().split("\n") if x]


class Comparison:
    def __init__(self, sol):
        self.sol, self.library, self.differing = sol, Library(), 0

    def report(self, what, count, refused):
        print(f"{what}: {count} compared, {refused} that the library refuses left out, {self.differing} differ so far")

    def differs(self, what, document, wanted, got):
        self.differing += 1
        if self.differing > 5:
            return
        at = next((i for i, (a, b) in enumerate(zip(wanted, got)) if a != b), min(len(wanted), len(got)))
        print(f"{what} differs at {at} of {len(wanted)} / {len(got)}: {json.dumps(document)[:2000]}")
        print("  library:", wanted[at:at + 3], "\n  sol:    ", got[at:at + 3])
        if what == "render":
            text = [self.library.encoding.decode(x[max(0, at - 20):at + 20]) for x in (wanted, got)]
            print("  library:", repr(text[0]), "\n  sol:    ", repr(text[1]))

    def render(self, count, seed, next_role):
        options = {None: ["--turn", "none"], "training": ["--turn", "none", "--training"]}.get(next_role, ["--turn", next_role])
        drawn = [draw.conversation(draw.rng(f"{seed} {next_role} {n}"), self.library.builtin) for n in range(count)]
        wanted = [(c, self.library.render(c, next_role)) for c in drawn]
        good = [(c, ids) for c, ids in wanted if ids is not None]
        got = run(self.sol, "render", [c for c, _ in good], *options)
        for (document, ids), mine in zip(good, got, strict=True):
            if ids != mine["ids"]:
                self.differs("render", document, ids, mine["ids"])
        self.report(f"render, next {next_role}", len(good), count - len(good))
        return good

    def parse(self, what, cases, role):
        wanted = [(ids, self.library.steps(ids, role)) for ids in cases]
        good = [(ids, x) for ids, x in wanted if x is not None]
        got = run(self.sol, "parse", [{"ids": ids} for ids, _ in good], "--steps", "--role", role or "none")
        apart = 0
        for (ids, (steps, messages)), mine in zip(good, got, strict=True):
            if self.apart(ids, role):
                apart += 1
                continue
            mine_steps = [{k: v for k, v in s.items() if k not in ("began", "ended") and not (k == "delta" and "ended" in s)}
                          for s in mine["steps"]]
            if steps != mine_steps:
                self.differs("parse", {"ids": ids, "text": self.library.encoding.decode(ids)}, steps, mine_steps)
            elif messages != mine["messages"]:
                self.differs("parse: messages", {"ids": ids}, messages, mine["messages"])
        self.report(f"parse, {what}", len(good) - apart, len(cases) - len(good))
        if apart:
            print(f"  {apart} that the library reads otherwise on purpose are left out too")

    def apart(self, ids, role):
        """Whether there are control tokens that the library makes text, and sol does not: a <|start|> in a message; an
        end, a start or a second channel in a header."""
        marks = ["<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"]
        start, message, channel, *ends = (self.library.encode(m)[0] for m in marks)
        place, channels = ("header" if role else "between"), 0
        for id in ids:
            if id == start:
                if place != "between":
                    return True
                place, channels = "header", 0
            elif id in ends:
                if place == "header":
                    return True
                place = "between"
            elif place == "header":
                channels += id == channel
                if channels == 2:
                    return True
                place = "content" if id == message else place
        return False


def noise(rng, library):
    """A message of the assistant with any ordinary tokens in it, so bytes that are no text."""
    body = [rng.randrange(199998) if rng.random() < 0.3 else rng.randrange(256) for _ in range(rng.randrange(1, 40))]
    return library.encode("<|channel|>final<|message|>") + body + library.encode(rng.choice(["<|return|>", "<|end|>", ""]))


def damaged(rng, ids, library):
    """With some tokens lost, doubled, swapped or put in."""
    ids = list(ids)
    for _ in range(rng.randrange(1, 4)):
        at, other = rng.randrange(len(ids)), rng.randrange(len(ids))
        kind = rng.randrange(4)
        if kind == 0 and len(ids) > 1:
            del ids[at]
        elif kind == 1:
            ids.insert(at, ids[other])
        elif kind == 2:
            ids[at], ids[other] = ids[other], ids[at]
        else:
            ids[at:at] = library.encode(rng.choice(["<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>",
                                                    " to=functions.f", " json", "final", "<|endoftext|>", " ", "\u00a0"]))
    return ids


def main():
    if "TIKTOKEN_ENCODINGS_BASE" not in os.environ:
        sys.exit("set TIKTOKEN_ENCODINGS_BASE to a folder with o200k_base.tiktoken")
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sol")
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    o = options.parse_args()
    c = Comparison(o.sol)
    rendered = c.render(o.count, o.seed, "assistant")
    some = c.render(max(1, o.count // 10), o.seed, None)
    c.render(max(1, o.count // 10), o.seed, "training")
    c.parse("conversations", [ids for _, ids in some], None)
    c.parse("completions", [c.library.encode(draw.well_formed(draw.rng(f"{o.seed} {n}"))) for n in range(o.count // 2)], "assistant")
    c.parse("bytes", [noise(draw.rng(f"{o.seed} {n}"), c.library) for n in range(o.count // 2)], "assistant")
    c.parse("damaged", [damaged(rng, c.library.encode(draw.well_formed(rng)), c.library)
                        for rng in (draw.rng(f"{o.seed} damaged {n}") for n in range(o.count))], "assistant")
    print(f"{len(rendered)} conversations, {c.differing} differ")
    return c.differing > 0


if __name__ == "__main__":
    sys.exit(main())
