#!/usr/bin/env bash
# sol scale: predictions without a GPU, from figures that are given and from runs of the store.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
large="-m synth:gpt-oss-120b --device H200"

lacks_out() { ! grep -qE -- "$1" "$work/out" || fail "'$1' in out"; }
value() { python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$work/out" "$1"; }

# ---- what is given ----
# shellcheck disable=SC2086 # words
{
    run 0 scale $large --step-ms 2 --gpus 1,2,8
    has out '^1 +one +2 .* 500 .*100 .*both'
    has out 'shared by 8'
    has out 'not built'
    has out '120b, 32 sequences +4 .*[+]37[.]8 [*] .*[+]0[.]3 '
    run 0 scale $large --step-ms 2 --gpus 1024
    has out '^1024 .*16 stages, 64 copies.* not built'
    has out '^not checked: '
    run 0 scale $large --step-ms 2 --gpus 1,4 --json
    is "one" "$(value 'd["counts"][0]["ways"][0]["step_ms"]')" 2.0
    is "two sums a layer" "$(value '[m["calls"] for a in d["accounts"] if a["ranks"] == 4 for m in a["messages"] if m["op"] == "all_reduce_add"]')" "[72.0]"
    is "copies" "$(value 'd["counts"][1]["ways"][d["counts"][1]["most"]]["data"]')" 4
    # all of it sooner where links and adapters are, later where they are not
    run 0 scale $large --step-ms 2 --gpus 8 --gpus-per-node 2 --json
    is "no sharing between nodes" "$(value 'max(w["tensor"] for w in d["counts"][0]["ways"])')" 2
    run 0 scale $large -n 8 -p 64 -d 100 --tokens-per-s 900 --gpus 2
    has out 'steps of 8 sequences and 64 tokens of prompts'
    run 0 scale $large -p 5000 --tokens-per-s 30000 --gpus 2 -o csv
    has out '^GPUs,way,'
    run 0 scale --depth 4 --device H200 --tokens-per-s 1e6 --gpus 1,64,1024
    has out '1024 copies'
    run 0 scale --depth 4 --device H200 --step-ms 50 --update-ms 10 --total-batch-size 524288 --gpus 8
}

run 0 scale -m synth:tiny --device H200 --step-ms 1 --op-us attention=500 --op-us head=2
run 2 scale -m synth:tiny --device H200 --step-ms 1 --op-us attention
has err 'OP=MICROSECONDS'
run 0 scale -m synth:tiny --device H200 --step-ms 1 --part-ms 2=0.7 --gpus 2 --json
is "a part's time" "$(value '[(w["compute_ms"], w["part_measured"]) for w in d["counts"][0]["ways"] if w["tensor"] == 2]')" "[(0.7, True)]"
run 2 scale --depth 4 --device H200 --step-ms 50 --part-ms 2=1
has err 'for a model that runs'
run 0 scale -m synth:tiny --device H200 --step-ms 1 --part-ms 3=0.7 --gpus 2
lacks_out 'measured too'
run 2 scale -m synth:tiny --device H200 --step-ms 1 --part-ms 1=2
has err 'GPUS=MILLISECONDS'

# ---- runs of the store: of the processor, taken for a GPU that a file describes ----
run 0 bench -m synth:tiny -t 1 -p 8 -n 4 -r 2 --ops --no-limits -q
run 2 scale -m synth:tiny
has err 'is not among the GPUs'
device=$("$SOL_BINARY" runs --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["runs"][0]["device"])')
python3 -c 'import json,sys; json.dump([{"name": "here", "match": sys.argv[1], "memory_gib": 1, "memory_gb_s": 1e5, "tflops": {"bf16": 1e4, "f32": 1e4}}], open("devices.json", "w"))' "$device"
run 0 scale -m synth:tiny --descriptions devices.json --gpus 1,2
has out '^its step .* run b'
has out '^calls .* of which each takes'
run 0 scale -m synth:tiny -p 8 --descriptions devices.json --gpus 1
run 0 bench -m synth:tiny -t 1 -p 8 -n 4 -r 2 --no-limits -q --part-of 2 --json
is "proved" "$(grep -c '"proved": true' "$work/out")" 2
has out '"part_of": 2'
run 0 scale -m synth:tiny --descriptions devices.json --gpus 2
has out "^its step .* run b.*measured too: a GPU's part of 2"
run 0 scale -m synth:tiny -p 8 --descriptions devices.json --gpus 2
has out "measured too: a GPU's part of 2"
run 0 bench -m synth:tiny -t 1 -p 8 -n 4 -r 2 --no-limits -q --part-of 2 --expert-parallel --json
has out '"expert_parallel": true'
run 0 bench -m synth:tiny -t 1 -p 64 -n 4 -r 2 --no-limits -q --part-of 2 --pipeline-parallel
run 0 bench -m synth:tiny -t 1 -p 64 -n 0 -r 2 --no-limits -q
run 0 scale -m synth:tiny -p 64 --descriptions devices.json --gpus 2
lacks_out 'measured too'
run 2 scale -m synth:tiny -p 64 -b 32 --descriptions devices.json --gpus 2
has err ' -b 32 '
advice=$(sed -nE 's/.*measure it with sol (bench .* --ops), or .*/\1/p' "$work/err")
# shellcheck disable=SC2086 # the words that were printed
run 0 $advice -t 1 -r 2 --no-limits -q
run 0 scale -m synth:tiny -p 64 -b 32 --descriptions devices.json --gpus 2
run 2 bench -m synth:tiny -p 8 -n 0 --gpus 2 --part-of 2
has err 'leave that out'
run 5 bench -m synth:tiny -p 8 -n 0 --part-of 3 --no-store
run 2 scale -m synth:tiny -p 9 --descriptions devices.json --gpus 1
has err 'sol bench -m synth:tiny -n 0 -p 9'
run 2 scale -m synth:tiny -n 3 --descriptions devices.json
has err '--npl 3'

# ---- links from a file ----
echo '{"links": {"gpus": 2}}' >links.json
run 4 scale -m synth:tiny --device H200 --step-ms 1 --links links.json
has err 'links.json: no links and collectives'
run 3 scale -m synth:tiny --device H200 --step-ms 1 --links missing.json
"$SOL_BINARY" scale -m synth:tiny --device H200 --step-ms 1 --json >known.json
python3 - <<'END'
import json
n = json.load(open("known.json"))["network"]
lines = [{**c, "ns": {"median": 1000 * c["ns"]}} for c in n["collectives"]]
json.dump({"links": {"gpus": 2, "link_gb_s": 1, "pairs": [{"one_way_ns": 9}], "collectives": lines}}, open("slow.json", "w"))
END
# shellcheck disable=SC2086 # words
{
    run 0 scale $large --step-ms 2 --gpus 2 --json
    fast=$(value 'd["counts"][0]["ways"][1]["messages_ms"]')
    run 0 scale $large --step-ms 2 --gpus 2 --json --links slow.json
    is "slow links" "$(value "round(d['counts'][0]['ways'][1]['messages_ms'] / $fast)")" 1000
}

# ---- refusals ----
run 2 scale
has err 'which model'
run 2 scale -m synth:tiny --depth 2
has err 'which model'
run 2 scale -m synth:tiny --step-ms 1
has err 'which GPU'
run 2 scale -m synth:tiny --step-ms 1 --device nothing
has err 'nothing is not among'
run 2 scale -m synth:tiny --step-ms 1 --tokens-per-s 1 --device H200
run 2 scale -m synth:tiny --step-ms 1 --device GB10
has err '--tflops'
run 2 scale -m synth:tiny --step-ms 1 --device H200 --kv q8
run 2 scale -m synth:tiny --step-ms 1 --device H200 -p 100000
run 2 scale -m synth:tiny -n 4 -p 8 --device H200
has err '--step-ms'
run 2 scale --depth 2 --device H200
has err 'sol train bench'
run 2 scale --depth 4 --device H200 --step-ms 50 --total-batch-size 524288 --gpus 512
has err 'no whole micro-batches'
exit $((failures != 0))
