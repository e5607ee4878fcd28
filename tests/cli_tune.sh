#!/usr/bin/env bash
# sol tune: what it lists, measures and keeps; what other commands make of the record; records that are damaged,
# stale or somebody else's. Times are this machine's, so nothing is asked of who wins.
. "$SOL_SOURCE_DIR/tests/support/cli.sh"
export XDG_CACHE_HOME=$work/cache
record=$work/cache/sol/tuning.json
tiny="-m synth:tiny,layers=2 -t 1"

# edit EXPRESSION: Python over `r`, the record, which is written again
edit() {
    python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); exec(sys.argv[2]); json.dump(r, open(sys.argv[1], "w"))' \
        "$record" "$1" || fail "edit: $1"
}
check() {
    python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), sys.argv[2]' \
        "$work/out" "$1" 2>"$work/err" || fail "JSON: $1"
}
command -v python3 >/dev/null || { echo "no python3: nothing is tested"; exit 0; }

# ---- usage ----
run 2 tune --rows 0
run 2 tune --budget 0
run 2 tune --reference $tiny
run 2 tune nothing
run 0 tune --help
has out 'every kernel that can run'

# ---- a GPU that runs nothing: everything takes the same time ----
if [ -n "${SOL_FAKE_GPU:-}" ]; then
    export LD_LIBRARY_PATH=$SOL_FAKE_GPU
    run 0 tune --backend cuda -m synth:tiny,layers=2 --rows 1,8,200 -d 0,40 -q --json
    check 'r["device"]["name"] == "Fake GPU 0" and r["device"]["capability"] == "9.0" and r["device"]["driver"] == "CUDA 13.0"'
    check 'all(p["state"] == "usual" for p in r["problems"]) and r["written"]'
    check 'any(p["usual_choice"] == "gemm_wgmma_bf16_64" for p in r["problems"])'
    # The record that ships is of these kernels, else it is ignored: measure anew, or where their machine code is the
    # same as what was measured, write their new hashes there.
    python3 - "$record" "$SOL_SOURCE_DIR/src/ops/tuning_shipped.json" <<'PY' 2>"$work/err" || fail "the shipped record is of other kernels"
import json, sys
mine, shipped = (json.load(open(name))["devices"] for name in sys.argv[1:3])
for device in shipped:
    for op, kernels in device["kernels"].items():
        assert mine[-1]["kernels"].get(op, kernels) == kernels, f"{op}: {mine[-1]['kernels'][op]} here, {kernels} shipped"
