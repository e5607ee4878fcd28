#!/usr/bin/env python3
"""Kills sol at random moments of every command that writes, then asks: is anything of the user's gone?

usage: tests/soak_kills.py SOL [--kills N] [--seed S]

Two kinds of work. "opt": a git tree with many changed files, staged, deleted and new ones; record, revert,
restore, accept and status are killed in any order. After each kill every content that the user had must be in
the tree (or the index) or in the store. "write": commands that write a file or a folder; after each kill it is
whole, the old or the new, with its mode, and no process of the command is left.
"""
import argparse, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time

SIGNALS = [signal.SIGKILL] * 4 + [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE,
                                  signal.SIGUSR1, signal.SIGABRT, signal.SIGXFSZ, signal.SIGALRM]


class Lost(Exception):
    pass


def read(path):
    with open(path, "rb") as f:
        return f.read()


def in_session(session):
    """Processes of a session that are not zombies."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = read(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in (b"Z", b"X"):
            found.append(int(pid))
    return found


class Runner:
    def __init__(self, sol, seed):
        self.sol, self.random = os.path.abspath(sol), random.Random(seed)
        self.work = tempfile.mkdtemp(prefix="sol-kills-")
        self.environment = dict(os.environ, HOME=self.work, SOL_STORE=self.work + "/store", GIT_CONFIG_NOSYSTEM="1",
                                XDG_CACHE_HOME=self.work + "/cache")
        self.kills, self.times = 0, {}

    def run(self, *words, cwd=None, status=(0,)):
        began = time.monotonic()
        p = subprocess.run([self.sol, *words], cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL,
                           capture_output=True)
        self.times.setdefault(words[:2], time.monotonic() - began)
        if status and p.returncode not in status:
            raise Lost(f"sol {' '.join(words)}: status {p.returncode}: {p.stderr.decode(errors='replace')}")
        return p

    def kill(self, *words, cwd=None):
        """Starts the command, sends a signal at a random moment; sometimes a git of its dies instead."""
        most = self.times.get(words[:2], 0.3) * 1.2 + 0.01
        p = subprocess.Popen([self.sol, *words], cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(self.random.random() ** 1.5 * most)
        how = self.random.choice(SIGNALS)
        whole = self.random.random() < 0.3
        only_git = cwd and self.random.random() < 0.25
        try:
            if not only_git:
                (os.killpg if whole else os.kill)(p.pid, how)
        except ProcessLookupError:
            pass
        self.kills += 1
        if only_git or (how == signal.SIGKILL and self.random.random() < 0.3):
            self.kill_gits(cwd)
        try:
            p.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            raise Lost(f"sol {' '.join(words)} does not end after signal {how.name}")
        for _ in range(100):  # a git that changes files is left to its end; the guard needs a moment
            if not in_session(p.pid) and not self.busy(cwd):
                return how
            time.sleep(0.1)
        raise Lost(f"sol {' '.join(words)}, signal {how.name}: processes are left: {in_session(p.pid)}")

    @staticmethod
    def gits(folder):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = read(f"/proc/{pid}/cmdline").split(b"\0")
            except OSError:
                continue
            if words[0] == b"git" and folder and folder.encode() in words:
                found.append(int(pid))
        return found

    def busy(self, folder):
        return bool(self.gits(folder))

    def kill_gits(self, folder):
        for pid in self.gits(folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


# ---- sol opt ----

class Tree:
    def __init__(self, runner, files):
        self.r, self.path, self.random = runner, runner.work + "/tree", runner.random
        shutil.rmtree(self.path, ignore_errors=True)
        os.mkdir(self.path)
        self.git("init", "-q")
        self.git("config", "user.email", "t@example.org")
        self.git("config", "user.name", "t")
        self.names = [f"d{i % 7}/e{i % 3}/f{i}" for i in range(files)]
        for name in self.names:
            self.write(name, b"base of " + name.encode() + b"\n")
        with open(self.path + "/sol-opt.json", "w") as f:
            json.dump({"benchmark": "cat time", "metrics": ["regex:([0-9.]+)"], "correctness": "true",
                       "perplexity": None, "min_pairs": 6, "max_pairs": 6}, f)
        self.write("time", b"10\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "base")
        self.base = self.git("rev-parse", "HEAD").strip().decode()
        # A copy of what only the user has: the store and the tree are compared with it.
        self.files, self.staged = {}, {}

    def git(self, *words, status=0, environment=None):
        p = subprocess.run(["git", "-C", self.path, *words], env=dict(self.r.environment, **(environment or {})),
                           stdin=subprocess.DEVNULL, capture_output=True)
        if status is not None and p.returncode != status:
            raise Lost(f"git {' '.join(words)}: {p.stderr.decode(errors='replace')}")
        return p.stdout

    def write(self, name, data):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    def change(self, tag):
        """Edits, deletions, new files, and staged contents that no file holds."""
        self.files, self.staged = {}, {}
        for name in self.random.sample(self.names, len(self.names) // 2):
            how = self.random.randrange(5)
            if how == 0:
                os.unlink(os.path.join(self.path, name))
                self.files[name] = None
                continue
            if how == 1:
                data = f"staged {tag} {name}\n".encode()
                self.write(name, data)
                self.git("add", name)
                self.staged[name] = data
            if how == 2:
                name = name + ".new"
            self.files[name] = f"edited {tag} {name}\n".encode() + bytes(self.random.randrange(256) for _ in range(40))
            self.write(name, self.files[name])
        self.write("time", b"%d\n" % self.random.randrange(2, 8))
        self.files["time"] = read(self.path + "/time")

    def present(self, name):
        try:
            return read(os.path.join(self.path, name))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def in_index(self, name):
        p = subprocess.run(["git", "-C", self.path, "show", ":" + name], env=self.r.environment, capture_output=True)
        return p.stdout if p.returncode == 0 else None

    def kept(self):
        """What every recorded change holds: [{name: content}], of trees and of indexes."""
        p = self.r.run("opt", "history", "last", "-o", "json", cwd=self.path)
        iteration = json.loads(p.stdout)["iterations"][0]
        found = []
        for change in iteration["changes"]:
            for kind in ("diff", "staged_diff"):
                number = str(change["number"])
                if change[kind] is None and kind == "staged_diff":
                    continue
                diff = change[kind]
                raw = diff.encode() if diff is not None else self.r.run(
                    "opt", "history", "last", "--diff", "--change", number, cwd=self.path).stdout
                found.append(self.apply(raw))
        return found

    def apply(self, diff):
        index = self.r.work + "/check-index"
        if os.path.exists(index):
            os.unlink(index)
        environment = {"GIT_INDEX_FILE": index}
        self.git("read-tree", self.base, environment=environment)
        with open(self.r.work + "/check.patch", "wb") as f:
            f.write(diff)
        if diff:
            self.git("apply", "--cached", "--whitespace=nowarn", self.r.work + "/check.patch", environment=environment)
        names = self.git("ls-files", "-z", environment=environment).split(b"\0")
        objects = {}
        for line in self.git("ls-files", "-s", "-z", environment=environment).split(b"\0"):
            if line:
                objects[line.split(b"\t", 1)[1].decode()] = line.split()[1]
        return {"names": {n.decode() for n in names if n}, "objects": objects}

    def hash(self, data):
        import hashlib
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest().encode()

    def check(self, what):
        changes = None
        for table, now in ((self.files, self.present), (self.staged, self.in_index)):
            for name, data in table.items():
                if now(name) == data:
                    continue
                if changes is None:
                    changes = self.kept()
                good = any((name not in c["names"]) if data is None else c["objects"].get(name) == self.hash(data)
                           for c in changes)
                if not good and not (data is not None and self.present(name) == data):
                    raise Lost(f"after {what}: {name} is gone from the tree and from {len(changes)} changes")

    def finish(self, *words):
        """The command must complete now; a lock that a killed git left has to be named."""
        for _ in range(4):
            p = self.r.run(*words, cwd=self.path, status=None)
            if p.returncode == 0:
                return p
            lock = re.search(rb"(/\S+\.lock) exists", p.stderr)
            if not lock:
                raise Lost(f"sol {' '.join(words)}: {p.returncode}: {p.stderr.decode(errors='replace')}")
            os.unlink(lock.group(1))
        raise Lost(f"sol {' '.join(words)} never ends well")


def opt_round(r, kills, files):
    tree = Tree(r, files)
    done = 0
    while done < kills:
        tree.finish("opt", "start", "try", "-q")
        tree.change(r.kills)
        for words in (("opt", "record", "-q"), ("opt", "revert", "-q"), ("opt", "restore", "-q"), ("opt", "status", "-q")):
            r.times.setdefault(words[:2], 0.15)
        for _ in range(min(6, kills - done)):
            words = r.random.choice([("opt", "record", "-q"), ("opt", "revert", "-q"), ("opt", "revert", "-q"),
                                     ("opt", "restore", "-q"), ("opt", "status", "-q"), ("opt", "compare", "-q"),
                                     ("opt", "accept", "-q")])
            how = r.kill(*words, cwd=tree.path)
            done += 1
            tree.check(f"{' '.join(words)}, {how.name}")
        # Whatever state this left: the same commands end well, and everything can come back.
        tree.finish("opt", "status", "-q")  # an accept that was killed behind its commit is completed
        state = json.loads(tree.finish("opt", "history", "last", "-o", "json").stdout)["iterations"][0]["state"]
        if state == "accepted":
            tree.check("accept")
            tree = Tree(r, files)
            continue
        if state in ("open", "recorded"):
            p = r.run("opt", "revert", "-q", cwd=tree.path, status=None)
            if p.returncode:
                if b".lock exists" not in p.stderr:
                    tree.finish("opt", "record", "-q")
                tree.finish("opt", "revert", "-q")
        tree.check("the last revert")
        dirty = [l for l in tree.git("status", "--porcelain", "-z").split(b"\0") if l]
        if dirty:
            raise Lost(f"after the last revert the tree is not the base's: {dirty[:5]}")


# ---- commands that write files ----

def same_tree(path):
    if not os.path.isdir(path):
        return read(path) if os.path.exists(path) else None
    return {name: read(os.path.join(path, name)) for name in sorted(os.listdir(path))}


def write_round(r, kills):
    work = r.work + "/out"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    model, text = r.work + "/m.gguf", r.work + "/text"
    if not os.path.exists(model):
        r.run("model", "synth", "--like", "tiny", "-o", model)
    with open(text, "w") as f:
        f.writelines(f"the quick brown fox {i} jumps over the lazy dog {i * 7}\n" for i in range(4000))
    r.run("bench", "-m", "builtin", "-p", "8", "-n", "2", "-r", "2", "--no-limits", "-q", "--label", "whole")
    commands = {
        "report": (["report", "whole", "-o", work + "/r.html"], work + "/r.html"),
        "train": (["tok", "train", text, "--vocab-size", "600", "-o", work + "/v.json"], work + "/v.json"),
        "synth": (["model", "synth", "--like", "tiny", "--overwrite", "-o", work + "/s.gguf"], work + "/s.gguf"),
        "convert": (["model", "convert", "-m", model, "-o", work + "/c.gguf", "--overwrite"], work + "/c.gguf"),
        "folder": (["model", "convert", "-m", model, "-o", work + "/hf"], work + "/hf"),
        "bench": (["bench", "-m", "builtin", "-p", "8", "-n", "2", "-r", "2", "--no-limits", "-q"], None),
        "live": (["compare", "--live", "-q", "sleep 0.01", "sh -c 'sleep 30 & sleep 0.02'"], None),
    }
    usable = {}
    for name, (words, target) in commands.items():
        if name == "live":
            usable[name] = (words, target, None)
            continue
        p = r.run(*words, status=None)
        if p.returncode:
            raise Lost(f"sol {' '.join(words)}: {p.returncode}: {p.stderr.decode(errors='replace')}")
        usable[name] = (words, target, same_tree(target) if target else None)
    for _ in range(kills):
        name = r.random.choice(sorted(usable))
        words, target, whole = usable[name]
        old = r.random.random() < 0.5 and name != "folder"
        if target and os.path.isdir(target):
            shutil.rmtree(target)
        if target and old:
            with open(target, "wb") as f:
                f.write(b"old")
            os.chmod(target, 0o640)
        elif target and os.path.exists(target):
            os.unlink(target)
        how = r.kill(*words)
        if not target:
            continue
        found = same_tree(target)
        if found not in ((b"old",) if old else (None,)) and (found is None or len(found) < len(whole) * 0.9):
            raise Lost(f"{name}, {how.name}: the file is neither the old nor the new one ({len(found or b'')} bytes)")
        if old and os.stat(target).st_mode & 0o777 != 0o640:
            raise Lost(f"{name}, {how.name}: the mode is {os.stat(target).st_mode & 0o777:o}")
    told = ""
    for name, (words, target, whole) in usable.items():
        if target and os.path.isdir(target):
            shutil.rmtree(target)
        if name != "live":
            told += r.run(*words).stderr.decode(errors="replace")
    # Folders of killed runs are removed, files are told to the user: one that was killed while it took its name.
    left = [n for n in os.listdir(work) if ".part-" in n and f"{n} beside" not in told]
    if left:
        raise Lost(f"parts are left and not told: {left}")
    states = {run["state"] for run in json.loads(r.run("runs", "-o", "json", "-n", "1000").stdout)["runs"]}
    if "running" in states:
        raise Lost("runs of killed processes are still running")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sol")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--only", choices=["opt", "write"])
    options = parser.parse_args()
    r = Runner(options.sol, options.seed)
    print(f"seed {options.seed}")
    try:
        while r.kills < options.kills:
            part = min(60, options.kills - r.kills)
            if options.only != "write":
                opt_round(r, (part + 1) // 2, options.files)
            if options.only != "opt" and part > 1:
                write_round(r, part // 2)
    except Lost as lost:
        print(f"FAILED after {r.kills} kills (seed {options.seed}): {lost}")
        print(f"the tree and the store are kept in {r.work}")
        return 1
    shutil.rmtree(r.work, ignore_errors=True)
    print(f"{r.kills} kills, nothing lost")
    return 0


sys.exit(main())
