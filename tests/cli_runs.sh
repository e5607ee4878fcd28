#!/usr/bin/env bash
# sol runs: list, show, export, label, delete, names of runs, errors.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

# runs STATUS ARGUMENT...
runs() {
    local expected=$1
    shift
    "$SOL_BINARY" runs "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status = "$expected" ] || fail "sol runs $*: status $status, expected $expected"
}

bench() {
    "$SOL_BINARY" bench -m synth:tiny -p 4 -n 0 -r 1 --no-limits -q -o csv "$@" >/dev/null 2>"$work/err" || fail "bench"
}

runs 0
has err '^no runs in '
bench --label base
bench
bench

runs 0
[ "$(grep -c '^b[0-9a-f]\{8\} ' "$work/out")" = 3 ] || fail "three runs were expected"
newest=$(awk '/^b/ { print $1 }' "$work/out" | head -n 1)
oldest=$(awk '/^b/ { print $1 }' "$work/out" | tail -n 1)
has out "^$oldest +bench +base +[0-9]+ s +ok +synth:tiny +sol bench"
runs 0 list --label base -o csv
[ "$(wc -l <"$work/out")" = 2 ] || fail "one run has the label"
runs 0 list -o json
has out '"state": "ok"'
runs 0 list --state invalid
has err '^no runs'

runs 0 show last
has out "^bench $newest\$"
has out '^pp4 +[0-9.]+ +t/s +[0-9]+ +1$'
runs 0 show last~2
has out "^bench $oldest\$"
runs 0 show "${newest:0:6}"
runs 0 export base
has out "\"id\": \"$oldest\""
has out '"samples": \['
runs 0 show last -o csv
has out '^metric,median,unit,'

runs 0 label last kept
runs 0 show kept
has out "^bench $newest\$"
runs 2 label last 'a~1'
runs 2 label last last
has err 'means the newest run'
runs 2 label last "$(printf 'two\nlines')"
has err 'control character'
runs 2 label last "$(printf 'caf\351')"
has err 'not UTF-8'
runs 2 label last "$(printf '%0101d' 0)"
has err 'too long'
for name in last "$(printf '\351')"; do
    "$SOL_BINARY" bench -m synth:tiny -p 4 -n 0 -r 1 --no-limits -q --label "$name" >"$work/out" 2>"$work/err" && fail "label"
    has err 'cannot be a label'
    [ -s "$work/out" ] && fail "a bad label is to be told before anything is measured"
done
runs 0 delete base last~1
runs 0
[ "$(grep -c '^b[0-9a-f]\{8\} ' "$work/out")" = 1 ] || fail "one run was to be left"

# Names that are no UTF-8 cost no results: model, folder and arguments.
odd=$work/$(printf 'caf\351')
mkdir "$odd"
cp "$SOL_SOURCE_DIR/models/builtin.gguf" "$odd/$(printf '\351').gguf"
cd "$odd" || fail "cd"
"$SOL_BINARY" bench -m ./*.gguf -p 4 -n 0 -r 1 --no-limits -q -o json >"$work/out" 2>"$work/err" || fail "bench of an odd name"
has out '"model_filename": ".*[?].gguf"'
runs 0 export last
has out '"cwd": ".*/caf[?]"'
runs 0 delete last
cd "$work" || fail "cd"

# A run that is killed is partial at once, also where nobody waits for its process, and one whose machine is not
# this one says how long it runs already and can be deleted.
if [ "${SOL_EMULATED:-}" ]; then
    echo "skipped: killed runs (the emulator tells a process another start time than others see)"
elif command -v python3 >/dev/null; then
    python3 - "$SOL_BINARY" <<'PY' >"$work/out" 2>"$work/err" || fail "a killed run"
import subprocess, sys, time
sol = sys.argv[1]
def listed():
    return subprocess.run([sol, "runs"], stdout=subprocess.PIPE, text=True).stdout
bench = subprocess.Popen([sol, "bench", "-p", "512", "-n", "0", "-r", "1000", "--no-limits", "-q", "--label", "killed"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while " running " not in listed():
    assert bench.poll() is None
    time.sleep(0.05)
print(listed())
bench.kill()
while open(f"/proc/{bench.pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z": time.sleep(0.01)
said = listed()
print(said)
assert " running for " not in said and " partial: " in said
bench.wait()
PY
    has out ' running for 0 min '
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE run SET state = ?, owner = ?, created = created - 3600 * 1000000000 * 100 WHERE label = ?",
           ("running", "elsewhere other-boot pid:[1] 1 1", "killed"))
db.commit()' "$work/store/store.db" || fail "sqlite"
    runs 0
    has out ' running for 4 days '
    runs 0 delete killed
else
    echo "no python3: killed runs are not tried"
fi

runs 2 show nothing
has err "no run is named 'nothing'"
runs 2 show
runs 2 lsit
has err "did you mean 'list'"
runs 2 list -o xml
runs 2 list --state odd
runs 3 --store /proc/none
echo "no database, and long enough to be taken for none at all" >"$work/store/store.db"
rm -f "$work"/store/store.db-*
runs 4
has err 'store.db is damaged'

exit $((failures != 0))