PY
    edit '[e.update(variant="gemm_wgmma_cuda", choice="gemm_wgmma_bf16_16", ns=1) for d in r["devices"] for e in d["entries"]
          if e["op"] == "gemm" and e["dtype"] == "bf16"]'
    run 0 kernels --backend cuda -m synth:tiny,layers=2 --rows 200 --explain --wide
    has out 'gemm_wgmma_cuda:gemm_wgmma_bf16_16 .*tuning measured it'
    # entries of ops whose kernels are others are left out, of others not
    mkdir -p "$work/kernels/gemm" "$work/kernels/route"
    (cat "$SOL_SOURCE_DIR/kernels/route/route.cu"; echo // changed) >"$work/kernels/route/route.cu"
    run 0 kernels --backend cuda -m synth:tiny,layers=2 --rows 200 --explain --wide --kernel-src "$work/kernels"
    has err 'the tuning record is of other kernels of route, attn_out, attn_route, attn_moe and ignored there; sol tune measures anew'
    has out 'gemm_wgmma_cuda:gemm_wgmma_bf16_16 .*tuning measured it'
    (cat "$SOL_SOURCE_DIR/kernels/gemm/gemm_wgmma.cuh"; echo // changed) >"$work/kernels/gemm/gemm_wgmma.cuh"
    run 0 kernels --backend cuda -m synth:tiny,layers=2 --rows 200 --explain --wide --kernel-src "$work/kernels"
    has err 'the tuning record is of other kernels of gemm, route, attn_in, .* and ignored there'
    grep -q 'tuning measured it' "$work/out" && fail "a record of other kernels counts"
    edit 'r["devices"][-1]["kernels"] = "d8ca1ee568c46e2d"'
    run 0 kernels --backend cuda -m synth:tiny,layers=2 --rows 200
    has err 'the tuning record is of an earlier form'
    run 0 kernels --backend cuda --wide -m synth:tiny,layers=2 --rows 200 --force gemm=gemm_wgmma_cuda:gemm_wgmma_bf16_32
    has out 'gemm_wgmma_cuda:gemm_wgmma_bf16_32'
    run 2 kernels --backend cuda -m synth:tiny --force gemm=gemm_wgmma_cuda:huge
    has err 'no such choice; it has: gemm_wgmma_bf16_16, '
    unset LD_LIBRARY_PATH
    rm "$record"
fi

# ---- dry run ----
# shellcheck disable=SC2086 # options apart, here and below
run 0 tune $tiny --rows 1,4 --dry-run --wide
if grep -qE '^1 +attention' "$work/out"; then # where there is more than one kernel of it
    has out '^1 +attention +1 x f16 .* window='
fi
has out '^1 +gemm +[0-9]+ x '
has out 'problems would be timed'
[ -e "$record" ] && fail "a dry run wrote a record"

# ---- measuring, and the record ----
run 0 tune $tiny --rows 1,4 -d 0,20 -q --json
check 'r["written"] and len(r["problems"]) >= 4 and all(p["candidates"] >= 2 and p["wrong"] == 0 for p in r["problems"])'
check 'all(p["state"] in ("usual", "faster") and p["usual_ns"] > 0 for p in r["problems"])'
check 'all((p["gain"] > 0.01 and p["gain_low"] > 0) == (p["state"] == "faster") for p in r["problems"])'
check '{s["rows"] for s in r["steps"]} == {1, 4}'
[ -s "$record" ] || fail "no record"
run 0 tune $tiny --rows 4 --budget 60 -q # nothing is searched twice
has out '^0 problems timed in 0 s: 0 served faster, 0 as usual, [0-9]+ known from before'
run 0 tune $tiny --rows 4 --dry-run --again
has out '^[1-9][0-9]* problems would be timed$'
run 0 tune $tiny --rows 4 --budget 60 -q --again
has out '^[1-9][0-9]* problems timed in'
grep -q 'known' "$work/out" && fail "--again times nothing anew"
has out "^record: $record"

# ---- what plans make of it: another kernel than the usual one is said to be twice as fast ----
run 0 kernels $tiny --rows 4 --json --explain --no-tuning
cp "$work/out" "$work/usual"
pick='import json,sys
for p in json.load(open(sys.argv[1]))["steps"][0]["problems"]:
    others = [v["variant"] for v in p["variants"] if v["why"] == "later in the list" and v["variant"] != "reference"]
    if p["op"] == "rmsnorm" and others: print(others[0], p["variant"])'
read -r other usual < <(python3 -c "$pick" "$work/usual") || { echo "one kernel of rmsnorm here: the rest is not tested"; exit $((failures != 0)); }
edit "[e.update(variant='$other', usual='$usual', ns=1, usual_ns=2) for e in r['devices'][0]['entries'] if e['op'] == 'rmsnorm']"
run 0 kernels $tiny --rows 4 --explain --wide
has out "$other .*chosen: tuning measured it 100.0 % faster than $usual"
has out 'tuning measured another one to be faster'
run 0 kernels $tiny --rows 3
has out "rmsnorm .*$other" # 3 to 4 rows
run 0 kernels $tiny --rows 64
has out "rmsnorm .*$usual"
run 0 kernels $tiny --rows 4 --no-tuning
has out "rmsnorm .*$usual"
run 0 kernels $tiny --rows 4 --force "rmsnorm=$usual"
has out "rmsnorm .*$usual"
run 0 run $tiny --random-tokens 4 -n 2 -q --json
check 'len(r["settings"]["tuning"]) == 16 and "'"$other"'" in str(r["kernels"])'
run 0 run $tiny --random-tokens 4 -n 2 -q --json --no-tuning
check 'r["settings"]["tuning"] is None and not "'"$other"'" in str(r["kernels"])'
run 0 kernels -m synth:tiny,layers=2 -t 2 --rows 4 # another number of threads is another device
has out "rmsnorm .*$usual"

# ---- a choice of a variant ----
run 2 kernels $tiny --force rmsnorm="$usual":wide
has err 'the variant has no choices'

# ---- stale, foreign and damaged ----
cp "$record" "$work/good"
edit "r['devices'][0]['build'] = '0.0.1 old'"
run 0 kernels $tiny --rows 4
has err 'tuning record is of sol 0.0.1 old and ignored; sol tune writes a new one'
has out "rmsnorm .*$usual"
edit "r['devices'][0]['device'] = 'Some other machine'"
run 0 kernels $tiny --rows 4
has out "rmsnorm .*$usual"
[ -s "$work/err" ] && fail "a word about another device"
run 0 tune $tiny --rows 1 -q
grep -q 'Some other machine' "$record" || fail "another device's entries are lost"
run 0 tune --clear -t 1
has out 'nothing is recorded of'
grep -q 'Some other machine' "$record" || fail "--clear forgot another device"
grep -q rmsnorm "$work/good" || fail "the good record"
head -c 500 "$work/good" >"$record"
run 0 run $tiny --random-tokens 4 -n 2 -q
has err 'tuning record is damaged \(line [0-9]+\) and ignored'
run 0 tune $tiny --rows 1 -q
run 0 run $tiny --random-tokens 4 -n 2 -q
[ -s "$work/err" ] && fail "a word about a good record"

# ---- no time, no place ----
run 0 tune $tiny --rows 1 --budget 0.001 -q --again
has out 'not reached'
XDG_CACHE_HOME=/proc/none run 3 tune $tiny --rows 1 -q
has err 'cannot make the cache folder'
XDG_CACHE_HOME='' HOME='' run 0 run $tiny --random-tokens 4 -n 2 -q

exit $((failures != 0))
