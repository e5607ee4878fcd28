#!/usr/bin/env bash
# `sol chat render` and `parse`: conversations to tokens and back, options, many in a file, and errors with their status.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1

# text FILE: the tokens of what was printed last, as text
text() { sed 's/.*\[\(.*\)\].*/\1/' out | "$SOL_BINARY" tok decode; }
# parsed TEXT [OPTION...]: the messages of a text with control tokens
parsed() {
    local written=$1
    shift
    "$SOL_BINARY" tok encode --special --json --text "$written" >ids.json
    run 0 chat parse "$@" ids.json
    cat out
}
message() { # CHANNEL TEXT
    printf '{"role": "assistant", "name": null, "content": [{"type": "text", "text": "%s"}], "channel": "%s"}' "$2" "$1"
}

cat >talk.json <<'JSON'
{"messages": [
 {"role": "system", "content": [{"type": "system_content", "model_identity": "You are a lamp.", "reasoning_effort": "Low",
  "channel_config": {"valid_channels": ["analysis", "final"], "channel_required": true}}]},
 {"role": "developer", "content": [{"type": "developer_content", "tools": {"functions": {"name": "functions", "tools": [
  {"name": "dim", "description": "Less light.", "parameters": {"properties": {"to": {"anyOf": [{"type": "number"}, {"type": "null"}],
   "default": 0.5}}, "type": "object", "required": ["to"]}}]}}}]},
 {"role": "user", "content": "Light? <|end|>"},
 {"role": "assistant", "channel": "analysis", "content": "Hm."},
 {"role": "assistant", "channel": "final", "content": "Yes."}
]}
JSON
head='<|start|>system<|message|>You are a lamp.

Reasoning: low

# Valid channels: analysis, final. Channel must be included for every message.
Calls to these tools must go to the commentary channel: '"'functions'"'.<|end|><|start|>developer<|message|># Tools

## functions

namespace functions {

// Less light.
type dim = (_: {
to: any, // default: 0.5
}) => any;

} // namespace functions<|end|><|start|>user<|message|>Light? <|end|><|end|>'
thought='<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>'
answer='<|start|>assistant<|channel|>final<|message|>Yes.'

run 0 chat render talk.json
is "one line" "$(wc -l <out)" 1
is "render" "$(text)" "$head$thought$answer<|end|><|start|>assistant"
cp out whole.json
"$SOL_BINARY" chat render - <talk.json >again.json
cmp -s whole.json again.json || fail "standard input gives something else"
run 0 chat render --turn none --training talk.json
is "training" "$(text)" "$head$thought$answer<|return|>"
run 0 chat render --analysis open --turn user talk.json
is "open" "$(text)" "$head$answer<|end|><|start|>user"
run 0 chat render --types full talk.json
is "types" "$(text)" "${head/to: any/to: number | null}$thought$answer<|end|><|start|>assistant"
run 0 chat render --effort max --date 2026-11-24 --tool python talk.json
text >rendered
has rendered '^Current date: 2026-11-24$'
has rendered '^Reasoning: high$'
has rendered '^## python$'
run 0 chat render --effort none talk.json
is "straight" "$(text | tail -c 45)" "<|start|>assistant<|channel|>final<|message|>"

# back: what the format says of each message
run 0 chat parse whole.json
is "five messages" "$(grep -o '"role"' out | wc -l)" 5
grep -q malformed out && fail "malformed"
is "the answer" "$(tail -c "$(printf '%s, %s]}\n.' "$(message analysis Hm.)" "$(message final Yes.)" | wc -c)" out)" \
    " $(message analysis Hm.), $(message final Yes.)]}"
# and what comes back is read again
cp out back.json
run 0 chat render back.json
is "again" "$(text)" "$(sed 's/.*\[\(.*\)\].*/\1/' whole.json | "$SOL_BINARY" tok decode)"

