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
import re
from pathlib import Path

VALIDATION = 0.015


def clean(text):
    """LF line ends; no credits of the e-text's makers at the top, no publisher's advertisements below."""
    text = text.replace("\r\n", "\n").lstrip("\ufeff\n ")
    for mark in ("\nTypographical errors corrected by the etext", "\n                     _There's More to Follow"):
        if mark in text:
            text = text[:text.index(mark)]
    head = text[:400].split("\n\n\n")[0]
    if re.match(r"(Produced by|An Anonymous Volunteer)", head):
        text = text[len(head):]
    text = re.sub(r"\n*Original Transcriber.s Notes:\n.*?\n\n\n+", "\n\n\n\n", text, count=1, flags=re.S)
    return text.strip("\n ") + "\n"


def load_books(corpus, held_out):
    """(list of (name, text) to learn from, text of the held-out book)"""
    books, held = [], None
    for path in sorted(Path(corpus).glob("*.txt")):
        text = clean(path.read_text(encoding="utf-8"))
        if path.name == held_out:
            held = text
        else:
            books.append((path.name, text))
    if held is None:
        raise SystemExit(f"{held_out} is not in {corpus}")
    return books, held


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
    books, held = load_books(a.corpus, a.held_out)
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
