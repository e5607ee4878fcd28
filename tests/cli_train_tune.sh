#!/usr/bin/env bash
# sol train tune: what it lists, measures and keeps; that nothing is searched twice; what training makes of the record.
# Times are this machine's, so nothing is asked of who wins.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }
command -v python3 >/dev/null || { echo "no python3: nothing is tested"; exit 0; }
export XDG_CACHE_HOME=$work/cache SOL_NO_LIMITS=1
record=$work/cache/sol/tuning.json
small="--depth 1 --aspect-ratio 32 --head-dim 16 --max-seq-len 32 --device-batch-size 2 --vocab-size 64 -t 1"

# edit EXPRESSION: Python over `entries`, those of the record's first device, which is written again
edit() {
    python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); entries = r["devices"][0]["entries"]
exec(sys.argv[2]); json.dump(r, open(sys.argv[1], "w"))' "$record" "$1" || fail "edit: $1"
}
check() {
    python3 -c 'import json,sys; r = json.load(open("out")); assert eval(sys.argv[1]), sys.argv[1]' "$1" 2>err || fail "JSON: $1"
}
bench() { # OPTION...
    # shellcheck disable=SC2086 # words, here and below
    run 0 train bench $small --num-iterations 1 --warmup-steps 0 --no-store -q --json "$@"
}

# shellcheck disable=SC2086
{
    # ---- usage ----
    run 2 train tune $small --exact
    has err '^sol: error: --exact leaves nothing to choose from$'
    run 2 train tune $small --reference
    run 2 train tune $small --budget 0
    run 2 train tune nothing
    run 2 train tune --gpus 2 --backend cuda
    has err 'sol train tune is for one GPU; --gpus follow its record'
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 run 5 train tune $small
    has err 'sol train tune runs as one process'

    # ---- listed, not timed ----
    run 0 train tune $small --dry-run --wide
    has out '^micro-step +linear_cross_entropy +64 x f32 n=64 k=32 +1 +'
    has out '^[0-9]+ problems would be timed$'
    [ -e "$record" ] && fail "a dry run wrote a record"
    run 0 train tune $small --dry-run --optimizer none
    grep -q '^update' out && fail "an update is listed"

    # ---- measured once ----
    run 0 train tune $small --budget 0.001 -q
    has out ' [0-9]+ not reached'
    run 0 train tune $small -q --json
    check 'r["written"] and all(p["state"] in ("usual", "faster", "known") and p["usual_ns"] > 0 for p in r["problems"])'
    check '[s["step"] for s in r["steps"]] == ["micro-step", "update"] and r["model"] == "2026-07 d1"'
    count=$(python3 -c 'import json; print(len(json.load(open("out"))["problems"]))')
    cp "$record" first
    run 0 train tune $small -q --json
    check 'all(p["state"] == "known" and p["usual_ns"] > 0 for p in r["problems"])'
    is "problems" "$(python3 -c 'import json; print(len(json.load(open("out"))["problems"]))')" "$count"
    cmp -s first "$record" || fail "a search that found nothing new changed the record"
    run 0 train tune $small -q
    has out "^0 problems timed in 0 s: 0 served faster, 0 as usual, $count known from before"
    # what is missing is searched, and that alone
    edit 'entries.remove(next(e for e in entries if e["op"] == "linear_cross_entropy"))'
    run 0 train tune $small -q
    has out "^1 problems timed in .*, $((count - 1)) known from before"
    run 0 train tune $small -q --again --optimizer none --budget 0.001
    has out 'not reached$'
    # it stands beside what inference has
    run 0 tune -m synth:tiny,layers=2 -t 1 --rows 1 -q
    run 0 train tune $small -q
    has out '^0 problems timed'
}

# ---- what is recorded runs: another form of the loss than the usual one is said to be twice as fast ----
edit '[e.update(variant="cut", choice="", usual="chunked", usual_choice="64", ns=1, usual_ns=2) for e in entries
      if e["op"] == "linear_cross_entropy"]'
bench --no-tuning
check 'r["tuning"] is None and r["tuned"] == [] and not any(o["op"].startswith("cross_entropy_block") for o in r["ops"])'
cp out usual
edit '[e.update(variant=e["usual"], choice=e["usual_choice"]) for e in entries if e["op"] != "linear_cross_entropy"]'
edit '[e.update(choice="64") for e in entries if e["variant"] == "cut"]'
bench
check 'len(r["tuning"]) == 16 and any(o["op"] == "cross_entropy_block" for o in r["ops"])'
check '[(t["op"], t["kernel"], t["usual"], t["calls"]) for t in r["tuned"]] == [("linear_cross_entropy", "cut:64", "chunked:64", 1)]'
bench --force linear_cross_entropy=plain
check 'r["tuned"] == [] and not any(o["op"].startswith("cross_entropy_block") for o in r["ops"])'
for plain in --exact --reference --no-tuning; do
    bench $plain
    check 'r["tuning"] is None and r["tuned"] == []'
