#!/usr/bin/env bash
# sol schema: every command's --json, and every configuration file, is what its schema says (schemas.py). A new field
# fails here until the schema knows it.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
export XDG_CACHE_HOME=$work/cache HOME=$work GIT_CONFIG_NOSYSTEM=1
data=$SOL_SOURCE_DIR/tests/data
tiny="-m synth:tiny -t 1 -q"
cd "$work" || exit 1
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }

# ---- sol schema ----
run 0 schema
has out '^bench +What sol bench'
run 2 schema benhc
has err "did you mean 'bench'"
run 2 schema bench runs
run 0 schema --json
cp out schemas.json
for file in "$SOL_SOURCE_DIR"/schemas/*.json; do
    name=$(basename "$file" .json)
    run 0 schema "$name"
    cmp -s out "$file" || fail "sol schema $name is not schemas/$name.json"
done
is "schemas" "$(grep -c '"name":' schemas.json)" "$(find "$SOL_SOURCE_DIR/schemas" -name '*.json' | wc -l)"

# ---- --json is everywhere ----
run 0 --help
for command in $(sed -n 's/^  \([a-z]*\)  .*/\1/p' out); do
    case $command in help | version | mcp | serve) continue ;; esac # README says why
    run 0 "$command" --help
    has out '^ +--json '
done
run 2 tok decode --json
run 0 runs --json
cp out list
run 0 runs -o json
cmp -s out list || fail "--json is not what -o json is"

# the keys that sol opt reads, and that its schema names
run 0 schema sol-opt
for key in $(sed -n 's/^    {"\([a-z_]*\)", FIELD_.*/\1/p' "$SOL_SOURCE_DIR/src/opt/config.c"); do
    has out "\"$key\": \\{"
done

command -v python3 >/dev/null || { echo "skipped: no python3"; exit $((failures > 0)); }
python3 -c 'from jsonschema import Draft202012Validator' 2>/dev/null || {
    echo "skipped: no python3-jsonschema (tools/setup test installs it)"
    exit $((failures > 0))
}

# keep SCHEMA [FILE]: what was printed last, or a file, is to be of this schema
mkdir made
count=0
keep() {
    count=$((count + 1))
    cp "${2:-out}" "made/$1@$count.json"
}
# json SCHEMA STATUS ARGUMENT...
json() {
    local name=$1
    shift
    local status=$1
    shift
    case $1 in
    profile) run "$status" "$1" --json "${@:2}" ;; # before the command that is profiled
    *) run "$status" "$@" --json ;;
    esac
    printf 'sol %s\n' "$*" >"made/$name@$((count + 1)).txt"
    keep "$name"
}

keep schema schemas.json

