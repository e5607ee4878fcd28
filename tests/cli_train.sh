#!/usr/bin/env bash
# sol train: a small model of the repository's documents learns, a run that stopped goes on with the same bits, whatever
# ended it, and what is wrong is said.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }
cat "$SOL_SOURCE_DIR"/README.md "$SOL_SOURCE_DIR"/docs/*.md "$SOL_SOURCE_DIR"/docs/design/*.md >text.txt
run 0 tok train --vocab-size 512 -o words.json text.txt

# refused STATUS MESSAGE ARGUMENT...
refused() {
    run "$1" train "${@:3}" -q
    has err "$2"
}

# ---- it learns ----
updates=60
[ "${SOL_SANITIZED:-}" ] && updates=4 # slow there, and numbers are the same
run 0 train -d text.txt --documents paragraphs --packing stream --tokenizer words.json -o run --depth 4 \
    --aspect-ratio 32 --head-dim 32 --max-seq-len 128 --device-batch-size 8 --total-batch-size 1024 \
    --num-iterations $updates --warmup-steps 10 --matrix-lr 0.3 --embedding-lr 3 --unembedding-lr 0.1 --eval-every 30 \
    --eval-tokens 8192
cp out shown
bpb() { sed -nE "s/.*\"step\":$1,\"val_loss\".*\"val_bpb\":([0-9.]+).*/\1/p" run/log.jsonl; }
under() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }'; }
under 4 "$(bpb 0)" || fail "bits per byte before: $(bpb 0)"
under "$(bpb $updates)" "$(bpb 0)" || fail "bits per byte after: $(bpb $updates)"
[ $updates -lt 60 ] || under "$(bpb 60)" 3.2 || fail "bits per byte after 60 updates: $(bpb 60)"
cp shown out
has out '^2026-07: depth 4, width 128, 4 heads of 32, vocabulary [0-9]+, windows SSSL; 1.1 M parameters$'
has out "^$updates updates of 1024 tokens\$"
has out '^samples, CORE +[1-9][0-9.]* [KMG]iB$'
has out "^step $updates of $updates  loss [0-9.]+  rate [0-9.]+  norm [0-9.]+  [0-9.]+ ms  [0-9]+ tokens/s  epoch 1\$"
has out "^after $updates updates: validation loss [0-9.]+, [0-9.]+ bits per byte \\(8192 tokens\\)\$"
has out '^loss [0-9.]+ █'
last=run/step_$(printf %06d $updates)
has out "^saved $last\$"
is "lines of the log" "$(grep -c '"loss"' run/log.jsonl)" $updates

# ---- and is a model ----
run 0 run -m "$last" -p "The table of" -n 8 --greedy -t 1 -q
[ -s out ] || fail "sol run prints nothing"
run 0 model check -m "$last"
head -c 4000 text.txt >some.txt
run 0 perplexity -m "$last" -f some.txt -c 128 -t 1 -q --json
grep -qE '"perplexity": [0-9.]+' out || fail "no perplexity"

# ---- so is a gpt-oss, and what inference says of it is what the trainer says ----
oss="-d text.txt --tokenizer words.json --arch gpt-oss --depth 2 --width 64 --head-dim 16 --kv-heads 2 --experts 4
    --top-k 2 --sliding-window 16 --max-seq-len 64 --device-batch-size 4 --total-batch-size 512 --warmup-steps 4
    --matrix-lr 0.2 --embedding-lr 3 --unembedding-lr 0.1 --scalar-lr 3"