done
bench --device-batch-size 4 # other rows
check 'r["tuned"] == []'
bench -t 2 # another number of threads is another device
check 'r["tuning"] is None'
# a choice that does not serve the problem is none
edit '[e.update(choice="2048") for e in entries if e["variant"] == "cut"]'
bench
check 'all(t["kernel"] != "cut:2048" for t in r["tuned"])'
edit '[e.update(choice="64") for e in entries if e["variant"] == "cut"]'

# a kernel of an op: named in the table, and in the line below it
pick='import json
ops = {o["op"]: o["variant"] for o in json.load(open("usual"))["ops"]}
print("avx2" if ops["rmsnorm"].endswith("_avx512") else "")'
if [ "$(python3 -c "$pick")" ]; then
    edit '[e.update(variant="rmsnorm_f32_avx2", ns=1, usual_ns=2) for e in entries if e["op"] == "rmsnorm"]'
    # shellcheck disable=SC2086
    run 0 train bench $small --num-iterations 1 --warmup-steps 0 --no-store -q --wide
    has out '^rmsnorm +rmsnorm_f32_avx2, tuned +exact '
    has out '^tuned: rmsnorm=rmsnorm_f32_avx2 instead of rmsnorm_f32_avx512, [0-9]+ calls$'
    has out '^tuned: linear_cross_entropy=cut:64 instead of chunked:64, 1 call$'
fi

# ---- training and replay follow it; --exact has the bits that it had ----
mills text
run 0 tok train text --vocab-size 300 -o words.json
model="--depth 1 --aspect-ratio 32 --head-dim 16 --max-seq-len 32 --device-batch-size 2 --total-batch-size 64 -t 1"
# train FOLDER OPTION...
train() {
    # shellcheck disable=SC2086
    run 0 train $model -d text --tokenizer words.json --num-iterations 2 --eval-every -1 --sample-every -1 --no-store \
        -o "$1" "${@:2}"
}
same() { cmp -s "$1/step_000002/model.safetensors" "$2/step_000002/model.safetensors"; }
XDG_CACHE_HOME=$work/nothing train none
# shellcheck disable=SC2086
run 0 train tune $model --vocab-size "$(sed -nE 's/.* vocabulary ([0-9]+),.*/\1/p' out)" -q
edit '[e.update(variant="cut", choice="64", ns=1, usual_ns=2) for e in entries if e["op"] == "linear_cross_entropy"]'
train tuned
has out '^tuned: linear_cross_entropy=cut:64 instead of chunked:'
train usual_run --no-tuning
grep -q '^tuned' out && fail "--no-tuning is tuned"
same tuned usual_run && fail "the record changed nothing"
train exact --exact
mv "$record" kept
train exact_before --exact
mv kept "$record"
same exact exact_before || fail "a record changes what --exact gives"
same none usual_run || fail "--no-tuning is not what runs without a record"
cp -r "$SOL_SOURCE_DIR/tests/train_replay/july_own" replayed
run 0 train replay replayed -q --json -t 1
check 'r["tuned"] == []' # its sizes are others

# ---- a record changes no batch: what does not fit is left out ----
wide="--depth 1 --aspect-ratio 32 --head-dim 16 --max-seq-len 64 --vocab-size 8192 -t 1 --device-batch-size 24
    --optimizer none --num-iterations 1 --warmup-steps 0 --no-store -q"
edit 'e = next(e for e in entries if e["op"] == "linear_cross_entropy")
entries.append(dict(e, rows=1536, n=8192, k=32, to=1536, variant="plain", choice="", **{"from": 1536}))'
# shellcheck disable=SC2086
{
    run 0 train bench $wide --json --no-tuning
    memory=$(python3 -c 'import json; print((json.load(open("out"))["memory"]["all"] + 6e6) / 1e9)')
    run 6 train bench $wide --memory "$memory" --force linear_cross_entropy=plain
    run 0 train bench $wide --memory "$memory" --json
    has err 'what sol train tune found needs more memory than there is, and is left out'
    check 'r["tuning"] is None and r["tuned"] == []'
    run 0 train bench $wide --json
    check '[t["kernel"] for t in r["tuned"] if t["op"] == "linear_cross_entropy"] == ["plain"]'
}

