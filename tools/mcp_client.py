#!/usr/bin/env python3
"""Drives `sol mcp` with a public client library (the Python package mcp): both ways to connect, the
list of tools, calls, errors, progress, cancellation, time limits, parallel calls, and whole iterations
of sol opt on a small tree: one that is accepted and one that is taken back.

usage: tools/mcp_client.py SOL_BINARY     (needs: pip install mcp; see tools/mcp_client for a venv)
"""
import json
import os
import subprocess
import sys
import tempfile
import time

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

try:
    from mcp import Client  # 2.x speaks 2026-07-28 too
except ImportError:
    Client = None

SOL = os.path.abspath(sys.argv[1])
ENV = dict(os.environ, SOL_STORE=tempfile.mkdtemp())
SERVER = StdioServerParameters(command=SOL, args=["mcp", "--allow-commands"], env=ENV)


def answer(result):
    text = result.content[0].text
    assert len(text.encode()) < 4096, len(text)
    reply = json.loads(text)
    assert next_tool(reply) or reply["first"], reply
    return reply


def next_tool(reply):
    return reply.get("next", {}).get("tool", "")


async def calls(call, label):
    reply = answer(await call("bench", {"prompt": [16], "generate": [4], "repetitions": 2, "no_limits": True}))
    assert reply["ok"] and reply["evidence"], reply
    run = reply["evidence"][0]
    assert answer(await call("run_show", {"run": run}))["ok"]
    runs = answer(await call("runs", {"limit": 3}))
    assert runs["result"]["runs"][0]["id"] == run, runs
    kernels = answer(await call("kernels", {}))
    assert kernels["ok"] and kernels["more"], kernels
    more = answer(await call("more", kernels["more"]["arguments"]))
    assert more["ok"] and more["result"], more
    more = answer(await call("more", {"id": kernels["more"]["arguments"]["id"], "offset": 100}))
    assert more["offset"] == 100 and next_tool(more) == "more", more
    verify = answer(await call("verify", {"ops": ["rmsnorm"]}))
    assert verify["ok"] and verify["result"]["failed"] == 0, verify

    wrong = await call("bench", {"prompt": ["x"]})
    assert (getattr(wrong, "is_error", None) or getattr(wrong, "isError", None)) and not answer(wrong)["ok"]
    assert not answer(await call("run_show", {"run": "--help"}))["ok"]

    began = time.monotonic()
    late = answer(await call("compare_live", {"old": "sleep 20", "new": "sleep 20", "max_seconds": 1}))
    assert not late["ok"] and "max_seconds" in late["error"] and time.monotonic() - began < 8, late
    print(f"{label}: calls, evidence, more, bad arguments, time limit: ok")


