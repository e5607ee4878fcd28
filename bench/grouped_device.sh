#!/bin/sh
# Grouped products of NVFP4 on a machine with an NVIDIA GPU, in under five minutes: every variant against its reference;
# then times beside cuBLAS (a call a product, and one for all) in both layouts of scales, with random scales, of SwiGLU
# of two products, both again with weights packed before (resident), and the kernels of a call; then beside PyTorch; then
# the public task's own evaluation.
#   usage: bench/grouped_device.sh [BUILD]     (default build: sol and libsol.so)
#   PYTHON=FILE                one that has torch with CUDA (default python3)
#   REFERENCE_KERNELS=FOLDER   a checkout of gpu-mode/reference-kernels at f83cb92a; without, no evaluation
#   OUT=FOLDER                 keeps what each step printed
# A step that fails stops no other. The last lines say how each ended, and which bars are met; exit status 1 where one
# failed or a bar was missed.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
python=${PYTHON:-python3}
[ -x "$build/sol" ] || { echo "no $build/sol; build first" >&2; exit 1; }
out=${OUT:-}
[ -n "$out" ] || { out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT; }
mkdir -p "$out" || exit 1
: >"$out/verdicts"

step() { # NAME COMMAND...
    name=$1 begin=$(date +%s)
    shift
    echo "== $name: $*"
    "$@" >"$out/$name" 2>&1
    status=$? verdict=ok
    [ $status = 0 ] || verdict="FAILED, status $status"
    cat "$out/$name"
    echo "$name: $verdict, $(($(date +%s) - begin)) s" >>"$out/verdicts"
}
bench() { # NAME OPTION...: the table's last row has the geometric means
    name=$1
    shift
    step "$name" "$build/sol" gemm bench --backend cuda -q --wide --no-store "$@"
}
bar() { # NAME MOST: of the times of both peers
    awk -v name="$1" -v most="$2" '
        function held(peer, ratio) {
            said = ratio !~ /^[0-9.]+$/ ? "not measured, MISSED" : ratio <= most + 0 ? "met" : "MISSED"
            print name ": " ratio " of " peer ", bar " most " " said
        }
        /^geometric mean/ { held("cuBLAS", $(NF - 2)); held("cuBLAS grouped", $NF); seen = 1 }
        END { if (!seen) print name ": bar " most " not measured, MISSED" }' "$out/$1" >>"$out/verdicts"
}

step check "$build/sol" gemm check --backend cuda -q
bench atoms --layout atoms --profile
bar atoms 0.80
bench rows --no-limits
bar rows 0.80
bench random --no-limits --layout atoms --scales random
bench gated --no-limits --layout atoms --gated --profile
bar gated 0.75
bench resident --no-limits --layout atoms --resident --profile
bar resident 0.65
bench resident-gated --no-limits --layout atoms --resident --gated --profile
bar resident-gated 0.75
step torch "$python" "$root/bench/grouped_vs_torch.py" --library "$build/libsol.so"
if [ -n "${REFERENCE_KERNELS:-}" ]; then
    for mode in test benchmark; do
        step "task-$mode" "$python" "$root/examples/grouped_gemm/evaluate.py" "$REFERENCE_KERNELS" \
            --library "$build/libsol.so" --mode "$mode"
    done
else
    echo "task: left out, REFERENCE_KERNELS names no checkout" >>"$out/verdicts"
fi

echo "== how it ended"
cat "$out/verdicts"
! grep -qE 'FAILED|MISSED' "$out/verdicts"
