#!/usr/bin/env python3
"""sol chat as a person uses it: lines are edited, answers stream and are stopped, a conversation is saved and goes on.

usage: chat_terminal.py FOLDER [NAME]...    (with SOL_BINARY set, as cli_chat_terminal.sh does; NAME: a test alone)
"""
import fcntl
import hashlib
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

SOL = os.environ["SOL_BINARY"]
SLOW = 10 if os.environ.get("SOL_SANITIZED") or os.environ.get("SOL_EMULATED") else 1
PROMPT = r"(?:^|[\r\n])> $"
NEVER_ENDS = ["--effort", "none", "--temperature", "1000", "--seed", "5"]
STYLES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Talk:
    """A running sol chat and what its terminal has shown."""

    def __init__(self, folder, *arguments, **environment):
        self.shown = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "HOME": folder, "XDG_STATE_HOME": folder + "/state"}, **environment)
            os.environ.pop("NO_COLOR", None)
            os.chdir(folder)
            os.execv(SOL, [SOL, "chat", "-t", "1", *arguments])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))

    def read(self, seconds):
        """More of what is shown; False when there is no more."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.terminal, 65536)
        except OSError:
            data = b""
        self.shown += data
        return bool(data)

    def text(self):
        return STYLES.sub(b"", self.shown).decode(errors="replace")

    def wait(self, pattern, seconds=30):
        """Until the text shown since the last call ends in, or has, the pattern. Returns that text."""
        end = time.monotonic() + seconds * SLOW
        while not re.search(pattern, self.text()):
            if time.monotonic() > end or not self.read(0.1):
                raise AssertionError(f"no {pattern!r} in {self.shown!r}")
        text, self.shown = self.text(), b""
        return text

    def type(self, data):
        os.write(self.terminal, data if isinstance(data, bytes) else data.encode())

    def say(self, line):
        """A line, and all that comes before the next prompt."""
        self.type(line + "\r")
        return self.wait(PROMPT)

    def status(self):
        """The exit status, at the end."""
        end = time.monotonic() + 30 * SLOW
        while self.read(0.1):
            if time.monotonic() > end:
                raise AssertionError(f"it does not end: {self.shown!r}")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def leave(self):
        self.type(b"\x04")
        status = self.status()
        assert status == 0, status


def saved(folder, name):
    """What a file says of a conversation: (role or channel, text) of its messages."""
    data = open(os.path.join(folder, name), "rb").read()
    return [(m.get("channel") or m["role"], m["content"][0].get("text") or m["content"][0].get("instructions"))
            for m in json.loads(data[:data.index(b"\0")])["messages"]]


def test_history(folder):
    talk = Talk(folder, "-n", "24")
    talk.wait(PROMPT)
    talk.say("H\u00e4llo W\u65e5ld")
    talk.type("\x1b[A")
    talk.wait("H\u00e4llo W\u65e5ld")
    talk.type("!\r")
    talk.wait(PROMPT)
    talk.say("/save talk")
    talk.leave()
    said = [text for who, text in saved(folder, "talk") if who == "user"]
    assert said == ["H\u00e4llo W\u65e5ld", "H\u00e4llo W\u65e5ld!"], said
    history = open(folder + "/state/sol/chat_history", encoding="utf-8").read().split("\n")
    assert history == ["H\u00e4llo W\u65e5ld", "H\u00e4llo W\u65e5ld!", "/save talk", ""], history
    assert os.stat(folder + "/state/sol/chat_history").st_mode & 0o777 == 0o600
    talk = Talk(folder, "-n", "24")  # another program has them too
    talk.wait(PROMPT)
    talk.type("\x1b[A\x1b[A")
    talk.wait("H\u00e4llo W\u65e5ld!")
    talk.type("\x12")  # and looks for them
    talk.wait("bck:")
    talk.type("\x03")
    talk.wait(PROMPT)
    talk.leave()


def test_lines(folder):
    talk = Talk(folder, "-n", "24")
    talk.wait(PROMPT)
    talk.type("orld\x7f\x7f\x01Hello W\x05d away\x17\r")  # back, to the front, to the end, a word away
    talk.wait(PROMPT)
    talk.type("one\\\r")
    talk.wait(r"\. $")
    talk.say("two")
    talk.say("   ")  # nothing to say
    talk.say("  /slash")
    talk.say("/save talk")
    talk.leave()
    said = [text for who, text in saved(folder, "talk") if who == "user"]
    assert said == ["Hello Word ", "one\ntwo", "  /slash"], said


def test_interrupts(folder):
    talk = Talk(folder, *NEVER_ENDS, "--slow", "head=9000")  # or it may end by itself
    talk.wait(PROMPT)
    talk.type("\x03")
    assert "Ctrl-D or /quit leaves" in talk.wait(PROMPT)
    talk.type("some words")
    talk.wait("some words")  # a terminal forgets with Ctrl-C what nobody has read
    talk.type("\x03")
    assert "leaves" not in talk.wait(PROMPT)
    for i in range(3):
        talk.type("go\r")
        talk.wait(r"go\s+[^(]{20}")
        talk.type("\x03\x03" if i == 1 else "\x03")  # twice is no reason to lose everything
        talk.wait(r"\(stopped\)\s+> $")
    assert "context" in talk.say("/stats")
    talk.say("/save talk")
    messages = saved(folder, "talk")
    assert [who for who, _ in messages] == ["system", *["user", "final"] * 3], messages
    assert all(text for _, text in messages[1:]), messages
    talk.leave()
    for name, status in (signal.SIGTERM, 143), (signal.SIGHUP, 129):
        talk = Talk(folder)
        talk.wait(PROMPT)
        os.kill(talk.pid, name)
        got = talk.status()
        assert got == status, got


def test_reasoning(folder):
    for option, shown in ("show", True), ("hide", False):
        talk = Talk(folder, "--reasoning", option, "-n", "40")
        talk.wait(PROMPT)
        talk.type("The lamp went out\r")
        while not re.search(PROMPT, talk.text()):
            assert talk.read(30)
        dimmed = re.findall(rb"\x1b\[2m(.*?)\x1b\[0m", talk.shown, re.S)
        assert len(dimmed) == 1, talk.shown
        hidden = dimmed[0].startswith(b"thinking ...\r\x1b[K")
        assert hidden != shown and (len(dimmed[0]) > 20) == shown, dimmed
        talk.leave()
    talk = Talk(folder, "-n", "40", TERM="dumb")
    talk.wait(PROMPT)
    assert re.search(r"\[reasoning\]\s.*\[answer\]\s", talk.say("The lamp went out"), re.S)
    talk.leave()


def test_commands(folder):
    talk = Talk(folder, "-n", "30", "--system", "Speak as a lamp.", "--effort", "high")
    talk.wait(PROMPT)
    help_text = talk.say("/help")
    for name in "help", "clear", "save", "load", "system", "effort", "stats":
        assert f"/{name} " in help_text, help_text
    assert "no command /sav; did you mean /save?" in talk.say("/sav")
    assert "takes no argument" in talk.say("/clear all")
    assert "name a file" in talk.say("/save")
    assert "effort 'much'" in talk.say("/effort much")
    assert "cannot open" in talk.say("/load nothing")
    open(folder + "/strange", "wb").write(b"\x1b[31mno conversation")
    assert "sol: error" in talk.say("/load strange")
    talk.say("The lamp")
    assert re.search(r"last turn +prompt of \d+ tokens, 0 of them .*\n.*tokens/s", talk.say("/stats"))
    talk.say("went out")
    assert not re.search(r"tokens, 0 of them kept", talk.say("/stats"))
    talk.say("/save one")
    talk.say("/system Speak as a candle.")
    talk.say("/effort none")
    assert "reasoning" not in talk.say("and on")
    talk.say("/save two")
    talk.say("/clear")
    talk.say("/save three")
    talk.say("/system")
    talk.say("/save four")
    assert b'"reasoning_effort": "High"' in open(folder + "/one", "rb").read()
    one, two, three, four = (saved(folder, name) for name in ("one", "two", "three", "four"))
    assert one[1] == ("developer", "Speak as a lamp.") and two[1] == ("developer", "Speak as a candle.")
    assert two[2:2 + len(one) - 2] == one[2:] and [who for who, _ in two[-2:]] == ["user", "final"]
    assert three == two[:2] and four == two[:1]
    talk.type("/quit\r")
    assert talk.status() == 0


def test_guesses(folder):
    """The same conversation with and without; they are counted."""
    saves = []
    for more in [], ["--draft", "8"]:
        talk = Talk(folder, "-n", "60", "--exact", "--seed", "4", *more)
        talk.wait(PROMPT)
        for text in "Say: one two three one two three.", "Again, please.":
            talk.say(text)
        counts = re.search(r"\d+ tokens guessed, \d+ of them right; \d+ steps", talk.say("/stats"))
        assert bool(counts) == bool(more), counts
        talk.say("/save guesses")
        saves.append(saved(folder, "guesses"))
        talk.leave()
    assert len(saves[0]) > 4 and saves[0] == saves[1], saves


def test_save_and_load(folder):
    """What is said after /load is what would have been said."""
    greedy = ["--greedy", "-n", "80"]
    talk = Talk(folder, *greedy)
    talk.wait(PROMPT)
    talk.say("The lamp went out.")
    talk.say("It was dark.")
    talk.say("/save talk")
    wanted = talk.say("Nobody came.")
    stats = talk.say("/stats").split("first token")[0]
    talk.leave()
    talk = Talk(folder, *greedy)
    talk.wait(PROMPT)
    assert re.search(r"Loaded \d+ messages", talk.say("/load talk"))
    assert talk.say("Nobody came.") == wanted
    assert talk.say("/stats").split("first token")[0] == stats
    talk.leave()


def test_full_context(folder):
    talk = Talk(folder, "-c", "512", "-n", "60", "--system", "Speak as a lamp.")
    talk.wait(PROMPT)
    before = None
    for i in range(12):
        shown = talk.say(f"Message {i}. " + "The lamp went out. " * 3)
        left = re.search(r"the context of 512 tokens is full: the oldest (\d+) messages", shown)
        if left:
            talk.say("/save after")
            after = saved(folder, "after")
            assert after[:2] == before[:2] and after[1][1] == "Speak as a lamp.", after
            gone = int(left[1])
            assert after[2:2 + len(before) - 2 - gone] == before[2 + gone:], (before, after)
            assert after[2][0] == "user", after  # turns leave as a whole
            break
        talk.say("/save before")
        before = saved(folder, "before")
    else:
        raise AssertionError("the context is never full")
    assert "message is too long" in talk.say("a long story " * 200)  # and changes nothing
    talk.say("/save again")
    assert saved(folder, "again") == after
    talk.say("go on")
    talk.leave()


def test_nothing_before(folder):
    """A loaded conversation that begins with the user, too long in one message and in many."""
    talk = Talk(folder, "-c", "512", "-n", "60", "--effort", "none")
    talk.wait(PROMPT)
    talk.say("/save whole")
    data = open(folder + "/whole", "rb").read()
    head = json.loads(data[:data.index(b"\0")])
    for messages in [], [{"role": "user", "content": "The lamp went out. " * 8}] * 2:
        data = json.dumps(head | {"messages": messages, "tokens": [], "snapshots": []}).encode() + b"\0"
        open(folder + "/bare", "wb").write(data + hashlib.sha256(data).hexdigest().encode() + b"\n")
        assert f"Loaded {len(messages)} messages" in talk.say("/load bare")
        assert "message is too long" in talk.say("a long story " * 200)
        shown = [talk.say("The lamp went out. " * 15) for _ in range(6)]
        assert any("messages have left" in text for text in shown), shown
    talk.leave()


def test_first_message(folder):
    open(folder + "/story", "w").write("The lamp went out.\n")
    talk = Talk(folder, "-n", "20", "-p", "Go on:", "story")
    talk.wait(PROMPT)
    talk.say("/save talk")
    assert saved(folder, "talk")[1] == ("user", "Go on:\n\nThe lamp went out.")
    talk.leave()


def test_without_libedit(folder):
    talk = Talk(folder, "-n", "20", SOL_LIBEDIT="/nonexistent")
    shown = talk.wait(PROMPT)
    assert shown.count("install libedit2") == 1, shown
    talk.say("The lamp\x7f\x7f\x7f\x7fcandle")
    talk.type("\x03")
    assert "leaves" in talk.wait(PROMPT)
    talk.say("/save talk")
    assert saved(folder, "talk")[1] == ("user", "The candle")
    talk.leave()


def test_damaged_history(folder):
    os.makedirs(folder + "/state/sol")
    path = folder + "/state/sol/chat_history"
    open(path, "wb").write(b"".join(b"line %d\n" % i for i in range(3000)) + b"\xff\x1b[31m\nlast\ncut")
    talk = Talk(folder, "-n", "20")
    talk.wait(PROMPT)
    talk.type("\x1b[A")
    talk.wait("last")
    talk.type("\x1b[A")
    talk.wait("31m")
    talk.type("\x03")
    talk.wait(PROMPT)
    talk.leave()
    assert open(path, "rb").read().count(b"\n") == 1000
    os.remove(path)
    os.mkdir(path)
    talk = Talk(folder, "-n", "20")
    assert "no history" in talk.wait(PROMPT)
    talk.say("hello")
    talk.leave()


def test_nothing_steers_the_terminal(folder):
    master, terminal = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(terminal, 1)
        os.environ["NO_COLOR"] = "1"
        os.execv(SOL, [SOL, "chat", "-t", "1", "-q", "-p", "go", "-n", "700", *NEVER_ENDS])
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(master, 65536)
        except OSError:
            break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(shown) > 1000 and rb"\x" in shown, shown[:200]
    assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]", shown)


def main():
    folder, *names = sys.argv[1:]
    failures = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or (names and name not in names):
            continue
        place = os.path.join(folder, name)
        os.mkdir(place)
        began = time.monotonic()
        try:
            test(place)
        except AssertionError as error:
            failures += 1
            print(f"FAILED: {name}, line {error.__traceback__.tb_next.tb_lineno}: {error}"[:2000])
        if os.environ.get("SOL_TIMES"):
            print(f"{name}: {time.monotonic() - began:.1f} s")
    sys.exit(failures > 0)


main()
