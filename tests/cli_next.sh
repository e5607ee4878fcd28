#!/usr/bin/env bash
# Every next step that any command names is a command that works as it stands (next_steps.py).
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v git >/dev/null || { echo "skipped: no git"; exit 0; }
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }
TMPDIR=$work python3 "$SOL_SOURCE_DIR/tests/next_steps.py" "$SOL_BINARY" "$SOL_SOURCE_DIR"
