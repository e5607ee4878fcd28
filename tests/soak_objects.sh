#!/usr/bin/env bash
# Every command with every kind of file system object where it reads a file and where it writes one: nothing
# hangs or dies by a signal, the exit status is a documented one, and all that was there is still what it was.
#
# usage: SOL_BINARY=build/sol tests/soak_objects.sh [SECONDS [SEED]]
#   The cases run in the order of SEED (default: a new one, printed) until SECONDS are over (default 0: all).
set -u
: "${SOL_SOURCE_DIR:=$(cd "$(dirname "$0")/.." && pwd)}"
. "$SOL_SOURCE_DIR/tests/support/cli.sh"
seconds=${1:-0}
seed=${2:-$RANDOM}
limit=${SOL_OBJECTS_LIMIT:-60} # seconds for one command; an emulator needs many
sol=$SOL_BINARY
data=$SOL_SOURCE_DIR/tests/data
export XDG_CACHE_HOME=$work/cache
mkdir -p "$work/cache/sol"
trap 'chmod -R u+rwx "$work" 2>/dev/null; rm -rf "$work"' EXIT

# ---- what commands need ----
good=$work/good
mkdir "$good"
vocab=$data/tokenizer_small.json
"$sol" model synth --like tiny --layers 1 -o "$good/m.gguf" >/dev/null 2>&1 || fail "no model to work with"
"$sol" bench -m "$good/m.gguf" -t 1 -p 2 -n 0 -r 1 --no-limits -q --output "$good/b.json" -o json >/dev/null 2>&1 ||
    fail "no results to work with"
cp -r "$SOL_SOURCE_DIR/tests/data/core_tasks" "$good/core"
"$sol" model convert -m "$good/m.gguf" -o "$good/hf" >/dev/null 2>&1 || fail "no folder to work with"
printf 'the text of a prompt\n' >"$good/text"
echo '{}' >"$good/json"
echo '{"messages": []}' >"$good/talk"
echo '{"ids": [1]}' >"$good/ids"
statuses=" $("$sol" --help | sed -n 's/^ *\([0-9][0-9]*\)  .*/\1/p' | tr '\n' ' ') 10 11 12 13 14 "

# ---- objects ----
kinds="regular empty none directory full_directory symlink dangling loop fifo socket null zero full block
    readonly forbidden closed hardlink stdout long escape"

# object KIND CONTENT: makes it in $box, its path in $object; false where this system cannot.
object() {
    local kind=$1 content=$2
    object=$box/x$suffix
    case $kind in
    regular) cp "$content" "$object" ;;
    empty) : >"$object" ;;
    none) ;;
    directory) mkdir "$object" ;;
    full_directory) mkdir "$object" && echo kept >"$object/file" ;;
    symlink) cp "$content" "$box/target$suffix" && ln -s "target$suffix" "$object" ;;
    dangling) ln -s "target$suffix" "$object" ;;
    loop) ln -s "loop$suffix" "$object" && ln -s "x$suffix" "$box/loop$suffix" ;;
    fifo) mkfifo "$object" ;;
    socket) perl -MIO::Socket::UNIX -e 'chdir shift; IO::Socket::UNIX->new(Local => shift, Listen => 1) or exit 1' \
        "$box" "x$suffix" 2>/dev/null && [ -S "$object" ] ;;
    null) ln -s /dev/null "$object" ;;
    zero) mknod "$object" c 1 3 2>/dev/null ;; # reads as empty
    full) ln -s /dev/full "$object" && [ "$side" = output ] && [ -c /dev/full ] ;;
    block) mknod "$object" b 7 4095 2>/dev/null ;;
    readonly) cp "$content" "$object" && chmod 444 "$object" ;;
    forbidden) cp "$content" "$object" && chmod 0 "$object" ;;
    closed) mkdir "$box/closed" && object=$box/closed/x$suffix && cp "$content" "$object" && chmod 555 "$box/closed" ;;
    hardlink) cp "$content" "$object" && ln "$object" "$box/other" ;;
    stdout) object=/dev/stdout ;;
    long) object=$box/$(printf '%0*d' $((255 - ${#suffix})) 7)$suffix && cp "$content" "$object" ;;
    escape) object=$box/$'a\033[31m\n\x80b'$suffix && cp "$content" "$object" ;;
    esac
}

# What there is: name, type, inode, mode, owner, links, and what is in it.
look() {
    (cd "$box" && find . -printf '%p|%y|%i|%m|%U:%G|%n|%l\n' | LC_ALL=C sort &&
        find . -type f -exec cksum {} + 2>/dev/null | LC_ALL=C sort) | tr -d '\200'
}
# The same without the target of an output: its folder's entries but that, and their content.
others() { look | grep -vF -e "./x$suffix" -e "./target$suffix" -e "000007$suffix" -e "b$suffix" -e './a' -e '.|d|' \
    -e "closed/x$suffix" -e '-of-0000'; }
# Of the target only what must stay: type, mode, owner; of what is no regular file the inode too.
target() {
    stat -c '%F %a %u %g' "$object" | sed 's/regular empty file/regular file/'
    [ -f "$object" ] || stat -c '%i' "$object"
    [ -L "$object" ] && readlink "$object"
}

declare -A broken=()
bad() {
    broken[$1]=1
    fail "$1: $2"
}

# verdict NAME STATUS
verdict() {
    case $2 in
    124 | 137) bad "$1" "it hangs" ;;
    *) case $statuses in
        *" $2 "*) ;;
        *) bad "$1" "exit status $2" ;;
        esac ;;
    esac
}