# shellcheck disable=SC2086 # words
{
    run 0 train $oss --num-iterations $((updates / 2)) --eval-every 100 --eval-tokens 4096 --save-every 2 -o oss
    has out '^2026-07: depth 2, width 64, 4 heads of 16, vocabulary [0-9]+, 2 of 4 experts of 64; 0.2 M parameters$'
    bpb() { sed -nE "s/.*\"step\":$1,\"val_loss\".*\"val_bpb\":([0-9.]+).*/\1/p" oss/log.jsonl; }
    under "$(bpb $((updates / 2)))" "$(bpb 0)" || fail "bits per byte after: $(bpb $((updates / 2)))"
    last=oss/step_$(printf %06d $((updates / 2)))
    mkdir again
    cp -r oss/step_000002 again
    run 0 train $oss --resume --num-iterations $((updates / 2)) -o again -q -t 1
    for file in model optimizer; do
        cmp -s "$last/$file.safetensors" "again/${last#oss/}/$file.safetensors" || fail "another $file after --resume"
    done
    run 2 train $oss --window-pattern L
    has err '--window-pattern is for --arch gpt; gpt-oss has --sliding-window'
    run 2 train $oss --recipe 2026-01
    has err '--arch gpt-oss is trained with --recipe 2026-07'
    run 2 train $oss --top-k 5
    has err '5 of 4 experts used'
    run 2 train $oss --width 48
    has err '--width 48 or --expert-width 64 is no multiple of 32'
    run 2 train $oss --arch gpt
    has err '--width is for --arch gpt-oss'
}
run 0 model check -m "$last"
run 0 run -m "$last" -p "The table of" -n 8 --greedy -t 1 -q
[ -s out ] || fail "sol run prints nothing of a gpt-oss"
run 0 perplexity -m "$last" -f some.txt -c 64 --exact --kv f32 -q --json
cp out folder.json
run 0 model convert -m "$last" -o oss.gguf
run 0 perplexity -m oss.gguf -f some.txt -c 64 --exact --kv f32 -q --json
value() { sed -nE 's/.*"perplexity": ([0-9.]+).*/\1/p' "$1"; }
is "perplexity of the GGUF file" "$(value out)" "$(value folder.json)"
run 0 model convert -m "$last" --experts mxfp4 --dense q8_0 -o rounded.gguf
run 0 model info -m rounded.gguf --tensors
has out '^blk\.1\.ffn_down_exps\.weight +mxfp4 '
has out '^blk\.1\.attn_q\.weight +q8_0 '
has out '^blk\.1\.ffn_gate_inp\.weight +f32 '
run 0 perplexity -m rounded.gguf -f some.txt -c 64 --exact --kv f32 -q --json
awk -v a="$(value out)" -v b="$(value folder.json)" 'BEGIN { exit !(a != b && a < 1.05 * b && b < 1.05 * a) }' ||
    fail "perplexity of rounded weights: $(value out), and $(value folder.json) before"
run 2 model convert -m "$last" --experts q8_0 -o none.gguf
has err '--experts q8_0 is not mxfp4'
run 2 model convert -m "$last" --dense q4 -o none.gguf
has err '--dense q4 is not one of bf16, q8_0, f32'

# ---- a run that goes on ----
small="-d text.txt --documents paragraphs --tokenizer words.json --depth 2 --aspect-ratio 16 --head-dim 16
    --max-seq-len 32 --device-batch-size 2 --total-batch-size 128 --eval-tokens 256 --eval-every 4 --matrix-lr 0.3
    --unembedding-lr 0.1 --warmup-steps 2"
# lines LOG: without what is of the clock
lines() { sed -E 's/"(seconds|tokens_per_s)":[^,]*,//g' "$1"; }
# same FOLDER STEP: the run in it is the one in `whole`
same() {
    cmp -s "whole/step_$2/model.safetensors" "$1/step_$2/model.safetensors" || fail "other weights in $1"
    cmp -s "whole/step_$2/optimizer.safetensors" "$1/step_$2/optimizer.safetensors" || fail "other states in $1"
    [ "$(lines whole/log.jsonl)" = "$(lines "$1/log.jsonl")" ] || fail "another log in $1"
}
for packing in stream bestfit; do
    rm -rf whole part
    # shellcheck disable=SC2086 # words, here and below
    {
        run 0 train $small --packing $packing --num-iterations 12 --save-every 4 -o whole -t 2 --json
        has out '"val_targets":256'
        cmp -s out whole/log.jsonl || fail "--json is not what the log is"
        mkdir part
        cp -r whole/step_000004 part
        { cat whole/log.jsonl && printf '{"step": 12, "los'; } >part/log.jsonl # as a kill leaves it
        run 0 train $small --packing $packing --save-every 4 --resume -o part -t 1 -q
        same part 000012
        refused 2 "'part/step_000012' is later; move it away, or go on from it with --resume" \
            $small --packing $packing --resume-from-step 8 -o part
        rm -r part/step_000012
        run 0 train $small --packing $packing --resume-from-step 8 -o part -q
        same part 000012
        run 0 train $small --packing $packing --resume -o part -q # nothing is left to do
        same part 000012
        is "outputs" "$(head -c 6 out)" "after "
    }
done

