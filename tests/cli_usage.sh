#!/usr/bin/env bash
# The command line itself: help, version, unknown commands, exit statuses.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

# expect STATUS TEXT ARGUMENT...: exit status, and a text that stdout and stderr together contain
expect() {
    local status=$1 text=$2 output got
    shift 2
    output=$("$SOL_BINARY" "$@" 2>&1)
    got=$?
    if [ $got != "$status" ] || ! grep -qF -- "$text" <<<"$output"; then
        echo "sol $*: status $got, expected $status with '$text'; output:"
        echo "$output"
        failures=$((failures + 1))
    fi
}

expect 0 "usage: sol COMMAND" --help
expect 0 "usage: sol COMMAND" help
expect 0 "130  interrupted" --help
expect 0 "sol 0." --version
expect 2 "usage: sol COMMAND"
expect 2 "did you mean 'version'?" verison
expect 2 "unknown command 'xyzzy' (see sol --help)" xyzzy
expect 2 "unknown command 'xyzzy'" help xyzzy

# Every command in the list has a help text and refuses an unknown option.
for command in $(sed -n 's/^COMMAND(\(.*\))$/\1/p' "$SOL_SOURCE_DIR/src/cli/commands.list"); do
    expect 0 "usage: sol $command" "$command" --help
    expect 0 "usage: sol $command" help "$command"
    expect 2 "unknown option '--xyzzy'" "$command" --xyzzy
done

if [ -w /dev/full ] && "$SOL_BINARY" --help >/dev/full 2>/dev/null; then
    echo "writing to a full device passed for success"
    failures=$((failures + 1))
fi
exit $((failures != 0))
