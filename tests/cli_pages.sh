#!/usr/bin/env bash
# Manual pages and completions: they pass their checkers (where these are installed), they name every
# option, and bash, asked to complete, gives the right words.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

"$SOL_BINARY" __pages "$work/pages" 2026-01-01 || exit 1
cd "$work" || exit 1
commands=$(sed -n 's/^COMMAND(\(.*\))$/\1/p' "$SOL_SOURCE_DIR/src/cli/commands.list")
man=pages/man1

# ---- checkers: silence is success ----
quiet() {
    local output
    if ! output=$("$@" 2>&1 >/dev/null) || [ -n "$output" ]; then fail "$*: $output"; fi
}
if command -v man >/dev/null; then
    for page in "$man"/*.1; do
        LC_ALL=C.UTF-8 MANWIDTH=80 quiet man --warnings -E UTF-8 -l -Tutf8 -Z "$page"
    done
else
    echo "skipped: no man here to check the manual pages"
fi
if command -v mandoc >/dev/null; then
    findings=$(mandoc -Tlint -W warning "$man"/*.1) || fail "mandoc: $findings"
else
    echo "skipped: no mandoc here to check the manual pages"
fi
quiet bash -n pages/bash/sol
for shell in "zsh -n pages/zsh/_sol" "fish -n pages/fish/sol.fish"; do
    # shellcheck disable=SC2086 # meant to split
    if command -v ${shell%% *} >/dev/null; then quiet $shell; else
        echo "skipped: no ${shell%% *} here to check its completion"
    fi
done

# ---- every command and every long option is in every page ----
for command in $commands; do
    grep -qF "sol\\-$command" "$man/sol.1" || fail "sol.1 lacks $command"
    for option in $("$SOL_BINARY" "$command" --help | sed -n 's/^  \(-., \|    \)--\([a-z0-9-]*\).*/\2/p'); do
        grep -qF -- "\\-\\-\\fR\\fB${option//-/\\-}" "$man/sol-$command.1" ||
            fail "sol-$command.1 lacks --$option"
        for page in pages/bash/sol pages/zsh/_sol; do
            grep -q -- "--$option" "$page" || fail "$page lacks --$option of $command"
        done
        grep -qE -- "from $command' .*-l $option " pages/fish/sol.fish ||
            fail "sol.fish lacks --$option of $command"
    done
done

# ---- bash completes ----
mkdir bin && ln -s "$SOL_BINARY" bin/sol
PATH=$work/bin:$PATH
touch "a file.gguf" text.txt
# shellcheck disable=SC1091 # made above
. pages/bash/sol
# completes "WORD..." EXPECTED...: what comes for the last word, which may be ''
completes() {
    local line=$1
    shift
    read -ra COMP_WORDS <<<"$line"
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _sol
    local got expected
    got=$(printf '%s\n' "${COMPREPLY[@]}" | sort)
    expected=$(printf '%s\n' "$@" | sort)
    [ "$got" = "$expected" ] || fail "'$line' completes to: $got; expected: $expected"
}
completes "sol ver" verify version
completes "sol run --gre" --greedy
completes "sol run -m te" text.txt
completes "sol run --model a" "a file.gguf"
completes "sol run --model = te" text.txt # as bash splits --model=te
completes "sol run -n " ""
completes "sol help per" perplexity
completes "sol run --rope-rounding " ggml
completes "sol model inf" info
# runs of the store, by label and id; a store is not made by asking
completes "sol runs show " list show export label delete
[ -e "$SOL_STORE" ] && fail "completing makes a store"
for label in nightly "two words"; do
    sol bench -m synth:tiny -p 4 -n 0 -r 1 --no-limits -q --label "$label" >"$work/out" 2>"$work/err" || fail "a run to complete"
done
id=$(sol runs --label nightly -o csv | sed -n '2s/,.*//p')
completes "sol runs show ni" nightly
completes "sol schema runs-l" runs-label
completes "sol report $id" "$id"
completes "sol report la" last
completes "sol compare ni" nightly
completes "sol compare te" text.txt
completes "sol runs --label ni" nightly
completes "sol runs de" delete
exit $((failures != 0))