# In small formats as well: random bits and scales are those of a run that was not stopped.
for precision in nvfp4 fp8; do
    rm -rf whole part
    # shellcheck disable=SC2086
    {
        small_model="$small --aspect-ratio 64 --packing stream"
        run 0 train $small_model --precision $precision --num-iterations 6 --save-every 2 -o whole -t 2 -q
        has whole/step_000006/train.json "\"precision\": \"$precision\""
        mkdir part
        cp -r whole/step_000002 part
        head -n "$(grep -n '"step":2,' whole/log.jsonl | tail -n 1 | cut -d: -f1)" whole/log.jsonl >part/log.jsonl
        run 0 train $small_model --save-every 2 --resume -o part -t 1 -q
        same part 000006
        run 0 run -m part/step_000006 -p a -n 1 -t 1 -q
        rm -rf other
        run 0 train $small_model --num-iterations 6 -o other -q -t 1
        cmp -s whole/step_000006/model.safetensors other/step_000006/model.safetensors && fail "$precision changes nothing"
    }
done
# shellcheck disable=SC2086
{
    refused 5 '--precision nvfp4 is for --arch gpt' $small --arch gpt-oss --precision nvfp4
    refused 2 'nvfp4 wants a --max-seq-len that is a multiple of 16' $small --max-seq-len 20 --total-batch-size 40 \
        --precision nvfp4
    refused 2 'no matrix of this model is one for --precision fp8' $small --fp8
    refused 2 '--fp8 and --precision nvfp4' $small --fp8 --precision nvfp4
    refused 2 "the folder's flags say whether it is fp8" replay none --fp8
}
# Quantising and transposing over a tenth of a step makes its speed invalid, which a busy machine may well show.
"$SOL_BINARY" train bench --depth 2 --aspect-ratio 64 --max-seq-len 32 --vocab-size 64 --precision fp8 \
    --num-iterations 2 --json >out 2>err
is "the status of fp8" $? "$(python3 -c '
import json
found = json.load(open("out"))
print(7 if found["preparing"] > 0.1 else 0 if found["preparing"] > 0 and found["precision"] == "fp8" else "none")')"

rm -rf whole
# shellcheck disable=SC2086
run 0 train $small --packing bestfit --num-iterations 12 --save-every 4 -o whole -t 2 -q
# ---- fine-tuning: weights of a checkpoint, answers alone are learnt ----
for i in 1 2 3 4 5 6 7 8; do
    printf '{"segments": [{"text": "How many of the %s%s?", "label": false}, {"text": " Seven pears.", "label": true}]}\n' \
        kernel "$i"
done >talk.jsonl
tune="-d talk.jsonl --val talk.jsonl --init-from whole/step_000012 --device-batch-size 4 --total-batch-size 128
    --matrix-lr 0.2 --embedding-lr 1 --unembedding-lr 0.1 --warmup-steps 2 --schedule cosine --eval-every 100"
# shellcheck disable=SC2086
{
    run 0 train $tune --num-iterations $updates --save-every 2 -o tuned
    has out "^$updates updates of 128 tokens, from whole/step_000012\$"
    last=tuned/step_$(printf %06d $updates)
    cmp -s whole/step_000012/tokenizer.json "$last/tokenizer.json" || fail "another vocabulary"
    run 0 run -m "$last" -p "How many of the kernel3?" -n 12 --greedy -t 1 -q
    [ $updates -lt 60 ] || has out '^ Seven pears'
    # of a row's conversations whole answers are learnt, and nothing else
    run 0 tok encode --vocab words.json --text " Seven pears."
    is "targets beside whole answers" \
        $(($(sed -nE 's/.*"val_targets":([0-9]+).*/\1/p' tuned/log.jsonl | head -n 1) % $(wc -w <out))) 0
    mkdir again_tuned
    cp -r tuned/step_000002 again_tuned
    run 0 train -d talk.jsonl --val talk.jsonl --resume -o again_tuned -q -t 1 --eval-every 100
    cmp -s "$last/model.safetensors" "again_tuned/${last#tuned/}/model.safetensors" || fail "another model after --resume"
    # it begins with those weights
    run 0 train -d text.txt --documents paragraphs --packing bestfit --init-from whole/step_000012 --num-iterations 1 \
        --device-batch-size 2 --total-batch-size 128 --eval-tokens 256 --json --no-store
    is "validation before the first update" "$(grep '"step":0,"val_loss"' out | sed 's/"step":0,//')" \
        "$(grep '"step":12,"val_loss"' whole/log.jsonl | sed 's/"step":12,//')"
    # without a folder, and a run of its own in the store
    run 0 train $tune --num-iterations 1 -q --label alone
    is "runs of what was tuned" "$("$SOL_BINARY" runs list --label alone -o csv | grep -c '^t')" 1
    refused 2 'the model is that of --init-from: leave --depth out' $tune --depth 3 --num-iterations 2
    refused 2 '--init-from wants --num-iterations' $tune
    refused 2 '--init-from is for a new run' $tune --resume -o tuned
    refused 3 "'none/train.json'.*No such file" $tune --num-iterations 2 --init-from none
    echo '{"segments": [{"text": "no label"}]}' >wrong.jsonl
    refused 4 "'wrong.jsonl', line 1: a segment has no" $tune --num-iterations 2 -d wrong.jsonl --val talk.jsonl
}

