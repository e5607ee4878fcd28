#!/usr/bin/env bash
# sol profile without a command, and sol advise on what it and sol bench keep.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

own() {
    local wanted=$1
    shift
    run "$wanted" profile -m synth:tiny -t 2 -p 8 -n 4 -r 5 -q --no-limits "$@"
}
# check EXPRESSION: Python over `r`, the JSON in $work/out
check() {
    command -v python3 >/dev/null || return
    python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), sys.argv[2]' \
        "$work/out" "$1" 2>"$work/err" || fail "JSON: $1"
}

# ---- the store is empty ----
run 2 advise
run 0 advise --rules
has out '^gap.host +time line'
has out '^spill +counters'

# ---- a model, layer by layer ----
own 0 -d 0,16 --layers --trace "$work/trace.json"
has out '^pp8 \(prefill, depth 0\)'
has out '^tg4 @ d16 \(decode, depth 16\)'
has out '^op +kernel +calls/token +us/token'
has out '^outside '
has out 'a token at depth 0, and [0-9.]+ ns for each position|cost of context is lost in the noise' # a short run may not tell
has out 'limits: not measured'
has out 'run p'
grep -q '"traceEvents"' "$work/trace.json" || fail "no trace for Perfetto"
own 0 -d 4 -o csv --no-store
has out '^phase,metric,depth,layer,op,kernel,numerics,calls,expected,ns_per_token'
has out '^decode,tg4 @ d4,4,0,attn_in/gemm,'
own 0 -d 0,16 -o json
check 'r["schema"] == "sol.profile.model.1" and len(r["phases"]) == 4'
check 'all(k["calls"] == k["expected"] > 0 for p in r["phases"] for k in p["kernels"])'
check 'all(k["ns_per_token"] > 0 for p in r["phases"] for k in p["kernels"])'
# The clock decides how close; the units must be the same.
check '0.01 < sum(k["ns_per_token"] for k in r["phases"][1]["kernels"]) / r["phases"][1]["ns_per_token"] < 100'
check 'r["kv"] and r["threads"] == 2 and r["wakeup_ns"] > 0'
run 0 runs show last
has out 'decode'
run 0 profile -m synth:tiny -p 0 -n 2 -d 0 -r 1 -q --no-limits
has out '^tg2 '
grep -q prefill "$work/out" && fail "a prefill of no tokens"
run 5 profile -m synth:tiny --backend cuda:999 -q --no-limits
run 2 profile -m synth:tiny --backend tpu -q --no-limits

# ---- gates ----
own 0 --manifest "$work/m.json" --learn
has err 'wrote [0-9]+ kernels'
own 0 --expect 'rmsnorm.*=9/token' --forbid nothing_like_this
own 13 --reference --manifest "$work/m.json"
has err 'violated: expected kernel .* did not run'
own 13 --expect 'attention=99/token'
has err 'expected 99'
run 13 advise
has out 'this run is invalid'
has out '^first: Find out why'
has out '^next: sol runs show p[0-9a-f]{8}$'
own 13 --max-share 'attention|gemm|rmsnorm=1%'
own 2 --learn
has err -- '--learn needs --manifest'
own 2 -d 16,0
own 2 -d 1,2,3
own 2 -p 0 -n 0
own 3 --manifest /nowhere/m.json
printf '{}' >"$work/none.json"
own 4 --manifest "$work/none.json"

# ---- advice from times against limits ----
run 0 profile -m synth:tiny -t 2 -p 8 -n 4 -r 5 -q --slow attention=300 --label slow
run 0 advise slow
has out '^advice on p'
has out '^next: '
run 0 advise slow -o json
check 'r["schema"] == "sol.advice.1" and r["next"] and not r["invalid"]'
check 'any("attention" in a["subject"] for a in r["advice"] if a["rule"] == "distance")'
check 'all(0 < a["likely_ns"] < a["ceiling_ns"] <= a["window_ns"] for a in r["advice"])'
run 0 runs export slow
check 'len(r["advice"]) > 0'
run 0 advise slow
before=$("$SOL_BINARY" runs export slow | grep -o '"ceiling_ns"' | wc -l)
run 0 advise slow
[ "$before" = "$("$SOL_BINARY" runs export slow | grep -o '"ceiling_ns"' | wc -l)" ] || fail "advice was stored twice"

