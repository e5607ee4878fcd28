#!/usr/bin/env bash
# Every tool of sol mcp, without and with permission to run commands, in a tree whose configuration
# tells on whoever runs any of it: what runs without permission, and whether annotations are true.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

# ---- a tree full of traps: whatever is run writes its name to $work/ran ----
tree=$work/tree
mkdir -p "$tree/.git" "$work/home" "$work/cache" "$work/hooks"
export HOME=$work/home XDG_CACHE_HOME=$work/cache GIT_CONFIG_NOSYSTEM=1
cat >"$work/trap" <<END
#!/bin/sh
echo "\$1" >>"$work/ran"
END
chmod +x "$work/trap"
git init -q "$tree"
cd "$tree" || exit 1
git config user.email t@example.org
git config user.name t
for name in one two gone; do seq 100 >$name; done
git add -A
git commit -qm first
# What git would fetch from where the configuration says.
blob=$(git rev-parse HEAD:gone)
seq 101 >gone
git add gone
git commit -qm second
seq 102 >gone
for hook in pre-commit prepare-commit-msg commit-msg post-commit post-checkout post-index-change pre-auto-gc \
    reference-transaction fsmonitor-watchman post-merge post-rewrite applypatch-msg pre-applypatch; do
    printf '#!/bin/sh\n"%s" hook-%s\n' "$work/trap" $hook >"$work/hooks/$hook"
    chmod +x "$work/hooks/$hook"
done
cp "$work/hooks/"* .git/hooks/
rm -f ".git/objects/${blob:0:2}/${blob:2}"
blob=$(git rev-parse HEAD:gone)
rm -f ".git/objects/${blob:0:2}/${blob:2}"
{
    printf '[core]\n\tfsmonitor = "%s fsmonitor"\n\thooksPath = "%s"\n\tpager = "%s pager"\n' \
        "$work/trap" "$work/hooks" "$work/trap"
    printf '\tsshCommand = "%s ssh"\n\teditor = "%s editor"\n' "$work/trap" "$work/trap"
    printf '\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n'
    printf '[remote "origin"]\n\turl = "%s"\n\tpromisor = true\n\tuploadpack = "%s fetch"\n' "$tree" "$work/trap"
    printf '[filter "trap"]\n\tclean = "%s clean; cat"\n\tsmudge = "%s smudge; cat"\n' "$work/trap" "$work/trap"
    printf '[filter "other"]\n\tprocess = "%s process"\n' "$work/trap"
    printf '[diff]\n\texternal = "%s external"\n[diff "trap"]\n\tcommand = "%s command"\n' "$work/trap" "$work/trap"
    printf '\ttextconv = "%s textconv"\n[gpg]\n\tprogram = "%s gpg"\n[commit]\n\tgpgSign = true\n' \
        "$work/trap" "$work/trap"
} >>.git/config
printf 'one filter=trap diff=trap\ntwo filter=other\n' >.gitattributes
sleep 0.01
seq 99 >one
echo 100 >>one
touch two
printf '{"build": "%s build", "benchmark": "%s benchmark", "correctness": "%s correctness", "profile": "%s profile", "perplexity": null}\n' \
    "$work/trap" "$work/trap" "$work/trap" "$work/trap" >sol-opt.json

# ---- runs for the tools to look at; not from within the tree ----
cd "$work" || exit 1
for label in first second; do
    run 0 bench -q --no-limits -p 0 -n 2 -r 2 --label $label
done
rm -f "$work/ran"

cat >"$work/client.py" <<'PY'
import hashlib, json, os, subprocess, sys

work, permission = sys.argv[1], sys.argv[2] == "yes"
words = [os.environ["SOL_BINARY"], "mcp"]
if os.environ.get("SOL_EMULATED"):
    words += ["--program", os.environ["SOL_BINARY"]]
if permission:
    words.append("--allow-commands")
tree, ran = work + "/tree", work + "/ran"
trap = work + "/trap"
arguments = {
    "device": {}, "kernels": {"explain": True, "rows": [1]},
    "bench": {"prompt": [0], "generate": [2], "repetitions": 1, "no_limits": True},
    "profile": {"prompt": 0, "generate": 2, "repetitions": 1},
    "profile_command": {"level": "off", "command": [trap, "profile_command"]},
    "advise": {"run": "first"}, "compare": {"old": "first", "new": "second"},
    "compare_live": {"old": trap + " old", "new": trap + " new", "max_pairs": 6},
    "runs": {}, "run_show": {"run": "first"}, "import": {"files": [work + "/imported.json"]}, "report": {"output": work + "/report.html", "run": "first"},
    "verify": {"ops": ["rmsnorm"], "ops_only": True},
    "gemm_check": {"quick": True}, "gemm_bench": {"shapes": ["m=3;n=8;k=16"], "no_limits": True},
    "tune": {"rows": [1], "budget": 0.01},
    "opt_init": {"preset": "make", "force": True},
    "opt_status": {}, "opt_start": {"hypothesis": "it is faster", "predict_percent": 3, "with_changes": True},
    "opt_benchmark": {}, "opt_profile": {}, "opt_compare": {"max_pairs": 6}, "opt_record": {},
    "opt_accept": {"even_if": "same", "reason": "a test"}, "opt_revert": {}, "opt_restore": {},
    "opt_history": {}, "opt_summary": {}, "more": {"id": "a1"},
}
if os.environ.get("SOL_EMULATED") or os.environ.get("SOL_SANITIZED"):
    for slow in ("device", "profile", "tune", "gemm_check"):
        arguments[slow] = None  # minutes, and natively the same


