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
sequences() {
    bench "$1" --memory 0.03 --total-batch-size 2048
    sequences=$(field sequences)
}
sequences plain && few=$sequences
sequences cut:64 && [ "$sequences" -gt "$few" ] || fail "$sequences sequences in little memory, $few with plain"

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
run 0 kernels
has out '^linear_cross_entropy +chunked +exact +any machine +yes '
has out '^ +cut +exact +any machine +yes '
has out '^ +plain +exact +any machine +yes '
for form in chunked:64 cut:256 plain; do
    run 0 bench --no-store -t 2 --wide --op linear_cross_entropy:m=150,n=1000,k=24,check=reference \
        --force linear_cross_entropy=$form
    has out "^linear_cross_entropy +m=150 n=1000 k=24 f32 +- +$form +[0-9]"
    awk '/^linear/ { exit !($NF < 1e-4) }' out || fail "$form: $(tail -n 1 out)"
done
run 0 verify --op linear_cross_entropy --op cross_entropy_block --op cross_entropy_block_backward --rounds 1
has out '^linear_cross_entropy +cut .* ok'
exit $((failures != 0))
