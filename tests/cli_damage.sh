#!/usr/bin/env bash
# Models whose weights are no numbers: whatever needs their logits names the tensor (4), and where every weight is a
# number says that (7).
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v python3 >/dev/null || { echo "no python3: nothing damages a model here"; exit 0; }
golden=$SOL_SOURCE_DIR/tests/golden/base_mxfp4.gguf

# damage FILE TENSOR BYTE OFFSET COUNT: COUNT bytes of a tensor from OFFSET on (0: all) are BYTE, in a GGUF file.
damage() {
    python3 - "$@" <<'PY'
import struct, sys
path, wanted, byte, offset, count = sys.argv[1], sys.argv[2], int(sys.argv[3], 0), int(sys.argv[4]), int(sys.argv[5])
data = bytearray(open(path, "rb").read())
at = 8
def take(form):
    global at
    value = struct.unpack_from("<" + form, data, at)[0]
    at += struct.calcsize(form)
    return value
def text():
    global at
    n = take("Q")
    at += n
    return bytes(data[at - n:at]).decode()
sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
def value(kind):
    if kind == 8: return text()
    if kind == 9:
        kind, n = take("I"), take("Q")
        return [value(kind) for _ in range(n)]
    return take(sizes[kind])
tensors, keys, alignment, places = take("Q"), take("Q"), 32, {}
for _ in range(keys):
    name, v = text(), value(take("I"))
    if name == "general.alignment": alignment = v
for _ in range(tensors):
    name = text()
    for _ in range(take("I")): take("Q")
    take("I")
    places[name] = take("Q")
data_begin = (at + alignment - 1) // alignment * alignment
begin = data_begin + places[wanted] + offset
if not count: count = min([data_begin + p for p in places.values() if p > places[wanted]] + [len(data)]) - begin
data[begin:begin + count] = bytes([byte]) * count
open(path, "wb").write(data)
PY
}

# told STATUS TEXT TEXT ARGUMENT...
told() {
    local status=$1 first=$2 second=$3
    shift 3
    run "$status" "$@"
    grep -qF -- "$first" "$work/err" && grep -qF -- "$second" "$work/err" || fail "sol $*: no '$first' with '$second'"
}

# What is damaged, by type: a scale of q8_0, one of mxfp4 (255 is NaN), float32 vectors, infinities.
m=$work/m.gguf
while read -r tensor byte offset count dense; do
    "$SOL_BINARY" model synth --like tiny --dense "$dense" -o "$m" --overwrite 2>"$work/err" || fail "synth"
    damage "$m" "$tensor" "$byte" "$offset" "$count" || fail "no $tensor"
    told 4 "'$tensor'" "not finite" run -m "$m" --tokens 1,2,3 -n 3
    told 4 "'$tensor'" "download" run -m "$m" --tokens 1,2,3 -n 3 --greedy
    told 4 "'$tensor'" "not finite" bench -m "$m" -p 4 -n 0 -r 1 --no-limits -q --store "$work/s"
    told 4 "'$tensor'" "not finite" bench -m "$m" -p 0 -n 2 -r 1 --no-limits -q --store "$work/s"
    run 4 model check -m "$m"
    has out "fault .*${tensor}"
done <<'END'
output_norm.weight 0xff 0 4 bf16
blk.0.attn_q.bias 0xff 0 64 bf16
blk.0.attn_sinks.weight 0xff 0 16 bf16
output.weight 0xff 0 64 bf16
output.weight 0xff 0 2 q8_0
blk.1.attn_output.weight 0xff 0 8000 q8_0
blk.0.ffn_gate_inp.weight 0xff 0 64 bf16
blk.0.ffn_down_exps.bias 0xff 0 0 bf16
blk.1.ffn_down_exps.weight 0xff 0 0 bf16
END

# Through text, and scored.
cp "$golden" "$m"
damage "$m" output_norm.weight 0xff 0 4 || fail "no output_norm.weight"
printf 'some words of a text to be scored, long enough for a window' >"$work/text"
told 4 "'output_norm.weight'" "not finite" run -m "$m" -p hello -n 2
told 4 "'output_norm.weight'" "not finite" perplexity -m "$m" -f "$work/text"

# An infinity.
cp "$golden" "$m"
for change in "0 0 2" "0x80 2 1" "0x7f 3 1"; do
    # shellcheck disable=SC2086 # three words
    damage "$m" blk.1.attn_norm.weight $change
done
told 4 "'blk.1.attn_norm.weight'" "not finite" run -m "$m" -p hello -n 2

# A number that is one, and too large for what follows.
cp "$golden" "$m"
damage "$m" blk.1.attn_norm.weight 0x7f 4 4
told 7 "although all weights are" "out of range" run -m "$m" -p hello -n 2

exit $((failures != 0))
