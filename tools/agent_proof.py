#!/usr/bin/env python3
"""From nothing to an accepted optimisation of somebody else's tree, by a public MCP client (the Python
package mcp) and the answers of `sol mcp` alone: no file of the machine is read, nothing is known of sol
beyond its list of tools and what it answers. What the script does know is its trade: the tree, how that is
built and checked, and a few edits that it could try, one of them wrong, as programmers' ideas are.

The rules that it goes by:
  - it begins with the tool that says where an iteration stands, and then calls what "next" says, with the
    arguments given there, and those of its task that the tool's schema has;
  - where "first" says edit, it edits: what the profile names first, among the edits left;
  - after a refusal it does what is named, and tries another edit in a new iteration;
  - it stops when an answer says accepted.

usage: agent_proof.py SOL_BINARY [rows|torch] [--keep]
  rows (default): a C program that sums a table column by column, on a CPU
  torch: a training step in PyTorch that waits, launches one small kernel after another and copies from
         pageable memory, on an NVIDIA GPU (needs python3 with torch; PYTHON names another one)
Without the package mcp, torch falls back on a client of its own, and says so. bench/agent_device.sh runs
it on a machine with a GPU.
"""
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
except ImportError:
    ClientSession = None

SOL = os.path.abspath(sys.argv[1])
KIND = sys.argv[2] if len(sys.argv) > 2 and not sys.argv[2].startswith("-") else "rows"
WORK = tempfile.mkdtemp()
TREE = os.path.join(WORK, "tree")
PYTHON = os.environ.get("PYTHON", sys.executable if KIND == "torch" else "python3")

# ---- the foreign trees ----
ROWS_C = r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
enum { N = 3000 };
static int32_t table[N][N];
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
int main(int argc, char **argv)
{
    double start = now();
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) table[i][k] = (i * 31 + k * 17) % 1000;
    double filled = now();
    int64_t sum = 0;
    for (int round = 0; round < 4; round++)
        for (int k = 0; k < N; k++)
            for (int i = 0; i < N; i++) sum += table[i][k] ^ round;
    double summed = now();
    int64_t hash = 0;
    for (int i = 0; i < N * 10; i++) hash = hash * 31 + sum % (i + 1);
    double hashed = now();
    printf("sum %lld hash %lld\n", (long long)sum, (long long)hash);
    if (argc > 1 && strcmp(argv[1], "--times") == 0)
        printf("fill %.4f s\nsum-loop %.4f s\nhash-loop %.4f s\n", filled - start, summed - filled,
               hashed - summed);
    return 0;
}
"""
ROWS = {
    "files": {
        "rows.c": ROWS_C,
        "Makefile": "CFLAGS = -O1\nrows: rows.c\n\t$(CC) $(CFLAGS) -o $@ rows.c\ncheck: rows\n"
                    "\t./rows | cmp - expected\n",
        ".gitignore": "rows\n",
    },
    "expected": ("expected", "make -s && ./rows"),
    # Its own words about the program; the tools' schemas say which of them they take.
    "task": {"tree": TREE, "build": "make", "benchmark": "./rows", "metrics": ["cpu"], "correctness": "make check",
             "profile": "./rows --times"},
    "profile": [],
    "edits": [
        ("sum-loop", "two rounds say enough", 40, "rows.c", "round < 4", "round < 2"),
        ("sum-loop", "the table is walked along its rows", 50, "rows.c",
         "for (int k = 0; k < N; k++)\n            for (int i = 0; i < N; i++) sum",
         "for (int i = 0; i < N; i++)\n            for (int k = 0; k < N; k++) sum"),
        ("hash-loop", "the hash needs no remainder", 5, "rows.c", "sum % (i + 1)", "(sum + i) % (i + 1)"),
    ],
    "wrong": "two rounds say enough",
}

STEP_PY = r"""
import sys
import time
import torch

torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False
LAYERS, WIDTH, BATCH, STEPS = 16, 256, 32, 60
layers = [torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()).cuda()
          for _ in range(LAYERS)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=False)
data = torch.randn(STEPS, BATCH, WIDTH)


def step(x):
    optimizer.zero_grad(set_to_none=False)
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def train():
    losses = []
    for i in range(STEPS):
        x = data[i].cuda(non_blocking=True)
        losses.append(step(x).item())
    return losses