# Words of a command: @ is the object's path.
words() {
    command=()
    local word
    for word in $1; do command+=("${word//@/$object}"); done
}

# ---- one case ----

# Readers that take streams wait for a FIFO's writer: Ctrl-C must end that.
input_case() {
    local name=$1 line=$2 content=$3 kind=$4 before status
    object "$kind" "$content" || return 0
    words "$line"
    before=$(look)
    if [[ $name = stream* && $kind = fifo ]]; then
        timeout --preserve-status -s INT -k "$limit" 2 "$sol" "${command[@]}" >"$work/out" 2>"$work/err" </dev/null
        status=$?
        [ $status = 130 ] || bad "$name of a FIFO" "exit status $status after Ctrl-C, not 130"
    else
        timeout -k 1 "$limit" "$sol" "${command[@]}" >"$work/out" 2>"$work/err" </dev/null
        verdict "$name of $kind" $?
    fi
    [ "$(look)" = "$before" ] || bad "$name of $kind" "what was there changed"
}

output_case() {
    local name=$1 line=$2 content=$3 kind=$4 before was sum status
    object "$kind" "$content" || return 0
    words "$line"
    before=$(others)
    was=$(target 2>&1)
    sum=
    [ "$kind" != stdout ] && [ -f "$object" ] && sum=$(cksum <"$object")
    timeout -k 1 "$limit" "$sol" "${command[@]}" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    verdict "$name to $kind" $status
    [ "$(others)" = "$before" ] || bad "$name to $kind" "bystanders changed: $(diff <(echo "$before") <(others))"
    case $kind in
    none | dangling | stdout) ;;
    directory) [ -d "$object" ] || bad "$name to $kind" "it is no directory any more" ;;
    *) [ "$(target 2>&1)" = "$was" ] || bad "$name to $kind" "'$was' became '$(target 2>&1)'" ;;
    esac
    [ "$kind" = dangling ] && { [ -L "$object" ] || bad "$name to $kind" "the link is gone"; }
    case $kind in
    readonly | forbidden | hardlink) # parts of a split model have names of their own
        [ $status != 0 ] || [ "$name" = "synth split" ] || bad "$name to $kind" "exit status 0" ;;
    esac
    if [ "$kind" != stdout ] && [ -f "$object" ] && { [[ $status = [2-9] ]] || [ "$kind" = readonly ]; }; then
        [ "$(cksum <"$object")" = "$sum" ] || bad "$name to $kind" "refused, and yet written"
    fi
}

# ---- the commands ----

