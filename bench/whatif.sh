#!/bin/sh
# How far `sol advise --what-if` is off for changes that are really made: pairs of profiles, before and after, of sol's
# own kernels and of a PyTorch step; what a replay of the first says of the change against what the second measured.
# Writes src/advise/whatif_error.json, which the build embeds.
#   usage: bench/whatif.sh [--backend cuda|cpu] [--sol BINARY] [--out FILE] [--model MODEL] [--keep FOLDER]
# On a GPU 2 to 4 minutes (default build/sol, synth:gpt-oss-20b); PyTorch's pairs where it is installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/whatif.py" "$@"
