#!/usr/bin/env python3
"""Compares sol chat render with nanochat's own render_conversation and render_for_completion on random conversations.

usage: tools/chat/compare_nanochat.py SOL NANOCHAT [--count N] [--seed S]
       (NANOCHAT: a checkout of karpathy/nanochat, 92d63d4 say; its tokenizer.py is imported as it is)

The vocabulary is tests/data/tokenizer_nanochat.json; what encodes a text for nanochat is sol tok encode, as tiktoken and
rustbpe are not needed. Exit status 1 when ids or masks differ; the first that do are printed.
"""
import argparse
import functools
import json
import os
import random
import subprocess
import sys
import tempfile
import types

VOCABULARY = os.path.join(os.path.dirname(__file__), "../../tests/data/tokenizer_nanochat.json")
WORDS = ["Hi", "what", "12", "  ", "\n", "ä", "日本", "<|bos|>", "<|user_end|>", "lamp.", "'s", "!?", "\n\n", "x = 3", "😀"]


class Encoding:
    """What nanochat uses of tiktoken's."""

    def __init__(self, sol, names):
        self.sol, self.special_tokens_set = sol, set(names)
        with open(VOCABULARY, encoding="utf-8") as file:
            self.ids = {t["content"]: t["id"] for t in json.load(file)["added_tokens"]}

    def encode_single_token(self, name):
        return self.ids[name]

    @functools.lru_cache(maxsize=None)
    def encoded(self, text):
        done = subprocess.run([self.sol, "tok", "encode", "--vocab", VOCABULARY, "--json", "-"], input=text.encode(),
                              capture_output=True, check=True)
        return json.loads(done.stdout)["ids"]

    def encode_ordinary(self, text):
        return list(self.encoded(text)) if text else []


def open_nanochat(path, sol):
    for name in ("rustbpe", "tiktoken"):
        sys.modules[name] = types.ModuleType(name)
    sys.path.insert(0, os.path.join(path, "nanochat"))
    import tokenizer  # nanochat's
    return tokenizer.RustBPETokenizer(Encoding(sol, tokenizer.SPECIAL_TOKENS), "<|bos|>")


def draw_text(rng):
    return "".join(rng.choice(WORDS) + rng.choice(["", " "]) for _ in range(rng.randint(0, 8)))


def draw_answer(rng):
    if rng.random() < 0.7:
        return draw_text(rng)
    types_ = ["text", "python", "python_output"]
    return [{"type": rng.choice(types_), "text": draw_text(rng)} for _ in range(rng.randint(0, 4))]


def draw_conversation(rng):
    messages = [{"role": "system", "content": draw_text(rng)}] if rng.random() < 0.4 else []
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": draw_text(rng)})
        messages.append({"role": "assistant", "content": draw_answer(rng)})
    return {"messages": messages}


def rendered(sol, conversations, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for conversation in conversations:
            file.write(json.dumps(conversation) + "\n")
        file.flush()
        done = subprocess.run([sol, "chat", "render", "--vocab", VOCABULARY, "--lines", *options, file.name],
                              capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sol")
    parser.add_argument("nanochat")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    nanochat = open_nanochat(arguments.nanochat, arguments.sol)
    whole = [draw_conversation(rng) for _ in range(arguments.count)]
    asked = [{"messages": c["messages"][:-1]} for c in whole]
    differing = []
    for c, got in zip(whole, rendered(arguments.sol, whole, "--turn", "none", "--mask")):
        if nanochat.render_conversation(c, max_tokens=1 << 30) != (got["ids"], got["mask"]):
            differing.append(c)
    for c, got in zip(whole, rendered(arguments.sol, asked)):
        if nanochat.render_for_completion(c) != got["ids"]:
            differing.append(c)
    for c in differing[:5]:
        print("differs:", json.dumps(c))
    print(f"{len(whole)} compared, {len(differing)} differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
