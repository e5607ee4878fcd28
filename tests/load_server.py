"""A server of OpenAI's streamed completions for tests: every delay is known, every fault is asked for.

    python3 load_server.py READY [SETTING=VALUE]...

Writes the port to READY and what it did to READY.log, a JSON object a line: the request, and when (ns of the
monotonic clock) it came and each text was sent. GET /set?SETTING=VALUE&... begins anew with other settings:
    ttft=MS itl=MS    before the first text, and between texts (default 20, 5)
    jitter=MS         for every third request that much more before the first text
    wobble=MS         and that much more between its texts
    chunk=N           tokens in a text (default 1)
    slots=N           requests that are served at once, the others wait
    style=N           fields that are taken: 0 all, 1 no ignore_eos, 2 no max_tokens either, 3 no stream_options
    usage=0           no usage is sent
    key=TEXT          the key that is wanted
    first=FIELD       of a chat's first text (default reasoning), the others are content
    frame=N           tokens of a chat's frame (default 70); words are one and a half
    context=N         a prompt with more tokens is answered 400
    after=N           faults begin with the N-th request (default 3, behind those that ask for fields and tokens)
    every=N           and come with every N-th (default 1)
    fault=WORD        of a request: refuse (no connection from then on), cut (in the middle), drop (without an answer),
                      garbage (events that are no JSON), endless (an event without end), type (another content type),
                      busy (429; retry=S is its Retry-After), once (429 the first time), broken (500), bad (400),
                      error (an error object in the stream), silent (a stream without text), hang (after the headers),
                      hush (in the middle), html (200 and a page)
"""
import json
import os
import socket
import sys
import threading
import time

ready = sys.argv[1]
lock = threading.Lock()
listener = socket.create_server(("127.0.0.1", 0), backlog=1024)


def begin(arguments):
    global settings, slots, log, requests
    settings = dict(arg.partition("=")[::2] for arg in arguments)
    slots = threading.Semaphore(int(number("slots", 100000)))
    log = open(ready + ".log", "w", buffering=1)
    requests = 0


def number(name, otherwise=0):
    return float(settings.get(name, otherwise))


def sleep_until(when):
    left = when - time.monotonic()
    if left > 0:
        time.sleep(left)


