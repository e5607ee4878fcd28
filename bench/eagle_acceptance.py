#!/usr/bin/env python3
"""How many guesses of the built-in model's draft head are right a step, on texts that neither of them was trained on.

usage: eagle_acceptance.py SOL HEAD BOOK [GUESSES [TEXTS]]

Prose behind TEXTS pieces of BOOK (Frankenstein, which was held out), at several temperatures, and answers of sol chat. Prints
steps, guesses, right ones, and tokens a step.
"""
import json
import subprocess
import sys

QUESTIONS = ["Who are you?", "How do I benchmark a model?", "How do I run a model on a GPU?", "What is a tuning record?",
             "My name is Ada. What is my name?", "Thank you!", "How do I convert a model?", "Which formats can you read?"]


def run(*arguments):
    out = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1] if arguments[1] == "chat" else out)


def report(name, results, tokens):
    steps, guessed, right = (sum(r["draft"][k] for r in results) for k in ("steps", "guessed", "accepted"))
    print(f"{name}: {tokens} tokens in {steps} steps, {right} of {guessed} right, {right / steps:.3f} a step, "
          f"{1 + right / steps:.2f} tokens a step", flush=True)


def main():
    sol, head, book = sys.argv[1:4]
    guesses, texts = (sys.argv[4:6] + ["4", "24"][len(sys.argv) - 4:])
    with open(book, encoding="utf-8") as f:
        text = f.read()
    draft = ["--draft", guesses, "--draft-model", head]
    pieces = [text[at:at + 120] for at in range(2000, len(text) - 120, (len(text) - 2200) // int(texts))][:int(texts)]
    for temperature in "0", "0.5", "0.8", "1":
        results = [run(sol, "run", "-q", "--json", "-p", piece, "-n", "128", "--temperature", temperature, "--seed", str(i), *draft)
                   for i, piece in enumerate(pieces)]
        report(f"prose, temperature {temperature}", results, sum(len(r["ids"]) for r in results))
    results = [run(sol, "chat", "-q", "--json", "-p", q, *draft) for q in QUESTIONS]
    report("chat, temperature 0.5", results, sum(r["tokens"]["generated"] for r in results))


main()
