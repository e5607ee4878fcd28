#!/usr/bin/env bash
# sol gemm: checks and times of grouped products; what is kept of them can be compared and reported.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1

# ---- usage ----
run 2 gemm
has err 'takes check or bench'
run 2 gemm measure
run 2 gemm bench --type q8_0
has err "bad value 'q8_0' for --type: expected nvfp4, mxfp4 or fp8_e4m3"
run 2 gemm bench -o xml
run 2 gemm bench --force gemm=nothing
for shape in '' 'm=1' 'm=1;n=2;k=24' 'm=1,2,3;n=2,3;k=16' 'm=1;n=-2;k=16' 'm=x;n=1;k=16' 'm=1;n=1;k=16;l=1' 'm=1;n=1;k=0'; do
    run 2 gemm bench --shape "$shape"
    has err '^sol: error: --shape .*write for example'
done
run 2 gemm bench --type mxfp4 --shape 'm=1;n=1;k=16' --no-store
has err 'k is no multiple of 32'
run 2 gemm bench --resident --type mxfp4 --no-store
has err '^sol: error: --resident: weights in tiles are nvfp4, not mxfp4'

# ---- check ----
if [ -z "${SOL_EMULATED:-}" ]; then
    if [ "${SOL_TEST_EFFORT:-100}" = 100 ]; then # once is enough for sanitizers
        run 0 gemm check --quick -q
        variants=$(grep -c '^test 1 .* task ' out)
        if [ "$variants" -gt 0 ]; then # a processor with vectors
            is "rows of checks" "$(grep -c ' ok$' out)" $((variants * 21))
            has out '^test 10 .* random .* ok$'
            has out '^random groups'
        fi
    fi
    run 0 gemm check --quick -q -o csv --seed 4
    has out '^test 1,grouped_gemm_[a-z0-9_]*,task,3,0\.0e\+00,' # scales in rows and atoms, weights in tiles
fi

# ---- bench ----
small="--shape m=8,24;n=256;k=512 --shape m=3,0,5;n=48,16,32;k=16 -q -t 1"
# shellcheck disable=SC2086 # words
run 0 gemm bench $small --label one
has out '^m=8,24;n=256;k=512 +(grouped_|reference)'
has out '^geometric mean'
has out '^cuBLAS was not timed: the CPU computes'
has out '^run g[0-9a-f]{8}$'
# shellcheck disable=SC2086
run 0 gemm bench $small --no-limits --scales random --layout atoms --type fp8_e4m3 --results f32 --no-store -o csv
lacks() { if grep -qE -- "$2" "$work/$1"; then fail "'$2' in $1"; fi; }
lacks err '^run '
run 0 gemm bench --gated --shape 'm=3,0,5;n=48,16,32;k=32' --no-limits --no-store -q -o json
has out '"gated": true'
has out '"resident": false'
# Weights packed before: a number of its own, under a name of its own.
# shellcheck disable=SC2086
run 0 gemm bench $small --resident --no-limits --label resident --profile --wide
has out '^m=8,24;n=256;k=512, resident +(grouped_|reference)'
has out '^m=8,24;n=256;k=512, resident .* 100\.0$'
has out '^resident: weights were packed into tiles before anything was timed$'
run 0 gemm bench --resident --gated --shape 'm=3,0,5;n=48,16,32;k=32' --no-limits --no-store -q -o json
has out '"resident": true'
run 0 gemm bench --resident --gated --shape 'm=3,0,5;n=48,16,32;k=32' --no-limits --no-store -q -o csv
has out '^"m=3,0,5;n=48,16,32;k=32, gated, resident",'
lacks out 'weights were packed'
# shellcheck disable=SC2086
run 0 gemm bench $small --force grouped_gemm=reference --label two
has out ' reference '
# Which kernels a call launches: of a processor the variant itself.
# shellcheck disable=SC2086
run 0 gemm bench $small --no-limits --no-store --profile --wide
has out '^m=8,24;n=256;k=512 +(grouped_|reference).* 100\.0$'
has out '^a call launches nothing$'
if [ -n "${SOL_FAKE_GPU:-}" ] && [ -z "${SOL_SANITIZED:-}${SOL_EMULATED:-}" ]; then
    many="m=$(printf '8,%.0s' {1..49})8;n=24;k=64"
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$SOL_FAKE_GPU run 0 gemm bench --backend cuda $small --no-limits --no-store --profile --wide
    has out '^m=8,24;n=256;k=512 +grouped_gemm_wgmma_cuda +[0-9a-z_]+ +grouped_wgmma_[0-9]+ +1000\.0 +100\.0$'
    has out '^m=3,0,5;n=48,16,32;k=16 +grouped_gemm_mma_cuda +- +grouped_gemm_nvfp4 +1000\.0 +100\.0$'
    has out '^a call is one launch$'
    lacks err 'fake driver'
    LD_LIBRARY_PATH=$SOL_FAKE_GPU run 0 gemm bench --backend cuda --shape "$many" -q --no-limits --no-store --profile \
        --force grouped_gemm=grouped_gemm_mma_cuda
    is "launches of 50 groups" "$(grep -c 'grouped_gemm_nvfp4 .* 50\.0$' out)" 2
    has out '^a call is up to 2 launches$'
    # What reads tiles is taken.
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$SOL_FAKE_GPU run 0 gemm bench --backend cuda $small --resident --no-limits --no-store --profile --wide
    has out '^m=3,0,5;n=48,16,32;k=16, resident +grouped_gemm_mma_cuda +- +grouped_gemm_nvfp4_tiles +1000\.0 +100\.0$'
    LD_LIBRARY_PATH=$SOL_FAKE_GPU run 0 gemm bench --backend cuda $small --no-limits --no-store -o json
    lacks out '"kernels"'
    LD_LIBRARY_PATH=$SOL_FAKE_GPU run 0 gemm bench --backend cuda $small --no-limits --no-store --profile -o json
    is "launches" "$(python3 -c 'import json, sys
