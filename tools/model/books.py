#!/usr/bin/env python3
"""Books as documents for sol train: cut into pieces, shuffled, several times over.

    books.py --corpus BOOKS --out OUT [--held-out frankenstein.txt] [--rounds N] [--piece CHARACTERS] [--seed S]

OUT gets books.jsonl (to train on), val.txt (the last 1.5 % of each book), held_out.txt (a book that nothing else is made
of) and vocabulary.txt (to learn the vocabulary from: the training part of all books). Each round cuts every book at other
paragraphs and shuffles all pieces, so that neighbours in a batch are of different books, and no piece comes twice alike.
"""
import argparse
import json
import random
from pathlib import Path

import data

VALIDATION = 0.015


def pieces(text, size, rng):
    """Whole paragraphs of about `size` characters, the first piece shorter by chance."""
    left = rng.randint(size // 4, size)
    piece = []
    for paragraph in text.split("\n\n"):
        piece.append(paragraph)
        left -= len(paragraph) + 2
        if left <= 0:
            yield "\n\n".join(piece)
            piece, left = [], size
    if piece:
        yield "\n\n".join(piece)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--corpus", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--held-out", default="frankenstein.txt")
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--piece", type=int, default=12000)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    books, held = data.load_books(a.corpus, a.held_out)
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    train, val = [], []
    for _, text in books:
        cut = text.index("\n", int(len(text) * (1 - VALIDATION))) + 1
        train.append(text[:cut])
        val.append(text[cut:])
    with open(out / "books.jsonl", "w", encoding="utf-8") as f:
        for _ in range(a.rounds):
            cut = [piece for text in train for piece in pieces(text, a.piece, rng)]
            rng.shuffle(cut)
            f.writelines(json.dumps({"text": piece}, ensure_ascii=False) + "\n" for piece in cut)
    (out / "val.txt").write_text("\n\n".join(val), encoding="utf-8")
    (out / "held_out.txt").write_text(held, encoding="utf-8")
    (out / "vocabulary.txt").write_text("\n\n".join(train), encoding="utf-8")
    print(f"{sum(map(len, train))} characters of {len(books)} books, {a.rounds} rounds")


if __name__ == "__main__":
    main()
