#!/usr/bin/env python3
"""Makes tests/data/chat_vectors.json.gz: conversations and completions, and what openai-harmony makes of them.

usage: TIKTOKEN_ENCODINGS_BASE=FOLDER tools/chat/make_vectors.py
       (needs: pip install openai-harmony==0.0.8; FOLDER has o200k_base.tiktoken)

Of a rendered conversation two hashes are kept (FNV-1a, 64 bits): of its ids, four bytes each, which a test can compare
where it finds that vocabulary, and of its text with a byte from 0xf5 on in place of each control token, which is the same
with every vocabulary. The conversation itself is kept as text, since it matters how its numbers are read. Completions
are texts of that kind, each byte one token, and some lists of ids.
"""
import base64
import gzip
import json
import os

import draw
from library import Library

MARKS = ["<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>"]
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data", "chat_vectors.json.gz")
LARGEST = 4000  # bytes of a conversation; larger ones are compare.py's


def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{h:016x}"


class Vectors:
    def __init__(self):
        self.library = Library()
        self.marks = {self.library.encode(m)[0]: bytes([0xf5 + i]) for i, m in enumerate(MARKS)}
        with open(os.path.join(os.environ["TIKTOKEN_ENCODINGS_BASE"], "o200k_base.tiktoken"), encoding="ascii") as f:
            ranks = dict(line.split() for line in f)
        self.bytes = {base64.b64decode(t)[0]: int(r) for t, r in ranks.items() if len(base64.b64decode(t)) == 1}

    def text(self, ids):
        return b"".join(self.marks.get(i) or bytes(self.library.inner.decode_bytes([i])) for i in ids)

    def rendered(self, conversation, next_role):
        ids = self.library.render(conversation, next_role)
        if ids is None:
            return None
        return {"conversation": json.dumps(conversation, ensure_ascii=False), "next": next_role or "none", "count": len(ids), "text": fnv(self.text(ids)),
                "ids": fnv(b"".join(i.to_bytes(4, "little") for i in ids))}

    def conversations(self, count):
        n = 0
        for seed in range(100000):
            rng = draw.rng(f"vectors {seed}")
            conversation = draw.conversation(rng, self.library.builtin)
            if len(json.dumps(conversation, ensure_ascii=False).encode()) > LARGEST:
                continue
            vector = self.rendered(conversation, rng.choice(["assistant", "assistant", None, "training", "user"]))
            if vector:
                yield vector
                n += 1
            if n == count:
                return

    def parsed(self, ids, role):
        done = self.library.steps(ids, role)
        if done is None:
            return None
        steps, messages = done
        lines = ["|".join([s["state"], s.get("delta", ""), s.get("channel", ""), s.get("recipient", ""),
                           s.get("content_type", "")]) for s in steps]
        return {"role": role or "none", "steps": fnv("\n".join(lines).encode()), "messages": messages}

    def of_bytes(self, text):
        """A text with control tokens, a token for each byte."""
        parts = [(text, None)]
        for i, mark in enumerate(MARKS):
            parts = [(q, m) for p, m in parts for q, m in
                     ([(p, m)] if m is not None else
                      [x for k, part in enumerate(p.split(mark.encode())) for x in ([(b"", i)] if k else []) + [(part, None)]])]
        return b"".join(p if m is None else bytes([0xf5 + m]) for p, m in parts)

    def completions(self, count):
        for n in range(count):
            rng = draw.rng(f"completions {n}")
            text = draw.well_formed(rng).encode()
            if rng.random() < 0.4:
                at = text.find(b"<|message|>") + len("<|message|>")
                text = text[:at] + bytes(rng.randrange(128, 245) for _ in range(rng.randrange(1, 12))) + text[at:]
            data = self.of_bytes(text)
            names = {0xf5 + i: self.library.encode(m)[0] for i, m in enumerate(MARKS)}
            vector = self.parsed([names.get(b, self.bytes.get(b)) for b in data], "assistant")
            if vector:
                yield {"bytes": data.hex(), **vector}
        for n in range(count // 3):
            rng = draw.rng(f"tokens {n}")
            ids = self.library.encode(draw.well_formed(rng))
            vector = len(ids) < 300 and self.parsed(ids, "assistant")
            if vector:
                yield {"ids": ids, **vector}


def main():
    v = Vectors()
    document = {"source": "tools/chat/make_vectors.py: openai-harmony 0.0.8",
                "render": [*v.conversations(260),
                           v.rendered({"messages": [{"role": "system", "content": [{"type": "system_content", "tools": v.library.builtin}]}]},
                                      "assistant")],
                "parse": list(v.completions(120))}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    with open(OUT, "wb") as f:
        f.write(gzip.compress(text.encode(), 9, mtime=0))
    print(len(document["render"]), "conversations,", len(document["parse"]), "completions,", len(text), "bytes,",
          os.path.getsize(OUT), "compressed")


if __name__ == "__main__":
    main()
