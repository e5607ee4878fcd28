#!/usr/bin/env python3
"""Every next step that a command names works as it stands: this runs many commands in a scratch store
and tree, each as text and as JSON and many as tools of sol mcp, and then whatever they name, in the same
place. A step that changes something is tried on the state as it is, which is put back afterwards.

usage: next_steps.py SOL_BINARY SOURCE_FOLDER      (cli_next.sh)
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOL, SOURCE = os.path.abspath(sys.argv[1]), sys.argv[2]
WORK = tempfile.mkdtemp()
STATE = os.path.join(WORK, "state")  # store, tree and home: what is put back
TREE = os.path.join(STATE, "tree")
BIN = os.path.join(WORK, "bin")
VERDICTS = (0, 10, 11, 12)
AS_JSON = 4  # of a command with one outcome so many are asked for JSON too, which is a print of the same
failures, seen, named, looked = 0, {}, 0, {}

os.makedirs(BIN)
os.makedirs(TREE)
os.symlink(SOL, os.path.join(BIN, "sol"))
ENV = dict(os.environ, PATH=BIN + ":" + os.environ["PATH"], SOL_STORE=os.path.join(STATE, "store"), HOME=STATE,
           GIT_CONFIG_NOSYSTEM="1")


def fail(text):
    global failures
    failures += 1
    print("FAILED:", text, flush=True)


def shell(command, cwd):
    return subprocess.run(["bash", "-c", command], cwd=cwd, env=ENV, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=300)


class Kept:
    """The state of before, put back at the end."""

    def __enter__(self):
        self.copy = tempfile.mkdtemp(dir=WORK)
        shutil.copytree(STATE, self.copy + "/state", symlinks=True)

    def __exit__(self, *_):
        shutil.rmtree(STATE)
        shutil.move(self.copy + "/state", STATE)


def check(next_step, cwd, of, refused):
    """Runs what was named, in the state as it is."""
    global named
    named += 1
    # Of a step with other ids only the first two are run: the state that they meet is of few kinds. SOL_NEXT_ALL
    # runs all, but for the minute of a calibration.
    kind = next(iter(plain([next_step])))
    often = 1 if "--calibrate" in kind else 1000 if os.environ.get("SOL_NEXT_ALL") else 2
    seen[kind] = seen.get(kind, 0) + 1
    if seen[kind] > often:
        return
    # As it stands, but for the minute that programs in turn may take: of two options the last counts.
    short = "" if os.environ.get("SOL_NEXT_ALL") or "--live" not in kind else " --max-seconds 3"
    p = shell(next_step + short, cwd)
    if p.returncode not in VERDICTS and not (refused and p.returncode == 7):
        fail(f"{of}: its next step '{next_step}' ended with {p.returncode}: {p.stderr.strip()[:300]}")


def nexts_of(value):
    """Every "next" in JSON, wherever it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "next" and isinstance(inner, str):
                yield inner
            yield from nexts_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from nexts_of(inner)


def plain(steps):
    """Without ids, which differ from run to run."""
    return {re.sub(r"\b[a-z][0-9a-f]{8}\b", "ID", step) for step in steps}


def run_json(command, cwd, refused):
    with Kept():
        p = shell(f"sol {command} -o json", cwd)
        try:
            value = json.loads(p.stdout) if p.stdout.strip() else None
        except ValueError:
            value = None
            fail(f"sol {command} -o json: no JSON: {p.stdout[:200]}")
        steps = list(nexts_of(value))
        for step in steps:
            check(step, cwd, f"sol {command} -o json", refused)
    return steps


