#!/usr/bin/env bash
# sol bench: every output format, the test matrix, the machine's limits, errors, Ctrl-C. Sizes are tiny and
# limits are measured once, so that sanitized builds finish in time.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

# bench ARGUMENT...: output in $work/out and $work/err, status in $status
bench() {
    "$SOL_BINARY" bench "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

tiny() { bench -p 8 -n 2 -r 2 --no-limits -q "$@"; }

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
tiny --wide
[ $status = 0 ] || fail "text: status $status"
has out '^sol [0-9]+\.[0-9]+'
has out '^test +t/s +\+-% +ns/token +% limit +by +sd % +GB/s +GFLOP/s'
has out '^test +steps +median ms +p90 +p99 +max'
has out '^run b[0-9a-f]{8}$'
has out '^pp8 \*'
has out '^tg2 \*'
has out 'fewer than 6 repetitions'
has out 'limits not measured'

# ---- the matrix: prompts once per depth, generation and pairs also per number of sequences ----
bench -m synth:tiny -p 4,8 -n 2 -pg 4,2 -npl 1,3 -d 0,16 -r 1 --no-limits -q -o csv
[ $status = 0 ] || fail "csv: status $status"
has out '^build_commit,build_number,cpu_info,gpu_info,backends,model_filename,.*,n_parallel,repetitions'
[ "$(wc -l <"$work/out")" = 13 ] || fail "csv: 12 tests were asked for"
has out ',CPU,synth:tiny,.*,4,2,16,20'

tiny -m synth:tiny -o md --ops
[ $status = 0 ] || fail "md: status $status"
has out '^\| test \| t/s \|'
has out '^\| test \| op \| variant \| numerics \| calls \|'
has out '^\| tg2 \| gemm \|'

# ---- JSON, once with limits ----
SOL_BRIEF_LIMITS='' bench -m synth:tiny -p 8 -n 2 -npl 2 -r 6 -t 2 --ops -q -o json
[ $status = 0 ] || fail "json: status $status"
cp "$work/out" "$work/json"
check 'len(r) == 2 and r[0]["n_prompt"] == 8 and r[1]["n_gen"] == 2 and r[1]["n_parallel"] == 2'
check 'all(len(x["samples_ns"]) == 6 and len(x["samples_ts"]) == 6 for x in r)'
check 'all(abs(x["avg_ts"] - sum(x["samples_ts"]) / 6) < 1e-6 * x["avg_ts"] for x in r)'
check 'all(x["ci95_ts"][0] <= x["ts"] <= x["ci95_ts"][1] and x["enough_repetitions"] for x in r)'
check 'all(abs(x["ts"] * x["ns_per_token"] / 1e9 - 1) < 1e-8 for x in r)'
check 'all(x["flops_per_token"] > 0 and x["bytes_per_token"] > 0 and x["gb_s"] > 0 for x in r)'
check 'all(0 < x["memory_limit_percent"] and 0 < x["arithmetic_limit_percent"] for x in r)'
check 'all(x["limits"]["memory_read_gb_s"]["best"] > 0.1 for x in r)'
check 'all(x["limits"]["f32_gflop_s"]["best"] > 0.1 for x in r)'
check 'all(0 < x["memory"]["engine"] and 0 < x["memory"]["peak"] for x in r)'
check 'all(1 <= x["experts"]["touched_per_layer"] <= x["experts"]["count"] for x in r)'
check 'all(abs(sum(k["share"] for k in x["kernels"]) - 1) < 1e-6 for x in r)'
check 'all(x["n_threads"] == 2 and x["machine"]["cpu"] and x["sol_version"] for x in r)'
check 'all(x["invalid"] is None for x in r)'
check 'all(x["proved"] and x["layers_complete"] and x["stopped"] == "count" for x in r)'
check 'all(k["ran"] == k["expected"] > 0 and k["ran"] % 6 == 0 for x in r for k in x["kernels"])'
check 'all(0 < x["limit_ns_per_token"] for x in r) and r[0]["step_ns"] is None'
check 'r[1]["step_ns"]["count"] == 12 and r[1]["step_ns"]["min"] <= r[1]["step_ns"]["p99"]'
check 'all(len([s for s in x["samples"] if s["warmup"]]) == 1 and len(x["samples"]) == 7 for x in r)'
run=$(sed -n 's/^ *"run": "\(.*\)",/\1/p' "$work/json" | head -n 1)

# ---- several starts: one median each, in one run ----
cp "$work/json" "$work/one"
if [ "${SOL_EMULATED:-}" ]; then
    echo "skipped: several starts (under an emulator this program is none that the system can start)"
else
    bench -m synth:tiny -p 8 -n 2 -r 2 --starts 3 --no-limits -q -o json --label starts
    [ $status = 0 ] || fail "starts: status $status"
    cp "$work/out" "$work/json"
    check 'all(x["starts"] == 3 and x["repetitions"] == 6 and len(x["samples_ns"]) == 6 for x in r)'
    check 'all(sorted(s["start"] for s in x["samples"] if not s["warmup"]) == [0, 0, 1, 1, 2, 2] for x in r)'
    check 'all(x["ci95_ts"] is None for x in r)'
    check 'all(k["ran"] == k["expected"] for x in r for k in x["kernels"])'
    "$SOL_BINARY" runs show starts >"$work/out"
    has out '^pp8 .* 6 in 3 starts$'
    bench -m "$work/none.gguf" --starts 2 -q --no-store
    [ $status = 3 ] && grep -q "start 1 of 2 failed: .*none.gguf" "$work/err" || fail "the first start fails: status $status"
fi
cp "$work/one" "$work/json"

# ---- kernels of a prompt of several steps are those of all: 200 rows in steps of 64 and one of 8 ----
# Beside the fastest of thirty repetitions, as other programs may hold up two.
cp "$work/json" "$work/one"
bench -m synth:tiny -p 200 -n 0 -r 30 --ubatch-size 64 --ops --no-limits --no-store -q -o json
cp "$work/out" "$work/json"
check 'all(k["steps"] == 4 and k["ran"] == k["expected"] for k in r[0]["kernels"])'
check '[k["ran"] for k in r[0]["kernels"] if k["op"] == "embed"] == [120]'
check '0.5 < sum(k["us_per_step"] * k["steps"] for k in r[0]["kernels"]) * 1e3 / min(r[0]["samples_ns"])'
cp "$work/one" "$work/json"

# ---- that run is in the store ----
"$SOL_BINARY" runs export "$run" >"$work/json" 2>"$work/err" || fail "runs export $run"
sed -i '1s/^/[/; $s/$/]/' "$work/json"
check 'r[0]["state"] == "ok" and r[0]["kind"] == "bench" and r[0]["model"] == "synth:tiny"'
check '[m["name"] for m in r[0]["metrics"]][0] == "pp8" and len(r[0]["metrics"][0]["samples"]) == 7'
check '"tg2 x2" in [m["name"] for m in r[0]["metrics"]] and r[0]["environment"]["cores"] > 0'
check 'all(k["calls"] == k["expected"] and k["total_ns"] > 0 for k in r[0]["kernels"])'
check 'len(r[0]["payload"]["records"]) == 2 and r[0]["argv"][0] == "bench"'

# ---- repetitions until they are precise, or the time is over ----
bench -m synth:tiny -p 8 -n 0 --max-time 0.2 --no-limits -q -o json
[ $status = 0 ] || fail "by precision: status $status"
cp "$work/out" "$work/json"
check 'r[0]["wanted_percent"] == 1 and 1 <= r[0]["repetitions"] <= 45'
check 'r[0]["stopped"] in ("precision", "noise", "most", "time")'
check 'r[0]["stopped"] != "precision" or r[0]["half_width_percent"] <= 1 and r[0]["repetitions"] >= 6'

# ---- llama-bench's table ----
if command -v sqlite3 >/dev/null; then
    tiny -m synth:tiny -o sql
    sqlite3 "$work/llama.sqlite" <"$work/out" || fail "sql"
    [ "$(sqlite3 "$work/llama.sqlite" 'SELECT count(*) FROM llama_bench WHERE avg_ts > 0')" = 2 ] || fail "sql rows"
else
    echo "no sqlite3: SQL is not checked"
fi

# ---- the usual matrix: what the built-in model is too short for is left out; a time to stop at ----
bench --matrix -p 8,16 -n 2,4 -npl 1,2 -d 0,16,1000000 -r 1 --no-limits -o csv
[ $status = 0 ] || fail "matrix: status $status"
[ "$(wc -l <"$work/out")" = 9 ] || fail "matrix: 8 tests were expected"
has err '2 tests are left out'
has err 'sol: 8 tests, about'
bench --matrix -p 8 -n 2 -npl 1 -d 0 -r 1 --max-total 0.001 --no-limits -q
[ $status = 0 ] || fail "--max-total: status $status"
has err '1 of 3 tests were begun'
"$SOL_BINARY" runs list -n 1 >"$work/out"
has out 'partial: 1 of 3 tests'

# ---- ratings from a user's table; not stored ----
echo '[{"device": "", "metric": "tg", "baseline": 1e-3, "good": 1e-2, "excellent": 1e9}]' >"$work/ratings.json"
tiny -m synth:tiny --ratings "$work/ratings.json" --no-store -o json
cp "$work/out" "$work/json"
check 'r[0]["rating"] is None and r[1]["rating"] == "good" and r[0]["run"] is None'
echo '[{"device": "", "metric": "tg", "baseline": 2, "good": 1, "excellent": 3}]' >"$work/ratings.json"
tiny --ratings "$work/ratings.json"
[ $status = 4 ] || fail "falling ratings: status $status"

# ---- a store that cannot be: a warning, or an error where it was asked for ----
SOL_STORE=/proc/none tiny -m synth:tiny
[ $status = 0 ] || fail "no store: status $status"
has err 'warning: results are not stored'
tiny -m synth:tiny --store /proc/none
[ $status = 3 ] || fail "--store: status $status"

# ---- JSONL into a file: its name says the format, and a table goes to stdout ----
tiny -m synth:tiny --output "$work/results.jsonl"
[ $status = 0 ] || fail "--output: status $status"
has out '^pp8 '
cp "$work/results.jsonl" "$work/json"
check 'len(r) == 2 and r[0]["memory_limit_percent"] is None and not r[0]["enough_repetitions"]'

# ---- ops alone: every one of them, here with sizes that take no time ----
small() { # OP=SIZES...: each agrees with its reference
    for spec in "$@"; do
        bench -t 2 --wide --op "${spec/=/:},check=reference"
        [ $status = 0 ] || fail "--op $spec: status $status"
        has out "^${spec%%=*} +m=.* [0-9.]+e[-+][0-9]+$"
        awk 'NR == 2 { exit !($NF < 0.03) }' "$work/out" || fail "--op $spec: $(tail -1 "$work/out")"
    done
}
small embed=m=3,n=64 rmsnorm=m=3 gemm=m=5,n=64,k=96,dtype=q8_0 gemm=m=9,n=64,k=64,groups=4,top_k=2,dtype=mxfp4 rope=m=3 \
    kv_write=m=4,sequences=2,depth=9 attention=m=4,sequences=4,depth=200 attention=m=9,depth=200,window=128 add=m=3 \
    grouped_gemm=m=9,n=40,k=64,groups=3,results=f32,scales=atoms,gated=yes,signs=no \
    grouped_gemm=m=9,n=40,k=48,groups=3,weights=tiles pack_scaled=m=40,k=48,scales=atoms \
    route=m=9,n=8 swiglu=m=3,n=64 silu_mul=m=3,n=64 combine=m=3,n=64 sample=m=3,n=500 pack_weights=m=40,k=64 \
    attn_in=m=3,n=8,k=64,groups=2 attn_out=m=3,n=64,k=128,groups=4 moe_up=m=5,n=32,k=64,groups=4 \
    moe_down=m=5,n=32,k=64,groups=4 moe=m=5,n=32,k=64,groups=4,skew=2 head=m=2,n=96,k=64

# ---- errors ----
wrong 5 "" --backend cuda:999
has err 'the CUDA driver cannot be loaded|there is no GPU 999'
wrong 2 "expected cpu, cuda, cuda:N or auto" --backend cuda:x
tiny -m synth:tiny --backend auto --no-store
[ $status = 0 ] || fail "--backend auto: status $status"
wrong 2 "the formats are" -o xml
wrong_op() { # what --op is given, and what it says without a GPU comes later than what is wrong with it
    bench --op "$2"
    [ $status = 2 ] || fail "--op $2: status $status"
    grep -qF -- "$1" "$work/err" || fail "--op $2: no '$1'"
    [ -s "$work/out" ] && fail "--op $2: output in spite of an error"
}
wrong_op "no such op" nothing:m=1
wrong_op "write key=value" gemm:m
wrong_op "no such key 'x'" gemm:x=1
wrong_op "m is to be a positive number" gemm:m=0
wrong_op "rope has no k" rope:k=64
wrong_op "attention does not come in mxfp4" attention:dtype=mxfp4
wrong_op "a multiple of 32" gemm:m=8,n=8,k=8,dtype=mxfp4
wrong_op "top_k is more than groups" gemm:m=8,n=32,k=32,top_k=2
wrong_op "results is one of f16, bf16, f32" grouped_gemm:results=x
wrong_op "gemm has no gated" gemm:gated=yes
wrong_op "pack_scaled has no gated" pack_scaled:gated=yes
wrong_op "pack_scaled does not come in mxfp4" pack_scaled:dtype=mxfp4
wrong_op "weights in tiles are nvfp4" grouped_gemm:weights=tiles,dtype=mxfp4,k=64
wrong_op "do not go together" attention:m=2,sequences=3
wrong 2 "write -o json for the format" --output json
wrong 2 "nothing to do" -p 0 -n 0
wrong 2 "write two numbers" -pg 512
wrong 2 "longer than the" -m synth:tiny -p 10000000
wrong 2 "outside 1 to" -r 0
wrong 2 "unexpected 'word'" word
head -c 9000 /dev/zero | tr '\0' x >"$work/kept.json"
wrong 3 "nothing" -m synth:tiny --store /proc/nothing/here --output "$work/kept.json"
[ "$(wc -c <"$work/kept.json")" = 9000 ] || fail "a benchmark that failed took earlier results with it"
tiny -m synth:tiny --no-store --output "$work/kept.json"
grep -q xxx "$work/kept.json" && fail "--output left something of the earlier file"
wrong 3 "cannot create '$work/none/x'" -m synth:tiny --output "$work/none/x"
if [ -w /dev/full ]; then
    bench -m synth:tiny -p 2 -n 0 -r 1 --no-limits -q --output /dev/full
    [ $status = 3 ] || fail "a full disk: status $status"
fi

# ---- Ctrl-C: the finished test is printed ----
newest() { "$SOL_BINARY" runs list -n 1 -o csv | sed -n '2s/,.*//p'; }
has_finished_one() { [ "$(newest)" != "$before" ] && "$SOL_BINARY" runs show "$(newest)" | grep -q '^pp2 '; }
before=$(newest)
set -m
"$SOL_BINARY" bench -m synth:tiny -t 1 -p 2 -n 4000 -r 20 --no-limits -q -o csv >"$work/csv" 2>"$work/err" &
pid=$!
set +m
until_ "the first test is not kept" has_finished_one
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] || fail "Ctrl-C: status $status"
has csv ',2,0,0,20'
"$SOL_BINARY" runs list -n 1 >"$work/out"
has out 'partial: interrupted'

exit $((failures != 0))
