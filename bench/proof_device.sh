#!/bin/sh
# Proof that the kernels of an NVIDIA GPU compute what the model says, in about five minutes:
#  - every variant against its reference, then under compute-sanitizer where that is installed
#    (sanitize_device.sh);
#  - the engine against transformers' results on five small models (tests/golden_transformers), and
#    sequences among others against themselves (tests/golden_batch);
#  - perplexity of the built-in model on a text, and the Kullback-Leibler divergence from float32
#    references on the CPU; the greedy continuation of a prompt on both.
#   usage: bench/proof_device.sh [BUILD]      (default build; built with tests)
#   TEXT=FILE     the text (default: README.md)
set -u
cd "$(dirname "$0")/.."
build=${1:-build} text=${TEXT:-README.md} failed=0
sol=$build/sol
check() { # STATUS NAME
    if [ "$1" -eq 0 ]; then echo "ok      $2"; else echo "FAILED  $2"; failed=1; fi
}

"$sol" verify --backend cuda --ops-only >"$build/proof.txt" 2>&1
check $? "every variant against its reference: $(tail -1 "$build/proof.txt")"

if command -v compute-sanitizer >/dev/null; then
    LOGS=$build/sanitize bench/sanitize_device.sh "$sol" >"$build/proof.sanitize.txt"
    check $? "sanitizers: $(grep clean "$build/proof.sanitize.txt" | tr '\n' ' ')"
else
    echo "skipped compute-sanitizer: it is not installed"
fi

SOL_TEST_BACKEND=cuda "$build/golden_transformers" >"$build/proof.golden.txt" 2>&1
check $? "against transformers: $(grep -c '       OK' "$build/proof.golden.txt") tests"
SOL_TEST_BACKEND=cuda "$build/golden_batch" >"$build/proof.batch.txt" 2>&1
check $? "batches: $(grep -c '       OK' "$build/proof.batch.txt") tests"

for backend in cpu cuda; do
    "$sol" perplexity -f "$text" --backend $backend --quiet | grep -i 'perplexity' | sed "s/^/$backend: /"
    "$sol" run -p 'Once upon a time' -n 100 --greedy --quiet --backend $backend >"$build/proof.$backend.txt"
done
"$sol" perplexity -f "$text" --backend cuda --kl --quiet | grep -E 'against|KL|top token'
cmp -s "$build/proof.cpu.txt" "$build/proof.cuda.txt"
check $? "greedy text is the CPU's"
exit $failed
