#!/usr/bin/env python3
"""Makes tests/data/tokenizer_small.json and tests/data/tokenizer_vectors.json: a vocabulary that the
`tokenizers` library trained on tests/data/heldout.txt, what it gives for some texts, and what tiktoken
gives with the same tokens as ranks.

usage: tools/tokenizer_vectors.py        (needs: pip install tokenizers tiktoken)
"""
import json
import os
import random
import re

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])
SIZE = 700
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data")


def train(text):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    # In stretches that end where pieces end anyway, so that no piece over a line end is lost.
    t.train_from_iterator(re.split(r"(?<=\n)(?=[A-Za-z0-9])", text), trainer)
    t.add_special_tokens([AddedToken(x, special=True, normalized=False)
                          for x in ("<|startoftext|>", "<|endoftext|>", "<|return|>", "<|end|>")])
    t.add_tokens([AddedToken("<user>", special=False, normalized=False)])
    return t


def texts(text):
    yield from ["", " ", "a", "the", "The quick brown fox. It's 12345 o'clock!\n\n\tDon't\r\n",
                "aaaaaaaaaaaaaaaaaaaaaaa", "  leading and trailing  ", "Grüße, élan, naïve, Ångström",
                "Привет, мир", "日本語のテキスト", "हिन्दी में पाठ", "ภาษาไทย", "e\u0301 a\u0308",
                "👩‍👩‍👧‍👦 🇩🇪 ☺️", "x=1;y=2//z\n/* c */", "https://example.org/a/b?c=d#e"]
    rng = random.Random(7)
    for _ in range(20):
        at = rng.randrange(len(text))
        yield text[at:at + rng.randrange(1, 200)]
    for _ in range(20):
        yield "".join(rng.choice("aeht n'sT\n.1é中\u0301") for _ in range(rng.randrange(1, 60)))


def main():
    with open(os.path.join(DATA, "heldout.txt"), encoding="utf-8", newline="") as f:
        text = f.read()
    t = train(text)
    path = os.path.join(DATA, "tokenizer_small.json")
    t.save(path, pretty=True)
    alphabet = {c: b for b, c in byte_characters().items()}
    with open(path, encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    ranks = {bytes(alphabet[c] for c in token): id for token, id in vocab.items()}
    peer = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    cases = [{"text_hex": x.encode().hex(), "ids": t.encode(x).ids, "tiktoken": peer.encode_ordinary(x)}
             for x in texts(text)]
    special = "a<|end|>b<user><|endoftext|>the<|end|"
    document = {"source": f"tools/tokenizer_vectors.py: tokenizers {tokenizers.__version__}, "
                          f"tiktoken {tiktoken.__version__}",
                "size": SIZE,
                "special": {"text_hex": special.encode().hex(), "ids": t.encode(special).ids},
                "cases": cases}
    with open(os.path.join(DATA, "tokenizer_vectors.json"), "w", encoding="utf-8") as f:
        lines = ",\n".join(json.dumps(c) for c in cases)
        head = json.dumps({k: v for k, v in document.items() if k != "cases"})
        f.write(head[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    print(len(cases), "cases,", os.path.getsize(path), "bytes of vocabulary")


def byte_characters():
    """GPT-2's character for every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


if __name__ == "__main__":
    main()
