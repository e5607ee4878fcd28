#!/usr/bin/env bash
# sol report: runs and history of a fixed store as HTML; structure, errors, and, where there is a browser,
# the layout at four widths.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
store=$work/store

fail() {
    echo "FAILED: $1"
    head -c 2000 "$work/err" | sed 's/^/    /'
    failures=$((failures + 1))
}

# report ARGUMENT...: output in $work/out and $work/err, status in $status
report() {
    (cd "$work" && "$SOL_BINARY" report --store "$store" "$@" >out 2>err </dev/null)
    status=$?
}

# has FILE TEXT
has() { grep -qF -- "$2" "$work/$1" || fail "no '$2' in $1"; }
hasnt() { grep -qF -- "$2" "$work/$1" && fail "'$2' in $1"; }

# wrong STATUS TEXT ARGUMENT...
wrong() {
    local expected=$1 text=$2
    shift 2
    report "$@"
    [ $status = "$expected" ] || fail "sol report $*: status $status, expected $expected"
    grep -qF -- "$text" "$work/err" || fail "sol report $*: no '$text'"
}

unit=$SOL_BUILD_DIR/unit_report
if [ -n "${SOL_EMULATED:-}" ]; then
    # shellcheck disable=SC2086 # the emulator with its options
    set -- $SOL_EMULATED
else
    set --
fi
"$@" "$unit" --fixture "$store" || { echo "FAILED: no fixture"; exit 1; }

# ---- runs ----
for label in good invalid bare hostile large trace change; do
    report $label -o $label.html
    [ $status = 0 ] || fail "$label: status $status"
    has $label.html '</html>'
    hasnt $label.html '<script'
    hasnt $label.html '<img'
    [ "$(wc -c <"$work/$label.html")" -lt 1000000 ] || fail "$label: larger than 1 MB"
done
for text in 'id="figures"' 'id="spread"' 'Where the time goes: tg128, decode' 'Roofline of tg128 decode' \
    'From the limit to the measured time' 'By category' 'id="advice"' 'Split the key range' 'id="environment"' \
    'i8 5.40' 'cd &#39;/home/me/gpt oss&#39;' '--label &#39;it&#39;\&#39;&#39;s good&#39;' 'class="rating good"' \
    'moe_<wbr>up_<wbr>' 'prefers-color-scheme:dark' '@media print'; do
    has good.html "$text"
done
hasnt good.html 'INVALID'
has invalid.html 'INVALID RUN'
has invalid.html '<body class="invalid">'
has invalid.html 'attn_out did not run in 512 of 512 steps'
has invalid.html ', wrong</td>'
hasnt invalid.html 'class="rating'
has bare.html 'Incomplete'
has bare.html 'This run measured nothing.'
hasnt bare.html '<svg viewBox="0 0 880'
has hostile.html '&lt;/title&gt;&lt;script&gt;'
has large.html 'more kernels together'
has trace.html 'The longest gaps'
has trace.html 'time a step'
has change.html 'Where the difference lies: tg128'
has change.html '<dt>took</dt><dd>42.0'

# ---- history ----
report --history -o history.html
[ $status = 0 ] || fail "history: status $status"
for text in 'pp512 over 16 runs' 'What was tried' 'Fuse the residual into attn_out' 'Predicted against realised' 'came true'; do
    has history.html "$text"
done

# ---- where it goes ----
report
[ $status = 0 ] && [ -s "$work/$(cat "$work/out")" ] || fail "default file"
report good -o -
has out '</html>'
report good --json -o x.html
has out '"schema": "sol.report.1"'
wrong 2 "nonsense" nonsense
wrong 2 '--metric needs --history' --metric tg128
wrong 2 'takes no run' --history good
wrong 2 'one run at a time' a b
wrong 3 'x.html' good -o "$work/none/x.html"
[ -e "$work/none" ] && fail "a folder was made"

# ---- layout, in a browser ----
if [ -n "${SOL_SANITIZED:-}" ] || [ -n "${SOL_EMULATED:-}" ]; then
    echo "layout: measured in normal builds"
else
    (cd "$work" && "$SOL_SOURCE_DIR/tools/report_shots" --check good.html history.html trace.html hostile.html) \
        >"$work/err" 2>&1
    status=$?
    [ $status = 77 ] && echo "layout: not measured, no chromium here"
    [ $status = 77 ] || [ $status = 0 ] || fail "layout"
fi
[ $failures = 0 ]
