#!/usr/bin/env bash
# sol compare --roles: engines side by side by what their kernels do.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
trace=$SOL_SOURCE_DIR/tests/data/trace
run 0 profile -m synth:tiny -t 1 -p 4 -n 2 -d 0 -r 1 -q --no-limits --label own
run 0 compare --roles own "$trace"
has out '^A: own, tg2, [0-9]+ ns/token'
has out '^B: .*trace, step, 590955 ns/token'
has out '^role +A ns/token +B ns/token +difference +% of it'
has out '^qkv +[0-9]+ +39870 +'
has out '^attention +[0-9]+ +23265 '
has out '^router +[0-9]+ +19104 '
has out '^not placed '
has out '^between kernels '
has out '^all +[0-9]+ +590955 .* 100.0'
run 0 compare --roles own "$trace" --metric pp4 --tokens 1,2 -o json
if command -v python3 >/dev/null; then
    python3 - "$work/out" <<'PY' || fail "roles do not add up: $(cat "$work/out")"
import json, sys
r = json.load(open(sys.argv[1]))
a, b = r["sides"]
assert a["metric"] == "pp4" and abs(b["ns_per_token"] - 590955 / 2) < 1, r["sides"]
for key, whole in (("old_ns", a["ns_per_token"]), ("new_ns", b["ns_per_token"]),
                   ("delta_ns", r["delta_ns_per_token"]), ("share_percent", 100)):
    assert abs(sum(row[key] for row in r["roles"]) - whole) < 1e-3 * abs(whole), key
calls = {row["role"]: row["new_calls"] for row in r["roles"]}
assert calls["attention"] == 6 and calls["qkv"] == 18 and calls["head"] == 1, calls
PY
fi
run 0 compare --roles own own -o md --output "$work/roles.md"
grep -q '^| attention |' "$work/roles.md" || fail "no table in Markdown"
run 2 compare --roles own
run 2 compare --roles own nothing_of_this_name
run 2 compare --roles --live a b
run 2 compare --roles own "$trace" --metric tg99
has err 'has no test tg99'
run 2 compare --tokens 2 own own
run 2 compare --roles own own --tokens 1,2,3

[ $failures = 0 ] || exit 1
echo "ok"
