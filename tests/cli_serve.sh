#!/usr/bin/env bash
# sol serve as clients see it, good ones and bad ones: tests/serve_client.py.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }

# ---- usage ----
SOL_MICROHTTPD=/nonexistent run 5 serve --port 0
has err 'install libmicrohttpd12'
"$SOL_BINARY" serve --port 0 -m nothing.gguf >out 2>err </dev/null && fail "a model that is not there"
need_http
run 2 serve --port 0 --tls-cert only.pem
has err 'go together'
run 2 serve --host no.such.host.invalid
has err 'no address'
printf 'short\n' >keys
run 4 serve --port 0 --api-key-file keys
has err 'keys, line 1'

python3 "$SOL_SOURCE_DIR/tests/serve_client.py" "$SOL_BINARY" "$SOL_BUILD_DIR/serve_scripted" || failures=$((failures + 1))

# ---- a sample of tests/soak_serve.py; what sanitizers keep of freed memory is no growth, and needs no time to show ----
how="--streams 40 --seconds 20 --growth 3"
[ "${SOL_SANITIZED:-}" ] && how="--streams 12 --seconds 3 --growth 1000"
# shellcheck disable=SC2086 # words
python3 "$SOL_SOURCE_DIR/tests/soak_serve.py" "$SOL_BINARY" --parallel 2 --batch 4 $how || failures=$((failures + 1))
exit $((failures != 0))
