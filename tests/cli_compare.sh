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
live 10 "verdict: faster" "${rate[@]}" "$A" "$(value b 11000)"
live 11 "verdict: slower" "${rate[@]}" "$A" "$(value b 9000)"
live 10 "verdict: faster" --metric 'regex:speed: ([0-9]+)' "$A" "$(value b 9000)" # as a time
live 12 "verdict: inconclusive" "${rate[@]}" --max-pairs 6 --delta 0.02 "$A" "$(value b 10002)"
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
bench="$SOL_BINARY bench -m synth:tiny -p 4 -n 4 -r 2 -t 1 --no-limits --no-store -q -o json --ops"
live 11 "tg4: +" --min-pairs 6 --max-pairs 6 --metric test:tg4 -o text "$bench" "$bench --slow gemm=3000"
grep -qE "of it \+[0-9.]+ in gemm" "$work/out" || fail "gemm is not blamed"
grep -qE "^pp4, t/s .*exploratory" "$work/out" || fail "pp4 is not exploratory"
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

# ---- a program that changes meanwhile ----
printf '#!/bin/sh\necho "#" >>%s\nsleep 0.01\n' "$work/changing" >"$work/changing"
chmod +x "$work/changing"
live 13 "program of A changed" --max-pairs 6 "$work/changing" "sleep 0.01"

# ---- files ----
run() { echo "[{\"n_gen\": 8, \"cpu_info\": \"$1\", \"build_commit\": \"$2\", \"samples_ns\": $3}]"; }
run x c1 '[8000, 8010, 8020, 8030, 8040, 8050]' >"$work/old.json"
run x c2 '[9000, 9010, 9020, 9030, 9040, 9050]' >"$work/new.json"
run y c2 '[9000, 9010, 9020, 9030, 9040, 9050]' >"$work/other.json"
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
"$SOL_BINARY" bench -m synth:tiny -p 0 -n 4 -r 8 -t 1 --no-limits -q --ops --label before >"$work/out" 2>&1 ||
    fail "bench"
"$SOL_BINARY" bench -m synth:tiny -p 0 -n 4 -r 8 -t 1 --no-limits -q --ops --slow gemm=5000 >"$work/out" 2>&1 ||
    fail "bench --slow"
compare 11 "historical" before last
grep -qE "of it \+[0-9.]+ in gemm" "$work/out" || fail "gemm is not blamed"
grep -qF 'settings.slow: (none) -> ["gemm=5000 %"]' "$work/out" || fail "the delay is not listed"
grep -q "peak memory, bytes .*exploratory" "$work/out" || fail "no peak memory"
compare 10 "verdict: faster" last~0 before # `last` is a benchmark, though a comparison was kept since
"$SOL_BINARY" runs --kind compare -o json | grep -q '"kind": "compare"' || fail "the comparison is not kept"
compare 2 "no run is named 'nothing'" before nothing
compare 2 "no such file, and there is no store" --no-store before last
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
for _ in $(seq 100); do [ -s "$work/left" ] && break || sleep 0.05; done
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] || fail "Ctrl-C: status $status"
sleep 0.2
kill -0 "$(cat "$work/left")" 2>/dev/null && [ "$(ps -o stat= -p "$(cat "$work/left")" | cut -c1)" != Z ] &&
    fail "Ctrl-C left a process behind"

exit $((failures != 0))
