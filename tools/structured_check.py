#!/usr/bin/env python3
"""Structured output against code that we did not write.

usage: tools/structured_check.py DRIVER VOCABULARY [FOLDER]... [--limit N] [--steps N] [--seed N] [-v]
       tools/structured_check.py DRIVER tests/data/tokenizer_small.json --steps 16 --write tests/data/structured_vectors.json

DRIVER is BUILD_FOLDER/structured_driver, VOCABULARY a .tiktoken file or a tokenizer.json. A FOLDER holds files {"schema": ..., "tests": [{"valid": ..., "data": ...}]}
or plain schemas: maskbench/data of github.com/guidance-ai/jsonschemabench, say. Without one, the schemas below.
Needs llguidance and jsonschema (PyPI). For each schema:
  - random texts through our masks; at each step our mask is compared with llguidance's (no white space in both);
  - a text that came to its end must satisfy the schema, as the package jsonschema sees it;
  - instances of the file, their keys in the schema's order, must be accepted or refused as the file says.
Prints counts, refusals by keyword, and what differs. Differences that are meant are named by explained().
"""
import argparse
import base64
import collections
import glob
import json
import os
import random
import subprocess
import sys
import time

import jsonschema
import llguidance

OWN = [
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "object", "properties": {k: {"type": "string", "maxLength": 5} for k in "abcde"}, "required": ["b"],
     "additionalProperties": False},
    {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
    {"enum": ["red", "green", "gr\u00fcn", 1, 2.5, None, True, "a\"b\\c"]},
    {"$defs": {"node": {"type": "object", "properties": {"v": {"type": "boolean"}, "next": {"anyOf": [
        {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": False}},
     "$ref": "#/$defs/node"},
    {"type": "integer", "minimum": -17, "maximum": 204},
    {"type": "integer", "exclusiveMinimum": 9, "multipleOf": 7},
    {"type": "string", "minLength": 3, "maxLength": 8},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    {"type": "string", "pattern": "^(foo|ba[rz])+x?$"},
    {"type": ["string", "null", "integer"]},
    {"anyOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
                "required": ["kind", "x"], "additionalProperties": False},
               {"type": "object", "properties": {"kind": {"const": "b"}, "y": {"type": "string"}},
                "required": ["kind", "y"], "additionalProperties": False}]},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}, "required": ["id"]},
    {"type": "object"},
] + [{"type": "string", "format": f} for f in
     ("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")]


def explained(data, text):
    """Why a token with these bytes, behind this text, may be legal for one of the two only."""
    if b"\x7f" in data:
        return "DEL: llguidance has no raw DEL in strings; RFC 8259 has"
    if b"\\/" in data or b"\\u" in data or b"\\" in text[-6:]:
        return "escapes: of slashes, of letters where a pattern decides, of halves of surrogate pairs"
    if data[:1] in (b"t", b"z") or (data[:1] == b"6" and text[-1:] == b":"):
        return "RFC 3339: small t and z, and the 60th second, are not written by us"
    if data[:2] == b"@[":
        return "email: no addresses of machines in brackets"
    if data[:1] == b"." and text.count(b":") >= 2:
        return "ipv6: an IPv4 address at the end (RFC 3986)"
    return None


def byte_alphabet():
    """GPT-2's alphabet: character to byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


class Tokens:
    """Of a .tiktoken file, with harmony's special tokens behind it, or of a tokenizer.json."""

    def __init__(self, path):
        self.bos_token_id = None
        if path.endswith(".json"):
            return self.read_json(path)
        self.tokens = []
        with open(path, "rb") as file:
            for line in file:
                self.tokens.append(base64.b64decode(line.split()[0]))
        text = len(self.tokens)
        while len(self.tokens) < text + 21:
            self.tokens.append(b"<|special_%d|>" % len(self.tokens))
        self.special_token_ids = list(range(text, len(self.tokens)))
        self.eos_token_id = text + 1

    def read_json(self, path):
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        alphabet = byte_alphabet()
        found = {i: bytes(alphabet[c] for c in word) for word, i in content["model"]["vocab"].items()}
        self.special_token_ids = [t["id"] for t in content["added_tokens"] if t["special"]]
        found |= {t["id"]: t["content"].encode() for t in content["added_tokens"]}
        self.tokens = [found.get(i, b"<|none_%d|>" % i) for i in range(max(found) + 1)]
        self.special_token_ids += [i for i in range(len(self.tokens)) if i not in found]
        self.eos_token_id = next(t["id"] for t in content["added_tokens"] if t["content"] == "<|endoftext|>")

    def __call__(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        return [self.index[bytes([b])] for b in data]

    def finish(self):
        special = set(self.special_token_ids)
        self.index = {t: i for i, t in enumerate(self.tokens) if i not in special}
        self.text = ((1 << len(self.tokens)) - 1) & ~sum(1 << i for i in special)  # a mask
        self.count = len(self.tokens)
        return self


class Driver:
    def __init__(self, path, vocabulary, *options):
        self.process = subprocess.Popen([path, vocabulary, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.words, self.build_ns, self.bytes = map(int, self.process.stdout.readline().split())

    def ask(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().rstrip("\n")

    def compile(self, schema):
        return self.ask("S " + json.dumps(schema))

    def mask(self):
        """(nanoseconds, mask as an integer)"""
        took = int(self.ask("M"))
        return took, int.from_bytes(self.process.stdout.read(self.words * 4), "little")

    def check(self, text):
        return self.ask("V " + text.encode().hex())


class Peer:
    """llguidance without white space."""

    def __init__(self, tokens, slices=None):
        wrapper = llguidance.TokenizerWrapper(tokens)
        if slices is None:
            slices = llguidance.LLTokenizer.json_slices()
        self.tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=len(tokens.tokens), slices=slices)
        self.bytes = (len(tokens.tokens) + 31) // 32 * 4
        self.buffer = bytearray(self.bytes)

    def compile(self, schema):
        start = time.thread_time_ns()
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(
                json.dumps(schema), overrides={"whitespace_flexible": False, "item_separator": ",",
                                               "key_separator": ":"})
        except Exception as error:  # it raises ValueError and others
            return None, str(error)
        matcher = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0)
        self.compile_ns = time.thread_time_ns() - start
        return (None, matcher.get_error()) if matcher.is_error() else (matcher, "")

    def mask(self, matcher):
        import ctypes
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))
        start = time.thread_time_ns()
        matcher.unsafe_compute_mask_ptr(address, self.bytes)
        took = time.thread_time_ns() - start
        return took, int.from_bytes(self.buffer, "little")


def bits_of(mask, limit=None):
    out = []
    while mask and (limit is None or len(out) < limit):
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def choose(mask, tokens, rng, closing):
    """A random token of the mask, now and then one that brings an end nearer."""
    if rng.random() < 0.35:
        near = [i for i in closing if mask >> i & 1]
        if near:
            return rng.choice(near)
    data = mask.to_bytes((len(tokens.tokens) + 31) // 32 * 4, "little")
    for _ in range(40):
        i = rng.randrange(tokens.count)
        if data[i >> 3] >> (i & 7) & 1:
            return i
    return rng.choice(bits_of(mask))


def reorder(value, schema, root, depth=0):
    """Keys in the schema's order, the others behind them."""
    if depth > 40 or not isinstance(schema, dict):
        return value
    if "$ref" in schema:
        at = root
        try:
            for part in schema["$ref"].lstrip("#").strip("/").split("/"):
                if part:
                    part = part.replace("~1", "/").replace("~0", "~")
                    at = at[int(part)] if isinstance(at, list) else at[part]
        except (KeyError, ValueError, IndexError):
            return value
        value = reorder(value, at, root, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        for way in reversed(schema.get(word, [])):
            full = dict(way, **{k: root[k] for k in ("$defs", "definitions") if k in root}) if isinstance(way, dict) else way
            try:
                if word == "allOf" or jsonschema.Draft202012Validator(full).is_valid(value):
                    value = reorder(value, way, root, depth + 1)
            except Exception:
                pass
    if isinstance(value, dict):
        known = schema.get("properties", {}) if isinstance(schema.get("properties"), dict) else {}
        keys = [k for k in known if k in value]
        keys += [k for k in schema.get("required", []) if k in value and k not in known] \
            if isinstance(schema.get("required"), list) else []
        keys += [k for k in value if k not in keys]
        return {k: reorder(value[k], known.get(k, schema.get("additionalProperties")), root, depth + 1) for k in keys}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [reorder(v, schema["items"], root, depth + 1) for v in value]
    return value


class Check:
    def __init__(self, arguments):
        self.arguments = arguments
        self.tokens = Tokens(arguments.vocabulary).finish()
        self.driver = Driver(arguments.driver, arguments.vocabulary, "none")
        self.peer = Peer(self.tokens)
        self.rng = random.Random(arguments.seed)
        self.closing = [self.tokens.index[t] for t in (b'"', b"}", b"]", b"1", b'",', b'"}', b'":', b"0", b"true")
                        if t in self.tokens.index]
        self.counts = collections.Counter()
        self.refusals = collections.Counter()
        self.reasons = collections.Counter()

    def compare(self, name, ours, theirs, text):
        eos = 1 << self.tokens.eos_token_id
        differ = (ours ^ theirs) & ~eos & self.tokens.text
        self.counts["masks"] += 1
        if not differ:
            self.counts["masks equal"] += 1
            return True
        text_tokens = self.tokens.text
        if (theirs & text_tokens).bit_count() == 1 and theirs & ours & text_tokens:
            self.reasons["forced text: llguidance allows its own token only"] += 1
            self.counts["masks equal but for what is explained"] += 1
            return True
        unexplained = 0
        for i in bits_of(differ):
            why = explained(self.tokens.tokens[i], text)
            if why:
                self.reasons[why] += 1
            else:
                unexplained |= 1 << i
        if not unexplained:
            self.counts["masks equal but for what is explained"] += 1
            return True
        self.counts["masks that differ"] += 1
        if self.arguments.verbose:
            more, less = bits_of(unexplained & ours, 6), bits_of(unexplained & theirs, 6)
            print(f"{name}: after {text[-60:]!r}: only ours {[self.tokens.tokens[i] for i in more]}, "
                  f"only theirs {[self.tokens.tokens[i] for i in less]}")
        return False

    def walk(self, name, schema, matcher, validator):
        data = b""
        same = True
        self.driver.ask("R")
        for _ in range(self.arguments.steps):
            accepts, ended = self.driver.ask("A").split()
            took, mask = self.driver.mask()
            self.counts["tokens"] += 1
            if not mask and accepts == "0":
                self.counts["DEAD ENDS"] += 1
                print(f"{name}: a dead end after {data!r}")
                return
            if matcher is not None:
                _, theirs = self.peer.mask(matcher)
                same = self.compare(name, mask, theirs, data)
                if (theirs >> self.tokens.eos_token_id & 1) != int(accepts):
                    self.counts["ENDS THAT DIFFER"] += 1
                common = mask & theirs
            else:
                common = mask
            if ended == "1" or (accepts == "1" and self.rng.random() < 0.3):
                self.validate(name, data, validator)
                return
            common &= self.tokens.text
            if not common:
                matcher = None
                common = mask
            token = choose(common, self.tokens, self.rng, self.closing)
            data += self.tokens.tokens[token]
            assert self.driver.ask(f"T {token}") == "ok", (name, data)
            if matcher is not None and not matcher.consume_token(token):
                self.counts["peer refuses a token of its mask"] += 1
                matcher = None
        self.counts["texts cut"] += 1

    def vectors(self, schema, steps):
        """A text with the peer's masks, and where ours differ on purpose."""
        assert self.driver.compile(schema).startswith("ok"), schema
        matcher, error = self.peer.compile(schema)
        assert matcher, error
        data, out = b"", []
        for _ in range(steps):
            _, ours = self.driver.mask()
            _, theirs = self.peer.mask(matcher)
            accepts, ended = self.driver.ask("A").split()
            ours, theirs = ours & self.tokens.text, theirs & self.tokens.text
            forced = theirs.bit_count() == 1 and ours & theirs and ours != theirs
            meant = ours ^ theirs
            for i in bits_of(meant):
                assert forced or explained(self.tokens.tokens[i], data), (schema, data, self.tokens.tokens[i])
            out.append({"mask": f"{theirs:x}", "meant": f"{meant:x}", "accepts": accepts == "1"})
            if ended == "1" or not ours & theirs:
                break
            token = choose(ours & theirs, self.tokens, self.rng, self.closing)
            data += self.tokens.tokens[token]
            out[-1]["token"] = token
            self.driver.ask(f"T {token}")
            matcher.consume_token(token)
        return {"schema": schema, "steps": out}

    def write(self, path):
        content = {"made_by": "tools/structured_check.py --write with llguidance " + llguidance.__version__,
                   "vectors": [self.vectors(schema, self.arguments.steps) for schema in OWN for _ in range(2)]}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, separators=(",", ":"))
            file.write("\n")

    def validate(self, name, data, validator):
        self.counts["texts"] += 1
        try:
            value = json.loads(data.decode())
        except ValueError as error:
            self.counts["TEXTS THAT ARE NO JSON"] += 1
            print(f"{name}: no JSON: {data!r}: {error}")
            return
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return
        try:
            errors = list(validator.iter_errors(value)) if validator else []
        except Exception as error:  # a schema that jsonschema itself cannot use
            self.counts["texts that jsonschema cannot judge"] += 1
            return
        if errors:
            self.counts["TEXTS THAT VIOLATE THE SCHEMA"] += 1
            print(f"{name}: {data!r}: {errors[0].message[:200]}")
        else:
            self.counts["texts valid"] += 1

    def instances(self, name, schema, tests):
        for test in tests:
            value = reorder(test["data"], schema, schema)
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            answer = self.driver.check(text)
            right = (answer == "yes") == test["valid"]
            kind = "valid" if test["valid"] else "invalid"
            self.counts[f"{kind} instances"] += 1
            if not right:
                self.counts[f"{kind} instances JUDGED WRONGLY"] += 1
                if self.arguments.verbose:
                    at = int(answer.split()[1]) if answer.startswith("no ") else 0
                    print(f"{name}: {kind} instance: {answer}: {text.encode()[max(0, at - 60):at + 40]!r}")

    def schema(self, name, schema, tests):
        self.counts["schemas"] += 1
        answer = self.driver.compile(schema)
        matcher, error = self.peer.compile(schema)
        if not answer.startswith("ok"):
            self.counts["schemas refused"] += 1
            self.counts["schemas refused, also by the peer"] += matcher is None
            words = answer.split(": ", 1)
            self.refusals[words[-1][:90]] += 1
            if self.arguments.verbose:
                print(f"{name}: {answer}")
            return
        self.counts["schemas accepted"] += 1
        self.counts["schemas accepted that the peer refuses"] += matcher is None
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator) \
            if isinstance(schema, dict) else jsonschema.Draft202012Validator
        validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
        for _ in range(self.arguments.walks):
            self.walk(name, schema, matcher.deep_copy() if matcher else None, validator)
        self.instances(name, schema, tests)

    def report(self):
        for name, n in sorted(self.counts.items()):
            print(f"{n:9} {name}")
        for title, counter in (("refused because", self.refusals), ("differences that are meant", self.reasons)):
            if counter:
                print(title)
                for name, n in counter.most_common(25):
                    print(f"{n:9}   {name}")
        return any(n and name.isupper() for name, n in self.counts.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver")
    parser.add_argument("vocabulary")
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--limit", type=int, default=10**9, help="schemas of a folder, drawn at random")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--walks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", metavar="FILE", help="vectors of the schemas below for tests/unit_grammar.c, no more")
    parser.add_argument("-v", "--verbose", action="store_true")
    check = Check(parser.parse_args())
    arguments = check.arguments
    if arguments.write:
        return check.write(arguments.write)
    if not arguments.folders:
        for i, schema in enumerate(OWN):
            check.schema(f"own {i}", schema, [])
    for folder in arguments.folders:
        files = sorted(glob.glob(os.path.join(folder, "*.json"))) if os.path.isdir(folder) else sorted(glob.glob(folder))
        if len(files) > arguments.limit:
            files = random.Random(arguments.seed).sample(files, arguments.limit)
        for file in files:
            with open(file, encoding="utf-8") as stream:
                content = json.load(stream)
            whole = isinstance(content, dict) and "schema" in content and "tests" in content
            check.schema(os.path.basename(file), content["schema"] if whole else content,
                         content["tests"] if whole else [])
    sys.exit(check.report())


if __name__ == "__main__":
    main()
