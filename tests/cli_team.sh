#!/usr/bin/env bash
# Several GPUs that share a model, as commands offer it: on the processor, where --gpus means parts of its cores, and on
# emulated cards (tests/emulate) with an NCCL whose ranks are threads.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
text=$SOL_SOURCE_DIR/tests/data/heldout.txt
exact="--exact --kv f32"
small="-m synth:small --random-tokens 24 -n 8 --greedy -q"

lacks() { ! grep -qE -- "$2" "$work/$1" || fail "'$2' in $1"; }

# ---- the same tokens, each time the same bits ----
# shellcheck disable=SC2086 # words
{
    run 0 run $small $exact
    mv "$work/out" one
    for gpus in 2 4; do
        run 0 run $small $exact --gpus $gpus
        is "tokens of $gpus" "$(cat "$work/out")" "$(cat one)"
    done
    run 0 run $small $exact --gpus 5 --expert-parallel
    is "tokens of five with whole experts" "$(cat "$work/out")" "$(cat one)"
    run 0 run $small --gpus 1
    mv "$work/out" rounded
    run 0 run $small --gpus 3 --pipeline-parallel # the same sums, whatever is rounded
    is "tokens of three with whole layers" "$(cat "$work/out")" "$(cat rounded)"
    run 0 run -m builtin -p 'one two one two one' -n 12 --greedy -q --draft 4 --gpus 1
    mv "$work/out" guessed
    run 0 run -m builtin -p 'one two one two one' -n 12 --greedy -q --draft 4 --gpus 2 --pipeline-parallel
    is "guesses with whole layers" "$(cat "$work/out")" "$(cat guessed)"
    run 0 run -m builtin -p 'Once upon a time' -n 8 --greedy -q --gpus 2 --json
    has out '"gpus": 2,'
    lacks out 'expert_parallel|own_experts'
    has out '"op": "all_reduce"'
    run 0 perplexity -f "$text" --limit 64 -q --json $exact --gpus 2 --kl-one
    has out '"kl_max": (0\.0|[0-9.]+e-(0[7-9]|1[0-9])),'
    has out '"same_top": 1\.0'
}
# shellcheck disable=SC2086 # words
run 0 perplexity -f "$text" --limit 64 -q --json $exact --gpus 2 --kl-one --expert-parallel
has out '"kl_max": (0\.0|[0-9.]+e-(0[7-9]|1[0-9])),'
has out '"expert_parallel": true'
has out '"op": "own_experts"'
run 0 perplexity -f "$text" --limit 200 -q --json --gpus 2 --kl-one --pipeline-parallel
has out '"kl_max": 0\.0,'
has out '"pipeline_parallel": true'
has out '"op": "send_recv"'
run 0 verify --brief --rounds 1 --op join_columns --gpus 2 # the op alone
lacks out 'shared by'
run 0 bench -m synth:small -p 8 -n 2 -r 1 --no-limits --no-store -q --gpus 2 --json
is "proved" "$(grep -c '"proved": true' "$work/out")" 2
has out '"gpus": 2'
run 0 bench -m synth:small -p 8 -n 2 -r 1 --no-limits --no-store -q --gpus 2 --expert-parallel --json
is "proved with whole experts" "$(grep -c '"proved": true' "$work/out")" 2
has out '"expert_parallel": true'
run 0 bench -m synth:small -p 100 -n 2 -r 1 --no-limits --no-store -q --gpus 2 --pipeline-parallel --json
is "proved with whole layers" "$(grep -c '"proved": true' "$work/out")" 2
has out '"pipeline_parallel": true'
# What ranks cost each other is one figure: of the profile, what is kept, advice and page.
run 0 profile -m synth:tiny -p 8 -n 2 -d 0 -r 1 --no-limits -q --gpus 2 --store "$work/store" --json --trace trace.json
cp "$work/out" profile.json
run 0 runs show last --store "$work/store" --json
cp "$work/out" shown.json
run 0 advise last --store "$work/store" --json
python3 - profile.json shown.json "$work/out" trace.json <<'PY' || fail "the profile of two ranks: $(cat profile.json)"
import json, sys
def same(a, b): # a store keeps ten digits
    if isinstance(a, dict): return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list): return len(a) == len(b) and all(map(same, a, b))
    return abs(a - b) <= 1e-8 * abs(a) if isinstance(a, float) else a == b
