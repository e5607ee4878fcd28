#!/bin/sh
# sol beside llama.cpp on one GGUF file and one GPU, kernel by kernel, joined by what kernels do: both traced by
# `sol profile`, then `sol compare --roles`. About a minute.
#   usage: MODEL=a.gguf LLAMA_BENCH=.../llama-bench bench/roles_device.sh [FILE.json]
#   SOL=build/sol          the program
#   TEST="-p 0 -n 32"      what both do; a step is a token then. For prompts: TEST="-p 512 -n 0" TOKENS=512
#   SOL_CUPTI              libcupti, where the system has none (a Python package that brings one is found)
set -eu
: "${MODEL:?name a GGUF file}" "${LLAMA_BENCH:?name the llama-bench binary}"
here=$(cd "$(dirname "$0")" && pwd)
sol=${SOL:-$here/../build/sol}
test=${TEST:--p 0 -n 32}
if [ -z "${SOL_CUPTI:-}" ]; then
    SOL_CUPTI=$(python3 -c 'import glob, sys
print(next((f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib/libcupti.so*")), ""))' 2>/dev/null || true)
    if [ -n "$SOL_CUPTI" ]; then export SOL_CUPTI; else unset SOL_CUPTI; fi
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOL_STORE="$work/store"
# shellcheck disable=SC2086 # TEST is a list of options
"$sol" profile --level node --report /dev/null --label sol -- \
    "$sol" bench -q --no-store --no-limits -m "$MODEL" --backend cuda $test -r 3
# shellcheck disable=SC2086
"$sol" profile --level node --report /dev/null --label llama.cpp -- \
    "$LLAMA_BENCH" -m "$MODEL" -fa 1 -ngl 99 -b 2048 -ub 2048 $test -r 3
"$sol" compare --roles llama.cpp sol --tokens "${TOKENS:-1}"
[ $# = 0 ] || "$sol" compare --roles llama.cpp sol --tokens "${TOKENS:-1}" -o json --output "$1"
