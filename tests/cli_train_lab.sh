#!/usr/bin/env bash
# The lab looks at training: benchmarks and runs in the store, kernels beside the plan's, comparisons, and a page whose
# numbers are those of the terminal.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }

# value FILE KEY: a number of JSON as sol prints it
value() { sed -nE "s/^ *\"$2\": ([^,]*),?\$/\1/p" "$1" | head -n 1; }
small="--depth 2 --head-dim 32 --max-seq-len 64 --device-batch-size 2 --vocab-size 256"

# ---- a benchmark: shown, kept, and one number in all places ----
# shellcheck disable=SC2086 # words, here and below
{
    SOL_BRIEF_LIMITS=1 run 0 train bench $small --num-iterations 6 -q --json --label first
    cp out first.json
    id=$(sed -nE 's/^ *"run": "(b[0-9a-f]{8})"$/\1/p' first.json)
    run 0 runs show first --json
    is "the run" "$(sed -nE 's/^  "id": "(.*)",$/\1/p' out)" "$id"
    grep -q '"kind": "bench"' out || fail "another kind"
    for name in train 'train: micro-batch' 'train: update' 'train: MFU' 'train: MFU, causal' 'train: planned memory' \
        'train: peak memory' 'train: quantising and transposing'; do
        grep -qF "\"name\": \"$name\"" out || fail "no metric '$name'"
    done
    run 0 runs show first
    has out '^ *command +sol train bench --depth 2'
    near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && a < 1.0001 * b && b < 1.0001 * a) }'; }
    near "$(sed -nE 's/^train +([0-9.]+) +t\/s.*/\1/p' out)" "$(value first.json tokens_per_s)" ||
        fail "another speed in the store than $(value first.json tokens_per_s)"
    awk -v mfu="$(value first.json mfu)" -v rate="$(value first.json tokens_per_s)" \
        -v flops="$(value first.json flops_per_token)" -v peak="$(value first.json peak_flops_per_s)" \
        'BEGIN { r = mfu * peak / (rate * flops); exit !(r > 0.9999 && r < 1.0001) }' || fail "another MFU"
    has out '^train +step +matmul'
    run 0 train bench $small --num-iterations 6 -q --no-limits --label second
    has out '^memory: planned [0-9.]+ MiB, at most [0-9.]+ [MG]iB taken$'
    has out '^0\.0 % of a step quantise and transpose$'
    has out '^run b[0-9a-f]{8}$'
    grep -q MFU out && fail "an MFU without limits"
    "$SOL_BINARY" compare first second --json >out 2>err
    [ $? -le 12 ] || fail "compare: status"
    grep -q '"name": "train"' out || fail "no metric 'train' in a comparison"
    grep -q '"op": "matmul"' out || fail "no ops in a comparison"
    run 0 train bench $small --num-iterations 2 -q --no-limits --no-store
    grep -q '^run ' out && fail "it is kept after all"
    run 2 train bench $small --num-iterations 2 -q --label last
    has err 'cannot be a label'
    SOL_NO_LIMITS=1 "$SOL_BINARY" compare --live -q --no-store --max-pairs 6 --max-seconds 20 \
        --metric rate:json:tokens_per_s \
        "$SOL_BINARY train bench $small --num-iterations 2 --warmup-steps 1 -q --no-store --json" \
        "$SOL_BINARY train bench $small --num-iterations 2 --warmup-steps 1 -q --no-store --json --optimizer none" \
        >out 2>err
    [ $? -le 12 ] || fail "compare --live of two settings"
    has out 'rate:json:tokens_per_s'
}

# ---- kernels of a GPU beside the plan's: a driver that runs nothing, and one that loses some ----
if [ "${SOL_FAKE_GPU:-}" ] && [ ! "${SOL_SANITIZED:-}" ]; then
    fake() {
        LD_LIBRARY_PATH=$SOL_FAKE_GPU SOL_CUBLASLT=$work/none SOL_NO_LIMITS=1 run "$1" train bench --backend cuda \
            --depth 2 --head-dim 64 --max-seq-len 128 --device-batch-size 2 --vocab-size 256 --num-iterations 3 -q "${@:2}"
    }
    fake 0
    has out '^kernels of the micro-batches of a step: ([0-9]+) launched, \1 in the plan$'
    has out '^kernels of an update: ([0-9]+) launched, \1 in the plan$'
    has out ', 3\.0 GiB of the GPU by NVML$'
    one=$(sed -nE 's/^kernels of the micro.* ([0-9]+) in the plan$/\1/p' out)
    fake 0 --micro-batches 3 --json
    is "kernels of three micro-batches" "$(value out plan)" $((3 * one))
    is "device memory" "$(value out device_bytes)" $((3 << 30))
    FAKE_CUDA_GRAPH_MOST=60 fake 7 --label lost
    has out "^INVALID: the micro-batches of a step launched 60 kernels, the plan has $one\$"
    has err "not valid: the micro-batches of a step launched 60 kernels"
    run 0 runs show lost
    has out '^ +state +invalid$'
    # Under a tracer it says what its steps are and have (tests/unit_train_ranges.c: what is made of that).
    mkdir traced
    SOL_TRACE_DIR=$work/traced SOL_TRACE_LEVEL=node fake 0
    update=$(sed -nE 's/^kernels of an update.* ([0-9]+) in the plan$/\1/p' out)
    run 0 profile --read traced --no-store
    has out "^micro-batch: $one kernels in the plan\$"
    has out "^update: $update kernels in the plan\$"
    is "ends of ranges that are lost" "$(grep -c '^lost' out)" 0
fi

