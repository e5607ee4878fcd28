#!/usr/bin/env bash
# Commands on a GPU, with a driver that has two and runs nothing (src/driver/fake_cuda.c as libcuda.so.1): what is
# printed, kept and given back. Every event of that driver is a millisecond after the one before.
. "$SOL_SOURCE_DIR/tests/support/cli.sh"
export LD_LIBRARY_PATH=$SOL_FAKE_GPU

# check EXPRESSION: Python over `r`, the JSON in $work/out
check() {
    command -v python3 >/dev/null || { echo "no python3: JSON is not checked for $1"; return; }
    python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), sys.argv[2]' \
        "$work/out" "$1" 2>"$work/err" || fail "JSON: $1"
}

# ---- limits: measured once for each device, kept, shown ----
run 0 device --backend cuda --seconds 0.0001 -q -o json
check 'r["machine"]["gpu"] == "Fake GPU 0" and r["machine"]["architecture"] == "90a" and r["machine"]["sms"] == 4'
check 'r["machine"]["now"]["watts"] == 123 and r["machine"]["now"]["throttle"] == "power limit"'
check 'not r["limits"]["reused"] and r["limits"]["memory_gb_s"]["buffer"] == 1 << 29'
check 'abs(r["limits"]["memory_gb_s"]["read"]["best"] - (1 << 29) / 1e6) < 1e-3'
check 'abs(r["limits"]["gflop_s"]["int8"]["best"] / r["limits"]["gflop_s"]["bf16"]["best"] - 2) < 1e-6'
check 'r["limits"]["gflop_s"]["bf16"]["loop"] == "wgmma m64n128k16" and r["limits"]["start_ns"]["answer"] > 0'
run 0 device --backend cuda:0 -q -o json
check 'r["limits"]["reused"]'
run 0 device --backend cuda -q
has out '^Fake GPU 0 \(GPU 0, sm_90a\), 4 SMs up to 1000 MHz, 1.0 GiB, L2 1.0 MiB, CUDA 13.0'
has out '^now: SMs at 1755 MHz, memory at 2619, 41 degrees C, 123 of 700 W, held back by power limit'
has out 'kept; --measure does it again'
has out '^memory +512 MiB +536.9 +536.9 +536.9 +128 +419'
has out '^f32 '
has out 'an empty kernel: '
run 0 device --backend CUDA:1 --seconds 0.0001 -q -o csv
has out '^GB/s,buffer,read,write,copy,nominal'
run 0 device -t 1 --seconds 0.0001 -q
has out '^GPU 1 +Fake GPU 1 \(--backend cuda:1\)'
run 5 device --backend cuda:2 -q
has err 'there is no GPU 2: the driver sees 2'
SOL_NVML=$work/none run 0 device --backend cuda -q
has out 'clocks, power and temperature are unknown: NVML cannot be loaded'

# ---- bench: the same records as of a processor, and the GPU's own figures ----
run 0 bench --backend cuda -m synth:tiny -p 8 -n 4 --npl 2 -d 0,16 -r 5 --ops --no-limits -q --label gpu -o json
check 'len(r) == 4 and all(x["proved"] and x["backends"] == "CUDA" and x["gpu_info"] == "Fake GPU 0" for x in r)'
check 'all(x["memory"]["device_peak"] == x["memory"]["device_model"] + x["memory"]["engine"] for x in r)'
check 'all(x["memory"]["engine"] == sum(x["memory"][k] for k in ("cache", "buffers", "scratch")) for x in r)'
check 'all(x["gpu_state"]["sm_mhz"] == x["clock_mhz"] == 1755 and x["temperature_c"] == 41 for x in r)'
check 'all(x["joules_per_token"] > 0 and x["upload_s"] > 0 and x["load_s"] > 0 for x in r)'
check 'all(x["machine"]["gpu"]["driver"] == 13000 and x["n_gpu_layers"] == 99 for x in r)'
check 'all(k["ran"] == k["expected"] > 0 and "_cuda" in k["variant"] for x in r for k in x["kernels"])'
check 'all(x["flops_per_token"] > 0 and x["bytes_per_token"] > 0 and x["event_ns"] > 0 for x in r)'
check 'r[1]["step_ns"]["count"] == 20 and r[2]["bytes_per_token"] > r[0]["bytes_per_token"]'
run 0 runs export last
sed -i '1s/^/[/; $s/$/]/' "$work/out"
check 'r[0]["backend"] == "cuda" and r[0]["device"] == "Fake GPU 0" and r[0]["state"] == "ok"'
check 'r[0]["environment"]["driver"] == "CUDA 13.0" and len(r[0]["environment"]["kernel_source"]) == 16'
run 3 run --backend cuda -m synth:tiny --random-tokens 4 -n 4 -q --kernel-src "$work/none"
has err "cannot read the folder '$work/none'"
run 0 run --backend cuda -m synth:tiny --random-tokens 4 -n 6 -q --temperature 1 # tokens drawn on the GPU
has out '^[0-9]+( 0){5}$' # the first by the host, from a prompt's logits
run 0 bench --backend cuda:1 -m synth:tiny -p 8 -n 4 -r 3 --no-store -q
has out '^Fake GPU 1 \(GPU 1\), 4 SMs, 1.0 GiB, CUDA 13.0, cache in f16; model opened in .* copied to the GPU in'
has out 'memory read 535.* int8 1.7'
has out '^tg4: SMs at 1755 MHz, 41 degrees C, 123 W; held back by power limit'
run 0 bench --backend cuda -m synth:tiny -p 8 -n 0 -r 2 --no-store --no-limits -q -o csv
has out ',memory.device_peak,'
# steps as wide as is fast there, unless they are asked to be narrower
run 0 bench --backend cuda -m synth:tiny -p 3000 -n 0 -r 1 --no-store --no-limits -q -o json
check 'r[0]["n_batch"] == 4096 and r[0]["step_rows"] == 3000'
for narrower in "-b 100" "-ub 100" "-b 200 -ub 100" "-b 100 -ub 200"; do
    # shellcheck disable=SC2086 # options with their values
    run 0 bench --backend cuda -m synth:tiny -p 300 -n 0 -r 1 --no-store --no-limits -q -o json $narrower
    check 'r[0]["step_rows"] == 100'
