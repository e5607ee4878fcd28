#!/bin/sh
# tools/agent_proof.py on a machine with an NVIDIA GPU: an agent that knows the tools and their answers alone
# goes from a PyTorch training step of somebody else's to an accepted optimisation. What it changes follows
# from `advise` on a trace of that program.
#   usage: bench/agent_device.sh [BUILD]      (default build)
#   PYTHON=FILE   one that has torch with CUDA (default python3); with the package mcp too the client is the
#                 public one, else the script's own:
#                     pip download -d wheels 'mcp>=1.10'; pip install --no-index -f wheels --target deps mcp
#                     PYTHONPATH=deps bench/agent_device.sh
# About three minutes. Its last line is "all passed"; before it every call and what was said next.
set -u
cd "$(dirname "$0")/.."
build=${1:-build}
export PYTHON="${PYTHON:-python3}"
"$PYTHON" -c 'import torch; assert torch.cuda.is_available(), "torch sees no GPU"' || exit 1
[ -x "$build/sol" ] || { echo "no $build/sol; build first" >&2; exit 1; }
exec "$PYTHON" tools/agent_proof.py "$build/sol" torch