train()
torch.cuda.synchronize()
start = time.perf_counter()
losses = train()
torch.cuda.synchronize()
took = time.perf_counter() - start
if "--check" in sys.argv:
    wanted = [float(line) for line in open("expected")]
    bad = [i for i, (a, b) in enumerate(zip(losses, wanted)) if abs(a - b) > 2e-3 * abs(b)]
    print("losses differ at", bad[:5]) if bad or len(losses) != len(wanted) else print("losses agree")
    sys.exit(bool(bad) or len(losses) != len(wanted))
if "--losses" in sys.argv:
    print("\n".join(repr(value) for value in losses))
else:
    print(f"took {took:.5f} s")
"""
FUSED = ("foreach=False, fused=False", "fused=True")
WAITS = ("losses.append(step(x).item())", "losses.append(step(x).detach())\n    losses = torch.stack(losses).tolist()")
TORCH = {
    "files": {"step.py": STEP_PY, ".gitignore": "__pycache__\n"},
    "expected": ("expected", f"{PYTHON} step.py --losses"),
    "task": {"tree": TREE, "build": "true", "benchmark": f"{PYTHON} step.py", "metrics": ["regex:took ([0-9.]+)"],
             "correctness": f"{PYTHON} step.py --check", "profile": "true"},
    # What is profiled is a program of somebody else's; what the advice names is tried.
    "profile": [PYTHON, os.path.join(TREE, "step.py")],
    "edits": [
        ("sync|pageable|alloc_jit", "half of the steps train as well", 50, "step.py", "for i in range(STEPS)",
         "for i in range(STEPS // 2)"),
        ("gap.host|launch_bound|tiny_kernels|unfused|gap.launch", "one kernel updates all parameters", 30, "step.py",
         *FUSED),
        ("sync|pageable", "losses are read once at the end", 5, "step.py", *WAITS),
    ],
    "wrong": "half of the steps train as well",
}
CASE = {"rows": ROWS, "torch": TORCH}[KIND]


def make_tree():
    os.makedirs(TREE)
    for name, text in CASE["files"].items():
        with open(os.path.join(TREE, name), "w") as f:
            f.write(text)
    name, command = CASE["expected"]
    with open(os.path.join(TREE, name), "w") as f:
        subprocess.run(command, shell=True, cwd=TREE, stdout=f, check=True)
    for words in (["init", "-q"], ["config", "user.email", "t@example.org"], ["config", "user.name", "t"],
                  ["add", "-A"], ["commit", "-qm", "as it was"]):
        subprocess.run(["git", "-C", TREE, *words], check=True)


# ---- the agent ----
class Agent:
    def __init__(self, call, tools):
        self.call_tool, self.schemas = call, {t["name"]: t["inputSchema"] for t in tools}
        self.edits = list(CASE["edits"])
        self.log, self.edit, self.names = [], None, []

    async def call(self, tool, arguments):
        reply = json.loads(await self.call_tool(tool, arguments))
        assert len(json.dumps(reply, separators=(",", ":"))) < 4200
        said = {k: reply[k] for k in ("ok", "error", "first", "next") if k in reply}
        print(f"{tool} {json.dumps(arguments)}\n    -> {json.dumps(said)[:700]}", flush=True)
        self.log.append((tool, reply))
        return reply

    def with_task(self, tool, arguments):
        """What the task says of the program, where the tool has such an argument and the step none."""
        known = self.schemas[tool]["properties"]
        mine = {k: v for k, v in CASE["task"].items() if k in known}
        return {**mine, **arguments}

    async def look(self):
        """Where the time goes: the names that a profile or advice gives, the largest first."""
        if not CASE["profile"]:
            reply = await self.call("opt_profile", {"tree": TREE})
            rows = re.findall(r"(\S+) ([0-9.]+) s", str(reply["result"]["profile"]))
            self.names = [name for name, _ in sorted(rows, key=lambda row: -float(row[1]))]
            return
        reply = await self.call("profile_command", {"command": CASE["profile"]})
        reply = await self.call("advise", {"run": reply["evidence"][0]})
        self.names = [row["rule"] for row in reply["result"]["advice"]]

    def choose(self):
        """The first edit left for what is named first."""
        for name in self.names:
            for edit in self.edits:
                if re.fullmatch(edit[0], name):
                    self.edits.remove(edit)
                    return name, edit
        raise SystemExit(f"FAILED: no idea is left for {self.names}")

    def change(self):
        _, _, _, file, old, new = self.edit
        path = os.path.join(TREE, file)
        with open(path) as f:
            text = f.read()
        assert old in text, f"{old} is not in {file}"
        with open(path, "w") as f:
            f.write(text.replace(old, new))
        print(f"    (edits {file}: {self.edit[1]})", flush=True)

    async def go(self):
        reply = await self.call("opt_status", {"tree": TREE})
        for _ in range(60):
            if reply.get("result", {}).get("accepted"):
                return reply
            then = reply.get("next")
            assert then, f"no next step: {reply}"
            tool, arguments = then["tool"], then["arguments"]
            if tool == "opt_start":
                if not self.names and not CASE["profile"]:
                    self.names = [edit[0] for edit in self.edits[:1]]  # nothing can be profiled yet: a guess
                elif not self.names:
                    await self.look()
                name, self.edit = self.choose()
                arguments = {**arguments, "hypothesis": self.edit[1], "predict_percent": self.edit[2]}
                if CASE["profile"]:
                    arguments["rule"] = name
            elif tool == "opt_benchmark" and "edit" in reply.get("first", ""):
                if not CASE["profile"] and len(self.names) < 2:
                    await self.look()
                self.change()
            reply = await self.call(tool, self.with_task(tool, arguments))
        raise SystemExit("FAILED: 60 steps, and nothing accepted")


# ---- clients ----
ENV = dict(os.environ, SOL_STORE=os.path.join(WORK, "store"))
WORDS = ["mcp", "--allow-commands"]


async def with_public_client():
    server = StdioServerParameters(command=SOL, args=WORDS, env=ENV)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = [t.model_dump(by_alias=True) for t in (await session.list_tools()).tools]

        async def call(tool, arguments):
            return (await session.call_tool(tool, arguments)).content[0].text

        agent = Agent(call, tools)
        return agent, await agent.go()


async def with_own_client():
    print("without the package mcp: a client of this script's own", flush=True)
    p = await asyncio.create_subprocess_exec(SOL, *WORDS, env=ENV, stdin=-1, stdout=-1, limit=1 << 24)
    number = 0

    async def ask(method, params):
        nonlocal number
        number += 1
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        p.stdin.write((json.dumps(message) + "\n").encode())
        while True:
            reply = json.loads(await p.stdout.readline())
            if reply.get("id") == number:
                return reply["result"]

    await ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                             "clientInfo": {"name": "agent", "version": "1"}})

    async def call(tool, arguments):
        return (await ask("tools/call", {"name": tool, "arguments": arguments}))["content"][0]["text"]

    agent = Agent(call, (await ask("tools/list", {}))["tools"])
    reply = await agent.go()
    p.stdin.close()
    await p.wait()
    return agent, reply


def check(agent, reply):
    """What it came to: seen from outside, once it is over."""
    log = subprocess.run(["git", "-C", TREE, "log", "--format=%s"], capture_output=True, text=True, check=True).stdout
    assert log.splitlines() == [f"perf: {agent.edit[1]}", "as it was"], log
    assert reply["result"]["commit"] and reply["ok"], reply
    refused = [r for tool, r in agent.log if tool == "opt_accept" and not r["ok"]]
    wrong_tried = not any(edit[1] == CASE["wrong"] for edit in agent.edits)
    assert len(refused) >= wrong_tried, "the wrong edit was not refused"
    failed = [tool for tool, r in agent.log if not r["ok"] and tool != "opt_accept"]
    assert not failed, f"steps that were named failed: {failed}"
    iteration = reply["result"]["iteration"]
    print(f"accepted after {len(agent.log)} calls, {len(refused)} refused: {agent.edit[1]}, "
          f"{100 * iteration['realised']:.1f} % less time")


if KIND == "rows" and not ClientSession:
    print("skipped: no package mcp; tools/mcp_client installs one")
    sys.exit(0)
make_tree()
check(*asyncio.run(with_public_client() if ClientSession else with_own_client()))
if "--keep" in sys.argv:
    print(WORK)
else:
    shutil.rmtree(WORK)
print("all passed")
