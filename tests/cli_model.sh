#!/usr/bin/env bash
# sol model: info, check, convert, synth and fit, on small models, as a user calls them.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
tiny=$SOL_SOURCE_DIR/tests/data/hf_tiny
golden=$SOL_SOURCE_DIR/tests/golden/base_mxfp4.gguf

# expect STATUS TEXT ARGUMENT...: TEXT is in the output, or for a failure in the message.
expect() {
    local status=$1 text=$2 got from=$work/out
    shift 2
    "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$status" = 0 ] || from=$work/err
    [ $got = "$status" ] && { [ -z "$text" ] || grep -qF -- "$text" "$from"; } ||
        fail "sol $*: status $got, expected $status with '$text'"
}

# ---- info, of every form ----
expect 0 "2 layers, hidden 32" model info -m "$tiny"
expect 0 "2 layers, hidden 32" model info -m "$tiny/model.safetensors.index.json"
expect 0 '"weight_bytes"' model info -m "$tiny" --json
expect 0 "blk.1.ffn_up_exps.weight" model info -m "$tiny" --tensors
expect 3 "cannot open" model info -m "$work/missing.safetensors"
expect 2 "expected: sol model" model
expect 2 "not 'inof'" model inof

# ---- synth, there and back ----
expect 0 "" model synth --like tiny -o "$work/t.gguf"
expect 0 "" model synth --like tiny --format hf -o "$work/t"
expect 0 "79 tensors" model check -m "$work/t.gguf"
expect 0 '"faulty": 0' model check -m "$work/t" --json
expect 0 "" model convert -m "$work/t.gguf" -o "$work/back"
for file in "$work"/t/*; do
    cmp -s "$file" "$work/back/$(basename "$file")" || fail "$(basename "$file") differs after conversion"
done
expect 0 "" model synth --like tiny --seed 2 --dense q8_0 -o "$work/q.gguf"
expect 0 "" model synth --like tiny,dense=q8_0,seed=2 -o "$work/q2.gguf"
cmp "$work/q.gguf" "$work/q2.gguf" || fail "options behind the name say something else than the same options"
cmp -s "$work/t.gguf" "$work/q.gguf" && fail "another seed gives the same file"
expect 5 "safetensors has no type" model convert -m "$work/q.gguf" -o "$work/q"
[ -e "$work/q" ] && fail "a refused conversion left a folder"

# ---- the vocabulary that comes with it takes any text ----
text='The quick brown fox; naïve 日本語 🙂 x1234'
ids=$("$SOL_BINARY" run -m "$work/t.gguf" -p "$text" -n 1 --json 2>/dev/null | tr -d ' \n')
[[ $ids == *'"prompt_ids":['[0-9]* ]] || fail "the synthetic vocabulary does not encode"
same=$("$SOL_BINARY" run -m "$work/t" -p "$text" -n 8 --greedy --exact --json 2>/dev/null | grep -A9 '"ids"')
want=$("$SOL_BINARY" run -m "$work/t.gguf" -p "$text" -n 8 --greedy --exact --json 2>/dev/null | grep -A9 '"ids"')
[ -n "$want" ] && [ "$same" = "$want" ] || fail "the folder and the GGUF say different things"

# ---- splitting ----
expect 0 "" model convert -m "$golden" -o "$work/s.gguf" --split 0.0002
parts=("$work"/s-*-of-*.gguf)
[ ${#parts[@]} -gt 1 ] || fail "--split made ${#parts[@]} files"
expect 0 "layers" model info -m "${parts[1]}"
expect 0 "" model convert -m "${parts[0]}" -o "$work/merged.gguf"
expect 0 "" model check -m "$work/merged.gguf"
rm "${parts[1]}"
expect 3 "part 2 of" model info -m "${parts[0]}"

# ---- check refuses the vocabularies that run refuses, with the same words ----
for change in 's/"type": *"BPE"/"type":"Unigram"/' 's/"merges"/"mergers"/' 's/.*/{/' 's/"id": *[0-9]*/"id":99999999/'; do
    rm -rf "$work/odd"
    cp -r "$tiny" "$work/odd"
    sed -i -e "$change" "$work/odd/tokenizer.json"
    "$SOL_BINARY" run -m "$work/odd" -p a -n 1 >"$work/out" 2>"$work/err" </dev/null
    refused=$?
    [ $refused != 0 ] || fail "sol run takes a vocabulary changed by $change"
    expect $refused "$(sed -n 's/^sol: error: //p' "$work/err")" model check -m "$work/odd"
    grep -q '^fault  *vocabulary: ' "$work/out" || fail "check does not name the vocabulary"
done

# ---- what must not happen ----
expect 2 "exists" model convert -m "$tiny" -o "$work/t.gguf"
expect 0 "" model convert -m "$tiny" -o "$work/t.gguf" --overwrite
expect 2 "exists" model convert -m "$tiny" -o "$work/t"
expect 2 "where to?" model convert -m "$tiny"
expect 2 "'exe' for --format: expected gguf or hf" model convert -m "$tiny" -o "$work/x" --format exe
expect 2 "what size?" model synth -o "$work/x.gguf"
expect 2 "did you mean 'gpt-oss-20b'" model synth --like gpt-oss-20 -o "$work/x.gguf"
expect 3 "cannot create" model convert -m "$tiny" -o "$work/no/such/x.gguf"
expect 3 "holds no model" model info -m "$work"
cp -r "$tiny" "$work/bad"
rm "$work/bad/config.json"
expect 3 "config.json" model info -m "$work/bad"
cp "$tiny/config.json" "$work/bad"
rm "$work/bad/model-00001-of-00002.safetensors"
expect 3 "model-00001-of-00002.safetensors" model info -m "$work/bad"
head -c 30000 "$tiny/model-00001-of-00002.safetensors" >"$work/bad/model-00001-of-00002.safetensors"
expect 4 "is the download complete?" model info -m "$work/bad"
(
    ulimit -f 64
    exec "$SOL_BINARY" model synth --like tiny -o "$work/full.gguf" >"$work/out" 2>"$work/err"
)
[ $? = 3 ] && grep -q "cannot write" "$work/err" || fail "a full disk"
ls "$work"/full* >/dev/null 2>&1 && fail "a full disk left a file"

# ---- damage ----
cp "$work/t" "$work/damaged" -r
size=$(stat -c %s "$work/damaged/model.safetensors")
printf '\377\377\377\377' | dd of="$work/damaged/model.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2>/dev/null
expect 4 "damaged" model check -m "$work/damaged"

# ---- fit ----
expect 0 "total" model fit -m "$tiny" -c 1000
expect 0 "longest context that fits" model fit -m synth:gpt-oss-20b --device-memory 24
expect 6 "the weights alone are too large" model fit -m synth:gpt-oss-120b --device-memory 24
expect 6 "lower the context" model fit -m synth:gpt-oss-20b,dense=q8_0 -c 131072 --sequences 8 --device-memory 16
# --like describes the model, as behind synth:
"$SOL_BINARY" model fit -m synth:gpt-oss-20b,dense=q8_0,layers=3 --device-memory 24 >"$work/named"
"$SOL_BINARY" model fit --like gpt-oss-20b --dense q8_0 --layers 3 --device-memory 24 >"$work/like"
grep -q "^weights" "$work/like" && cmp -s "$work/named" "$work/like" || fail "model fit --like"
expect 2 "which of the two" model fit -m "$tiny" --like tiny
expect 2 "go with --like" model fit -m "$tiny" --layers 2
expect 2 "for synth and fit" model info --like tiny
expect 2 "for synth and fit" model check -m "$tiny" --dense f32
expect 2 "--kv q8" model fit -m "$tiny" --kv q8 -c 512
expect 2 "longer than the model's" model fit -m "$tiny" -c 2000

exit $((failures != 0))
