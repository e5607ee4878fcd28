#!/usr/bin/env bash
# The forms of the loss as a user chooses them: each has the others' loss in its own memory, which sol train counts
# before the first step and when it chooses a micro-batch; sol bench, verify and kernels know them.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
[ "${SOL_EMULATED:-}" ] && { echo "skipped: the same on every processor"; exit 0; }

field() { python3 -c 'import json, sys
value = json.load(open("out"))
for key in sys.argv[1].split("."): value = value[key]
print(value)' "$1"; }
small="--depth 1 --aspect-ratio 64 --head-dim 32 --max-seq-len 64 --vocab-size 8192 --optimizer none --no-store -q --no-limits"
# bench FORM OPTION...: its loss and scratch in $loss and $scratch
bench() {
    # shellcheck disable=SC2086 # words
    run 0 train bench $small --num-iterations 1 --warmup-steps 0 --json ${1:+--force "linear_cross_entropy=$1"} "${@:2}"
    loss=$(field loss) scratch=$(field memory.scratch)
}
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 && d > -1e-5) }'; }

# ---- 512 rows of 8192 logits: 16 MiB ----
bench plain --device-batch-size 8
plain=$loss whole=$scratch
[ "$whole" -ge $((16 << 20)) ] || fail "plain has $whole bytes of scratch"
bench '' --device-batch-size 8
near "$loss" "$plain" || fail "chunked: loss $loss, plain $plain"
for form in chunked:64 cut:256 cut:1024; do
    bench $form --device-batch-size 8
    near "$loss" "$plain" || fail "$form: loss $loss, plain $plain"
    [ "$scratch" -lt $((whole / 2)) ] || fail "$form has $scratch bytes of scratch, plain $whole"
done

# ---- a form that needs less leaves room for more sequences ----
cat "$SOL_SOURCE_DIR"/README.md "$SOL_SOURCE_DIR"/docs/*.md >text.txt
run 0 tok train --vocab-size 512 -o words.json text.txt
# sequences FORM N: how many there are in 19.3 MB
sequences() {
    run 0 train -d text.txt --documents paragraphs --packing stream --tokenizer words.json --depth 1 --aspect-ratio 64 \
        --head-dim 32 --max-seq-len 64 --total-batch-size 2048 --num-iterations 1 --eval-every -1 --sample-every -1 \
        --no-store --no-limits --recompute nothing --memory 0.0193 --force "linear_cross_entropy=$1"
    has out "^a micro-batch has $2 sequences of 64 tokens"
    has out '^scratch +[0-9.]+ MiB$'
}
sequences plain 16
sequences cut:64 32
sequences chunked:64 32

# ---- what is not there ----
# shellcheck disable=SC2086 # words
{
    run 2 train bench $small --force linear_cross_entropy=composed
    has err 'linear_cross_entropy has no such variant; it has: chunked, cut, plain, reference$'
    run 2 train bench $small --force linear_cross_entropy=cut:100
    has err 'the variant has no such choice; it has: 64, 128, 256'
    run 2 train bench $small --force linear_cross_entropy=plain:64
    has err 'the variant has no choices$'
    run 2 train bench $small --loss-chunk 8
}

# ---- by the op ----
run 0 kernels --wide
has out '^linear_cross_entropy +chunked +exact +any machine +yes '
has out '^ +cut +exact +any machine +yes '
has out '^ +plain +exact +any machine +yes '
for form in chunked:64 cut:256 plain; do
    run 0 bench --no-store -t 2 --wide --op linear_cross_entropy:m=150,n=1000,k=24,check=reference,variant=$form
    has out "^linear_cross_entropy +m=150 n=1000 k=24 f32 +- +$form +[0-9]"
    awk '/^linear/ { exit !($NF < 1e-4) }' out || fail "$form: $(tail -n 1 out)"
done
run 0 bench --no-store -t 2 --op linear_cross_entropy:m=64,n=512,k=24 --op linear_cross_entropy:m=64,n=512,k=24,variant=plain \
    --force linear_cross_entropy=cut:128
is "forms" "$(awk '/^linear/ { print $6 }' out | tr '\n' ' ')" "cut:128 plain "
run 0 bench --no-store -t 2 --wide --op matmul:m=90,n=90,k=40,transposed=a,symmetric=yes,check=reference
has out '^matmul +m=90 n=90 k=40 groups=1 transposed=a symmetric=yes f32 |^matmul +m=90 n=90 k=40 transposed=a symmetric=yes f32 '
run 2 bench --op matmul:m=90,n=90,k=40,transposed=no,symmetric=yes
has err 'of a symmetric product n is m, and k too'
run 2 bench --op linear_cross_entropy:symmetric=yes
has err 'linear_cross_entropy has no symmetric'
run 2 bench --op linear_cross_entropy:variant=cut:65
has err 'no such choice; it has: 64, 128'
run 5 bench --op gemm:variant=gemm_cublaslt_cuda
has err '^sol: error: --op gemm: gemm_cublaslt_cuda does not serve it: runs on a GPU$'
run 0 verify --op linear_cross_entropy --op cross_entropy_block --op cross_entropy_block_backward --rounds 1
has out '^linear_cross_entropy +cut .* ok'
exit $((failures != 0))
