#!/usr/bin/env bash
# A sample of the kills of `make soak`.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v git >/dev/null && command -v python3 >/dev/null || { echo "skipped: no git or no python3"; exit 0; }
kills=$((40 * ${SOL_TEST_EFFORT:-100} / 100))
[ $kills -ge 4 ] || kills=4
exec python3 "$SOL_SOURCE_DIR/tests/soak_kills.py" "$SOL_BINARY" --kills $kills --files 60 --seed 1
