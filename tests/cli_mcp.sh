#!/usr/bin/env bash
# sol mcp as a client on a pipe uses it: order, errors, long lines, limits, cancelling, what is left
# behind. With a public client library too where one is installed (tools/mcp_client).
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
mark="37.$$"

fail() {
    echo "FAILED: $1"
    head -c 2000 "$work/line" 2>/dev/null
    failures=$((failures + 1))
}
begin() {
    # Under an emulator /proc/self/exe is no program that the system can start.
    coproc server { exec "$SOL_BINARY" mcp ${SOL_EMULATED:+--program "$SOL_BINARY"} "$@" 2>"$work/err"; }
    to=${server[1]} from=${server[0]} pid=$server_PID
    send '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}'
    expect '"protocolVersion":"2025-11-25"'
    send '{"jsonrpc":"2.0","method":"notifications/initialized"}'
}
send() { printf '%s\n' "$1" >&"$to"; }
# expect PATTERN: in the next line
expect() {
    IFS= read -r -t 60 line <&"$from" || { fail "no answer; expected $1"; return; }
    printf '%s\n' "$line" >"$work/line"
    [[ $line == '{"'* ]] || fail "not a message"
    grep -qE -- "$1" "$work/line" || fail "no '$1'"
}
call() { send "{\"jsonrpc\":\"2.0\",\"id\":$1,\"method\":\"tools/call\",\"params\":{\"name\":\"$2\",\"arguments\":$3${4:-}}}"; }
left_behind() { pgrep -f "sleep $mark" >/dev/null; }
# gone: within ten seconds
gone() {
    for _ in $(seq 100); do
        left_behind || return 0
        sleep 0.1
    done
    fail "$1: a process is left"
    return 1
}

# ---- answers and errors, in order ----
begin --allow-commands
send '{"jsonrpc":"2.0","id":1,"method":"ping"}'
expect '"id":1,"result":\{\}'
send 'nonsense'
expect '"id":null,"error":\{"code":-32700'
send '{"jsonrpc":"2.0","id":2,"method":"prompts/list"}'
expect '"id":2,"error":\{"code":-32601'
{ head -c 3000000 /dev/zero | tr '\0' 'x'; echo; } >&"$to"
expect '"code":-32600.*longer than 1 MiB'
call 3 nothing '{}'
expect '"id":3,"error":\{"code":-32602.*unknown tool: nothing'
call 4 runs '{}'
expect '"id":4,"result".*"isError":false'
call 5 run_show '{"run":"b00000000"}'
expect '"id":5,.*\\"ok\\":false.*\\"next\\":.*\\"tool\\":\\"runs\\".*"isError":true'
call 6 verify '{"ops":["rmsnorm"]}'
expect '"id":6,.*\\"ok\\":true.*\\"failed\\":0'
call 7 opt_status "{\"tree\":\"$work\"}"
expect 'not in a git tree.*"isError":true'

# ---- parallel: a quick call overtakes one that measures; two that measure wait for each other ----
call 10 compare_live '{"old":"sleep 0.2","new":"sleep 0.2","max_pairs":6}'
call 11 compare_live '{"old":"sleep 0.1","new":"sleep 0.1","max_pairs":6}'
call 10 runs '{}'
call 12 runs '{}'
expect '"id":10,"error":\{"code":-32600'
expect '"id":12,"result"'
expect '"id":10,"result".*verdict'
expect '"id":11,"result".*verdict'

# ---- progress, time limit, cancelling: nothing is left ----
call 20 compare_live "{\"old\":\"sleep $mark\",\"new\":\"sleep $mark\",\"max_seconds\":2}" ',"_meta":{"progressToken":"p"}'
expect '"method":"notifications/progress","params":\{"progressToken":"p","progress":1'
while expect . && grep -q progress "$work/line"; do :; done
grep -q '"id":20,"result".*ended after max_seconds = 2.*max_seconds..:4.0.*"isError":true' "$work/line" || fail "time limit"
gone "time limit"
call 21 compare_live "{\"old\":\"sleep $mark\",\"new\":\"sleep $mark\"}"
for _ in $(seq 100); do left_behind && break; sleep 0.1; done
send '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":21,"reason":"no"}}'
gone "cancelled"
call 22 compare_live '{"old":"true","new":"true","max_pairs":6}'
expect '"id":22,"result"'