profile, shown, advice, trace = (json.load(open(p)) for p in sys.argv[1:])
assert profile["gpus"] == shown["payload"]["gpus"] == 2
names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
assert sum(n.startswith("rank ") for n in names) == 2, names
for phase, kept in zip(profile["phases"], shown["payload"]["records"]):
    c = phase["communication"]
    assert c["ranks"] == 2 and len(c["each"]) == 2 and same(c, kept["communication"])
    assert 0 < c["exposed_ns"] <= 1.01 * c["window_ns"] and abs(c["waiting_ns"] + c["moving_ns"] - c["exposed_ns"]) < 1, c
    # A rank runs one thing at a time, so all of it is exposed, and so much its kernels took.
    sums = sum(k["ns_per_token"] for k in phase["kernels"] if k["op"].startswith("all_"))
    assert abs(sums - c["exposed_ns"]) <= 0.02 * sums, (sums, c)
    found = [a for a in advice["advice"] if a["rule"] == "exposed" and a["subject"] == phase["metric"]]
    assert (not found and c["exposed_share"] < 0.03) or same(found[0]["ceiling_ns"], float(min(c["exposed_ns"], c["window_ns"]))), found
    assert not any(a["rule"] == "distance" and "all_" in a["subject"] for a in advice["advice"])
PY
# Across counts of GPUs: what each GPU does stands beside the ratio, and what two cost each other.
run 0 profile -m synth:tiny -p 8 -n 2 -d 0 -r 1 --no-limits -q --store "$work/store" --label alone
python3 - "$work/store" "$SOL_BINARY" profile.json <<'PY' || fail "one and two ranks compared"
import json, subprocess, sys
store, sol, profile = sys.argv[1:]
two = json.load(open(profile))
said = subprocess.run([sol, "compare", "alone", two["run"], "--store", store, "-o", "json"], stdout=subprocess.PIPE)
c = json.loads(said.stdout)
assert {"what": "gpus", "old": "1", "new": "2", "machine": False} in c["differences"], c["differences"]
for m, phase in zip(c["metrics"], two["phases"]):
    assert m["name"] == phase["metric"] and (m["gpus_old"], m["gpus_new"]) == (1, 2), m
    assert abs(m["speed_up"] - m["new"] / m["old"]) < 1e-6 * m["speed_up"] and abs(m["efficiency"] * 2 / m["speed_up"] - 1) < 1e-6, m
    assert abs(m["exposed_ns_new"] / phase["communication"]["exposed_ns"] - 1) < 1e-6 and m["exposed_ns_old"] is None, m
PY
printf 'Hello' | "$SOL_BINARY" chat --gpus 2 -n 3 -q >"$work/out" 2>"$work/err" || fail "chat --gpus 2"

# ---- sizes ----
run 0 model fit --like gpt-oss-120b --gpus 2 --device-memory 48
has out 'of each of 2'
run 6 model fit --like gpt-oss-120b --device-memory 48
run 0 model fit --like gpt-oss-120b --gpus 2 --expert-parallel --device-memory 48
run 0 model fit --like gpt-oss-120b --gpus 2 --pipeline-parallel --device-memory 48
has out 'steps of 8192 tokens'
run 2 model fit --like gpt-oss-120b --expert-parallel
has err '--expert-parallel goes with --gpus'

# ---- refusals ----
run 5 run -m synth:tiny --random-tokens 3 -n 1 --gpus 3
has err 'cannot be shared by 3 ranks: it has 2 heads of keys; at most 2 are possible'
run 2 run --gpus 2 --backend auto -p x -n 1
has err '--gpus 2 wants --backend cuda, cuda:N or cpu'
run 2 perplexity -f "$text" --kl-one
has err '--kl-one goes with --gpus'
run 2 run --gpus 0 -p x
run 2 run --expert-parallel -p x -n 1
has err '--expert-parallel goes with --gpus'
run 2 run --pipeline-parallel -p x -n 1
has err '--pipeline-parallel goes with --gpus'
run 2 run --pipeline-parallel --expert-parallel --gpus 2 -p x -n 1
has err 'which of the two'
run 2 serve --pipeline-parallel --gpus 8 --copies 9 --port 0
has err '64 parts are possible'
run 2 serve --copies 2 --expert-parallel --port 0
has err '--expert-parallel goes with --gpus'
run 5 run -m synth:gpt-tiny --random-tokens 3 -n 1 --gpus 2 --expert-parallel
has err 'has no experts that ranks could share'

