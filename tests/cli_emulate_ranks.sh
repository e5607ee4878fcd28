#!/usr/bin/env bash
# Several GPUs, emulated (tests/emulate), with an NCCL whose ranks are threads: the collectives against their references,
# and training by --gpus, whose losses are those of one. Two updates a process, of one micro-batch, as in cli_emulate_train.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1

if [ -z "${SOL_EMULATED_GPU:-}" ]; then
    echo "skipped: the emulation is made in builds by gcc, without sanitizers, for the processor that it runs on"
    exit 0
fi
ops="--op all_reduce --op all_reduce_add --op reduce_scatter --op all_gather --op send_recv"
# shellcheck disable=SC2086 # words
{
    gpus 5 0 verify --backend cuda --rounds 1 $ops
    for op in all_reduce reduce_scatter all_gather send_recv; do has out "${op}_nccl_cuda .* ok"; done
    for op in all_reduce all_reduce_add; do has out "${op}_one_shot_cuda .* 0.0e.00 .* ok"; done # the reference's bits
    has out 'all_reduce_add_tiles_cuda .* [0-9.]+e-0[34] .* ok'
    gpus 2 0 verify --backend cuda --rounds 1 $ops
    nccl=/nonexistent gpus 2 0 verify --backend cuda --rounds 1 --brief --wide $ops
    has out 'NCCL cannot be loaded'
    FAKE_NCCL=rounds gpus 5 0 verify --backend cuda --rounds 1 --op all_reduce=all_reduce_nccl_cuda --op reduce_scatter
    FAKE_NCCL=old gpus 2 0 verify --backend cuda --rounds 1 --brief --wide $ops
    has out '2.17.0 is too old'
    FAKE_CUDA_APART=1 gpus 2 0 verify --backend cuda --rounds 1 --wide --op all_reduce
    has out 'all_reduce_nccl_cuda .* ok'
    FAKE_NCCL=wrong gpus 2 7 verify --backend cuda --rounds 1 --op all_reduce
    FAKE_NCCL=wrong gpus 2 7 verify --backend cuda --rounds 1 --op reduce_scatter
    FAKE_NCCL=wrong gpus 2 7 verify --backend cuda --rounds 1 --op send_recv
}

# ---- links, and collectives by size: on a GPU whose launches do nothing ----
LD_LIBRARY_PATH=$SOL_FAKE_GPU SOL_NCCL=$SOL_FAKE_NCCL run 0 device --gpus 2 --most 1 --seconds 0.0001 -q
has out '^0 to 1 +[0-9]'
has out '^all_reduce +all_reduce_one_shot_cuda +11.2 KiB +[0-9]'
has out '^all_reduce +all_reduce_nccl_cuda +1.0 MiB +[0-9]'
has out '^all_reduce_add +all_reduce_add_tiles_cuda +1.0 MiB +[0-9]'
has out '^all_gather +all_gather_nccl_cuda '
LD_LIBRARY_PATH=$SOL_FAKE_GPU SOL_NCCL=$SOL_FAKE_NCCL run 0 device --gpus all --most 1 --seconds 0.0001 -q
has out 'kept; --measure does it again'
LD_LIBRARY_PATH=$SOL_FAKE_GPU SOL_NCCL=/nonexistent FAKE_CUDA_APART=1 run 5 device --gpus 2 --most 1 --seconds 0.0001 -q
has err 'NCCL cannot be loaded: /nonexistent'
LD_LIBRARY_PATH=$SOL_FAKE_GPU run 5 device --gpus 3
has err 'two are needed at least, as many as --gpus says, and the driver shows 2'
LD_LIBRARY_PATH=$SOL_FAKE_GPU FAKE_CUDA_DEVICES=1 run 5 device --gpus all
has err 'two are needed at least, and the driver shows 1'
run 2 device --gpus one
has err 'write 2 to 8, or all'

mills text.txt
run 0 tok train --vocab-size 300 -o words.json text.txt
model="-d text.txt --tokenizer words.json --depth 2 --aspect-ratio 64 --head-dim 64 --max-seq-len 32
    --total-batch-size 128 --warmup-steps 1 --schedule constant --matrix-lr 0.2 --embedding-lr 3 --unembedding-lr 0.1
    --scalar-lr 3"
flags="--eval-every 100 --eval-tokens 128 -q --no-limits --no-store --sample-every -1 --num-iterations 2"
card="--backend cuda --force self_attention=self_attention_mma_cuda
    --force self_attention_backward=self_attention_backward_mma_cuda"
# close FOLDER FOLDER LIMIT: losses and the validation's, relatively
numbers() { sed -nE 's/.*"(loss|val_loss)":([0-9.]+).*/\2/p' "$1/log.jsonl"; }
close() {
    paste <(numbers "$1") <(numbers "$2") | awk -v limit="$3" '
        NF != 2 { bad = 1 }
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d }
        END { printf "%d lines, largest difference %.1e\n", NR, worst; exit !(NR == 4 && !bad && worst <= limit) }
    ' || fail "$2: $(numbers "$2" | tr '\n' ','), of one $(numbers "$1" | tr '\n' ',')"
}
# shellcheck disable=SC2086 # words
{
    for precision in f32 bf16; do
        in_turn=$([ $precision = f32 ] && echo --in-turn)
        gpus 1 0 train $model $flags $card --device-batch-size 4 --precision $precision -o one-$precision
        gpus 2 0 train $model $flags $card --device-batch-size 2 --precision $precision --gpus 2 $in_turn -o two-$precision
    done
    close one-f32 two-f32 1e-6
    close one-bf16 two-bf16 1e-4
    # What two GPUs saved a processor goes on with.
    for folder in one-f32 two-f32; do
        run 0 train -d text.txt --resume --num-iterations 3 $flags -o $folder
    done
    awk -v a="$(numbers one-f32 | tail -1)" -v b="$(numbers two-f32 | tail -1)" '
        BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-10) }' ||
        fail "going on: $(numbers two-f32 | tail -1), from one $(numbers one-f32 | tail -1)"

    # A benchmark: of both, counted and checked on each.
    gpus 2 0 train bench --depth 1 --aspect-ratio 64 --head-dim 64 --max-seq-len 32 --device-batch-size 1 --vocab-size 128 \
        --num-iterations 1 --warmup-steps 1 --no-store --no-limits --json $card --gpus 2
    has out '"ranks": 2,'
    has out '"tokens": 64,'
    has out '"variant": "reduce_scatter_nccl_cuda"'
    is "reports" "$(grep -c tokens_per_s "$work/out")" 1

    run 2 train $model $flags --gpus 2 -o none
    has err '--gpus wants --backend cuda'
    gpus 2 5 train $model $flags $card --device-batch-size 1 --gpus 3 -o none
    has err 'rank 2: .*GPU'
    nccl=/nonexistent gpus 2 5 train $model $flags $card --device-batch-size 2 --gpus 2 -o none
    has err 'NCCL cannot be loaded: /nonexistent'
    FAKE_NCCL=fails gpus 2 8 train $model $flags $card --device-batch-size 2 --gpus 2 -o none
    has err 'NCCL: putting a collective .error 1'
    FAKE_NCCL=alone SOL_RANK_SECONDS=1 gpus 2 8 train $model $flags $card --device-batch-size 2 --gpus 2 -o none
    has err 'joining ranks: not all ranks came within 1 s'
}
[ -e none/step_000002 ] && fail "there is a checkpoint of what failed"
exit $((failures != 0))
