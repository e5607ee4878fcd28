"""The page of sol serve in a browser: what tests/cli_page.sh runs.

    python3 page_browser.py FOLDER [CASE...]

FOLDER is a scratch folder. Starts tests/serve_scripted, whose answers are written below, and for what
concerns keys `sol serve` itself; a proxy before the former serves it below a path and cuts its connections.
Exit status 1 where a case failed, 77 without a browser.
"""
import base64
import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from devtools import Browser, find_browser  # noqa: E402

BUILD, SOL = os.environ["SOL_BUILD_DIR"], os.environ["SOL_BINARY"]
SLOWER = 4 if os.environ.get("SOL_SANITIZED") else 1

THINK = "<|channel|>analysis<|message|>%s<|end|><|start|>assistant<|channel|>final<|message|>"
THOUGHT = THINK % "The user wants a word. I think about which one it should be, and say it."
WORDS = " ".join(f"word{i}" for i in range(120))
LINES = "\n\n".join(f"Line {i} of the answer." for i in range(60))
SAMPLE = """A **ring** keeps *items*.

## How it works

1. Choose `n & (n - 1) == 0`.
2. Move the head:
   - not past the tail;
   - without a lock.

```c
/* One producer. */
static int put(struct ring *r, unsigned char c) { return r->head - r->tail == 4096 ? 0 : r->data[r->head++ % 4096] = c, 1; }
```

| Way | Locks | Throughput |
|:----|:-----:|-----------:|
| Mutex | yes | 12 M/s |
| Ring | no | a_very_long_cell_that_a_phone_has_no_room_for_and_then_some_more_of_it_without_an_end |

> Measure *first*.

Inline \\( a_b * c_d * e \\), and

\\[
x = 1
- y
\\]

See [a page](https://example.org/a?b=1&c=2), https://example.com/x_y_z.

- [x] done
- [ ] open

---

A_very_long_word_""" + "x" * 200
HOSTILE = """<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2"> <svg/onload=window.hacked=3>

[a](javascript:window.hacked=4) [b](data:text/html,<script>window.hacked=5</script>) [c](JaVaScRiPt:window.hacked=6) [d](  vbscript:x)

![an image](https://images.invalid/x.png) <javascript:window.hacked=7> [e](/v1/models) [f](//other.invalid/x)

[good](https://example.com/"onmouseover="window.hacked=8) <iframe srcdoc="<script>parent.hacked=9</script>"></iframe>

```html"onload="window.hacked=10
<script>window.hacked = 11</script>
```

| <b>a</b> | [x](javascript:window.hacked=12) |
|---|---|
| <script>window.hacked=13</script> | <style>body{display:none}</style> |
"""
ANSWERS = {
    "default": THOUGHT + "Hello, **you**.<|return|>",
    "slow": {"text": THOUGHT + WORDS + "<|return|>", "delay_ms": 12},
    "lines": {"text": THOUGHT + LINES + "<|return|>", "delay_ms": 3},
    "sample": THOUGHT + SAMPLE + "<|return|>",
    "hostile": THOUGHT + HOSTILE + "<|return|>",
    "fail": {"text": THOUGHT + "Half an", "fail": "the device failed"},
    "busy": {"text": "", "refuse_s": 2},
}


