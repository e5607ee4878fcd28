#!/usr/bin/env python3
"""sol serve on one NVIDIA GPU, and llama-server beside it on the same file; see bench/README.md.

usage: MODEL=gpt-oss-20b.gguf [LLAMA_SERVER=llama-server] bench/serve_device.py [option ...]
Every option is also a variable in capitals: --requests 500 is REQUESTS=500.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import time
import urllib.request

PARTS = ["queue", "streams", "step", "prompts", "prefix", "draws", "masks"]


def say(*words):
    print(*words, flush=True)


def fail(text):
    sys.exit("serve_device: " + text)


# ---- servers ----

class Server:
    """A process that serves on a port of its own, and ends with the block."""

    def __init__(self, command, port, log):
        self.command, self.url, self.port, self.log = command, f"http://127.0.0.1:{port}", port, log

    def __enter__(self):
        self.file = open(self.log, "w")
        self.process = subprocess.Popen(self.command, stdout=self.file, stderr=subprocess.STDOUT)
        until = time.monotonic() + 300
        while time.monotonic() < until:
            if self.process.poll() is not None:
                fail(f"{shlex.join(self.command)} ended:\n{open(self.log).read()[-2000:]}")
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=5).status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.2)
        fail(f"{shlex.join(self.command)} was not ready in 300 s")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.file.close()


def sol_server(args, parallel, context, waiting=512):
    command = [args.sol, "serve", "-m", args.model, "--backend", args.backend, "--port", "18080",
               "--parallel", str(parallel), "--context", str(context), "--max-waiting", str(waiting),
               "--max-waiting-tokens", str(waiting * context), *shlex.split(args.sol_flags)]
    return Server(command, 18080, os.path.join(args.logs, "sol.log"))


def llama_server(args, parallel, context):
    command = [args.llama_server, "-m", args.model, "--port", "18081", "-ngl", "99", "-fa", "on", "-np",
               str(parallel), "-c", str(parallel * context), *shlex.split(args.llama_flags)]
    return Server(command, 18081, os.path.join(args.logs, "llama.log"))


def vocabulary(args):
    """Random weights have none: prompts are then random tokens of the built-in model's, unless a server is given one."""
    flags = shlex.split(args.sol_flags)
    if "--vocab" in flags:
        return ["--vocab", flags[flags.index("--vocab") + 1]]
    builtin = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models/builtin.gguf")
    return ["--vocab", builtin] if args.model.startswith("synth:") else []