done
run 0 bench -m synth:tiny -p 600 -n 0 -r 1 -t 1 --no-store --no-limits -q -o json
check 'r[0]["step_rows"] == 512'
run 0 run --backend cuda -m synth:tiny --random-tokens 2500 -n 1 -q --json
check 'r["settings"]["batch"] == 4096 and len(r["prompt_ids"]) == 2500'
run 0 model fit -m synth:tiny --device-memory 1
has out 'steps of 4096 tokens'
run 0 model fit -m synth:tiny
has out 'steps of 512 tokens'
# dense weights of q8_0 in a prompt: tiles of any number of rows
run 0 bench --backend cuda -m synth:tiny,dense=q8_0 -p 300 -n 0 -r 1 --no-store --no-limits -q --ops
has out '^pp300 +attn_add +attn_add_many_cuda'
has out '^pp300 +attn_route +attn_route_many_cuda'
has out '^pp300 +gemm +gemm_wgmma_cuda'
# few rows and many: where one kind of composite ends and the other begins
run 0 kernels --wide --backend cuda -m synth:gpt-oss-20b,layers=1 --rows 16
has out '^attn_in .* attn_in_rows_cuda'
has out '^attn_out .* attn_out_rows_cuda'
has out '^moe .* moe_few_cuda ' # experts are packed there
run 0 kernels --wide --backend cuda -m synth:gpt-oss-20b,layers=1 --rows 17
has out '^attn_in .* attn_in_many_cuda'
has out '^attn_out .* attn_out_many_cuda'
# kernels are for an architecture and later ones, or for it alone
run 0 kernels --wide --backend cuda
has out ' gemm_wgmma_cuda +bf16 +sm_90a +yes '
has out ' attn_out_row_cuda +exact +sm_90\+ +yes '
has out ' rmsnorm_cuda +exact +any GPU +yes '
# a variant that calls a library is not here where the library is not
SOL_CUBLASLT=$work/none run 0 kernels --wide --backend cuda
has out ' gemm_cublaslt_cuda +bf16 +sm_80\+ +no '
SOL_CUBLASLT=$work/none run 0 kernels --backend cuda --json
check '[(v["here"], "cuBLASLt" in v["why_not"]) for o in r["ops"] for v in o["variants"] if v["name"] == "gemm_cublaslt_cuda"] == [(False, True)]'
run 0 kernels --backend cpu --json
check 'all(not v["here"] for o in r["ops"] for v in o["variants"] if v["name"].endswith("_cuda"))'
check '{v["arch"] for o in r["ops"] for v in o["variants"]} == {"", "sm_80+", "sm_89+", "sm_90+", "sm_90a", "sm_100a", "sm_120f"}'
# a choice of few rows by its name, and one that has too few
run 0 kernels --wide --backend cuda -m synth:tiny --rows 3 --force attn_in=attn_in_rows_cuda:16_rows
has out '^attn_in .* attn_in_rows_cuda:16_rows '
run 0 kernels --wide --backend cuda -m synth:tiny --rows 9 --force attn_in=attn_in_rows_cuda:8_rows
has out '^attn_in .* attn_in_rows_cuda:16_rows '
# what is said to be chosen is what runs
run 0 bench --backend cuda -m synth:tiny -p 0 -n 1 -r 1 --ops --no-store --no-limits -q -o json
check 'not open("'"$work/ran"'", "w").write("\n".join(sorted({k["op"] + " " + k["variant"] for k in r[0]["kernels"]})) + "\n") == 0'
run 0 kernels --backend cuda -m synth:tiny --rows 1 --json
check 'set(open("'"$work/ran"'").read().split("\n")[:-1]) == {p["op"] + " " + p["variant"] for p in r["steps"][0]["problems"] if p["variant"] != "composed"}'
# one op alone, every kind of it; its results are nobody's, since nothing runs
run 0 bench --backend cuda --wide --op gemm:m=300,n=64,k=128 --op gemm:m=6,n=64,k=64,check=gemm_f32_any_cuda \
    --op gemm:m=64,n=96,k=64,dtype=mxfp4,groups=4,top_k=2,skew=1 --op moe_up:m=64,n=64,k=64,groups=4 \
    --op moe_down:m=64,n=64,k=64,groups=4,top_k=1,check=composed --op gemm:m=300,n=96,k=96,dtype=q8_0
