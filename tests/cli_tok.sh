#!/usr/bin/env bash
# `sol tok`: round trips through pipes, formats of ids, training, and errors with their exit status.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
set -uo pipefail
sol=$SOL_BINARY
data=$SOL_SOURCE_DIR/tests/data
vocab=$data/tokenizer_small.json
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}
# is WHAT GOT WANTED
is() { [ "$2" = "$3" ] || fail "$1: got '$2', not '$3'"; }
# round_trip FILE OPTION...
round_trip() {
    local file=$1
    shift
    "$sol" tok encode "$@" "$file" | "$sol" tok decode "${@:1:2}" >"$work/back" ||
        fail "encode or decode of $file $*"
    cmp -s "$file" "$work/back" || fail "$file does not come back with $*"
}
# refused STATUS MESSAGE ARGUMENT...
refused() {
    local status=$1 message=$2 got
    shift 2
    "$sol" "$@" </dev/null >"$work/out" 2>"$work/err"
    got=$?
    [ $got = "$status" ] || fail "sol $*: exit status $got, not $status"
    grep -qF -- "$message" "$work/err" || fail "sol $*: no '$message' in: $(cat "$work/err")"
}

# ids, in every form
is text "$("$sol" tok encode --vocab "$vocab" --text 'the<|end|>')" "359 27 91 68 263 91 29"
is special "$("$sol" tok encode --vocab "$vocab" --special --text 'the<|end|>')" "359 703"
is json "$("$sol" tok encode --vocab "$vocab" --special --json --text 'the<|end|>')" \
    '{"ids": [359, 703], "count": 2}'
is count "$("$sol" tok encode --vocab "$vocab" --count --text 'the the')" 2
is "json count" "$("$sol" tok encode --vocab "$vocab" --count --json --text the)" '{"count": 1}'
is empty "$("$sol" tok encode --vocab "$vocab" --json </dev/null)" '{"ids": [], "count": 0}'
is "empty line" "$(printf '' | "$sol" tok encode --vocab "$vocab" -)" ""
is decode "$(echo '[359, 703],64' | "$sol" tok decode --vocab "$vocab")" "the<|end|>a"

# what goes in comes out: text, any bytes, several parts of a megabyte, one piece longer than a part
head -c 300000 /dev/urandom >"$work/random"
for _ in 1 2 3 4 5 6 7 8; do cat "$data/heldout.txt" "$work/random"; done >"$work/mixed"
head -c 2500000 /dev/zero | tr '\0' a >"$work/one_letter"
printf 'a<|end|><user><|endoftext|><|end|' >"$work/special"
for file in "$data/heldout.txt" "$work/random" "$work/mixed" "$work/one_letter" "$work/special"; do
    round_trip "$file" --vocab "$vocab"
    round_trip "$file" --vocab "$vocab" --special
done
if "$sol" tok encode --text a >/dev/null 2>&1; then # there is a built-in model
    round_trip "$work/mixed" -m builtin
fi
is "parts" "$("$sol" tok encode --vocab "$vocab" --count "$work/mixed")" \
    "$("$sol" tok encode --vocab "$vocab" "$work/mixed" | wc -w | tr -d ' ')"

# training: deterministic, readable in every format, the same tokens
"$sol" tok train --vocab-size 700 -o "$work/v.json" "$data/heldout.txt" >"$work/out" 2>&1 ||
    fail "train: $(cat "$work/out")"
grep -q '700 tokens' "$work/out" || fail "train says: $(cat "$work/out")"
"$sol" tok train --vocab-size 700 -t 1 --format json -o "$work/again" "$data/heldout.txt" >/dev/null
cmp -s "$work/v.json" "$work/again" || fail "training again gave another file"
python3 - "$work/v.json" <<'PY' || fail "tokenizer.json leaves out ids, which the tokenizers library would give to others"
import json, sys
added = json.load(open(sys.argv[1]))["added_tokens"]
assert [token["id"] for token in added] == list(range(700, 721)) and added[7]["content"] == "<|channel|>"
assert len({token["content"] for token in added}) == 21
PY
"$sol" tok train --vocab-size 700 -o "$work/v.tiktoken" "$data/heldout.txt" >/dev/null
is "as the library" "$("$sol" tok encode --vocab "$work/v.json" "$data/heldout.txt")" \
    "$("$sol" tok encode --vocab "$vocab" "$data/heldout.txt")"