class Connection:
    def __init__(self, connection, arrived):
        self.socket, self.arrived = connection, arrived
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = connection.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def answer(self, code, body, kind="application/json", headers=()):
        lines = [f"HTTP/1.1 {code} Word", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
        self.send("\r\n".join(lines).encode() + body)

    def error(self, code, message, headers=()):
        self.answer(code, json.dumps({"error": {"message": message, "type": "x", "code": None}}).encode(),
                    headers=headers)

    def chunk(self, data):
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, value):
        self.chunk(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")

    def request(self):
        """Method, path, headers and body of the next one; None when there is none."""
        line = self.file.readline()
        if not line:
            return None
        method, path, _ = line.decode().split()
        headers = {}
        while (line := self.file.readline().strip()):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return method, path, headers, self.file.read(int(headers.get("content-length", 0)))


def refused_fields(body):
    style = int(number("style"))
    wrong = {1: ["ignore_eos", "min_tokens"], 2: ["max_tokens", "ignore_eos", "min_tokens"],
             3: ["stream_options", "max_completion_tokens", "ignore_eos", "min_tokens"]}.get(style, [])
    return [field for field in wrong if field in body]


def prompt_tokens(path, body):
    if path.endswith("/chat/completions"):
        text = body["messages"][0]["content"]
        return int(number("frame", 70) + 1.5 * len(text.split()))
    prompt = body["prompt"]
    return len(prompt) if isinstance(prompt, list) else int(1.5 * len(prompt.split()))


def text_event(path, first):
    if path.endswith("/chat/completions"):
        field = settings.get("first", "reasoning") if first else "content"
        return {"choices": [{"index": 0, "delta": {field: "word "}, "finish_reason": None}]}
    return {"choices": [{"index": 0, "text": "word ", "finish_reason": None}]}


def stream(to, path, body, turn, fault):
    """Sends the answer; False when the connection is to end."""
    at = time.monotonic()
    record = {"prompt": prompt_tokens(path, body), "arrived": to.arrived, "sent": [], "body": body}
    third = turn % 3 == 0
    tokens = int(body.get("max_tokens") or body.get("max_completion_tokens"))
    each = int(number("chunk", 1))
    slots.acquire()
    try:
        at = time.monotonic()
        to.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n")
        if path.endswith("/chat/completions"):
            to.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
        if fault == "hang":
            time.sleep(30)
        if fault == "silent":
            tokens = 0
        at += (number("ttft", 20) + third * number("jitter")) / 1e3
        texts = (tokens + each - 1) // each
        for i in range(texts):
            sleep_until(at)
            if i == texts // 2 and fault in ("cut", "garbage", "error", "endless", "hush"):
                if fault == "cut":
                    return False
                if fault == "hush":
                    time.sleep(30)
                    return False
                if fault == "garbage":
                    to.event(b"<html>")
                elif fault == "error":
                    to.event({"error": {"message": "the engine failed", "type": "server_error"}})
                else:
                    for _ in range(40):
                        to.chunk(b"data: " + b"x" * 65536)
                return False
            to.event(text_event(path, i == 0))
            record["sent"].append(time.monotonic_ns())
            at += (number("itl", 5) + third * number("wobble")) / 1e3
        to.event({"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "length"}]})
        usage = {"prompt_tokens": record["prompt"], "completion_tokens": tokens}
        if settings.get("usage") != "0" and "stream_options" in body:
            to.event({"choices": [], "usage": usage})
        log.write(json.dumps(record) + "\n")  # before the client knows that it is over
        record = None
        to.event(b"[DONE]")
        to.chunk(b"")
        return True
    finally:
        slots.release()
        if record:
            log.write(json.dumps(record) + "\n")


def complete(to, path, headers, raw):
    global requests
    with lock:
        requests += 1
        turn = requests
    first = int(number("after", 3))
    fault = settings.get("fault") if turn >= first and (turn - first) % int(number("every", 1)) == 0 else None
    if settings.get("key") and headers.get("authorization") != "Bearer " + settings["key"]:
        return to.error(401, "the key is wrong") or True
    body = json.loads(raw)
    if refused_fields(body):
        return to.error(400, f"unknown fields: {refused_fields(body)}") or True
    if settings.get("context") and prompt_tokens(path, body) > number("context"):
        return to.error(400, "the prompt is too long") or True
    if fault == "refuse":
        listener.close()
        return False
    if fault == "drop":
        return False
    if fault == "busy" or (fault == "once" and turn == first):
        return to.error(429, "too many requests", [f"Retry-After: {settings.get('retry', '0')}"]) or True
    if fault == "broken":
        return to.error(500, "a bug") or True
    if fault == "bad":
        return to.error(400, "not with me") or True
    if fault == "type":
        return to.answer(200, b'{"choices": [{"text": "all of it"}]}') or True
    if fault == "html":
        return to.answer(200, b"<html>hello</html>", "text/html") or True
    return stream(to, path, body, turn, fault)


def serve(connection, arrived):
    to = Connection(connection, arrived)
    try:
        while True:
            request = to.request()
            if request is None:
                break
            method, path, headers, raw = request
            if method == "GET" and path.startswith("/set?"):
                begin(path[5:].split("&"))
                to.answer(200, b"{}")
            elif method == "GET" and path == "/v1/models":
                to.answer(200, b'{"object": "list", "data": [{"id": "scripted"}]}')
            elif method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
                if not complete(to, path, headers, raw):
                    break
            else:
                to.error(404, "no such thing")
    except (OSError, ValueError):
        pass
    finally:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()


begin(sys.argv[2:])
with open(ready + ".part", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(ready + ".part", ready)
while True:
    try:
        accepted, _ = listener.accept()
    except OSError:
        time.sleep(3600)
    threading.Thread(target=serve, args=(accepted, time.monotonic_ns()), daemon=True).start()
