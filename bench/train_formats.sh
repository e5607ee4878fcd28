#!/usr/bin/env bash
# What small formats do to a model: the loss of a small GPT in float32, NVFP4 and FP8, three seeds each, on the CPU.
#   usage: bench/train_formats.sh [SOL [TEXT]]     (default build/sol, and this repository's documents; 10 minutes)
# Prints the means of updates 51 to 100, 151 to 200 and 251 to 300, and the validation loss, each with its lowest and
# highest seed; docs/TRAIN.md has them. Other documents give other figures.
set -euo pipefail
cd "$(dirname "$0")/.."
sol=$(realpath "${1:-build/sol}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${2:-}" ]; then cp "$2" "$work/text.txt"; else cat README.md docs/*.md docs/design/*.md >"$work/text.txt"; fi
cd "$work"
"$sol" tok train --vocab-size 1024 --special-set nanochat -o tokenizer.json text.txt
for format in f32 nvfp4 fp8; do
    for seed in 42 43 44; do
        "$sol" train -d text.txt --documents paragraphs --packing stream --tokenizer tokenizer.json --no-store \
            --depth 4 --aspect-ratio 32 --head-dim 32 --max-seq-len 128 --device-batch-size 8 --total-batch-size 1024 \
            --num-iterations 300 --matrix-lr 0.3 --embedding-lr 3 --unembedding-lr 0.1 --eval-every 300 \
            --sample-every -1 --precision "$format" --seed "$seed" --json >"$format.$seed.jsonl"
    done
done
python3 - f32 nvfp4 fp8 <<'PY'
import json, statistics, sys
rows = {}
for format in sys.argv[1:]:
    for seed in (42, 43, 44):
        lines = [json.loads(line) for line in open(f"{format}.{seed}.jsonl")]
        loss = [line["loss"] for line in lines if "loss" in line]
        for first in (50, 150, 250):
            rows.setdefault(f"{first + 1} to {first + 50}", {}).setdefault(format, []).append(
                statistics.mean(loss[first:first + 50]))
        rows.setdefault("validation after 300", {}).setdefault(format, []).append(
            [line for line in lines if "val_loss" in line][-1]["val_loss"])
for name, formats in rows.items():
    print(name, *(f"{f} {statistics.mean(v):.3f} ({min(v):.3f} to {max(v):.3f})" for f, v in formats.items()), sep=", ")
for format in sys.argv[2:]:
    more = [a - b for a, b in zip(rows["251 to 300"][format], rows["251 to 300"]["f32"])]
    print(f"updates 251 to 300, {format} over f32 with the same seed: {min(more):.3f} to {max(more):.3f}")
PY
