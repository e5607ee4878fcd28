#!/usr/bin/env bash
# Small training runs that nanochat's own code did (tools/train_replay.py) done again: every loss, gradient and
# weight that is stored must come out. And what compares them must see what is wrong.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v python3 >"$work/out" || { echo "skipped: no python3"; exit 0; }
export PYTHONDONTWRITEBYTECODE=1
runs=$SOL_SOURCE_DIR/tests/train_replay

check() { # STATUS FOLDER ARGUMENT...
    local wanted=$1
    shift
    python3 "$SOL_SOURCE_DIR/tools/train_replay_check.py" "$@" >"$work/out" 2>"$work/err"
    is "train_replay_check.py $*" $? "$wanted"
}
folder() { # NAME: a copy of it, in $work/NAME
    rm -rf "${work:?}/$1"
    cp -r "$runs/$1" "$work/$1"
}
last() { # PATTERN: of the last line
    tail -n 1 "$work/out" | grep -qE "$1" || fail "the last line is not '$1'"
}

# ---- what compares ----
folder july_warm
out=$work/july_warm/out.safetensors
check 2 "$work/july_warm"
has err 'out.safetensors'
cp "$work/july_warm/expected.safetensors" "$out"
check 0 "$work/july_warm"
last '^[0-9]+ tensors compared, 0 outside limits$'
change() { # NAME WHAT: one tensor changed by Python on `numbers`
    python3 - "$runs/july_warm/expected.safetensors" "$out" "$@" 2>"$work/err" <<'END' || fail "change $1"
import array, json, struct, sys
path, out, name, what = sys.argv[1:]
data = bytearray(open(path, "rb").read())
size, = struct.unpack_from("<Q", data)
start, end = (8 + size + at for at in json.loads(data[8:8 + size])[name]["data_offsets"])
numbers = array.array("f", bytes(data[start:end]))
exec(what)
data[start:end] = numbers.tobytes()
open(out, "wb").write(data)
END
}
bad() { # NAME WHAT
    change "$@"
    check 1 "$work/july_warm" --all
    has out "^MISS .* $1\$"
    last ', 1 outside limits$'
}
bad train.loss 'numbers[19] += 2e-5'
bad eval.20.nll 'numbers[5] = float("nan")'
bad grad.0.lm_head.weight 'numbers[7] += 1e-2 * max(numbers)'
bad grad.0.smear_lambda 'numbers[0] *= -1'
bad w.20.lm_head.weight 'numbers[:] = array.array("f", (1.0001 * v for v in numbers))'
bad train.loss 'data[:] = data.replace(b"train.loss", b"train.lost")' # missing
change train.loss 'data[:] = data.replace(b"[128,32]", b"[32,128]")'
check 1 "$work/july_warm" --all
has out '^MISS +inf .* w.20.lm_head.weight$'
change w.20.lm_head.weight 'numbers[0] += 1e-8'
check 0 "$work/july_warm"
sed -i '/train.loss/d' "$work/july_warm/limits.json"
check 1 "$work/july_warm" --all
has out 'MISS .*limit -1.0e\+00 .*train.loss'
head -c 1000 "$runs/july_warm/expected.safetensors" >"$out"
check 2 "$work/july_warm"

# ---- sol ----
for name in july_warm july_own july_windows january_warm july_accum; do
    folder $name
    run 0 train replay "$work/$name" --exact -q
    check 0 "$work/$name"
done
run 0 train replay "$work/july_accum" --exact -q -o "$work/elsewhere"
cmp -s "$work/elsewhere" "$work/july_accum/out.safetensors" || fail "another run, other numbers"
exit $((failures != 0))
