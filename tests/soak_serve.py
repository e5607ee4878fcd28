#!/usr/bin/env python3
"""A server for long, with many clients of which few are well-behaved.

usage: soak_serve.py SOL [--seconds N] [--streams N] [--parallel N] [--copies N] [--seed N]

All the time so many clients are there. Healthy ones, streaming or not, must get their whole answer. Others leave in
the middle, read nothing, send a byte at a time, garbage, or requests that are refused. A quarter of the time warms up;
then memory must not grow by more than 1 %. At the end nothing may run or wait, and texts that fill the whole cache
must fit into it: a page that was lost would make one of them wait for the others.
"""
import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

CONTEXT = 256
# A new shape of a step has a plan, of which the engine keeps 128 MiB: what one takes of the built-in model is no growth.
PLAN_KB = 90


class Failure(Exception):
    pass


class Soak:
    def __init__(self, o):
        self.o = o
        self.random = random.Random(o.seed)
        self.counts = {}
        self.problems = []
        self.stop = False
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [o.sol, "serve", "--port", "0", "--parallel", str(o.parallel), "--context", str(CONTEXT), "--cache-tokens",
             str(o.parallel * CONTEXT), "--max-waiting", "100000", "--max-waiting-tokens", "100000000", "--heartbeat", "1",
             "--request-timeout", "3", "--responses", "none", "-t", "2",
             # Few shapes of steps, all known soon.
             "--batch", str(o.batch), "--copies", str(o.copies)],
            stdout=subprocess.PIPE, stderr=self.err, text=True)
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.port = int(line.rsplit(":", 1)[1])
            if line.startswith("try: "):
                break
        else:
            sys.exit("the server does not start")

    # ---- one exchange ----

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port)

    @staticmethod
    def request(body, path="/v1/completions"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                f"Content-Length: {len(data)}\r\n\r\n").encode() + data

    async def ask(self, body, path="/v1/completions"):
        reader, writer = await self.connect()
        writer.write(self.request(body, path))
        await writer.drain()
        got = await reader.read(-1)
        writer.close()
        return got

    def body(self, stream):
        r = self.random
        words = " ".join(r.choice(["the", "sea", "and", "a", "ship", "said", "he"]) for _ in range(r.randint(1, 60)))
        return {"prompt": words, "max_tokens": r.randint(1, 60), "ignore_eos": True, "stream": stream,
                "n": r.choice([1, 1, 1, 2, 3]), "logprobs": r.choice([None, None, None, 2]), "temperature": r.choice([0, 1])}

    # ---- kinds of clients ----

    async def healthy_stream(self):
        body = {**self.body(True), "stream_options": {"include_usage": True}}
        got = await self.ask(body)
        if not got.startswith(b"HTTP/1.1 200") or b"data: [DONE]" not in got:
            raise Failure(f"a stream: {got[:300]!r} ... {got[-300:]!r}")
        usage = re.search(rb'"completion_tokens":(\d+)', got)
        if not usage or int(usage.group(1)) != body["max_tokens"] * body["n"]:
            raise Failure(f"{body}: {got[-500:]!r}")

    async def healthy_whole(self):
        body = self.body(False)
        got = await self.ask(body)
        if not got.startswith(b"HTTP/1.1 200"):
            raise Failure(f"{body}: {got[:500]!r}")
        usage = json.loads(got.split(b"\r\n\r\n", 1)[1])["usage"]
        if usage["completion_tokens"] != body["max_tokens"] * body["n"]:
            raise Failure(f"{body}: {usage}")

    async def healthy_chat(self):
        got = await self.ask({"messages": [{"role": "user", "content": "Tell me of the sea."}], "max_tokens": 40,
                              "stream": self.random.random() < 0.5}, "/v1/chat/completions")
        if not got.startswith(b"HTTP/1.1 200"):
            raise Failure(f"a chat: {got[:500]!r}")

    async def vanishes(self):
        reader, writer = await self.connect()
        writer.write(self.request(self.body(self.random.random() < 0.7)))
        await writer.drain()
        if self.random.random() < 0.5:
            await reader.read(100)
        await asyncio.sleep(self.random.random() * 0.3)
        writer.transport.abort() if self.random.random() < 0.5 else writer.close()

    async def stalls(self):
        _, writer = await self.connect()
        writer.write(self.request({**self.body(True), "n": 16}))
        await writer.drain()
        writer.transport.pause_reading()
        await asyncio.sleep(self.random.random() * 5)
        writer.close()

    async def is_slow(self):
        reader, writer = await self.connect()
        try:
            for c in self.request(self.body(False))[:50]:
                writer.write(bytes([c]))
                await writer.drain()
                await asyncio.sleep(0.1)
            await reader.read(-1)
        finally:
            writer.close()

    async def garbage(self):
        r = self.random
        reader, writer = await self.connect()
        data = r.choice([r.randbytes(r.randint(1, 5000)), b"[" * 10000, b"GET " + b"x" * 50000,
                         self.request(b"{" * r.randint(1, 1000)), self.request(r.randbytes(500)),
                         self.request(self.body(False))[:r.randint(10, 200)]])
        writer.write(data)
        await writer.drain()
        await asyncio.wait_for(reader.read(-1), 20)
        writer.close()

    async def refused(self):
        r = self.random
        wrong = r.choice([{"n": 10 ** 9}, {"stop": ["x"] * 1000}, {"prompt": ""}, {"prompt": [1] * 5000},
                          {"temperature": -1}, {"suffix": "x"}])
        got = await self.ask({**self.body(False), **wrong})
        if not got.startswith(b"HTTP/1.1 400"):
            raise Failure(f"{wrong}: {got[:300]!r}")

    KINDS = (("healthy_stream", 5), ("healthy_whole", 3), ("healthy_chat", 1), ("vanishes", 4), ("stalls", 1),
             ("is_slow", 1), ("garbage", 2), ("refused", 2))

    async def client(self):
        names = [n for n, weight in self.KINDS for _ in range(weight)]
        while not self.stop:
            name = self.random.choice(names)
            try:
                await getattr(self, name)()
                self.counts[name] = self.counts.get(name, 0) + 1
            except Failure as e:
                self.problems.append(f"{name}: {e}")
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as e:
                if name.startswith("healthy") or name == "refused":
                    self.problems.append(f"{name}: {e!r}")

    # ---- what must hold ----

    async def metric(self, name):
        reader, writer = await self.connect()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = (await reader.read(-1)).decode()
        writer.close()
        return float(re.search(rf"^sol:{name} (.*)$", text, re.M).group(1))

    async def idle(self):
        end = time.monotonic() + 60
        while await self.metric("num_requests_running") + await self.metric("num_requests_waiting"):
            if time.monotonic() > end:
                self.problems.append("texts run though nobody wants them")
                return
            await asyncio.sleep(0.05)

    async def fill(self):
        """Texts that need every page at the same time."""
        before = await self.metric("num_preemptions_total")
        bodies = [{"prompt": [i + 1, 2, 3], "max_tokens": CONTEXT - 3, "ignore_eos": True} for i in range(self.o.parallel)]
        for got in await asyncio.gather(*(self.ask(b) for b in bodies)):
            if f'"completion_tokens":{CONTEXT - 3},'.encode() not in got:
                self.problems.append(f"a text that fills the context: {got[:300]!r}")
        if await self.metric("num_preemptions_total") != before:
            self.problems.append("pages are lost: texts that should fit had to wait for others")

    def memory(self):
        """In kB: all that is resident, and how much of it is the program's own, not of files."""
        status = open(f"/proc/{self.process.pid}/status").read()
        return tuple(int(re.search(rf"{name}:\s+(\d+)", status).group(1)) for name in ("VmRSS", "RssAnon"))

    async def load(self, seconds):
        self.stop = False
        clients = [asyncio.create_task(self.client()) for _ in range(self.o.streams)]
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None and len(self.problems) < 20:
            await asyncio.sleep(0.2)
        self.stop = True
        await asyncio.gather(*clients)
        await self.idle()

    async def run(self):
        await self.fill()
        await self.load(self.o.seconds / 4)
        await self.fill()
        await asyncio.sleep(3)  # idle, it gives back what it needs no more
        (before, own_before), plans = self.memory(), await self.metric("plans_total")
        await self.load(self.o.seconds * 3 / 4)
        await self.fill()
        await asyncio.sleep(3)
        after, own = self.memory()
        new = int(await self.metric("plans_total") - plans)
        after -= PLAN_KB * new
        preempted = await self.metric("num_preemptions_total")
        growth = 100 * (after - before) / before
        print(f"{self.counts}; {preempted:.0f} preemptions; memory {before} kB, then {after} without {new} new plans: {growth:+.2f} % "
              f"(own {own_before}, then {own})")
        if growth > self.o.growth:
            self.problems.append(f"memory grows by {growth:.2f} %")
        if sum(n for k, n in self.counts.items() if k.startswith("healthy")) < 10:
            self.problems.append("hardly any healthy request was served")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "none: it does not end"
        self.err.seek(0)
        said = self.err.read().decode()
        if status != 0 or said:
            self.problems.append(f"the server: status {status}, stderr {said[:3000]}")
        for p in self.problems[:20]:
            print(f"FAILED: {p}")
        return bool(self.problems)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("sol")
    p.add_argument("--seconds", type=float, default=1800)
    p.add_argument("--streams", type=int, default=1000)
    p.add_argument("--parallel", type=int, default=8)
    p.add_argument("--copies", type=int, default=1)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    p.add_argument("--growth", type=float, default=1, help="of memory, in percent, that is allowed")
    o = p.parse_args()
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * o.streams + 256)), hard))
    print(f"--seed {o.seed}")
    soak = Soak(o)
    try:
        asyncio.run(soak.run())
    finally:
        failed = soak.end()
    sys.exit(failed)


if __name__ == "__main__":
    main()