has out '^gemm +m=300 n=64 k=128 bf16 +- +gemm_wgmma_cuda'
has out '^gemm +m=6 n=64 k=64 bf16 +- +gemv_bf16_cuda .* 0\.0e\+00$'
has out '^gemm +m=64 n=96 k=64 mxfp4 +[0-9]+-[0-9]+ +gemm_wgmma_cuda'
has out '^gemm +m=300 n=96 k=96 q8_0 +- +gemm_wgmma_cuda'
has out '^moe_up +m=64 n=64 k=64 mxfp4 +[0-9]+-[0-9]+ +moe_up_wgmma_cuda'
has out '^moe_down +m=64 n=64 k=64 mxfp4 .* 0\.0e\+00$'
# every op, small
run 0 bench --backend cuda --wide --op embed:n=64 --op rmsnorm --op rope --op kv_write:depth=9 --op attention:depth=300 \
    --op attention:m=60,window=128 --op add --op route --op swiglu --op combine --op sample --op pack_weights:k=64 --op pack_scaled:m=64,k=64 \
    --op attn_in:k=64 --op attn_out:n=64 --op moe:n=32,k=64 --op head:n=96,k=64
has out '^pack_weights .* pack_weights_cuda '
has out '^pack_scaled .* pack_scaled_cuda '
has out '^attention +m=1 .* depth=300 f16 +- +attention_decode_cuda '
has out '^moe .* moe_row_cuda '
is "lines" "$(grep -c _cuda "$work/out")" 17
run 0 bench --backend cuda --force gemm=gemm_f32_any_cuda --op gemm:m=300,n=64,k=128
has out 'gemm_f32_any_cuda'
run 2 bench --backend cuda --op gemm:m=300,n=64,k=128,check=nothing
has err 'gemm has no such variant'
run 6 bench --backend cuda --op gemm:m=300000,n=64000,k=128
run 6 bench --backend cuda -m synth:tiny -p 0 -n 1 -d 4000 --npl 4096 -r 1 --no-store --no-limits -q
has err 'Fake GPU 0'

# ---- profile ----
run 0 profile --backend cuda -m synth:tiny -p 8 -n 2 -d 0,16 --layers -q
has out '^synth:tiny on Fake GPU 0, run p'
has out '^steps are timed as graphs, kernels by events'
has out '^pp8 @ d16 \(prefill, depth 16\)'
has out '^kernel by kernel, with events between them'
has out '^experts: .* have rows'
has out '^outside '
run 0 profile --backend cuda -m synth:tiny -p 0 -n 2 -d 0 -q -o json --trace "$work/trace.json"
check 'r["device"] == "Fake GPU 0" and r["event_ns"] > 0 and r["phases"][0]["timed_ns_per_token"] > 0'
check 'all(k["calls"] == k["expected"] > 0 for k in r["phases"][0]["kernels"])'
grep -q '"traceEvents"' "$work/trace.json" || fail "no trace for Perfetto"
run 0 advise
run 0 report --output "$work/report.html"

# ---- what has no kernel there, and no device ----
run 5 bench --backend cuda -m synth:tiny -p 0 -n 1 -r 1 --reference --no-store --no-limits -q
has err 'no CUDA kernel serves this call of'
run 5 bench --backend cuda -m synth:tiny -p 0 -n 1 -r 1 --slow gemm=5 --no-store --no-limits -q
has err '--slow delays calls on the CPU'
for command in "device" "bench -m synth:tiny --no-limits" "profile -m synth:tiny --no-limits" "run -m synth:tiny -n 1 --random-tokens 1"; do
    # shellcheck disable=SC2086 # the words of a command
    LD_LIBRARY_PATH= run 5 $command --backend cuda:999 -q
done

exit $((failures != 0))
