#!/usr/bin/env bash
# sol compare as a user runs it: verdicts with their exit statuses, formats, errors, Ctrl-C.
# Planted differences are large against the noise of a loaded machine: sleeping costs no processor.
# compare STATUS TEXT ARGUMENT...: exit status, and a text in what it prints
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
compare() {
    local status=$1 text=$2 got
    shift 2
    "$SOL_BINARY" compare "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ $got = "$status" ] || fail "sol compare $*: status $got, expected $status"
    cat "$work/out" "$work/err" | grep -qF -- "$text" || fail "sol compare $*: no '$text'"
}
live() {
    local status=$1 text=$2
    shift 2
    compare "$status" "$text" --live -q "$@"
}
json() { python3 -c "import json,sys; r = json.load(open('$work/out')); sys.exit(not ($1))" || fail "JSON: $1"; }

# ---- figures that a command prints itself, so that the clock does not matter ----
# value FILE FIRST STEP: each call prints the next figure of an endless series around FIRST
cat >"$work/value" <<'END'
n=$(cat "$1" 2>/dev/null || echo 0)
echo $((n + 1)) >"$1"
echo "done"
echo "speed: $(($2 + (n * 7919) % 13)) t/s" >&2
END
value() { echo "sh $work/value $work/$1.$RANDOM $2"; }
A=$(value a 10000)
rate=(--metric 'rate:regex:speed: ([0-9]+)')
live 0 "verdict: same" "${rate[@]}" "$A" "$(value b 10000)"
live 10 "verdict: faster: new is 10.0 % faster than old in rate:" "${rate[@]}" "$A" "$(value b 11000)"
live 11 "verdict: slower: new is 10.0 % slower than old in rate:" "${rate[@]}" "$A" "$(value b 9000)"
live 10 "verdict: faster: new has 10.0 % less of regex:" --metric 'regex:speed: ([0-9]+)' "$A" "$(value b 9000)" # as a time
live 12 "verdict: inconclusive" "${rate[@]}" --max-pairs 6 --delta 0.02 "$A" "$(value b 10002)"
grep -q "^next: sol compare --max-pairs [0-9]* " "$work/out" || fail "no command that would decide"
live 11 '"exit_status": 11' "${rate[@]}" -o json "$A" "$(value b 9000)"
json 'r["mode"] == "live" and r["verdict"] == "slower" and r["pairs"] == 6 and r["starts"] == 14'
json 'r["metrics"][0]["role"] == "deciding" and len(r["metrics"][0]["samples_new"]) == 6'
json 'abs(r["metrics"][0]["change_percent"] + 10) < 0.3'
json 'r["metrics"][0]["ci95_percent"][0] < r["metrics"][0]["change_percent"] < r["metrics"][0]["ci95_percent"][1]'
json 'all(m["role"] == "exploratory" for m in r["metrics"][1:]) and r["metrics"][1]["name"] == "wall"'
"$SOL_BINARY" compare --live -q "${rate[@]}" -o md --output "$work/report.md" "$A" "$(value b 9000)"
[ $? = 11 ] && grep -q '^| metric | old | new |' "$work/report.md" || fail "--output: no report"
echo '{"a": [{"t": 5}]}' >"$work/a.json"
echo '{"a": [{"t": 4}]}' >"$work/b.json"
live 10 "json:a.0.t" --metric json:a.0.t "cat $work/a.json" "cat $work/b.json"

# ---- the clock ----
live 11 "wall, s" "sleep 0.02" "sleep 0.4"

# ---- outputs ----
live 7 "outputs differ in line 2: A 'x', B 'y'" --same-output "printf 'a\nx\n'" "printf 'a\ny\n'"
live 7 "B '(end)'" --same-output "printf 'a\nx\n'" "printf 'a\n'"
live 0 "verdict: same" --metric 'regex:time ([0-9]+)' --same-output --ignore-lines '^time' \
    "printf 'a\ntime 100\nb\n'" "printf 'a\nb\ntime 100\n'"
live 7 "outputs differ in line 2: A 'b', B 'c'" --same-output --ignore-lines '^time' \
    "printf 'a\ntime 1\nb\n'" "printf 'a\nc\ntime 2\n'"