"$sol" tok train --vocab-size 700 -o "$work/v.gguf" "$data/heldout.txt" >/dev/null
is "as GGUF" "$("$sol" tok encode --special --vocab "$work/v.gguf" "$data/heldout.txt")" \
    "$("$sol" tok encode --special --vocab "$vocab" "$data/heldout.txt")"
round_trip "$work/special" --vocab "$work/v.gguf" --special
round_trip "$work/mixed" --vocab "$work/v.tiktoken"
mkdir "$work/model"
cp "$work/v.json" "$work/model/tokenizer.json"
is folder "$("$sol" tok encode --vocab "$work/model" --text the)" 359
for format in json gguf; do
    "$sol" tok train --vocab-size 491 --special-set nanochat -o "$work/nanochat.$format" "$data/heldout.txt" >"$work/out" ||
        fail "train --special-set nanochat"
    grep -q 'special tokens of nanochat: 500 ids' "$work/out" || fail "train says: $(cat "$work/out")"
    is "nanochat's in $format" "$("$sol" tok encode --special --vocab "$work/nanochat.$format" \
        --text '<|bos|><|user_start|><|output_end|>')" "491 492 499"
done
is "few words" "$("$sol" tok train --vocab-size 1000 -o "$work/few.json" "$work/special" 2>&1 |
    grep -c 'no pair is left')" 1

# errors
refused 2 "expected: sol tok encode, decode or train" tok
refused 2 "not 'encod'" tok encod
refused 2 "one of --model and --vocab" tok encode -m builtin --vocab "$vocab"
refused 2 "has no vocabulary" tok encode -m synth:tiny --text a
refused 2 "takes one file" tok encode --vocab "$vocab" a b
refused 2 "--text goes with encode" tok decode --vocab "$vocab" --text 1
refused 3 "cannot open '$work/none'" tok encode --vocab "$vocab" "$work/none"
refused 3 "cannot open '$work/none'" tok encode --vocab "$work/none"
refused 4 "is no vocabulary" tok encode --vocab "$data/heldout.txt"
sed 's/"normalizer": null/"normalizer": {"type": "NFC"}/' "$vocab" >"$work/nfc.json"
refused 5 "normalizer is NFC" tok encode --vocab "$work/nfc.json"
echo 1 700000 >"$work/ids"
refused 2 "number 2 is 700000" tok decode --vocab "$vocab" "$work/ids"
echo 99999999999999999999999 >"$work/ids"
refused 2 "no token of the vocabulary" tok decode --vocab "$vocab" "$work/ids"
echo 1 two >"$work/ids"
refused 2 "byte 0x74 behind 1 ids" tok decode --vocab "$vocab" "$work/ids"
refused 2 "train needs -o" tok train --vocab-size 300 "$data/heldout.txt"
refused 2 "train needs --vocab-size" tok train -o "$work/x.json" "$data/heldout.txt"
refused 2 "train needs the files" tok train --vocab-size 300 -o "$work/x.json"
refused 2 "the ending of OUT names none" tok train --vocab-size 300 -o "$work/x" "$data/heldout.txt"
refused 2 "harmony or nanochat, not 'gpt'" tok train --vocab-size 300 --special-set gpt -o "$work/x.json" "$data/heldout.txt"
refused 2 "write --special-set nanochat as json or gguf" tok train --vocab-size 300 --special-set nanochat \
    -o "$work/x.tiktoken" "$data/heldout.txt"
refused 3 "$work/none/x.json" tok train --vocab-size 300 -o "$work/none/x.json" "$data/heldout.txt"
refused 3 "cannot open" tok train --vocab-size 300 -o "$work/x.json" "$work/none"
[ -e "$work/x.json" ] && fail "a failed training left a file"
[ -n "$(find "$work" -name 'x.json*')" ] && fail "a failed training left $(ls "$work")"
if [ -w /dev/full ]; then
    "$sol" tok encode --vocab "$vocab" "$data/heldout.txt" >/dev/full 2>/dev/null
    is "full disk" $? 3
fi
[ $failed = 0 ] && echo "sol tok: all as expected"
exit $failed
