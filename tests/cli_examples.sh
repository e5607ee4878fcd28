#!/usr/bin/env bash
# Every example of help and manual works as it stands, in a folder with the files that it names; with less work where
# it only repeats, unless SOL_TEST_WHOLE is set (make soak).
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/cache SOL_NO_LIMITS=1 # limits take seconds, and are tried elsewhere
unset SOL_LABEL

# ---- what the examples name ----
mkdir bin old new books
ln -s "$SOL_BINARY" bin/sol
ln -s "$SOL_BINARY" old/sol
ln -s "$SOL_BINARY" new/sol
export PATH=$work/bin:$PATH
cp "$SOL_SOURCE_DIR/models/builtin.gguf" gpt-oss-20b.gguf
data=$SOL_SOURCE_DIR/tests/data/import
cp "$data/llama_bench_new.json" llama-bench.json
cp "$data/ncu_raw.csv" ncu.csv
for file in prompt.txt text.txt chat.txt books/one.txt books/two.txt; do
    for _ in 1 2 3 4 5 6 7 8; do echo "Once upon a time there was a lamp that told the same story every evening."; done >"$file"
done
echo '{"messages": [{"role": "user", "content": "Which lamp?"}]}' >conversation.json
cp "$SOL_SOURCE_DIR/examples/person.schema.json" .
printf '#!/bin/sh\necho "speed: 10$1"\n' >a.out
chmod +x a.out
for file in before after; do
    sol bench -m synth:tiny -p 0 -n 4 -r 6 --no-store -q -o json >$file.json 2>"$work/err" || fail "bench for $file.json"
done
sol model synth --like tiny -o gpt-oss-20b >"$work/out" 2>"$work/err" || fail "a folder of safetensors"
sol tok train --vocab-size 300 -o vocabulary.json books/*.txt >"$work/out" 2>"$work/err" || fail "a vocabulary"
cp -r "$SOL_SOURCE_DIR/tests/train_replay/july_own" folder
cp -r "$SOL_SOURCE_DIR/tests/data/core_tasks" eval_bundle
git init -q tree && git -C tree -c user.name=a -c user.email=a@b commit -q --allow-empty -m first
two_runs() {
    for _ in 1 2; do sol bench -p 0 -n 4 -r 6 -q --ops >"$work/out" 2>"$work/err" || fail "a run to begin with"; done
}
two_runs
sol bench -p 4 -n 4 -r 6 -q --ops --label baseline >"$work/out" 2>"$work/err" || fail "a run with a label"

# The same with less work: of two options the last counts. The rest of what is verified here is op_table's.
brief() { # LINE
    case $1 in
    *--live*) echo "$1 --max-seconds 2" ;;
    "sol tune "*) echo "$1 --budget 2" ;;
    "sol verify --op "*) echo "$1 --brief --rounds 1" ;;
    "sol verify --ops-only "*) echo "$1 --op rmsnorm --op head" ;;
    "sol bench "*" -r "*) echo "$1" ;;
    "sol bench "*) echo "sol bench -r 2 ${1#sol bench }" ;;
    *) echo "$1" ;;
    esac
}

# ---- each of them ----
count=0 commands=
while IFS=$'\t' read -r command needs line; do
    commands="$commands $command"
    grep -qF -- "$line" <("$SOL_BINARY" "$command" --help) || fail "the help of $command lacks: $line"
    if [ "$needs" != - ]; then
        echo "skipped, needs $needs: $line"
        continue
    fi
    [ "$line" = "sol compare last~1 last" ] && two_runs # not those of the examples before
    [ "${SOL_TEST_WHOLE:-}" ] || line=$(brief "$line")
    folder=$work
    [ "$command" = opt ] && folder=$work/tree
    (cd "$folder" && timeout 300 bash -c "set -o pipefail; $line") >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ -z "${SOL_TIMES:-}" ] || echo "$SECONDS s after: $line"
    case $command:$status in
    *:0 | compare:1[0-2]) ;;
    *) fail "status $status: $line" ;;
    esac
    grep -q 'sol: error' "$work/err" && fail "an error: $line"
    count=$((count + 1))
done < <("$SOL_BINARY" __pages --examples)
[ $count -ge 40 ] || fail "$count examples were run"

# ---- every command has some, and the manual shows them ----
"$SOL_BINARY" __pages "$work/pages" || exit 1
for command in $(sed -n 's/^COMMAND(\(.*\))$/\1/p' "$SOL_SOURCE_DIR/src/cli/commands.list"); do
    [[ " $commands " == *" $command "* ]] || fail "$command has no example"
    grep -A2 '^\.SH EXAMPLES' "$work/pages/man1/sol-$command.1" | grep -q 'sol' || fail "sol-$command.1 has no example"
done
exit $((failures != 0))