# ---- commands that do not work ----
live 14 "A: no such command: no-such-command" no-such-command "sleep 0"
live 14 "B: no such command: $work/none" true "$work/none 1 2"
live 14 "B ended with status 3: echo why >&2; exit 3; its last words: why" true "echo why >&2; exit 3"
live 14 "did not end within 0.2 s" --timeout 0.2 "sleep 60" true
live 14 '"verdict": "failed"' -o json false true
json 'r["exit_status"] == 14 and r["metrics"] == [] and "A ended with status 1" in r["reason"]'

# ---- benchmark JSON: tests are joined by name, kernels are blamed ----
bench="$SOL_BINARY bench -m synth:tiny -p 4 -n 4 -r 6 -t 1 --no-limits --no-store -q -o json --ops"
slow=3000
[ "${SOL_SANITIZED:-}" ] && slow=1000 # there kernels are slow as they are
live 11 "tg4: +" --min-pairs 6 --max-pairs 6 --metric test:tg4 -o text "$bench" "$bench --slow gemm=$slow"
grep -qE "of it \+[0-9.]+ in gemm" "$work/out" || fail "gemm is not blamed"
grep -qE "^pp4, t/s .*\((slower|same|inconclusive)\)" "$work/out" || fail "pp4 is not exploratory"
live 13 "expected kernel gemm=none" --expect gemm=none --max-pairs 6 "$bench" "$bench"
"$SOL_BINARY" compare --live -q --max-pairs 6 --expect gemm --expect rope -o json "$bench" "$bench" \
    >"$work/out" 2>"$work/err"
json 'r["verdict"] != "invalid" and [m["name"] for m in r["metrics"][:2]] == ["pp4", "tg4"]'
json 'all(m["role"] == "deciding" for m in r["metrics"][:2])'
json 'all(abs(b["kernels_ns"] + b["residual_ns"] - b["delta_ns_per_token"]) < 1e-6 * b["old_ns_per_token"] for b in r["blame"])'

for wrong in gemm gemm= gemm=x gemm=-1 xyzzy=5; do
    "$SOL_BINARY" bench -m synth:tiny -q --no-store --slow "$wrong" >"$work/out" 2>"$work/err"
    [ $? = 2 ] && grep -q -- "--slow $wrong" "$work/err" || fail "--slow $wrong passes"
done

# The machine's limits are nobody's question here: a start does not measure them.
"$SOL_BINARY" compare --live -q --no-store --max-pairs 6 "sleep 0" \
    "$SOL_BINARY bench -m synth:tiny -p 4 -n 0 -r 1 -t 1 --no-store -q --output $work/limits.json" >"$work/out" 2>"$work/err"
python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert not r[0]["read_limit_gb_s"], r[0]' "$work/limits.json" \
    2>"$work/err" || fail "a live comparison measures the limits"
# The budget is a time: as many pairs as it takes, and no more than it allows.
start=$(date +%s)
# Shell alone, as starting programs takes its time beside others.
random='read -r x </proc/sys/kernel/random/uuid; x=${x#*-}; echo $((1000 + 0x${x%%-*} % 1000))'
"$SOL_BINARY" compare --live -q --max-seconds 4 --metric 'regex:([0-9]+)' --delta 0.01 "$random" "$random" \
    >"$work/out" 2>"$work/err" # whatever chance says
took=$(($(date +%s) - start))
[ $took -ge 3 ] && [ $took -le 20 ] || fail "4 seconds of comparing took $took"
[ "$(sed -n 's/ pairs, .*//p' "$work/out" | head -n 1)" -gt 40 ] || fail "time for more pairs was not used"

# ---- a program that changes meanwhile ----
printf '#!/bin/sh\necho "#" >>%s\nsleep 0.01\n' "$work/changing" >"$work/changing"
chmod +x "$work/changing"
live 13 "program of A changed" --max-pairs 6 "$work/changing" "sleep 0.01"