class Server:
    """A program that says where it listens."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        else:
            raise RuntimeError("the server did not start: " + " ".join(command))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.port}/"

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Proxy:
    """Serves a server below /below/, one request a connection; `cut` ends what runs and refuses the rest."""

    def __init__(self, port):
        self.port, self.down, self.open = port, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/below/"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            if self.down:
                client.close()
            else:
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.port))
            self.open += [client, server]
            head = b""
            while b"\r\n\r\n" not in head:
                data = client.recv(65536)
                if not data:
                    return
                head += data
            head, _, body = head.partition(b"\r\n\r\n")
            first, *headers = head.split(b"\r\n")
            headers = [h for h in headers if not h.lower().startswith(b"connection:")] + [b"Connection: close"]
            server.sendall(b"\r\n".join([first.replace(b" /below/", b" /", 1), *headers]) + b"\r\n\r\n" + body)
            threading.Thread(target=self.pump, args=(client, server), daemon=True).start()
            self.pump(server, client)
        except OSError:
            pass
        finally:
            client.close()

    @staticmethod
    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        self.down = True
        for s in self.open:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open = []


LAST = "([...document.querySelectorAll('.answer .md')].at(-1)?.textContent ?? '')"
FACTS = "([...document.querySelectorAll('.answer .facts')].at(-1)?.textContent ?? '')"
TROUBLE = "(document.querySelector('.trouble:not([hidden])')?.textContent ?? '')"
VERSIONS = "(document.querySelector('%s .branch')?.textContent ?? '')"


def check(what, good, got=None):
    if not good:
        raise AssertionError(what if got is None else f"{what}: {got!r}")


class Pages:
    """Tabs of one person, and what one does with them."""

    def __init__(self, browser, url, context=None):
        self.browser, self.url, self.context = browser, url, context or browser.context()

    def open(self, path=""):
        tab = self.browser.tab(self.url + path, self.context)
        tab.wait("!!document.querySelector('#model').textContent && !document.querySelector('#model.bad')")
        return tab


def send(tab, text):
    tab.run("document.querySelector('#box').focus()")
    tab.type(text)
    tab.press("Enter")


def settle(tab, answers):
    tab.wait(f"document.querySelectorAll('.answer').length === {answers} && !document.querySelector('.busy') && !document.querySelector('#send').hidden", 60)


def ask(tab, text, answers):
    send(tab, text)
    settle(tab, answers)


# ---- cases ----

def case_headers(pages):
    def get(path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", int(re.search(r":(\d+)", pages.server.url).group(1)))
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()

    status, headers, body = get("/")
    check("the page is there", status == 200 and headers["Content-Type"] == "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"]
    for tag in b"style", b"script":
        text = body.split(b"<" + tag + b">")[1].split(b"</" + tag + b">")[0]
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        check("the policy names this " + tag.decode(), f"{tag.decode()}-src 'sha256-{digest}'" in policy, policy)
    check("the policy allows nothing else", policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "*" not in policy, policy)
    for part in "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'":
        check("the policy says " + part, part in policy, policy)
    check("nosniff", headers["X-Content-Type-Options"] == "nosniff")
    check("no referrer", headers["Referrer-Policy"] == "no-referrer")
    etag = headers["ETag"]
    status, headers, empty = get("/index.html", **{"If-None-Match": '"other", ' + etag})
    check("304 for what is known", (status, empty, headers["ETag"]) == (304, b"", etag), status)
    check("200 for another", get("/", **{"If-None-Match": '"other"'})[0] == 200)
    loads = re.findall(rb"""(?:src|href|action)=["']?([^"'\s>]+)""", body.split(b"<script>")[0])
    check("nothing is loaded", all(x.startswith((b"#", b"data:")) for x in loads), loads)
    script = body.split(b"<script>")[1]
    for word in rb"\.innerHTML", rb"insertAdjacentHTML", rb"document\.write", rb"\beval\(", rb"new Function":
        check(f"the script has no {word}", not re.search(word, script))
    status, _, body = get("/nothing")
    check("other paths are the API's", status == 404 and b'"error"' in body, status)


def case_stream(pages):
    tab = pages.open()
    check("the box has the focus", tab.run("document.activeElement.id") == "box")
    send(tab, "@@slow please")
    tab.wait("document.querySelector('.reasoning:not([hidden]) .title')?.textContent.startsWith('Thinking')")
    tab.wait("document.querySelector('.now').textContent.includes('The user wants')")
    check("reasoning is folded", not tab.run("document.querySelector('.reasoning').open"))
    tab.wait(LAST + ".includes('word3')")
    check("it streams", "word119" not in tab.run(LAST))
    settle(tab, 1)
    check("the whole text", tab.run(LAST) == WORDS, tab.run(LAST))
    check("how long it thought", re.fullmatch(r"Thought for [\d.]+ s", tab.run("document.querySelector('.reasoning .title').textContent")))
    check("what it thought", "which one it should be" in tab.run("document.querySelector('.thoughts').textContent"))
    check("figures", re.fullmatch(r"\d+ tokens · [\d.]+ tok/s · first token [\d.]+ s", tab.run(FACTS)), tab.run(FACTS))
    check("context", re.fullmatch(r"[\d,]+ of [\d,]+ tokens", tab.run("document.querySelector('#used').textContent")))
    check("a screen reader hears it", WORDS in tab.run("document.querySelector('#live').textContent"))
    check("title", tab.run("document.title") == "@@slow please · sol")
    status = tab.run("fetch('v1/responses/' + [...state.messages.values()].at(-1).response).then(r => r.status)")
    check("the server has forgotten it", status == 404, status)
    ask(tab, "@@sample please", 2)
    got = tab.run("[...document.querySelectorAll('.answer')].at(-1).querySelectorAll('h4, ol > li > ul > li, pre .k, td.right, blockquote em, .md > .math, span.math, a[href], hr, li.task').length")
    check("markdown", got >= 14, got)
    check("formulas are text", "a_b * c_d * e" in tab.run(LAST) and "- y" in tab.run("document.querySelector('.md > .math').textContent"))
    check("links leave nothing behind", tab.run("[...document.querySelectorAll('.md a')].every(a => a.rel === 'noopener noreferrer' && a.target === '_blank')"))
    body = tab.run("JSON.parse(question([...state.messages.values()].at(-1)))")
    check("the browser sends the conversation", [m["role"] for m in body["input"]] == ["user", "assistant", "user"] and body["input"][1]["content"][0]["text"] == WORDS, body)
    check("no complaints", not tab.complaints(), tab.complaints())


def case_stop(pages):
    tab = pages.open()
    for n, way in enumerate((lambda: tab.press("Escape"), lambda: tab.click("#stop")), 1):
        send(tab, "@@slow please")
        tab.wait(LAST + ".includes('word2')")
        way()
        settle(tab, n)
        text = tab.run(LAST)
        check("what came is kept", WORDS.startswith(text) and 0 < len(text) < len(WORDS), text)
        check("it says so", tab.run(FACTS).startswith("stopped"), tab.run(FACTS))
    ask(tab, "@@default hello", 3)
    check("it goes on", tab.run(LAST) == "Hello, you.")


def case_edit(pages):
    tab = pages.open()
    ask(tab, "@@sample first", 1)
    ask(tab, "@@default another", 2)
    tab.click(".question [name=edit]")
    tab.run("document.activeElement.select()")
    tab.type("@@default second")
    tab.press("Enter")
    settle(tab, 1)
    check("another answer", tab.run(LAST) == "Hello, you.", tab.run(LAST))
    check("two versions", tab.run(VERSIONS % ".question") == "‹2 / 2›", tab.run(VERSIONS % ".question"))
    body = tab.run("JSON.parse(question([...state.messages.values()].at(-1)))")
    check("only this branch is sent", [m["content"][0]["text"] for m in body["input"]] == ["@@default second"], body)
    tab.click(".question [name=older]")
    tab.wait("document.querySelectorAll('.answer').length === 2")
    check("the older branch is whole", "ring" in tab.run("document.querySelector('.answer .md').textContent"))
    tab.click(".question [name=newer]")
    tab.wait("document.querySelectorAll('.answer').length === 1")
    tab.click(".answer [name=again]")
    settle(tab, 1)
    check("two answers", tab.run(VERSIONS % ".answer") == "‹2 / 2›", tab.run(VERSIONS % ".answer"))
    tab.reload()
    settle(tab, 1)
    check("versions are kept", tab.run(VERSIONS % ".answer") == "‹2 / 2›" and tab.run(VERSIONS % ".question") == "‹2 / 2›")


def case_reload(pages):
    tab = pages.open()
    for name, until in ("an answer", LAST + ".includes('word5')"), ("thinking", "!!document.querySelector('.now')?.textContent"):
        tab.run("newChat()")
        send(tab, "@@slow please")
        tab.wait(until)
        tab.type("a draft")
        tab.reload()
        tab.wait("document.querySelector('#box').value === 'a draft'")
        settle(tab, 1)
        check(f"whole after a reload within {name}", tab.run(LAST) == WORDS, tab.run(LAST))
        check("no made up speed", "tok/s" not in tab.run(FACTS), tab.run(FACTS))
        check("only what was missing is asked for", tab.run("performance.getEntriesByType('resource').some(e => /starting_after=[1-9]/.test(e.name))"))
        tab.run("document.querySelector('#box').select()")
        tab.press("Delete")
    # Left for good before the server had the question.
    tab.run("addMessage({...[...state.messages.values()].at(-1), ...unanswered(), id: newId(), asked: 1}); 0")
    tab.run("write([['chats', state.chat], ['messages', [...state.messages.values()].at(-1)]])")
    tab.reload()
    tab.wait(TROUBLE + ".startsWith('The page was left before')")
    tab.click(".trouble [name=again]")
    settle(tab, 1)
    check("and tried again", tab.run(LAST) == WORDS, tab.run(LAST))
    check("no complaints", not tab.complaints(), tab.complaints())


def case_hostile(pages):
    tab = pages.open()
    ask(tab, "@@hostile please", 1)
    time.sleep(0.3)
    check("nothing ran", tab.run("window.hacked") is None, tab.run("window.hacked"))
    check("no elements of it", tab.run("document.querySelectorAll('.md :is(script, img, svg, iframe, style, b, form)').length") == 0)
    links = tab.run("[...document.querySelectorAll('.md a')].map(a => a.href)")
    check("http and https alone", all(re.match("https?://(example.com|images.invalid)/", link) for link in links) and len(links) == 2, links)
    check("no handlers", tab.run("[...document.querySelectorAll('#log *')].every(n => [...n.attributes].every(a => !a.name.startsWith('on')))"))
    # Typed by the user, in a title, in reasoning.
    ask(tab, "@@default <img src=x onerror=window.hacked=20>", 2)
    check("titles are text", tab.run("window.hacked") is None and tab.run("document.querySelectorAll('#side img, #log img').length") == 0)
    check("no complaints", not tab.complaints(), tab.complaints())


def case_fuzz(pages):
    """A text that comes in pieces looks as it does at once, whatever it is, and no text takes long."""
    tab = pages.open()
    bad = tab.run("""(() => {
        const bits = ['*', '**', '_', '`', '```', '\\n', '\\n\\n', '- ', '1. ', '  ', '> ', '| a | b |\\n', '|---|---|\\n', '[x](http://a.b)', '[', '](',
          '$$', '\\\\[', '\\\\]', '# ', 'text ', '~~~\\n', '---\\n', '<br>', 'http://x.y', '\\\\', '~~', '!', 'a', '   - ', '```js\\n'];
        let seed = %d;
        const random = n => (seed = seed * 16807 %% 2147483647) %% n;
        for (let i = 0; i < 800; i++) {
          let text = '';
          for (let k = random(60); k >= 0; k--) text += bits[random(bits.length)];
          const one = document.createElement('div'), many = document.createElement('div'), growing = new Growing(many);
          new Growing(one).update(text, true);
          for (let n = 0; n < text.length; n += 1 + random(7)) growing.update(text.slice(0, n), false);
          growing.update(text, true);
          one.normalize();
          many.normalize();
          if (!one.isEqualNode(many)) return text;
        }
        return '';
      })()""" % (1 + time.time_ns() % 2147483646))
    check("pieces are as the whole", bad == "", bad)
    shapes = ["'word '.repeat(6e4)", "'x'.repeat(3e5)", "'```\\n' + 'int x;\\n'.repeat(4e4)", "'*a **b '.repeat(4e4)", "'['.repeat(1e5) + '](x'.repeat(5e4)",
              "'>'.repeat(3e5)", "'[a](('.repeat(6e4)", "'$a $$b '.repeat(4e4)", "'- '.repeat(1e5)", "Array.from({length: 1400}, (_, i) => '`'.repeat(i)).join(' ')",
              "'|'.repeat(3e5)", "'# ' + ' #'.repeat(1e5)", "Array.from({length: 600}, (_, i) => ' '.repeat(i) + '- x\\n').join('')", "'```js\\n' + '/*'.repeat(1e4)",
              "'http://http://'.repeat(2e4)", "'\\\\('.repeat(1e5)", "'\\n'.repeat(3e5) + 'x'"]
    for shape in shapes:
        took = tab.run(f"(() => {{ const text = {shape}, t = performance.now(); new Growing(document.createElement('div')).update(text, true); return performance.now() - t; }})()")
        check("milliseconds for " + shape, took < 3000 * SLOWER, took)


def case_large(pages):
    """1 MB: drawn in slices, and the page answers meanwhile."""
    tab = pages.open()
    tab.call("Performance.enable")

    def seconds():  # of processors, as others use them too
        return next(m["value"] for m in tab.call("Performance.getMetrics")["metrics"] if m["name"] == "ProcessTime")

    tab.run("""(async () => {
        const text = %s.repeat(900).slice(0, 5e5) + '\\n\\n| a | b |\\n|---|---|\\n' + '| 1 | **2** |\\n'.repeat(35000);
        const messages = [{id: 'q', parent: null, role: 'user', text: 'x '.repeat(5e5), created: 1}, {id: 'a', parent: 'q', role: 'assistant', text, status: 'done', created: 2}];
        await importFile(new File([JSON.stringify({format: FORMAT, version: 1, conversations: [{title: 'large', leaf: 'a', messages}]})], 'x.json'));
      })()""" % json.dumps(SAMPLE + "\n\n"))
    used = seconds()
    pictures = tab.run("""(async () => {
        let pictures = 0;
        const frame = () => { pictures++; requestAnimationFrame(frame); };
        location.hash = [...state.chats.keys()][0];
        while (![...state.views.values()].some(v => v.growing)) await pause(5);
        requestAnimationFrame(frame);
        while ([...state.views.values()].some(v => v.growing?.more)) await pause(5);
        return pictures;
      })()""")
    drawn = seconds() - used
    check("pictures while it is drawn", pictures >= 5, pictures)
    check("processor seconds between two", drawn / pictures < 0.8, (drawn, pictures))
    check("the question is whole", tab.run("document.querySelector('.said').textContent.length") == 1000000)
    check("all of it is there", tab.run("document.querySelectorAll('tbody tr').length") > 35000)
    tab.wait("(n => n.scrollHeight - n.scrollTop - n.clientHeight < 60)(document.querySelector('#scroll'))")
    used = seconds()
    ask(tab, "@@default hello", 2)
    check("a message goes on from there", tab.run(TROUBLE).startswith("The conversation is longer than the model's context"), tab.run(TROUBLE))
    check("processor seconds for a message", seconds() - used < 5, seconds() - used)
    print(f"  1 MB: {pictures} pictures, {drawn / pictures:.2f} processor seconds between two", flush=True)


def case_scroll(pages):
    tab = pages.open()
    tab.size(1000, 500)
    gap = "(n => n.scrollHeight - n.scrollTop - n.clientHeight)(document.querySelector('#scroll'))"
    tab.run("""window.shifts = 0;
        new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.shifts += e.value; }).observe({type: 'layout-shift', buffered: true});
        0""")
    ask(tab, "@@slow please", 1)
    check("nothing jumps while it streams", tab.run("window.shifts") < 0.1, tab.run("window.shifts"))
    send(tab, "@@lines please")
    tab.wait(LAST + ".includes('Line 25 ')")
    check("it stays at the end", tab.run(gap) < 48, tab.run(gap))
    tab.run("document.querySelector('#scroll').scrollTop -= 300")
    tab.wait("!document.querySelector('#down').hidden")
    place = tab.run("document.querySelector('#scroll').scrollTop")
    tab.wait(LAST + ".includes('Line 35 ')")
    check("who reads above is left there", abs(tab.run("document.querySelector('#scroll').scrollTop") - place) < 2)
    tab.click("#down")
    tab.wait(gap + " < 48")
    settle(tab, 2)
    check("and at the end again", tab.run(gap) < 48, tab.run(gap))


def case_keyboard(pages):
    tab = pages.open()
    ask(tab, "one", 1)
    tab.press("o", ctrl=True, shift=True)
    tab.wait("!document.querySelector('article') && document.activeElement.id === 'box'")
    ask(tab, "two", 1)
    tab.press("ArrowUp")
    tab.wait("document.activeElement.ariaLabel === 'Edit the message'")
    tab.press("Escape")
    tab.wait("document.activeElement.name === 'edit'")
    tab.press("?", shift=True)
    tab.wait("document.querySelector('#help').open")
    tab.press("Escape")
    tab.wait("!document.querySelector('#help').open")
    tab.press("/")
    tab.wait("document.activeElement.id === 'box' && !document.activeElement.value")
    # Round the whole page by Tab: everything that can be used comes by, and shows it.
    tab.run("document.activeElement.blur(); document.querySelector('.skip').focus(); 0")
    seen = set()
    for _ in range(60):
        tab.press("Tab")
        at = tab.run("(n => n === document.body ? '' : n.id || n.name || n.textContent.slice(0, 20) || n.tagName)(document.activeElement)")
        if not at or at in seen and len(seen) > 15:
            break
        seen.add(at)
        shown = tab.run("(s => s.outlineStyle !== 'none' || document.activeElement.id === 'box')(getComputedStyle(document.activeElement))")
        check("the focus is seen on " + at, shown)
    wanted = {"new", "one", "two", "…", "export-all", "import", "open-key", "open-help", "menu", "open-about", "edit", "copy", "again", "box", "effort"}
    check("Tab reaches everything", wanted <= seen, wanted - seen)
    tab.run("[...document.querySelectorAll('#list a')].find(a => a.textContent === 'one').focus()")
    tab.press("Enter")
    tab.wait("document.querySelector('#title').textContent === 'one'")


def case_phone(pages):
    tab = pages.open()
    ask(tab, "@@sample please " + "y" * 200, 1)
    for width in (320, 390):
        tab.size(width, 700, phone=True)
        for name in "conversation", "edit":
            if name == "edit":
                tab.click(".question [name=edit]")
                tab.wait("!!document.querySelector('.edit button')")
            wide = tab.run("""(() => {
                const out = [], page = document.scrollingElement;
                if (page.scrollWidth > %d || innerWidth > %d) out.push('the page: ' + page.scrollWidth + ' ' + innerWidth);
                const pane = document.querySelector('#scroll');
                if (pane.scrollWidth > pane.clientWidth) out.push('the conversation: ' + pane.scrollWidth);
                for (const n of document.querySelectorAll('#page *')) {
                  const r = n.getBoundingClientRect();
                  if (r.width && (r.right > %d + 1 || r.left < -1) && !n.closest('.table, pre, .hidden')) out.push(n.tagName + '.' + n.className);
                }
                return out.slice(0, 5);
              })()""" % (width, width, width))
            check(f"nothing is wider than {width} pixels ({name})", not wide, wide)
        tab.run("document.querySelector('.edit button').click()")
    # The list is a drawer.
    check("the list is away", tab.run("getComputedStyle(document.querySelector('#side')).visibility") == "hidden")
    tab.click("#menu")
    tab.wait("getComputedStyle(document.querySelector('#side')).visibility === 'visible' && document.querySelector('#page').inert")
    tab.press("Escape")
    tab.wait("!document.querySelector('#page').inert && document.activeElement.id === 'menu'")
    # Enter is a new line there.
    tab.run("document.querySelector('#box').focus()")
    tab.type("hello")
    tab.press("Enter")
    check("Enter does not send", tab.run("document.querySelector('#box').value") == "hello\n")
    tab.click("#send")
    settle(tab, 2)
    sizes = tab.run("[...document.querySelectorAll('#top button, #composer button, .foot button')].filter(n => n.getClientRects().length).map(n => Math.round(n.getBoundingClientRect().height))")
    check("buttons for fingers", min(sizes) >= 28, sizes)


CONTRAST = """(() => {
    const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return c.startsWith('color(') ? [m[0] * 255, m[1] * 255, m[2] * 255, m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1]; };
    const over = (a, b) => a[3] === 1 ? a : [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
    const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
    const ground = n => { const all = []; for (; n; n = n.parentElement) { const c = parse(getComputedStyle(n).backgroundColor); all.push(c); if (c[3] === 1) break; } return all.reduceRight((b, a) => over(a, b), parse(getComputedStyle(document.body).backgroundColor)); };
    const out = [], shown = n => n.checkVisibility({visibilityProperty: true}) && !n.closest('.hidden, .skip, [inert]');
    const open = document.querySelector('dialog[open]');
    const texts = document.createTreeWalker(open || document.body, NodeFilter.SHOW_TEXT);
    let n = 0;
    for (let t; (t = texts.nextNode());) {
      const e = t.parentElement;
      if (!t.data.trim() || !shown(e) || e.closest('script, style, noscript') || !open && e.closest('dialog')) continue;
      const r = ratio(over(parse(getComputedStyle(e).color), ground(e)), ground(e));
      n++;
      if (r < 4.5) out.push(r.toFixed(2) + ' ' + (e.className || e.tagName) + ': ' + t.data.trim().slice(0, 30));
    }
    for (const e of (open || document).querySelectorAll('textarea, input:not([type=checkbox]), #composer, button.icon svg')) {
      const box = e.id === 'box' ? e.closest('form') : e;
      if (!shown(box)) continue;
      const r = ratio(parse(getComputedStyle(box)[e.tagName === 'svg' ? 'stroke' : 'borderTopColor']), ground(box.parentElement));
      n++;
      if (r < 3) out.push(r.toFixed(2) + ' edge of ' + (box.id || box.tagName));
    }
    return n < 5 ? ['nothing to measure'] : out;
  })()"""


def unnamed(tab):
    """Controls that the accessibility tree has no name for."""
    wanted = {"button", "link", "textbox", "combobox", "checkbox", "spinbutton", "searchbox", "dialog", "region", "complementary", "log", "DisclosureTriangle"}
    out = []
    for node in tab.call("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value")
        if not node.get("ignored") and role in wanted and not node.get("name", {}).get("value", "").strip():
            out.append(role)
    return out


def case_looks(pages):
    """Contrast (WCAG AA) and names of all controls, in every state, light and dark."""
    tab = pages.open()
    states = [
        ("empty", lambda: None),
        ("answer", lambda: ask(tab, "@@sample please", 1)),
        ("versions", lambda: (tab.click(".answer [name=again]"), settle(tab, 1))),
        ("failed", lambda: (send(tab, "@@fail please"), tab.wait("!!" + TROUBLE))),
        ("notices", lambda: tab.run("notice('a', 'It was deleted.', '', 'Undo', () => 0); notice('b', 'It is full.', 'bad'); 0")),
        ("edit", lambda: tab.click(".question [name=edit]")),
        ("running", lambda: (tab.press("Escape"), send(tab, "@@slow please"), tab.wait(LAST + ".includes('word3')"))),
        ("about", lambda: (settle(tab, 3), tab.run("openAbout(state.chat)"))),
        ("key", lambda: tab.run("document.querySelector('#about').close(); askKey()")),
        ("help", lambda: tab.run("document.querySelector('#key').close(); document.querySelector('#help').showModal()")),
    ]
    for name, enter in states:
        enter()
        for scheme in "light", "dark":
            tab.media(scheme)
            found = tab.run(CONTRAST)
            check(f"contrast, {name}, {scheme}", not found, found[:6])
        check(f"names, {name}", not unnamed(tab), unnamed(tab))
    tab.run("document.querySelector('#help').close()")
    tab.media("light", motion="reduce")
    send(tab, "@@slow please")
    tab.wait("!!document.querySelector('.busy')")
    check("reduced motion", tab.run("getComputedStyle(document.querySelector('.busy'), '::before').animationName") == "none")
    check("headings in order", tab.run("[...document.querySelectorAll('#page h1, #page h2, #page h3, #page h4')].map(h => +h.tagName[1]).every((level, i, all) => level - (all[i - 1] ?? 0) <= 1 || level === 4)"))


def case_tabs(pages):
    one = pages.open()
    ask(one, "@@default hello", 1)
    two = pages.open(one.run("location.hash"))
    two.wait("document.querySelectorAll('.answer').length === 1")
    send(one, "@@slow please")
    two.wait("document.querySelectorAll('.answer').length === 2")
    two.wait(LAST + ".includes('word3')")
    settle(one, 2)
    settle(two, 2)
    check("both have all of it", one.run(LAST) == two.run(LAST) == WORDS)
    send(one, "@@slow please")
    two.wait("document.querySelectorAll('.answer').length === 3")
    two.wait(LAST + ".includes('word3')")
    two.press("Escape")
    settle(two, 3)
    settle(one, 3)
    check("one stops for both", one.run(FACTS).startswith("stopped"), one.run(FACTS))
    one.run("document.querySelector('#open-about').click()")
    one.wait("document.querySelector('#about').open")
    one.run("document.querySelector('#about-name').select()")
    one.type("renamed")
    one.press("Enter")
    two.wait("document.querySelector('#title').textContent === 'renamed' && document.querySelector('#list a').textContent === 'renamed'")


def case_storage(pages):
    tab = pages.browser.tab(pages.server.url)  # quotas can be set outside of contexts only
    tab.wait("!!document.querySelector('#model').textContent")
    # Before the first write: the browser remembers for a while how much room there was.
    origin = tab.run("location.origin")
    tab.call("Storage.overrideQuotaForOrigin", origin=origin, quotaSize=1000)
    ask(tab, "@@default hello", 1)
    tab.wait("document.querySelector('#notices').textContent.includes('storage is full')")
    check("the conversation is still there", tab.run(LAST) == "Hello, you.")
    tab.run("newChat()")
    tab.run("location.hash = [...state.chats.keys()][0]; 0")
    tab.wait("document.querySelectorAll('.answer').length === 1")
    check("also when one comes back to it", tab.run(LAST) == "Hello, you.")
    tab.call("Storage.overrideQuotaForOrigin", origin=origin)
    ask(tab, "@@default again", 2)
    tab.wait("!document.querySelector('#notices').textContent")
    tab.reload()
    tab.wait("document.querySelectorAll('.answer').length === 2")
    check("what had no room is kept after all", tab.run("unsaved.size") == 0)
    # No storage at all.
    tab.call("Page.addScriptToEvaluateOnNewDocument", source="IDBFactory.prototype.open = () => { throw new Error('none'); };")
    tab.reload()
    tab.wait("document.querySelector('#notices').textContent.includes('keeps no data')")
    tab.run("newChat()")
    ask(tab, "@@default hello", 1)
    check("it works without", tab.run(LAST) == "Hello, you.")


def case_files(pages):
    tab = pages.open()
    ask(tab, "@@sample please", 1)
    tab.click(".answer [name=again]")
    settle(tab, 1)
    tab.run("""window.saved = null;
        const create = URL.createObjectURL;
        URL.createObjectURL = blob => { window.saved = blob; return create.call(URL, blob); };
        HTMLAnchorElement.prototype.click = function () { window.savedName = this.download; };
        document.querySelector('#export-all').click(); 0""")
    text = tab.wait("window.saved && window.saved.text()")
    data = json.loads(text)
    check("what is exported", data["format"] == "sol-conversations" and len(data["conversations"][0]["messages"]) == 3 and tab.run("savedName") == "conversations.json", text[:200])
    importing = "importFile(new File([%s], 'x.json')).then(() => document.querySelector('#notices').textContent)"
    other = Pages(pages.browser, pages.url).open()
    other.run(importing % json.dumps(text))
    other.run("location.hash = [...state.chats.keys()][0]; 0")
    other.wait("document.querySelectorAll('.answer').length === 1")
    check("the same is imported", other.run(VERSIONS % ".answer") == "‹2 / 2›" and other.run(LAST) == tab.run(LAST))
    messages = data["conversations"][0]["messages"]
    bad = ["", "{", "[]", "null", '{"format":"sol-conversations","version":2,"conversations":[]}', '{"format":"sol-conversations","version":1,"conversations":[null]}',
           json.dumps(dict(data, conversations=[{"messages": messages[::-1]}])), json.dumps(dict(data, conversations=[{"messages": [dict(messages[0], text=7)]}])),
           json.dumps(dict(data, conversations=[{"messages": [dict(messages[0], role="system")]}])), json.dumps(dict(data, conversations=[{"messages": [dict(messages[0], parent=messages[0]["id"])]}]))]
    for one in bad:
        said = other.run(importing % json.dumps(one))
        check("refused with a reason: " + one[:60], "x.json cannot be imported: " in said, said)
    odd = dict(data, conversations=[{"title": 5, "leaf": "nobody", "temperature": "hot", "effort": "most", "messages": [
        dict(messages[0], created="x"), dict(messages[1], usage="none", thought={}, status="running", reasoning=3, ended=[])]}])
    other.run(importing % json.dumps(json.dumps(odd)))
    check("only what was good came", other.run("state.chats.size") == 2)
    other.run("location.hash = [...state.chats.values()].find(c => c.title === 'Untitled').id; 0")
    other.wait("document.querySelectorAll('.answer').length === 1 && document.querySelector('.facts').textContent.startsWith('stopped')")
    # Deleted, and back.
    tab.run("openAbout(state.chat)")
    tab.click("#about-delete")
    tab.wait("!document.querySelector('article') && document.querySelector('#list').textContent.includes('No conversations')")
    tab.click("#notices [name=act]")
    tab.wait("document.querySelectorAll('.answer').length === 1")
    tab.reload()
    tab.wait("document.querySelectorAll('.answer').length === 1")
    tab.run("openAbout(state.chat)")
    tab.click("#about-delete")
    tab.wait("document.querySelector('#list').textContent.includes('No conversations')")
    tab.reload()
    tab.wait("document.querySelector('#list').textContent.includes('No conversations')")
    left = tab.run("readAll('messages').then(all => all.length)")
    check("nothing is left", left == 0, left)


def case_settings(pages):
    tab = pages.open()
    tab.run("document.querySelector('#effort').value = 'none'; document.querySelector('#effort').dispatchEvent(new Event('change')); openAbout(state.chat)")
    tab.run("document.querySelector('#about-system').value = 'Be brief.'; document.querySelector('#about-temperature').value = '0.5'; document.querySelector('#about').close()")
    tab.wait("!document.querySelector('#about').open && state.chat.temperature === 0.5")
    ask(tab, "@@default hello", 1)
    body = tab.run("JSON.parse(question([...state.messages.values()].at(-1)))")
    check("they are sent", (body["instructions"], body["temperature"], body["reasoning"]) == ("Be brief.", 0.5, {"effort": "none"}), body)
    tab.reload()
    settle(tab, 1)
    check("and kept", tab.run("[state.chat.system, state.chat.temperature, document.querySelector('#effort').value]") == ["Be brief.", 0.5, "none"])


def case_errors(pages):
    tab = pages.open()
    send(tab, "@@fail please")
    tab.wait(f"{TROUBLE}.includes('the device failed')")
    check("what came is kept", "Half" in tab.run(LAST), tab.run(LAST))
    send(tab, "@@busy please")
    tab.wait("[...document.querySelectorAll('.trouble:not([hidden])')].at(-1).textContent.match(/^The server is busy. Trying again in [12] s/) !== null")
    tab.press("Escape")
    settle(tab, 2)
    send(tab, "@@default " + "many words " * 8000)
    tab.wait("[...document.querySelectorAll('.trouble:not([hidden])')].at(-1).textContent.startsWith(\"The conversation is longer than the model's context\")")


def case_gone(pages):
    below = Pages(pages.browser, pages.proxy.url)
    tab = below.open()
    check("below a path", tab.run("location.pathname") == "/below/")
    send(tab, "@@slow please")
    tab.wait(LAST + ".includes('word3')")
    pages.proxy.cut()
    tab.wait(f"{TROUBLE}.startsWith('The server does not answer. Trying again in ')")
    pages.proxy.down = False
    tab.click(".trouble [name=now]")
    settle(tab, 1)
    check("whole after a cut", tab.run(LAST) == WORDS, tab.run(LAST))
    pages.proxy.cut()
    send(tab, "@@default hello")
    tab.wait("!!" + TROUBLE)
    pages.proxy.down = False
    settle(tab, 2)
    check("asked again by itself", tab.run(LAST) == "Hello, you.")


def case_killed(pages):
    """The server dies in the middle and is started again: what came is kept, and one can go on."""
    command = [os.path.join(BUILD, "serve_scripted"), os.path.join(pages.folder, "answers.json")]
    server = Server(*command, "0", os.path.join(pages.folder, "responses"))
    try:
        tab = pages.browser.tab(server.url, pages.browser.context())
        send(tab, "@@slow please")
        tab.wait(LAST + ".includes('word3')")
        server.process.kill()
        server.process.wait()
        tab.wait(f"{TROUBLE}.startsWith('The server does not answer. Trying again in ')")
        server = Server(*command, str(server.port), os.path.join(pages.folder, "responses"))
        tab.wait(TROUBLE + ".startsWith('the server ended before the response was complete')", 60)
        check("what came is kept", tab.run(LAST).startswith("word0 word1 word2 word3"), tab.run(LAST))
        tab.click(".trouble [name=again]")
        settle(tab, 1)
        check("another answer", tab.run(LAST) == WORDS and tab.run(VERSIONS % ".answer") == "‹2 / 2›", tab.run(LAST))
    finally:
        server.close()


def case_key(pages):
    """sol serve itself, with a key and the model that comes with it."""
    path = os.path.join(pages.folder, "keys")
    with open(path, "w") as file:
        file.write("me secret-of-mine\n")
    server = Server(SOL, "serve", "--port", "0", "--api-key-file", path, "--threads", "1", "--responses", "none")
    try:
        tab = pages.browser.tab(server.url, pages.browser.context())
        tab.wait("document.querySelector('#key').open")
        tab.type("wrong")
        tab.press("Enter")
        tab.wait("document.querySelector('#key').open && !document.querySelector('#key-text').value")
        tab.type("secret-of-mine")
        tab.press("Enter")
        tab.wait("document.querySelector('#model').textContent === 'builtin'")
        check("kept for the tab alone", tab.run("Object.keys(localStorage).some(k => k.endsWith('key'))") is False)
        send(tab, "Hello")
        tab.wait(LAST + ".length > 20 || document.querySelector('.reasoning:not([hidden])')?.textContent.length > 60 || !document.querySelector('.busy')", 60)
        tab.press("Escape")
        settle(tab, 1)
        tab.reload()
        tab.wait("document.querySelector('#model').textContent === 'builtin'")
        check("no trouble", not tab.run(TROUBLE), tab.run(TROUBLE))
        check("no complaints", not tab.complaints(), tab.complaints())
    finally:
        server.close()


def case_nanochat(pages):
    """A model without levels of reasoning, of random weights: no effort can be chosen, and none is sent."""
    words = os.path.join(os.environ["SOL_SOURCE_DIR"], "tests", "data", "tokenizer_nanochat.json")
    server = Server(SOL, "serve", "--port", "0", "-m", "synth:tiny", "--vocab", words, "--threads", "1", "--responses", "none",
                    "--context", "512")
    try:
        tab = pages.browser.tab(server.url, pages.browser.context())
        tab.wait("document.querySelector('#model').textContent.startsWith('synth')")
        check("no choice of effort", tab.run("document.querySelector('#effort').offsetParent === null"))
        send(tab, "Hello")
        tab.wait(LAST + ".length > 20", 60)
        tab.press("Escape")
        settle(tab, 1)
        check("no trouble", not tab.run(TROUBLE), tab.run(TROUBLE))
    finally:
        server.close()


def main():
    binary = find_browser()
    if not binary:
        print("no chromium here (tools/setup shots installs it)")
        return 77
    folder, wanted = sys.argv[1], sys.argv[2:]
    answers = os.path.join(folder, "answers.json")
    with open(answers, "w") as file:
        json.dump(ANSWERS, file)
    server = Server(os.path.join(BUILD, "serve_scripted"), answers)
    proxy = Proxy(server.port)
    browser = Browser(binary, os.path.join(folder, "profile"))
    failed = 0
    try:
        for name, case in [(n[5:], f) for n, f in globals().items() if n.startswith("case_")]:
            if wanted and name not in wanted:
                continue
            begin, pages = time.monotonic(), Pages(browser, server.url)
            pages.server, pages.proxy, pages.folder = server, proxy, folder
            try:
                case(pages)
                print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
            except (AssertionError, RuntimeError, TimeoutError) as error:
                print(f"FAILED: {name}: {error}", flush=True)
                failed += 1
            browser.call("Target.disposeBrowserContext", browserContextId=pages.context)
    finally:
        browser.close()
        server.close()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
