#!/usr/bin/env bash
# Processes that mpirun starts: training gives what one process gives, checkpoints are of any number of ranks, errors are
# said once, and a rank that is killed, stopped or interrupted ends all.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

cd "$work" || exit 1
SOL_MPI=/nonexistent OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 run 5 train --data "$0" --vocab-size 300
has err 'ranks of Open MPI need Open MPI .Debian: openmpi-bin.*/nonexistent'
OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2 run 2 train --data "$0"
has err 'ranks count from 0'
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 run 5 train replay folder
has err 'sol train replay runs as one process, and Open MPI started 2'

run 5 bench --op all_reduce --no-store
has err 'one rank does not do it; sol device --gpus times it by size, and sol train bench in a step'

command -v mpirun >/dev/null || { echo "skipped: there is no mpirun (openmpi-bin)"; exit $((failures != 0)); }
mpirun --version | grep -q 'Open MPI' || { echo "skipped: this mpirun is not Open MPI's"; exit $((failures != 0)); }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # of Open MPI's
ranks() { # COUNT ARGUMENT...: as `run`, without a wanted status
    local count=$1
    shift
    ASAN_OPTIONS=$ASAN_OPTIONS timeout 300 mpirun --oversubscribe --bind-to none -n "$count" "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null
}

mills text
"$SOL_BINARY" tok train text --vocab-size 290 -o vocabulary.json >/dev/null || fail "tok train"
train="train --data text --tokenizer vocabulary.json --depth 1 --head-dim 32 --max-seq-len 32 --device-batch-size 2
    --total-batch-size 384 --no-store --eval-every 4 --eval-tokens 768 --sample-every -1 -t 1"

# What one process gives, up to the order of sums; with --exact the same bits.
numbers() { # FILE KEY: step and number
    sed -nE "s/.*\"step\": ?([0-9]+).*\"$2\": ?([0-9.]+).*/\1 \2/p" "$1"
}
near() { # NAME FILE FILE KEY
    paste -d ' ' <(numbers "$2" "$4") <(numbers "$3" "$4") | awk -v least="$5" '
        { d = $2 - $4; if ($1 != $3 || d * d > 25e-10) bad = 1 } END { exit bad || NR < least }' ||
        fail "$1: $4 of $3 is not that of $2"
}
# shellcheck disable=SC2086 # words
{
    run 0 $train --num-iterations 8 --json -o alone
    cp "$work/out" alone.log
    ranks 3 $train --num-iterations 8 --json -o three || fail "three ranks: $(cat "$work/err")"
    cp "$work/out" three.log
    near "three ranks" alone.log three.log loss 8
    near "three ranks" alone.log three.log val_loss 3
    is "lines of the log" "$(wc -l <three/log.jsonl)" "$(wc -l <alone/log.jsonl)"

    run 0 $train --num-iterations 3 --exact -q -o exact
    ranks 2 $train --num-iterations 3 --exact -q -o exact2 || fail "two ranks: $(cat "$work/err")"
    for file in model optimizer; do
        cmp exact/step_000003/$file.safetensors exact2/step_000003/$file.safetensors || fail "--exact: $file differs"
    done

    # A checkpoint is of any number of ranks, to the bit.
    ranks 2 train --data text --resume --num-iterations 5 --exact --no-store -t 1 -q -o exact || fail "resume: $(cat "$work/err")"
    run 0 train --data text --resume --num-iterations 5 --exact --no-store -t 1 -q -o exact2
    for file in model optimizer; do
        cmp exact/step_000005/$file.safetensors exact2/step_000005/$file.safetensors || fail "--exact, resumed: $file differs"
    done
    run 0 train --data text --resume --num-iterations 12 --no-store -t 1 -q -o alone
    ranks 2 train --data text --resume --num-iterations 12 --no-store -t 1 -q -o three || fail "resume: $(cat "$work/err")"
    near "resumed by two ranks" alone/log.jsonl three/log.jsonl loss 12
    run 0 run -m three/step_000012 -p 'The 5 mills' -n 4 --temperature 0
}

# A benchmark of three ranks: all their tokens, one report.
bench="train bench --depth 1 --head-dim 32 --max-seq-len 32 --device-batch-size 2 --vocab-size 128 --num-iterations 3
    --micro-batches 2 --no-store --no-limits -t 1"
# shellcheck disable=SC2086 # words
{
    ranks 3 $bench --json || fail "bench: $(cat "$work/err")"
    is "reports" "$(grep -c '"tokens_per_s"' "$work/out")" 1
    has out '"ranks": 3,'
    has out '"tokens": 384,'
    has out '"op": "reduce_scatter"'
    ranks 3 $bench || fail "bench: $(cat "$work/err")"
    has out 'steps of 384 tokens, on 3 ranks'
}

# What all find wrong is said once; what one alone cannot do, by its rank.
# shellcheck disable=SC2086 # words
ranks 5 $train --num-iterations 8 -o five
is "exit status" $? 2
is "an error of all" "$(grep -c 'sol: error: .*no multiple of' "$work/err")" 1
ranks 2 train --data nothing --vocab-size 300 --no-store
is "exit status" $? 3
is "an error of all" "$(grep -c 'sol: error:' "$work/err")" 1

# What rank 0 alone cannot do.
mkdir -p full/log.jsonl
# shellcheck disable=SC2086 # words
SOL_RANK_SECONDS=20 ranks 2 $train --num-iterations 8 -o full
is "exit status" $? 3
is "an error of rank 0" "$(grep -c 'sol: error:' "$work/err")" 1

# Ranks that die, stop and are interrupted. $1: signal; $2, $3: exit status, and what is said.
ended() {
    local rank
    rm -rf gone log
    # shellcheck disable=SC2086 # words
    ASAN_OPTIONS=$ASAN_OPTIONS SOL_RANK_SECONDS=8 mpirun --oversubscribe --bind-to none -n 3 "$SOL_BINARY" $train --num-iterations 100000 \
        --save-every 5 -o gone >log 2>&1 </dev/null &
    local started=$!
    for _ in $(seq 600); do [ -e gone/step_000005/train.json ] && break; sleep 0.1; done
    rank=$(pgrep -P $started -f "$SOL_BINARY" | tail -1)
    kill -"$1" "$rank"
    for _ in $(seq 300); do kill -0 $started 2>/dev/null || break; sleep 0.1; done
    kill -0 $started 2>/dev/null && { fail "$1: the others go on"; kill -9 $started; }
    wait $started
    is "exit status after $1" $? "$2"
    grep -q "$3" log || fail "$1: no '$3' in $(tail -n 20 log)"
    pgrep -P $started >/dev/null && fail "$1: a rank is left"
    [ -e gone/step_000005/train.json ] || fail "$1: the checkpoint is gone"
}
ended KILL 137 'exited on signal 9'
ended STOP 8 'sol: error: rank [0-2]: waited 8 s for the other 2 ranks'
ended INT 130 'interrupted at step .*saved as gone/step_'
# shellcheck disable=SC2012 # the names are ours
last=$(ls -d gone/step_* | tail -1)
"$SOL_BINARY" train --data text --resume --num-iterations $((10#${last#gone/step_} + 1)) --no-store -q -o gone >/dev/null ||
    fail "what was interrupted does not go on"
exit $((failures != 0))
