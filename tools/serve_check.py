#!/usr/bin/env python3
"""Clients that people have against a server with scripted answers: openai-python with its stream
helpers and parsers, openai-agents and litellm.

usage: tools/serve_check.py BUILD_FOLDER [COMPATIBILITY_TEST]

COMPATIBILITY_TEST: the folder compatibility-test of the repository openai/gpt-oss. Its cases and tools are then asked
for with the Python library of the same name as its own, and judged as its runCase.ts does, but for all events that
it means to see. Needs the PyPI packages openai, pydantic, openai-agents and litellm, and json5 for those cases; a
virtual environment outside of the tree will do. The server is BUILD_FOLDER/serve_scripted (tests/serve_scripted.c). Prints a line for each check;
the exit status says whether all passed."""
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

import openai
import pydantic

THINK = "<|channel|>analysis<|message|>They greet.<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>%s<|return|>"
CALL = "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>"
ANSWERS = {
    "default": THINK + ANSWER % "Hello, you there",
    "call": THINK + CALL % ("get_weather", '{"city": "Paris", "unit": "C"}'),
    "preamble": "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant"
                + CALL % ("get_weather", '{"city": "Paris", "unit": "C"}'),
    "person": THINK + ANSWER % '{"name": "Ann", "age": 7, "tags": ["x", "y"]}',
    "stop": ANSWER % "one two END three",
    "slow": {"text": ANSWER % " ".join(["word"] * 40), "delay_ms": 20},
    "fail": {"text": (ANSWER % "one two")[:-len("<|return|>")], "fail": "the device is gone"},
    "busy": {"text": "x", "refuse_s": 1},
}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
           "required": ["city", "unit"], "additionalProperties": False}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "description": "of a city",
                                              "parameters": WEATHER, "strict": True}}
FLAT_TOOL = {"type": "function", "name": "get_weather", "description": "of a city",
             "parameters": WEATHER, "strict": True}


class Person(pydantic.BaseModel):
    name: str
    age: int
    tags: list[str]


class Weather(pydantic.BaseModel):
    """Of a city"""
    city: str
    unit: str


def user(text):
    return [{"role": "user", "content": text}]


CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


# ---- chat completions ----

@check
def chat_whole(c):
    r = c.chat.completions.create(model="m", messages=user("hi"))
    assert r.choices[0].message.content == "Hello, you there"
    assert r.choices[0].message.reasoning == r.choices[0].message.reasoning_content == "They greet."
    assert r.choices[0].finish_reason == "stop"
    u = r.usage
    assert u.total_tokens == u.prompt_tokens + u.completion_tokens
    assert u.completion_tokens_details.reasoning_tokens > 0
    assert u.prompt_tokens_details.cached_tokens == 0


@check
def chat_stream_helper(c):
    with c.chat.completions.stream(model="m", messages=user("hi"),
                                   stream_options={"include_usage": True}) as s:
        kinds = [e.type for e in s]
        final = s.get_final_completion()
    assert kinds.count("content.delta") > 1 and kinds[-1] in ("chunk", "content.done"), kinds
    assert final.choices[0].message.content == "Hello, you there"
    assert final.usage.total_tokens > 0


@check
def chat_parse(c):
    r = c.chat.completions.parse(model="m", messages=user("@@person"), response_format=Person)
    assert r.choices[0].message.parsed == Person(name="Ann", age=7, tags=["x", "y"])


@check
def chat_stream_parse(c):
    with c.chat.completions.stream(model="m", messages=user("@@person"),
                                   response_format=Person) as s:
        parsed = [e.parsed for e in s if e.type == "content.done"]
    assert parsed == [Person(name="Ann", age=7, tags=["x", "y"])]