# ---- a model on the processor ----
echo "a text of some length" >text
# shellcheck disable=SC2086 # words, here and below
{
    json bench 0 bench $tiny -p 4 -n 2 -r 5 --ops --no-limits --label first --ratings <(echo '[{"device": "", "metric": "tg",
        "baseline": 1, "good": 2, "excellent": 3}]')
    json bench 0 bench $tiny -p 4 -n 2 -r 2 --starts 2 --ops --no-limits --npl 2 --force rmsnorm=reference
    json bench 0 bench $tiny -p 0 -n 2 -r 1 --ops --no-store
    json bench-op 0 bench --op rmsnorm:m=3,check=reference --op gemm:m=2,n=64,k=64,groups=4,top_k=2
    json run 0 run -t 1 -q -p "Once upon" -n 4
    json run 0 run -m synth:tiny -t 1 -q --random-tokens 4 -n 4
    json run 0 run -t 1 -q -p "Ha! Ha! Ha! Ha!" -n 4 --draft 2
    json perplexity 0 perplexity -m synth:tiny --random-tokens 40 -c 16 -q -t 1 --kl
    json perplexity 0 perplexity -m synth:tiny --random-tokens 40 -c 16 -q -t 1 --llama
    json perplexity 0 perplexity -m synth:tiny --random-tokens 40 -c 16 -q -t 1 --kl --same-experts
    json eval 0 eval -m "$SOL_SOURCE_DIR/tests/data/hf_tiny" --core "$SOL_SOURCE_DIR/tests/data/core_tasks" -f "$SOL_SOURCE_DIR/README.md" \
        -c 256 -q -t 1
    json eval 0 eval -f text -c 64 -q -t 1
    json profile-model 0 profile -m synth:tiny -t 1 -p 4 -n 2 -d 0,16 -r 1 -q --label own
    json profile-model 0 profile -m synth:tiny -t 1 -p 4 -n 2 -d 0 -r 1 -q --no-limits --layers --no-store
    json device 0 device --seconds 0.0001 -q
    json device-known 0 device --known
    json kernels 0 kernels
    json kernels 0 kernels -m synth:tiny --explain --rows 1,2
    json kernels 0 kernels -m synth:tiny
    json verify 0 verify --op gemm --op rmsnorm --brief --rounds 1
    json gemm-check 0 gemm check --quick -q
    json gemm-bench 0 gemm bench --shape 'm=3,0;n=8;k=16' -q -t 1
    json gemm-bench 0 gemm bench --shape 'm=3;n=8;k=16' -q -t 1 --no-limits --no-store
    json gemm-bench 0 gemm bench --shape 'm=3,0;n=8;k=16' -q -t 1 --no-limits --no-store --profile
    json tune 0 tune -m synth:tiny,layers=1 -t 1 --rows 1 --budget 1 -q
    keep tuning cache/sol/tuning.json
    json tune 0 tune -m synth:tiny,layers=1 -t 1 --rows 1 --dry-run -q
    json tune-clear 0 tune --clear -t 1
}
keep tuning "$SOL_SOURCE_DIR/src/ops/tuning_shipped.json"
# a hub of this machine
mkdir -p hub/me/tiny
cp "$SOL_SOURCE_DIR/models/builtin.gguf" hub/me/tiny
python3 "$SOL_SOURCE_DIR/tests/hub_server.py" hub ready &
hub=$!
until_ "no server" [ -f ready ]
export HF_ENDPOINT=http://127.0.0.1:$(cat ready) HF_HUB_CACHE=$work/models
json pull 0 pull me/tiny
json pull 0 pull --list me/tiny
kill $hub
# a server of this machine, and one that fails
for fault in "" fault=cut; do
    rm -f ready
    python3 "$SOL_SOURCE_DIR/tests/load_server.py" ready ttft=2 itl=1 after=6 every=2 $fault &
    server=$!
    until_ "no server" [ -f ready ]
    json bench-serve 0 bench --serve "http://127.0.0.1:$(cat ready)" --lengths random:80,5 --concurrency 2 --rate 50 \
        --requests 6 --ttft-limit 100 -q --label served
    kill $server
    rm ready
done
json ratings 0 ratings --all
echo '[{"device": "x", "metric": "tg", "baseline": 1, "good": 2, "excellent": 3}]' >ratings.json
keep ratings ratings.json
json ratings 0 ratings ratings.json --device x
json model-info 0 model info -m synth:tiny --tensors --keys
json model-written 0 model synth --like tiny,layers=1 -o tiny.gguf
json model-info 0 model info -m tiny.gguf --tensors --keys
json model-check 0 model check -m tiny.gguf
printf '\377\377\377\377\377\377\377\377' | dd of=tiny.gguf bs=1 seek=$(($(stat -c %s tiny.gguf) - 8)) conv=notrunc status=none
json model-check 4 model check -m tiny.gguf
json model-fit 0 model fit --like gpt-oss-20b --device-memory 40
json model-fit 0 model fit -m synth:tiny
json scale 0 scale -m synth:gpt-oss-20b,layers=2 -n 4 --step-ms 1 --device H200
json scale 0 scale --depth 2 --step-ms 9 --device H200 --gpus 1,16
json tok 0 tok encode text
json tok 0 tok encode --count text
json tok-train 0 tok train --vocab-size 258 -o words.json text

echo '{"messages": [{"role": "user", "content": "a"}]}' >talk.json
json chat-render 0 chat render talk.json
cp out ids.json
json chat-parse 0 chat parse ids.json
json chat-parse 0 chat parse --steps ids.json
echo '{"ids": [4, 5, 6]}' >ids.json
json chat-parse 0 chat parse --steps --role user ids.json

each() { # SCHEMA FILE: every line of it
    while IFS= read -r line; do
        printf '%s\n' "$line" >line
        keep "$1" line
    done <"$2"
}
for end in "-n 12" "-n 40 --thinking 3" "-n 12 --draft 4"; do
    # shellcheck disable=SC2086 # meant to split
    run 0 chat -p "The old man" $end --json -q
    cp out lines
    each chat lines
done
# what is saved on a terminal: the text before the first NUL
python3 - "$SOL_BINARY" chat -n 12 -t 1 --system Hm. <<'PY' || fail "a chat on a terminal"
import os, pty, sys
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
os.write(fd, b"Who are you?\n/save talk.session\n/quit\n")
while True:
    try: more = os.read(fd, 65536)
    except OSError: break
    if not more: break
open("talk.text", "wb").write(open("talk.session", "rb").read().split(b"\0")[0])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PY
keep session talk.text