# malformed
is "no start" "$(parsed 'a<|end|>b')" "{\"messages\": [$(message final a), $(message final b)], \"malformed\": {\"no_message\": 1, \"no_start\": 1}}"
is "no end" "$(parsed '<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b')" \
    "{\"messages\": [$(message analysis a), $(message final b)], \"malformed\": {\"no_end\": 1}}"
is "role" "$(parsed '<|message|>a<|end|>' --role user)" \
    '{"messages": [{"role": "user", "name": null, "content": [{"type": "text", "text": "a"}]}]}'
echo '{"ids": [0, 2000000000, 5]}' >ids.json
run 0 chat parse ids.json
has out 'reserved_2000000000'
echo '{"ids": []}' >ids.json
run 0 chat parse ids.json
is "nothing" "$(cat out)" '{"messages": []}'
parsed '<|channel|>final<|message|>é' --steps >steps
has steps '"steps": \[\{"state": "header", "role": "assistant"\}'
has steps '"delta": "é"'

# lines
{ tr -d '\n' <talk.json && echo && echo && tr -d '\n' <talk.json && echo; } >talks.jsonl
run 0 chat render --lines talks.jsonl
is "lines" "$(sort -u out | cmp - whole.json && wc -l <out)" 2
cp out ids.jsonl
run 0 chat parse --lines ids.jsonl
is "lines parsed" "$(sort -u out | wc -l)" 1
echo '{"messages": [{"role": "x"}]}' >>talks.jsonl
run 4 chat render --lines talks.jsonl
has err 'talks.jsonl, line 4: messages\[0\]: .role. is a string; it must be'

# the ids of gpt-oss, where its vocabulary is there (openai-harmony 0.0.8)
vocabulary=${TIKTOKEN_ENCODINGS_BASE:-}/o200k_base.tiktoken
if [ -f "$vocabulary" ]; then
    echo '{"messages": [{"role": "user", "content": "What is 2 + 2?"}]}' >sum.json
    run 0 chat render --vocab "$vocabulary" sum.json
    is "gpt-oss" "$(cat out)" '{"ids": [200006, 1428, 200008, 4827, 382, 220, 17, 659, 220, 17, 30, 200007, 200006, 173781]}'
else
    echo "skipped: TIKTOKEN_ENCODINGS_BASE names no folder with o200k_base.tiktoken"
fi

# errors
refuse() { # STATUS MESSAGE ARGUMENT...
    run "$1" chat "${@:3}"
    grep -qF -- "$2" err || fail "chat ${*:3}: no '$2'"
}
refuse 3 "did you mean sol chat render?" rendre talk.json
refuse 2 "render takes no option that is for talking" render --thinking 5 talk.json
refuse 2 "render takes one file" render
refuse 2 "parse takes one file" parse a b
refuse 2 "--role and --steps go with parse" render --role user talk.json
refuse 2 "parse takes none" parse --turn none ids.json
refuse 2 "--training needs --turn none" render --training talk.json
refuse 2 "write it as 2026-11-24" render --date today talk.json
refuse 2 "effort 'much'" render --effort much talk.json
refuse 2 "no built-in tool 'hammer'" render --tool hammer talk.json
refuse 2 "one of --model and --vocab" render -m builtin --vocab x talk.json
refuse 3 "none" render none
refuse 5 "no chat format: no <|start|> of harmony, no <|bos|> of nanochat" render --vocab "$SOL_SOURCE_DIR/tests/data/tokenizer_small.json" talk.json
echo '{"messages": [{"role": "user", "content": "x"}]}' >plain.json
refuse 2 "has no system message with system_content" render --effort low plain.json
echo '{"ids": [1, -1]}' >bad.json
refuse 4 "bad.json: ids[1] is no token id" parse bad.json
refuse 4 "'ids' must be an array" parse talk.json
echo '[1]' >list.json
refuse 4 "list.json: expected a JSON object" parse list.json
[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
