#!/usr/bin/env bash
# What a user sees of a GPU that is missing, too old, too small, not verified, or that fails in the middle: exit
# status, message, fallback, and nothing left behind. The fake driver (tests/inject/fake_gpu.c) says what it was not
# given back when it is unloaded.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
export LD_LIBRARY_PATH=$SOL_FAKE_GPU XDG_CACHE_HOME=$work/cache
tiny="-m synth:tiny --random-tokens 4 -n 8"

# with "NAME=VALUE..." STATUS ARGUMENT...: sol on such a device; at most a minute, no object left
with() {
    local settings=$1 wanted=$2
    shift 2
    # shellcheck disable=SC2086 # several settings
    env $settings timeout 60 "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null
    local got=$?
    [ $got = "$wanted" ] || fail "$settings sol $*: status $got, expected $wanted"
    if grep "fake driver: " "$work/err" >&2; then fail "$settings sol $*: leaks, or uses what it has wrongly"; fi
}
# lacks FILE PATTERN
lacks() { if grep -qE -- "$2" "$work/$1"; then fail "'$2' in $1"; fi; }

# ---- no driver, an old one, an old device ----
# shellcheck disable=SC2086 # the words of a command, here and below
{
    with "LD_LIBRARY_PATH=$work/none" 5 run $tiny --backend cuda
    has err 'the CUDA driver cannot be loaded: libcuda.so'
    with "LD_LIBRARY_PATH=$work/none" 0 run $tiny --backend auto
    has err 'the CPU computes: the CUDA driver cannot be loaded'
    with "LD_LIBRARY_PATH=$work/none" 0 run $tiny --backend auto -q
    lacks err .
    with FAKE_CUDA_DEVICES=0 5 run $tiny --backend cuda
    has err 'there is no GPU 0: the driver sees 0'
    with FAKE_CUDA_DEVICES=0 0 run $tiny --backend auto -q
    with FAKE_CUDA_DRIVER=11080 5 run $tiny --backend cuda
    has err 'the driver is made for CUDA 11.8; sol needs 12.0 or later: update'
    with FAKE_CUDA_DRIVER=11080 0 run $tiny --backend auto
    has err 'the CPU computes: the driver is made for CUDA 11.8'
    with "FAKE_CUDA_MAJOR=7 FAKE_CUDA_MINOR=5" 5 run $tiny --backend cuda:1
    has err "GPU 1 \(Fake GPU 1\) has compute capability 7.5; sol's kernels need 8.0"
    with "FAKE_CUDA_MAJOR=7 FAKE_CUDA_MINOR=5" 0 run $tiny --backend auto
    has err 'the CPU computes: GPU 1 .* capability 7.5'
    with FAKE_CUDA_FAIL=init:1:803 5 run $tiny --backend cuda
    has err 'does not start: .*803.*restart the machine'
}

# ---- no machine code for the device, and an NVRTC that compiles nothing ----
mkdir "$work/stub"
if "${SOL_CC:-cc}" -shared -fPIC -o "$work/stub/libnvrtc.so.13" -x c /dev/null 2>/dev/null; then
    # shellcheck disable=SC2086
    with "LD_LIBRARY_PATH=$work/stub:$SOL_FAKE_GPU FAKE_CUDA_FAIL=module_load:1:209" 5 run $tiny --backend cuda
    has err "no machine code of pack/pack.cu for Fake GPU 0 \(sm_90\), and it cannot be compiled: .*NVRTC.* too old"
fi

