"""Random conversations in openai-harmony's JSON, with tools and schemas, ordinary and odd: what make_vectors.py and
compare.py give to the library and to sol. A seed gives the same ones."""
import json
import random

WORDS = ["the", "quick", "Brown", "fox's", "don't", "12345", "3.14", "Grüße", "naïve", "Привет", "мир", "日本語", "テキスト",
         "हिन्दी", "ภาษาไทย", "مرحبا", "שלום", "e\u0301", "👩‍👩‍👧‍👦", "🇩🇪", "☺️", "\u00a0", "\u200d", "{\"a\": 1}", "x=1;", "//", "/*c*/",
         "https://e.org/a?b#c", "<|start|>", "<|end|>", "<|channel|>final<|message|>", "<|constrain|>json", "<|", "|>",
         "\t", "  ", "\r\n", "\n", "\n\n", "\\", "\"", "`code`", "ſ", "ß", "İ", "𝔘𝔫𝔦", "\ufeff", "null", "any", "to=functions.f"]
NAMES = ["location", "unit", "q", "max_results", "用户", "with space", "hy-phen", "a.b", "$ref", "é", "x1", "__proto__", "default"]
TOOLS = ["get_weather", "search-web", "calc", "a", "Very_Long_Name_Of_A_Tool_That_Goes_On", "número"]
CHANNELS = ["analysis", "commentary", "final"]
EFFORTS = ["Low", "Medium", "High"]


def text(rng, most=12):
    kind = rng.random()
    if kind < 0.06:
        return ""
    if kind < 0.1:
        return "".join(chr(rng.choice([rng.randrange(1, 128), rng.randrange(0xa0, 0xd7ff), rng.randrange(0x10000, 0x10ffff)]))
                       for _ in range(rng.randrange(1, 2 * most)))
    words = [rng.choice(WORDS) for _ in range(rng.randrange(1, most))]
    return rng.choice(["", " ", " ", " ", "\n"]).join(words)


def line(rng):
    return rng.choice([text(rng, 8), "A plain sentence.", "One line.\nAnd another.", "Ends with a line end.\n", "\r\nodd\r\n\r"])