def run(command, status=0, cwd=TREE, must=True, formats=True, refused=False):
    """`command`, which must name a next step, as JSON and as text. The step is the same in both, and is run.
    `refused`: a gate will say no, which only running it tells."""
    way = (" ".join(command.split()[:2]), status)
    looked[way] = looked.get(way, 0) + 1
    formats = formats and looked[way] <= AS_JSON
    from_json = run_json(command, cwd, refused) if formats else []
    p = shell(f"sol {command}", cwd)
    if status is not None and p.returncode != status:
        fail(f"sol {command}: status {p.returncode}, expected {status}: {p.stderr.strip()[:300]}")
    steps = re.findall(r"^next: (.*)$", p.stdout, re.M)
    if must and len(steps) != 1:
        fail(f"sol {command}: {len(steps)} next steps: {p.stdout[-400:]}")
    if formats and must and plain(steps) != plain(from_json):
        fail(f"sol {command}: text says {steps}, JSON {from_json}")
    for step in [] if formats else steps:
        with Kept():
            check(step, cwd, f"sol {command}", refused)
    return p.stdout


def write(name, text, folder=TREE):
    with open(os.path.join(folder, name), "w") as f:
        f.write(text)


def git(*words):
    subprocess.run(["git", "-C", TREE, *words], check=True, capture_output=True, env=ENV)


def configure(**others):
    config = {"build": "cat time > built", "benchmark": "awk '{print \"took\", $1, NR + rand() * 0.0001}' built",
              "metrics": ["regex:took ([0-9.]+)"], "correctness": "grep -q right answer", "profile": "echo profiled",
              "perplexity": "sed s/^/PPL=/ ppl", "perplexity_value": "regex:PPL=([0-9.]+)"}
    write("sol-opt.json", json.dumps({**config, **others}))


def begin_tree():
    shutil.rmtree(TREE)
    os.makedirs(TREE)
    git("init", "-q")
    git("config", "user.email", "t@example.org")
    git("config", "user.name", "t")
    for name, text in (("time", "10\n"), ("answer", "right\n"), ("ppl", "12.5\n"), ("other", "keep\n")):
        write(name, text)
    git("add", "-A")
    git("commit", "-qm", "first")


def looks():
    run("opt")


# ---- sol opt, state by state ----
def opt_steps():
    run("opt", status=2, cwd=WORK, must=False)
    begin_tree()
    for command, status in (("opt", 0), ("opt benchmark", 2), ("opt history", 0)):
        run(command, status)
    run("opt start x", status=2, must=False)
    run("opt init --preset make")
    configure()
    looks()
    for command in ("opt benchmark", "opt compare", "opt accept", "opt revert", "opt start"):
        run(command, status=2)
    write("other", "edited\n")
    looks()
    run("opt start 'an edit before' --predict 5% --rule stall", status=2)
    run("opt init --force")
    configure()
    git("checkout", "-q", "other")
    run("opt start 'write less' --predict 30% --rule stall")
    run("opt start another", status=2)
    looks()
    run("opt benchmark")
    run("opt profile")
    for command in ("opt compare", "opt accept", "opt record"):
        run(command, status=2)
    write("time", "8\n")
    looks()
    run("opt record")
    run("opt accept", status=2)
    run("opt benchmark")
    looks()
    run("opt compare", status=10)
    looks()
    for command in ("opt history", "opt summary", "opt history last"):
        run(command)
    write("answer", "wrong\n")
    looks()
    run("opt compare", status=10, refused=True)
    run("opt accept", status=7)  # correctness
    looks()
    run("opt compare", status=10)
    run("opt benchmark")
    run("opt record")
    run("opt history")
    write("answer", "right\n")
    write("ppl", "99\n")
    run("opt compare", status=10, refused=True)
    run("opt accept", status=7)  # perplexity
    looks()
    write("ppl", "12.5\n")
    run("opt compare", status=10)
    git("commit", "-qm", "meanwhile", "--allow-empty")
    looks()  # HEAD moved
    run("opt accept", status=2)
    git("reset", "-q", "--soft", "HEAD~1")
    run("opt accept --tree .", cwd=TREE)
    looks()
    run("opt history '#1'")
    run("opt history")
    run("opt start slower --predict 5%")
    write("time", "9\n")
    run("opt compare", status=11)
    run("opt accept", status=7)
    run("opt revert", status=2)
    run("opt record --note 'no good'")
    run("opt revert")
    run("opt restore '#2'")
    looks()
    run("opt revert")
    run("opt start same")
    write("other", "x\n")
    run("opt compare", status=0)
    run("opt accept", status=7)
    run("opt accept --even-if same --reason tidy --no-commit")
    looks()
    git("checkout", "-q", "other")
    run("opt start kept")
    write("other", "y\n")
    run("opt revert --keep")
    git("checkout", "-q", "other")

    # what fails, is invalid, or cannot be told apart
    configure(build="grep -q 8 time && cp time built")
    run("opt start 'broken build'")
    write("time", "7\n")
    run("opt benchmark", status=7)
    looks()
    run("opt record")
    run("opt revert")
    configure(benchmark="grep -q 8 time && awk '{print \"took\", $1, 1}' time")
    run("opt start 'broken benchmark'")
    run("opt benchmark")
    write("time", "7\n")
    run("opt benchmark", status=7)
    run("opt compare", status=None)
    looks()
    run("opt record")
    run("opt revert")
    configure(expect=["gemm"])
    run("opt start kernels")
    write("time", "5\n")
    run("opt compare", status=13)
    looks()
    run("opt record")
    run("opt revert")
    configure(benchmark="cat answer", metrics=["wall"], correctness=None, same_output=True, perplexity=None)
    run("opt start 'another answer'")
    write("answer", "wrong\n")
    run("opt compare", status=7)
    looks()
    run("opt record")
    run("opt revert")
    # as different as the noise lets it: more pairs would tell
    write("noise", "0\n")
    git("add", "noise")
    git("commit", "-qm", "noise")
    configure(benchmark="n=$(cat " + STATE + "/n 2>/dev/null || echo 0); echo $((n + 1)) >" + STATE + "/n; "
              "awk -v n=$n '{print \"took\", $1 + (n * 7919) % 13}' built", max_pairs=6, delta_percent=0.01)
    run("opt start 'cannot be told apart'")
    write("time", "8.1\n")
    run("opt compare", status=None)
    looks()
    run("opt record")
    run("opt revert")


