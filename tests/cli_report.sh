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
for label in good invalid bare hostile large trace change one fifty long layers evil; do
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
hasnt bare.html '<svg viewBox="0 0 720'
has hostile.html '&lt;/title&gt;&lt;script&gt;'
has large.html 'more kernels together'
has trace.html 'The longest gaps'
has trace.html 'time a step'
has change.html 'Where the difference lies: tg128'
has change.html '<dt>took</dt><dd>42.0'
for text in '>95 % interval</th>' '>p</th>' '>pairs</th>' '+5.2' 'about 14 pairs needed' '>residual</th>' '>together</th>' \
    '>7.94' 'peak memory<span' '>not known</td>' '0.001</td>'; do
    has change.html "$text"
done

# count WANTED FILE TEXT: lines of a page that hold it
count() {
    local got
    got=$(grep -cF -- "$3" "$work/$2")
    [ "$got" = "$1" ] || fail "$got lines of $2 hold '$3', not $1"
}

# What stands beside a test is in its row, and no table has cells of dashes alone.
for text in '>step p50</th>' '>step p99</th>' '>peak memory</th>' '>energy</th>'; do
    count 1 fifty.html "$text"
    count 1 one.html "$text"
done
count 50 fifty.html '<tr><th scope="row" class="name">tg'
hasnt fifty.html ': peak memory'
for label in one fifty good; do
    hasnt $label.html '<td class="n">–</td>'
done
# Without times of kernels there is nothing about them but what was counted.
for text in 'Where the time goes' 'Roofline' 'From the limit' 'What the time is made of' 'Not known' 'id="advice"' 'id="gaps"'; do
    hasnt one.html "$text"
    hasnt fifty.html "$text"
done
hasnt one.html 'id="more"'
has fifty.html 'Counted, not timed'
# Every link of a page leads somewhere.
for label in good bare one fifty long layers trace evil change; do
    for id in $(grep -o 'href="#[a-z0-9]*"' "$work/$label.html" | sed 's/.*#//; s/"//'); do
        has $label.html "id=\"$id\""
    done
done
# Advice: three cards for each phase, the rest folded up.
has layers.html '<h3>decode</h3>'
has layers.html '<h3>prefill</h3>'
count 2 layers.html '<summary>11 more</summary>'
# Layers: a row each, what a position of context adds, the longest cell shaded most.
for text in 'id="layers"' '>more a position</th>' '<tr><th scope="row">23</th>' 'from here to depth 4096' 'heat h9' '>36.0'; do
    has layers.html "$text"
done
hasnt good.html 'id="layers"'
# The time line, with its figures in words.
for label in trace long evil; do
    for text in 'id="step"' 'Step 4 of the 8' '>stream 7</text>' '>gaps</text>' '>host</text>' '>call into the driver</th>' \
        'time since the step began' '<th scope="row">gap</th>'; do
        has $label.html "$text"
    done
done
has trace.html '<title>cudaStreamSynchronize: '
hasnt good.html 'id="step"' # its trace is none
# Names of 2000 characters stay apart where they are shortened.
for i in 0 7 23; do
    has long.html "<wbr>$i..</th>"
done
# Of nsys's files too: an import keeps a few steps.
if command -v python3 >/dev/null; then
    python3 -c 'import sqlite3, sys
sqlite3.connect(sys.argv[2]).executescript(open(sys.argv[1]).read())' \
        "$SOL_SOURCE_DIR/tests/data/import/nsys_2022_4.sql" "$work/nsys.sqlite"
    "$SOL_BINARY" import --store "$store" --label nsys "$work/nsys.sqlite" >"$work/out" 2>"$work/err" || fail "nsys"
    report nsys -o nsys.html
    for text in 'id="step"' 'by the runs of a CUDA graph' '<title>cudaStreamSynchronize: ' '<th scope="row">gap</th>' \
        '<th scope="row">copy or set</th>' '<th scope="row">attention</th>'; do
        has nsys.html "$text"
    done
fi
# A trace that was damaged after it was kept costs its section, not the report.
trace=$(find "$store/artifacts" -name '*.soltrace' -size +100k | head -n 1)
run=$(basename "$(dirname "$trace")")
cp "$trace" "$work/kept" && printf 'SOLTRACE but no more' >"$trace"
report "$run" -o damaged.html
[ $status = 0 ] || fail "damaged trace: status $status"
has damaged.html 'cannot be read'
cp "$work/kept" "$trace"

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
wrong 2 "no run is named 'a'" a b
wrong 2 'has no history of training' good good
wrong 3 'x.html' good -o "$work/none/x.html"
[ -e "$work/none" ] && fail "a folder was made"

# ---- layout, in a browser ----
if [ -n "${SOL_SANITIZED:-}" ] || [ -n "${SOL_EMULATED:-}" ]; then
    echo "layout: measured in normal builds"
else
    (cd "$work" && "$SOL_SOURCE_DIR/tools/report_shots" --check good.html history.html trace.html hostile.html \
        change.html one.html fifty.html long.html layers.html evil.html) \
        >"$work/err" 2>&1
    status=$?
    [ $status = 77 ] && echo "layout: not measured, no chromium here"
    [ $status = 77 ] || [ $status = 0 ] || fail "layout"
fi
[ $failures = 0 ]
