#!/usr/bin/env python3
"""What generation gains from steps that are begun ahead: programs in turn, on the GPU of this machine.

usage: python3 bench/ahead_device.py OLD NEW [ROUNDS]   two builds of sol

Of each, tokens a second: sol bench (given tokens; one sequence, 2, 8), sol run (drawn ones) at several settings, the op that
draws, and a server's output with 1, 2 and 8 clients.
"""
import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time

MODEL = ["-m", "synth:gpt-oss-20b", "--backend", "cuda"]
TOKENS = 400


def output(binary, *words):
    return subprocess.run([binary, *words], check=True, capture_output=True, text=True).stdout


def bench(binary, *words):
    settings = ["--no-store", "-q", "--no-limits", "-p", "0", "-r", "7", "--json"]
    return json.loads(output(binary, "bench", *MODEL, *settings, *words))[-1]["ts"]


def run(binary, *words):
    said = output(binary, "run", *MODEL, "-n", "800", "--random-tokens", "8", "-q", "--json", *words)
    return json.loads(said)["timings"]["decode_tokens_per_s"]


def ask(port, number, temperature, times):
    """One streamed answer; when its first and last tokens came."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"prompt": [11 + number, 22, 33, 44], "max_tokens": TOKENS, "ignore_eos": True, "stream": True,
            "temperature": temperature, "seed": number}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    came = [time.time() for line in connection.getresponse() if line.startswith(b"data: {")]
    times.append((came[0], came[-1]))


def clients(port, n, temperature):
    times = []
    threads = [threading.Thread(target=ask, args=(port, i, temperature, times)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return (TOKENS - 1) * n / (max(last for _, last in times) - min(first for first, _ in times))


def serve(binary):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([binary, "serve", *MODEL, "--port", str(port), "--parallel", "8", "--context", "2048"],
                              stdout=subprocess.PIPE, text=True)
    try:
        for line in server.stdout:  # until it listens, or is gone
            if "listening" in line:
                break
        threading.Thread(target=server.stdout.read, daemon=True).start()
        return {f"{n} clients, temperature {t}": clients(port, n, t) for t in (0, 1) for n in (1, 2, 8)}
    finally:
        server.terminate()
        server.wait()


def measure(binary):
    figures = {f"bench {' '.join(w)}": bench(binary, "-n", "96", *w)
               for w in ((), ("-npl", "2", "-d", "512"), ("-npl", "8", "-d", "512"))}
    for words in (("--temperature", "0"), ("--temperature", "1"), ("--temperature", "1", "--min-p", "0.05")):
        figures[f"run {' '.join(words)}"] = run(binary, *words)
    return figures | serve(binary)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    old, new = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    found = {old: [], new: []}
    for _ in range(rounds):
        for binary in (old, new):
            found[binary].append(measure(binary))
    for name in found[old][0]:
        a, b = ([round_[name] for round_ in found[binary]] for binary in (old, new))
        print(f"{name:34} {statistics.median(a):8.1f} ({min(a):.1f}-{max(a):.1f})  {statistics.median(b):8.1f} "
              f"({min(b):.1f}-{max(b):.1f})  {statistics.median(b) / statistics.median(a):.3f}")
    for binary in (old, new):
        for rows in (1, 8, 128):
            said = output(binary, "bench", *MODEL[2:], "--no-store", "-q", "--op", f"sample:m={rows}")
            print(binary, next(line for line in said.splitlines() if line.startswith("sample ")))


main()