# ---- runs, comparisons, advice ----
def run_steps():
    folder = os.path.join(STATE, "folder")
    os.makedirs(folder)
    bench = "bench -m synth:tiny -p 8 -n 2 -r 6 -q --no-limits"
    for label, more in (("a", ""), ("b", " --ops")):
        run(f"{bench} --label {label}{more}", cwd=folder, must=False)
    run("compare a b", status=None, cwd=folder, must=False)
    run("compare a a", status=None, cwd=folder, must=False)
    run("compare b b", status=None, cwd=TREE, must=False)
    run("profile -m synth:tiny -t 2 -p 8 -n 4 -r 3 -q --slow attention=300 --label slow", cwd=folder, must=False)
    for cwd in (folder, TREE):
        run("advise slow", status=None, cwd=cwd)
        run("advise", status=None, cwd=cwd)
    run("advise b", cwd=folder)
    for name, ns in (("steady", 1000), ("steadier", 2000)):  # known times, so that a verdict is sure
        run_json_file = json.loads(shell("sol runs export b", folder).stdout)
        run_json_file["label"] = name
        for metric in run_json_file["metrics"]:
            for i, sample in enumerate(metric["samples"]):
                sample.update(value=ns + i % 3, process=i, warmup=False)  # each of its own start
        run_json_file.update(payload=None, noise=None, badge="ok")
        write(name + ".json", json.dumps(run_json_file), folder)
        shell(f"sol import {name}.json --label {name}", folder)
    run("compare steady steadier", status=11, cwd=folder)
    store = os.path.join(STATE, "store")
    run(f"advise slow --store {store}", cwd=folder)
    run(f"compare a b --store {store}", status=None, cwd=folder, must=False)
    run("profile -m synth:tiny -p 8 -n 4 -r 2 -q --expect attention=99/token", status=13, cwd=folder, must=False)
    run("advise", status=13, cwd=folder)
    run("runs label b 'it'\\''s \"b\"'", cwd=folder, must=False, formats=False)
    run("compare a 'it'\\''s \"b\"'", status=None, cwd=folder, must=False)
    # figures that commands print, so that verdicts are known: faster, slower, and not enough pairs
    write("value", 'n=$(cat "$1" 2>/dev/null || echo 0); echo $((n + 1)) >"$1"\n'
          'echo "speed: $(($2 + (n * 7919) % 13)) t/s"\n', folder)
    rate = "compare --live -q --metric 'rate:regex:speed: ([0-9]+)'"
    for old, new, status in ((10000, 11000, 10), (10000, 9000, 11)):
        run(f"{rate} 'sh value x {old}' 'sh value y {new}'", status, cwd=folder, must=False)
    run("compare --live -q --metric wall --max-pairs 6 --delta 0.01 'sleep 0.01' 'sleep 0.0101'", None, cwd=folder,
        must=False, formats=False)
    run(f"{rate} 'true' 'false'", None, cwd=folder, must=False)
    for name in sorted(os.listdir(SOURCE + "/tests/data/import")):
        p = shell(f"sol import '{SOURCE}/tests/data/import/{name}' --label imported", folder)
        if p.returncode == 0:
            run("advise imported", status=None, cwd=folder, must=False)
    trace = shell("ls", SOURCE + "/tests/data/trace").stdout.split()
    for name in trace[:3]:
        run(f"advise '{SOURCE}/tests/data/trace/{name}'", status=None, cwd=folder, must=False)