print([s["kernels"]["launches"] for s in json.load(sys.stdin)["shapes"]])' <out)" "[1, 1]"
fi

# ---- peers ----
# NVIDIA's libraries are fakes that multiply on the processor; one of them without, wrong, or without a graph.
peers() { # ARGUMENT...
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=${gpu-$SOL_FAKE_GPU} SOL_CUBLASLT=${lt-$SOL_FAKE_CUBLASLT} SOL_CUBLAS=${cublas-$SOL_FAKE_CUBLASLT} \
        run 0 gemm bench --backend cuda $sizes -q --no-limits "$@"
    lacks err 'fake driver'
}
if [ -n "${SOL_FAKE_GPU:-}" ] && [ -z "${SOL_SANITIZED:-}${SOL_EMULATED:-}" ]; then
    sizes="--shape m=8,24;n=256;k=512 --shape m=3,0,5;n=48,16,32;k=16"
    export FAKE_CUBLAS=right
    peers --wide --label peers
    is "times of both peers" "$(grep -cE '^m=.* [0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' out)" 2
    has out '^geometric mean .* [0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
    lacks out 'was not timed|plain calls'
    run 0 runs show peers
    has out '^m=3,0,5;n=48,16,32;k=16: cublas '
    has out '^m=8,24;n=256;k=512: cublas_grouped '
    peers --no-store -o json
    is "ratios" "$(python3 -c 'import json, sys
r = json.load(sys.stdin)
print(all(s["of_cublas"] and s["of_cublas_grouped"] for s in r["shapes"] + [r]))' <out)" True
    FAKE_CUBLAS=wrong peers --no-store
    has out '^cuBLAS grouped was not timed: product 1 has .* is right'
    lacks out '^cuBLAS was not'
    FAKE_CUBLAS=none peers --no-store
    has out '^cuBLAS was not timed: product 0 has 0 where'
    # Eight sets of buffers fill the cache: eight plain calls, then those that are to be in a graph.
    sizes="--shape m=8,24;n=256;k=512"
    FAKE_CUBLAS_FAIL=9 peers --no-store
    has out '^cuBLAS grouped was timed by plain calls, not in a graph: cuBLAS: multiplying groups \(error 15\)'
    FAKE_CUBLAS_FAIL=1 peers --no-store
    has out '^cuBLAS grouped was not timed: cuBLAS: multiplying groups'
    cublas=/nonexistent peers --no-store
    has out '^cuBLAS grouped was not timed: cuBLAS cannot be loaded'
    lacks out '^cuBLAS was not'
    lt=/nonexistent peers --no-store
    has out '^cuBLAS was not timed: cuBLASLt cannot be loaded'
    lacks out '^cuBLAS grouped was'
    peers --no-store --gated # a GPU that computes nothing has no activation
    has out '^cuBLAS was not timed: product 0 has .* is right'
    has out '^cuBLAS grouped was not timed: product 0 has .* is right'
    if [ -n "${SOL_EMULATED_GPU:-}" ]; then
        sizes="--shape m=3,0,5;n=48,16,32;k=32"
        gpu=$SOL_EMULATED_GPU peers --gated --label gated --wide --force grouped_gemm=grouped_gemm_mma_cuda
        is "times of both gated" "$(grep -cE '^m=3.*mma_cuda .* [0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' out)" 1
        lacks out 'was not timed|plain calls'
        run 0 runs show gated
        has out '^m=3,0,5;n=48,16,32;k=32, gated '
        has out '^m=3,0,5;n=48,16,32;k=32, gated: cublas_grouped '
    fi
    sizes="--shape m=8;n=20;k=512" peers --no-store
    has out '^cuBLAS was not timed: n is no multiple of 8'
    unset FAKE_CUBLAS
fi

run 0 runs
has out '^g[0-9a-f]{8} +gemm +two '
run 0 runs show one
has out '^m=8,24;n=256;k=512'
"$SOL_BINARY" compare one two >out 2>err
has out '^m=8,24;n=256;k=512'
# Resident times are compared with none of the others.
"$SOL_BINARY" compare one resident >out 2>err
lacks out '^m=8,24;n=256;k=512(, resident)? .*%'
run 0 report two
exit $((failures != 0))