# ---- files ----
run() { echo "[{\"n_gen\": 8, \"cpu_info\": \"$1\", \"build_commit\": \"$2\", \"samples_ns\": $3}]"; }
run x c1 '[8000, 8010, 8020, 8030, 8040, 8050]' >"$work/old.json"
run x c2 '[9000, 9010, 9020, 9030, 9040, 9050]' >"$work/new.json"
run y c2 '[9000, 9010, 9020, 9030, 9040, 9050]' >"$work/other.json"
# What starts differ by decides about files too; until that is known, nothing does.
compare 12 "how much starts differ here is not known" "$work/old.json" "$work/new.json"
compare 0 "smallest effect that counts" --calibrate -q "cat $work/old.json"
compare 11 "historical" "$work/old.json" "$work/new.json"
grep -q -- '- build_commit: c1 -> c2' "$work/out" || fail "the commit is not listed"
compare 10 "verdict: faster" "$work/new.json" "$work/old.json" -o md
compare 0 "verdict: same" "$work/old.json" "$work/old.json"
compare 13 "different machines" "$work/old.json" "$work/other.json"
compare 11 "(machine)" --across "$work/old.json" "$work/other.json"
compare 11 '"mode": "historical"' -o json "$work/old.json" "$work/new.json" --metric tg8
json 'abs(r["metrics"][0]["change_percent"] + 11.08) < 0.1 and r["differences"][0]["what"] == "build_commit"'
compare 2 "has no test 'tg9'" --metric tg9 "$work/old.json" "$work/new.json"
echo '{"n_gen": 8' >"$work/damaged.json"
compare 4 "not JSON" "$work/old.json" "$work/damaged.json"
echo '{"n_gen": 9, "avg_ns": 5}' >"$work/foreign.json"
compare 2 "no test in common" "$work/old.json" "$work/foreign.json"

# ---- stored runs ----
"$SOL_BINARY" bench -m synth:tiny -p 0 -n 4 -r 8 -t 1 --no-limits -q --ops --label noisy >"$work/out" 2>&1 ||
    fail "bench"
"$SOL_BINARY" bench -m synth:tiny -p 0 -n 4 -r 8 -t 1 --no-limits -q --ops --slow gemm=5000 --label slow >"$work/out" 2>&1 ||
    fail "bench --slow"
"$SOL_BINARY" compare noisy last >"$work/out" 2>&1
grep -qF 'settings.slow: (none) -> ["gemm=5000 %"]' "$work/out" || fail "the delay is not listed"
grep -qE "^tg4: peak memory,.*[(]inconclusive[)]$" "$work/out" || fail "no peak memory"
# The same two as on a machine without noise, since a run that had some decides nothing.
for run in noisy slow; do
    "$SOL_BINARY" runs export $run | python3 -c '
import json, sys
r = json.load(sys.stdin)
r["noise"] = None
kernels = sum(k["total_ns"] / k["calls"] * k["calls_per_token"] for k in r["kernels"])
for s in r["metrics"][0]["samples"]: s["value"] = 1.02 * kernels
json.dump(r, sys.stdout)' >"$work/$run.export.json"
    "$SOL_BINARY" import --label quiet-$run "$work/$run.export.json" >"$work/out" 2>&1 || fail "import of $run"
