#!/bin/sh
# The attention kernels on an NVIDIA GPU, at gpt-oss's heads (64 of queries, 8 of keys, 64 values each): first against
# their references, then timed, over caches that together exceed the L2 cache where they are large enough.
#   usage: bench/attention_device.sh [SOL]         (default build/sol)
#   CHECK=attention_any_cuda         compares the timed sizes with another kernel too (minutes)
set -eu
cd "$(dirname "$0")/.."
sol=${1:-build/sol}
check=${CHECK:+,check=$CHECK}
"$sol" verify --backend cuda --op attention | grep _cuda
time_ops() {
    args=
    for spec in "$@"; do args="$args --op attention:$spec$check"; done
    # shellcheck disable=SC2086 # options apart
    "$sol" bench --backend cuda $args
}
echo "== prompts"
time_ops m=16384,depth=0,dtype=bf16 m=16384,depth=0 m=4096,depth=0,dtype=bf16 m=2048,depth=32768 m=512,depth=8192 \
    m=2048,sequences=4,depth=3000 m=2048,depth=0 m=2048,depth=32768,window=128
echo "== decoding"
time_ops m=1,depth=3 m=1,depth=127 m=1,depth=511 m=1,depth=8191 m=1,depth=32767 m=1,depth=32767,dtype=bf16 \
    m=16,sequences=16,depth=4095 m=128,sequences=128,depth=2047 m=128,sequences=128,depth=2047,window=128
