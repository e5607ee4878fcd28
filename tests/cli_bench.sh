#!/usr/bin/env bash
# sol bench: every output format, the test matrix, the machine's limits, errors, Ctrl-C. Sizes are tiny and
# limits are measured once, so that sanitized builds finish in time.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $1"
    sed 's/^/    /' "$work/out" "$work/err" 2>/dev/null | head -n 30
    failures=$((failures + 1))
}

# bench ARGUMENT...: output in $work/out and $work/err, status in $status
bench() {
    "$SOL_BINARY" bench "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

tiny() { bench -p 8 -n 2 -r 2 --no-limits -q "$@"; }

# has FILE PATTERN
has() { grep -qE -- "$2" "$work/$1" || fail "no '$2' in $1"; }

# wrong STATUS TEXT ARGUMENT...
wrong() {
    local expected=$1 text=$2
    shift 2
    bench --no-limits "$@"
    [ $status = "$expected" ] || fail "sol bench $*: status $status, expected $expected"
    grep -qF -- "$text" "$work/err" || fail "sol bench $*: no '$text'"
    [ -s "$work/out" ] && fail "sol bench $*: output in spite of an error"
}

# check EXPRESSION: a Python expression over `r`, the records in $work/json
check() {
    command -v python3 >/dev/null || { echo "no python3: JSON is not checked for $1"; return; }
    python3 - "$work/json" "$1" <<'PY' 2>"$work/err" || fail "JSON: $1"
import json, sys
text = open(sys.argv[1]).read()
r = json.loads(text) if text.lstrip().startswith("[") else [json.loads(l) for l in text.splitlines()]
assert eval(sys.argv[2]), sys.argv[2]
PY
}

# ---- the built-in model as text, marked for too few repetitions ----
tiny
[ $status = 0 ] || fail "text: status $status"
has out '^sol [0-9]+\.[0-9]+'
has out '^test +t/s +\+-95% +median +sd +ns/token +GB/s +% mem +GFLOP/s +% arith'
has out '^pp8 \*'
has out '^tg2 \*'
has out 'fewer than 5 repetitions'
has out 'limits not measured'

# ---- the matrix: prompts once per depth, generation and pairs also per number of sequences ----
bench -m synth:tiny -p 4,8 -n 2 -pg 4,2 -npl 1,3 -d 0,16 -r 1 --no-limits -q -o csv
[ $status = 0 ] || fail "csv: status $status"
has out '^model_filename,backends,n_threads,n_prompt,n_gen,n_depth,n_parallel,repetitions,avg_ns'
[ "$(wc -l <"$work/out")" = 13 ] || fail "csv: 12 tests were asked for"
has out '^synth:tiny,CPU,[0-9]+,4,2,16,3,1,'

tiny -m synth:tiny -o md --ops
[ $status = 0 ] || fail "md: status $status"
has out '^\| test \| t/s \|'
has out '^\| test \| op \| variant \| numerics \| calls \|'
has out '^\| tg2 \| gemm \|'

# ---- JSON, once with limits ----
bench -m synth:tiny -p 8 -n 2 -npl 2 -r 5 -t 2 --ops -q -o json
[ $status = 0 ] || fail "json: status $status"
cp "$work/out" "$work/json"
check 'len(r) == 2 and r[0]["n_prompt"] == 8 and r[1]["n_gen"] == 2 and r[1]["n_parallel"] == 2'
check 'all(len(x["samples_ns"]) == 5 and len(x["samples_ts"]) == 5 for x in r)'
check 'all(abs(x["avg_ts"] - sum(x["samples_ts"]) / 5) < 1e-6 * x["avg_ts"] for x in r)'
check 'all(x["ci95_ts"][0] < x["avg_ts"] < x["ci95_ts"][1] and x["enough_repetitions"] for x in r)'
check 'all(x["flops_per_token"] > 0 and x["bytes_per_token"] > 0 and x["gb_s"] > 0 for x in r)'
check 'all(0 < x["memory_limit_percent"] and 0 < x["arithmetic_limit_percent"] for x in r)'
check 'all(x["limits"]["memory_read_gb_s"]["best"] > 0.1 for x in r)'
check 'all(x["limits"]["f32_gflop_s"]["best"] > 0.1 for x in r)'
check 'all(0 < x["memory"]["engine"] and 0 < x["memory"]["peak"] for x in r)'
check 'all(1 <= x["experts"]["touched_per_layer"] <= x["experts"]["count"] for x in r)'
check 'all(abs(sum(k["share"] for k in x["kernels"]) - 1) < 1e-6 for x in r)'
check 'all(x["n_threads"] == 2 and x["machine"]["cpu"] and x["sol_version"] for x in r)'

# ---- JSONL into a file: its name says the format, and a table goes to stdout ----
tiny -m synth:tiny --output "$work/results.jsonl"
[ $status = 0 ] || fail "--output: status $status"
has out '^pp8 '
cp "$work/results.jsonl" "$work/json"
check 'len(r) == 2 and r[0]["memory_limit_percent"] is None and not r[0]["enough_repetitions"]'

# ---- errors ----
wrong 5 "--backend cuda is not supported" --backend cuda
wrong 2 "the formats are" -o xml
wrong 2 "write -o json for the format" --output json
wrong 2 "nothing to do" -p 0 -n 0
wrong 2 "write two numbers" -pg 512
wrong 2 "longer than the" -m synth:tiny -p 10000000
wrong 2 "outside 1 to" -r 0
wrong 2 "unexpected 'word'" word
wrong 3 "cannot write '$work/none/x'" -m synth:tiny --output "$work/none/x"
if [ -w /dev/full ]; then
    bench -m synth:tiny -p 2 -n 0 -r 1 --no-limits -q --output /dev/full
    [ $status = 3 ] || fail "a full disk: status $status"
fi

# ---- Ctrl-C: the finished test is printed ----
"$SOL_BINARY" bench -m synth:tiny -p 2 -n 4000 -r 20 --no-limits -q -o csv >"$work/out" 2>"$work/err" &
pid=$!
sleep 3
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] || fail "Ctrl-C: status $status"
has out ',2,0,0,1,20,'

exit $((failures != 0))
