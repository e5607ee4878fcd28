#!/usr/bin/env bash
# Files that shrink, limits, locks, closed descriptors, little stack, and what killed runs leave: a message and an
# exit status, never a signal, a hang or somebody's loss.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
export XDG_CACHE_HOME=$work/cache
sol=$SOL_BINARY
tiny="--like tiny --layers 1"
cd "${work:?}" || exit 1

# ---- descriptors that are closed ----
# shellcheck disable=SC2086 # options apart, here and below
"$sol" model synth $tiny -o m.gguf 2>&-
is "a model with stderr closed: status" $? 0
run 0 model check -m m.gguf
"$sol" model synth $tiny -o n.gguf <&- >&- 2>&-
is "a model with all closed: status" $? 0
cmp -s m.gguf n.gguf || fail "with descriptors closed something is printed into a model"
mkfifo input
"$sol" mcp <input >out 2>&- &
exec 3>input # it waits for what comes
is_null() { [ "$(readlink /proc/$!/fd/2)" = /dev/null ]; } # the loader has it at first
until_ "a closed stderr does not become /dev/null" is_null
exec 3>&-
"$sol" version >&- 2>err
is "stdout closed: status" $? 3

# ---- what is read is not written ----
cp "$SOL_SOURCE_DIR/README.md" text
cp text same
ln -s text link
run 2 tok train --vocab-size 300 --format json -o link text
has err 'is read here'
cmp -s text same || fail "a text was replaced by its vocabulary"
run 2 bench -m m.gguf --output m.gguf -q
run 0 bench -m synth:tiny,layers=1 -t 1 -p 2 -n 0 -r 1 --no-limits -q
cp m.gguf before.gguf
run 2 model convert -m m.gguf --overwrite -o m.gguf
has err 'is read here'
cmp -s m.gguf before.gguf || fail "a model was converted onto itself"
run 0 bench -m synth:tiny,layers=1 -t 1 -p 2 -n 0 -r 1 --no-limits -q
for command in "report last -o" "compare last last~1 --output" "bench -m m.gguf -q --output" \
    "profile -m m.gguf --report" "profile -m m.gguf --trace"; do
    # shellcheck disable=SC2086 # words apart
    run 2 $command "$SOL_STORE/store.db"
    has err 'is read here'
done
run 0 runs

# ---- limits ----
"$sol" bench -m synth:tiny,layers=1 -t 1 -p 2 -n 0 -r 1 --no-limits -q -o json --output b.json >out 2>err || fail "bench"
for command in "report last -o r.html" "tok train --vocab-size 300 --format json -o v.json $SOL_SOURCE_DIR/README.md" \
    "model synth $tiny -o x.gguf" "model synth $tiny -o folder"; do
    (
        ulimit -f 4
        exec "$sol" $command
    ) >out 2>err
    is "a limit of file sizes: ${command%% -*}: status" $? 3
    has err 'cannot (write .*File too large|use the store)'
done
# `ls` of what must not be there
ls -d r.html* v.json* x.gguf* folder* >out 2>/dev/null && fail "a limit of file sizes leaves files"
if [ -z "${SOL_SANITIZED:-}" ] && [ -z "${SOL_EMULATED:-}" ]; then # both need stack of their own
    for command in "model synth $tiny --overwrite -o s.gguf" "model convert -m m.gguf -o hf" "model check -m hf" \
        "run -m builtin -p Hello -n 2 -q" "bench -m synth:tiny -p 2 -n 2 -d 64 -r 6 -q --no-limits" "mcp" "device" \
        "kernels -m m.gguf" "report last -o s.html" "runs"; do
        (
            ulimit -s 64
            exec "$sol" $command
        ) >out 2>err </dev/null
        is "64 KiB of stack: $command: status" $? 0
    done
fi

# ---- a model that shrinks while it is mapped ----
cp "$SOL_SOURCE_DIR/models/builtin.gguf" shrinks.gguf 2>/dev/null || cp m.gguf shrinks.gguf
"$sol" bench -m shrinks.gguf --load map -t 1 -p 64 -n 16 -r 1000 --no-limits --no-store -q >out 2>err &
bench=$!
for _ in $(seq 100); do
    grep -qs shrinks.gguf /proc/$bench/maps && break
    sleep 0.1
done
: >shrinks.gguf
wait $bench
is "a model that shrinks: status" $? 3
has err "shrinks.gguf.*became shorter"

# ---- locks ----
if command -v flock >/dev/null; then
    flock "$SOL_STORE/store.lock" sleep 600 &
    lock=$!
    is_held() { ! flock -n "$SOL_STORE/store.lock" true; }
    until_ "nobody has the lock" is_held
    set -m
    "$sol" runs >out 2>err </dev/null &
    pid=$!
    set +m
    until_ "it does not say that it waits" grep -q "waiting for $SOL_STORE/store.lock" err
    kill -INT $pid
    wait $pid
    is "a lock that is held, and Ctrl-C: status" $? 130
    pkill -P $lock
    wait $lock
    run 0 runs
fi

# ---- what killed runs left ----
mkdir folder.part-1 folder.part-2 folder.part-3 folder.part-x
: >folder.part-1/.sol-unfinished
echo weights >folder.part-1/model.safetensors
echo mine >folder.part-2/notes
echo mine >folder.part-x/.sol-unfinished
run 0 model synth $tiny -o folder
has err "removed folder.part-1"
[ -e folder.part-1 ] || [ -e folder.part-3 ] && fail "what a killed run left stays"
[ -s folder.part-2/notes ] && [ -s folder.part-x/.sol-unfinished ] || fail "a folder of somebody else is gone"
[ -e folder/.sol-unfinished ] && fail "the mark stays in the folder"
echo part >s.gguf.part-7
run 0 model synth $tiny --overwrite -o s.gguf
has err "s.gguf.part-7 beside 's.gguf' is of a run that did not end"
[ -s s.gguf.part-7 ] || fail "a file without a mark was removed"

exit $((failures != 0))
