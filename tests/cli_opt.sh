#!/usr/bin/env bash
# sol opt: an iteration from start to commit and back, in a small foreign tree. Its "benchmark" prints
# a figure that is written in a file, so that verdicts do not depend on the machine.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
export HOME="$work" GIT_CONFIG_NOSYSTEM=1
tree=$work/tree
command -v git >/dev/null || { echo "skipped: no git"; exit 0; }

# opt STATUS ARGUMENT...
opt() {
    local expected=$1
    shift
    (cd "$tree" && "$SOL_BINARY" opt "$@" -q) >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status = "$expected" ] || fail "sol opt $*: status $status, expected $expected"
    [ $status != 0 ] || [ "$(grep -c '^next: ' "$work/out")" = 1 ] || [ "${json:-}" ] ||
        fail "sol opt $*: not one next step"
}
has() { grep -qE -- "$2" "$work/$1" || fail "no '$2' in $1 ($3)"; }

# The time that the program takes, as it says; its answer; its perplexity.
say() { echo "$1" >"$tree/time"; }
configure() {
    cat >"$tree/sol-opt.json" <<JSON
{"build": "cat time > built", "benchmark": "awk '{print \"took\", \$1, NR + rand() * 0.0001}' built",
 "metrics": ["regex:took ([0-9.]+)"], "correctness": "grep -q right answer || { echo no right answer >&2; exit 1; }",
 "perplexity": "sed s/^/PPL=/ ppl", "perplexity_value": "regex:PPL=([0-9.]+)", "profile": "echo profiled"$1}
JSON
}
make_tree() {
    rm -rf "$tree"
    mkdir -p "$tree"
    (cd "$tree" && git init -q && git config user.email t@example.org && git config user.name t &&
        echo 10 >time && echo right >answer && echo 12.5 >ppl && echo keep >other &&
        git add -A && git commit -qm first) || fail "git"
    configure ""
}

# ---- outside a tree, without a configuration, wrong words ----
mkdir -p "$tree"
opt 2
has err 'not in a git tree' outside
make_tree
rm "$tree/sol-opt.json"
opt 2 start x
has err 'sol opt init' "no configuration"
opt 2 stat
has err "did you mean 'start'|did you mean 'status'" suggestion
opt 2 start x --predict lots
has err 'percentage' "bad prediction"
opt 0 init --preset llama.cpp -m "my model's.gguf"
grep -q "'my model'.*'s.gguf'" "$tree/sol-opt.json" || fail "the model is not quoted"
opt 2 init --preset sol
has err 'force' "init again"
opt 2 init --preset nothing --force
for preset in sol make; do opt 0 init --preset $preset --force; done
echo '{"benchmark": "x", "correctness": "y", "perplexity": null, "metrix": []}' >"$tree/sol-opt.json"
opt 4 start x
has err 'did you mean "metrics"' "unknown key"
echo '{"benchmark": "x", "perplexity": null}' >"$tree/sol-opt.json"
opt 4 start x
has err '"correctness" is missing' "missing key"
echo '{"benchmark": "x", "correctness": null, "perplexity": null}' >"$tree/sol-opt.json"
opt 4 start x
has err 'same_output' "no correctness"
echo '{' >"$tree/sol-opt.json"
opt 4 start x

