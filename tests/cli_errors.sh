#!/usr/bin/env bash
# What users get wrong: every mistake ends with the documented status, one line that names it, and nothing
# on stdout.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
model=$SOL_SOURCE_DIR/tests/golden/base_mxfp4.gguf

# expect STATUS TEXT ARGUMENT...
expect() {
    local status=$1 text=$2 got
    shift 2
    "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    if [ $got != "$status" ] || ! grep -qF -- "$text" "$work/err" ||
        ! grep -q '^sol: error: ' "$work/err" || [ -s "$work/out" ]; then
        echo "FAILED: sol $*: status $got, expected $status with '$text'"
        sed 's/^/    /' "$work/out" "$work/err" | head -n 10
        failures=$((failures + 1))
    fi
}

# ---- usage ----
for command in run perplexity kernels; do
    expect 2 "--xyzzy" $command --xyzzy
    expect 2 "did you mean --threads?" $command --thread 2
    expect 2 "unexpected 'word'" $command word
    expect 2 "--model needs a value" $command --model
    expect 2 "bad value 'two' for -t" $command -t two
    expect 2 "outside" $command -t 99999
    expect 2 "--kv q4" $command -m "$model" --kv q4
    expect 2 "no such op" $command -m "$model" --force gemv=reference
    expect 2 "has no such variant" $command -m "$model" --force gemm=gemm_fastest
    expect 2 "op=variant" $command -m "$model" --force gemm
    expect 2 "--rope-rounding up" $command -m "$model" --rope-rounding up
done

# ---- input ----
expect 2 "there is no input" run -m "$model"
expect 2 "more than one input" run -m "$model" -p x --tokens 1
expect 2 "the text is empty" run -m "$model" -p ""
expect 2 "write ids as 1,2,3" run -m "$model" --tokens "1,,2"
expect 2 "write ids as 1,2,3" run -m "$model" --tokens "1, 2"
expect 2 "288 is no token" run -m "$model" --tokens 1,288
expect 2 "-1 is no token" run -m "$model" --tokens -1
expect 2 "is no token" run -m "$model" --tokens 99999999999999999999
expect 2 "has no vocabulary" run -m synth:tiny -p Hello
expect 3 "cannot open" run -m "$model" -f "$work/missing.txt"
expect 3 "cannot read" run -m "$model" -f "$work"
expect 2 "--temperature" run -m "$model" -p x --temperature -1
expect 2 "--top-p" run -m "$model" -p x --top-p 1.5
expect 2 "--temperature" run -m "$model" -p x --temperature nan
expect 2 "there is no input" perplexity -m "$model"
expect 2 "1 tokens; 2 are needed" perplexity -m "$model" --tokens 1
expect 2 "two windows" perplexity -m "$model" --random-tokens 100 --llama -c 64
expect 2 "goes with --kl" perplexity -m "$model" --random-tokens 100 --same-experts
expect 2 "the stride" perplexity -m "$model" --random-tokens 100 -c 64 --stride 65

# ---- context ----
expect 2 "the prompt has 30 tokens, the context 20" run -m "$model" --random-tokens 30 -c 20
expect 2 "131072 positions" run -m "$model" -p x -c 131073
expect 2 "131072 positions" perplexity -m "$model" --random-tokens 30 -c 131073

# ---- model files ----
expect 3 "missing.gguf" run -m "$work/missing.gguf" -p x
expect 3 "$work" run -m "$work" -p x
expect 2 "synth" run -m synth:gpt-5 --tokens 1

: >"$work/empty.gguf"
expect 4 "empty.gguf" run -m "$work/empty.gguf" -p x
printf 'this is no model at all, only a text that is long enough' >"$work/text.gguf"
expect 4 "text.gguf" run -m "$work/text.gguf" -p x

# Cut anywhere, the file is damaged: in the header, the keys, the tensor table, the data.
size=$(wc -c <"$model")
for keep in 7 20 100 3000 9000 $((size / 2)) $((size - 1)); do
    head -c "$keep" "$model" >"$work/cut.gguf"
    expect 4 "cut.gguf" run -m "$work/cut.gguf" -p x
done

# Another architecture of the same length, everywhere it is named.
sed 's/gpt-oss/gpt-xyz/g' "$model" >"$work/other.gguf"
expect 5 "gpt-xyz" run -m "$work/other.gguf" -p x

# A tensor under another name.
sed 's/output_norm/output_nrom/' "$model" >"$work/renamed.gguf"
expect 4 "output_norm" run -m "$work/renamed.gguf" -p x

# ---- output ----
if [ -w /dev/full ]; then
    "$SOL_BINARY" run -m "$model" -p Hello -n 5 >/dev/full 2>"$work/err"
    status=$?
    if [ $status != 3 ] || ! grep -q "standard output" "$work/err"; then
        echo "FAILED: a full disk: status $status, expected 3"
        failures=$((failures + 1))
    fi
else
    echo "skipped: no /dev/full"
fi

exit $((failures != 0))
