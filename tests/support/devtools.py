"""A browser for tests: chromium, driven over the DevTools protocol through a pipe. Standard library only."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


class Browser:
    """chromium without a window. Messages are JSON with a NUL behind each, on descriptors 3 and 4."""

    def __init__(self, binary, profile):
        to_browser, self.to = os.pipe()
        self.source, from_browser = os.pipe()
        # Without a sandbox, because root and containers have none; the pages are our own.
        command = [binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars",
                   "--remote-debugging-pipe", "--user-data-dir=" + profile, "about:blank"]

        def descriptors():
            # Both are moved out of the way first: either may be 3 or 4 itself.
            a, b = os.dup(to_browser), os.dup(from_browser)
            while min(a, b) < 5:
                a, b = os.dup(a), os.dup(b)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(command, close_fds=False, preexec_fn=descriptors, start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.last, self.events = b"", 0, []

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.source], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.source, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError("the browser says nothing" if not ready else "the browser has ended")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, timeout=60, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        deadline = time.monotonic() + timeout
        while True:
            reply = self.receive(deadline)
            if reply.get("id") == self.last:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error'].get('message')}")
                return reply["result"]
            if "method" in reply:
                self.events.append(reply)

    def tab(self, url="about:blank", context=None):
        return Tab(self, url, context)

    def context(self):
        """Storage of its own, as of another person."""
        return self.call("Target.createBrowserContext")["browserContextId"]

    def close(self):
        try:
            self.call("Browser.close", timeout=10)
            self.process.wait(10)
        except (OSError, TimeoutError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "Delete": (46, ""), "ArrowUp": (38, ""), "Home": (36, ""), "PageUp": (33, "")}


class Tab:
    def __init__(self, browser, url, context):
        self.browser = browser
        extra = {"browserContextId": context} if context else {}
        self.target = browser.call("Target.createTarget", url="about:blank", **extra)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # each tab as if it were in front
        self.size(1280, 800)
        if url != "about:blank":
            self.go(url)

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, **params)

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self):
        self.run("window.before = true")
        self.call("Page.reload")
        self.wait("!window.before && document.readyState === 'complete'")

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def run(self, script):
        """The value of an expression; a promise's, if it is one."""
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            raise RuntimeError(f"{script[:200]}: {details.get('exception', {}).get('description', details.get('text'))}")
        return reply["result"].get("value")

    def wait(self, script, seconds=30):
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = self.run(script)
            except RuntimeError as error:  # the page is just being replaced
                value = None
                if "Cannot find" not in str(error) and "context" not in str(error):
                    raise
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError("never came: " + script)
            time.sleep(0.03)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, ctrl=False, shift=False):
        code, text = KEYS[key] if key in KEYS else (ord(key.upper()), "" if ctrl else key)
        name = key if key in KEYS else "Key" + key.upper() if key.isalpha() else ""
        common = {"key": key, "code": name, "windowsVirtualKeyCode": code, "modifiers": 2 * ctrl + 8 * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector):
        """With the mouse, in the middle of the first that is visible, once it stays where it is and nothing covers it."""
        x, y = self.wait(f"""(async () => {{
            const node = [...document.querySelectorAll({json.dumps(selector)})].find(n => n.getClientRects().length);
            if (!node) return null;
            const middle = () => {{
                node.scrollIntoView({{block: "center", behavior: "instant"}});
                const r = node.getBoundingClientRect();
                return [r.x + r.width / 2, r.y + r.height / 2];
            }};
            const frames = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
            const before = middle();
            await frames();
            const after = middle();
            const there = node.contains(document.elementFromPoint(...after));
            return there && before[0] === after[0] && before[1] === after[1] ? after : null;
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def media(self, scheme="light", motion="no-preference"):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                          {"name": "prefers-reduced-motion", "value": motion}])

    def shot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """Errors of scripts and of the page's policy so far."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"].get("exception", {}).get("description", "exception"))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["source"] in ("security", "javascript", "violation"):
                found.append(event["params"]["entry"]["text"])
        return found