# ---- the input ends while a call runs: so does everything ----
call 30 compare_live "{\"old\":\"sleep $mark\",\"new\":\"sleep $mark\"}"
for _ in $(seq 100); do left_behind && break; sleep 0.1; done
eval "exec $to>&-"
wait "$pid"
[ $? = 0 ] || fail "exit status at the end of the input"
gone "end of the input"
[ -s "$work/err" ] && fail "stderr: $(head -n 3 "$work/err")"

# ---- without --allow-commands; another way to end ----
begin
call 1 compare_live '{"old":"true","new":"true"}'
expect 'sol mcp --allow-commands.*"isError":true'
send '{"jsonrpc":"2.0","id":2,"method":"ping\u0000"}'
expect '"id":2,"error":\{"code":-32600'
kill -TERM "$pid"
wait "$pid"
[ $? = 0 ] || fail "exit status after SIGTERM"
printf 'x' | timeout 20 "$SOL_BINARY" mcp >"$work/line" || fail "half a line"
timeout 20 "$SOL_BINARY" mcp </dev/null >"$work/line" || fail "no input"
[ -s "$work/line" ] && fail "output without a message"

# ---- a public client ----
python=${SOL_MCP_PYTHON:-$SOL_BUILD_DIR/venv-mcp/bin/python}
if [ "${SOL_SANITIZED:-}${SOL_EMULATED:-}" ]; then
    echo "skipped: the client library, in sanitized and emulated builds"
elif "$python" -c 'import mcp' 2>/dev/null; then
    timeout 200 "$python" "$SOL_SOURCE_DIR/tools/mcp_client.py" "$SOL_BINARY" >"$work/line" 2>&1 || fail "client library"
    tail -n 1 "$work/line" | grep -q 'all passed' || fail "client library"
    # From nothing to an accepted optimisation, by the answers alone.
    TMPDIR=$work timeout 400 "$python" "$SOL_SOURCE_DIR/tools/agent_proof.py" "$SOL_BINARY" >"$work/line" 2>&1 ||
        fail "an agent's way"
    tail -n 1 "$work/line" | grep -q 'all passed' || fail "an agent's way"
    # The same as on a GPU (bench/agent_device.sh), where only python, torch and CUPTI are not real: a program that
    # is traced, whose time and losses follow from what step.py says.
    cat >"$work/python" <<END
#!/usr/bin/env bash
lines=60; grep -q 'STEPS // 2' step.py 2>/dev/null && lines=30
case "\$2" in
--losses) seq 1 \$lines ;;
--check) seq 1 \$lines | cmp -s - expected ;;
*)  [ -z "\${CUDA_INJECTION64_PATH:-}" ] || "$SOL_FAKE_APP" 100 >/dev/null 2>&1
    took=10; grep -q 'fused=True' step.py 2>/dev/null && took=8; [ \$lines = 30 ] && took=5
    echo "took \$took.0\$((RANDOM % 10)) s" ;;
esac
END
    chmod +x "$work/python"
    SOL_CUPTI=$SOL_FAKE_CUPTI PYTHON=$work/python XDG_CACHE_HOME=$work/cache TMPDIR=$work timeout 300 "$python" \
        "$SOL_SOURCE_DIR/tools/agent_proof.py" "$SOL_BINARY" torch >"$work/line" 2>&1 || fail "an agent's way on a GPU"
    tail -n 1 "$work/line" | grep -q 'all passed' || fail "an agent's way on a GPU"
else
    echo "skipped: no client library; tools/mcp_client installs one"
fi

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
