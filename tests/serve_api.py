"""Clients of /v1/chat/completions and /v1/responses, of Python's standard library alone.

usage: serve_api.py SERVE_SCRIPTED FOLDER

Order and fields of the events are checked as openai-python's stream helpers check them; that itself is run by hand:
tools/serve_check.py."""
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

PROGRAM, FOLDER = sys.argv[1:3]

THINK = "<|channel|>analysis<|message|>They greet me.<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>%s<|return|>"
CALL = "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>"
SAID = "Hello \u00fc\u4f60\U0001f600, you \"there\"\\\n\tend"
ARGUMENTS = '{"city": "Paris", "unit": "C"}'
ANSWERS = {
    "default": THINK + ANSWER % SAID,
    "call": THINK + CALL % ("get_weather", ARGUMENTS),
    "space": CALL % ("ns__get_weather", ARGUMENTS),
    "preamble": THINK + "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant"
                + CALL % ("get_weather", ARGUMENTS),
    "again": THINK + "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant"
             + "<|channel|>analysis<|message|>Where?<|end|><|start|>assistant" + CALL % ("get_weather", ARGUMENTS),
    "patch": THINK + CALL % ("patch", json.dumps({"input": SAID})),
    "nojson": THINK + CALL % ("get_weather", "no json at all"),
    "person": THINK + ANSWER % '{"name": "Ann", "age": 7}',
    "stop": THINK + ANSWER % "one two END three",
    "slow": {"text": THINK + ANSWER % " ".join(["word"] * 30), "delay_ms": 20},
    "long": {"text": ANSWER % " ".join(["word"] * 400), "delay_ms": 20},
    "fail": {"text": (ANSWER % "one two")[:-len("<|return|>")], "fail": "the device is gone"},
    "busy": {"text": "x", "refuse_s": 7},
    "bare": "just text<|return|>",
}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
           "required": ["city", "unit"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "of a city", "parameters": WEATHER}}
FLAT = {"type": "function", "name": "get_weather", "description": "of a city", "parameters": WEATHER}
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