# ---- no room ----
# shellcheck disable=SC2086
{
    with FAKE_CUDA_MIB=1 6 run $tiny --backend cuda
    has err 'synth:tiny needs 0.00 GiB for its weights and Fake GPU 0 has 0.00 GiB free; run it on the CPU'
    with FAKE_CUDA_MIB=7 6 bench -m synth:tiny -p 512 -n 0 -r 1 --no-limits --no-store --backend cuda -q
    has err 'does not fit: .*weights .*cache .*buffers .* free; it would with steps of'
    with FAKE_CUDA_MIB=1 0 run $tiny --backend auto --json
    has err 'the CPU computes: synth:tiny needs'
    has out '"batch": 512'
    with FAKE_CUDA_MIB=1 0 bench -m synth:tiny -p 8 -n 0 -r 1 --no-limits --no-store --backend auto -b 6 -o json
    has out '"step_rows": 6'
    with FAKE_CUDA_FAIL=memory_alloc:1:2 6 run $tiny --backend cuda
    has err 'needs .* GiB on Fake GPU 0, .* are free there'
}

# ---- failures in the middle: the tokens before them stand, nothing follows ----
# shellcheck disable=SC2086
for fault in stream_wait:4:700 event_wait:5:700 graph_launch:3:719 copy_out:1:214 launch:40:700 graph_instantiate:1:2; do
    with FAKE_CUDA_FAIL=$fault "$([ "${fault##*:}" = 2 ] && echo 6 || echo 8)" run $tiny --backend cuda --temperature 1
    has err '^sol: error: .*CUDA_ERROR_'
    lacks err 't/s|prompt '
    [ "$(tr -cd '\n' <"$work/out" | wc -c)" -le 1 ] || fail "$fault: more than a line"
    if [ -s "$work/out" ]; then
        grep -qE '^[0-9]+( [0-9]+)*$' "$work/out" || fail "$fault: no whole tokens"
        has err 'sol: error: after [0-9]+ tokens: '
    fi
    with FAKE_CUDA_FAIL=$fault "$([ "${fault##*:}" = 2 ] && echo 6 || echo 8)" run $tiny --backend cuda --json -q
    [ -s "$work/out" ] && fail "$fault: JSON of what failed"
done
# shellcheck disable=SC2086
{
    with FAKE_CUDA_FAIL=event_wait:5:700 8 run $tiny --backend cuda --temperature 1
    has err 'CUDA_ERROR_ILLEGAL_ADDRESS .*Run it again; .* sol verify'
    with FAKE_CUDA_FAIL=event_wait:5:214 8 run $tiny --backend cuda
    has err 'CUDA_ERROR_ECC_UNCORRECTABLE .*nvidia-smi'
    with FAKE_CUDA_FAIL=event_wait:30:700 8 bench -m synth:tiny -p 8 -n 8 -r 4 --no-limits --no-store --backend cuda -q
    with FAKE_CUDA_FAIL=stream_wait:12:700 8 perplexity -m synth:tiny --random-tokens 64 -c 16 -b 4 --backend cuda -q
    [ -s "$work/out" ] && fail "a perplexity of what failed"
    with FAKE_CUDA_FAIL=stream_wait:12:700 8 profile -m synth:tiny -p 8 -n 2 -d 0 --backend cuda -q --no-limits
}

# ---- an architecture without a verified kernel ----
# shellcheck disable=SC2086
{
    spark="FAKE_CUDA_MAJOR=12 FAKE_CUDA_MINOR=1"
    with "$spark" 5 run $tiny --backend cuda
    has err "Fake GPU 0 \(sm_121a\): the kernels were not verified .* run 'sol verify --backend cuda:0' once"
    with "$spark" 0 run $tiny --backend auto
    has err 'the CPU computes: .*not verified'
    with "$spark" 0 device --backend cuda --seconds 0.0001 -q # looking is allowed
    with "$spark" 7 verify --backend cuda --rounds 1 --op add # a part is no verdict
    [ -e "$work/cache/sol" ] && ls "$work/cache/sol" | grep -q verified && fail "a part was kept"
    if [ -n "${SOL_VERIFY_ALL:-}" ]; then # minutes: the whole of it, of which nothing runs there
        with "$spark" 7 verify --backend cuda --rounds 1
        with "$spark" 5 run $tiny --backend cuda
        has err 'sol verify found kernels that compute wrongly there'
    fi
}

exit $((failures != 0))
