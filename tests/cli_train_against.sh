#!/usr/bin/env bash
# sol train bench --against: a row for each way, the figures of each those of a benchmark by itself, and no row with
# another's: what cannot run, or does not run as asked, says so.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }
export SOL_NO_LIMITS=1

small="train bench --depth 2 --aspect-ratio 16 --head-dim 16 --max-seq-len 32 --device-batch-size 2 --vocab-size 64 -q"
# of FILE EXPRESSION: of its rows, in Python
of() { python3 -c "
import json, sys
rows = json.load(open('$1'))['rows']
print($2)"; }

# shellcheck disable=SC2086 # words, here and below
{
    # ---- what is shown ----
    run 0 $small --num-iterations 6 --label ways --against matmul=reference \
        --against precision=fp8 --against recompute=wide,rmsnorm=reference --against precision=bf16 --against moe=composed \
        --against self_attention=self_attention_cudnn_cuda --wide
    has out '^2026-07: depth 2, '
    number='[0-9.]+'
    has out "^with +step ms +\+-% +low +high +tokens/s +ratio +MFU % +causal MFU % +peak +loss +kernels +figures\$"
    has out "^as it is +$number +$number +$number +$number +[0-9]+ +1\.00 +- +- +$number MiB +$number +- +valid\$"
    has out "^matmul=reference +$number +$number +$number +$number +[0-9]+ +0\.[0-9]+ .* valid\$" # it is slower
    has out '^recompute=wide,rmsnorm=reference .* valid$'
    has out '^as it is, again .* valid$'
    has out '^precision=fp8, not run: no matrix of this model is one for --precision fp8$'
    has out '^precision=bf16 +- .* not run$'
    has out '^precision=bf16, not run: --precision bf16 is for a GPU'
    has out '^moe=composed, not run: a step has no call of moe$'
    has out '^self_attention=self_attention_cudnn_cuda, not run: .* takes none of 2 calls: runs on a GPU$'
    # The same steps with the same numbers.
    loss() { sed -nE "s/^$1  .* (4\.[0-9]+) +- +valid\$/\1/p" out; }
    grep -qE '^4\.[0-9]+$' <<<"$(loss 'as it is')" || fail "no loss"
    is "loss of other matmuls" "$(loss matmul=reference)" "$(loss 'as it is')"
    is "loss of another memory" "$(loss recompute=wide,rmsnorm=reference)" "$(loss 'as it is')"

    # ---- what is kept: runs like others ----
    is "runs" "$(grep -cE '^run b[0-9a-f]{8}  ' out)" 4
    run 0 runs show ways-2 --json
    has out '"settings": "matmul=reference"'
    run 0 runs show ways-2
    has out '^train +step +matmul/reference'
    "$SOL_BINARY" compare ways ways-2 --json >out 2>err
    [ $? -le 12 ] || fail "compare: status"
    grep -q '"name": "train"' out || fail "no metric 'train' in a comparison"
    run 2 runs show ways-5 # which was not run

    # ---- for programs ----
    run 0 $small --num-iterations 2 --json --no-store --against matmul=reference,rmsnorm=reference \
        --against precision=bf16
    is "figures" "$(of out '*[r["figures"] for r in rows]')" "valid valid not-run valid"
    is "settings" "$(of out '[rows[0]["settings"], rows[1]["bench"]["settings"], rows[2]["bench"], rows[3]["settings"]]')" \
        "[None, 'matmul=reference,rmsnorm=reference', None, None]"
    is "again" "$(of out '[r["again"] for r in rows]')" "[False, False, False, True]"
    is "forced" "$(of out '[(f["op"], f["calls"] == f["taken"] > 0) for f in rows[1]["forced"]]')" \
        "[('matmul', True), ('rmsnorm', True)]"
    is "kernels that ran" \
        "$(of out 'sorted({o["variant"] for o in rows[1]["bench"]["ops"] if o["op"] in ("matmul", "rmsnorm")})')" \
        "['reference']"
    is "ratio" "$(of out 'abs(rows[1]["ratio"] - rows[0]["step_ns"] / rows[1]["step_ns"]) < 1e-9')" True

    # Quantising takes about a tenth of so small a model: a row that does not count is the command's error.
    "$SOL_BINARY" $small --num-iterations 2 --json --no-store --against precision=nvfp4 >out 2>err
    status=$?
    is "status and figures" "$status $(of out 'rows[1]["figures"]')" \
        "$(if [ $status = 7 ]; then echo 7 invalid; else echo 0 valid; fi)"
    is "precision" "$(of out '[r["bench"]["precision"] for r in rows]')" "['f32', 'nvfp4', 'f32']"

    # ---- bad input: nothing is run ----
    refused() { # PATTERN SETTINGS
        run 2 $small --num-iterations 2 --no-store --against matmul=reference --against "$2"
        has err "$1"
        [ -s out ] && fail "something was run in spite of $2"
    }
    refused 'no such op; known ops: ' nothing=at_all
    refused 'matmul has no such variant; it has: ' matmul=wmma
    refused 'it is bf16, f32, fp8 or nvfp4' precision=int4
    refused 'it is nothing, norms or wide' recompute=all
    refused 'joined by commas' ''
    refused 'joined by commas' precision=fp8,
    refused 'write op=variant' matmul
    refused 'a setting is too long' "$(printf 'm%.0s' {1..200})"
    refused 'given more than 32 times' "$(printf 'matmul=reference,%.0s' {1..32})matmul=reference"
    run 2 train --data /nowhere --against precision=fp8
    has err 'against is for sol train bench'
    # None of them can be had: that is the command's error.
    run 5 $small --num-iterations 2 --no-store --precision bf16 --against recompute=wide
    run 2 $small --num-iterations 2 --no-store --max-seq-len 40 --fp8 --against precision=nvfp4
    has err 'multiple of 16'
}

# ---- kernels of a GPU beside the plan's: a driver that runs nothing, and one that loses some ----
if [ "${SOL_FAKE_GPU:-}" ] && [ ! "${SOL_SANITIZED:-}" ]; then
    fake() {
        LD_LIBRARY_PATH=$SOL_FAKE_GPU SOL_CUBLASLT=$work/none run "$1" train bench --backend cuda --depth 2 --head-dim 64 \
            --max-seq-len 128 --device-batch-size 2 --vocab-size 256 --num-iterations 3 -q --wide "${@:2}" \
            --against self_attention=self_attention_any_cuda \
            --against self_attention=self_attention_cudnn_cuda,self_attention_backward=self_attention_backward_cudnn_cuda
    }
    fake 0
    has out '^as it is .* ([0-9]+) of \1 +valid$'
    has out '^self_attention=self_attention_any_cuda .* ([0-9]+) of \1 +valid$'
    has out 'cudnn_cuda, not run: self_attention_cudnn_cuda takes none of 2 calls: cuDNN cannot be loaded'
    SOL_CUDNN=$SOL_FAKE_CUDNN fake 0
    has out '^self_attention=self_attention_cudnn_cuda,.* valid$'
    FAKE_CUDA_GRAPH_MOST=60 fake 7
    has out '^as it is, INVALID: the micro-batches of a step launched 60 kernels, the plan has [0-9]+$'
    has err "the figures of 'as it is' are not valid: the micro-batches"
fi

exit $((failures != 0))
