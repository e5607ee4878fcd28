#!/usr/bin/env python3
"""Clients of sol serve, good ones and bad ones, and what each must see.

usage: serve_client.py SOL SERVE_SCRIPTED [TEST]...

Each test is a function test_*; servers are started for it and must end with status 0 and no word on
stderr but what the test expects. Only the standard library; raw sockets where a library is too polite.
"""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

SOL, SCRIPTED = sys.argv[1:3]
SLOW = 10 if os.environ.get("SOL_SANITIZED") or os.environ.get("SOL_EMULATED") else 1
WORK = tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "."))


def check(what, condition, *shown):
    if not condition:
        raise AssertionError(what + "".join(f"\n    {s!r}" for s in shown))


def equal(what, got, wanted):
    check(f"{what}: got {got!r}, expected {wanted!r}", got == wanted)


class Server:
    """A sol serve, or the scripted one, on a port of its own."""

    def __init__(self, *options, program=None, env=None, status=0, noise=""):
        self.status, self.noise = status, noise
        self.err = tempfile.TemporaryFile(dir=WORK)
        command = program or [SOL, "serve", "--port", "0", "-t", "2", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.err, text=True,
                                        env={**os.environ, **(env or {})})
        self.said = []
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith("listening on "):
                self.url = line.split()[-1]
            if line.startswith("try: ") or (program and hasattr(self, "url")):
                break
        check("the server starts", hasattr(self, "url"), self.said, self.errors())
        self.host, self.port = re.match(r"https?://\[?(.*?)\]?:(\d+)$", self.url).groups()
        self.port = int(self.port)

    def errors(self):
        self.err.seek(0)
        return self.err.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(20 * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the server does not end")
        if kind is not None:
            print(f"    the server: status {status}, stderr: {self.errors()[:6000]}")
        else:
            equal("its status", status, self.status)
            check("stderr", re.fullmatch(self.noise, self.errors(), re.S), self.errors())

    def connect(self, timeout=30):
        return socket.create_connection((self.host, self.port), timeout * SLOW)

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, bytes)"""
        c = http.client.HTTPConnection(self.host, self.port, timeout=timeout * SLOW)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, r.headers, data

    def json(self, method, path, body=None, headers=None, status=200):
        got, _, data = self.ask(method, path, body, headers)
        equal(f"{method} {path}: {data[:300]!r}", got, status)
        return json.loads(data)

    def complete(self, **body):
        return self.json("POST", "/v1/completions", body)

    def stream(self, **body):
        """The events of a stream, as JSON; the last one must be [DONE]."""
        got, headers, data = self.ask("POST", "/v1/completions", {**body, "stream": True})
        equal(f"a stream: {data[:300]!r}", got, 200)
        equal("its type", headers["Content-Type"], "text/event-stream")
        equal("proxies", (headers["X-Accel-Buffering"], headers["Cache-Control"]), ("no", "no-store"))
        return events_of(data)

    def raw(self, data, timeout=30):
        """What comes back until the server closes."""
        s = self.connect(timeout)
        s.sendall(data)
        got = b""
        try:
            while piece := s.recv(65536):
                got += piece
        except ConnectionResetError:
            pass
        s.close()
        return got

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2].decode()
        found = re.search(rf"^sol:{re.escape(name)} (.*)$", text, re.M)
        check(f"a metric {name}", found, text)
        return float(found.group(1))

    def wait_metric(self, name, wanted, seconds=30):
        end = time.monotonic() + seconds * SLOW
        while self.metric(name) != wanted:
            check(f"{name} becomes {wanted}, is {self.metric(name)}", time.monotonic() < end)
            time.sleep(0.02)

    def memory(self):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def events_of(data):
    lines = [b for b in data.decode().split("\n\n") if b and not b.startswith(":")]
    check("data lines", all(b.startswith("data: ") for b in lines), lines[:3])
    equal("the last event", lines[-1], "data: [DONE]")
    return [json.loads(b[6:]) for b in lines[:-1]]


def request(method, path, body=b"", headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def scripted(answers, **how):
    path = os.path.join(WORK, "answers.json")
    with open(path, "w") as f:
        json.dump(answers, f)
    return Server(program=[SCRIPTED, path], **how)


# ---- what is served ----

def test_basics():
    with Server("--alias", "me") as s:
        equal("health", s.json("GET", "/health"), {"status": "ok"})
        models = s.json("GET", "/v1/models")
        equal("a model", [m["id"] for m in models["data"]], ["me"])
        equal("its context", models["data"][0]["max_model_len"], 4096)
        equal("the model", s.json("GET", "/v1/models/me")["owned_by"], "sol")
        equal("another", s.json("GET", "/v1/models/you", status=404)["error"]["code"], "model_not_found")
        a = s.complete(prompt="Once upon a time", max_tokens=8, seed=1)
        equal("an object", (a["object"], a["model"]), ("text_completion", "me"))
        equal("tokens", a["usage"]["completion_tokens"], 8)
        equal("the end", a["choices"][0]["finish_reason"], "length")
        equal("the same seed", s.complete(prompt="Once upon a time", max_tokens=8, seed=1)["choices"], a["choices"])
        equal("a default limit", s.complete(prompt="Once")["usage"]["completion_tokens"], 16)
        equal("times of texts alone", s.metric("e2e_request_latency_seconds_count"), 3)
        text = s.ask("GET", "/metrics")[2].decode()
        for line in text.splitlines():
            check("a line of Prometheus", re.fullmatch(
                r"# (HELP|TYPE) sol:\w+ .*|sol:\w+(\{\w+=\"[^\"]*\"\})? [-+.e\d]+", line), line)


def test_what_is_printed():
    """The next step that sol serve names works as it stands."""
    vocabulary = os.path.join(WORK, "vocabulary.json")
    subprocess.run([SOL, "tok", "train", "-t", "1", "--vocab-size", "300", "-o", vocabulary, __file__], check=True,
                   capture_output=True)
    with open(vocabulary) as f:
        words = json.load(f)
    words["added_tokens"] = [t for t in words["added_tokens"] if "text|>" in t["content"]]  # none of a chat's
    with open(vocabulary, "w") as f:
        json.dump(words, f)
    secret = {"SOL_API_KEY": "secret-of-all"}
    for env, options, path in (({}, (), "/v1/chat/completions"), (secret, (), "/v1/chat/completions"),
                               ({}, ("-m", "synth:tiny", "--vocab", vocabulary), "/v1/completions"),
                               ({}, ("-m", "synth:tiny"), "/v1/completions")):
        with Server(*options, env=env) as s:
            command = s.said[-1].removeprefix("try: ")
            check(f"its path is {path}", path + " " in command, command)
            out = subprocess.run(command + " -sS", shell=True, capture_output=True, text=True, timeout=60 * SLOW,
                                 env={**os.environ, **env})
            if out.returncode == 127:
                print("skipped: no curl")
                continue
            check("it works", '"choices"' in out.stdout, command, out)


def test_streams():
    with Server("--exact") as s:  # by other kernels what runs beside a text may change it
        for body in ({"prompt": "Once upon a time", "max_tokens": 24, "seed": 7},
                     {"prompt": "Once", "max_tokens": 24, "seed": 3, "n": 3, "echo": True},
                     {"prompt": ["Once", "The sea", [100, 200, 300]], "max_tokens": 9, "temperature": 0},
                     {"prompt": [5, 6, 7], "max_tokens": 12, "seed": 5, "stop": ["e", "a"]}):
            whole = s.complete(**body)
            events = s.stream(**body, stream_options={"include_usage": True})
            equal("one id", len({e["id"] for e in events}), 1)
            usage = events.pop()
            equal("usage last", (usage["choices"], usage["usage"]["completion_tokens"]),
                  ([], whole["usage"]["completion_tokens"]))
            texts, ends = {}, {}
            for e in events:
                (c,) = e["choices"]
                check("nothing behind its end", c["index"] not in ends)
                texts[c["index"]] = texts.get(c["index"], "") + c["text"]
                if c["finish_reason"]:
                    ends[c["index"]] = c["finish_reason"]
            for c in whole["choices"]:
                equal("streamed and whole", (texts[c["index"]], ends[c["index"]]), (c["text"], c["finish_reason"]))


def test_logprobs():
    with Server() as s:
        body = {"prompt": "The old man and", "max_tokens": 12, "temperature": 0, "logprobs": 3}
        (c,) = s.complete(**body)["choices"]
        l = c["logprobs"]
        equal("a token each", [len(l[k]) for k in l], [12] * 4)
        equal("the text", "".join(l["tokens"]), c["text"])
        for t, p, top, at in zip(l["tokens"], l["token_logprobs"], l["top_logprobs"], l["text_offset"]):
            equal("where", c["text"][at:at + len(t)], t)
            equal("three", len(top), 3)
            check("the likeliest is drawn", abs(max(top.values()) - p) < 1e-9 and t in top, top, t)
            check("probabilities", all(-50 < v < 0 for v in top.values()), top)
        events = s.stream(**body)
        for key in l:
            equal(f"streamed {key}", sum((e["choices"][0]["logprobs"][key] for e in events), []), l[key])
        stop = s.complete(**{**body, "stop": l["tokens"][5]})["choices"][0]
        equal("cut with the text", "".join(stop["logprobs"]["tokens"]), stop["text"])
        hot = s.complete(prompt="The old man and", max_tokens=1, temperature=2, seed=3, logprobs=20)["choices"][0]
        check("before the temperature", abs(hot["logprobs"]["top_logprobs"][0][l["tokens"][0]] -
                                            l["token_logprobs"][0]) < 1e-3, hot, l)


def test_stops():
    with scripted({"a": "one STOP two", "split": "ab" * 20 + "abc", "none": "S" + "T" * 9 + "O",
                   "utf8": "Zürich – 東京 end"}) as s:
        for name, stop, text, finish in (
                ("a", "STOP", "one ", "stop"), ("a", ["two", " STO"], "one", "stop"),
                ("a", ["x", "y"], "one STOP two", "stop"), ("split", "abc", "ab" * 20, "stop"),
                ("none", "STO", "S" + "T" * 9 + "O", "stop"), ("utf8", "京", "Zürich – 東", "stop")):
            body = {"prompt": f"@@{name}", "max_tokens": 200, "stop": stop}
            c = s.complete(**body)["choices"][0]
            equal(f"{name} {stop}", (c["text"], c["finish_reason"]), (text, finish))
            equal("streamed", "".join(e["choices"][0]["text"] for e in s.stream(**body)), text)


def test_cache():
    with Server("--cache-tokens", "8192") as s:
        prompt = "It was the best of times, it was the worst of times. " * 40
        first = s.complete(prompt=prompt, max_tokens=4, temperature=0)
        again = s.complete(prompt=prompt + " And", max_tokens=4, temperature=0)
        tokens = first["usage"]["prompt_tokens"]
        equal("nothing is kept at first", first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        check("then nearly all", again["usage"]["prompt_tokens_details"]["cached_tokens"] > tokens - 16, again["usage"])
    keys = os.path.join(WORK, "keys")
    with open(keys, "w") as f:
        f.write("# two\nann secret-of-ann\nbob secret-of-bob\n")
    with Server("--api-key-file", keys) as s:
        ann, bob = ({"Authorization": f"Bearer secret-of-{n}"} for n in ("ann", "bob"))
        cached = [s.json("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1}, h)["usage"]
                  ["prompt_tokens_details"]["cached_tokens"] for h in (ann, bob, ann)]
        equal("a key's own cache", (cached[0], cached[1], cached[2] > 100), (0, 0, True))


# ---- what is refused ----

def test_faults():
    with Server() as s:
        def refused(param, code, **body):
            e = s.json("POST", "/v1/completions", body, status=400)["error"]
            equal(f"{body}"[:200], (e["type"], e["param"], e["code"]), ("invalid_request_error", param, code))
            return e["message"]
        refused("prompt", None, prompt="")
        refused("prompt", None, prompt=[])
        refused("prompt", None)
        refused("prompt[1]", None, prompt=[1, 4096])
        refused("prompt[0]", None, prompt=[-1])
        refused("prompt[1]", None, prompt=["a", {}])
        refused("prompt", None, prompt=["a"] * 1000)
        refused("n", None, prompt="a", n=10 ** 9)
        refused("n", None, prompt="a", n=0)
        refused("n", None, prompt="a", n=-5)
        refused("best_of", None, prompt="a", best_of=20)
        refused("suffix", None, prompt="a", suffix="b")
        refused("max_tokens", None, prompt="a", max_tokens=0)
        refused("max_tokens", None, prompt="a", max_tokens=-3)
        refused("temperature", None, prompt="a", temperature=-1)
        refused("temperature", None, prompt="a", temperature="hot")
        refused("top_p", None, prompt="a", top_p=0)
        refused("top_k", None, prompt="a", top_k=1.5)
        refused("stop", None, prompt="a", stop=["x"] * 10 ** 6)
        refused("stop", None, prompt="a", stop="x" * 10 ** 6)
        refused("stop", None, prompt="a", stop=[""])
        refused("stop[0]", None, prompt="a", stop=[1])
        refused("logprobs", None, prompt="a", logprobs=1000)
        refused("echo", None, prompt="a", logprobs=1, echo=True)
        refused("logit_bias", None, prompt="a", logit_bias={"1": 5})
        refused("frequency_penalty", None, prompt="a", frequency_penalty=1)
        refused("stream", None, prompt="a", stream="yes")
        message = refused(None, "context_length_exceeded", prompt=[1] * 5000)
        check("both figures", "5000" in message and "4096" in message, message)
        for body in (b"", b"{", b"[]", b"null", b'{"prompt": "a", "prompt": "b"}', b"\xff\xfe",
                     b"[" * 200000, b'{"a":' * 100000, b'{"prompt": 1e999}', b'{"prompt":"\\ud800"}'):
            status, _, data = s.ask("POST", "/v1/completions", body)
            equal(f"{body[:20]!r}", status, 400)
            check("an error object", json.loads(data)["error"]["message"], data)
        equal("no path", s.json("GET", "/nothing", status=404)["error"]["code"], "not_found")
        status, headers, _ = s.ask("GET", "/v1/completions")
        equal("a method", (status, headers["Allow"]), (405, "POST"))
        status, headers, _ = s.ask("PUT", "/v1/responses/resp_x")
        equal("a method of several", (status, headers["Allow"]), (405, "GET, POST, DELETE"))
        equal("it goes on", s.json("GET", "/health"), {"status": "ok"})
    with Server("--context", "64") as s:
        body = {"prompt": [5] * 10, "max_tokens": 10 ** 9, "ignore_eos": True, "user": "x", "stop": None}
        a = s.complete(**body)
        equal("more than there is room for", (a["choices"][0]["finish_reason"], a["usage"]["total_tokens"]), ("length", 65))


def test_bytes():
    """Requests that are no requests, or too large."""
    with Server("--request-timeout", "2") as s:
        for data in (b"\0" * 1000 + b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50 + b"x\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
                     b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     request("GET", "/health", headers=["X-Large: " + "a" * 200000]),
                     request("GET", "/health", headers=[f"X-{i}: {i}" for i in range(20000)])):
            c = s.connect(5)
            got = b""
            try:
                c.sendall(data)
                c.shutdown(socket.SHUT_WR)
                got = c.recv(4096)
            except OSError as e:  # it was closed before it had read all
                check("a reset", not isinstance(e, TimeoutError), data[:60])
            c.close()
            check("refused", got == b"" or re.match(rb"HTTP/1.1 (4\d\d|505)", got), data[:60], got[:100])
        equal("a length too large", s.raw(request("POST", "/v1/completions", headers=["Content-Length: 900000000"]))[:12],
              b"HTTP/1.1 413")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        c = s.connect()
        c.sendall(request("POST", "/v1/completions", headers=["Transfer-Encoding: chunked"]))
        sent = 0
        try:
            while sent < 300 << 20:
                c.sendall(chunk)
                sent += 65536
        except (BrokenPipeError, ConnectionResetError):
            pass
        check("an endless body is cut", sent < 100 << 20, sent)
        c.close()
        body = b'{"prompt": "a", "max_tokens": 1}'
        pieces = b"".join(b"1\r\n" + body[i:i + 1] + b"\r\n" for i in range(len(body))) + b"0\r\n\r\n"
        got = s.raw(request("POST", "/v1/completions", headers=["Transfer-Encoding: chunked", "Connection: close"]) + pieces)
        check("byte by byte", got.startswith(b"HTTP/1.1 200"), got[:200])
        two = request("GET", "/health") + request("GET", "/v1/models", headers=["Connection: close"])
        equal("two at once", s.raw(two).count(b"HTTP/1.1 200"), 2)
        equal("it goes on", s.json("GET", "/health"), {"status": "ok"})


def test_slow():
    """A byte at a time, for ever (slow-loris); others are served meanwhile."""
    with Server("--request-timeout", "1") as s:
        begin = time.monotonic()
        slow = [s.connect() for _ in range(50)]
        held = [s.connect() for _ in range(20)]  # never say anything
        for c in held[:10]:
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        alive = set(slow)
        while alive and time.monotonic() - begin < 20 * SLOW:
            for c in list(alive):
                try:
                    c.sendall(b"G" if time.monotonic() - begin < 0.2 else b"E")
                except OSError:
                    alive.discard(c)
            equal("others", s.json("GET", "/health"), {"status": "ok"})
            time.sleep(0.05)
        check("all were cut", not alive, len(alive))
        check("in time", time.monotonic() - begin < 15 * SLOW, time.monotonic() - begin)
        for c in held:
            try:
                equal("closed", c.recv(100)[:12] in (b"", b"HTTP/1.1 408"), True)
            except ConnectionResetError:
                pass
        for c in slow + held:
            c.close()


def test_hosts():
    with Server("--allow-host", "box.lan", "--cors", "https://good.example") as s:
        def status(headers, method="GET"):
            got, h, _ = s.ask(method, "/v1/models", headers=headers)
            return got, h["Access-Control-Allow-Origin"]
        for host, wanted in (("localhost", 200), (f"127.0.0.1:{s.port}", 200), ("[::1]:80", 200), ("box.lan:1", 200),
                             ("BOX.LAN", 200), ("evil.example", 403), ("localhost.evil.example", 403),
                             ("box.lan.evil.example:8080", 403), ("", 403), (":80", 403), ("[::1", 403)):
            equal(f"Host {host}", status({"Host": host})[0], wanted)
        equal("a page that may", status({"Origin": "https://good.example"}), (200, "https://good.example"))
        equal("one that may not", status({"Origin": "https://evil.example"}), (403, None))
        equal("none", status({"Origin": "null"}), (403, None))
        equal("its own", status({"Origin": s.url}), (200, None))
        got, h, _ = s.ask("OPTIONS", "/v1/completions", headers={
            "Origin": "https://good.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, x-stainless-os"})
        equal("asked before", (got, h["Access-Control-Allow-Headers"], h["Access-Control-Allow-Credentials"]),
              (204, "authorization, x-stainless-os", None))
        equal("by another", s.ask("OPTIONS", "/v1/completions", headers={"Origin": "https://evil.example"})[0], 403)


def test_keys():
    with Server(env={"SOL_API_KEY": "secret-of-all"}) as s:
        for headers, wanted in (({}, 401), ({"Authorization": "Bearer secret-of-all"}, 200),
                                ({"Authorization": "bearer secret-of-all"}, 200), ({"X-Api-Key": "secret-of-all"}, 200),
                                ({"Authorization": "Bearer secret-of-al"}, 401), ({"Authorization": "Bearer "}, 401),
                                ({"Authorization": "Basic secret-of-all"}, 401), ({"X-Api-Key": ""}, 401),
                                ({"Authorization": "Bearer secret-of-all2"}, 401)):
            got, h, data = s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}, headers)
            equal(f"{headers}", got, wanted)
            if wanted == 401:
                equal("its code", json.loads(data)["error"]["code"], "invalid_api_key")
            equal("figures too", s.ask("GET", "/metrics", headers=headers)[0], wanted)
        equal("health for all", s.json("GET", "/health"), {"status": "ok"})
        big = s.raw(request("POST", "/v1/completions", headers=["Content-Length: 30000000"]))
        equal("refused before the body", big[:12], b"HTTP/1.1 401")


def test_busy():
    with Server("--parallel", "1", "--max-waiting", "2", "--drain", "0") as s:
        threads, got = [], []
        def one():  # the last ones are cut when the server ends
            try:
                got.append(s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3000, "ignore_eos": True}))
            except (http.client.HTTPException, OSError):
                pass
        for _ in range(12):
            threads.append(threading.Thread(target=one))
            threads[-1].start()
        end = time.monotonic() + 20 * SLOW
        while len(got) < 9 and time.monotonic() < end:
            time.sleep(0.05)
        refused = [g for g in got if g[0] == 429]
        check("more than may wait are refused", len(refused) >= 8, [g[0] for g in got])
        for status, headers, data in refused:
            check("with a time", 1 <= int(headers["Retry-After"]) < 1000, headers["Retry-After"])
            equal("its code", json.loads(data)["error"]["code"], "rate_limit_exceeded")
        s.process.send_signal(signal.SIGTERM)
        for t in threads:
            t.join(20 * SLOW)


# ---- clients that leave ----

def test_gone():
    """Whoever leaves is no longer computed for, within a step, streaming or not."""
    with Server("--parallel", "4") as s:
        for stream in (True, False):
            body = json.dumps({"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": stream}).encode()
            clients = []
            for _ in range(8):  # half of them wait
                c = s.connect()
                c.sendall(request("POST", "/v1/completions", body))
                clients.append(c)
            s.wait_metric("num_requests_running", 4)
            before = s.metric("generation_tokens_total")
            for c in clients[:6]:
                c.close()
            s.wait_metric("num_requests_waiting", 0)
            s.wait_metric("num_requests_running", 2)
            made = s.metric("generation_tokens_total") - before
            check("at once: four texts of 4,000 are not written to their end", made < 6000, made)
            for c in clients[6:]:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                c.close()
            s.wait_metric("num_requests_running", 0)
        equal("all pages are back", s.metric("num_requests_waiting"), 0)
        equal("it goes on", s.complete(prompt="a", max_tokens=3)["usage"]["completion_tokens"], 3)


def test_stalled():
    """Who reads nothing is cut once too much is unread, or nothing moved for long."""
    long = {"text": "word " * 3000}
    with scripted({"long": long, "default": "fine"}) as s:
        body = json.dumps({"prompt": "@@long", "max_tokens": 4000, "stream": True, "n": 16}).encode()
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect((s.host, s.port))
        c.sendall(request("POST", "/v1/completions", body))
        s.wait_metric("num_requests_running", 16)
        before = s.memory()
        s.wait_metric("num_requests_running", 0, 30)
        check("it was cut", s.metric('request_success_total{finished_reason="cancelled"}') > 0)
        check("what is kept is bounded", s.memory() - before < 30000 * SLOW, before, s.memory())
        c.close()
        equal("others", s.complete(prompt="a")["choices"][0]["text"], "fine")


def test_heartbeat():
    with scripted({"slow": {"text": "a b", "delay_ms": 1500}}) as s:
        c = s.connect()
        c.sendall(request("POST", "/v1/completions", b'{"prompt": "@@slow", "stream": true, "max_tokens": 9}',
                          ["Connection: close"]))
        got = b""
        while piece := c.recv(65536):
            got += piece
        check("comments while nothing comes", got.count(b": working\n\n") >= 2, got)
        check("and the text", got.count(b"data: {") >= 2, got)


# ---- ends ----

def test_drain():
    with scripted({"slow": {"text": "one two three four five", "delay_ms": 300}}) as s:
        got = []
        t = threading.Thread(target=lambda: got.append(s.complete(prompt="@@slow", max_tokens=50)))
        t.start()
        s.wait_metric("num_requests_running", 1)
        kept = http.client.HTTPConnection(s.host, s.port)
        kept.request("GET", "/health")
        kept.getresponse().read()
        s.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 20 * SLOW
        while True:
            try:
                s.connect().close()
            except OSError:
                break
            check("nobody can connect", time.monotonic() < end)
            time.sleep(0.02)
        kept.request("POST", "/v1/completions", '{"prompt": "a"}')
        try:
            r = kept.getresponse()
            equal("no more is taken", (r.status, r.headers["Connection"]), (503, "close"))
            r.read()
        except (http.client.RemoteDisconnected, ConnectionResetError):
            pass  # it was idle, and closed
        t.join()
        equal("what ran ended", got[0]["choices"][0]["text"], "one two three four five")
    with scripted({"slow": {"text": "one two three four five " * 99, "delay_ms": 100}}) as s:
        c = s.connect()
        c.sendall(request("POST", "/v1/completions", b'{"prompt": "@@slow", "stream": true, "max_tokens": 900}'))
        s.wait_metric("num_requests_running", 1)
        begin = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        s.process.wait(20 * SLOW)
        check("not for ever", 1.5 < time.monotonic() - begin < 15 * SLOW, time.monotonic() - begin)


def test_fails():
    with scripted({"fail": {"text": "some words", "fail": "the GPU failed"}, "busy": {"refuse_s": 3}}) as s:
        e = s.json("POST", "/v1/completions", {"prompt": "@@fail", "max_tokens": 9}, status=500)["error"]
        equal("whole", (e["message"], e["type"]), ("the GPU failed", "server_error"))
        events = s.stream(prompt="@@fail", max_tokens=9)
        equal("streamed", (events[0]["choices"][0]["text"], events[-1]["error"]["message"]), ("some", "the GPU failed"))
        status, headers, _ = s.ask("POST", "/v1/completions", {"prompt": "@@busy"})
        equal("refused", (status, headers["Retry-After"]), (429, "3"))
        equal("one of several", s.ask("POST", "/v1/completions", {"prompt": ["@@fail", "@@busy"]})[0] in (500, 503), True)


def test_gpu_fails():
    """A GPU that fails in the middle: who is served is told, and the server ends with a status of its own."""
    if not os.environ.get("SOL_FAKE_GPU"):
        print("skipped: a GPU that fails (no fake one)")
        return
    env = {"LD_LIBRARY_PATH": os.environ["SOL_FAKE_GPU"], "FAKE_CUDA_FAIL": "stream_wait:60:700",
           "XDG_CACHE_HOME": os.path.join(WORK, "cache")}
    with Server("-m", "synth:tiny", "--backend", "cuda", "--parallel", "8", "--context", "256", env=env, status=8,
                noise="sol: error: the GPU's work failed: .*700.*\n") as s:
        clients = [s.connect() for _ in range(4)]  # before the GPU fails
        for c, stream in zip(clients, (True, False, True, False)):
            body = {"prompt": [1, 2, 3], "max_tokens": 200, "ignore_eos": True, "stream": stream}
            c.sendall(request("POST", "/v1/completions", json.dumps(body).encode(), ["Connection: close"]))
        for c, stream in zip(clients, (True, False, True, False)):
            got = b""
            while piece := c.recv(65536):
                got += piece
            check("it is told", b'"error":{"message":"the GPU\'s work failed' in got, got[-400:])
            check("its status", got.startswith(b"HTTP/1.1 200" if stream else b"HTTP/1.1 500"), got[:100])
        s.process.wait(20 * SLOW)


def test_loading():
    """Asked while it loads: 503, then served."""
    log = tempfile.TemporaryFile(dir=WORK)
    port = socket.socket()
    port.bind(("127.0.0.1", 0))
    number = port.getsockname()[1]
    port.close()
    p = subprocess.Popen([SOL, "serve", "--port", str(number), "-m", "synth:tiny"], stdout=log, stderr=log)
    seen, end = set(), time.monotonic() + 20 * SLOW
    while 200 not in seen and time.monotonic() < end:
        try:
            c = http.client.HTTPConnection("127.0.0.1", number, timeout=10)
            c.request("GET", "/health")
            seen.add(c.getresponse().status)
        except OSError:
            pass
    p.send_signal(signal.SIGINT)
    equal("its status", p.wait(20 * SLOW), 0)
    check("loading, then there", seen <= {200, 503} and 200 in seen, seen)


def test_port():
    with Server() as s:
        p = subprocess.run([SOL, "serve", "--port", str(s.port)], capture_output=True, text=True)
        equal("taken", (p.returncode, "is in use" in p.stderr), (3, True))


def test_ids():
    with Server("-m", "synth:tiny") as s:
        a = s.complete(prompt=[1, 2, 3], max_tokens=5, seed=1)
        check("ids as text", re.fullmatch(r"( \d+){5}", a["choices"][0]["text"]), a)
        s.json("POST", "/v1/completions", {"prompt": "text"}, status=400)


def test_tls():
    cert, key = os.path.join(WORK, "cert.pem"), os.path.join(WORK, "key.pem")
    try:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", key, "-out", cert], check=True, capture_output=True)
    except FileNotFoundError:
        print("skipped: TLS (no openssl)")
        return
    with Server("--tls-cert", cert, "--tls-key", key) as s:
        context = ssl.create_default_context(cafile=cert)
        context.check_hostname = False
        def connect():
            return http.client.HTTPSConnection(s.host, s.port, context=context, timeout=30 * SLOW)
        c = connect()
        c.request("POST", "/v1/completions", '{"prompt": "a", "max_tokens": 20, "stream": true}')
        r = c.getresponse()
        check("a stream", len(events_of(r.read())) > 5)
        raw = context.wrap_socket(s.connect())
        raw.sendall(request("POST", "/v1/completions",
                            b'{"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true}'))
        raw.recv(100)
        raw.close()
        end = time.monotonic() + 30 * SLOW
        running = 1
        while running and time.monotonic() < end:
            c = connect()
            c.request("GET", "/metrics")
            running = int(re.search(rb"num_requests_running (\d+)", c.getresponse().read()).group(1))
        equal("who leaves is noticed", running, 0)
        plain = s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 10)
        check("plain text is no TLS", not plain.startswith(b"HTTP/1.1 200"), plain)
    with open(cert, "w") as f:
        f.write("nonsense")
    p = subprocess.run([SOL, "serve", "--port", "0", "--tls-cert", cert, "--tls-key", key], capture_output=True, text=True)
    equal("no certificate", (p.returncode, "PEM" in p.stderr), (4, True))


def test_crowd():
    """Many at once, each with the answer that it gets alone, and that it got before its prompt was kept."""
    prompts = [f"The {w} of the" for w in "king sea man house night ship wind voice door day".split()]
    for how in ("--exact", "--deterministic"):
        with Server(how, "--parallel", "8") as s:
            def answer(i):
                return s.complete(prompt=prompts[i % 10], max_tokens=20, seed=4)["choices"][0]["text"]
            alone = [answer(i) for i in range(10)]
            got = {}
            threads = [threading.Thread(target=lambda i=i: got.update({i: answer(i)})) for i in range(40)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            equal(f"all the same, {how}", [got.get(i) for i in range(40)], [alone[i % 10] for i in range(40)])


def test_types():
    """Functions with all their types, as sol chat render has them; references that would be written out without end."""
    value = {"anyOf": [{"type": "string"}, {"const": 7}]}
    tools = [{"type": "function", "function": {"name": "put", "parameters": {"type": "object", "properties": {"v": value}}}}]
    body = {"messages": [{"role": "user", "content": "Go"}], "tools": tools, "max_tokens": 1}
    developer = {"type": "developer_content", "tools": {"functions": {"name": "functions", "tools": [
        {"name": "put", "description": "", "parameters": tools[0]["function"]["parameters"]}]}}}
    def rendered(types):
        got = subprocess.run([SOL, "chat", "render", "--types", types, "-"], capture_output=True, text=True, check=True,
                             input=json.dumps({"messages": [{"role": "developer", "content": [developer]}]}))
        return len(json.loads(got.stdout)["ids"])
    prompts = {}
    for types in "harmony", "full":
        with Server("--types", types, "--responses", "none") as s:
            prompts[types] = s.json("POST", "/v1/chat/completions", body)["usage"]["prompt_tokens"]
            if types == "full":
                wide = {"type": "object", "properties": {f"p{i}": {"$ref": "#/$defs/wide"} for i in range(220)},
                        "$defs": {"wide": {"enum": ["x" * 1000]}}}
                many = [{"type": "function", "function": {"name": f"f{i}", "parameters": wide}} for i in range(5)]
                got, _, data = s.ask("POST", "/v1/chat/completions", {**body, "tools": many})
                equal("references written out", (got, "take more than 1024 KiB" in data.decode()), (400, True))
    equal("what all types add", prompts["full"] - prompts["harmony"], rendered("full") - rendered("harmony"))
    check("they add something", prompts["full"] > prompts["harmony"], prompts)


def main():
    failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_") or (sys.argv[3:] and name not in sys.argv[3:]):
            continue
        begin = time.monotonic()
        try:
            test()
        except Exception as e:  # the others are to be seen too
            import traceback
            failed += 1
            print(f"FAILED: {name}: {e}")
            if not isinstance(e, AssertionError):
                traceback.print_exc(file=sys.stdout)
        print(f"{name} {time.monotonic() - begin:.2f} s", flush=True)
    return failed != 0


if __name__ == "__main__":
    import shutil
    try:
        sys.exit(main())
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
