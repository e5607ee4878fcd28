#!/usr/bin/env bash
# sol beside llama.cpp and ik_llama.cpp on the CPU: speed, memory beyond the model, time to the first token.
# usage: MODEL=gpt-oss-20b.gguf [LLAMA_BENCH=llama-bench] [IK_LLAMA_BENCH=llama-bench] bench/cpu_vs_peers.sh
# Everything else has a default; bench/README.md explains.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${MODEL:?name a GGUF file: MODEL=gpt-oss-20b.gguf bench/cpu_vs_peers.sh}"
command -v python3 >/dev/null || { echo "python3 is needed" >&2; exit 1; }
exec python3 "$here/cpu_vs_peers.py" \
    --model "$MODEL" --sol "${SOL:-$here/../build/sol}" \
    --llama "${LLAMA_BENCH:-}" --ik "${IK_LLAMA_BENCH:-}" \
    --sol-flags="${SOL_FLAGS:-}" --llama-flags="${LLAMA_FLAGS:-}" --ik-flags="${IK_LLAMA_FLAGS:-}" \
    --threads "${THREADS:-2}" --rounds "${ROUNDS:-3}" --repetitions "${REPETITIONS:-2}" \
    --prompt "${PROMPT:-512}" --generate "${GENERATE:-16}" --save "${SAVE:-}" "$@"