# ---- faster: from start to a commit ----
make_tree
opt 2 benchmark
has err 'no iteration is open' "before start"
opt 0 start "write a smaller number" --predict 30% --rule tiny_kernels
# A report that is written meanwhile is no part of the change.
(cd "$tree" && "$SOL_BINARY" report --history) >"$work/out" 2>"$work/err" || fail "report in the tree"
is "the report's place" "$(cat "$work/out")" "$SOL_STORE/report-history.html"
opt 2 start "another"
has err 'end it first' "two at a time"
opt 2 compare
has err 'nothing differs' "no change"
say 8
opt 0 benchmark
has out 'regex:took.* 10 +8 +-20' benchmark
opt 0 profile
has out '^profiled' profile
opt 2 accept
has out 'comparison +missing' "accept before compare"
opt 10 compare
has out 'verdict: faster' compare
opt 0 status
has out '^next: sol opt accept' "after faster"
say 7
opt 2 accept
has out 'files changed since' "edited after compare"
opt 10 compare
echo wrong >"$tree/answer"
opt 10 compare
opt 7 accept
has out 'correctness +failed +status 1: ' "wrong answer"
has out 'not accepted' "wrong answer"
# What the gate said is kept: no command says accept of these files again.
wants_back() {
    has out '^first: repair what failed [(]correctness: .*no right answer' "$1"
    has out "^next: sol opt revert\$" "$1"
}
wants_back "refused"
opt 0 status
has out 'correctness +failed +status 1: .*no right answer' "status shows gates"
has out 'build +passed +cat time' "status shows gates"
has out 'benchmark +passed +of earlier files: awk' "status shows gates"
has out 'comparison +passed +faster' "status shows gates"
wants_back status
opt 10 compare
wants_back "compare after a refusal"
opt 0 benchmark
wants_back "benchmark after a refusal"
opt 0 record
wants_back "record after a refusal"
opt 0 history
has out ' faster +correctness failed' "history shows gates"
opt 0 history last
has out 'correctness +failed' "one of history shows gates"
json=1
opt 0 status -o json
python3 - "$work/out" <<'PY' 2>"$work/err" || fail "gates as JSON"
import json, sys
r = json.load(open(sys.argv[1]))
gates = {g["gate"]: g["result"] for g in r["iteration"]["gates"] if g["tree"] == r["content"]}
assert gates["correctness"] == "failed" and gates["comparison"] == gates["build"] == "passed", gates
assert r["iteration"]["realised"] == 0 and r["iteration"]["measured"] > 0.1, r["iteration"]
assert r["next"] == "sol opt revert" and "repair" in r["first"], r
PY
json=
echo right >"$tree/answer"
echo 12.52 >"$tree/ppl"
opt 10 compare
opt 7 accept
has out 'perplexity +failed' perplexity
echo 12.51 >"$tree/ppl"
opt 10 compare
echo mine >"$tree/unknown"
json=1
opt 0 status -o json
python3 - "$work/out" <<'PY' 2>"$work/err" || fail "status as JSON"
import json, sys
r = json.load(open(sys.argv[1]))
assert r["files"] == ["ppl", "time", "unknown"], r["files"]
assert r["iteration"]["state"] == "recorded" and r["next"]
PY
json=
rm "$tree/unknown"
head=$(git -C "$tree" rev-parse HEAD)
echo staged >"$tree/other"
git -C "$tree" add other
opt 2 accept
git -C "$tree" reset -q --hard HEAD 2>/dev/null
echo 12.51 >"$tree/ppl"
say 7
opt 0 accept
has out '^accepted iteration #1' accept
has out 'predicted 30 %, realised 30 %' accept
[ "$(git -C "$tree" rev-parse HEAD~1)" = "$head" ] || fail "no commit"
git -C "$tree" log -1 --format=%B >"$work/out"
for text in '^perf: write a smaller number' '10 -> 7' 'verdict: faster' 'device: ' 'predicted: 30 % by rule tiny_kernels' \
    'perplexity: 12.51, baseline 12.5' 'iteration: o'; do
    has out "$text" "commit message"
done
[ "$(git -C "$tree" status --short | tr -d '\n')" = '?? built?? sol-opt.json' ] || fail "the tree is not clean"
opt 2 accept
opt 0 summary
has out 'tiny_kernels +1 +1 +1 +\+30.00 % +\+30.00 % +0.75 +1' "summary counts the prediction"

