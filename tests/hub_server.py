"""A hub for tests: the public API's list of files, and files by ranges, with the faults that a test asks for.

    python3 hub_server.py FOLDER READY [FAULT[=VALUE]...]

FOLDER/OWNER/NAME/... are the repositories. Writes the port to READY. Faults:
    cut=N        each connection ends after N bytes of a file
    refuse=N     every N-th request for a file is answered 503 (Retry-After: 0)
    no-ranges    files are sent whole, always
    size=N       answers say that a file has N bytes more
    longer       more bytes come than were asked for
    other        other bytes of the file come than were asked for
    wrong=N      the first N answers with bytes of a large file have a wrong byte
    gated        the token is wanted: "secret"
    redirect     files are at another host (localhost instead of 127.0.0.1), which must not see the token
    html         the list of files is a page for people
    path=NAME    the list has a file of this name
    slow=N       a pause of N ms before each 64 KiB
Requests are logged, a line each, to READY.log: method, path, range, host's name, whether the token came.
"""
import hashlib
import http.server
import json
import os
import re
import sys
import threading
import time

folder, ready = sys.argv[1:3]
faults = dict(arg.partition("=")[::2] for arg in sys.argv[3:])
lock = threading.Lock()
counts = {"file": 0, "wrong": 0}
LARGE = 100_000  # bytes from which on the hub keeps files apart, with a SHA-256
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def number(fault):
    return int(faults.get(fault) or 0)


def described(repository, path):
    with open(os.path.join(folder, repository, path), "rb") as file:
        data = file.read()
    entry = {"rfilename": path, "size": len(data),
             "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
    if len(data) >= LARGE:
        entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


def files_of(repository):
    top = os.path.join(folder, repository)
    return sorted(os.path.relpath(os.path.join(at, name), top) for at, _, names in os.walk(top) for name in names)


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, code, body, headers=()):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, code, word):
        self.answer(code, b"no", [("X-Error-Code", word), ("X-Error-Message", word + ", says the hub")])

    def do_GET(self):
        token = self.headers.get("Authorization")
        with lock, open(ready + ".log", "a") as log:
            log.write(f"{self.command} {self.path} {self.headers.get('Range')} {self.headers['Host'].split(':')[0]} "
                      f"{token}\n")
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/?]+)(?:\?.*)?", self.path)
        file = re.fullmatch(r"(/there)?/([^/]+/[^/]+)/resolve/([^/]+)/(.*)", self.path)
        if "gated" in faults and token != "Bearer secret" and not (file and file[1]):
            return self.refuse(401, "GatedRepo" if not token else "")
        if api:
            return self.list(*api.groups())
        if file and file[3] == COMMIT:
            return self.file(file[1], file[2], file[4])
        self.refuse(404, "RepoNotFound")

    do_HEAD = do_GET

    def list(self, repository, revision):
        if not os.path.isdir(os.path.join(folder, repository)):
            return self.refuse(401, "RepoNotFound")
        if revision not in ("main", "v1", COMMIT):
            return self.refuse(404, "RevisionNotFound")
        if "html" in faults:
            return self.answer(200, b"<html>sign in</html>")
        files = [described(repository, path) for path in files_of(repository)]
        if "path" in faults:
            files[0]["rfilename"] = faults["path"]
        self.answer(200, json.dumps({"id": repository, "sha": COMMIT, "siblings": files}).encode())

    def file(self, there, repository, path):
        with lock:
            counts["file"] += 1
            nth = counts["file"]
        if number("refuse") and nth % number("refuse") == 0:
            return self.answer(503, b"busy", [("Retry-After", "0")])
        if "redirect" in faults and not there:
            host = f"localhost:{self.server.server_address[1]}"
            return self.answer(302, b"", [("Location", f"http://{host}/there{self.path}")])
        with open(os.path.join(folder, repository, path), "rb") as file:
            data = file.read()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if not asked or "no-ranges" in faults:
            return self.send(200, data, 0, len(data), len(data), len(data))
        first, last = int(asked[1]), int(asked[2])
        if "other" in faults:
            first, last = first + 1, last + 1
        self.send(206, data, first, last + 1, len(data), last + 1 - first)

    def send(self, code, data, first, end, size, length):
        piece = bytearray(data[first:end])
        if "longer" in faults:
            piece += b"more"
            length += 4
        with lock:
            if len(data) >= LARGE and counts["wrong"] < number("wrong") and piece:
                counts["wrong"] += 1
                piece[len(piece) // 2] ^= 1
        self.send_response(code)
        if code == 206:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{size + number('size')}")
        self.send_header("Content-Length", str(length + (number("size") if code == 200 else 0)))
        self.end_headers()
        cut = number("cut")
        for at in range(0, len(piece), 1 << 16):
            if number("slow"):
                time.sleep(number("slow") / 1000)
            part = piece[at:at + (1 << 16)]
            if cut and at + len(part) > cut:
                self.wfile.write(part[:cut - at])
                self.close_connection = True
                return
            self.wfile.write(part)
        if code == 200 and number("size"):
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that goes away


server = Server(("127.0.0.1", 0), Hub)
with open(ready + ".new", "w") as file:
    file.write(str(server.server_address[1]))
os.rename(ready + ".new", ready)
server.serve_forever()
