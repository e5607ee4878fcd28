#!/usr/bin/env bash
# The page of sol serve in a real browser: streaming, stop, edits, reloads, hostile texts, keyboard, phone, contrast,
# names for screen readers, two tabs, full storage, a server that goes away. The cases: tests/page_browser.py.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
need_http
python3 "$SOL_SOURCE_DIR/tests/page_browser.py" "$work" >"$work/out" 2>"$work/err"
status=$?
cat "$work/out"
if [ $status = 77 ]; then
    echo "skipped: $(cat "$work/out")"
    exit 0
fi
[ $status = 0 ] || fail "the page in a browser"
exit $((failures != 0))
