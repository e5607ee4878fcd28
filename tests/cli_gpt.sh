#!/usr/bin/env bash
# Commands on GPT models: the small ones that nanochat's code made, and random ones.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
july=$SOL_SOURCE_DIR/tests/golden/gpt_2026_07

# ---- what it is ----
run 0 model info -m "$july" --tensors
has out '^architecture GPT, 4 layers, hidden 32, vocabulary 50$'
has out 'windows SSL, S is 129$'
has out '^layers .*smear, value embeddings, backout'
has out '^value_embeds\.3\.weight +bf16 +64 x 16'
[ "$(grep -c '^value_embeds' "$work/out")" = 2 ] || fail "value embeddings in every second layer"
run 0 model info -m "$july" --json
has out '"architecture": "GPT"'
has out '"qk_scale": 1\.2'
run 0 model info -m "${july%07}01"
has out 'plain \(2026-01\)'
run 0 model check -m "$july"
has out '35 tensors'

# ---- run: ids go in and out; the same by references, and whatever the steps ----
run 0 run -m "$july" --tokens 1,2,3 -n 12 --greedy --exact --kv f32 -q
cp "$work/out" "$work/greedy"
has out '^[0-9]+( [0-9]+){11}$'
run 0 run -m "$july" --tokens 1,2,3 -n 12 --greedy --reference --kv f32 -q -b 1
cmp -s "$work/out" "$work/greedy" || fail "references say something else"
run 2 run -m "$july" -p hello -n 2
has err 'no vocabulary to read text with; use --tokens'

# ---- perplexity, kernels, verify, bench ----
run 0 perplexity -m "$july" --random-tokens 120 -c 64 --kl -q
has out 'perplexity'
run 2 perplexity -m "$july" --random-tokens 120 -c 64 --kl --same-experts -q
has err 'model without experts'
run 0 kernels --wide -m "$july"
has out '^gated_embed +1 x bf16 n=32 k=24 groups=1 +1 +[a-z]'
has out '^axpby +1 x f32 n=32 +7 '
run 0 kernels --wide -m synth:gpt-d20 # a plan of full size, without weights
has out '^gated_embed +512 x bf16 n=1280 k=12 groups=10 +10 '
run 0 verify --op relu2 --op softcap --op axpby --op gated_embed
has out '[0-9]+ variants verified, 0 failed'
# what did not run has no figures
run 0 verify --op rmsnorm --rounds 1 --brief --wide
has out '^rmsnorm +rmsnorm_cuda +exact +- +- +- +not run  runs on a GPU'
run 0 verify --op rmsnorm=rmsnorm_cuda --op rmsnorm=reference --rounds 1 --brief --json
[ "$(grep -cE '"(worst_error|tolerance)": null' "$work/out")" = 2 ] || fail "figures of what did not run"
run 0 verify -m "$july" --op softcap
run 0 bench -m "$july" -p 16 -n 8 -d 0,100 -r 3 --no-limits -q -o json
has out '"layers_complete": true'
has out '"model_type": "GPT '
run 0 bench -m synth:gpt-tiny,dense=q8_0 -p 16 -n 8 -r 3 --npl 2 --no-limits -q -o json
has out '"layers_complete": true'

# ---- other files ----
run 0 model convert -m "$july" -o "$work/copy"
run 0 run -m "$work/copy" --tokens 1,2,3 -n 12 --greedy --exact --kv f32 -q
cmp -s "$work/out" "$work/greedy" || fail "a copy says something else"
run 0 model synth --like gpt-tiny --layers 3 -o "$work/random"
run 0 run -m "$work/random" -p hello -n 4 --greedy -q
run 5 model convert -m "$july" -o "$work/july.gguf"
has err 'no GGUF layout for GPT'
mkdir "$work/less" && cp "$july"/* "$work/less"
sed -i 's/"n_layer": 4/"n_layer": 3/' "$work/less/config.json"
run 4 model info -m "$work/less"
has err "tensor 'resid_lambdas' has shape .4., expected .3."
sed -i 's/"window_pattern": "SSL"/"window_pattern": "SSL", "preset": "2026-01"/; s/"n_layer": 3/"n_layer": 4/' "$work/less/config.json"
run 4 model info -m "$work/less"
has err "unexpected tensor '.*', which no GPT of this configuration has"

# ---- a GPU says the same (tests/emulate, where a plan runs rightly twice) ----
if [ -n "${SOL_EMULATED_GPU:-}" ]; then
    for model in "$july" "${july%7}1"; do
        run 0 run -m "$model" --tokens 1,2,3 -n 3 --greedy --exact --kv f32 -q
        cp "$work/out" "$work/greedy"
        LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_MAJOR=9 FAKE_CUDA_DEVICES=1 SOL_CUBLASLT=$SOL_FAKE_CUBLASLT \
            FAKE_CUBLAS=right run 0 run -m "$model" --backend cuda --tokens 1,2,3 -n 3 --greedy --exact --kv f32 -q
        cmp -s "$work/out" "$work/greedy" || fail "$model: a GPU says something else"
    done
fi
exit $((failures != 0))