@check
def chat_tool(c):
    r = c.chat.completions.create(model="m", messages=user("@@call"), tools=[CHAT_TOOL])
    call = r.choices[0].message.tool_calls[0]
    assert r.choices[0].finish_reason == "tool_calls" and r.choices[0].message.content is None
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris", "unit": "C"}
    r = c.chat.completions.create(model="m", tools=[CHAT_TOOL], messages=user("@@call") + [
        r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain @@default"}])
    assert r.choices[0].message.content == "Hello, you there"


@check
def chat_tool_stream(c):
    with c.chat.completions.stream(model="m", messages=user("@@preamble"),
                                   tools=[openai.pydantic_function_tool(Weather, name="get_weather")]) as s:
        events = list(s)
        final = s.get_final_completion()
    done = [e for e in events if e.type == "tool_calls.function.arguments.done"]
    assert len(done) == 1 and done[0].parsed_arguments == Weather(city="Paris", unit="C"), done
    message = final.choices[0].message
    assert message.content == "Let me look." and message.tool_calls[0].id.startswith("call_")


@check
def chat_required_and_named(c):
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}},
                   {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                       {"type": "function", "function": {"name": "get_weather"}}]}}):
        r = c.chat.completions.create(model="m", messages=user("@@call"), tools=[CHAT_TOOL],
                                      tool_choice=choice)
        assert r.choices[0].message.tool_calls[0].function.name == "get_weather"