# ---- the same and slower are refused; revert brings back what was recorded, and only that ----
opt 0 start "no difference" --predict 10% --rule tiny_kernels
echo more >"$tree/other"
opt 0 compare
has out 'verdict: same' same
opt 7 accept
has out '--even-if same' same
opt 2 accept --even-if same
has err 'reason' "no reason"
opt 2 accept --even-if slower --reason x
say 9
opt 11 compare
has out 'verdict: slower' slower
opt 7 accept --even-if same --reason "never"
opt 2 revert
has err 'would be lost' "unrecorded"
[ "$(cat "$tree/time")" = 9 ] || fail "a refused revert changed a file"
printf 'new\0file' >"$tree/with blank"
rm "$tree/answer"
opt 0 record --note "no good"
say 6
opt 2 revert
has err 'the first is time' "edited after record"
say 9
opt 0 revert
[ "$(cat "$tree/time" "$tree/other" "$tree/answer" | tr '\n' ' ')" = '7 keep right ' ] || fail "not put back"
[ ! -e "$tree/with blank" ] || fail "the new file is still there"
[ -e "$tree/built" ] && [ -e "$tree/sol-opt.json" ] || fail "revert took too much"
opt 0 history '#2'
has out 'note: no good' history
has out 'with blank' "the diff is kept"
opt 0 history
has out '2 .*reverted .*-28.57 %.* slower' history
opt 0 summary
has out 'tiny_kernels +2 +2 +1 .* 0.50 +2' "the failure counts in the ledger"

# ---- even-if same, no commit, keep ----
opt 0 start "tidy"
echo more >"$tree/other"
opt 0 compare
opt 0 accept --even-if same --reason "easier to read" --no-commit
has out '^first: commit what is edited' "no commit"
has out "^next: sol opt start 'what you try' --with-changes\$" "no commit"
git -C "$tree" diff --quiet HEAD && fail "--no-commit committed"
opt 2 start "next"
has err 'with-changes' "dirty start"
opt 0 start "next" --with-changes
opt 0 revert --keep
[ "$(cat "$tree/other")" = more ] || fail "--keep changed a file"
git -C "$tree" checkout -q other

# ---- failing commands, expected kernels, same output ----
configure ', "build": "false"' && sed -i 's/"build": "cat time > built", //' "$tree/sol-opt.json"
opt 0 start "broken build"
say 1
opt 7 compare
has err 'failed with status 1' "broken build"
has out "^next: sol opt record --note 'build failed'\$" "broken build"
opt 0 status
has out 'build +failed +building the working tree' "broken build is kept"
opt 0 record --note 'build failed'
has out '^next: sol opt revert$' "broken build"
opt 0 revert --keep
git -C "$tree" checkout -q time
configure ', "expect": ["gemm"]'
opt 0 start "kernels"
say 1
opt 13 compare
has out 'expected kernel gemm' kernels
has out "^next: sol opt record --note 'manifest failed'" kernels
opt 7 accept
has out '^next: sol opt record' kernels
opt 0 record
opt 0 revert
echo '{"benchmark": "cat answer", "metrics": ["wall"], "correctness": null, "same_output": true, "perplexity": null}' \
    >"$tree/sol-opt.json"
opt 0 start "another answer"
echo wrong >"$tree/answer"
opt 7 compare
has out 'verdict: incorrect' "same output"
has out '^first: repair what failed [(]comparison' "same output"
opt 0 record
has out '^next: sol opt revert$' "same output"
opt 0 revert

# ---- faster and wrong, or slower elsewhere, is no gain: not in the ledger, not in a summary ----
configure ''
opt 0 start "faster and wrong" --predict 50% --rule spill
say 2
echo wrong >"$tree/answer"
opt 10 compare
opt 7 accept
opt 0 revert
opt 0 summary
has out 'spill +1 +1 +0 +\+50.00 % +\+0.00 % +0.25 +1' "a refused change is no gain"
opt 0 history --wide
has out 'faster and wrong +spill +\+50.00 % +\+0.00 % +faster +correctness failed' "a refused change is no gain"
opt 0 start "faster and not checked" --predict 50% --rule spill
say 2
opt 10 compare
opt 0 record
opt 0 revert
opt 0 summary
has out 'spill +2 +2 +0 .* 0.25 +1$' "what nobody checked is no entry"
"$SOL_BINARY" report --history -o "$work/history.html" >"$work/out" 2>"$work/err" || fail "report of the history"
grep -q 'correctness failed' "$work/history.html" || fail "the history's page has no gates"