# ---- training ----
small="--depth 2 --aspect-ratio 16 --head-dim 16 --max-seq-len 32 --device-batch-size 2 -t 1 -q"
cp "$SOL_SOURCE_DIR/README.md" .
# shellcheck disable=SC2086
{
    json train-bench 0 train bench $small --vocab-size 64 --num-iterations 2 --warmup-steps 1
    json train-bench 0 train bench $small --vocab-size 64 --num-iterations 6 --recipe 2026-01 --optimizer none --recompute wide
    json tune 0 train tune $small --vocab-size 64 --budget 2 -q
    json train-bench 0 train bench $small --vocab-size 64 --num-iterations 1
    json train-bench-against 0 train bench $small --vocab-size 64 --num-iterations 2 --against matmul=reference \
        --against precision=bf16
    for packing in stream bestfit; do
        run 0 train $small -d README.md --tokenizer words.json --total-batch-size 64 --num-iterations 2 --eval-every 1 \
            --packing $packing -o $packing --json --sample-every 1 --core "$SOL_SOURCE_DIR/tests/data/core_tasks" --core-metric-every 1 --prompt $'\377'
        cp out lines
        each train-step lines
        # updates; evaluations; CORE and samples after each update
        is "the log" "$(wc -l <$packing/log.jsonl)" $((2 + 3 + 2 * (1 + 8)))
        each train-step $packing/log.jsonl
        keep train-checkpoint $packing/step_000002/train.json
    done
    run 0 train $small -d README.md --tokenizer words.json --total-batch-size 64 --num-iterations 1 --arch gpt-oss \
        --width 32 -o oss
    keep train-checkpoint oss/step_000001/train.json
    json train-bench 0 train bench $small --vocab-size 64 --num-iterations 2 --arch gpt-oss --width 32
}
cp -r "$SOL_SOURCE_DIR/tests/train_replay/july_own" replayed
json train-replay 0 train replay replayed -q
keep train-replay-config replayed/config.json

# names that are no UTF-8: the fields stay
odd=$(printf 'odd \377')
json model-written 0 model synth --like tiny,layers=1 -o "$odd.gguf"
json model-info 0 model info -m "$odd.gguf" --keys
json model-check 0 model check -m "$odd.gguf"
json tok-train 0 tok train --vocab-size 258 -o "$odd.json" text
cp "$data/import/nvbench.json" "$odd.json"
json import 0 import "$odd.json"
json report 0 report last -o "$odd.html"
run 0 runs delete last

# ---- stored runs ----
json import 0 import "$data/import/llama_bench_new.json" "$data/import/nvbench.json"
json import 0 import --label counted "$data/import/ncu_raw.csv"
json advise 0 advise counted
json runs 0 runs
json runs-show 0 runs show first
json runs-show 0 runs export own
json runs-show 0 runs show counted
json runs-label 0 runs label first first
json advise 0 advise own
json advise-rules 0 advise --rules
json advise 0 advise "$data/trace"
json advise-what-if 0 advise own --what-if attention=0.5 --what-if gap=0
json advise-what-if 0 advise "$data/trace" --what-if attention=0.5
json compare-roles 0 compare --roles own "$data/trace"
run 0 bench $tiny -p 4 -n 2 -r 5 --ops --no-limits --label second
json compare 12 compare first second
json runs-show 0 runs show last
json compare 10 compare --live 'echo a; sleep 0.4' 'echo a' --max-pairs 6 --same-output
json compare 7 compare --live 'echo a' 'echo b' --max-pairs 6 --same-output
json compare-calibrate 0 compare --calibrate "echo '{\"n_gen\": 1, \"samples_ns\": [5, 5]}'"
json report 0 report first -o r.html
json report 0 report --history -o h.html
json runs-delete 0 runs delete second

