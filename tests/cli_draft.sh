#!/usr/bin/env bash
# --draft of sol run and sol chat: with float32 kernels the same text and ids whatever is guessed, on one rank, on several,
# and held to JSON; how it is counted; guesses of a head (--draft-model); and on an emulated GPU.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }
cd "$work" || exit 1

# ids: of the last run's JSON, where they end and why; counts NAME: of its guesses
ids() { python3 -c 'import json, sys; j = json.load(sys.stdin); print(j["stop"], j["stop_token"], j["text"], j["ids"])' <out; }
counts() { python3 -c 'import json, sys; print(json.load(sys.stdin)["draft"][sys.argv[1]])' "$1" <out; }

# same N ARGUMENT...: the same with up to N guesses, from ${source[@]}; how many were right comes on top of $right
right=0
source=()
same() {
    local n=$1 alone
    shift
    run 0 run "$@" --exact --json -q
    alone=$(ids)
    grep -q '"draft"' out && fail "guesses without --draft"
    run 0 run "$@" --exact --json -q --draft "$n" "${source[@]}"
    is "$* --draft $n" "$(ids)" "$alone"
    is "most" "$(counts most)" "$n"
    [ "$(counts accepted)" -le "$(counts guessed)" ] || fail "more were right than there were"
    right=$((right + $(counts accepted)))
}

for i in 1 2 3 4 5 6 7 8; do echo "The captain looked at the sea and the sea looked at the captain, $i times and again $i times."; done >captain
same 16 -f captain -n 200 --greedy
same 8 -f captain -n 150 --seed 3 --temperature 0.5 --top-p 0.9
same 3 -f captain -n 150 --seed 4 --top-k 5 --min-p 0.02
same 5 -f captain -n 400 -c 320 --greedy # the context is full before
same 1 -m synth:tiny --tokens 1,2,3,4,5,6,1,2,3,4,5,6,1,2,3 -n 250 --temperature 0.1
same 8 -f captain -n 60 --greedy --gpus 2
same 8 -m "$SOL_SOURCE_DIR/tests/golden/gpt_2026_07" --tokens 1,2,3,1,2,3,1,2,3 -n 150 --greedy
same 8 -p 'A list: {"a": 1, "b": 1, "c": 1, "d": 1}, and the same again:' --json-object -n 80 --seed 2 --temperature 0.3
[ $right -gt 50 ] || fail "only $right guesses were right"

# ---- counts ----
run 0 run -f captain -n 200 --greedy --draft 8
has err '^guessed +[0-9]+ tokens, [0-9]+ of them right; [0-9]+ steps$'
run 0 run -f captain -n 20 --draft 8 --json -q -b 1 # no room for guesses in a step
is "guesses in steps of one token" "$(counts guessed)" 0
run 0 run -f captain -n 20 --draft 8 --json -q -b 2
run 2 run -f captain --draft 17
has err '0 to 16'
run 2 chat -p Hm. --draft -1
run 0 run -f captain -n 0 --draft 8 --json -q
is "steps of nothing" "$(counts steps)" 0

# ---- chat ----
said() { # the last line, which has it all, but for times
    tail -n 1 out | python3 -c 'import json, sys
end = json.load(sys.stdin)
print(end["end"], end["answer"], end["reasoning"], end["tokens"]["generated"])'
}
for effort in none medium; do
    run 0 chat -p 'Repeat: one two three one two three one two three.' --effort $effort --exact --seed 5 --json -q -n 120
    said >alone
    run 0 chat -p 'Repeat: one two three one two three one two three.' --effort $effort --exact --seed 5 --json -q -n 120 --draft 8
    said >guessed
    cmp -s alone guessed || fail "guesses change what is said"
    has out '"draft": \{"most": 8, "steps": [0-9]+, "guessed": [0-9]+, "accepted": [0-9]+\}'
done