# ---- killed at any moment: whatever is left, the same commands end well ----
configure ''
opt 0 start "killed" --predict 5% --rule sync
say 3
opt 10 compare
# kill_after SECONDS ARGUMENT...: and when the gits that were under way have ended, their locks go
kill_after() {
    (cd "$tree" && timeout -s KILL "$1" "$SOL_BINARY" opt "${@:2}" -q; :) >/dev/null 2>&1
    for _ in $(seq 200); do
        readlink /proc/[0-9]*/cwd 2>/dev/null | grep -qx -- "$tree" || break
        sleep 0.05
    done
    rm -f "$tree"/.git/*.lock
}
for delay in 0.01 0.03 0.06 0.1 0.15 0.2 0.3; do kill_after $delay accept; done
(cd "$tree" && "$SOL_BINARY" opt accept -q) >"$work/out" 2>"$work/err"
(cd "$tree" && "$SOL_BINARY" opt history -o json) >"$work/json" 2>>"$work/err"
python3 - "$work/json" <<'PY' 2>"$work/err" || fail "the killed accept did not end"
import json, sys
r = json.load(open(sys.argv[1]))["iterations"][0]
assert r["hypothesis"] == "killed" and r["state"] == "accepted", r
PY
[ "$(git -C "$tree" log --format=%s | grep -c 'perf: killed')" = 1 ] || fail "not one commit of the killed accept"
(cd "$tree" && "$SOL_BINARY" opt summary) >"$work/out"
has out 'sync +1 +1 .* 1$' "one ledger entry"
# Between the commit and the store: the hook runs when git has committed.
opt 0 start "killed after the commit" --predict 5% --rule sync
say 2.9
opt 10 compare
printf '#!/bin/sh\nkill -KILL "$(cat "%s")"\nsleep 0.5\n' "$work/pid" >"$tree/.git/hooks/post-commit"
chmod +x "$tree/.git/hooks/post-commit"
(cd "$tree" && exec "$SOL_BINARY" opt accept -q) >/dev/null 2>&1 &
echo $! >"$work/pid"
wait $! 2>/dev/null
rm "$tree/.git/hooks/post-commit"
[ "$(git -C "$tree" log -1 --format=%s)" = 'perf: killed after the commit' ] || fail "the hook did not run"
opt 0 accept
has out 'accepted iteration' "an accept that was killed after its commit"
opt 0 summary
has out 'sync +2 +2 .* 2$' "its ledger entry"

opt 0 start "killed again"
say 2
echo x >"$tree/fresh"
opt 0 record
for delay in 0.01 0.02 0.04 0.06 0.08 0.1 0.15; do kill_after $delay revert; done
(cd "$tree" && "$SOL_BINARY" opt revert -q) >"$work/out" 2>"$work/err"
[ "$(cat "$tree/time")" = 2.9 ] && [ ! -e "$tree/fresh" ] || fail "the killed revert did not end"
opt 0 status
has out 'no iteration is open' "after the killed revert"

# ---- another process at work ----
echo '{"benchmark": "sleep 5", "correctness": "true", "perplexity": null}' >"$tree/sol-opt.json"
opt 0 start "busy"
say 1
(cd "$tree" && exec "$SOL_BINARY" opt benchmark -q) >/dev/null 2>&1 &
other=$!
has_begun() { pgrep -P $other sh >/dev/null; }
until_ "the benchmark does not begin" has_begun
sleep 0.3
opt 2 status
has err 'another sol opt is at work' lock
kill -INT $other
wait $other
[ $? = 130 ] || fail "Ctrl-C: not 130"
opt 0 revert --keep

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