def value(rng, depth=2):
    kind = rng.randrange(12 if depth else 9)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.choice([0, 1, -1, 10, 42, 2 ** 31, -2 ** 63, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1, 2 ** 64, -2 ** 63 - 1, 10 ** 30])
    if kind == 3:
        return rng.choice([0.0, -0.0, 1.0, 1.5, 0.1, 1e16, 1e15, 123456789.125, 1e-5, 1e-4, 1.5e-7, 1e300, 5e-324, 1e22, 1e23,
                           rng.random(), rng.random() * 10 ** rng.randrange(-30, 30), rng.gauss(0, 1)])
    if kind < 9:
        return text(rng, 4)
    if kind < 11:
        return [value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return {rng.choice(NAMES): value(rng, depth - 1) for _ in range(rng.randrange(3))}


def schema(rng, depth=3):
    """Mostly what people write; now and then anything."""
    odd = rng.random()
    if odd < 0.03:
        return value(rng)
    s = {}
    kinds = ["string", "string", "number", "integer", "boolean", "object", "array", "enum", "list", "oneOf", "anyOf", "ref",
             "const", "null", "none", "allOf", "nothing"]
    kind = rng.choice(kinds if depth else kinds[:5])
    if rng.random() < 0.5:
        s["description"] = line(rng)
    if kind in ("string", "number", "integer", "boolean", "null", "nothing"):
        s["type"] = kind
    elif kind == "object":
        s = {**objects(rng, depth - 1), **s}
    elif kind == "array":
        s["type"] = "array"
        if rng.random() < 0.8:
            s["items"] = schema(rng, depth - 1)
    elif kind == "enum":
        s["enum"] = rng.choice([["a", "b"], ["celsius", "fahrenheit"], [text(rng, 3)], [1, 2], ["x", 1, None], []])
        if rng.random() < 0.8:
            s["type"] = rng.choice(["string", "string", "number", "integer"])
    elif kind == "list":
        s["type"] = rng.choice([["string", "null"], ["number", "string"], ["integer"], [], [1, "integer"], ["object", "null"]])
    elif kind in ("oneOf", "anyOf", "allOf"):
        s[kind] = [schema(rng, depth - 1) for _ in range(rng.randrange(4))] if rng.random() < 0.95 else "x"
        if rng.random() < 0.2:
            s["type"] = "string"
        if s[kind] and rng.random() < 0.2 and isinstance(s[kind][0], dict) and "description" in s[kind][0]:
            s["description"] = s[kind][0]["description"]
    elif kind == "ref":
        s["$ref"] = "#/$defs/Thing"
    elif kind == "const":
        s["const"] = value(rng, 1)
    for key, odds, make in [("title", 0.15, lambda: line(rng)), ("default", 0.3, lambda: value(rng)),
                            ("nullable", 0.1, lambda: rng.choice([True, False, "yes"])),
                            ("examples", 0.15, lambda: [value(rng, 1) for _ in range(rng.randrange(4))]),
                            ("enum", 0.03, lambda: ["p", "q"]), ("format", 0.05, lambda: "date")]:
        if rng.random() < odds:
            s[key] = make()
    return s


def objects(rng, depth):
    names = rng.sample(NAMES, rng.randrange(5))
    s = {"type": "object", "properties": {n: schema(rng, depth) for n in names}}
    if rng.random() < 0.7:
        s["required"] = [n for n in names if rng.random() < 0.5] + ([1] if rng.random() < 0.05 else [])
    if rng.random() < 0.3:
        s["additionalProperties"] = rng.choice([False, True, {"type": "string"}])
    if rng.random() < 0.05:
        del s["properties"]
    return s


def tool(rng, name):
    t = {"name": name, "description": line(rng)}
    kind = rng.random()
    if kind < 0.75:
        t["parameters"] = objects(rng, 3) if rng.random() < 0.9 else schema(rng)
    elif kind < 0.85:
        t["parameters"] = rng.choice([None, {}, {"type": "object"}, {"type": "object", "properties": {}}])
    return t


def namespace(rng, name):
    n = {"name": name, "tools": [tool(rng, x) for x in rng.sample(TOOLS, rng.randrange(4))]}
    if rng.random() < 0.5:
        n["description"] = rng.choice([line(rng), None])
    return n


def namespaces(rng, names):
    return {n: namespace(rng, n if rng.random() < 0.95 else text(rng, 3)) for n in names}


def system(rng, builtin):
    if rng.random() < 0.2:
        return {"role": "system", "content": text(rng)}
    s = {"type": "system_content"}
    if rng.random() < 0.9:
        s["model_identity"] = rng.choice(["You are ChatGPT, a large language model trained by OpenAI.", text(rng), None])
    if rng.random() < 0.9:
        s["reasoning_effort"] = rng.choice(EFFORTS)
    if rng.random() < 0.6:
        s["conversation_start_date"] = rng.choice(["2025-06-28", "2026-11-24", text(rng, 3)])
    if rng.random() < 0.9:
        s["knowledge_cutoff"] = "2024-06"
    if rng.random() < 0.9:
        s["channel_config"] = {"valid_channels": rng.choice([CHANNELS, CHANNELS[:1], [], [text(rng, 3)]]),
                               "channel_required": rng.random() < 0.8}
    if rng.random() < 0.4:
        s["tools"] = {n: builtin[n] for n in rng.sample(sorted(builtin), rng.randrange(3))}
        if rng.random() < 0.1:
            s["tools"].update(namespaces(rng, ["zoo"]))
    return {"role": "system", "content": [s]}


def developer(rng):
    if rng.random() < 0.15:
        return {"role": "developer", "content": text(rng)}
    d = {"type": "developer_content"}
    if rng.random() < 0.8:
        d["instructions"] = line(rng)
    if rng.random() < 0.7:
        d["tools"] = namespaces(rng, rng.sample(["functions", "functions", "api", "Zeta", "änder"], rng.randrange(1, 3)))
    return {"role": "developer", "content": [d] if rng.random() < 0.95 else [d, {"type": "text", "text": text(rng)}]}


def message(rng):
    kind = rng.random()
    if kind < 0.3:
        m = {"role": "user", "content": text(rng, 30)}
        if rng.random() < 0.1:
            m["name"] = text(rng, 3)
    elif kind < 0.5:
        m = {"role": "assistant", "channel": rng.choice(CHANNELS + ["analysis", "final", ""]), "content": text(rng, 30)}
    elif kind < 0.65:
        m = {"role": "assistant", "channel": "commentary", "recipient": "functions." + rng.choice(TOOLS),
             "content": json.dumps(value(rng))}
        if rng.random() < 0.8:
            m["content_type"] = rng.choice(["<|constrain|>json", "json", "code", "<|constrain|>", text(rng, 3)])
    elif kind < 0.72:
        m = {"role": "assistant", "channel": "analysis", "recipient": rng.choice(["python", "browser.search", "all"]),
             "content_type": "code", "content": text(rng, 20)}
    elif kind < 0.85:
        m = {"role": "tool", "name": "functions." + rng.choice(TOOLS), "recipient": "assistant", "channel": "commentary",
             "content": text(rng, 20)}
    else:
        m = {"role": rng.choice(["user", "assistant", "developer", "system", "tool"]), "name": text(rng, 3),
             "content": [{"type": "text", "text": text(rng)} for _ in range(rng.randrange(3))]}
        for key in ("channel", "recipient", "content_type"):
            if rng.random() < 0.4:
                m[key] = rng.choice([None, text(rng, 3), "all", "final"])
    return m


def conversation(rng, builtin):
    messages = []
    if rng.random() < 0.9:
        messages.append(system(rng, builtin))
    if rng.random() < 0.7:
        messages.append(developer(rng))
    messages += [message(rng) for _ in range(rng.randrange(8))]
    if rng.random() < 0.05:
        rng.shuffle(messages)
    return {"messages": messages}


# ---- what a model writes ----

def well_formed(rng):
    """A completion of a few messages as text with control tokens, as the format has it."""
    out = []
    for n in range(rng.randrange(1, 5)):
        name = "functions." + rng.choice(["get_weather", "calc", "search-web"])
        kind = rng.choice([" json", " <|constrain|>json", "<|constrain|>json", ""])
        header, end = rng.choice([
            ("<|channel|>analysis", "<|end|>"), ("<|channel|>final", "<|return|>"), ("<|channel|>commentary", "<|end|>"),
            (f"<|channel|>commentary to={name}{kind}", "<|call|>"), (f" to={name}<|channel|>commentary{kind}", "<|call|>"),
            ("<|channel|>analysis to=python code", "<|call|>"), (" to=browser.search<|channel|>analysis code", "<|call|>"),
            ("", "<|end|>")])
        body = text(rng, 20)
        for mark in ("<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>"):
            body = body.replace(mark, mark[1:])
        out.append(("" if n == 0 else "<|start|>assistant") + header + "<|message|>" + body + end)
        if end == "<|call|>" and rng.random() < 0.5:
            out.append(f"<|start|>{name} to=assistant<|channel|>commentary<|message|>{{}}<|end|>")
    return "".join(out)


def rng(seed):
    return random.Random(seed)