def snapshot(folder):
    all = {}
    for path, folders, files in os.walk(folder):
        for name in folders + files:
            name = os.path.join(path, name)
            info = os.lstat(name)
            text = b""
            if os.path.isfile(name):
                with open(name, "rb") as f:
                    text = f.read()
            all[name] = (info.st_mode, info.st_size, os.path.isfile(name) and info.st_mtime_ns,
                         hashlib.sha256(text).hexdigest())
    return all


with open(work + "/imported.json", "w") as to:
    json.dump([{"n_prompt": 0, "n_gen": 4, "samples_ns": [400, 401, 402]}], to)


class Server:
    def __init__(self):
        self.process = subprocess.Popen(words, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.id = 0
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                "clientInfo": {"name": "t", "version": "1"}})

    def ask(self, method, params):
        self.id += 1
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.id, answer
        return answer


failures = 0


def fail(*what):
    global failures
    failures += 1
    print("FAILED:", "with permission:" if permission else "without permission:", *what)


def take_ran():
    try:
        with open(ran) as f:
            names = f.read().split()
        os.remove(ran)
        return names
    except FileNotFoundError:
        return []


server = Server()
offered = {tool["name"]: tool["annotations"] for tool in server.ask("tools/list", {})["result"]["tools"]}
if permission and set(offered) != set(arguments):
    fail("this test does not know", set(offered) ^ set(arguments))
ever = []
for name, given in arguments.items():
    if given is None:
        continue
    places = {place: work + "/" + place for place in ("tree", "home", "store", "cache")}
    before = {place: snapshot(folder) for place, folder in places.items()}
    answer = server.ask("tools/call", {"name": name, "arguments": given})
    text = answer.get("result", {}).get("content", [{}])[0].get("text", "")
    after = {place: snapshot(folder) for place, folder in places.items()}
    names = take_ran()
    ever += names
    if name not in offered:
        if permission or "--allow-commands" not in text or not answer["result"]["isError"]:
            fail(name, "is not offered:", answer)
        if names or before != after:
            fail(name, "is not offered and does something:", names)
        continue
    notes = offered[name]
    if names and not notes["openWorldHint"]:
        fail(name, "ran", names)
    if notes["openWorldHint"]:
        if not permission:
            fail(name, "is offered")
        if notes["readOnlyHint"] or not notes["destructiveHint"]:
            fail(name, "promises what a command may break")
        continue
    if not json.loads(text)["ok"] and name not in ("more", "advise"):
        fail(name, "did not work:", text[:500])
    for place in places:
        changed = [path for path in set(before[place]) | set(after[place])
                   if before[place].get(path) != after[place].get(path)]
        lost = [path for path in before[place] if path not in after[place]]
        if notes["readOnlyHint"] and changed:
            fail(name, "says that it reads, and changed", changed)
        if not notes["destructiveHint"] and (changed and place in ("tree", "home") or lost):
            fail(name, "says that it destroys nothing, and changed", changed)
server.process.stdin.close()
if server.process.wait(60) != 0:
    fail("exit status")
if permission and not {"profile_command", "old", "new"} <= set(ever):
    fail("with permission commands do not run:", ever)
if not permission and ever:
    fail("ran:", ever)
sys.exit(failures > 0)
PY
for permission in no yes; do
    cp "$tree/sol-opt.json" "$work/config"
    python3 "$work/client.py" "$work" $permission >"$work/out" 2>"$work/err" || fail "permission: $permission"
    cp "$work/config" "$tree/sol-opt.json" # opt_init replaced it
done

# ---- the traps are set: what sol does not run, git does ----
rm -f "$work/ran"
(cd "$tree" && { git status; git hash-object one; git show HEAD:gone; }) >/dev/null 2>&1
for name in fsmonitor clean fetch; do
    grep -q "^$name" "$work/ran" || fail "the trap $name is not set"
done

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
