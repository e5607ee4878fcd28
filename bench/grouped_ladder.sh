#!/bin/sh
# The ladder of grouped products (kernels/grouped_gemm/grouped_ladder.cuh) on a Hopper GPU, in two minutes: the variant
# against its reference, then the time of each step, beside the variant that sol uses. The table has microseconds of each
# shape, their geometric mean, and by how much a step is faster than the one before it: of each shape, of the mean.
#   usage: bench/grouped_ladder.sh [BUILD [OPTION...]]     (default build; options of sol gemm bench, say --shape)
#   OUT=FOLDER   keeps what each run printed
# Exit status 1 where a step failed or is wrong.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
[ $# = 0 ] || shift
[ -x "$build/sol" ] || { echo "no $build/sol; build first" >&2; exit 1; }
out=${OUT:-}
[ -n "$out" ] || { out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT; }
mkdir -p "$out" || exit 1

"$build/sol" verify --backend cuda -q --op grouped_gemm=grouped_gemm_ladder_cuda || exit 1
: >"$out/times"
time_of() { # NAME VARIANT[:CHOICE] OPTION...: a line of its name and times
    name=$1 force=$2
    shift 2
    "$build/sol" gemm bench --backend cuda -q --wide --no-store --no-limits --layout atoms \
        --force "grouped_gemm=$force" "$@" >"$out/$name" 2>&1 || { cat "$out/$name" >&2; echo "$name: failed" >&2; exit 1; }
    awk -v name="$name" -v variant="${force%%:*}" '
        $2 == variant { times = times " " $3 }
        END { print name times }' "$out/$name" >>"$out/times"
}
for step in plain swizzle stages roles cluster persistent; do
    time_of $step "grouped_gemm_ladder_cuda:$step" "$@"
done
time_of usual grouped_gemm_wgmma_cuda "$@"

awk '
    function mean(first, i, product) {
        product = 1
        for (i = first; i <= NF; i++) product *= $i
        return product ^ (1 / (NF - first + 1))
    }
    NF < 2 { print $1 ": no times"; bad = 1; next }
    {
        line = sprintf("%-11s", $1); gains = ""
        for (i = 2; i <= NF; i++) {
            line = line sprintf(" %8.1f", $i)
            if (NR > 1) gains = gains sprintf(" %5.2f", before[i] / $i)
            before[i] = $i
        }
        now = mean(2)
        print line sprintf("  mean %8.1f", now) (NR > 1 ? "  faster by" gains sprintf("  mean %5.2f", last / now) : "")
        last = now
    }
    END { exit bad }' "$out/times"
