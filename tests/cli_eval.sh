#!/usr/bin/env bash
# sol eval: CORE is what nanochat's own code makes of the same model (tests/data/core_scores.json), whatever the batch;
# a checkpoint scores what its run said of it; what is wrong is said, and nothing is begun then.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
data=$SOL_SOURCE_DIR/tests/data
tiny=$data/hf_tiny
# field FILE NAME: the first number under that name
field() { sed -nE "s/.*\"$2\": ?(-?[0-9.]+).*/\1/p" "$1" | head -n 1; }
near() { awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d * d < 1e-16) }' || fail "$1: $2, not $3"; }

# ---- CORE ----
wanted=$(field "$data/core_scores.json" core)
for options in "" "-b 9 -t 1" "-b 100 --kv f16 --exact"; do
    # shellcheck disable=SC2086 # words
    run 0 eval -m "$tiny" --core "$data/core_tasks" --kv f32 --exact -q --json $options
    sed 's/^    "core"/"inner"/' out >flat
    near "CORE with '$options'" "$(field flat inner)" "$wanted"
done
is "items" "$(grep -c '"label"' out)" 5
grep -q '"text": null' out || fail "a text that nobody gave"
run 0 eval -m "$tiny" --core "$data/core_tasks" --max-per-task 10 -q --wide
has out '^fruit_8shot +multiple_choice +8 +10 '
has out '^next +language_modeling +0 +10 +[0-9]+ +0\.[0-9]+ +0\.[0-9]+ to [01]\.[0-9]+ +0.000 '
has out '^CORE +-?0\.[0-9]+, 95 % interval -?0\.[0-9]+ to -?0\.[0-9]+$'
has out '^speed +50 items, [0-9]+ tokens, '
run 0 eval -m "$tiny" --core "$data/core_tasks" -c 100 -q
has out '^cropped +[1-9][0-9] items had prompts of more than 100 tokens$'

# ---- bits per byte are those of sol perplexity ----
head -c 900 "$SOL_SOURCE_DIR/README.md" >text
run 0 perplexity -m "$tiny" -f text -c 200 -q --json
cp out other
run 0 eval -m "$tiny" -f text -c 200 -q --json
is "bits per byte" "$(field out bits_per_byte)" "$(field other bits_per_byte)"
grep -q '"core": null' out || fail "CORE that nobody asked for"
run 0 eval -m "$tiny" -f text -c 200 -q --core "$data/core_tasks" --max-per-task 9
has out "^bits per byte +$(printf %.4f "$(field other bits_per_byte)")\$"

