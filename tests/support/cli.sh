# What the tests of the command line share; each sources it first. Gives $work, a folder that goes away at the end,
# with the store in it, and counts failures: a test ends with `exit $((failures != 0))`.
set -u
: "${SOL_BINARY:?ctest sets it}"
# In memory where there is room and programs may be run: thousands of small files, and what sol syncs, cost a disk time.
in_memory() {
    [ -w /dev/shm ] && [ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt 4000000 ] &&
        [ "$(stat -f -c %T /dev/shm)" = tmpfs ] && ! grep -qE ' /dev/shm [^ ]+ [^ ]*noexec' /proc/mounts
}
work=
[ "${TMPDIR:-}" ] || ! in_memory || work=$(mktemp -d /dev/shm/sol.XXXXXX)
work=${work:-$(mktemp -d)}
trap 'rm -rf "$work"' EXIT
export SOL_STORE=$work/store
failures=0

# fail WHAT: shows what the last command printed.
fail() {
    echo "FAILED: $1"
    sed 's/^/    /' "$work/out" "$work/err" 2>/dev/null | head -n 30
    failures=$((failures + 1))
}

# run STATUS ARGUMENT...: sol, its output in $work/out and $work/err
run() {
    local wanted=$1
    shift
    "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null
    local got=$?
    [ $got = "$wanted" ] || fail "sol $*: status $got, expected $wanted"
}

# has FILE PATTERN
has() { grep -qE -- "$2" "$work/$1" || fail "no '$2' in $1"; }

# is WHAT GOT WANTED
is() { [ "$2" = "$3" ] || fail "$1: got '$2', expected '$3'"; }

# until_ WHAT COMMAND...: waits, two minutes at most, for the command to succeed
until_() {
    local what=$1
    shift
    for _ in $(seq 2400); do
        "$@" && return 0
        sleep 0.05
    done
    fail "$what"
    return 1
}

# need_http: ends the test where sol serve cannot be
need_http() {
    "$SOL_BINARY" serve --port 0 -m nothing.gguf 2>&1 </dev/null | grep -q 'install libmicrohttpd12' || return 0
    echo "skipped: there is no libmicrohttpd"
    exit $((failures != 0))
}

# mills FILE: a text of 3000 lines that a small model learns something of in a few updates
mills() {
    local i
    for i in $(seq 3000); do echo "The $((i % 17)) mills of line $((i * 7 % 101)) grind $i sacks of rye by the river."; done >"$1"
}

# gpus COUNT STATUS ARGUMENT...: run, on so many emulated cards; nccl: another library than the fake
gpus() {
    local count=$1
    shift
    LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_MAJOR=9 FAKE_CUDA_DEVICES=$count SOL_NCCL=${nccl:-$SOL_FAKE_NCCL} \
        SOL_CUBLASLT=$SOL_FAKE_CUBLASLT FAKE_CUBLAS=right run "$@"
}
