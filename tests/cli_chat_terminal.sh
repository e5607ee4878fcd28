#!/usr/bin/env bash
# sol chat on a terminal: chat_terminal.py types.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }
python3 "$SOL_SOURCE_DIR/tests/chat_terminal.py" "$work"
