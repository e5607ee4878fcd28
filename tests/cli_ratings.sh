#!/usr/bin/env bash
# sol ratings: the table of a device; imported results are rated, by the names that llama-bench gives models.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1

run 0 ratings --device "NVIDIA GB10"
has out '^device +model +metric +unit +baseline +good +excellent +source'
has out '^GB10 +gpt-oss 20B +pp2048 +t/s +2000 +2500 +3000 '
run 0 ratings --device none
has err '^no ratings for none; there are some for GB10 '
run 0 ratings
run 0 ratings --all -o csv
has out '^GB10,any,matmul compute %,%,50,70,85,'

# what it prints is what --ratings takes; a row of the user's comes first
run 0 ratings --all -o json
sed 's/"baseline": [0-9.]*/"baseline": 1.0/; s/GB10/H100/' out >mine.json
run 0 ratings mine.json --device H100
has out '^H100 +gpt-oss 20B +pp2048 +t/s +1 +2500 '
echo '[{"device": "x"}]' >wrong.json
run 4 ratings wrong.json
has err 'wrong.json: entry 1'
run 3 ratings none.json
run 2 ratings a b
run 2 ratings -o xml

# ---- imported results ----
cat >llama.json <<'JSON'
[{"gpu_info": "NVIDIA GB10", "cpu_info": "x", "backends": "CUDA", "model_filename": "models/gpt-oss-20b-mxfp4.gguf",
  "model_type": "gpt-oss 20B MXFP4 MoE", "n_prompt": 2048, "n_gen": 0, "samples_ns": [780000000, 781000000, 782000000]},
 {"gpu_info": "NVIDIA GB10", "cpu_info": "x", "backends": "CUDA", "model_filename": "models/gpt-oss-20b-mxfp4.gguf",
  "model_type": "gpt-oss 20B MXFP4 MoE", "n_prompt": 0, "n_gen": 32, "samples_ns": [480000000, 481000000, 482000000]},
 {"gpu_info": "NVIDIA GB10", "cpu_info": "x", "backends": "CUDA", "model_filename": "models/gpt-oss-20b-mxfp4.gguf",
  "model_type": "gpt-oss 20B MXFP4 MoE", "n_prompt": 512, "n_gen": 0, "samples_ns": [200000000, 201000000, 202000000]}]
JSON
run 0 import llama.json
run 0 runs show last
has out '^pp2048 .* good$'     # 2622 t/s
has out '^tg32 .* baseline$'   # 66.5 t/s
has out '^pp512 .* [0-9.]+$'   # no row for it
run 0 runs show last --ratings mine.json
has out '^pp2048 .* good$'     # those are of an H100
sed 's/H100/gb10/' mine.json | sed 's/"good": 2500.0/"good": 2700.0/' >spark.json
run 0 runs show last --ratings spark.json
has out '^pp2048 .* baseline$'
sed 's/gpt-oss 20B MXFP4 MoE/gpt-oss 120B MXFP4 MoE/; s/gpt-oss-20b/gpt-oss-120b/' llama.json >large.json
run 0 import large.json
run 0 runs show last
grep -qE '(good|baseline|below|excellent)$' out && fail "a larger model is rated by the rows of a smaller one"
exit $((failures != 0))