# ---- other programs: the driver's call and the buffers are as with a GPU ----
mkdir bin
cat >bin/ncu <<SH
#!/bin/sh
while [ \$# -gt 0 ]; do
    [ "\$1" = --log-file ] && cp "$data/import/ncu_raw.csv" "\$2"
    shift
done
SH
chmod +x bin/ncu
PATH=$work/bin:$PATH json advise 0 profile --counters full -- true
if [ -x "${SOL_FAKE_APP:-}" ]; then
    export SOL_CUPTI=$SOL_FAKE_CUPTI
    profile() { run 0 profile --json --report report "$@" -- sh -c "'$SOL_FAKE_APP' 100 >/dev/null 2>&1; true"; }
    profile --label traced --expect gemm_bf16=1/token --manifest manifest.json --learn
    keep profile report
    keep manifest manifest.json
    profile --no-store --level graph
    keep profile report
    json runs-show 0 runs show traced
    json advise 0 advise traced
    json advise 13 advise traced --forbid gemm
    json advise-what-if 0 advise traced --what-if gemm_bf16=1.375
fi
cat >manifest2.json <<'JSON'
{"format": "sol manifest", "version": 1, "kernels": [{"match": "gemm|matmul", "count": 1}, {"kernel": "softmax"}],
 "forbid": ["dequantize"], "max_share": [{"match": "copy", "share": 0.2}]}
JSON
keep manifest manifest2.json
if [ -d "${SOL_FAKE_GPU:-}" ]; then
    gpu="env LD_LIBRARY_PATH=$SOL_FAKE_GPU"
    with_gpu() { LD_LIBRARY_PATH=$SOL_FAKE_GPU json "$@"; }
    with_gpu device-gpu 0 device --backend cuda --seconds 0.0001 -q
    SOL_NVML=$work/none with_gpu device-gpu 0 device --backend cuda -q
    SOL_NCCL=$SOL_FAKE_NCCL with_gpu device-gpus 0 device --gpus 2 --most 1 --seconds 0.0001 -q
    with_gpu device 0 device -q
    with_gpu bench 0 bench --backend cuda -m synth:tiny -p 8 -n 4 -r 5 --ops -q
    with_gpu runs-show 0 runs show last
    with_gpu profile-model 0 profile --backend cuda -m synth:tiny -p 4 -n 2 -d 0 -r 1 -q --no-limits --no-store
fi

# ---- iterations ----
if command -v git >/dev/null; then
    mkdir tree && cd tree || exit 1
    git init -q && git config user.email t@example.org && git config user.name t
    printf '#!/bin/sh\necho took 300\n' >slow && chmod +x slow && git add -A && git commit -qm first
    in_tree() { # STATUS ARGUMENT...
        (cd "$work/tree" && "$SOL_BINARY" opt "${@:2}" --json) >"$work/out" 2>"$work/err" </dev/null
        local got=$?
        [ $got = "$1" ] || fail "sol opt ${*:2}: status $got, expected $1"
        (cd "$work" && printf '%s\n' "sol opt ${*:2}" >"made/opt@$((count + 1)).txt")
        cd "$work" && keep opt
    }
    in_tree 0 status
    in_tree 0 init --preset make --build true --benchmark ./slow --metric 'regex:took ([0-9]+)' --correctness true
    keep sol-opt tree/sol-opt.json
    in_tree 0 status
    in_tree 0 start "sleep less" --predict 50% --rule distance
    printf '#!/bin/sh\necho took 200\n' >tree/slow
    in_tree 0 benchmark -q
    in_tree 2 accept -q
    in_tree 10 compare -q --max-pairs 8
    in_tree 0 status
    in_tree 0 accept -q
    in_tree 0 start "sleep more"
    printf '#!/bin/sh\necho took 500\n' >tree/slow
    in_tree 0 record --note "slower"
    in_tree 0 history last
    in_tree 0 revert
    in_tree 0 restore
    in_tree 0 revert
    in_tree 0 history --all
    in_tree 0 summary
    in_tree 2 start
fi
cd "$work" || exit 1
python3 "$SOL_SOURCE_DIR/tests/schemas.py" examples made "$SOL_SOURCE_DIR" || fail "examples of the documents"
for preset in sol llama.cpp make; do
    (cd tree && "$SOL_BINARY" opt init --preset $preset --force >/dev/null 2>&1 && cp sol-opt.json "$work/out") && keep sol-opt
done

# ---- sol mcp ----
python3 "$SOL_SOURCE_DIR/tests/schemas.py" calls made "$SOL_BINARY" mcp --allow-commands <<'CALLS' || fail "sol mcp"
bench {"model": "synth:tiny", "prompt": [4], "generate": [2], "repetitions": 3, "no_limits": true, "ops": true}
run_show {"run": "last"}
gemm_check {"quick": true}
gemm_bench {"shapes": ["m=8,24;n=64;k=64", "m=3;n=8;k=16"], "type": "mxfp4", "results": "bf16", "gated": true, "no_limits": true, "profile": true}
runs {}
kernels {}
advise {"run": "own"}
compare {"old": "first", "new": "last"}
advise {"run": "none"}
compare_live {"old": "sleep 9", "new": "sleep 9", "max_seconds": 0.3}
profile_command {"command": ["false"]}
more {"id": "none"}
CALLS

[ -z "${KEEP_MADE:-}" ] || cp -r made "$KEEP_MADE"
python3 "$SOL_SOURCE_DIR/tests/schemas.py" check made "$SOL_SOURCE_DIR" || fail "schemas"
[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
