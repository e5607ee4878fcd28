#!/usr/bin/env bash
# The public entry of grouped_gemm on a GPU that is emulated (tests/emulate): its results against the reference, from
# C and from examples/grouped_gemm; and what the example's script says and replaces.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

if [ -z "${SOL_EMULATED_GPU:-}" ]; then
    echo "skipped: the emulation is made in builds by gcc, without sanitizers, for the processor that it runs on"
    exit 0
fi
export LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_MAJOR=8 FAKE_CUDA_DEVICES=1 XDG_CACHE_HOME=$work/cache
mkdir "$XDG_CACHE_HOME"

# The verdict that lets the library use this card is what the test leaves in the cache.
SOL_TEST_BACKEND=cuda SOL_TEST_VERDICT=1 SOL_TEST_VARIANT=grouped_gemm_mma_cuda \
    "$SOL_BUILD_DIR/unit_grouped_entry" >"$work/out" 2>"$work/err"
is "unit_grouped_entry" $? 0
has out 'OK . results'
if grep -q 'fake driver' "$work/err"; then fail "something was not given back"; fi

# ---- from Python ----
example=$SOL_SOURCE_DIR/examples/grouped_gemm
command -v python3 >"$work/out" || {
    echo "skipped: no python3"
    exit $((failures != 0))
}
export PYTHONDONTWRITEBYTECODE=1
SOL_LIBRARY=$SOL_BUILD_DIR/libsol.so PYTHONPATH=$SOL_SOURCE_DIR/tests/fake_torch \
    python3 "$SOL_SOURCE_DIR/tests/example_gemm.py" "$example" >"$work/out" 2>"$work/err"
is "example_gemm.py" $? 0
has out 'submission.py: right'
if grep -q 'fake driver' "$work/err"; then fail "something was not given back"; fi
SOL_LIBRARY=$work/none.so PYTHONPATH=$SOL_SOURCE_DIR/tests/fake_torch \
    python3 "$SOL_SOURCE_DIR/tests/example_gemm.py" "$example" >"$work/out" 2>"$work/err"
is "example_gemm.py without a library" $? 1
has err "sol's library cannot be loaded: .*none.so.*name it with SOL_LIBRARY"

# ---- the script that runs the task's evaluation, on a task that is made up ----
task=$work/task/problems/nvidia/nvfp4_group_gemm
mkdir -p "$task"
cat >"$task/task.yml" <<'END'
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "utils.py", "source": "utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval_of_tests.py"}

tests:
  - {"m": [96, 8], "n": [16, 8], "k": [32, 64], "g": 2, "seed": 1}
  - {"m": [8], "n": [8], "k": [32], "g": 1, "seed": 1}

benchmarks:
  - {"m": [80], "n": [16], "k": [32], "g": 1, "seed": 1}
END
cat >"$task/utils.py" <<'END'
def make_match_reference(reference, **tolerance): return lambda data, output: (reference.__name__, tolerance)
def clear_l2_cache(): return "small"
def clear_l2_cache_large(): return "large"
END
cat >"$task/reference.py" <<'END'
from utils import make_match_reference
def ref_kernel(data): pass
def generate_input(): pass
check_implementation = make_match_reference(ref_kernel, rtol=1e-03, atol=1e-03)
END
cat >"$task/../eval_of_tests.py" <<'END'
import os, sys
from cutlass.cute.nvgpu.common import OpError
from cutlass._mlir.ir import MLIRError
from utils import clear_l2_cache_large
from reference import check_implementation, generate_input
from submission import custom_kernel
with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as log:
    print("reference:", check_implementation(None, None), file=log)
    print("cleared:", clear_l2_cache_large(), file=log)
    print("cases:", open(sys.argv[2]).read().splitlines(), file=log)
    for i, mean in enumerate((1000, 4000)): print(f"benchmark.{i}.mean: {mean}", file=log)
    print("check:", "fail" if sys.argv[1] == "leaderboard" else "pass", file=log)
END
evaluate() { # STATUS GPU|none ARGUMENT...
    local wanted=$1 gpu=$2
    shift 2
    [ "$gpu" = none ] || export FAKE_TORCH_GPU=$gpu
    PYTHONPATH=$SOL_SOURCE_DIR/tests/fake_torch python3 "$example/evaluate.py" "$@" >"$work/out" 2>"$work/err"
    is "evaluate.py $*" $? "$wanted"
    unset FAKE_TORCH_GPU
}
lacks() { if grep -qE -- "$2" "$work/$1"; then fail "'$2' in $1"; fi; }
evaluate 0 9.0 "$work/task"
has out 'Fake GPU, compute capability 9.0'
has out 'cutlass is not installed: stubs'
has out 'the reference is the product in float64'
has out "^reference: \('in_float64', \{'rtol': 0.001, 'atol': 0.001\}\)"
has out '^cleared: large'
has out "^cases: \['m: \[96, 8\]; n: \[16, 8\]; k: \[32, 64\]; g: 2; seed: 1', 'm: \[8\]"
has out 'geometric mean of 2 benchmarks: 2.00 us'
has out '^evaluate.py: passed'
FAKE_TORCH_GIB=40 evaluate 0 10.0 "$work/task" --mode benchmark --first 1
lacks out 'float64'
has out "^reference: \('ref_kernel'"
has out '^cleared: small'
has out "^cases: \['m: \[80\]; n: \[16\]; k: \[32\]; g: 1; seed: 1'\]"
evaluate 1 9.0 "$work/task" --mode leaderboard
has out 'FAILED'
evaluate 1 none "$work/task"
has err 'no GPU: torch fake sees none'
evaluate 1 9.0 "$work"
has err 'task.yml.*; give a checkout of gpu-mode/reference-kernels'
evaluate 1 9.0 "$work/task" --library "$work/none.so"
has err 'there is no library .*none.so'
if ! python3 -c 'import torch' 2>"$work/err"; then
    python3 "$example/evaluate.py" "$work/task" >"$work/out" 2>"$work/err"
    is "evaluate.py without torch" $? 1
    has err 'no torch: .*python3 -m pip install torch numpy'
fi
rm "$task/utils.py"
evaluate 1 9.0 "$work/task"
has err 'utils.py is missing'
exit $((failures != 0))
