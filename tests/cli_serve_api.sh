#!/usr/bin/env bash
# /v1/chat/completions and /v1/responses as clients use them, with answers that are written down: tests/serve_api.py.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
unset SOL_API_KEY http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }
need_http
python3 "$SOL_SOURCE_DIR/tests/serve_api.py" "$(dirname "$SOL_BINARY")/serve_scripted" "$work" || failures=1
exit $((failures != 0))