@check
def chat_logprobs(c):
    r = c.chat.completions.create(model="m", messages=user("hi"), logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    assert "".join(t.token for t in content) == "Hello, you there"
    assert all(len(t.top_logprobs) == 3 and bytes(t.bytes).decode() == t.token for t in content)


@check
def chat_stop_and_n(c):
    r = c.chat.completions.create(model="m", messages=user("@@stop"), stop=["END", "zzz"], n=3)
    assert [x.message.content for x in r.choices] == ["one two "] * 3
    assert [x.index for x in r.choices] == [0, 1, 2]


@check
def chat_length(c):
    r = c.chat.completions.create(model="m", messages=user("hi"), max_completion_tokens=4)
    assert r.choices[0].finish_reason == "length"


@check
def chat_errors(c):
    for kwargs, param in (({"messages": []}, "messages"),
                          ({"messages": user("x"), "temperature": 9}, "temperature"),
                          ({"messages": user("x"), "logit_bias": {"5": 1}}, "logit_bias"),
                          ({"messages": [{"role": "user", "content": [
                              {"type": "image_url", "image_url": {"url": "x"}}]}]},
                           "messages[0].content[0].type")):
        try:
            c.chat.completions.create(model="m", **kwargs)
        except openai.BadRequestError as e:
            assert e.param == param, (e.param, param)
            assert e.type == "invalid_request_error"
        else:
            raise AssertionError(param)


@check
def chat_failures(c):
    try:
        list(c.chat.completions.create(model="m", messages=user("@@fail"), stream=True))
        raise AssertionError("no error in the stream")
    except openai.APIError as e:
        assert "device is gone" in e.message
    try:
        c.chat.completions.create(model="m", messages=user("@@fail"))
        raise AssertionError("no error")
    except openai.InternalServerError as e:
        assert "device is gone" in e.message
    try:
        c.chat.completions.create(model="m", messages=user("@@busy"))
        raise AssertionError("no error")
    except openai.RateLimitError as e:
        assert e.response.headers["retry-after"] == "1"


# ---- responses ----

def stream_of(c, **kwargs):
    with c.responses.stream(model="m", **kwargs) as s:
        events = list(s)
        return events, s.get_final_response()


@check
def responses_whole(c):
    r = c.responses.create(model="m", input="hi")
    assert r.output_text == "Hello, you there" and r.status == "completed"
    assert [o.type for o in r.output] == ["reasoning", "message"]
    assert r.output[0].content[0].text == "They greet."
    assert r.usage.output_tokens_details.reasoning_tokens > 0
    assert r.usage.input_tokens_details.cached_tokens == 0


@check
def responses_stream_helper(c):
    events, final = stream_of(c, input="hi")
    assert final.output_text == "Hello, you there"
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == "Hello, you there" and events[-1].type == "response.completed"


@check
def responses_parse(c):
    r = c.responses.parse(model="m", input="@@person", text_format=Person)
    assert r.output_parsed == Person(name="Ann", age=7, tags=["x", "y"])
    events, final = stream_of(c, input="@@person", text_format=Person)
    assert final.output_parsed == Person(name="Ann", age=7, tags=["x", "y"])


@check
def responses_tool(c):
    events, r = stream_of(c, input="@@preamble", tools=[FLAT_TOOL])
    assert [o.type for o in r.output] == ["message", "function_call"]
    assert r.output[0].phase == "commentary"
    call = r.output[1]
    r2 = c.responses.create(model="m", previous_response_id=r.id, tools=[FLAT_TOOL], input=[
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain @@default"}])
    assert r2.output_text == "Hello, you there"
    r3 = c.responses.create(model="m", previous_response_id=r2.id, tools=[FLAT_TOOL],
                            input="and now? @@default")
    assert r3.previous_response_id == r2.id and r3.usage.input_tokens > r2.usage.input_tokens
    items = c.responses.input_items.list(r2.id).data
    assert [i.type for i in items] == ["function_call_output"]


@check
def responses_background(c):
    s = c.responses.create(model="m", input="@@slow", background=True, stream=True)
    first = []
    for e in s:
        first.append(e)
        if len(first) == 8:
            break
    s.close()
    rid = first[0].response.id
    assert c.responses.retrieve(rid).status == "in_progress"
    more = list(c.responses.retrieve(rid, stream=True, starting_after=first[-1].sequence_number))
    numbers = [e.sequence_number for e in first + more]
    assert numbers == list(range(len(numbers))), numbers
    assert more[-1].type == "response.completed"
    whole = c.responses.retrieve(rid)
    assert whole.output_text == " ".join(["word"] * 40) and whole.status == "completed"
    c.responses.delete(rid)
    try:
        c.responses.retrieve(rid)
        raise AssertionError("still there")
    except openai.NotFoundError:
        pass


@check
def responses_cancel(c):
    r = c.responses.create(model="m", input="@@slow", background=True)
    assert r.status == "in_progress"
    time.sleep(0.2)
    assert c.responses.cancel(r.id).status == "cancelled"
    assert c.responses.retrieve(r.id).status == "cancelled"


@check
def responses_incomplete_and_failed(c):
    events, r = [], None
    for e in c.responses.create(model="m", input="hi", max_output_tokens=14, stream=True):
        events.append(e)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    events = list(c.responses.create(model="m", input="@@fail", stream=True))
    assert events[-1].type == "response.failed"
    assert "device is gone" in events[-1].response.error.message


# ---- litellm ----

@check
def litellm_chat(c):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    litellm.suppress_debug_info = True
    how = {"model": "openai/m", "api_base": str(c.base_url), "api_key": "x"}
    r = litellm.completion(messages=user("hi"), **how)
    assert r.choices[0].message.content == "Hello, you there"
    assert r.choices[0].message.reasoning_content == "They greet."
    parts = list(litellm.completion(messages=user("hi"), stream=True, **how))
    assert "".join(p.choices[0].delta.content or "" for p in parts) == "Hello, you there"
    r = litellm.completion(messages=user("@@call"), tools=[CHAT_TOOL], **how)
    assert r.choices[0].message.tool_calls[0].function.name == "get_weather"
    r = litellm.responses(input="hi", **how)
    assert r.output[-1].content[0].text == "Hello, you there"


# ---- openai-agents ----

def agent_loop(c, api, stream, tool, text):
    """Runs until the model has said its last word; gives the result and the events as the server sent them."""
    import asyncio

    import agents
    agents.set_tracing_disabled(True)
    kind = agents.OpenAIResponsesModel if api == "responses" else agents.OpenAIChatCompletionsModel

    async def run():
        async with openai.AsyncOpenAI(base_url=c.base_url, api_key="none", max_retries=0) as client:
            agent = agents.Agent(name="a", instructions="Be brief.", tools=[tool],
                                 model=kind(model="m", openai_client=client))
            if not stream:
                return await agents.Runner.run(agent, text), []
            result = agents.Runner.run_streamed(agent, text)
            return result, [e.data async for e in result.stream_events() if e.type == "raw_response_event"]
    result, events = asyncio.run(run())
    assert result.final_output == "Hello, you there", result.final_output
    calls = [i.raw_item for i in result.new_items if i.type == "tool_call_item"]
    assert len(calls) == 1 and calls[0].name == tool.name, calls
    assert any(i.type == "reasoning_item" for i in result.new_items), [i.type for i in result.new_items]
    return json.loads(calls[0].arguments), result, events


def weather_loop(c, api):
    import agents

    @agents.function_tool(strict_mode=True)
    def get_weather(city: str, unit: str) -> str:
        """Of a city."""
        return f"rain in {city} {unit} @@default"

    for stream in (False, True):
        arguments, _, _ = agent_loop(c, api, stream, get_weather, "@@call")
        assert arguments == {"city": "Paris", "unit": "C"}


@check
def agents_responses(c):
    weather_loop(c, "responses")


@check
def agents_chat(c):
    weather_loop(c, "chat")


# ---- gpt-oss's compatibility test ----

def compatibility_tools(folder):
    import agents
    import json5
    with open(os.path.join(folder, "tools.ts"), encoding="utf8") as f:
        text = f.read()
    begin = text.index("export const TOOLS = ") + len("export const TOOLS = ")

    def make(tool):
        async def invoke(_, arguments):
            return tool["output"] + " @@default"
        return agents.FunctionTool(name=tool["name"], description=tool["description"], strict_json_schema=False,
                                   params_json_schema=tool["parameters"], on_invoke_tool=invoke)
    return {tool["name"]: make(tool) for tool in json5.loads(text[begin:text.index("\n];", begin) + 2])}


def compatibility_cases(folder):
    with open(os.path.join(folder, "cases.jsonl"), encoding="utf8") as f:
        return [json.loads(line) for line in f if line.strip()]


def compatibility(folder):
    """A check for each interface, and the answers that play the model."""
    cases, tools = compatibility_cases(folder), compatibility_tools(folder)
    answers = {f"case{i}": THINK + CALL % (case["tool_name"], case["expected_arguments"])
               for i, case in enumerate(cases)}

    def run(c, api):
        for i, case in enumerate(cases):
            for stream in (False, True):
                arguments, result, events = agent_loop(c, api, stream, tools[case["tool_name"]],
                                                       f"{case['input']} @@case{i}")
                assert arguments == json.loads(case["expected_arguments"]), (case, arguments)
                thought = [o for r in result.raw_responses for o in r.output if o.type == "reasoning"]
                assert thought and all(o.content is None or all(t.text for t in o.content) for o in thought)
                if api == "responses":
                    assert all(o.content and all(t.type == "reasoning_text" for t in o.content) for o in thought)
                if stream:
                    kinds = {e.type for e in events}
                    assert {"response.reasoning_text.delta", "response.reasoning_text.done"} <= kinds or (
                        api == "chat" and any("reasoning" in kind and kind.endswith("delta") for kind in kinds)), kinds
        print(f"       {len(cases)} cases, whole and streamed")

    @check
    def compatibility_responses(c):
        run(c, "responses")

    @check
    def compatibility_chat(c):
        run(c, "chat")
    return answers


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    if len(sys.argv) == 3:
        ANSWERS.update(compatibility(sys.argv[2]))
    with tempfile.TemporaryDirectory() as folder:
        answers = os.path.join(folder, "answers.json")
        with open(answers, "w") as f:
            json.dump(ANSWERS, f)
        server = subprocess.Popen([os.path.join(sys.argv[1], "serve_scripted"), answers, "0", folder],
                                  stdout=subprocess.PIPE, text=True)
        url = server.stdout.readline().split()[-1]
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        failed = 0
        for function in CHECKS:
            try:
                function(client)
                print("ok    ", function.__name__)
            except Exception:
                failed += 1
                print("FAILED", function.__name__)
                traceback.print_exc()
        server.terminate()
        ended = server.wait(20)
        print(f"{len(CHECKS) - failed} of {len(CHECKS)} passed; openai {openai.__version__}; "
              f"the server ended with status {ended}")
        sys.exit(failed > 0 or ended != 0)


if __name__ == "__main__":
    main()
