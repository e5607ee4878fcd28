#!/usr/bin/env bash
# What others wrote does not steer a terminal: names of files, stored texts, generated text.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1 # reports are written here
odd=$(printf 'a\033[31mb\rc\177d\302\233e\342\200\256f\233g')

# clean WHAT: no control characters but newline and tab in out and err, as bytes, UTF-8 or turned text.
clean() {
    LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]|(?<![\x80-\xff])[\x80-\xbf]' \
        "$work/out" "$work/err" && fail "$1 prints control characters"
}
echo x | LC_ALL=C grep -qP 'x' || { echo "grep has no -P: nothing is tried"; exit 0; }

# ---- messages, tables, facts ----
run 3 model info -m "$odd"
has err 'a\\x1b\[31mb\\x0dc\\u007fd\\u009be\\u202ef\\x9bg'
clean "a message"
run 2 "$odd"
clean "an unknown command"
run 2 run --"$odd"
clean "an unknown option"
cp "$SOL_SOURCE_DIR/tests/golden/base_mxfp4.gguf" "$work/$odd.gguf"
for verb in "model info --tensors --keys" "model check" "model info --json" "bench -p 4 -n 0 -r 1 --no-limits -q" \
    "bench -p 4 -n 0 -r 1 --no-limits -q -o json"; do
    # shellcheck disable=SC2086 # words
    run 0 $verb -m "$work/$odd.gguf"
    clean "sol $verb"
done
for verb in "runs" "runs show last" "runs export last" "runs -o json" "runs -o csv" "runs -o md" "advise last" "report last"; do
    # shellcheck disable=SC2086
    "$SOL_BINARY" $verb >"$work/out" 2>"$work/err" </dev/null
    clean "sol $verb"
done
if command -v python3 >/dev/null; then
    # Stored by somebody else: every text of a run.
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
odd = "a\x1b[31mb\rc\x7fd\x9be\u202ef\ng"
for table, columns in {"run": ["label", "reason", "cwd", "backend", "device", "model", "model_type"],
                       "metric": ["name", "unit"], "advice": ["rule", "subject", "text"]}.items():
    for column in columns: db.execute(f"UPDATE {table} SET {column} = ?", (odd,)) if table == "run" else None
run = db.execute("SELECT id FROM run").fetchone()[0]
db.execute("INSERT INTO metric(run, name, unit, better) VALUES(?, ?, ?, ?)", (run, odd, odd, "lower"))
db.execute("INSERT INTO advice(run, rule, subject, text) VALUES(?, ?, ?, ?)", (run, odd, odd, odd))
db.execute("INSERT INTO kernel(run, metric, phase, op, name) VALUES(?, ?, ?, ?, ?)", (run, odd, odd, odd, odd))
db.execute("INSERT INTO artifact VALUES(?, ?, ?, 1, ?)", (run, odd, odd, odd))
db.commit()
print(run)' "$work/store/store.db" >"$work/id" || fail "sqlite"
    for verb in "runs" "runs show" "runs export" "runs -o csv" "advise" "report"; do
        # shellcheck disable=SC2046,SC2086
        "$SOL_BINARY" $verb $([[ $verb == runs* && $verb != *show && $verb != *export ]] || cat "$work/id") \
            >"$work/out" 2>"$work/err" </dev/null
        clean "sol $verb of a strange store"
    done
    "$SOL_BINARY" report "$(cat "$work/id")" -o "$work/out" >/dev/null 2>"$work/err"
    LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]' "$work/out" && fail "a report has control characters"
fi

# ---- generated text: as it is into a file, shown on a terminal ----
generate=("$SOL_BINARY" run -p hello -n 3000 --temperature 1000 --seed 1 --context 4096)
"${generate[@]}" >"$work/out" 2>"$work/err" </dev/null || fail "generating"
LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]' "$work/out" || fail "what was generated has no control character to try"
if command -v python3 >/dev/null; then
    python3 - "$work/out" "${generate[@]}" <<'PY' 2>"$work/err" || fail "a terminal"
import os, pty, sys
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[2], sys.argv[2:])
data = b""
while True:
    try: more = os.read(fd, 65536)
    except OSError: break
    if not more: break
    data += more
# The terminal's own end of a line, and the line that shows progress.
data = data.replace(b"\r\n", b"\n").replace(b"\r\x1b[K", b"")
open(sys.argv[1], "wb").write(data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PY
    sed -i 's/^prompt: [0-9]*.* left//' "$work/out"
    clean "sol run on a terminal"
    has out '\\x'

    # ---- progress: which test of how many, the share of all, the time left; no exponents ----
    often=250 # more than the second after which progress is shown, on fast machines too
    [ "${SOL_SANITIZED:-}" ] && often=4 # there kernels are slow
    python3 - "$work/out" "$SOL_BINARY" bench -p 256 -n 64,96 -r $often --no-limits --no-store <<'PY' 2>"$work/err" || fail "progress"
import os, pty, re, sys
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[2], sys.argv[2:])
data = b""
while True:
    try: more = os.read(fd, 65536)
    except OSError: break
    if not more: break
    data += more
os.waitpid(pid, 0)
lines = [l for l in re.split(r"\r|\n|\x1b\[K", data.decode()) if l.startswith("test ") and " of " in l]
open(sys.argv[1], "w").write("\n".join(lines))
lines = list(dict.fromkeys(lines)) # a first repetition says the same as long as it takes
shares = [int(m.group(1)) for m in (re.fullmatch(r"test [123] of 3, (?:pp256|tg64|tg96): (\d+) %, \d+ (?:s|min) left", l) for l in lines) if m]
assert shares and len(shares) >= len(lines) - 3, "not all lines say it"
assert shares == sorted(shares) and shares[-1] < 100, "the share goes back"
PY
else
    echo "no python3: no terminal is tried"
fi

exit $((failures != 0))
