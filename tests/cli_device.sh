#!/usr/bin/env bash
# sol device: limits measured and kept, known GPUs, descriptions of others, errors. Measuring is as short as can
# be; the figures are checked for sense only.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

# device STATUS ARGUMENT...
device() {
    local expected=$1
    shift
    "$SOL_BINARY" device -q "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status = "$expected" ] || fail "sol device $*: status $status, expected $expected"
}

# check EXPRESSION: a Python expression over `d`, the JSON in $work/out
check() {
    command -v python3 >/dev/null || { echo "no python3: JSON is not checked for $1"; return; }
    python3 - "$work/out" "$1" <<'PY' 2>"$work/err" || fail "JSON: $1"
import json, sys
d = json.load(open(sys.argv[1]))
assert eval(sys.argv[2]), sys.argv[2]
PY
}

# ---- measured once, kept, and again for another number of threads ----
SOL_BRIEF_LIMITS='' device 0 -t 2 --seconds 0.0001 -o json
check 'd["limits"]["threads"] == 2 and not d["limits"]["reused"] and d["machine"]["cores"] >= 1'
check '[l["level"] for l in d["limits"]["levels"]] == ["L1", "L2", "L3", "memory"]'
check 'all(d["limits"]["levels"][3][w][a]["best"] > 0.05 for w in ("one_thread_gb_s", "all_threads_gb_s") for a in ("read", "write", "copy"))'
check 'd["limits"]["gflop_s"]["one_thread"]["f32"]["best"] > 0.05'
check 'd["limits"]["wakeup_ns"]["incomplete"] + 1 > 0'
check '(d["limits"]["watts"] is None) == (not d["machine"]["energy_counter"])'
cp "$work/out" "$work/first"
device 0 -t 2 -o json
check 'd["limits"]["reused"]'
check "d['limits']['levels'] == json.load(open('$work/first'))['limits']['levels']"
device 0 -t 2
has out 'kept; --measure does it again'
has out '^memory '
has out '^f32 +[0-9]'
has out '^GB/s +size +read, 1 thread +write +copy +read, all threads'
device 0 -t 1 --seconds 0.0001 -o json
check 'not d["limits"]["reused"] and d["limits"]["threads"] == 1'
"$SOL_BINARY" runs >/dev/null 2>&1 || fail "the store is of use to other commands"

# ---- known GPUs, and a description of one's own ----
device 0 --known
has out '^H100 SXM +sm_90 +80 +3350 '
has out '^DGX Spark \(GB10\) +sm_121 +128 +273 '
device 0 --known -o json
check 'len(d) >= 7 and all(x["origin"] == "datasheet" and x["memory_gb_s"] > 0 and x["source"] for x in d)'
cp "$work/out" "$work/known.json"
device 0 --descriptions "$work/known.json" -o json
check 'd[:len(d) // 2] == d[len(d) // 2:]'
echo '[{"name": "mine", "match": "x", "memory_gb_s": 0, "tflops": {}}]' >"$work/bad.json"
device 4 --descriptions "$work/bad.json"
has err 'entry 1: figures must be positive'
echo '[{"name": "mine", "match": "x", "memory_gb_s": 5, "tflops": {"bf16": "fast"}}]' >"$work/bad.json"
device 4 --descriptions "$work/bad.json"
has err 'tflops.bf16 must be'
echo '{' >"$work/bad.json"
device 4 --descriptions "$work/bad.json"
device 3 --descriptions "$work/none.json"

# ---- a GPU that is not there ----
device 5 --backend cuda:999
has err 'the CUDA driver cannot be loaded|there is no GPU 999'
[ -s "$work/out" ] && fail "output in spite of an error"
device 2 --backend gpu
has err 'expected cpu, cuda, cuda:N or auto'

# ---- errors ----
device 2 -o xml
device 2 -t 0
device 3 --store /proc/none

exit $((failures != 0))
