#!/usr/bin/env bash
# sol chat where no person types: one message from -p, files and a pipe, its answer, JSON lines, limits, and errors with
# their status. What a terminal has is in chat_terminal.py.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
export XDG_STATE_HOME=$work/state

# talk TEXT ARGUMENT...: with TEXT piped in
talk() {
    local text=$1
    shift
    printf '%s' "$text" | "$SOL_BINARY" chat -t 1 --seed 5 "$@" >out 2>err
}
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }
field() { # NAME: of the last line of JSON, or of its tokens
    tail -n 1 out | python3 -c 'import json, sys
end = json.load(sys.stdin)
print({**end, **end["tokens"], "reasoning": end["reasoning"]}[sys.argv[1]])' "$1"
}

# ---- the answer alone is on stdout ----
talk "The lamp went out" -n 60 || fail "status $?"
has err 'built-in model is small'
cp out plain
[ -s plain ] || fail "no answer"
talk "The lamp went out" -n 60 -q
is "quiet says nothing" "$(cat err)" ""
cmp -s out plain || fail "the same message, another answer"
talk "The lamp went out" -n 60 -q --reasoning show
cmp -s out plain || fail "reasoning on stdout"
[ -s err ] || fail "no reasoning on stderr"
talk "The lamp went out" -n 60 -q --reasoning hide
is "hidden" "$(cat out err)" "$(cat plain)"

# ---- JSON: pieces, then the whole ----
talk "The lamp went out" -n 60 --json -q
is "the answer in JSON" "$(field answer)" "$(cat plain)"
is "the end" "$(field end)" stop
python3 - out <<'PY' || fail "pieces"
import json, sys
*pieces, end = [json.loads(line) for line in open(sys.argv[1])]
for part in "reasoning", "answer":
    whole = "".join(p["text"] for p in pieces if p["part"] == part)
    assert whole == end[part], (part, whole, end[part])
assert end["tokens"]["generated"] <= 60 and end["tokens"]["cached"] == 0 and end["malformed"] == 0
PY

talk "The lamp went out" -n 60 --json -q --reasoning hide
grep -q '"part": "reasoning"' out && fail "reasoning is not hidden"
is "the answer with it hidden" "$(field answer)$(field reasoning)" "$(cat plain)"

# ---- files and pipes are one message ----
printf 'One.\n' >one
printf 'Two.\n\n' >two
talk "" -p $'Zero.\n\nOne.\n\nTwo.\n\nThree.' -n 40 --json -q
cp out wanted
talk "Three." -p Zero. one two -n 40 --json -q
got=$(field prompt)$(field answer)
cp wanted out
is "all parts" "$got" "$(field prompt)$(field answer)"
talk "Three." -p Zero. - two one -n 9 --json -q
got=$(field prompt)$(field reasoning)
talk "" -p $'Zero.\n\nThree.\n\nTwo.\n\nOne.' -n 9 --json -q
is "the place of -" "$got" "$(field prompt)$(field reasoning)"

# ---- sampling as the file recommends it, unless options say otherwise ----
temperature() { # OPTION...
    talk "Go on" -n 1 --json -q "$@"
    tail -n 1 out | python3 -c 'import json, sys; print(json.load(sys.stdin)["sampling"]["temperature"])'
}
is "the built-in model's" "$(temperature)" 0.5
is "one that was given" "$(temperature --temperature 1)" 1.0
is "greedy" "$(temperature --greedy)" 0.0
is "another option" "$(temperature --top-k 5)" 0.5

# ---- effort, budget, instructions ----
talk "Go on" --effort none -n 30 --json -q
is "no reasoning" "$(field reasoning)" ""
for n in 0 1 7; do
    talk "Go on" --thinking $n -n 60 --json -q
    python3 -c "import json, sys
t = json.loads(open('out').readlines()[-1])
assert t['tokens']['reasoning'] <= $n and t['answer'] and t['tokens']['reasoning_cut'] == ($n > 0), t" || fail "thinking $n"
done
talk "Go on" -n 1 --json -q
short=$(field prompt)
talk "Go on" --system "Speak as a lamp." -n 1 --json -q
[ "$(field prompt)" -gt "$short" ] || fail "no instructions in the prompt"

# ---- random weights with a vocabulary talk too ----
run 0 tok train -t 1 --vocab-size 300 -o words.json one
run 0 chat -t 1 -m synth:tiny --vocab words.json -p x -n 30 --effort none
[ -s out ] || fail "no answer of random weights"

# ---- what was cut is said ----
talk "Go on" -n 3 --effort none
has err 'the answer is cut: stopped: as many tokens as -n allows'
talk "Go on" -n 4
has err 'no answer: .*all went to reasoning'
is "nothing on stdout" "$(cat out)" ""
talk "Go on" -c 256 --temperature 1000 --effort none
has err 'the answer is cut: stopped: the context is full'

# ---- Ctrl-C: what is written stays, and the status says that it was stopped. Slow, or it ends by itself ----
interrupt() { # OPTION...
    rm -f out # or what the last one wrote is taken for this one's
    "$SOL_BINARY" chat -t 1 -p Go --effort none --temperature 1000 --slow head=9000 "$@" >out 2>err </dev/null &
    local pid=$!
    until_ "no word of an answer" [ -s out ]
    kill -INT $pid
    wait $pid
    is "interrupted" $? 130
}
interrupt
[ -s out ] || fail "nothing of the answer"
interrupt --json
is "the end in JSON" "$(field end)" interrupted

# ---- errors ----
refuse() { # STATUS MESSAGE ARGUMENT...
    run "$1" chat -t 1 "${@:3}"
    grep -qF -- "$2" err || fail "chat ${*:3}: no '$2'"
    [ -s out ] && fail "chat ${*:3}: prints"
}
refuse 2 "there is no message"
refuse 2 "there is no message" --json
refuse 3 "cannot open 'none'" none
refuse 3 "is a directory" .
refuse 2 "effort 'much'" -p x --effort much
refuse 2 "--reasoning: expected show or hide" -p x --reasoning maybe
refuse 2 "outside 0 to" -p x --thinking -2
refuse 5 "a chat needs a model with a vocabulary" -m synth:tiny -p x
printf 'Gr\374\337e' >latin
refuse 4 "latin is no text in UTF-8: byte 3 is 0xfc" latin
talk $'\xff' -p x
is "no UTF-8" $? 4
has err 'standard input is no text in UTF-8'
refuse 4 "-p is no text" -p $'\xe2\x82'
refuse 4 "--system is no text" -p x --system $'\xff'
printf 'a\0b' >binary
refuse 4 "byte 2 is 0x00" binary
refuse 2 "go with sol chat render or parse" -p x --turn user
refuse 2 "the vocabulary has 4096 tokens, the model 512" -m synth:tiny -p x --vocab "$SOL_SOURCE_DIR/models/builtin.gguf"
refuse 2 "--vocab is for a model without a vocabulary" -p x --vocab "$SOL_SOURCE_DIR/models/builtin.gguf"
yes "a long story" | head -n 300 >long
refuse 2 "the message is too long: with what is before all messages it has" -c 512 long
refuse 2 "the message is too long" -c 16 -p x
refuse 2 "top_p is 0" -p x --top-p 0
if [ -w /dev/full ]; then
    "$SOL_BINARY" chat -t 1 -p x -n 20 --effort none >/dev/full 2>err
    is "a full device" $? 3
    has err 'cannot write the answer'
    "$SOL_BINARY" chat -t 1 -p x -n 20 --json >/dev/full 2>err
    is "a full device" $? 3
fi
[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