# ---- and of a benchmark ----
run 0 bench -m synth:tiny -p 8 -n 2 -r 2 -q --ops
run 0 advise last
has out '^next: '
run 0 bench -m synth:tiny -p 8 -n 2 -r 2 -q --no-limits --label plain
run 2 advise plain
has err 'has no times of kernels'
# `last` is the newest that advice can work with: neither that one nor a comparison.
run 12 compare -q plain plain
run 0 advise last
has out '^advice on b'

# ---- a trace of llama-bench on an H100: eight runs of one graph, whose kernels overlap ----
trace=$SOL_SOURCE_DIR/tests/data/trace
run 0 profile --no-store --read "$trace" -o json
check 'r["kernels_run"] == 1440 and r["steps"]["count"] == 8'
check 'sum(k["per_step"] for k in r["kernels"]) == 160'
run 0 advise "$trace"
has out '^8 steps of 552 us on average: busy 229 us'
has out 'The step runs as a CUDA graph; 8.8 copies and kernels start outside it'
has out 'Quantise and transpose kernels take 33.5 us of a step'

# ---- what if: a replay of that trace, whose gaps are the host's ----
run 0 advise "$trace" --what-if attention=0.5 --what-if gap.host=0 --what-if 'fuse quantize_q8_1 mul_mat_vec_q'
has out '^step: 591 us a step \(median\); the schedule of 8 steps replayed'
has out '^attention=0.5 +12 +23.4 us +579 us +12.1 us +2.0'
has out '^gap.host=0 +271 us +320 us'
has out '^fuse .* +74 '
has out '^all together '
has out 'such answers were off by'
run 0 advise "$trace" --what-if quantize=1 -o json
check 'r["schema"] == "sol.whatif.1" and r["steps"][0]["per"] == "step" and "error" in r'
check 'abs(r["steps"][0]["changes"][0]["step_ns"] - r["steps"][0]["measured_ns"]) < 1'
run 2 advise "$trace" --what-if nonsense=1
has err "no role, op, category or kernel 'nonsense' here; roles: .*attention, out, router, experts"
run 2 advise "$trace" --what-if attention
has err 'write NAME=FACTOR'

# ---- and of a stored run: kernels that were made slower on purpose are taken back ----
run 0 profile -m synth:tiny -t 1 -p 0 -n 6 -d 16 -r 7 -q --no-limits --slow attention=300 --label slowed
run 0 advise slowed --what-if attention=0.25 --what-if gap=0 --what-if 'fuse rope kv_write' -o json
check 'r["steps"][0]["metric"] == "tg6 @ d16" and r["steps"][0]["per"] == "token"'
check 'r["steps"][0]["changes"][0]["step_ns"] < r["steps"][0]["measured_ns"]'
check 'r["steps"][0]["changes"][0]["kernels"] == 4 and len(r["steps"][0]["changes"]) == 4'
check 'abs(r["steps"][0]["measured_ns"] - r["steps"][0]["changes"][0]["step_ns"] - 0.75 * r["steps"][0]["changes"][0]["kernels_ns"]) < 2'
run 2 advise slowed --what-if gap.host=0
has err 'no time line'
run 2 advise slowed --what-if attention=0.5 --phase prefill
has err 'no times of kernels in prefill'
run 2 advise plain --what-if attention=0.5
has err 'no times of kernels'

# ---- wrong usage ----
run 2 advise one two
run 2 advise -o xml
run 2 advise no_such_run
run 4 advise "$work"
run 4 advise "$work/none.json"

[ $failures = 0 ] || exit 1
echo "ok"