# ---- sol mcp ----
class Server:
    def __init__(self, *words, cwd=TREE):
        program = ["--program", SOL] if os.environ.get("SOL_EMULATED") else []
        self.p = subprocess.Popen([SOL, "mcp", *program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True, env=ENV, cwd=cwd)
        self.n = 0
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                "clientInfo": {"name": "t", "version": "1"}})

    def ask(self, method, params):
        self.n += 1
        self.p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.n, "method": method, "params": params}) + "\n")
        self.p.stdin.flush()
        while True:
            reply = json.loads(self.p.stdout.readline())
            if reply.get("id") == self.n:
                return reply

    def call(self, tool, arguments):
        reply = self.ask("tools/call", {"name": tool, "arguments": arguments})
        if "error" in reply:
            fail(f"mcp {tool} {arguments}: {reply['error']}")
            return {"ok": False, "error": reply["error"]}
        return json.loads(reply["result"]["content"][0]["text"])

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def step(server, tool, ok=True, refused=False, **arguments):
    """A call, and after it what its answer names: in a state that is put back, but for measuring."""
    global named
    reply = server.call(tool, arguments)
    if ok is not None and reply["ok"] != ok:
        fail(f"mcp {tool} {arguments}: ok is {reply['ok']}: {reply}")
    for key in ("next", "more"):
        call = reply.get(key)
        if key == "next" and call is None and ok:
            fail(f"mcp {tool}: no next: {reply}")
        if call is None:
            continue
        named += 1
        # As it stands, but for the ten repetitions of a benchmark, and the minute of one of whole layers.
        less = {"bench": {"repetitions": 2}, "gemm_bench": {"shapes": ["m=8,24;n=64;k=64"]}}
        fewer = {} if os.environ.get("SOL_NEXT_ALL") else less.get(call["tool"], {})
        with Kept():
            then = server.call(call["tool"], {**fewer, **call["arguments"]})
        if not then["ok"] and not (refused and then["exit_status"] == 7):
            fail(f"mcp {tool} {arguments}: its {key} {call} failed: {then}")
    if "left_out" in reply and reply["more"]["arguments"].get("id"):
        for path in reply["left_out"]:
            part = server.call("more", {"id": reply["more"]["arguments"]["id"], "path": path}) if path else {"ok": True}
            if not part["ok"]:
                fail(f"mcp {tool}: left_out names {path}, and more says {part}")
    return reply