# ---- a training run ----
export SOL_NO_LIMITS=1
head -c 200000 "$SOL_SOURCE_DIR/docs/LOG.md" >text.txt
run 0 tok train --vocab-size 300 -o words.json text.txt
train="-d text.txt --documents paragraphs --packing stream --tokenizer words.json --depth 2 --aspect-ratio 16 --head-dim 16
    --max-seq-len 32 --device-batch-size 2 --total-batch-size 128 --eval-tokens 256 --eval-every 4 --matrix-lr 0.3
    --unembedding-lr 0.1 --warmup-steps 2"
# shellcheck disable=SC2086
{
    run 0 train $train --num-iterations 12 --save-every 4 -o run --label one
    cp out shown
    id=$(sed -nE 's/^run (t[0-9a-f]{8})$/\1/p' shown)
    [ "$id" ] || fail "no run"
    is "the log in the store" "$(cat store/artifacts/"$id"/log.jsonl)" "$(cat run/log.jsonl)"
    run 0 runs show one
    has out '^train: bits per byte '
    has out '^train +step +matmul'
    # The page has the numbers of the terminal.
    run 0 report one -o one.html
    loss=$(sed -nE 's/^step 12 of 12  loss ([0-9.]+) .*/\1/p' shown)
    grep -qF "<td class=\"n\">$loss</td>" one.html || fail "the page has not the loss $loss"
    bits=$(sed -nE 's/^after 12 .*loss ([0-9.]+), ([0-9.]+) bits.*/\1 \2/p' shown)
    for number in $bits; do
        grep -qF "<td class=\"n\">$number</td>" one.html || fail "the page has not $number"
    done
    read -r first last <<<"$(sed -nE 's/^loss ([0-9.]+) .* ([0-9.]+)$/\1 \2/p' shown)"
    row=$(grep -oE '<td class="n">[0-9.]+</td>' one.html | sed -E 's/<[^>]*>//g' | tr '\n' ' ')
    for number in $first $last; do
        awk -v a="$number" -v row="$row" 'BEGIN { n = split(row, v, " "); for (i = 1; i <= n; i++)
            if (v[i] - a < 0.00051 && a - v[i] < 0.00051) exit 0; exit 1 }' || fail "the curve's $number is not in the page"
    done
    grep -q '<script' one.html && fail "a script in the page"
    # A run that goes on is one run, and a step that was made twice is there once.
    rm -r run/step_000012
    run 0 train -d text.txt --documents paragraphs --packing stream --resume -o run -q
    is "runs" "$("$SOL_BINARY" runs list --kind train -o csv | grep -c '^t')" 1
    is "steps in the store" "$(grep -c '"loss"' store/artifacts/"$id"/log.jsonl)" 12
    is "the log in the store" "$(cat store/artifacts/"$id"/log.jsonl)" "$(cat run/log.jsonl)"
    run 0 runs show one --json
    is "samples of the speed" "$(python3 -c 'import json, sys
print(len([m for m in json.load(open(sys.argv[1]))["metrics"] if m["name"] == "train"][0]["samples"]))' out)" 12
    run 0 train -d text.txt --documents paragraphs --packing stream --resume --num-iterations 14 -o run
    first_again=$(sed -nE 's/^loss ([0-9.]+) .*/\1/p' out)
    is "the first loss of the curve that goes on" "$first_again" "$first"
    run 0 report one -o one.html
    grep -qF '<td class="n">14</td>' one.html || fail "the page has not 14 updates"
    # Another folder is another run, also where its checkpoint is a copy.
    mkdir copy
    cp -r run/step_000008 copy
    run 0 train -d text.txt --documents paragraphs --packing stream --resume --num-iterations 12 -o copy -q --label copy
    is "runs" "$("$SOL_BINARY" runs list --kind train -o csv | grep -c '^t')" 2
    # Stopped: kept as what it is.
    "$SOL_BINARY" train $train --num-iterations 20000 -o stopped -q --label stopped >out 2>err </dev/null &
    pid=$!
    has_updates() { [ "$(grep -c '"loss"' stopped/log.jsonl 2>/dev/null)" -ge 5 ] 2>/dev/null; }
    until_ "no five updates" has_updates
    kill -INT $pid
    wait $pid
    is "status of a run that was interrupted" $? 130
    run 0 runs show stopped
    has out '^ +state +partial$'
    has out '^ +reason +interrupted at step [0-9]+ of 20000'
    run 0 train $train --num-iterations 2 -o none.d -q --no-store
    is "runs" "$("$SOL_BINARY" runs list --kind train -o csv | grep -c '^t')" 3
}

# ---- several in one page ----
run 0 report one copy run/log.jsonl -o all.html
has out '^all.html$'
is "lines of a chart" "$(grep -oE 'path class="c[0-5] l[0-5]" d="M[0-9.]+ [0-9.]+L' all.html | cut -d '"' -f 2 | sort -u | wc -l)" 3
grep -q 'id="ops"' all.html || fail "no time by op"
run 0 report run/log.jsonl -o log.html
number=$(printf %.4f "$(sed -nE 's/.*"val_loss":([0-9.]+),.*/\1/p' run/log.jsonl | tail -n 1)")
grep -qF "<td class=\"n\">$number</td>" log.html || fail "the page of a log has not $number"
run 2 report one first -o none.html
has err 'the run b[0-9a-f]{8} \(bench\) has no history of training'
echo '{"step": 1}' >wrong.jsonl
run 4 report wrong.jsonl one -o none.html
has err 'wrong.jsonl:1 is no line of a training run'
: >empty.jsonl
run 4 report empty.jsonl -o none.html
has err "'empty.jsonl' has no update of a training run"
[ -e none.html ] && fail "a page of nothing"
exit $((failures != 0))
