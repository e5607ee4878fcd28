#!/usr/bin/env python3
"""Writes tests/data/pretokenize.json: texts and the pieces that the o200k pattern cuts them into.

usage: tools/pretokenize_cases.py        (needs: pip install regex tiktoken)

The `regex` module finds the pieces; then every case is confirmed by tiktoken itself, which does not show
its pieces but looks a whole piece up before it merges: a vocabulary of the 256 bytes and the expected
pieces gives exactly those pieces back if, and only if, it cuts in the same places. Both must agree.
"""
import itertools
import json
import pathlib
import random
import sys

import regex
import tiktoken

SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + SUFFIX,
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + SUFFIX,
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

HAND_MADE = [
    "The quick brown fox jumps over the lazy dog.", "a", " ", "\n", "'", "1", "\t\t\tindent", "word \n next",
    # contractions: case, long s, doubled, not one, after marks and upper case
    "I'm you're we've he'll she'd it's don't", "I'M YOU'RE WE'VE HE'LL SHE'D IT'S DON'T", "I'm'm x'S'T y'rE z'Ll",
    "it'\u017f IT'\u017f", "'s alone", " 's", "o'clock l'eau d'accord 'tis", "can't've", "A'dam B'lue", "e\u0301's E\u0301'LL",
    "x'", "x'l", "x'r", "x'v 'V", "it\u2019s don\u2019t", "7's 7th", "!'s",
    # case inside a word
    "camelCaseWord PascalCase HTTPServer iPhone mcDonald XMLHttpRequest", "ABCdef abcDEF aBcDeF ABC", "\u01c5ungla \u01c8ubav \u01f2",
    "\u4e2dABC ABC\u4e2d ABC\u4e2dDEF\u4e2d ab\u4e2dCD", "\u02b0A A\u02b0B\u02b0", "\u00c9COLE \u00c9cole \u00e9COLE",
    # marks: as prefix, alone, before upper case, in runs
    "\u0301", "\u0301\u0302", "\u0301A", "\u0301ABC", "\u0301a", "a\u0301b", "A\u0301B", "!\u0301", " \u0301A", "\u0301\u0302AB\u0303C",
    "1\u0301", "\n\u0301x", "e\u0301te\u0301 E\u0301TE\u0301 caf\u00e9", "Z\u0351\u036ba\u0322lgo\u0316", "\u20e3 1\ufe0f\u20e3",
    # digits of several scripts
    "1234567 12 3", "3.14159 1,000,000 0x1F 1e10", "\u0661\u0662\u0663\u0664\u0665 \u0967\u0968\u0969\u096a", "x2y3 \u00bd\u00b2 \u2167\u2168\u2169\u216a", "\u4e00\u4e8c\u4e09 \u3007",
    # white space and line ends
    "a  b", "a   b    c", "a \tb", "a\u00a0b \u00a0 c", "x  ", "x \n", "x\n\n\ny", "x \n \n y", "x\r\n\r\ny", "  \n  ", "\n  x", "\r", " \r \r\n  !",
    "\u2003\u2003wide\u3000\u3000\u4e2d", "\u0085next \u2028line\u2029para", "a\u200bb", "tab\t\tx\t!", "   !", "\v\f x", "\x1c\x1d",
    # punctuation with trailing line ends and slashes
    "end.\n\nNext", "}\n}\n\n", "a/b//c ///\n/\n x", "path/to/file.c:12: error!\r\n", "!!! ??? ...", " --flag=value", "a+b=c;d--", "<|end|>", "$5.00 \u20ac9", "#include <x.h>\n",
    "!\n!", "! \n!", "/\n/a", "_under_score__", "`code` **bold**", "\"Quote,\" he said.", "(a)[b]{c}",
    # scripts
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u041c\u0418\u0420 \u043c\u0438\u0420\u043eV", "\u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u039a\u039f\u03a3\u039c\u0395",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e, \u0915\u0948\u0938\u0947 \u0939\u094b?", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0645\u0631\u062d\u0628\u0627\u064b \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u061f", "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f\u30fc\u30ab\u30bf\u30ab\u30ca",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u1781\u17d2\u1798\u17c2\u179a \u1019\u103c\u1014\u103a\u1019\u102c", "\u0b95\u0bbe\u0bb2\u0bc8 \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd", "\u10d2\u10d0\u10db\u10d0\u10e0 \u1c92\u1c90\u1c9b", "\u13a0\u13b5 \uab70",
    "Ti\u1ebfng Vi\u1ec7t \u0110\u00c0 N\u1eb4NG", "\U00010400\U00010428 \U0001d400\U0001d41a", "\u12a0\u121b\u122d\u129b \u0f56\u0f7c\u0f51",
    # emoji and symbols
    "\U0001f600\U0001f601 ok", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd!", "\U0001f1e9\U0001f1ea flag", "\u2764\ufe0fx", "a\ufe0fB", "\u2192 \u2260 \u221e", "\u00ad\ufeffBOM",
    # Unicode 15 and 16: letters newer than the tables of PCRE2 10.42
    "\u0cf3\u0ece \U00011f04\U00011f05", "\U0001e4d0\U0001e4ec\U0001e4f0", "\U00010d50\U00010d70\U00010d40", "\ua7cb\ua7cd\ua7da\ua7db", "\u0897\u0628", "\U00031350\U000323af",
    # unassigned, private use, last code point
    "\u0378a \ue000b \U0010ffff",
]
ALPHABET = ["a", "b", "s", "t", "A", "B", "S", "\u00e9", "\u00c9", "\u01c5", "\u02b0", "\u4e2d", "\u0e01", "\u0301", "\u093f", "1", "2", "\u0967", " ",
            " ", "\t", "\u00a0", "\u3000", "\n", "\r", "'", "'", "'s", "'LL", "'rE", "/", ".", "!", "\u2019", "\U0001f600", "\u200d", "\u017f"]


def split(text):
    pieces = regex.findall(PATTERN, text, flags=regex.V0)
    assert "".join(pieces) == text, text
    return pieces


def confirm(text, pieces):
    ranks = {bytes([i]): i for i in range(256)}
    for piece in pieces:
        ranks.setdefault(piece.encode(), len(ranks))
    encoding = tiktoken.Encoding("pieces", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    if encoding.encode_ordinary(text) != [ranks[p.encode()] for p in pieces]:
        sys.exit(f"regex and tiktoken cut differently: {text!r} -> {pieces!r}")


def main():
    rng = random.Random(200)
    texts = list(HAND_MADE)
    texts += ["".join(p) for p in itertools.product(["\u0301", "A", "a", "\u4e2d", " "], repeat=3)]
    texts += ["".join(rng.choices(ALPHABET, k=rng.randint(2, 24))) for _ in range(400)]
    cases = []
    for text in dict.fromkeys(texts):
        pieces = split(text)
        confirm(text, pieces)
        cases.append(pieces)
    path = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "pretokenize.json"
    lines = ",\n".join(json.dumps(c) for c in cases)
    path.write_text(f'{{"source": "tools/pretokenize_cases.py, confirmed by tiktoken {tiktoken.__version__}; '
                    f'each case is a list of pieces, their concatenation the text",\n"cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} cases, {path.stat().st_size} bytes")


main()
