#!/bin/sh
# The lab's own accuracy on the real clock of this machine: false alarms when a program is compared with
# itself, and delays that were planted into one op: whether they are found, and blamed on that op.
#   usage: bench/lab_selftest.sh [SOL]      (default build/sol; 10 to 25 minutes)
#   TRIALS=400 PLANTED=60   comparisons of the same thing; planted delays
#   METRIC=cpu              what decides; test:tg16 (wall time) on a quiet machine
#   DELTA=1                 smallest effect that counts in percent; sol compare --calibrate tells it
set -eu
cd "$(dirname "$0")/.."
exec python3 bench/lab_selftest.py "${1:-build/sol}"
