#!/usr/bin/env bash
# Tables fit 80 columns, or the terminal; --wide, Markdown and CSV have everything; what is left out is said.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1

# ---- runs to show: names of 2,000 characters that differ in one place, many tests, labels ----
tiny="bench -m synth:tiny -p 4 -n 2 -r 2 -t 1 --no-limits -q"
run 0 $tiny --ops --label a-label-of-some-length-for-a-run
run 0 $tiny --ops -d 0,100 --npl 1,2
cp out bench.txt
run 12 compare last~1 last
python3 -c 'import json
name = "void library::(anonymous namespace)::kernel<" + "Layout<RowMajor, Shape<64>>, " * 70 + "%d>(Params)"
json.dump([{"avg_ns": 1e6, "n_gen": 4, "n_prompt": 0, "model_filename": "m" * 300, "model_type": "t" * 300,
            "cpu_info": "a processor of a long name " * 5, "test_time": "2026-01-01T00:00:00Z"}], open("other.json", "w"))
record = {"kind": "bench", "label": None, "state": "ok", "metrics": [
    {"name": "tg4", "unit": "ns/token", "better": "lower", "samples": [{"value": 1000 + i} for i in range(6)]}], "kernels": [
    {"metric": "tg4", "phase": "decode", "layer": -1, "name": name % i, "calls": 1e9, "expected": 1, "calls_per_token": 1,
     "total_ns": 1e15 / 3, "limit_ns": 1e14} for i in range(9)]}
json.dump(record, open("kernels.json", "w"))' || { echo "no python3: not tried"; exit 0; }
run 0 import other.json
run 0 import --label kernels kernels.json

# too_wide FILE: lines of more than 80 characters, but for what is no table (headings and notes)
too_wide() {
    LC_ALL=C.UTF-8 awk -v RS='' -v FS='\n' '
        $1 ~ /^(sol [0-9]|limits|live|historical|old:|new:|run |% mem|[0-9]+\. )/ { next }
        { for (i = 1; i <= NF; i++)
              if (length($i) > 80 && $i !~ /^(\(|  [a-z]+ +[^ ]|next|usage|.*kernels are |% mem|all threads|[a-z ]+: |[^ ]+: |\*)/) print $i }' "$1"
}
for command in "runs" "runs show last" "runs show last~1" "runs show kernels" "runs show a-label-of-some-length-for-a-run" kernels \
    "kernels -m synth:tiny --explain --rows 1" "kernels -m synth:tiny" "device --known" "device --seconds 0.0001 -q" \
    "advise --rules" "model info --tensors" "verify --op gemm --op rmsnorm --brief --rounds 1 --ops-only" \
    "$tiny --ops --no-store" "bench --op rmsnorm:m=3,check=reference" \
    "gemm check --quick -q" "gemm bench --shape m=2;n=8;k=16 -q --no-store" \
    "tune -m synth:tiny,layers=1 --rows 1 --dry-run -q" "profile -m synth:tiny --layers --no-store"; do
    # shellcheck disable=SC2086 # words
    run 0 $command
    [ -s out ] || fail "sol $command prints nothing"
    too_wide out >wide
    [ -s wide ] && fail "sol $command is wider than 80 columns: $(head -3 wide)"
    # shellcheck disable=SC2086
    run 0 $command --wide
    grep -q -- '--wide shows' out && fail "sol $command --wide leaves something out"
done
run 12 compare a-label-of-some-length-for-a-run "$(sed -n 's/^run //p' bench.txt)"
too_wide out >wide
[ -s wide ] && fail "sol compare is wider than 80 columns: $(head -3 wide)"

# ---- what is left out is said, once; names stay distinct ----
run 0 device --known
is "notes" "$(grep -c -- '--wide shows all)$' out)" 1
has out '^\(left out: .*source.*; --wide shows all\)$'
run 0 device --known --wide
has out '^H100 SXM .* datasheet +NVIDIA H100 datasheet'
run 0 profile -m synth:tiny --no-store
is "notes that the table before had" "$(grep -- '--wide shows all)$' out | uniq -d)" ""
run 0 runs show kernels
is "kernels that can be told apart" "$(grep '^tg4 .*kernel' out | sed 's/ *1000000000.*//' | sort -u | wc -l)" 9
run 0 advise kernels
is "findings that can be told apart" "$(grep '^distance ' out | sort -u | wc -l)" 9
is "sentences that can be told apart" "$(grep '^[1-9]\. ' out | sed 's/^[1-9]. //' | sort -u | wc -l)" 9
run 0 runs show kernels --wide
has out 'Layout<RowMajor, Shape<64>>, 8>\(Params\)'
run 0 runs show kernels -o md
has out 'Layout<RowMajor, Shape<64>>, 8>\(Params\)'

# Remarks on tests: one line for the same one, whatever the number of tests.
run 0 bench -m synth:tiny -p 4,5,6 -n 2,3 -d 0,8 -t 1 --max-time 0.02 --no-limits --no-store -q
is "remarks on the warm-up" "$(grep -c 'did not settle' out)" "$(grep -c 'did not settle' out | sed 's/[2-9]/1/')"
[ "$(grep -cE '^(noisy|not within|the warm-up|outliers)' out)" -le 8 ] || fail "remarks are repeated for every test"

# ---- no exponents ----
run 0 runs show kernels
grep -qE '[0-9]e\+[0-9]' out && fail "an exponent in a table"

# ---- a terminal says how wide it is ----
terminal() { # COLUMNS ARGUMENT...: the widest line
    python3 - "$@" <<'PY'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, int(sys.argv[1]), 0, 0))
    os.execv(os.environ["SOL_BINARY"], ["sol"] + sys.argv[2:])
data = b""
while True:
    try: more = os.read(fd, 65536)
    except OSError: break
    if not more: break
    data += more
os.waitpid(pid, 0)
print(max(len(l) for l in data.decode().splitlines()))
PY
}
export SOL_BINARY
is "a terminal of 60 columns" "$(($(terminal 60 kernels) <= 60))" 1
widest=$(terminal 120 kernels)
[ "$widest" -gt 80 ] && [ "$widest" -le 120 ] || fail "a terminal of 120 columns gets $widest"

exit $((failures != 0))