class Server:
    started = []

    def __init__(self, folder=None, keys=None):
        answers = os.path.join(FOLDER, "answers.json")
        with open(answers, "w") as f:
            json.dump(ANSWERS, f)
        env = dict(os.environ)
        if keys:
            env["SOL_API_KEY"] = keys
        command = [PROGRAM, answers, "0"] + ([folder] if folder else [])
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        Server.started.append(self)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def request(self, method, path, body=None, key=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": "Bearer " + key} if key else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection, connection.getresponse()

    def json(self, method, path, body=None, status=200, key=None):
        connection, answer = self.request(method, path, body, key)
        text = answer.read()
        connection.close()
        assert answer.status == status, (answer.status, text)
        self.headers = answer.headers
        return json.loads(text)

    def events(self, method, path, body=None, most=None, key=None):
        """[(event name or None, data as text)] of a stream; the connection is cut after `most`."""
        connection, answer = self.request(method, path, body, key)
        assert answer.status == 200, answer.read()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        found, name = [], None
        for line in answer:
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                found.append((name, line[6:]))
            elif line == "":
                name = None
            else:
                assert line.startswith(":"), line
            if most and len(found) == most:
                break
        connection.close()
        return found

    def chat(self, text, status=200, **more):
        messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
        return self.json("POST", "/v1/chat/completions", {"messages": messages, **more}, status)

    def chat_stream(self, text, **more):
        """What the chunks of a stream come to: a whole answer, put together as clients do."""
        events = self.events("POST", "/v1/chat/completions",
                             {"messages": [{"role": "user", "content": text}], "stream": True, **more})
        assert events[-1] == (None, "[DONE]"), events[-1]
        return assemble([json.loads(data) for _, data in events[:-1]])

    def response(self, question, status=200, key=None, **more):
        return self.json("POST", "/v1/responses", {"input": question, **more}, status, key)

    def response_stream(self, question, **more):
        events = self.events("POST", "/v1/responses", {"input": question, "stream": True, **more})
        return check_events(events)

    def stop(self):
        self.process.terminate()
        status = self.process.wait(20)
        assert status == 0, status

    def kill(self):
        self.process.kill()
        self.process.wait()


# ---- chat ----

def assemble(chunks):
    choices, usage, ids = {}, None, {c["id"] for c in chunks}
    assert len(ids) == 1 and all(c["object"] == "chat.completion.chunk" for c in chunks)
    for chunk in chunks:
        if not chunk["choices"]:
            assert chunk is chunks[-1]
            usage = chunk["usage"]
            continue
        assert len(chunk["choices"]) == 1
        part = chunk["choices"][0]
        delta, index = part["delta"], part["index"]
        if index not in choices:  # the first is the role alone
            assert delta == {"role": "assistant", "content": None}, delta
            choices[index] = {"content": "", "reasoning": "", "calls": [], "tokens": [], "finish": None}
            continue
        choice = choices[index]
        assert choice["finish"] is None and "role" not in delta
        choice["content"] += delta.get("content") or ""
        choice["reasoning"] += delta.get("reasoning", "")
        assert delta.get("reasoning") == delta.get("reasoning_content")
        choice["tokens"] += (part.get("logprobs") or {}).get("content", [])
        for call in delta.get("tool_calls", []):
            if call["index"] == len(choice["calls"]):
                assert call["type"] == "function" and call["id"].startswith("call_")
                assert call["function"]["arguments"] == ""
                choice["calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
            else:
                assert call["index"] == len(choice["calls"]) - 1 and set(call) == {"index", "function"}
                choice["calls"][-1]["arguments"] += call["function"]["arguments"]
        choice["finish"] = part["finish_reason"]
        assert choice["finish"] is None or delta == {}
    return [choices[i] for i in sorted(choices)], usage


def same_as_stream(server, text, **more):
    """Both forms of an answer are the same; gives it."""
    whole = server.chat(text, **more)
    streamed, usage = server.chat_stream(text, stream_options={"include_usage": True}, **more)
    assert len(whole["choices"]) == len(streamed) == more.get("n", 1)
    for i, (a, b) in enumerate(zip(whole["choices"], streamed)):
        message = a["message"]
        assert a["index"] == i
        assert (message["content"] or "") == b["content"], (message, b)
        assert message.get("reasoning", "") == message.get("reasoning_content", "") == b["reasoning"]
        assert [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])] == \
            [(c["name"], c["arguments"]) for c in b["calls"]]
        assert a["finish_reason"] == b["finish"]
        assert ((a["logprobs"] or {}).get("content") or []) == b["tokens"]
    assert whole["usage"] == usage, (whole["usage"], usage)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return whole


CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