def mcp_runs(server):
    tiny = {"model": "synth:tiny", "repetitions": 2}
    step(server, "bench", prompt=[8, 16, 24], generate=[2, 3], ops=True, no_limits=True, **tiny)
    step(server, "bench", prompt=[8], generate=[2], no_limits=True, **tiny)
    run_id = step(server, "profile", prompt=8, generate=2, **tiny)["evidence"][0]
    for tool in ("runs", "kernels"):
        step(server, tool)
    step(server, "run_show", run=run_id)
    step(server, "advise")
    step(server, "advise", run=run_id)
    step(server, "report", run=run_id, output=os.path.join(STATE, "r.html"))
    step(server, "verify", ops=["rmsnorm"])
    step(server, "gemm_check", quick=True)
    step(server, "gemm_bench", shapes=["m=8,24;n=64;k=64"], no_limits=True, profile=True)
    step(server, "gemm_bench", ok=False, shapes=["m=8;n=64;k=65"])
    step(server, "compare", ok=None, old="a", new="a")
    step(server, "run_show", ok=False, run="nothing")
    step(server, "bench", ok=False, prompt=[1], model="nothing.gguf")
    step(server, "import", files=[SOURCE + "/tests/data/import/" + sorted(
        n for n in os.listdir(SOURCE + "/tests/data/import") if n.startswith("llama"))[0]])
    step(server, "import", ok=False, files=["/nowhere"])


def mcp_opt(server):
    tree = {"tree": TREE}
    write("time", "10\n")
    git("commit", "-qam", "slow again")
    step(server, "opt_init", force=True, build="cat time > built", metrics=["regex:took ([0-9.]+)"],
         benchmark="awk '{print \"took\", $1}' built", correctness="grep -q right answer", **tree)
    step(server, "opt_status", **tree)
    step(server, "opt_benchmark", ok=False, **tree)
    step(server, "opt_start", hypothesis="shorter", predict_percent=10, **tree)
    step(server, "opt_start", ok=False, hypothesis="two", **tree)
    write("time", "5\n")
    for tool in ("opt_status", "opt_benchmark", "opt_compare"):
        step(server, tool, **tree)
    write("answer", "wrong\n")
    step(server, "opt_compare", refused=True, **tree)
    refused = step(server, "opt_accept", ok=False, **tree)
    if refused["next"]["tool"] != "opt_revert":
        fail(f"mcp: after a refusal comes {refused['next']}")
    write("answer", "right\n")
    step(server, "opt_compare", **tree)
    for tool in ("opt_accept", "opt_history", "opt_summary", "opt_status"):
        step(server, tool, **tree)
    step(server, "opt_status", ok=False, tree=WORK)


def call_sites():
    """The first words of every command that the sources name."""
    words = set()
    for room in ("opt", "cli", "advise", "compare", "report", "bench", "profile", "import"):
        for name in os.listdir(f"{SOURCE}/src/{room}"):
            text = open(f"{SOURCE}/src/{room}/{name}", errors="replace").read() if name.endswith(".c") else ""
            for call in re.findall(r"\b(next_command|opt_step|opt_next)\(([^;]*);", text):
                prefix = "" if call[0] == "next_command" else "opt "
                literals = re.findall(r'"([a-z][a-z -]*)"', call[1])
                if call[0] == "opt_next":
                    literals = literals[:1]
                words |= {prefix + literal for literal in literals}
    return words


opt_steps()
run_steps()
for permission in (["--allow-commands"], []):
    server = Server(*permission)
    mcp_runs(server)
    if permission:
        mcp_opt(server)
    server.close()
# A restore that was interrupted is cli_opt_tree.sh's.
for words in sorted(call_sites() - {"opt restore"}):
    if not any(line.startswith("sol " + words) for line in seen):
        fail(f"no command named 'sol {words}', which the sources can: the test lacks a case")
shutil.rmtree(WORK)
print(f"{named} next steps were named, {len(seen)} different ones, {failures} failed")
sys.exit(failures > 0)
