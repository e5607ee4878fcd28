#!/usr/bin/env bash
# sol train of a gpt-oss on an emulated GPU (tests/emulate): losses and norms are the processor's, in float32 and in
# bf16, with experts as they are and rounded to MXFP4; and they do not depend on the order in which blocks and threads
# run. A plan that has run is captured and is one launch from its third run on, which the emulation does not do: two
# updates a process.
. "$SOL_SOURCE_DIR/tests/support/cli.sh"
cd "$work" || exit 1

if [ -z "${SOL_EMULATED_GPU:-}" ]; then
    echo "skipped: the emulation is made in builds by gcc, without sanitizers, for the processor that it runs on"
    exit 0
fi
cat "$SOL_SOURCE_DIR"/README.md "$SOL_SOURCE_DIR"/docs/TRAIN.md >text.txt
run 0 tok train --vocab-size 300 -o words.json text.txt
flags="-d text.txt --tokenizer words.json --arch gpt-oss --depth 2 --width 64 --head-dim 64 --kv-heads 1 --experts 4
    --top-k 2 --sliding-window 16 --max-seq-len 32 --device-batch-size 2 --total-batch-size 64 --warmup-steps 1
    --schedule constant --matrix-lr 0.2 --embedding-lr 3 --unembedding-lr 0.1 --scalar-lr 3 --balance 0.1
    --mxfp4-from 0.5 --eval-every 100 --eval-tokens 64 --save-every 2 --sample-every -1 -q --no-limits"
# train FOLDER UPDATES OPTION...
train() {
    # shellcheck disable=SC2086 # words
    run 0 train $flags --num-iterations "$2" -o "$1" "${@:3}"
}
# gpu COMMAND...: on a card with tensor cores; attention on wgmma is another test's.
gpu() {
    LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_MAJOR=9 FAKE_CUDA_DEVICES=1 SOL_CUBLASLT=$SOL_FAKE_CUBLASLT \
        FAKE_CUBLAS=right "$@" --backend cuda --force self_attention=self_attention_mma_cuda \
        --force self_attention_backward=self_attention_backward_mma_cuda
    lacks err 'fake driver'
}
lacks() { if grep -qE -- "$2" "$1"; then fail "'$2' in $1"; fi; }
# numbers FOLDER: losses, norms and the validation's
numbers() { sed -nE 's/.*"(loss|val_loss)":([0-9.]+).*"(norm|val_bpb)":([0-9.]+).*/\2 \4/p' "$1/log.jsonl"; }
# close FOLDER LIMIT: to the processor's, relatively
close() {
    paste <(numbers cpu) <(numbers "$1") | awk -v limit="$2" '
        NF != 4 { bad = 1 }
        { for (i = 1; i < 3; i++) { d = ($i - $(i + 2)) / $i; if (d < 0) d = -d; if (d > worst) worst = d } }
        END { printf "%d lines, largest difference %.1e\n", NR, worst; exit !(NR == 6 && !bad && worst <= limit) }
    ' || fail "$1: $(numbers "$1" | tr '\n' ','), on the processor $(numbers cpu | tr '\n' ',')"
}

train cpu 2
train cpu 3 --resume
gpu train exact 2 --precision f32
gpu train exact 3 --resume --precision f32
close exact 1e-5
gpu train bf16 2
gpu train bf16 3 --resume
close bf16 5e-3
if [ "${SOL_TEST_WHOLE:-}" ]; then # make soak
    gpu train cut 2 --force linear_cross_entropy=cut:64
    gpu train cut 3 --resume --force linear_cross_entropy=cut:64
    close cut 5e-3
fi
[ "$(numbers bf16)" = "$(numbers exact)" ] && fail "bf16 has the numbers of float32"
EMULATED_SEED=7 gpu train again 2
cmp -s bf16/step_000002/model.safetensors again/step_000002/model.safetensors || fail "other bits in another order"

# Steps are timed, and what their ops cost is known without a look into the card's memory.
gpu run 0 train bench --no-limits --arch gpt-oss --depth 1 --width 64 --head-dim 64 --kv-heads 1 --experts 4 --top-k 2 \
    --max-seq-len 32 --device-batch-size 1 --vocab-size 64 --num-iterations 1 --warmup-steps 0 --optimizer none -q
for op in grouped_matmul grouped_wgrad; do has out "^$op +${op}_mma_cuda +exact "; done

exit $((failures != 0))
