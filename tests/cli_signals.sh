#!/usr/bin/env bash
# How sol ends: by Ctrl-C, SIGTERM, a hang-up, or killed, it leaves no process and no half file behind;
# under nohup it goes on.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
unset SOL_MODEL
mark=98765.$$

# A command that leaves a process which does not end when it is asked to; $work/left has both numbers.
cat >"$work/long" <<END
trap '' TERM HUP INT
sleep $mark &
echo \$\$ \$! >$work/left
wait
END
wrote() { [ "$(wc -w 2>/dev/null <"$work/left")" = 2 ]; }
ended() {
    local pid
    for pid in $(cat "$work/left"); do
        kill -0 "$pid" 2>/dev/null && [ "$(ps -o stat= -p "$pid" | cut -c1)" != Z ] && return 1
    done
    return 0
}
# start COMMAND...: sol in the background, with signals as a terminal's foreground has them
start() {
    rm -f "$work/left"
    set -m
    "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    set +m
}
# finish SIGNAL STATUS WHAT
finish() {
    until_ "$3 did not begin" wrote
    kill "-$1" "$pid"
    wait "$pid" 2>/dev/null
    is "$3: status after $1" $? "$2"
    until_ "$3: a process is left after $1" ended
}

for end in "INT 130" "TERM 143" "HUP 129" "KILL 137"; do
    # shellcheck disable=SC2086 # two words
    set -- $end
    start compare --live -q "sh $work/long" true
    finish "$1" "$2" "compare --live"
done
start profile --level off -- sleep "$mark"
until_ "profile did not begin" pgrep -P "$pid" sleep >/dev/null
{ pgrep -P "$pid" sleep; echo 999999; } >"$work/left"
finish KILL 137 "profile"

# ---- a server: what its calls started ends with it, in whatever group ----
for end in "TERM 0" "HUP 0" "KILL 137"; do
    # shellcheck disable=SC2086
    set -- $end
    rm -f "$work/left" "$work/requests"
    mkfifo "$work/requests"
    "$SOL_BINARY" mcp --allow-commands ${SOL_EMULATED:+--program "$SOL_BINARY"} <"$work/requests" >"$work/out" 2>"$work/err" &
    pid=$!
    exec 3>"$work/requests"
    echo '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}' >&3
    printf '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compare_live","arguments":{"old":"%s","new":"true"}}}\n' \
        "bash -m $work/long" >&3
    finish "$1" "$2" "mcp"
    exec 3>&-
done

# ---- a hang-up: nothing half-written; under nohup it is not one ----
start model synth --like gpt-oss-20b -o "$work/big.gguf"
writes() { find "/proc/$pid/fd" -lname "$work/*" ! -lname "$work/out" ! -lname "$work/err" 2>/dev/null | grep -q .; }
until_ "synth did not begin" writes || kill -KILL "$pid"
kill -HUP "$pid"
wait "$pid" 2>/dev/null
is "synth: status after HUP" $? 129
is "what a hang-up left" "$(find "$work" -name '*.gguf*')" ""

rm -f "$work/left"
(
    trap '' HUP
    exec "$SOL_BINARY" compare --live -q --max-pairs 6 "echo 1 2 >$work/left; sleep 0.1" "sleep 0.1" >"$work/out" 2>"$work/err"
) &
pid=$!
until_ "compare under nohup did not begin" wrote && kill -HUP "$pid"
wait "$pid"
status=$?
[ $status = 129 ] && fail "nohup: status $status"
[ -s "$work/out" ] || fail "nohup: no result"

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
