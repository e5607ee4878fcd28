#!/usr/bin/env python3
"""Write texts and their ids, as the tokenizers library gives them, for the test of sol's own tokenizer.

    tokenizer_cases.py --tokenizer tokenizer.json --prose heldout.txt --out tokenizer_builtin.json
"""
import argparse
import json
from pathlib import Path

from tokenizers import Tokenizer


def load(path):
    """The library counts added tokens through, so ids that are no token get one that no text has."""
    spec = json.loads(Path(path).read_text(encoding="utf-8"))
    added = {t["id"]: t for t in spec["added_tokens"]}
    like = spec["added_tokens"][0]
    spec["added_tokens"] = [added.get(i, {**like, "id": i, "content": f"[PAD{i}]"})
                            for i in range(min(added), max(added) + 1)]
    tok = Tokenizer.from_str(json.dumps(spec))
    assert all(tok.token_to_id(t["content"]) == i for i, t in added.items())
    return tok, [t["content"] for t in added.values()]


def encode(tok, text):
    """Ids of text alone; a special token's name in it is plain text."""
    tok.encode_special_tokens = True
    return tok.encode(text, add_special_tokens=False).ids


def texts(prose, specials):
    paragraphs = [p for p in prose.split("\n\n") if p]
    yield ""
    yield prose
    yield from paragraphs[:6]
    yield paragraphs[-1].replace("\n", " ")
    yield from [" ", "  ", "     x", "x     ", "a  b   c    d", "\t\tif (x)\n\t\t\treturn;\n", "\n", "\n\n\n", "\r\n\r\n",
                "line one\r\nline two\rline three", "  \n  \n x", "trailing space \n", "\u00a0no-break\u00a0space\u2003em", "\u3000"]
    yield from ["0", "7 81 812 8123 81234 812345678", "3.14159, -2.5e10, 1,000,000", "on the 14th of May, 1832", "\u0661\u0662\u0663\u0664",
                "\u00bd \u2167 x\u00b2"]
    yield from ["I'll, you've, he'd, it's, can't, we're, I'm", "I'LL YOU'VE HE'D IT'S CAN'T", "it\u2019s the boy\u2019s", "'tis 'twas o'clock",
                "it'\u017f long s", "HTTPServer camelCase XMLHttpRequest iPhone McDonald", "don'tstop can'tSTOP"]
    yield from ["He said: \"No!\" -- and left...", "//comment/path/to\n/x", "a+b=c; x<-y && z||w", "*** --- *** !!!???", "(see p. 12)[note]{x}",
                "foo_bar __init__ a_b_c", "e-mail: someone@example.org, https://example.org/?q=1&r=2#top"]
    yield from ["caf\u00e9 na\u00efve \u0153uvre \u00c6sop \u00dcber stra\u00dfe", "e\u0301cole cafe\u0301 a\u0308 o\u0302\u0323", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041c\u043e\u0441\u043a\u0432\u0430\u0420\u0435\u043a\u0430",
                "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u03ba\u03cc\u03c3\u03bc\u03b5", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
                "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6f22\u5b57", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c \u30ab\u30bf\u30ab\u30ca", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
                "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0", "\u0531\u0532 \u0561\u0562"]
    yield from ["\U0001f600\U0001f601 smile", "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea", "\u2764\ufe0f \U0001f44d\U0001f3fd", "\ufeffbom", "zero\u200bwidth", "\x00\x01\x7f", "\U00010348\U0001d538",
                "\u201cquoted\u201d \u2014 and \u2018single\u2019 \u2026"]
    yield from ["a" * 300, "z" * 65 + " " + "Z" * 65, " " * 200, "=" * 80, "ab" * 100, "the" * 50, "\n" * 40, "!" * 129]
    yield from ["<|start|>user<|message|>hi<|end|>", " ".join(specials), "<|endoftext|>", "<|start |> <|star", "<|unknown|>"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--prose", required=True, help="a text of one's own; its paragraphs are cases too")
    p.add_argument("--out", required=True)
    a = p.parse_args()
    tok, specials = load(a.tokenizer)
    cases = []
    for text in texts(Path(a.prose).read_text(encoding="utf-8"), specials):
        ids = encode(tok, text)
        assert tok.decode(ids, skip_special_tokens=False) == text, text
        cases.append({"text_hex": text.encode().hex(), "ids": ids})
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    Path(a.out).write_text('{"cases":[\n' + lines + "\n]}\n")
    print(f"{len(cases)} cases, {sum(len(c['ids']) for c in cases)} tokens")


if __name__ == "__main__":
    main()