def small_tree():
    """A git tree whose "program" takes as long as the file `time` says, and answers what `answer` holds."""
    tree = tempfile.mkdtemp()
    files = {
        "time": "10\n", "answer": "right\n", "ppl": "12.5\n", "long": "a line to show\n" * 400,
        "sol-opt.json": json.dumps({
            "build": "cat time > built",
            "benchmark": "awk '{print \"took\", $1, NR + rand() * 0.0001}' built",
            "metrics": ["regex:took ([0-9.]+)"], "correctness": "grep -q right answer",
            "perplexity": "sed s/^/PPL=/ ppl", "perplexity_value": "regex:PPL=([0-9.]+)",
            "profile": "cat long"})}
    for name, text in files.items():
        with open(os.path.join(tree, name), "w") as f:
            f.write(text)
    for words in (["init", "-q"], ["config", "user.email", "t@example.org"], ["config", "user.name", "t"],
                  ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-C", tree, *words], check=True)
    return tree


def write(tree, name, text):
    with open(os.path.join(tree, name), "w") as f:
        f.write(text)


def git(tree, *words):
    return subprocess.run(["git", "-C", tree, *words], check=True, capture_output=True, text=True).stdout


async def iterate(call, label):
    tree = small_tree()

    async def step(name, good=True, then="", **arguments):
        reply = answer(await call(name, {"tree": tree, **arguments}))
        assert reply["ok"] == good, (name, reply)
        assert then in next_tool(reply), (name, reply)
        return reply

    await step("opt_benchmark", good=False, then="opt_start")  # nothing was started
    await step("opt_start", hypothesis="a shorter time", predict_percent=50, rule="stall", then="opt_benchmark")
    await step("opt_accept", good=False)  # nothing was compared
    write(tree, "time", "5\n")
    await step("opt_benchmark", then="opt_compare")
    await step("opt_profile")
    compared = await step("opt_compare", then="opt_accept")
    assert compared["result"]["comparison"]["verdict"] == "faster" and compared["evidence"], compared
    await step("opt_record", note="half")
    accepted = await step("opt_accept", then="opt_start")
    assert "a shorter time" in git(tree, "log", "-1"), git(tree, "log", "-1")
    assert git(tree, "show", "HEAD:time") == "5\n" and accepted["result"], accepted

    await step("opt_start", hypothesis="a longer one", predict_percent=5, then="opt_benchmark")
    write(tree, "time", "6\n")
    slower = await step("opt_compare")
    assert slower["result"]["comparison"]["verdict"] == "slower", slower
    await step("opt_accept", good=False)
    await step("opt_record", note="it was worse")
    await step("opt_revert", then="opt_start")
    assert open(os.path.join(tree, "time")).read() == "5\n" and git(tree, "status", "--porcelain", "-uno") == ""
    history = await step("opt_history", limit=5)
    states = [i["state"] for i in history["result"]["iterations"]]
    assert states == ["reverted", "accepted"], history
    await step("opt_history", iteration="#2")
    summary = await step("opt_summary")
    assert summary["result"]["accepted"] == 1, summary
    print(f"{label}: start, benchmark, profile, compare, record, accept; and again with revert: ok")


async def parallel(call, label):
    began = time.monotonic()
    done = []

    async def one(name, arguments):
        await call(name, arguments)
        done.append((name, time.monotonic() - began))

    async with anyio.create_task_group() as group:
        group.start_soon(one, "compare_live", {"old": "sleep 0.3", "new": "sleep 0.3", "max_pairs": 6})
        await anyio.sleep(0.3)
        group.start_soon(one, "runs", {})
    assert done[0][0] == "runs", done
    print(f"{label}: a quick call is not held up by a long one: ok")


async def with_handshake():
    async with stdio_client(SERVER) as (read, write), ClientSession(read, write) as session:
        hello = await session.initialize()
        version = getattr(hello, "protocol_version", None) or hello.protocolVersion
        await session.send_ping()
        tools = (await session.list_tools()).tools
        names = [t.name for t in tools]
        assert "opt_compare" in names and len(names) == len(set(names)), names
        label = f"handshake, {version}, {len(names)} tools"
        await calls(session.call_tool, label)
        await iterate(session.call_tool, label)
        await parallel(session.call_tool, label)

        seen = []

        async def progress(value, total, message):
            seen.append((value, total, message))

        await session.call_tool("compare_live", {"old": "sleep 0.2", "new": "sleep 0.2", "max_pairs": 6},
                                progress_callback=progress)
        assert len(seen) >= 2 and seen == sorted(seen) and seen[0][1] == 1200, seen
        print(f"{label}: progress: ok")

        mark = f"sleep 3{os.getpid() % 1000:03d}"
        with anyio.move_on_after(2):
            await session.call_tool("compare_live", {"old": mark, "new": mark})
        with anyio.fail_after(10):
            while os.system(f"pgrep -f '^{mark}' >/dev/null") == 0:
                await anyio.sleep(0.1)
            await session.call_tool("runs", {})
        print(f"{label}: a cancelled call leaves no process, the next one is answered: ok")


async def stateless():
    if not Client:
        print("skipped: this mcp package has no client for 2026-07-28")
        return
    async with Client(stdio_client(SERVER)) as client:
        assert client.protocol_version >= "2026-07-28", client.protocol_version
        tools = (await client.list_tools()).tools
        label = f"stateless, {client.protocol_version}, {len(tools)} tools"
        assert client.server_info.name == "sol"
        await calls(client.call_tool, label)
        await iterate(client.call_tool, label)
        await parallel(client.call_tool, label)


anyio.run(with_handshake)
anyio.run(stateless)
print("all passed")