# ---- a head, trained for the built-in model ----
head=$SOL_SOURCE_DIR/models/builtin-eagle3
for i in 1 2 3; do echo "I saw the old man, who was then in the house of his father, and asked what he wished for. "; done >prose
if [ -d "$head" ]; then
    right=0
    source=(--draft-model "$head") # as many as are worth it, which here may be none
    same 4 -f prose -n 120 --greedy
    [ "$(counts guessed)" -gt 0 ] || fail "not one guess was tried"
    source+=(--draft-always)
    same 4 -f prose -n 120 --greedy
    same 8 -f prose -n 120 --seed 3 --temperature 0.5
    same 2 -f prose -n 120 --seed 4 --temperature 1 --top-p 0.9 -b 16
    same 4 -p 'A list: {"a": 1, "b":' --json-object -n 60 --seed 2 --temperature 0.3
    # Processors draw other texts: 148 on one, more than 150 on another. A head that guesses wildly has none.
    [ $right -gt 100 ] || fail "only $right guesses of the head were right"
    right=0 # they are drawn with the tokens' own random numbers: 96 of 298, where the likeliest were 49 of 436
    for seed in 3 4; do same 3 -f prose -n 100 --seed $seed --temperature 1; done
    [ $right -gt 70 ] || fail "only $right guesses were right at temperature 1"
    for text in 'How do I benchmark a model?' 'Who are you?'; do
        run 0 chat -p "$text" --exact --greedy --json -q
        said >alone
        run 0 chat -p "$text" --exact --greedy --json -q --draft 4 --draft-model "$head" --draft-always
        said >guessed
        cmp -s alone guessed || fail "a head's guesses change what is said"
        has out '"draft": \{"most": 4, "steps": [0-9]+, "guessed": [0-9]+, "accepted": [1-9]'
    done
    run 2 run -p Ha -n 4 --draft-model "$head"
    has err 'add --draft 4'
    run 2 run -p Ha -n 4 --draft 4 --draft-always
    has err 'is for guesses of a --draft-model'
    run 5 run -p Ha -n 4 --draft 4 --gpus 2 --draft-model "$head"
    has err 'leave --gpus out'
    run 5 run -m synth:tiny --tokens 1,2,3 -n 4 --draft 4 --draft-model "$head"
    has err 'a head for a model with hidden size 256 and 4096 tokens'
fi
run 3 run -p Ha -n 4 --draft 4 --draft-model /nonexistent
has err '/nonexistent/config.json'

# ---- a GPU: rows of a step are drawn there, or by the host where the op cannot do what is asked ----
# What cannot be emulated (clusters) is composed, and so few steps are made that none is a graph yet.
no="-p Ha!Ha!Ha!Ha!Ha!Ha!Ha!Ha! -n 10 --greedy --exact --kv f32 --json -q"
on_gpu() { # GPUS ARGUMENT...
    LD_LIBRARY_PATH=$SOL_EMULATED_GPU FAKE_CUDA_MAJOR=9 FAKE_CUDA_DEVICES=$1 SOL_CUBLASLT=/nonexistent \
        SOL_NCCL=$SOL_FAKE_NCCL run 0 run --backend cuda --gpus "$1" --force attn_out=composed --force attn_add=composed \
        --force attn_route=composed --force moe=moe_row_cuda:single "${@:2}"
}
if [ -n "${SOL_EMULATED_GPU:-}" ]; then
    # shellcheck disable=SC2086 # words
    run 0 run $no
    alone=$(ids)
    for n in 1 2; do
        # shellcheck disable=SC2086
        on_gpu $n $no --draft 4
        is "ids on $n GPUs" "$(ids)" "$alone"
        [ "$(counts accepted)" -gt 2 ] || fail "hardly a guess was right on $n GPUs"
    done
    if [ -d "$head" ]; then # which guesses the same there
        # shellcheck disable=SC2086
        run 0 run $no --draft 3 --draft-model "$head" --draft-always
        alone="$(ids) $(counts guessed) $(counts accepted)"
        # shellcheck disable=SC2086
        on_gpu 1 $no --draft 3 --draft-model "$head" --draft-always
        is "a head on a GPU" "$(ids) $(counts guessed) $(counts accepted)" "$alone"
        hows=("--temperature 1.5 --top-k 50") # with random numbers of their turns
        [ "${SOL_TEST_WHOLE:-}" ] && hows+=("--temperature 1.5")
        for how in "${hows[@]}"; do
            # shellcheck disable=SC2086
            on_gpu 1 ${no/--greedy/$how} --seed 3
            alone=$(ids)
            # shellcheck disable=SC2086
            on_gpu 1 ${no/--greedy/$how} --seed 3 --draft 3 --draft-model "$head" --draft-always
            is "ids on a GPU, $how" "$(ids)" "$alone"
            [ "$(counts guessed)" -gt 9 ] || fail "hardly a guess on a GPU, $how"
        done
    fi
fi
[ $failures = 0 ] && echo "all passed"
exit $((failures != 0))
