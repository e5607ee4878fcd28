#!/usr/bin/env bash
# `sol profile` around a program without a GPU: its output and exit status, every way to end, what is kept
# and what is said to be lost, and bad usage. The library, the driver's call and CUPTI's buffers are as with
# a GPU; only libcupti is a fake.
set -uo pipefail
sol=$SOL_BINARY
app=$SOL_FAKE_APP
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
export SOL_CUPTI=$SOL_FAKE_CUPTI XDG_CACHE_HOME=$work/cache TMPDIR=$work/tmp SOL_STORE=$work/store
mkdir "$TMPDIR"
unset FAKE_CUPTI PAUSE_MS

if [ -n "${SOL_EMULATED:-}" ]; then
    echo "skipped: the emulator does not run other programs' binaries"
    exit 0
fi

fail() {
    echo "FAILED: $*"
    failed=1
}
# is WHAT GOT WANTED
is() { [ "$2" = "$3" ] || fail "$1: got '$2', not '$3'"; }
# profile STATUS ARGUMENT...: runs sol profile; out, err and report in $work
profile() {
    local wanted=$1 got
    shift
    rm -f "$work/report"
    "$sol" profile --report "$work/report" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ $got = "$wanted" ] || fail "sol profile $*: exit status $got, not $wanted: $(cat "$work/err")"
}
# has TEXT [FILE]
has() { grep -qF -- "$1" "$work/${2:-report}" || fail "no '$1' in ${2:-report}: $(cat "$work/${2:-report}")"; }
# json PATH: a value of the report
json() { python3 -c 'import json,sys
v = json.load(open(sys.argv[1]))
for k in sys.argv[2].split("."): v = v[int(k)] if k.isdigit() else v[k]
print(v)' "$work/report" "$1"; }
have_python=$(command -v python3 || true)

# the program's output and status are its own
profile 7 -- "$app" 100
is stdout "$(cat "$work/out")" "output return"
is stderr "$(cat "$work/err")" "error output"
has "300 kernels, 0 graph runs, 1 processes"
has "steps: 100, found by sequence"
has "gemm_bf16"
has "Fake H100, 132 SMs"
grep -q "cudaGetDevice" "$work/report" && fail "a call that does not matter was recorded"
is "input" "$(echo text | "$sol" profile --report "$work/report" -- cat 2>/dev/null)" text
"$sol" profile -- "$app" 3 >"$work/out" 2>/dev/null
has "9 kernels" out
[ -z "$(ls "$TMPDIR")" ] || fail "left in the folder for temporary files: $(ls "$TMPDIR")"

has "1755 to 1980 MHz, power up to 400 of 700 W, up to 41 C, throttle reasons 0x4"

# forms of the report
profile 7 -o csv -- "$app" 10
is "csv header" "$(head -n 1 "$work/report")" \
    kernel,category,time_percent,count,total_us,average_us,min_us,max_us,per_step
has "gemm_bf16,gemm,66.67,10,40.000,4.000,4.000,4.000,1"
if [ -n "$have_python" ]; then
    profile 7 -o json --trace "$work/trace.json" -- "$app" 10
    is schema "$(json schema)" sol.profile.1
    is kernels "$(json kernels_run)" 30
    is status "$(json exit_status)" 7
    is category "$(json kernels.0.category)" gemm
    is complete "$(json processes.0.complete)" True
    is "busy and gaps" "$(json device_time.busy_ns) $(json device_time.gaps)" "60000 19"
    python3 -c 'import json,sys; e = json.load(open(sys.argv[1]))["traceEvents"]
assert sum(x["ph"] == "X" and x["cat"] == "kernel" for x in e) == 30, e' "$work/trace.json" ||
        fail "the trace for Perfetto"
fi

# gates: the command's own failure comes first, so these are around one that succeeds
gate() { # STATUS TEXT OPTION...
    local wanted=$1 text=$2
    shift 2
    profile "$wanted" "$@" -- sh -c "'$app' 100; true"
    [ -z "$text" ] || has "$text" err
}
gate 0 "" --expect gemm_bf16=1/token --forbid dequantize --max-share 'gemm=70%'
gate 13 "gemm_bf16 ran 1 times per token, expected 2" --expect gemm_bf16=2/token
gate 13 "forbidden kernel gemm_bf16" --forbid gemm
gate 13 "takes 66.67 % of kernel time" --max-share 'gemm=10%'
gate 0 "wrote 3 kernels" --manifest "$work/manifest.json" --learn
gate 0 "" --manifest "$work/manifest.json"
sed -i 's/gemm_bf16/gemm_fp4/' "$work/manifest.json"
gate 13 "expected kernel gemm_fp4 did not run" --manifest "$work/manifest.json"
has "kept as run"
is "the run" "$("$sol" runs -o csv --state invalid | wc -l)" 5
"$sol" advise >"$work/out" 2>"$work/err"
is "advice on an invalid run" $? 13
profile 0 --no-store -- sh -c "'$app' 10; true"
grep -q "kept as run" "$work/report" && fail "--no-store kept a run"

# traces that are kept with a run are read again
profile 0 --label kept -- sh -c "'$app' 100; true"
"$sol" advise kept --expect gemm_bf16=1/token >"$work/out" 2>"$work/err"
is "advice on a kept trace" $? 0
has "steps of" out

# two profiles: what moved adds up, to kernels, gaps and clock that are known here
if [ -n "$have_python" ]; then
    profile 0 --label before -- sh -c "'$app' 200; true"
    SLOWER_NS=1500 LATER_NS=300 FAKE_MHZ=1584 profile 0 --label after -- sh -c "'$app' 200; true"
    "$sol" compare before after >"$work/report" 2>"$work/err"
    is "one start against one" $? 12
    "$sol" compare --calibrate -q "echo '{\"n_gen\": 1, \"samples_ns\": [5, 5]}'" >"$work/out" 2>"$work/err"
    is "calibration" $? 0
    "$sol" compare before after -o json >"$work/report" 2>"$work/err"
    is "slower" $? 11
    # of 10000 ns 1800 more: kernels and copies of 6500 ns take 1500 more, but a fifth of their
    # 8000 ns is the clock's doing
    python3 - "$work/report" <<'PY' || fail "the blame of two profiles: $(cat "$work/report")"
import json, sys
b = json.load(open(sys.argv[1]))["blame"][0]
near = lambda key, want, by: abs(b[key] - want) <= by or sys.exit(f"{key}: {b[key]}, not {want}")
near("delta_ns_per_token", 1800, 10)
near("gaps_ns", 300, 10)
near("clock_ns", 0.2 * 8000, 10)
near("kernels_ns", 1500 - 0.2 * 8000, 10)
near("residual_ns", 0, 10)
assert b["culprit"] == "gemm_bf16", b["culprit"]
total = b["kernels_ns"] + b["gaps_ns"] + b["clock_ns"] + b["residual_ns"]
assert abs(total - b["delta_ns_per_token"]) < 1e-6, total
PY
    "$sol" compare before after >"$work/report" 2>"$work/err"
    has "residual: kernels that ran at the same time"
    # what the replay of the first says of a change is what the second measured: a slower kernel
    SLOWER_NS=1500 profile 0 --label slower -- sh -c "'$app' 200; true"
    "$sol" advise before --what-if gemm_bf16=1.375 --what-if gap=0 -o json >"$work/predicted" 2>"$work/err" ||
        fail "what-if: $(cat "$work/err")"
    "$sol" advise slower --what-if gemm_bf16=1 -o json >"$work/measured" 2>"$work/err"
    python3 - "$work/predicted" "$work/measured" <<'PY' || fail "what-if: $(cat "$work/predicted" "$work/measured")"
import json, sys
predicted, measured = (json.load(open(p))["steps"][0] for p in sys.argv[1:])
slower, gap, both = (c["step_ns"] for c in predicted["changes"])
assert predicted["measured_ns"] == 10000 and measured["measured_ns"] == 11500, measured
assert abs(slower - measured["measured_ns"]) < 1, slower
assert abs(gap - 6000) < 1 and abs(both - 7500) < 1, (gap, both)
PY
    # the longest gaps, with what lay on both sides and why, reach the page
    "$sol" report after -o "$work/page.html" >"$work/out" 2>"$work/err" || fail "report: $(cat "$work/err")"
    grep -q "The longest gaps" "$work/page.html" || fail "no gaps on the page"
    sed 's/<wbr>//g' "$work/page.html" >"$work/page.txt"
    grep -q 'copy DtoH</td><td class="name">rms_norm(float.*</td><td>the host launched late' "$work/page.txt" ||
        fail "the gap after the copy: $(grep -A3 'longest gaps' "$work/page.html" | head -n 20)"
fi

# two GPUs, as threads of a process and as two processes: one clock, and everywhere the same figure
ranks() { # COMMAND...
    profile 0 -o json --label shared --trace "$work/trace.json" -- "$@"
    "$sol" runs show shared -o json >"$work/shown" 2>"$work/err" || fail "runs show: $(cat "$work/err")"
    "$sol" advise shared -o json >"$work/advice" 2>"$work/err" || fail "advise: $(cat "$work/err")"
    "$sol" report shared -o "$work/page.html" >"$work/out" 2>"$work/err" || fail "report: $(cat "$work/err")"
    python3 - "$work" <<'PY' || fail "two GPUs by $*: $(cat "$work/report")"
import json, re, sys
load = lambda name: json.load(open(f"{sys.argv[1]}/{name}"))
def short(v): # a store keeps ten digits
    if isinstance(v, dict): return {k: short(w) for k, w in v.items()}
    if isinstance(v, list): return [short(w) for w in v]
    return float(f"{v:.9g}") if isinstance(v, float) else v
report, trace = load("report"), load("trace.json")["traceEvents"]
c = report["communication"]
wanted = {"ranks": 2, "collectives": 1, "exposed_ns": 3500, "waiting_ns": 2000, "moving_ns": 1500, "total_ns": 4000}
assert {k: round(c[k]) for k in wanted} == wanted, c
assert [(round(r["exposed_ns"]), round(r["waiting_ns"])) for r in c["each"]] == [(3500, 2000), (1500, 0)], c
assert short(load("shown")["payload"]["communication"]) == short(c)
found = [a for a in load("advice")["advice"] if a["rule"] == "exposed"][0]
assert short(found["ceiling_ns"]) == short(found["evidence"]["exposed_ns"]) == short(c["exposed_ns"]), found
assert short(found["evidence"]["waiting_ns"]) == short(c["waiting_ns"])
assert load("advice")["first"].startswith("Find out why the last rank is late"), load("advice")["first"]
page = open(sys.argv[1] + "/page.html").read()
text = re.sub("<[^>]*>", " ", page)
assert re.search(r"spends 3\.50\s.s \(35\s%\)", text), text[-20000:]
assert re.search(r"exposed communication\s+\+3\.50", text) and "1: gaps" in text and "wait for a slower rank" in text
names = [e["args"]["name"] for e in trace if e["name"] == "process_name"]
assert [n for n in names if n.startswith("rank")] == ["rank 0: GPU Fake H100", "rank 1: GPU Fake H100"], names
sums = [e for e in trace if e["ph"] == "X" and "nccl" in e["name"]]
assert len(sums) == 80 and sorted({e["args"]["waited_us"] for e in sums}) == [0, 2], sums[:2]
assert len({e["ts"] + e["dur"] for e in sums}) == 40, "they end together"
kernels = {k["name"]: k["per_step"] for k in report["kernels"]}
assert set(kernels.values()) == {1}, kernels # of a rank, not of all
PY
}
if [ -n "$have_python" ]; then
    ranks sh -c "'$app' 40 ranks; true"
    FAKE_SECOND=$(date +%s) ranks sh -c "FAKE_RANK=0 '$app' 40 ranks & FAKE_RANK=1 '$app' 40 ranks; wait"
fi

# every way to end: what was flushed is kept
ended() { # ACTION STATUS KERNELS PROCESSES
    rm -rf "$work/kept"
    PAUSE_MS=400 profile "$2" --output "$work/kept" -- "$app" 100 "$1"
    has "$3 kernels, 0 graph runs, $4 processes"
}
ended return 7 300 1
ended fork 7 306 1
has "child 3" out
PAUSE_MS=400 profile 7 --output "$work/child" -- "$app" 100 child # the child's records in a file of its own
has "0 graph runs, 2 processes"
has "lost: 1 of 2 processes"
"$sol" profile -o csv --read "$work/child" | awk -F, '$1 == "gemm_bf16" && $4 > 3000 && $4 < 4102 { n = 1 } END { exit !n }' ||
    fail "the kernels of parent and child: $(cat "$work/report")"
ended exec 7 306 2
has "lost: 1 of 2 processes ended without closing their trace"
ended _exit 7 300 1
has "lost: 1 of 1 processes"
ended kill 137 300 1
has "note: signal 9 ended the command"
ended segv 139 300 1
echo kept >"$work/other" # a daemon closes all descriptors: what it opens then is not the trace's
OTHER_FILE=$work/other ended closed 7 300 1
is "a file of the program" "$(cat "$work/other")" kept
ended odd 7 300 1
has "lost: times of 1 pieces of device work"
has "lost: 1 records of unknown form"

profile 7 -o csv -- "$app" 1 names
is "3000 names" "$(grep -c '^kernel_[0-9]*,other,.*,1,1.000,' "$work/report")" 3000

# files that were kept, whole and cut off
ended return 7 300 1
"$sol" profile --read "$work/kept" >"$work/report" || fail "--read"
has "300 kernels"
file=$(ls "$work"/kept/[0-9]*.soltrace)
size=$(stat -c %s "$file")
head -c $((size - 5)) "$file" >"$file.cut"
mv "$file.cut" "$file"
"$sol" profile --read "$work/kept" >"$work/report" || fail "--read of a file that was cut off"
has "of 1 trace files"
echo garbage >"$work/kept/1-1.soltrace"
"$sol" profile --read "$work/kept" >"$work/report" || fail "--read with a file that is no trace"
has "is no trace file"
# a file grows while the program runs
PAUSE_MS=1500 "$sol" profile --output "$work/grow" -- "$app" 100 >/dev/null 2>&1 &
for _ in $(seq 200); do
    sleep 0.1
    size=$(cat "$work"/grow/*.soltrace 2>/dev/null | wc -c)
    [ "$size" -gt 10000 ] && break
done
[ "$size" -gt 10000 ] || fail "the file did not grow within a second: $size bytes"
wait

# CUPTI in trouble: the program runs on, the report says why
FAKE_CUPTI=rival profile 7 -- "$app" 10
has "note: another profiler holds CUPTI, nothing was traced: CUPTI for other tool"
has "0 kernels"
FAKE_CUPTI=dropped profile 7 -- "$app" 10
has "records dropped by CUPTI"
FAKE_CUPTI=old profile 7 -- "$app" 10
has "libcupti has version 17"
FAKE_CUPTI=none profile 7 -- "$app" 10
has "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
SOL_CUPTI=$work/nothing.so profile 7 -- "$app" 10
has "cannot load $work/nothing.so"

SOL_NVML=$work/nothing.so profile 7 -- "$app" 10
has "30 kernels"

# levels, and a library of one's own
profile 7 --level off -- "$app" 10
[ -e "$work/report" ] && fail "a report at level off"
profile 7 --level node -- "$app" 10
has "tracing level node"
cp "$work"/cache/sol/libsol_inject-*.so "$work/own.so"
profile 7 --inject-library "$work/own.so" -- "$app" 10
has "30 kernels"
# level launch: no CUPTI; what the program launched by every way to the driver, and not what it captured
launched() { # STATUS RUNS ARGUMENT...
    local status=$1 runs=$2
    shift 2
    LD_LIBRARY_PATH=$SOL_FAKE_DRIVER SOL_CUPTI=$work/nothing.so profile "$status" --level launch "$@" -- \
        "$SOL_FAKE_LAUNCHER" "$runs"
}
LD_LIBRARY_PATH=$SOL_FAKE_DRIVER "$SOL_FAKE_LAUNCHER" 3 >"$work/plain" || is "alone" $? 7
launched 7 100
is "its output" "$(cat "$work/out")" "next found
output"
is "alone, nothing comes before" "$(cat "$work/plain")" "next not found
output"
has "0 kernels, 100 graph runs, 1 processes, tracing level launch"
has "steps: 100, found by graph graph 1; typical step 2.000 ms"
has "Fake H100, 16 SMs"
has "cuGraphLaunch        api     100"
grep -qE "^first\(float\*\) +other +7 +500$" "$work/report" || fail "kernel first: $(cat "$work/report")"
grep -qE "^second +other +2 +100$" "$work/report" || fail "kernel second: $(cat "$work/report")"
grep -qE "^graph 1 +graph +100 +0$" "$work/report" || fail "runs of the graph: $(cat "$work/report")"
grep -q "lost" "$work/report" && fail "something was lost: $(cat "$work/report")"
launched 7 3000 -o csv # more often than timing all is worth
has "first(float*),other,7,15000"
launched 7 3000
has "timing each would cost over 1 %"
has "sampled: 511 of 2998 steps were timed"
grep -q "0 kernels, 512 graph runs" "$work/report" || fail "runs that were timed: $(head -n 4 "$work/report")"
LD_PRELOAD=$SOL_NVML launched 7 3 # what the user preloads stays
has "3 graph runs"
# counters without ncu
counted() { # STATUS ARGUMENT...
    local status=$1
    shift
    LD_LIBRARY_PATH=$SOL_FAKE_DRIVER profile "$status" "$@" -- "$app" 0 counted
}
counted 7 --with cupti --output "$work/counts"
has "attention(float*)" out
has "that take most time:" out
has "   roofline   compute" out
has "   so         " out
has "4.12 waves of blocks" out # 264 blocks, 4 fit on each of 16 SMs
is "kernels counted" "$(grep -cE '^"[0-9]+","' "$work"/counts/counters-*.csv)" 75
grep -q '^"65","_Z9attentionPf",.*,"100","101"' "$work"/counts/counters-*.csv || fail "the second session: $(cat "$work"/counts/*.csv)"
grep -q 'imc_miss' "$work"/counts/counters-*.csv && fail "a metric that this chip does not have"
grep -q '^"70","gemm, ""f32""",' "$work"/counts/counters-*.csv || fail "a name with quotes"
counted 7 --with cupti --counters matmul
has "first 200 launches of matmul" err
grep -q attention "$work/out" && fail "a kernel that was not asked for"
counted 3 --with cupti --counters rope
has "no kernel that was asked for was launched" err
FAKE_CUPTI=none counted 5 --with cupti
has "CUPTI counts nothing here: counting: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" err
# the cached library is what it should be, and is mended when it is not
echo spoilt >"$(ls "$work"/cache/sol/libsol_inject-*.so)"
profile 7 -- "$app" 10
has "30 kernels"
XDG_CACHE_HOME=/proc/none HOME=/proc/none profile 7 -- "$app" 10 # no place for a cache
has "30 kernels"

# errors
profile 0 -- true
has "did not start CUDA" err
profile 127 -- "$work/no-such-command"
has "cannot run '$work/no-such-command'" err
profile 126 -- "$work"
profile 2 --with nsys
has "no command" err
profile 2 --with strace -- true
has "the tools are nsys, ncu and cupti" err
profile 2 --learn -- true
profile 2 --expect 'gemm(' -- true
has "no regular expression" err
profile 2 --level high -- true
has "bad value 'high' for --level: expected off, launch, graph or node" err
profile 2 -o xml -- true
profile 3 --inject-library "$work/none.so" -- true
profile 2 --output "$work/kept" -- true
has "must be empty" err
profile 2 --read "$work/kept" -- true
profile 3 --read "$work/none"
mkdir "$work/empty"
profile 4 --read "$work/empty"
profile 7 --range nowhere -- "$app" 10
has "no NVTX range 'nowhere'" err
"$sol" profile --report /proc/none/x -- "$app" 1 >/dev/null 2>"$work/err"
is "a report that cannot be written: status" $? 3 # before the command runs
has "cannot create '/proc/none/x'" err

# SIGTERM reaches the command
"$sol" profile --report "$work/report" -- sh -c 'trap "exit 5" TERM; echo up; sleep 5 & wait' \
    >"$work/out" 2>/dev/null &
for _ in $(seq 600); do
    grep -q up "$work/out" && break
    sleep 0.1
done
kill -TERM $!
wait $!
is "status after SIGTERM" $? 5

exit $failed