# name|ending|content|command; "stream" in front of what takes pipes
tiny="-t 1 -q"
inputs="model info|.gguf|m.gguf|model info -m @
model check|.gguf|m.gguf|model check -m @
model convert|.gguf|m.gguf|model convert -m @ -o $work/made/x.gguf
model fit|.gguf|m.gguf|model fit -m @ -c 128
scale|.gguf|m.gguf|scale -m @ --device H200 --step-ms 1 --gpus 2
scale links|.json|json|scale -m builtin --device H200 --step-ms 1 --gpus 2 --links @
run|.gguf|m.gguf|run -m @ $tiny --random-tokens 2 -n 1
kernels|.gguf|m.gguf|kernels -m @ -t 1
a shard|.safetensors|hf/model.safetensors|model info -m @
config.json||hf/config.json|model info -m $work/parts/config
tokenizer.json||hf/tokenizer.json|tok encode --vocab $work/parts/tokenizer --text the
vocabulary|.json|$vocab|tok encode --vocab @ --text the
stream tok encode||text|tok encode --vocab $vocab @
stream tok decode||text|tok decode --vocab $vocab @
stream chat||text|chat $tiny -n 1 @
stream chat render||talk|chat render @
stream chat parse||ids|chat parse @
tok train||text|tok train --vocab-size 260 -o $work/made/v.tiktoken @
stream run -f||text|run -m builtin $tiny -f @ -n 1
stream perplexity -f||text|perplexity -m builtin $tiny -f @
stream eval -f||text|eval -m builtin $tiny -f @
core.yaml||core/core.yaml|eval -m $SOL_SOURCE_DIR/tests/data/hf_tiny $tiny --core $work/parts/core
eval_meta_data.csv||core/eval_meta_data.csv|eval -m $SOL_SOURCE_DIR/tests/data/hf_tiny $tiny --core $work/parts/core
import||b.json|import @
advise||json|advise --no-store @
stream compare||b.json|compare --no-store @ $good/b.json
stream ratings||json|bench -m synth:tiny,layers=1 $tiny -p 2 -n 0 -r 1 --no-limits --no-store --ratings @
stream descriptions||json|device --descriptions @
manifest||json|profile --no-store -m synth:tiny,layers=1 $tiny -p 2 -n 1 -r 1 --no-limits --manifest @
trace||json|profile --no-store --read @
store|||runs --store @
store.db|||runs --store $work/parts/store
store.lock|||runs --store $work/parts/lock
tuning||json|kernels -m synth:tiny,layers=1 -t 1"

outputs="report|.html|text|report last -o @
synth|.gguf|text|model synth --like tiny --layers 1 -o @
synth over|.gguf|text|model synth --like tiny --layers 1 --format gguf --overwrite -o @
synth split|.gguf|text|model synth --like tiny --layers 1 --split 0.0002 --format gguf -o @
synth folder||text|model synth --like tiny --layers 1 --format hf -o @
convert over|.gguf|text|model convert -m $good/m.gguf --format gguf --overwrite -o @
convert folder||text|model convert -m $good/m.gguf --format hf -o @
train text||text|tok train -t 1 --vocab-size 260 --format tiktoken -o @ $good/text
train json||text|tok train -t 1 --vocab-size 260 --format json -o @ $good/text
train gguf||text|tok train -t 1 --vocab-size 260 --format gguf -o @ $good/text
bench||text|bench -m synth:tiny,layers=1 $tiny -p 2 -n 0 -r 1 --no-limits --no-store --output @
compare||text|compare --no-store --output @ $good/b.json $good/b.json
profile report||text|profile --no-store -m synth:tiny,layers=1 $tiny -p 2 -n 1 -r 1 --no-limits --report @
profile trace||text|profile --no-store -m synth:tiny,layers=1 $tiny -p 2 -n 1 -r 1 --no-limits --trace @
learn||text|profile --no-store -m synth:tiny,layers=1 $tiny -p 2 -n 1 -r 1 --no-limits --learn --manifest @
profile folder||text|profile --no-store --output @ -- true
pages||text|__pages @"

