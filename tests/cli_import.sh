#!/usr/bin/env bash
# sol import: a run of each format, what is said of what is missing, and of files that are none. sol profile
# --with: the commands that it makes, with scripts in place of the tools.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
data=$SOL_SOURCE_DIR/tests/data/import

has() { grep -qF -- "$2" "$work/$1" || fail "no '$2' in $1"; }

# ---- every format ----
run 0 import "$data"/llama_bench_new.json "$data"/llama_bench_new.jsonl "$data"/llama_bench_old.json
has out "llama-bench, 4 metrics"
has out "llama-bench, 2 metrics"
run 0 import --label counted "$data/ncu_raw.csv"
has out "counters of 2 kernels"
has out "pieces of advice"
run 0 import "$data/ncu_2025_3.csv"
has out "counters of 5 kernels"
run 0 advise last
has out "too small a grid"
run 0 import "$data/ncu_metrics.csv" "$data/nvbench.json"
has out "note: no speed-of-light counters"
has out "not enough memory"
run 0 import -o json "$data/nvbench.json"
has out '"format": "nvbench"'
run 0 runs -o csv
is "stored runs" "$(grep -c -E ',(import|profile),' "$work/out")" 8
run 0 runs show last
has out "gemm K=1024"
# the file that a run came from, in the list, alone, and for programs; the command reads just that one
run 0 runs -o csv
has out ",llama_bench_old.json,sol import $data/llama_bench_old.json"
run 0 runs --wide
has out "nvbench.json"
run 0 runs show last
has out "  source       nvbench.json"
has out "  command      sol import $data/nvbench.json"
run 0 runs -o json
has out '"source": "llama_bench_old.json"'
cp "$data/nvbench.json" "$work/$(printf 'odd \377.json')" # a name that is no UTF-8
run 0 import "$work/$(printf 'odd \377.json')"
run 0 runs show last
has out "  source       odd ?.json"
run 0 runs delete last

# of a GPU, as the tools wrote them
run 0 import --label gpu "$data/llama_bench_cuda.json"
has out "llama-bench, 4 metrics"
run 0 runs show gpu
has out "NVIDIA H100 80GB HBM3"
has out "CUDA"
has out "tg4 @ d32"
run 0 import "$data/nvbench_copy.json"
has out "nvbench, 2 metrics"
has out "copy MiB=2097152 was skipped: larger than the memory"

# sol's own: what one store exports another takes
run 0 import "$data/nvbench.json"
run 0 runs export last
cp "$work/out" "$work/run.json"
run 0 import --store "$work/other" "$work/run.json"
has out "sol, 2 metrics"

# advice that only the file could give is kept
run 0 advise counted
has out "slow_kernel"
has out "next: "

# ---- nsys, made here from the schema ----
database() {
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[2])
db.executescript(open(sys.argv[1]).read())
db.commit()' "$data/$1" "$2"
}
if command -v python3 >/dev/null && python3 -c 'import sqlite3' 2>/dev/null; then
    database nsys.sql "$work/a.sqlite"
    database nsys_2022_4.sql "$work/real.sqlite"
    run 0 import "$work/real.sqlite"
    has out "nsys, 889 events"
    run 0 advise "$work/real.sqlite"
    has out "4 steps of 431 us on average: busy 228 us"
    has out "The device waits 147 us of a step"
    has out "The step runs as a CUDA graph; 7.5 copies and kernels start outside it"
    has out "between two runs of the graph"
    # a replay of a few steps that were kept says what one of the file says
    run 0 advise last --what-if gap=0 --what-if norm=0.5
    tail -n +3 "$work/out" >"$work/kept"
    run 0 advise "$work/real.sqlite" --what-if gap=0 --what-if norm=0.5
    has out "step: 488 us a step (median); the schedule of 4 steps replayed"
    is "a replay of what was kept" "$(cat "$work/kept")" "$(cat "$work/out")"
    run 0 compare --roles last "$work/real.sqlite" -o json
    is "the same by roles" "$(grep -c '"delta_ns": 0.0' "$work/out")" "$(grep -c '"delta_ns":' "$work/out")"
    run 0 import "$work/a.sqlite"
    has out "nsys, 110 events"
    run 0 advise "$work/a.sqlite"
    has out "pageable"
    run 13 advise "$work/a.sqlite" --expect 'gemm=2/token' --range decode
    has out "ran 1 times per token, expected 2"
    # what an nsys older than the driver leaves: calls, and none of their kernels
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY;")
db.commit()' "$work/real.sqlite"
    run 4 import "$work/real.sqlite"
    has err "not older than the driver"
    head -c 9000 "$work/a.sqlite" >"$work/cut.sqlite"
    run 4 import "$work/cut.sqlite"
    has err "cut.sqlite"
