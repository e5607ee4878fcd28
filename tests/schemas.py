#!/usr/bin/env python3
"""What cli_schema.sh needs of Python.

usage: schemas.py check FOLDER SOURCE_FOLDER    every FOLDER/<schema>@<n>.json is what schemas/<schema>.json says,
                                                every schema is of draft 2020-12 and was used
       schemas.py examples FOLDER SOURCE_FOLDER keeps the sol-opt.json of the documents as FOLDER/sol-opt@<n>.json
       schemas.py calls FOLDER COMMAND...       calls the tools that standard input names, a line each, of a server
                                                that COMMAND starts; keeps the answers, and those to "more", as mcp
"""
import glob
import json
import os
import re
import subprocess
import sys

KEEP_ERRORS = 8  # of a file


def strict(text):
    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


# ---- schemas ----


def parts(schema, path="#"):
    """Every object of a schema that describes objects, with where it stands."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield path, schema
        for key, value in schema.items():
            yield from parts(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for i, value in enumerate(schema):
            yield from parts(value, f"{path}/{i}")


def check_schema(name, schema):
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema)
    for key in ("$schema", "title"):
        if not schema.get(key):
            yield f"no {key}"
    if schema.get("$schema") != "https://json-schema.org/draft/2020-12/schema":
        yield "of another draft"
    for path, part in parts(schema):
        if "additionalProperties" not in part:
            yield f"{path} does not say whether other fields may be there"
        for field in part.get("required", []):
            if field not in part["properties"]:
                yield f"{path} requires {field}, which it does not describe"


def fields_of(schema):
    """Pointers of all fields that are described."""
    return {f"{path}/properties/{field}" for path, part in parts(schema) for field in part["properties"]}


def check(folder, source):
    from jsonschema import Draft202012Validator

    failures, schemas, used = 0, {}, set()
    for path in glob.glob(os.path.join(source, "schemas", "*.json")):
        name = os.path.basename(path)[:-5]
        schemas[name] = Draft202012Validator(strict(open(path).read()))
        for error in check_schema(name, schemas[name].schema):
            print(f"FAILED: schemas/{name}.json: {error}")
            failures += 1
    for path in sorted(glob.glob(os.path.join(folder, "*.json")), key=lambda p: int(p.split("@")[1][:-5])):
        name = os.path.basename(path).split("@")[0]
        used.add(name)
        what = path[:-5] + ".txt"
        what = open(what, errors="replace").read().strip() if os.path.exists(what) else name
        try:
            value = strict(open(path).read())
        except ValueError as error:
            print(f"FAILED: {what}: {error}")
            failures += 1
            continue
        if name not in schemas:
            print(f"FAILED: {what}: there is no schema {name}")
            failures += 1
            continue
        for error in list(schemas[name].iter_errors(value))[:KEEP_ERRORS]:
            print(f"FAILED: {what}: schemas/{name}.json: {error.json_path}: {error.message[:300]}")
            failures += 1
        # A field that no schema knows is found: this check itself can fail.
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, dict):
            first["a field that is new"] = 1
            if schemas[name].is_valid(value):
                print(f"FAILED: schemas/{name}.json takes any field")
                failures += 1
    for name in sorted(set(schemas) - used):
        print(f"FAILED: nothing was printed that is of schemas/{name}.json")
        failures += 1
    print(f"{len(schemas)} schemas, {failures} failures")
    return failures


# ---- documents ----


def examples(folder, source):
    """Every sol-opt.json of the documents, whole or some of its lines."""
    count = 0
    for path in sorted(glob.glob(os.path.join(source, "*.md")) + glob.glob(os.path.join(source, "docs", "*.md"))):
        for block in re.findall(r"^```\w*\n(.*?)^```", open(path).read(), re.S | re.M):
            whole = re.search(r"^\{\n.*?^\}", block, re.S | re.M)
            if '"benchmark":' not in block:
                continue
            value = strict(whole.group() if whole else "{" + block.strip().rstrip(",") + "}")
            if not whole:
                value = {"correctness": None, "perplexity": None} | value
            count += 1
            stem = os.path.join(folder, f"sol-opt@{8000 + count}")
            json.dump(value, open(stem + ".json", "w"))
            open(stem + ".txt", "w").write(f"sol-opt.json in {os.path.basename(path)}")
    return count < 3


# ---- sol mcp ----


def calls(folder, command):
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    number = 0

    def ask(method, params):
        nonlocal number
        number += 1
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        server.stdin.flush()
        return strict(server.stdout.readline())

    def call(tool, arguments):
        reply = ask("tools/call", {"name": tool, "arguments": arguments})
        text = reply["result"]["content"][0]["text"]
        stem = os.path.join(folder, f"mcp@{9000 + number}")
        open(stem + ".json", "w").write(text)
        open(stem + ".txt", "w").write(f"mcp: {tool} {json.dumps(arguments)}")
        return strict(text)

    ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    server.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    for line in sys.stdin:
        tool, _, arguments = line.strip().partition(" ")
        answer = call(tool, json.loads(arguments))
        if "more" in answer:
            call("more", answer["more"]["arguments"])
            call("more", {"id": answer["more"]["arguments"]["id"], "offset": 0})
    server.stdin.close()
    return server.wait()


if __name__ == "__main__":
    if sys.argv[1] == "calls":
        sys.exit(calls(sys.argv[2], sys.argv[3:]))
    sys.exit({"check": check, "examples": examples}[sys.argv[1]](*sys.argv[2:]) > 0)