# Where the object is one part of something larger it lies in $work/parts, and box is there.
place() {
    suffix=$1
    case $2 in
    config.json | tokenizer.json)
        box=$work/parts/${2%.json}
        mkdir -p "$box"
        cp "$good"/hf/* "$box"
        rm "$box/$2" ;;
    core.yaml | eval_meta_data.csv)
        box=$work/parts/core
        mkdir -p "$box"
        cp -r "$good"/core/* "$box"
        rm "$box/$2" ;;
    store.db | store.lock)
        box=$work/parts/store
        [ "$2" = store.lock ] && box=$work/parts/lock
        mkdir -p "$box" ;;
    tuning) box=$XDG_CACHE_HOME/sol ;;
    *) box=$work/box ;;
    esac
    mkdir -p "$box" "$work/made"
}
# What has a fixed name gets it by renaming what `object` made.
fixed() {
    case $1 in
    config.json | tokenizer.json | core.yaml | eval_meta_data.csv | store.db | store.lock) echo "$1" ;;
    tuning) echo tuning.json ;;
    esac
}

one_case() {
    local side=$1 name=$2 ending=$3 content=$4 line=$5 kind=$6 to
    chmod -R u+rwx "$work/box" "$work/parts" 2>/dev/null
    rm -rf "$work/box" "$work/parts" "$work/made" "$XDG_CACHE_HOME/sol"
    place "$ending" "$name"
    case $content in /*) ;; *) content=$good/${content:-text} ;; esac
    to=$(fixed "$name")
    if [ -n "$to" ]; then
        case $kind in stdout | long | escape | closed | none) return ;; esac
        object "$kind" "$content" || return
        mv -T "$object" "$box/$to"
        # SQLite makes what it needs beside the database: only the object itself is compared.
        look() { stat -c '%F %i %a %u %g' "$box/$to" 2>&1 | sed 's/regular empty/regular/'; }
        object() { object=$box/$to; }
        input_case "$name" "$line" "$content" "$kind"
        return
    fi
    [ "$name $kind" = "store none" ] && return # is made
    if [ "$name" = store ]; then look() { stat -c '%F %i %a %u %g' "$object" 2>&1; }; fi
    "${side}_case" "$name" "$line" "$content" "$kind"
}

while IFS='|' read -r name ending content line; do
    for kind in $kinds; do echo "input|$name|$ending|$content|$line|$kind"; done
done <<<"$inputs" >"$work/cases"
while IFS='|' read -r name ending content line; do
    for kind in $kinds; do echo "output|$name|$ending|$content|$line|$kind"; done
done <<<"$outputs" >>"$work/cases"
total=$(wc -l <"$work/cases")
shuf --random-source=<(yes "$seed") "$work/cases" >"$work/order"
start=$SECONDS
ran=0
while IFS='|' read -r side name ending content line kind <&3; do
    [ "$seconds" != 0 ] && [ $((SECONDS - start)) -ge "$seconds" ] && break
    : >"$work/out"
    : >"$work/err"
    # In a shell of its own: some cases redefine what is looked at.
    (
        failures=0
        one_case "$side" "$name" "$ending" "$content" "$line" "$kind"
        exit $((failures != 0))
    ) || failures=$((failures + 1))
    ran=$((ran + 1))
done 3<"$work/order"

# ---- a FIFO with a reader gets all of it ----
mkdir -p "$work/box"
mkfifo "$work/box/pipe"
exec 4<>"$work/box/pipe" # so that it has a reader from the start, and its end comes when this is closed
timeout "$limit" cat "$work/box/pipe" >"$work/got" 4>&- &
timeout "$limit" "$sol" report last -o "$work/box/pipe" >/dev/null 2>"$work/err" 4>&-
is "a report into a FIFO: status" $? 0
for _ in $(seq 100); do
    [ -s "$work/got" ] && break
    sleep 0.1
done
exec 4>&-
wait
grep -q '</html>' "$work/got" || fail "the reader of a FIFO does not get the report"
[ -p "$work/box/pipe" ] || fail "a report replaced a FIFO"

echo "objects: $ran of $total cases, seed $seed, in $((SECONDS - start)) s; $failures failed"
exit $((failures != 0))