else
    echo "no python3 with sqlite3: no nsys export is made"
fi

# ---- what is no result ----
run 2 import
has err "no file"
run 3 import /nowhere/file.json
printf 'hello\n' >"$work/text"
run 4 import "$work/text"
has err "of no known format"
printf '[{"avg_ns": 1}]' >"$work/bad.json"
run 4 import "$work/bad.json" "$data/nvbench.json"
has err "record 1 is no test"
has out "nvbench, 2 metrics"
run 2 import -o xml "$data/nvbench.json"

# ---- sol profile --with ----
mkdir "$work/bin"
cat >"$work/bin/ncu" <<SH
#!/bin/sh
echo "\$@" >"$work/words"
while [ \$# -gt 0 ]; do
    [ "\$1" = --log-file ] && log=\$2 && shift 2 && break
    shift
done
[ "\$1" = false ] || cp "$data/ncu_raw.csv" "\$log"
exec "\$@"
SH
chmod +x "$work/bin/ncu"
PATH=$work/bin:$PATH run 0 profile --with ncu -- echo "of the program"
has out "of the program"
has out "slow_kernel"
has err "on the first 200 launches; --counters full counts everything"
grep -q -- "--metrics .*--launch-count 200" "$work/words" || fail "no bound: $(cat "$work/words")"
grep -q -- '--csv --page raw .* echo of the program' "$work/words" || fail "ncu's words: $(cat "$work/words")"
PATH=$work/bin:$PATH run 0 profile --counters attention -- true
grep -q -- '--metrics gpu__time_duration.*--launch-count 200 --kernel-name regex:attention' "$work/words" ||
    fail "ncu's words: $(cat "$work/words")"
PATH=$work/bin:$PATH run 0 profile --counters full -- true
grep -q -- "--set full" "$work/words" || fail "ncu's words: $(cat "$work/words")"
PATH=$work/bin:$PATH run 2 profile --counters everything -- true
has err "--counters everything: write full, quick"
sed -i 's/cp ".*ncu_raw.csv"/cp "$RAW"/' "$work/bin/ncu"
export RAW=$work/remarks
printf '==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - no permission\n' >"$RAW"
PATH=$work/bin:$PATH run 5 profile --with ncu -- true
has err "ncu counted nothing: ERR_NVGPUCTRPERM"
printf '==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. add\n' >"$RAW"
PATH=$work/bin:$PATH run 5 profile --counters rope -- true
has err "no kernel that was asked for was launched"
PATH=$work/bin:$PATH run 3 profile --with ncu -- false
has err "ncu made no report (its exit status is 1)"
run 0 runs -o csv --kind profile -n 1
has out "profile"
if [ "${SOL_EMULATED:-}" ]; then
    echo "skipped: an empty PATH, where the emulator would not be found either"
else
    PATH=/nowhere run 5 profile --with nsys -- true
    has err "nsys is not in PATH: install Nsight Systems"
fi
if [ -f "$work/a.sqlite" ]; then
    cat >"$work/bin/nsys" <<SH
#!/bin/sh
echo "\$@" >>"$work/nsys_words"
mode=\$1
while [ \$# -gt 0 ]; do
    [ "\$1" = --output ] && out=\$2 && shift 2 && break
    shift
done
[ \$mode = export ] && exec cp "$work/a.sqlite" "\$out"
echo report >"\$out"
exec "\$@"
SH
    chmod +x "$work/bin/nsys"
    PATH=$work/bin:$PATH run 0 profile --with nsys --level node -- true
    has out "30 kernels"
    has out "kept as run"
    grep -q -- '--cuda-graph-trace=node' "$work/nsys_words" || fail "nsys's words"
    PATH=$work/bin:$PATH run 13 profile --with nsys --forbid silu -- true
    has err "violated: forbidden kernel silu_kernel ran 10 times"
fi

[ $failures = 0 ] || exit 1
echo "ok"