# ---- ranks: all have rank 0's record, and one that only another rank has is none ----
if command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # ranks FOLDER CACHE CACHE OPTION...: two, each with a cache folder of its own
    ranks() {
        local flags="$model --device-batch-size 1 -d text --tokenizer words.json --num-iterations 2 --eval-every -1
            --sample-every -1 --no-store -o $1 ${*:4}"
        # shellcheck disable=SC2086
        ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 timeout 300 mpirun --oversubscribe --bind-to none \
            -n 1 env XDG_CACHE_HOME="$2" "$SOL_BINARY" train $flags : \
            -n 1 env XDG_CACHE_HOME="$3" "$SOL_BINARY" train $flags >out 2>err </dev/null || fail "ranks $*"
    }
    edit '[e.update(variant=e["usual"], choice=e["usual_choice"]) for e in entries]
[e.update(variant="cut", choice="64", ns=1, usual_ns=2) for e in entries if e["op"] == "linear_cross_entropy"]
entries.append(dict(next(e for e in entries if e["op"] == "linear_cross_entropy" and e["n"] > 300 and e["n"] < 8192),
    rows=32, to=32, **{"from": 32}))'
    ranks both "$work/cache" "$work/cache"
    has out '^tuned: linear_cross_entropy=cut:64 instead of '
    ranks first_only "$work/cache" "$work/nothing"
    has out '^tuned: linear_cross_entropy=cut:64 instead of '
    ranks second_only "$work/nothing" "$work/cache"
    grep -q '^tuned' out && fail "the record of rank 1 is followed"
    ranks neither "$work/nothing" "$work/nothing"
    ranks forced "$work/nothing" "$work/nothing" --force linear_cross_entropy=cut:64
    same first_only forced || fail "rank 1 does not do what the record of rank 0 says"
    same both first_only || fail "rank 1 does not follow the record of rank 0"
    same second_only neither || fail "rank 1 follows its own record"
    same both neither && fail "the record changes nothing with two ranks"
else
    echo "skipped: there is no mpirun of Open MPI (openmpi-bin)"
fi

# ---- a card ----
if [ -n "${SOL_EMULATED_GPU:-}" ]; then
    card="--depth 1 --head-dim 64 --aspect-ratio 64 --max-seq-len 16 --device-batch-size 1 --vocab-size 64 --optimizer none"
    # shellcheck disable=SC2086
    {
        gpus 1 0 train tune $card --backend cuda -q --json
        check 'r["device"]["capability"] == "9.0" and all(p["wrong"] == 0 for p in r["problems"])'
        check '{"matmul", "self_attention", "self_attention_backward", "linear_cross_entropy"} <= {p["op"] for p in r["problems"]}'
        gpus 1 0 train tune $card --backend cuda -q --json
        check 'all(p["state"] == "known" for p in r["problems"]) and r["problems"]'
        python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
for d in r["devices"]:
    for e in d["entries"]:
        e.update(variant=e["usual"], choice=e["usual_choice"])
        if d["capability"] == "9.0" and e["op"] == "self_attention":
            e.update(variant="self_attention_any_cuda", choice="", usual="self_attention_mma_cuda", ns=1, usual_ns=2)
json.dump(r, open(sys.argv[1], "w"))' "$record" || fail "edit a card's"
        gpus 1 0 train bench $card --backend cuda -q --no-store --json --num-iterations 1 --warmup-steps 0
        check '[o["variant"] for o in r["ops"] if o["op"] == "self_attention"] == ["self_attention_any_cuda"]'
        check '[t["kernel"] for t in r["tuned"]] == ["self_attention_any_cuda"]'
        gpus 1 0 train bench $card --backend cuda -q --no-store --json --num-iterations 1 --warmup-steps 0 --exact
        check 'r["tuned"] == [] and r["tuning"] is None'
        # of three kernels one can add up by atomics, whose bits differ from run to run: not a candidate
        gpus 1 0 train tune --depth 1 --head-dim 128 --aspect-ratio 128 --max-seq-len 128 --device-batch-size 1 \
            --vocab-size 64 --optimizer none --backend cuda --dry-run --json
        check '[p["candidates"] for p in r["problems"] if p["op"] == "self_attention_backward"] == [3]'
    }
else
    echo "skipped: the emulation is made in builds by gcc, without sanitizers, for the processor that it runs on"
fi

# ---- damaged ----
head -c 500 first >"$record"
bench
has err 'tuning record is damaged \(line [0-9]+\) and ignored'
check 'r["tuning"] is None'
# shellcheck disable=SC2086
XDG_CACHE_HOME=/proc/none run 3 train tune $small -q
has err 'cannot make the cache folder'
run 0 tune --clear -t 1
bench
[ -s err ] && fail "a word about a record that is gone"

exit $((failures != 0))