def load(args, server, *options):
    """The levels of one `sol bench --serve`. Says why one of them is invalid or unsure."""
    chat = "chat" in options  # its prompts are words
    command = [args.sol, "bench", "--serve", server.url, "-o", "json", "-q", "--no-store",
               *([] if chat else ["--endpoint", "completions", *vocabulary(args)]), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 7):
        fail(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    levels = json.loads(done.stdout)["levels"]
    for level in levels:
        for reason in filter(None, [level["invalid"], level["noise"]]):
            say(f"  {server.url}, {level['name']}: {reason}")
    return levels


# ---- tables ----

def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def table(header, rows):
    widths = [max(len(str(r[i])) for r in [header, *rows]) for i in range(len(header))]
    for n, row in enumerate([header, *rows]):
        say("| " + " | ".join(str(c).rjust(w) for c, w in zip(row, widths)) + " |")
        if n == 0:
            say("|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|")
    say()


# ---- what is measured ----

def queue(args, results):
    """Everything queued at once, from the first request to the last token."""
    with sol_server(args, args.parallel, 2304, args.requests) as server:
        level = load(args, server, "--burst", str(args.requests), "--lengths", "random:1024,1024,0",
                     "--warmup", "0")[0]
    say(f"## {args.requests} requests of 1024 tokens at once, 1024 out")
    table(["requests", "ok", "s", "output t/s", "total t/s", "at once", "client cores"],
          [[level["requests"], level["ok"], number(level["seconds"]), number(level["output_tokens_per_s"]),
            number(level["total_tokens_per_s"]), level["peak_concurrency"], number(level["client_cpu"], 2)]])
    results["queue"] = level


def streams(args, results):
    """Closed loops of so many clients, on both servers."""
    rows, results["streams"] = [], []
    for n in [int(s) for s in args.streams.split(",")]:
        options = ["--concurrency", str(n), "--lengths", "random:512,256,0", "--requests", str(max(8, 3 * n))]
        levels = {}
        with sol_server(args, n, 1024) as server:
            levels["sol"] = load(args, server, *options)[0]
        if args.llama_server:
            with llama_server(args, n, 1024) as server:
                levels["llama"] = load(args, server, *options)[0]
        mine, theirs = levels["sol"], levels.get("llama")
        rows.append([n, number(mine["output_tokens_per_s"]), number(mine["itl_ms"]["p50"], 2),
                     number(mine["ttft_ms"]["p50"]),
                     number(theirs and theirs["output_tokens_per_s"]),
                     number(theirs and theirs["itl_ms"]["p50"], 2), number(theirs and theirs["ttft_ms"]["p50"]),
                     number(theirs and mine["output_tokens_per_s"] / theirs["output_tokens_per_s"], 2)])
        results["streams"].append(levels)
    say("## clients that ask again when they have their answer, 512 in, 256 out")
    table(["clients", "sol t/s", "ITL ms", "TTFT ms", "llama-server t/s", "ITL ms", "TTFT ms", "ratio"], rows)


def bench(args, *options):
    command = [args.sol, "bench", "-m", args.model, "--backend", args.backend, "--no-store", "--no-limits",
               "-q", "-o", "json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        fail(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def step(args, results):
    """A step of running texts in the server, over the same step without one."""
    rows, results["step"] = [], []
    for n in [8, 32, 128]:
        with sol_server(args, n, 1024) as server:
            level = load(args, server, "--burst", str(n), "--lengths", "random:256,512,0", "--warmup", "0")[0]
        # The gaps between a prompt's end and an answer's are steps at depths of 256 to 768.
        records = bench(args, "-p", "0", "-n", "64", "-d", "512", "-npl", str(n))
        rate = statistics.median(records[0]["samples_ts"])
        own, served = 1000 * n / rate, level["itl_ms"]["p50"]
        rows.append([n, number(served, 3), number(own, 3), number(served / own, 3)])
        results["step"].append({"streams": n, "served_ms": served, "bench_ms": own})
    say("## a step in the server, and in sol bench -npl at depth 512, ms")
    table(["streams", "server", "bench", "ratio"], rows)


def prompts(args, results):
    """Running texts while long prompts arrive at half of what prefill alone could take."""
    rate = statistics.median(bench(args, "-p", "8192", "-n", "0")[0]["samples_ts"])
    arrivals = 0.5 * rate / 8192
    with sol_server(args, 96, 9216) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        still = load(args, server, "--burst", "32", "--lengths", "random:128,512,0", "--warmup", "0")[0]
        texts = pool.submit(load, args, server, "--burst", "32", "--lengths", "random:128,2048,0", "--warmup", "0")
        long = load(args, server, "--rate", str(round(arrivals, 3)), "--lengths", "random:8192,1,0", "--warmup",
                    "0", "--duration", "20")[0]
        level = texts.result()[0]
    itl = level["itl_ms"]
    say(f"## 32 running texts while prompts of 8192 tokens arrive, {arrivals:.2f} a second (prefill alone: "
        f"{rate:.0f} t/s)")
    table(["", "ITL p50 ms", "p99 ms", "p99 / p50", "prefill t/s", "of alone"],
          [["undisturbed", number(still["itl_ms"]["p50"], 2), number(still["itl_ms"]["p99"], 2),
            number(still["itl_ms"]["p99"] / still["itl_ms"]["p50"], 2), "", ""],
           ["with prompts", number(itl["p50"], 2), number(itl["p99"], 2), number(itl["p99"] / itl["p50"], 2),
            number(8192 * long["requests_per_s"], 0), number(8192 * long["requests_per_s"] / rate, 2)]])
    results["prompts"] = {"prefill_alone": rate, "texts": level, "prompts": long, "undisturbed": still}


def first_token(server, ids):
    """Seconds to the first text of a completion, and how many tokens of the prompt were cached."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    body = {"model": "x", "prompt": ids, "max_tokens": 2, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    begin, first, cached = time.monotonic(), None, 0
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        fail(f"/v1/completions: {answer.status} {answer.read()[:500]}")
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event["choices"] and first is None:
            first = time.monotonic() - begin
        if event.get("usage"):
            cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return first, cached


def prefix(args, results):
    """The first token of a prompt of 8192, and of one that begins like it, anywhere, with 8 new tokens."""
    draw, rows, ratios = random.Random(1), [], []
    with sol_server(args, 8, 9216) as server:
        first_token(server, [draw.randrange(1000) for _ in range(8192)])  # warm
        for _ in range(5):
            ids = [draw.randrange(100, 5000) for _ in range(8192)]
            end = draw.randrange(7000, 8192)
            cold, _ = first_token(server, ids)
            again, cached = first_token(server, ids[:end] + [draw.randrange(100, 5000) for _ in range(8)])
            ratios.append(again / cold)
            rows.append([end, number(1000 * cold), number(1000 * again), cached, number(again / cold, 3)])
    say(f"## the same beginning again, with 8 new tokens: median ratio {statistics.median(ratios):.3f}")
    table(["beginning", "first ms", "again ms", "cached", "ratio"], rows)
    results["prefix"] = ratios


def one_text(server, tokens):
    """A text with top_k, which the host draws. (Of random weights top_p would leave most tokens.)"""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    body = {"model": "x", "prompt": [1, 2, 3], "max_tokens": tokens, "top_k": 40, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        fail(f"/v1/completions: {answer.status} {answer.read()[:500]}")
    return json.loads(answer.read())["usage"]["completion_tokens"]


def draws(args, results):
    """Steps of 256 texts that the GPU draws for, and the same with one more, whose tokens the host draws."""
    options = ["--burst", "256", "--lengths", "random:64,384,0", "--warmup", "0"]
    with sol_server(args, 257, 1024) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        still = load(args, server, *options)[0]
        beside = pool.submit(one_text, server, 512)
        mixed = load(args, server, *options)[0]
        tokens = beside.result()
    say(f"## 256 texts, and beside one with top_k ({tokens} tokens)")
    table(["", "ITL p50 ms", "p99 ms", "output t/s"],
          [[name, number(level["itl_ms"]["p50"], 2), number(level["itl_ms"]["p99"], 2),
            number(level["output_tokens_per_s"])] for name, level in (("alone", still), ("beside", mixed))])
    results["draws"] = {"alone": still, "beside": mixed}


SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}, "tags": {"type": "array", "items": {
    "type": "string"}}, "size": {"type": "integer"}}, "required": ["title", "tags", "size"], "additionalProperties": False}


def masks(args, results):
    """Texts that think for a token and then answer, as they like and by a schema. The model needs a vocabulary."""
    n, budget = 128, {"thinking_token_budget": 1, "ignore_eos": True}
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}}
    options = ["--endpoint", "chat", "--burst", str(n), "--lengths", "random:64,384,0", "--warmup", "0", "--extra"]
    with sol_server(args, n, 1024) as server:
        levels = [load(args, server, *options, json.dumps(extra))[0] for extra in (budget, budget | form, budget)]
    say(f"## {n} texts, as they like and by a schema")
    table(["", "TPOT p50 ms", "p99 ms", "output t/s", "failed"],
          [[name, number(level["tpot_ms"]["p50"], 3), number(level["tpot_ms"]["p99"], 3),
            number(level["output_tokens_per_s"]), level["requests"] - level["ok"]]
           for name, level in zip(("as they like", "by a schema", "as they like, again"), levels)])
    results["masks"] = levels


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    def add(name, default, **more):
        parser.add_argument("--" + name, default=os.environ.get(name.upper().replace("-", "_"), default), **more)
    add("model", None)
    add("sol", "build/sol")
    add("backend", "cuda")
    add("llama-server", None)
    add("sol-flags", "")
    add("llama-flags", "-b 2048 -ub 2048 --no-webui")
    add("parts", ",".join(PARTS), help="of " + ", ".join(PARTS))
    add("requests", 2000, type=int)
    add("parallel", 512, type=int)
    add("streams", "1,8,32,128")
    add("logs", "/tmp")
    add("save", None)
    args = parser.parse_args()
    unknown = [p for p in args.parts.split(",") if p not in PARTS]
    if not args.model or unknown:
        parser.error("name a file with --model" if not args.model else f"no part {unknown[0]}")
    return args


def main():
    args, results = options(), {}
    for part in args.parts.split(","):
        globals()[part](args, results)
        if args.save:
            with open(args.save, "w") as file:
                json.dump(results, file, indent=1)


main()