cp whole/log.jsonl before
# shellcheck disable=SC2086
refused 2 "'whole' has checkpoints; --resume goes on from the last one" $small -o whole
cmp -s before whole/log.jsonl || fail "a refused run changes the log"

# Ctrl-C saves the step that it meets.
# shellcheck disable=SC2086
"$SOL_BINARY" train $small --packing bestfit --num-iterations 2000 -o stopped -q >out 2>err </dev/null &
pid=$!
has_updates() { [ "$(grep -c '"loss"' stopped/log.jsonl 2>/dev/null)" -ge 5 ] 2>/dev/null; }
until_ "no five updates" has_updates
kill -INT $pid
wait $pid
is "status of a run that was interrupted" $? 130
has err 'interrupted at step [0-9]+ of 2000; saved as stopped/step_'
step=$(ls stopped | sed -n 's/step_0*//p')
# shellcheck disable=SC2086
{
    run 0 train $small --packing bestfit --resume --num-iterations $((step + 2)) -o stopped -q
    is "checkpoints" "$(ls -d stopped/step_* | wc -l)" 2
    # kill -9: what is there is whole, and goes on
    for i in 1 2 3; do
        [ $i = 1 ] || more="--resume"
        "$SOL_BINARY" train $small --num-iterations 100000 --save-every 1 -o killed ${more:-} -q >out 2>err </dev/null &
        pid=$!
        sleep "0.$((RANDOM % 6 + 4))"
        kill -KILL $pid
        wait $pid 2>err
        for path in killed/step_??????; do
            [ -e "$path" ] || continue
            for file in config.json train.json model.safetensors optimizer.safetensors tokenizer.json; do
                [ -s "$path/$file" ] || fail "$path has no $file"
            done
        done
        ls -d killed/step_?????? >/dev/null 2>&1 || unset more
        path=$(ls -d killed/step_?????? 2>/dev/null | tail -n 1)
        [ -z "$path" ] || run 0 run -m "$path" -p a -n 1 -t 1 -q
    done
    step=$(ls killed | sed -nE 's/^step_0*([0-9]+)$/\1/p' | tail -n 1)
    if [ "$step" ]; then
        run 0 train $small --resume --num-iterations $((step + 1)) -o killed -q
    else
        run 0 train $small --num-iterations 1 -o killed -q
    fi
    is "what killed runs left" "$(find killed -name '*part*' | wc -l)" 0
}

# ---- what is wrong is said ----
# shellcheck disable=SC2086
{
    refused 2 'sol train wants --data' --tokenizer words.json
    refused 3 "'none.txt'.*No such file" $small -d none.txt
    refused 3 "'none.json'.*No such file" $small --tokenizer none.json
    refused 2 'give --tokenizer, or --vocab-size' -d text.txt
    refused 2 'a vocabulary is needed' -d text.txt --vocab-size 512
    refused 2 'the vocabulary has [0-9]+ tokens, and the model 100' $small --vocab-size 100
    printf '{"text": "a line"}\n{"text": NaN}\n' >nan.jsonl
    refused 4 "'nan.jsonl', line 2: invalid token near 'NaN'" $small -d nan.jsonl --val text.txt
    printf '\1\0\2\0\377\377%.0s' $(seq 300) >large.bin
    refused 4 "'large.bin': token 2 is 65535, and the model's vocabulary has [0-9]+" $small -d large.bin --val text.txt \
        --packing stream
    refused 2 'width 16 is too small: gates read 24 channels' $small --depth 1
    refused 2 "value '0' for --depth is outside 1 to 1024" $small --depth 0
    refused 2 '128 tokens is no multiple of 3 sequences of 32' $small --device-batch-size 3
    refused 2 "unknown option '--dept'" $small --dept 3
    refused 2 "takes bench, tune, replay or no word, not 'benhc'" benhc
    refused 2 'takes one folder' replay
    refused 5 '--precision bf16 is for a GPU' $small --precision bf16
    refused 2 '--resume wants --out' $small --resume
    refused 2 "'none' has no checkpoint" $small --resume -o none
    [ -e none ] && fail "a folder was made for nothing"
    refused 3 "'none/step_000007/train.json'.*No such file" $small --resume-from-step 7 -o none
    refused 2 "'whole/step_000012' is behind the end of a run of 5 updates" $small --resume --num-iterations 5 -o whole
    refused 2 'rows packed by best-fit, not stream' $small --resume --num-iterations 14 --packing stream -o whole
    sed "s/the/eht/" text.txt >other.txt
    refused 2 'of other data' $small -d other.txt --resume --num-iterations 14 -o whole
    refused 3 "cannot write 'text.txt/log.jsonl': Not a directory" $small --num-iterations 1 -o text.txt
}

