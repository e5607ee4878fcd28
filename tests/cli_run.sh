#!/usr/bin/env bash
# sol run, perplexity and kernels on the small golden models: text, ids, JSON, reproducibility, the ways to
# give a prompt, and Ctrl-C.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
golden=$SOL_SOURCE_DIR/tests/golden
model=$golden/base_mxfp4.gguf

# sol ARGUMENT...: output in $work/out and $work/err, status in $status
sol() {
    "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

ok() {
    sol "$@"
    [ $status = 0 ] || fail "sol $*: status $status"
}

# has FILE TEXT
has() { grep -qF -- "$2" "$work/$1" || fail "no '$2' in $1"; }

# Valid JSON, by whatever checker the machine has; without one only its ends are looked at.
is_json() {
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$1" >/dev/null 2>"$work/err" || fail "$1 is no JSON"
    elif command -v jq >/dev/null; then
        jq -e . "$1" >/dev/null 2>"$work/err" || fail "$1 is no JSON"
    else
        [ "$(head -c 1 "$1")" = "{" ] && [ "$(tail -n 1 "$1")" = "}" ] || fail "$1 is no JSON object"
    fi
}

same() { cmp -s "$1" "$2" || fail "$3"; }

# ---- run: the same text every time, whatever the way in ----
ok run -m "$model" -p "Hello, world" -n 12 --greedy
cp "$work/out" "$work/greedy"
has err "t/s"
has err "first token"
has err "peak resident"
[ -s "$work/greedy" ] || fail "no text"

ok run -m "$model" -p "Hello, world" -n 12 --temperature 0 --quiet
same "$work/out" "$work/greedy" "--temperature 0 is not --greedy"
[ -s "$work/err" ] && fail "--quiet is not quiet"

printf 'Hello, world' >"$work/prompt"
ok run -m "$model" -f "$work/prompt" -n 12 --greedy -q
same "$work/out" "$work/greedy" "-f differs from -p"
"$SOL_BINARY" run -m "$model" -f - -n 12 --greedy -q <"$work/prompt" >"$work/out" 2>"$work/err" ||
    fail "-f -"
same "$work/out" "$work/greedy" "-f - differs from -p"
"$SOL_BINARY" run -m "$model" -n 12 --greedy -q <"$work/prompt" >"$work/out" 2>"$work/err" || fail "a text that is piped in"
same "$work/out" "$work/greedy" "a text that is piped in differs from -p"
printf 'Hello, world' | "$SOL_BINARY" run -m "$model" -p "Hello, world" -n 12 --greedy -q >"$work/out" 2>"$work/err" ||
    fail "-p beside a pipe"
same "$work/out" "$work/greedy" "a pipe is read beside -p"
printf 'some words to predict' | "$SOL_BINARY" perplexity -m "$model" -q >"$work/out" 2>"$work/err" || fail "perplexity of a pipe"

# In steps of one token, on one thread, with float32 kernels: --exact does not depend on either.
ok run -m "$model" -p "Hello, world" -n 12 --greedy --exact -q
cp "$work/out" "$work/exact"
ok run -m "$model" -p "Hello, world" -n 12 --greedy --exact -q -b 1 -t 1
same "$work/out" "$work/exact" "steps of one token on one thread give other text"
ok run -m "$model" -p "Hello, world" -n 12 --greedy --numerics exact -q -b 1 -t 1
same "$work/out" "$work/exact" "--numerics exact gives other text than --exact"
ok run -m "$model" -p "Hello, world" -n 12 --greedy --numerics i8_row -q # no kernel of a CPU makes use of it
run 2 run -m "$model" -p Hello -n 1 --numerics fp8 -q
has err "--numerics fp8: it is exact, bf16, i8 or i8_row"
run 2 run -m "$model" -p Hello -n 1 --numerics bf16 --exact -q
has err "--exact is --numerics exact"
ok run -m "$model" -p "Hello, world" -n 3 --greedy --reference -q
ok run -m "$model" -p "Hello, world" -n 3 --greedy --kv f32 --rope-rounding ggml -q
ok run -m "$model" -p "Hello, world" -n 3 --force gemm=reference --force rmsnorm=reference -q

# ---- sampling ----
ok run -m "$model" -p "Hello" -n 30 --seed 5 --top-k 40 --top-p 0.9 --min-p 0.01 -q
cp "$work/out" "$work/seed5"
ok run -m "$model" -p "Hello" -n 30 --seed 5 --top-k 40 --top-p 0.9 --min-p 0.01 -q
same "$work/out" "$work/seed5" "the same seed gives other text"
ok run -m "$model" -p "Hello" -n 30 --seed 6 --top-k 40 --top-p 0.9 --min-p 0.01 -q
cmp -s "$work/out" "$work/seed5" && fail "another seed gives the same text"

# ---- JSON ----
ok run -m "$model" -p "$(printf 'bytes \377\200 that are no text')" -n 8 --json
is_json "$work/out"
for key in text stop ids prompt_ids timings prefill_tokens_per_s memory peak_resident kernels settings; do
    has out "\"$key\""
done
ok run -m "$model" -p "Hello" -n 0 --json
is_json "$work/out"
has out '"ids": []'

# ---- ids for models without a vocabulary ----
ok run -m synth:tiny --tokens 1,2,3 -n 5 --greedy
grep -qE '^[0-9]+( [0-9]+){4}$' "$work/out" || fail "five ids expected"
ok run -m synth:tiny --random-tokens 40 -n 5 -q
ok run -m synth:tiny --tokens 1 -n 2 --json
is_json "$work/out"
has out '"text": null'

# ---- ends ----
ok run -m "$golden/odd_bf16.gguf" --tokens 65,66 -n 400 -c 20 --seed 1
grep -qE "context of 20 is full|stopped with" "$work/err" || fail "the end of the context is not told"
ok run -m "$golden/odd_bf16.gguf" --tokens 65,66 -n 4 --seed 1
grep -qE "after -n 4|stopped with" "$work/err" || fail "the end by -n is not told"

# ---- perplexity ----
ok perplexity -m "$model" -f "$SOL_SOURCE_DIR/CMakeLists.txt" --limit 700 -c 256
has out "perplexity"
has out "bits per byte"
has out "699 scored of 700"
ok perplexity -m "$model" -f "$SOL_SOURCE_DIR/CMakeLists.txt" --limit 700 -c 256 --llama --json
is_json "$work/out"
has out '"scored": 254'
ok perplexity -m "$model" -f "$SOL_SOURCE_DIR/CMakeLists.txt" --limit 120 -c 64 --stride 32 --kl --json
is_json "$work/out"
has out '"kl_mean"'
ok perplexity -m "$model" -f "$SOL_SOURCE_DIR/CMakeLists.txt" --limit 120 -c 64 --kl --exact
has out "same top token 100.000 %"
ok perplexity -m "$model" -f "$SOL_SOURCE_DIR/CMakeLists.txt" --limit 120 -c 64 --kl --exact --kv f32 --same-experts
has out "same experts   100.000 %"
ok perplexity -m synth:tiny --random-tokens 80 -c 40 --json
has out '"bits_per_byte": null'

# ---- kernels ----
ok kernels
for op in embed rmsnorm gemm attention route head; do
    grep -q "^$op " "$work/out" || fail "op $op is not listed"
done
ok kernels -m "$model" --explain --exact
has out "chosen"
has out "a step of 512 tokens"
ok kernels -m "$model" --explain --json --rows 1,8
is_json "$work/out"
has out '"rows": 8'

# ---- Ctrl-C while it generates: what came is there, the status says why it ended ----
# interrupted COMMAND...: interrupts it after its first output. A shell without job control starts
# background commands with SIGINT ignored, hence set -m.
interrupted() {
    rm -f "$work/out" # what an earlier command left must not pass for output
    set -m
    "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null &
    local pid=$! tries=0
    set +m
    while [ ! -s "$work/out" ] && [ $tries -lt 2400 ] && kill -0 $pid 2>/dev/null; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -INT $pid 2>/dev/null
    wait $pid
    status=$?
}
interrupted run -m synth:tiny --tokens 1,2,3 -n 4000 --reference
[ $status = 130 ] || fail "Ctrl-C: status $status, expected 130"
has err "interrupted"
ids=$(wc -w <"$work/out")
told=$(sed -n 's/^generated *\([0-9]*\) tokens.*/\1/p' "$work/err")
[ "$ids" -gt 0 ] && [ "$ids" = "$told" ] || fail "Ctrl-C: $ids ids printed, $told told"
[ -z "$(tail -c 1 "$work/out")" ] || fail "Ctrl-C: the last line is not ended"

exit $((failures != 0))