# ---- a run and its checkpoint ----
if [ -z "${SOL_EMULATED:-}" ]; then
    cat "$SOL_SOURCE_DIR"/docs/*.md >docs.txt
    run 0 tok train --vocab-size 400 --special-set nanochat -o words.json docs.txt
    run 0 train -d docs.txt --documents paragraphs --tokenizer words.json --depth 2 --aspect-ratio 32 --head-dim 32 \
        --max-seq-len 128 --device-batch-size 2 --total-batch-size 256 --eval-tokens 256 --num-iterations 6 -o run \
        --matrix-lr 0.3 --embedding-lr 3 --unembedding-lr 1 --warmup-steps 1 --core "$data/core_tasks" \
        --core-metric-every 2 --core-metric-max-per-task 10 --sample-every 4 --prompt "The table of" --prompt "" --save-every 3
    is "measurements" "$(grep -c '^after [246] updates: CORE ' out)" 3
    is "samples" "$(grep -c '^sample after [46] updates: ' out)" 18
    is "own prompt" "$(grep -c '^sample after [46] updates: The table of\[' out)" 2
    is "without a prompt" "$(grep -c '^sample after [46] updates: \[..' out)" 2
    grep '"step":6,"core"' run/log.jsonl >line
    # The update behind a measurement does not count its time.
    number() { sed -nE "s/.*\"$1\":([0-9.e-]+).*/\1/p"; }
    awk -v step="$(grep '"step":2,"loss"' run/log.jsonl | number seconds)" \
        -v core="$(grep '"step":2,"core"' run/log.jsonl | number core_seconds)" 'BEGIN { exit !(step > 0 && step < core) }' ||
        fail "seconds of an update: $(grep '"step":2,' run/log.jsonl)"
    run 0 eval -m run/step_000006 --core "$data/core_tasks" --max-per-task 10 --kv f32 --exact -q --json
    sed 's/^    "core"/"inner"/' out >flat
    near "CORE of the checkpoint" "$(field flat inner)" "$(field line core)"
    # What is sampled is what sol run says, and the line of the run is the log's.
    run 0 run -m run/step_000006 --special -p "<|bos|>The table of" -n 16 --greedy --kv f32 --exact -q --json
    sed -nE 's/^  "text": "(.*)",$/\1/p' out >said
    sed -nE 's/.*"step":6,"prompt":"The table of","sample":"(.*)"\}/\1/p' run/log.jsonl >sampled
    cmp -s said sampled || fail "sol run says '$(cat said)', the run '$(cat sampled)'"

    # A run that goes on does not measure again what it measured, and says the same of the rest.
    mkdir again
    cp -r run/step_000003 again
    grep -E '"step":([0-2],|3,"(val|core))' run/log.jsonl >again/log.jsonl
    run 0 train -d docs.txt --documents paragraphs --resume -o again -q --eval-tokens 256 --core "$data/core_tasks" \
        --core-metric-every 2 --core-metric-max-per-task 10 --sample-every 4 --prompt "The table of" --prompt "" --save-every 3 -t 1
    lines() { sed -E 's/"(seconds|tokens_per_s|core_seconds)":[^,]*,//g' "$1"; }
    [ "$(lines run/log.jsonl)" = "$(lines again/log.jsonl)" ] || fail "another log: $(diff <(lines run/log.jsonl) <(lines again/log.jsonl))"
    is "samples, quietly" "$(grep -c sample out)" 0

    # Off where it is switched off, and without a vocabulary.
    run 0 train -d docs.txt --tokenizer words.json --depth 1 --aspect-ratio 32 --head-dim 32 --max-seq-len 32 \
        --device-batch-size 1 --total-batch-size 32 --num-iterations 1 --eval-every -1 --sample-every -1
    is "samples that are off" "$(grep -c sample out)" 0
fi

# ---- what is wrong ----
# refused STATUS MESSAGE ARGUMENT...
refused() {
    run "$1" "${@:3}" -q
    has err "$2"
    [ -s out ] && fail "output of what was refused: ${*:3}"
}
refused 2 'sol eval wants --core, a folder of tasks, or -f, a text' eval -m "$tiny"
refused 3 "core.yaml" eval -m "$tiny" --core nowhere
refused 2 "task 'fruit_8shot': .*fruit.jsonl': 6 items; 8 others are to go before each" \
    eval -m "$tiny" --core "$data/core_tasks" --max-per-task 6
refused 5 'no token that begins a text' eval -m "$SOL_SOURCE_DIR/tests/golden/gpt_transformers" --core "$data/core_tasks"
refused 2 '1024 positions' eval -m "$tiny" --core "$data/core_tasks" -c 2000
refused 2 'nothing is left before an answer' eval -m "$tiny" --core "$data/core_tasks" -c 6
cp -r "$data/core_tasks" broken
chmod -R u+w broken
printf '{"context": "a"}\n' >broken/eval_data/words.jsonl
refused 4 "task 'words': 'broken/eval_data/words.jsonl', line 1: an item has context and continuation" \
    eval -m "$tiny" --core broken
sed -i 's/language_modeling/quiz/' broken/core.yaml
refused 4 "'broken/core.yaml', line [0-9]+: icl_task_type is .*, not 'quiz'" eval -m "$tiny" --core broken
if [ -z "${SOL_EMULATED:-}" ]; then
    small="-d docs.txt --tokenizer words.json --depth 1 --aspect-ratio 32 --head-dim 32 --max-seq-len 32
        --device-batch-size 1 --total-batch-size 32 --num-iterations 1 -o none"
    # shellcheck disable=SC2086 # words
    {
        refused 4 "icl_task_type is" train $small --core broken
        refused 2 '8 others are to go before each' train $small --core "$data/core_tasks" --core-metric-max-per-task 4
    }
    refused 2 'core and --prompt want --tokenizer' train -d docs.txt --vocab-size 400 --prompt a
    [ -e none ] && fail "a folder of a run that was refused"
fi

exit $((failures != 0))
