#!/bin/bash
# Every kernel under compute-sanitizer (memcheck, racecheck, initcheck, synccheck) on a machine with an NVIDIA
# GPU: `sol verify --brief`, as many processes at a time as there are processors.
#   usage: bench/sanitize_device.sh [SOL]     (default build/sol)
#   TOOLS, LIMIT (seconds of a process, default 110), JOBS, LOGS (a folder for what the tools print)
#
# Two things initcheck would report that are right:
#  - It does not see what bulk copies from shared memory store (bench/initcheck_bulk.cu proves it). So it runs
#    on kernels whose results leave by plain stores instead, which every product has for odd sizes.
#  - gemm_mma and moe_up_mma read rows behind the last one of a tile, for which their memory has room; nobody
#    reads their products (gemm_mma_cuda.c, rows_bytes). Reads of those two kernels are left out.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
sol=$(realpath "${1:-$here/build/sol}")
tools=${TOOLS:-racecheck memcheck initcheck synccheck}
export LIMIT=${LIMIT:-110} LOGS=${LOGS:-$here/build/sanitize} SOL_CUBLASLT=/nonexistent sol
jobs=${JOBS:-$(nproc)}
rm -rf "$LOGS" && mkdir -p "$LOGS" || exit 1

export plain=$LOGS/kernels
cp -r "$here/kernels" "$plain"
sed -i 's/if (stride % 4 == 0 && .* {$/if (false) {/' "$plain/gemm/wgmma_results.cuh"
cmp -s "$here/kernels/gemm/wgmma_results.cuh" "$plain/gemm/wgmma_results.cuh" &&
    { echo "where bulk copies store is not to be found in kernels/gemm/wgmma_results.cuh"; exit 1; }

one() { # TOOL NAME OP...
    local tool=$1 name=$2 log=$LOGS/$1.$2.txt start=$SECONDS options=() errors
    shift 2
    [ "$tool" = initcheck ] && options=(--kernel-src "$plain")
    # shellcheck disable=SC2046 # words are what is wanted
    timeout "$LIMIT" compute-sanitizer --tool "$tool" --show-backtrace no --print-limit 100000 "$sol" verify \
        --backend cuda --rounds 1 --brief "${options[@]}" $(printf -- '--op %s ' "$@") >"$log" 2>&1
    local status=$?
    errors=$(awk -v tool="$tool" '
        /^========= +(Invalid|Error|Race|Potential|Uninitialized|Barrier|Divergent|Program hit|Malloc|Target)/ { what = $0 }
        /^========= +at / && what != "" {
            kernel = $3; sub(/[+(].*/, "", kernel)
            if (!(tool == "initcheck" && kernel ~ /^(gemm_mma|moe_up_mma)_/)) count[kernel]++
            what = ""
        }
        END { for (k in count) printf " %s %d", k, count[k] }' "$log")
    [ "$tool" = racecheck ] && errors+=$(grep -a 'RACECHECK SUMMARY' "$log" | grep -v ' 0 hazards' | tr -d =)
    local verdict=ok
    [ -n "$errors" ] && verdict=FOUND
    [ $status -ne 0 ] && verdict="STATUS $status"
    grep -qa 'variants verified' "$log" || verdict="UNFINISHED ($status)"
    echo "$tool $name: $verdict, $((SECONDS - start)) s$errors"
}
export -f one

# Ops with variants: the slow ones first, each variant of theirs for itself.
variants() {
    "$sol" kernels | awk 'NF && $1 != "op" {
        if (substr($0, 1, 1) != " ") { op = $1; name = $2 } else name = $1
        if ((name ~ /_cuda$/ && name !~ /cublaslt/) || name == "composed") print op, name }'
}
split=" gemm moe_up attention attn_out " whole=" attn_in moe_down moe head " others=""
variants >"$LOGS/variants"
for op in $split; do
    for variant in $(awk -v op="$op" '$1 == op { print $2 }' "$LOGS/variants"); do
        for tool in $tools; do echo "$tool $op.$variant $op=$variant"; done
    done
done >"$LOGS/jobs"
for op in $whole; do
    for tool in $tools; do echo "$tool $op $op"; done
done >>"$LOGS/jobs"
for op in $(cut -d' ' -f1 "$LOGS/variants" | uniq); do
    [[ "$split$whole" == *" $op "* ]] || others+=" $op"
done
for tool in $tools; do echo "$tool others$others"; done >>"$LOGS/jobs"

start=$SECONDS
xargs -P "$jobs" -I{} bash -c 'one {}' <"$LOGS/jobs" >"$LOGS/results"
for tool in $tools; do
    echo "$tool: $(grep -c "^$tool .*: ok" "$LOGS/results") of $(grep -c "^$tool " "$LOGS/jobs") clean"
done
grep -v ': ok' "$LOGS/results"
failed=$(grep -vc ': ok' "$LOGS/results")
echo "$(wc -l <"$LOGS/jobs") processes, $((SECONDS - start)) s; the longest: $(sed 's/\(.*\): .*, \([0-9]*\) s.*/\2 s \1/' "$LOGS/results" | sort -n -r | head -3 | tr '\n' ';')"
[ "$failed" -eq 0 ]