# ---- a server, whose answers are those of one ----
serve() { # FLAGS: two texts at once, what came of them on stdout
    rm -f served
    # shellcheck disable=SC2086 # words
    "$SOL_BINARY" serve --port 0 --responses none --parallel 2 -c 256 $exact "$@" >served 2>"$work/err" &
    local server=$! address
    for _ in $(seq 200); do
        address=$(sed -nE 's/^listening on //p' served 2>/dev/null)
        [ "$address" ] && break
        sleep 0.1
    done
    python3 - "$address" <<'PYTHON'
import json, sys, threading, urllib.request

def ask(prompt, into):
    body = json.dumps({"prompt": prompt, "max_tokens": 6, "temperature": 0}).encode()
    request = urllib.request.Request(sys.argv[1] + "/v1/completions", body, {"Content-Type": "application/json"})
    into[prompt] = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"]

texts = {}
threads = [threading.Thread(target=ask, args=(prompt, texts)) for prompt in ("Once upon a time", "The cat")]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(texts, sort_keys=True))
PYTHON
    kill -TERM $server
    wait $server
    is "the server's end" $? 0
}
if command -v python3 >/dev/null && "$SOL_BINARY" serve --port 0 -m nothing.gguf 2>&1 </dev/null | grep -qv 'install libmicrohttpd12'; then
    serve --gpus 1 >of_one
    serve --gpus 2 >of_two
    serve --gpus 2 --pipeline-parallel >of_layers
    grep -q '2 batches on their way' served || fail "one batch alone in a pipeline: $(cat served)"
    is "answers of two with whole layers" "$(cat of_layers)" "$(cat of_one)"
    is "answers of two" "$(cat of_two)" "$(cat of_one)"
    grep -q 'Once upon' of_two || fail "no answers: $(cat of_two)"
fi

# ---- emulated cards ----
if [ -z "${SOL_EMULATED_GPU:-}" ]; then exit $((failures != 0)); fi
# What emulated cards cannot run (clusters) is composed. The third token comes from a graph, where nothing of a library is.
card="--backend cuda --force attn_out=composed --force attn_add=composed --force attn_route=composed
    --force moe=moe_row_cuda:single"
few="-m synth:small,layers=1 --random-tokens 5 -n 4 --greedy -q $exact"
library="--force all_reduce_add=composed --force all_reduce=all_reduce_nccl_cuda --force all_gather=all_gather_nccl_cuda"
tiles="--force all_reduce_add=all_reduce_add_tiles_cuda"
# shellcheck disable=SC2086 # words
{
    gpus 1 0 run $few $card
    mv "$work/out" one
    nccl=/nonexistent gpus 3 0 run $few $card --gpus 3
    is "tokens of three cards" "$(cat "$work/out")" "$(cat one)"
    nccl=/nonexistent gpus 3 0 run $few $card --gpus 3 --expert-parallel
    is "tokens of three cards with whole experts" "$(cat "$work/out")" "$(cat one)"
    gpus 2 0 run $few -n 2 $card $library --gpus 2
    is "tokens of two cards by NCCL" "$(cat "$work/out")" "$(cut -d ' ' -f 1,2 one)"
    gpus 1 0 run $few -n 2 $card -m synth:small,layers=2
    mv "$work/out" two_layers
    gpus 2 0 run $few -n 2 $card -m synth:small,layers=2 --gpus 2 --pipeline-parallel
    is "tokens of two cards with a layer each" "$(cat "$work/out")" "$(cat two_layers)"
    gpus 2 0 run $few $card $tiles --gpus 2 # parts rounded to bf16 change none of them
    is "tokens of two cards by tiles" "$(cat "$work/out")" "$(cat one)"
    gpus 2 5 run $few $card --gpus 3
    has err 'GPU'
    FAKE_NCCL=fails gpus 2 8 run $few $card $library --gpus 2
    has err 'NCCL'
}

# ---- which sums are taken: many rows by tiles, but in float32; on GPUs whose launches do nothing ----
# shellcheck disable=SC2086 # words
{
    large="bench -m synth:small -p 1500 -n 1 -r 1 --no-limits --no-store -q --json --backend cuda --gpus 2"
    for flags in "" --exact; do
        LD_LIBRARY_PATH=$SOL_FAKE_GPU FAKE_CUDA_DEVICES=2 FAKE_CUDA_MAJOR=9 SOL_NCCL=$SOL_FAKE_NCCL run 0 $large $flags
        has out all_reduce_add_one_shot_cuda
        if [ "$flags" ]; then lacks out all_reduce_add_tiles_cuda; else has out all_reduce_add_tiles_cuda; fi
    done
    has out all_reduce_nccl_cuda
}
exit $((failures != 0))