# damage PATH COMMAND...: a run whose last checkpoint is changed so
damage() {
    rm -rf hurt
    cp -r whole hurt
    local file=hurt/step_000012/$1
    shift
    "$@" "$file" || fail "damage $file"
}
# shellcheck disable=SC2086
{
    again="$small --resume --num-iterations 14 -o hurt"
    damage model.safetensors truncate -s 5000
    refused 4 'model.safetensors' $again
    damage optimizer.safetensors truncate -s -1
    refused 4 'optimizer.safetensors' $again
    damage optimizer.safetensors rm
    refused 3 'optimizer.safetensors.*No such file' $again
    damage train.json truncate -s 100
    refused 4 'train.json' $again
    damage train.json sed -i 's/"depth": 2/"depth": 0/'
    refused 4 'train.json: flags: .*--depth' $again
    damage train.json sed -i 's/"depth": 2/"depth": 3/'
    refused 4 "tensor .* is missing|not of the model" $again
    damage train.json sed -i '/"matrix-lr"/d'
    refused 4 "train.json: flag 'matrix-lr' is missing" $again
    damage train.json sed -i 's/"vocab_size": [0-9]*/"vocab_size": -1/'
    refused 4 "train.json: 'step' or 'vocab_size' is out of range" $again
    damage train.json sed -i 's/"epoch": [0-9]*/"epoch": 0/'
    refused 4 'the position of the data is damaged' $again
}

# ---- data that is damaged far behind its beginning: what was learnt is kept, and goes on when it is mended ----
# shellcheck disable=SC2086
{
    mkdir lines
    for i in $(seq 900); do echo "{\"text\": \"line $i of some that are read in turn\"}"; done >lines/a.jsonl
    head -n 50 lines/a.jsonl >lines/b.jsonl
    sed -i '700s/"}/" /' lines/a.jsonl
    late="$small -d lines --packing stream --depth 3 --documents files"
    refused 4 "'lines/a.jsonl', line 700: .*; the last checkpoint is late/step_[0-9]*\$" $late --num-iterations 4000 -o late
    is "checkpoints" "$(ls -d late/step_* | wc -l)" 1
    sed -i '700s/" /"}/' lines/a.jsonl
    step=$(ls late | sed -nE 's/^step_0*([0-9]+)$/\1/p')
    run 0 train $late --resume --num-iterations $((step + 3)) -o late -q
    is "updates in the log" "$(grep -c '"loss"' late/log.jsonl)" $((step + 3))
}

# ---- a disk that is full ----
# shellcheck disable=SC2086
if [ -w /dev/full ]; then
    mkdir full
    ln -s /dev/full full/log.jsonl
    refused 3 "cannot write 'full/log.jsonl': No space left" $small --num-iterations 2 -o full
else
    echo "skipped: no /dev/full"
fi
cp -r whole scarce
# shellcheck disable=SC2086
if (
    trap '' XFSZ
    ulimit -f 64
    run 3 train $small --num-iterations 2 -o limited -q --no-store
    has err 'limited/'
    [ -e limited/step_000002 ] && fail "a checkpoint without room"
    refused 3 "scarce/step_000014.part.*; the last checkpoint is scarce/step_000012\$" \
        $small --resume --num-iterations 14 -o scarce --no-store
    is "checkpoints" "$(ls -d scarce/step_* | tail -n 1)" scarce/step_000012
    run 0 run -m scarce/step_000012 -p a -n 1 -t 1 -q
    exit $((failures != 0))
); then :; else failures=$((failures + 1)); fi
exit $((failures != 0))