done
compare 11 "historical" quiet-noisy quiet-slow
grep -qE "^verdict: slower: quiet-slow is [0-9.]+ % slower than quiet-noisy in " "$work/out" || fail "no sentence"
grep -qE "^next: sol (runs show|advise) [bi][0-9a-f]{8}" "$work/out" || fail "no next step of a decided comparison"
grep -qE "of it \+[0-9.]+ in gemm" "$work/out" || fail "gemm is not blamed"
compare 10 "verdict: faster" quiet-slow quiet-noisy
# `last` is a benchmark, though a comparison and imports were kept since.
"$SOL_BINARY" compare last~0 noisy >"$work/out" 2>&1
grep -q "^tg4, t/s" "$work/out" || fail "last is no benchmark"
# A run whose repetitions have nothing in common: its interval has no end that a column could hold.
python3 -c '
import json, sys
r = json.load(sys.stdin)
for i, s in enumerate(r["metrics"][0]["samples"]): s["value"] *= 6 ** (i % 5)
json.dump(r, sys.stdout)' <"$work/slow.export.json" >"$work/wild.json"
"$SOL_BINARY" import --label wild "$work/wild.json" >"$work/out" 2>&1 || fail "import of a wild run"
compare 12 "inconclusive" quiet-noisy wild
grep -qE "^tg4, t/s .*[.][.][+][0-9.]+e[+][0-9]+ +inconclusive" "$work/out" || fail "an interval without end"
# Noise that a run was made in decides nothing, however large the difference.
sed 's/"noise": null/"noise": "tg4: other programs kept 1.5 cores busy"/' "$work/slow.export.json" >"$work/loud.json"
"$SOL_BINARY" import --label loud "$work/loud.json" >"$work/out" 2>&1 || fail "import of a noisy run"
compare 12 "noisy tg4: new: tg4: other programs" quiet-noisy loud
"$SOL_BINARY" runs --wide | grep -q "loud.* noisy: .*other programs" || fail "a noisy run has no badge"
"$SOL_BINARY" runs --kind compare -o json | grep -q '"kind": "compare"' || fail "the comparison is not kept"
compare 2 "no run is named 'nothing'" noisy nothing
compare 2 "no such file, and there is no store" --no-store noisy last
# It says where it is kept, and is shown again as it was, with a sentence of a verdict in the list.
compare 11 "historical" quiet-noisy quiet-slow
is "the run that was printed" "$(grep -cE '^run c[0-9a-f]{8}$' "$work/out")" 1
id=$(sed -n 's/^run //p' "$work/out")
sed '/^run /d' "$work/out" >"$work/printed"
"$SOL_BINARY" runs show "$id" >"$work/out" 2>"$work/err" || fail "runs show of a comparison"
grep -qE '^  verdict +slower$' "$work/out" || fail "runs show has no verdict"
grep -qE '^  command +sol compare quiet-noisy quiet-slow$' "$work/out" || fail "runs show has no command"
sed '1,/^$/d' "$work/out" | diff - "$work/printed" >"$work/diff" || fail "runs show prints something else: $(cat "$work/diff")"
"$SOL_BINARY" runs -n 1 --wide >"$work/out"
grep -qE "^$id  compare .* slower +.*sol compare quiet-noisy quiet-slow" "$work/out" || fail "the list has no verdict and command"
"$SOL_BINARY" runs -n 1 -o csv >"$work/out"
grep -qE "^$id,compare,,[^,]*,ok,slower,," "$work/out" || fail "the list as CSV has no verdict"
compare 11 '"run": "c' -o json quiet-noisy quiet-slow
compare 12 '"run": null' --no-store -o json "$work/old.json" "$work/new.json"
# What calibration finds is the smallest effect that counts from then on.
compare 0 "smallest effect that counts here: " --calibrate -q --metric 'regex:([0-9]+)' \
    "sh $work/value $work/noise 100 2>&1"
live 0 "this machine's calibration" --metric 'regex:([0-9]+)' "echo 1000" "echo 1012"
live 11 "(the least on any machine)" --no-store --metric 'regex:([0-9]+)' "echo 1000" "echo 1012"
compare 2 "takes one command" --calibrate a b

# ---- usage ----
compare 2 "what should be compared?" "$work/old.json"
compare 2 "wants two commands" --live a
compare 2 "the third is" --live a b c
compare 2 "the formats are" -o xml a b
compare 2 "write wall, user, cpu" --live --metric speed true true
compare 2 "write wall, user, cpu" --live --metric rate:wall true true
compare 2 "--metric regex:(" --live --metric 'regex:(' true true
live 4 "finds no number" --metric 'regex:x([0-9]+)' "echo a" "echo a"
live 4 "no benchmark results" --metric test:tg8 "echo a" "echo a"
compare 3 "cannot create" --output "$work/none/x" "$work/old.json" "$work/new.json"
for line in "0  same" "10  faster" "11  slower" "12  inconclusive" "13  invalid" "7  incorrect" "14  failed"; do
    compare 0 "$line" --help
done

# ---- Ctrl-C: exit status 130, and nothing is left of the commands ----
"$SOL_BINARY" compare --live -q "sleep 987 & echo \$! >$work/left; trap '' TERM; sleep 986" true \
    >"$work/out" 2>"$work/err" &
pid=$!
until_ "the commands began" [ -s "$work/left" ]
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] || fail "Ctrl-C: status $status"
is_gone() { ! kill -0 "$(cat "$work/left")" 2>/dev/null || [ "$(ps -o stat= -p "$(cat "$work/left")" | cut -c1)" = Z ]; }
until_ "Ctrl-C left a process behind" is_gone

exit $((failures != 0))
