#!/usr/bin/env bash
# bench/grouped_vs_torch.py where there is no GPU: what it says is missing, and what it reports; and how
# bench/grouped_device.sh, which runs it, judges what a sol that is made up prints.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v python3 >"$work/out" || { echo "skipped: no python3"; exit 0; }
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SOL_SOURCE_DIR/tests/fake_torch
script=$SOL_SOURCE_DIR/bench/grouped_vs_torch.py

python3 "$SOL_SOURCE_DIR/tests/grouped_vs_torch.py" "$SOL_SOURCE_DIR/bench" >"$work/out" 2>"$work/err"
is "tests/grouped_vs_torch.py" $? 0
has out 'grouped_vs_torch.py: right'

lacking() { # PATTERN ARGUMENT...
    local pattern=$1
    shift
    python3 "$script" "$@" >"$work/out" 2>"$work/err"
    is "grouped_vs_torch.py without $pattern" $? 5
    has err "^grouped_vs_torch.py: $pattern"
    is "lines" "$(cat "$work/out" "$work/err" | wc -l)" 1
}
lacking 'no GPU: torch fake sees none'
export FAKE_TORCH_GPU=9.0
FAKE_TORCH_OLD=1 lacking 'torch fake has no _grouped_mm'
FAKE_TORCH_GPU=8.0 lacking 'torch._grouped_mm has kernels for .* the GPU has 8.0'
lacking "sol's library cannot be loaded: .*none.so" --library "$work/none.so" --json
unset PYTHONPATH
python3 -c 'import torch' 2>"$work/err" || lacking 'no torch: python3 -m pip install torch'

# ---- grouped_device.sh ----
mkdir "$work/build"
printf '#!/bin/sh\n. "$FAKE_SOL"\n' >"$work/build/sol"
chmod +x "$work/build/sol"
device() { # STATUS
    PYTHON=false FAKE_SOL=$work/fake bash "$SOL_SOURCE_DIR/bench/grouped_device.sh" "$work/build" >"$work/out" 2>"$work/err"
    is "grouped_device.sh" $? "$1"
}
cat >"$work/fake" <<'END'
[ "$2" = check ] && exit 7
case "$*" in *resident\ --gated*) ratios="60.0 0.74 - -" ;; *resident*) ratios="70.0 0.66 90.0 0.65" ;; *gated*) ratios="120.0 0.76 100.0 0.75" ;; *random*) ratios='- - - -' ;; *atoms*) ratios='70.0 0.80 - -' ;; *) exit 5 ;; esac
echo "geometric mean - 56.1 - - - - $ratios"
END
device 1
has out '^check: FAILED, status 7, [0-9]+ s$'
has out '^atoms: ok,'
has out '^atoms: 0.80 of cuBLAS, bar 0.80 met$'
has out '^atoms: - of cuBLAS grouped, bar 0.80 not measured, MISSED$'
has out '^rows: bar 0.80 not measured, MISSED$'
has out '^gated: 0.76 of cuBLAS, bar 0.75 MISSED$'
has out '^gated: 0.75 of cuBLAS grouped, bar 0.75 met$'
has out '^resident: 0.66 of cuBLAS, bar 0.65 MISSED$'
has out '^resident: 0.65 of cuBLAS grouped, bar 0.65 met$'
has out '^resident-gated: 0.74 of cuBLAS, bar 0.75 met$'
has out '^torch: FAILED, status 1'
has out '^task: left out'
echo 'echo "geometric mean - 56.1 - - - - 70.0 0.65 90.0 0.60"' >"$work/fake"
printf '#!/bin/sh\nexit 0\n' >"$work/python"
chmod +x "$work/python"
PYTHON=$work/python REFERENCE_KERNELS=$work FAKE_SOL=$work/fake \
    bash "$SOL_SOURCE_DIR/bench/grouped_device.sh" "$work/build" >"$work/out" 2>"$work/err"
is "grouped_device.sh where all is well" $? 0
has out '^task-benchmark: ok'
exit $((failures != 0))