@check
def whole_and_stream(s):
    r = same_as_stream(s, "hi")
    message = r["choices"][0]["message"]
    assert message["content"] == SAID and message["reasoning"] == "They greet me."
    assert message["role"] == "assistant" and r["choices"][0]["finish_reason"] == "stop"
    assert r["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    r = same_as_stream(s, "hi", n=4, seed=3)
    assert [c["message"]["content"] for c in r["choices"]] == [SAID] * 4


@check
def role_comes_with_the_first_text(s):
    """Generators of load take the first chunk as the first token: no chunk comes before it."""
    connection, answer = s.request("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "@@slow"}], "stream": True})
    first = answer.read1(65536).decode()
    while "data: " not in first:
        first += answer.read1(65536).decode()
    assert first.count("data: ") >= 2, first
    connection.close()


@check
def tools(s):
    r = same_as_stream(s, "@@call", tools=[TOOL])
    choice = r["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": ARGUMENTS}
    r = same_as_stream(s, "@@preamble", tools=[TOOL], tool_choice="auto", parallel_tool_calls=True)
    assert r["choices"][0]["message"]["content"] == "Let me look."
    r = same_as_stream(s, "@@nojson", tools=[TOOL])
    assert r["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "no json at all"
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        same_as_stream(s, "@@call", tools=[TOOL], tool_choice=choice)
    # What may not come is masked: the script's token is not among those that are allowed.
    for script, choice in (("@@default", "required"), ("@@call", "none")):
        error = s.chat(script, tools=[TOOL], tool_choice=choice, status=500)["error"]
        assert "not allowed" in error["message"], error


@check
def strict_tools(s):
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    same_as_stream(s, "@@call", tools=[strict])
    assert "not allowed" in s.chat("@@nojson", tools=[strict], status=500)["error"]["message"]


@check
def schemas(s):
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    r = same_as_stream(s, "@@person", response_format=form)
    assert json.loads(r["choices"][0]["message"]["content"]) == {"name": "Ann", "age": 7}
    assert r["choices"][0]["message"]["reasoning"] == "They greet me."
    assert "not allowed" in s.chat("@@stop", response_format=form, status=500)["error"]["message"]
    same_as_stream(s, "@@person", response_format={"type": "json_object"})
    plain = s.chat("@@person")["usage"]["prompt_tokens"]
    assert r["usage"]["prompt_tokens"] > plain  # the model is shown the schema
    bad = {"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": "object", "patternProperties": {"x": {}}}}}
    error = s.chat("x", response_format=bad, status=400)["error"]
    assert error["param"] == "response_format" and "#/patternProperties" in error["message"], error


@check
def stops_and_lengths(s):
    r = same_as_stream(s, "@@stop", stop=["zzz", "END"])
    assert r["choices"][0]["message"]["content"] == "one two "
    assert r["choices"][0]["finish_reason"] == "stop"
    r = same_as_stream(s, "@@stop", stop="greet")  # not in what is thought
    assert r["choices"][0]["message"]["content"] == "one two END three"
    for n in range(1, 40, 3):
        r = same_as_stream(s, "hi", max_tokens=n)
        assert r["choices"][0]["finish_reason"] == ("length" if r["usage"]["completion_tokens"] == n else "stop")
        assert SAID.startswith(r["choices"][0]["message"]["content"].rstrip("\ufffd"))


@check
def logprobs(s):
    r = same_as_stream(s, "hi", logprobs=True, top_logprobs=4)
    tokens = r["choices"][0]["logprobs"]["content"]
    assert bytes(b for t in tokens for b in t["bytes"]).decode() == SAID
    for t in tokens:
        assert t["logprob"] <= 0 and len(t["top_logprobs"]) == 4
        assert t["top_logprobs"][0]["logprob"] >= t["top_logprobs"][1]["logprob"]
    assert r["choices"][0]["message"]["content"] == SAID
    assert s.chat("hi")["choices"][0]["logprobs"] is None


@check
def history(s):
    """A tool loop as clients have it; the reasoning that they drop is put back by the call's id."""
    first = s.chat("@@call", tools=[TOOL])
    message = first["choices"][0]["message"]
    call = message["tool_calls"][0]

    def after(assistant):
        return s.chat([{"role": "user", "content": "@@call"}, assistant,
                       {"role": "tool", "tool_call_id": call["id"], "content": "rain @@default"}], tools=[TOOL])

    bare = {"role": "assistant", "content": None, "tool_calls": message["tool_calls"]}
    kept = after(bare)["usage"]["prompt_tokens"]
    assert kept == after({**bare, "reasoning": "They greet me."})["usage"]["prompt_tokens"]
    assert kept == after({**bare, "reasoning_content": "They greet me."})["usage"]["prompt_tokens"]
    assert kept > after({**bare, "reasoning": ""})["usage"]["prompt_tokens"]
    # An answer drops what was thought before it.
    def with_answer(**more):
        return s.chat([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", **more},
                       {"role": "user", "content": "p"}])["usage"]["prompt_tokens"]
    assert with_answer() == with_answer(reasoning="long thoughts about all of it")


@check
def straight_to_the_answer(s):
    r = same_as_stream(s, "@@bare", reasoning_effort="none")
    assert r["choices"][0]["message"]["content"] == "just text"
    assert "reasoning" not in r["choices"][0]["message"]
    r = same_response(s, "@@bare", reasoning={"effort": "none"})
    assert [o["type"] for o in r["output"]] == ["message"]
    # An answer that was begun goes on: what comes is what is new.
    r = s.chat([{"role": "user", "content": "@@bare"}, {"role": "assistant", "content": "This is "}])
    assert r["choices"][0]["message"]["content"] == "just text"


@check
def chat_errors(s):
    error = s.chat([], status=400)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert error["param"] == "messages"
    deep = "{\"messages\": " + "[" * 100000 + "]" * 100000 + "}"
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", deep)
    answer = connection.getresponse()
    assert answer.status == 400 and "deep" in json.loads(answer.read())["error"]["message"]
    connection.request("POST", "/v1/chat/completions", "{\"messages\": [")
    answer = connection.getresponse()
    assert answer.status == 400 and "error" in json.loads(answer.read())
    s.chat("x", stop=["a"] * 1000000, status=400)
    s.chat("x", n=10 ** 9, status=400)
    for name in "user", "prompt_cache_key", "safety_identifier":
        assert s.response("hi", store=False, **{name: "k" * 512})[name] == "k" * 512
        error = s.response("hi", store=False, **{name: "k" * 513}, status=400)["error"]
        assert error["param"] == name and "512 bytes" in error["message"], error
    s.chat("word " * 20000, status=400)
    assert s.chat("@@busy", status=429)["error"]["message"]
    assert s.headers["Retry-After"] == "7"
    assert "device is gone" in s.chat("@@fail", status=500)["error"]["message"]
    events = s.events("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "@@fail"}], "stream": True})
    last = json.loads(events[-1][1])
    assert "device is gone" in last["error"]["message"] and last["error"]["type"] == "server_error"
    assert "[DONE]" not in [data for _, data in events]


@check
def damaged(s):
    """Whatever comes is answered, and the server goes on."""
    rng = random.Random(17)
    body = json.dumps({"messages": [{"role": "user", "content": "@@default"}], "tools": [TOOL], "n": 2,
                       "response_format": {"type": "text"}, "stop": ["x"], "stream": False})
    for _ in range(150):
        text = list(body)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(text))
            text[at:at + rng.randint(0, 2)] = rng.choice(["", "{", "]", "\"", "9", "null", ",", "\\u0000", "\u00ff"])
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        connection.request("POST", rng.choice(["/v1/chat/completions", "/v1/responses"]),
                           "".join(text).encode())
        answer = connection.getresponse()
        data = json.loads(answer.read())
        assert answer.status in (200, 400), (answer.status, data)
        assert ("error" in data and data["error"] is not None) == (answer.status != 200)
        connection.close()


@check
def heavy_schemas(s):
    """The work that a request may ask for is bounded, that of many schemas together too."""
    def tool(i):
        pattern = "^(.*a.{8}|b{%d})$" % i
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
        return {"type": "function", "function": {"name": f"f{i}", "strict": True, "parameters": schema}}
    start = time.monotonic()
    error = s.chat("x", tools=[tool(i) for i in range(1, 65)], status=400)["error"]
    assert error["param"].startswith("tools[") and "compile" in error["message"], error
    assert time.monotonic() - start < 60
    assert s.chat("x")


# ---- responses ----

PARTS = {"reasoning": "reasoning_text", "message": "output_text", "function_call": "function_call_arguments",
         "custom_tool_call": "custom_tool_call_input"}
FIELDS = {"function_call": "arguments", "custom_tool_call": "input"}


def check_events(events, first=0):
    """The rules of openai-python's ResponseStreamState, and more; gives the events as JSON."""
    found = [json.loads(data) for _, data in events]
    assert [e["type"] for e in found] == [name for name, _ in events]
    assert [e["sequence_number"] for e in found] == list(range(first, first + len(found)))
    if first:
        return found
    assert [e["type"] for e in found[:2]] == ["response.created", "response.in_progress"]
    identity = found[0]["response"]["id"]
    items, open_item, text = [], None, ""
    for e in found[2:-1]:
        kind = e["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert open_item is None and e["output_index"] == len(items)
            open_item, text, stage = e["item"], "", "added"
            assert open_item["status"] == "in_progress"
            continue
        assert open_item and e["output_index"] == len(items)
        part = PARTS[open_item["type"]]
        if kind != "output_item.done":
            assert e["item_id"] == open_item["id"]
            assert open_item["type"] in FIELDS or e["content_index"] == 0
        if kind == "content_part.added":
            assert stage == "added" and e["part"]["type"] == part and e["part"]["text"] == ""
            stage = "part"
        elif kind == part + ".delta":
            assert stage in ("part", "added") and (open_item["type"] in FIELDS) == (stage == "added")
            text += e["delta"]
            assert (part == "output_text") == ("logprobs" in e)
        elif kind == part + ".done":
            assert e[FIELDS.get(open_item["type"], "text")] == text
            stage = "text done"
        elif kind == "content_part.done":
            assert stage == "text done" and e["part"]["text"] == text
        elif kind == "output_item.done":
            item = e["item"]
            assert item["id"] == open_item["id"] and item["type"] == open_item["type"]
            field = FIELDS.get(item["type"])
            assert text == (item[field] if field else item["content"][0]["text"])
            assert item["status"] in ("completed", "incomplete")
            items.append(item)
            open_item = None
        else:
            raise AssertionError(e["type"])
    last = found[-1]
    assert open_item is None and last["type"] in ("response.completed", "response.incomplete", "response.failed")
    assert last["response"]["id"] == identity and last["response"]["output"] == items
    return found


def plain(response):
    """Without what is another each time."""
    def strip(value):
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in ("id", "call_id", "created_at", "completed_at")}
        return [strip(v) for v in value] if isinstance(value, list) else value
    return strip(response)


def same_response(s, question, **more):
    whole = s.response(question, **more)
    streamed = s.response_stream(question, **more)[-1]["response"]
    assert plain(whole) == plain(streamed), (whole, streamed)
    if more.get("store", True):
        assert plain(s.json("GET", "/v1/responses/" + whole["id"])) == plain(whole)
    return whole


@check
def response_whole_and_stream(s):
    r = same_response(s, "hi")
    assert r["object"] == "response" and r["status"] == "completed" and r["id"].startswith("resp_")
    assert [o["type"] for o in r["output"]] == ["reasoning", "message"]
    assert r["output"][1]["content"][0]["text"] == SAID
    assert r["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    assert r["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    r = same_response(s, "hi", store=False, metadata={"a": "b"}, instructions="I", temperature=0.5, user="u")
    assert r["metadata"] == {"a": "b"} and r["instructions"] == "I" and r["temperature"] == 0.5
    assert s.json("GET", "/v1/responses/" + r["id"], status=404)["error"]["code"] == "not_found"
    r = same_response(s, "hi", include=["message.output_text.logprobs"], top_logprobs=2)
    tokens = r["output"][1]["content"][0]["logprobs"]
    assert bytes(b for t in tokens for b in t["bytes"]).decode() == SAID
    r = same_response(s, "hi", include=["reasoning.encrypted_content"])
    assert r["output"][0]["encrypted_content"].endswith("They greet me.")


@check
def response_tools(s):
    r = same_response(s, "@@preamble", tools=[FLAT])
    assert [o["type"] for o in r["output"]] == ["reasoning", "message", "function_call"]
    assert r["output"][1]["phase"] == "commentary"
    assert r["output"][2]["arguments"] == ARGUMENTS and r["output"][2]["name"] == "get_weather"
    r = s.response("@@again", tools=[FLAT])
    call = r["output"][-1]

    def after(*thought):
        return s.response([*thought, call, {"type": "function_call_output", "call_id": call["call_id"],
                                            "output": "rain @@default"}], tools=[FLAT])["usage"]["input_tokens"]
    whole = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "They greet me.\n\nWhere?"}]}
    assert [o["type"] for o in r["output"]] == ["reasoning", "message", "reasoning", "function_call"]
    assert after() == after(whole)
    r = same_response(s, "@@space", tools=[{"type": "namespace", "name": "ns", "description": "d", "tools": [FLAT]}])
    assert r["output"][0]["namespace"] == "ns" and r["output"][0]["name"] == "get_weather"
    custom = {"type": "custom", "name": "patch", "description": "d",
              "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}}
    r = same_response(s, "@@patch", tools=[{"type": "web_search"}, custom])
    call = r["output"][1]
    assert call["type"] == "custom_tool_call" and call["name"] == "patch" and call["input"] == SAID
    r = s.response([{"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "ok @@default"}],
                   previous_response_id=r["id"], tools=[custom])
    assert r["output"][-1]["content"][0]["text"] == SAID
    for n in range(1, 60, 7):
        same_response(s, "@@patch", tools=[custom], max_output_tokens=n)
    form = {"format": {"type": "json_schema", "name": "p", "schema": PERSON, "strict": True}}
    r = same_response(s, "@@person", text=form)
    assert r["text"]["format"] == form["format"]


@check
def response_ends(s):
    r = same_response(s, "hi", max_output_tokens=13)
    assert r["status"] == "incomplete" and r["incomplete_details"] == {"reason": "max_output_tokens"}
    assert r["output"][-1]["status"] == "incomplete"
    for n in range(1, 30, 4):
        same_response(s, "hi", max_output_tokens=n)
        same_response(s, "@@preamble", max_output_tokens=n, tools=[FLAT])
    r = s.response_stream("@@fail")[-1]["response"]
    assert r["status"] == "failed" and "device is gone" in r["error"]["message"]
    assert r["output"][0]["status"] == "incomplete"
    assert s.response("@@busy", status=429)
    assert s.headers["Retry-After"] == "7"


@check
def chains(s):
    first = s.response("@@call", tools=[FLAT])
    call = first["output"][-1]
    second = s.response([{"type": "function_call_output", "call_id": call["call_id"], "output": "rain @@default"}],
                        previous_response_id=first["id"], tools=[FLAT])
    assert second["output"][-1]["content"][0]["text"] == SAID
    # The same as when all of it is sent again.
    again = s.response([{"role": "user", "content": "@@call"}] + first["output"] +
                       [{"type": "function_call_output", "call_id": call["call_id"], "output": "rain @@default"}],
                       tools=[FLAT], store=False)
    assert again["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    third = s.response("and?", previous_response_id=second["id"], tools=[FLAT])
    assert third["usage"]["input_tokens"] > second["usage"]["input_tokens"]
    assert third["previous_response_id"] == second["id"]
    items = s.json("GET", f"/v1/responses/{second['id']}/input_items")
    assert items["object"] == "list" and [i["type"] for i in items["data"]] == ["function_call_output"]
    assert items["first_id"] == items["last_id"] == items["data"][0]["id"] and items["has_more"] is False
    error = s.response("x", previous_response_id="resp_none", status=400)["error"]
    assert error["param"] == "previous_response_id" and error["code"] == "previous_response_not_found"
    # A call without its result.
    assert "no result" in s.response("x", previous_response_id=first["id"], status=400)["error"]["message"]
    assert s.json("DELETE", "/v1/responses/" + first["id"]) == \
        {"id": first["id"], "object": "response", "deleted": True}
    s.json("GET", "/v1/responses/" + first["id"], status=404)
    s.response("x", previous_response_id=third["id"], status=400)  # the chain is broken


@check
def many_input_items(s):
    r = s.response([{"role": "user", "content": str(i)} for i in range(50)])
    path = f"/v1/responses/{r['id']}/input_items?limit=20"
    page, seen = s.json("GET", path + "&order=asc"), []
    while True:
        seen += [i["content"] for i in page["data"]]
        if not page["has_more"]:
            break
        page = s.json("GET", path + "&order=asc&after=" + page["last_id"])
    assert seen == [str(i) for i in range(50)]
    assert [i["content"] for i in s.json("GET", path)["data"]] == [str(i) for i in range(49, 29, -1)]
    s.json("GET", path + "0000", status=400)


@check
def background(s):
    r = s.response("@@slow", background=True)
    assert r["status"] == "in_progress" and r["background"] is True
    state = s.json("GET", "/v1/responses/" + r["id"])
    assert state["status"] == "in_progress"
    assert s.response("x", previous_response_id=r["id"], status=400)
    while len(s.events("GET", f"/v1/responses/{r['id']}?stream=true", most=4)) < 4:
        pass
    # Two that listen, from other places.
    found = {}

    def listen(after):
        found[after] = s.events("GET", f"/v1/responses/{r['id']}?stream=true&starting_after={after}")
    threads = [threading.Thread(target=listen, args=(n,)) for n in (0, 2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for after, events in found.items():
        events = check_events(events, after + 1)
        assert events[-1]["type"] == "response.completed"
    whole = check_events(s.events("GET", f"/v1/responses/{r['id']}?stream=true"))
    assert whole[-1]["response"]["output"][-1]["content"][0]["text"] == " ".join(["word"] * 30)
    assert s.json("GET", "/v1/responses/" + r["id"])["status"] == "completed"
    s.json("GET", f"/v1/responses/{r['id']}?stream=true&starting_after=100000", status=400)
    s.json("GET", f"/v1/responses/{r['id']}?stream=true&starting_after=x", status=400)


@check
def background_survives_its_client(s):
    events = s.events("POST", "/v1/responses", {"input": "@@slow", "background": True, "stream": True}, most=6)
    rid = json.loads(events[0][1])["response"]["id"]
    rest = check_events(s.events("GET", f"/v1/responses/{rid}?stream=true&starting_after=5"), 6)
    assert rest[-1]["type"] == "response.completed"


@check
def foreground_is_cancelled_with_its_client(s):
    events = s.events("POST", "/v1/responses", {"input": "@@long", "stream": True}, most=6)
    rid = json.loads(events[0][1])["response"]["id"]
    for _ in range(100):
        state = s.json("GET", "/v1/responses/" + rid)["status"]
        if state != "in_progress":
            break
        time.sleep(0.05)
    assert state == "cancelled", state
    r = s.response("@@slow", background=True)
    assert s.json("POST", f"/v1/responses/{r['id']}/cancel")["status"] == "cancelled"
    assert s.json("POST", f"/v1/responses/{r['id']}/cancel")["status"] == "cancelled"
    assert s.json("GET", f"/v1/responses/{r['id']}")["status"] == "cancelled"
    s.json("POST", "/v1/responses/resp_none/cancel", status=404)
    s.json("POST", f"/v1/responses/{r['id']}/other", status=404)
    r = s.response("@@long", background=True)
    assert s.json("DELETE", "/v1/responses/" + r["id"])["deleted"]
    s.json("GET", "/v1/responses/" + r["id"], status=404)


# ---- servers of their own ----

def kill_and_come_back():
    """What was acknowledged is there after kill -9; what was not complete says so."""
    folder = os.path.join(FOLDER, "kept")
    s = Server(folder)
    done = [s.response(f"hi {i}") for i in range(5)]
    streamed = s.response_stream("hi")[-1]["response"]
    running = s.response("@@long", background=True)
    done.append(s.response("last"))
    s.kill()
    s = Server(folder)
    for r in done + [streamed]:
        assert s.json("GET", "/v1/responses/" + r["id"]) == r
    lost = s.json("GET", "/v1/responses/" + running["id"])
    assert lost["status"] == "failed" and "server ended" in lost["error"]["message"]
    assert s.response("x", previous_response_id=done[0]["id"])["status"] == "completed"
    s.json("GET", f"/v1/responses/{done[0]['id']}?stream=true", status=400)
    # Killed as soon as the first byte of an answer has come.
    for _ in range(3):
        body = json.dumps({"input": "hi"}).encode()
        with socket.create_connection(("127.0.0.1", s.port)) as raw:
            raw.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                        % (len(body), body))
            data = raw.recv(1)
            os.kill(s.process.pid, signal.SIGKILL)
            data += raw.recv(65536)
        s.kill()
        s = Server(folder)
        assert data.startswith(b"HTTP/1.1 200"), (data, s.process.poll())
        told_id = data.split(b'"id":"')[1].split(b'"')[0].decode()
        assert s.json("GET", "/v1/responses/" + told_id)["status"] == "completed"
    # Many at once, killed at any moment: who has read the end of an answer finds it again.
    told = []

    def ask():
        try:
            while True:
                told.append(s.response("hi"))
        except Exception:
            pass
    threads = [threading.Thread(target=ask) for _ in range(8)]
    [t.start() for t in threads]
    end = time.monotonic() + 60
    while len(told) < 8 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(random.random() / 2)
    s.kill()
    [t.join() for t in threads]
    s = Server(folder)
    assert len(told) >= 8
    for r in told:
        assert s.json("GET", "/v1/responses/" + r["id"]) == r
    s.stop()


def ending():
    """A server that is told to end cuts what still runs: no part of an answer looks like a whole one, and a response in
    the background says so afterwards."""
    folder = os.path.join(FOLDER, "ending")
    s = Server(folder)
    results = {}

    def ask(name, **more):
        try:
            results[name] = s.chat("@@long", **more) if name == "whole" else s.chat_stream("@@long")
        except (http.client.HTTPException, ConnectionError, AssertionError) as e:  # no [DONE]
            results[name] = e
    threads = [threading.Thread(target=ask, args=(name,)) for name in ("whole", "stream")]
    [t.start() for t in threads]
    running = s.response("@@long", background=True)
    time.sleep(0.5)
    s.stop()
    [t.join() for t in threads]
    assert isinstance(results["whole"], Exception) and isinstance(results["stream"], Exception), results
    s = Server(folder)
    r = s.json("GET", "/v1/responses/" + running["id"])
    assert r["status"] == "cancelled" and "word" in r["output"][0]["content"][0]["text"], r
    s.stop()


def keys():
    """Nobody reads, goes on from, cancels or deletes what another key asked for."""
    folder = os.path.join(FOLDER, "keys")
    s = Server(folder, "ann ann-secret-1\nbob bob-secret-1\n")
    r = s.response("hi", key="ann-secret-1")
    slow = s.response("@@slow", background=True, key="ann-secret-1")
    for key, status in (("bob-secret-1", 404), ("ann-secret-1", 200)):
        for rid in (r["id"], slow["id"]):
            s.json("GET", "/v1/responses/" + rid, status=status, key=key)
    for rid in (r["id"], slow["id"]):
        s.json("GET", f"/v1/responses/{rid}/input_items", status=404, key="bob-secret-1")
        s.json("POST", f"/v1/responses/{rid}/cancel", status=404, key="bob-secret-1")
        s.json("DELETE", f"/v1/responses/{rid}", status=404, key="bob-secret-1")
        s.response("x", previous_response_id=rid, status=400, key="bob-secret-1")
    s.json("GET", "/v1/responses/" + r["id"], status=401)
    s.stop()
    # By the secret, whatever line it stands in.
    s = Server(folder, "bob bob-secret-1\nother other-secret\nann ann-secret-1\n")
    assert s.json("GET", "/v1/responses/" + r["id"], key="ann-secret-1") == r
    s.json("GET", "/v1/responses/" + r["id"], status=404, key="bob-secret-1")
    s.stop()


def main():
    failed = 0
    server = Server()
    for function in CHECKS + [lambda s: s.stop(), lambda s: kill_and_come_back(), lambda s: keys(),
                              lambda s: ending()]:
        try:
            function(server)
        except Exception:
            failed += 1
            print("FAILED:", function.__name__)
            traceback.print_exc()
    for s in Server.started:  # whoever waits for our output waits for theirs
        if s.process.poll() is None:
            s.kill()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
