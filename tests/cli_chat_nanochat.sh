#!/usr/bin/env bash
# Chats with what `sol train` makes: nanochat's format rendered and parsed, models of both recipes that are trained on
# conversations here, then asked by `sol chat` and through `sol serve`; what the format has not is refused.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }
cat "$SOL_SOURCE_DIR"/README.md "$SOL_SOURCE_DIR"/docs/CHAT.md >text.txt
run 0 tok train --vocab-size 503 --special-set nanochat -o words.json text.txt
cat >talk.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "What checks kernels?"}, {"role": "assistant", "content": "sol verify."}]}
{"messages": [{"role": "system", "content": "Be a lamp."}, {"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "A lamp."}, {"role": "user", "content": "What checks kernels?"}, {"role": "assistant", "content": "sol verify."}]}
JSON

# ---- to tokens and back ----
tok() { "$SOL_BINARY" tok encode --vocab words.json --special --text "$1" | sed 's/ /, /g'; }
head='<|bos|><|user_start|>Be a lamp.

Who are you?<|user_end|><|assistant_start|>A lamp.<|assistant_end|><|user_start|>What checks kernels?<|user_end|><|assistant_start|>'
sed -n 2p talk.jsonl >lamp.json
run 0 chat render --vocab words.json --turn none --mask lamp.json
cp out masked.json
ids() { sed -E 's/.*"ids": \[([^]]*)\].*/\1/' "$work/out"; }
is "render" "$(ids)" "$(tok "${head}sol verify.<|assistant_end|>")"
is "learnt" "$(python3 - <<'PYTHON'
import json
r = json.load(open("masked.json"))
print(json.dumps({"ids": [i for i, learnt in zip(r["ids"], r["mask"]) if learnt]}))
PYTHON
)" "{\"ids\": [$(tok 'A lamp.<|assistant_end|>sol verify.<|assistant_end|>')]}"
run 0 chat parse --vocab words.json masked.json
has out '"user", "name": null, "content": \[\{"type": "text", "text": "Be a lamp.\\n\\nWho are you\?"\}\]'
has out '"assistant", "name": null, "content": \[\{"type": "text", "text": "sol verify."\}\]\}\]\}$'
run 0 chat render --vocab words.json --lines talk.jsonl
is "for the next answer" "$(grep -c ', 506\]' out)" 2 # <|assistant_start|>
run 2 chat render --vocab words.json --effort low lamp.json
has err 'has no levels of reasoning'

# ---- trained on them ----
updates=60
[ "${SOL_SANITIZED:-}" ] && updates=4 # slow there: it answers something
model="--tokenizer words.json --depth 2 --aspect-ratio 32 --head-dim 32 --max-seq-len 64"
rates="--device-batch-size 4 --total-batch-size 256 --warmup-steps 2 --matrix-lr 0.3 --embedding-lr 3 --unembedding-lr 0.1"
# shellcheck disable=SC2086 # words
{
    run 0 train -d talk.jsonl --val talk.jsonl $model $rates --num-iterations $updates -o july -q
    run 0 train --recipe 2026-01 -d text.txt --documents paragraphs $model $rates --num-iterations 2 -o base -q
    run 0 train -d talk.jsonl --val talk.jsonl --init-from base/step_000002 $rates --num-iterations $updates -o january -q
}
step=step_$(printf %06d $updates)

# said FOLDER ANSWER ARGUMENT...: what sol chat answers
said() {
    run 0 chat -t 1 -m "$1/$step" --greedy -q -n 20 "${@:3}"
    [ $updates = 4 ] || is "$1" "$(cat out)" "$2"
}
for model in july january; do
    said $model "sol verify." -p "What checks kernels?"
    said $model "A lamp." -p "Who are you?" --system "Be a lamp." --effort none
    run 2 chat -t 1 -m $model/$step -p "Who are you?" --effort low
    has err "the model's chat format, nanochat, has no levels of reasoning: leave the effort out, or set it to none"
done
run 2 chat -t 1 -m july/$step -p "$(yes 'a long story' | head -n 40)"
has err 'the message is too long'

# ---- on a terminal: what was loaded is said, instructions change, the oldest messages leave ----
if command -v script >/dev/null; then
    printf '/system Be a lamp.\nWho are you?\n/effort low\nWhat checks kernels?\nWho are you?\nWhat checks kernels?\n/quit\n' >typed
    script -qec "$SOL_BINARY chat -t 1 -m july/$step --greedy -n 8" /dev/null <typed >shown 2>&1
    grep -q 'tokens, chat format nanochat' shown || fail "no format said: $(cat shown)"
    grep -q 'has no levels of reasoning' shown || fail "an effort: $(cat shown)"
    grep -q 'messages have left' shown || fail "none has left: $(cat shown)"
    [ $updates = 4 ] || grep -q '^A lamp\.' shown || fail "no lamp: $(cat shown)"
    [ $updates = 4 ] || [ "$(grep -c '^sol verify\.' shown)" -ge 2 ] || fail "no answers: $(cat shown)"
else
    echo "skipped: no terminal, as there is no script"
fi

# ---- a vocabulary without a chat format ----
sed 's/<|user_start|>/<|user_begin|>/' words.json >other.json
run 5 chat -t 1 -m synth:tiny --vocab other.json -p x
has err 'no <\|start\|> of harmony, no <\|user_start\|> of nanochat.*sol tok train --special-set nanochat'

# ---- through the server ----
command -v python3 >/dev/null || { echo "no python3, so no server"; exit $((failures != 0)); }
need_http
"$SOL_BINARY" serve -t 1 --port 0 --responses none -m july/$step >served 2>"$work/err" &
server=$!
for _ in $(seq 200); do
    address=$(sed -nE 's/^listening on //p' served)
    [ "$address" ] && break
    sleep 0.1
done
grep -q 'tokens; chat format nanochat$' served || fail "no format said: $(cat served)"
python3 - "$address" "$updates" <<'PYTHON' || failures=$((failures + 1))
import json, sys, urllib.error, urllib.request

address, learnt = sys.argv[1], sys.argv[2] != "4"
ASKED = [{"role": "user", "content": "What checks kernels?"}]
LAMP = [{"role": "system", "content": "Be a lamp."}, {"role": "user", "content": "Who are you?"}]

def get(path, body=None):
    request = urllib.request.Request(address + path, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        return 200, urllib.request.urlopen(request, timeout=60).read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()

def chat(messages, **more):
    status, text = get("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 20, **more})
    return status, json.loads(text)

def answer(messages, wanted, **more):
    status, got = chat(messages, **more)
    assert status == 200, got
    message = got["choices"][0]["message"]
    assert not learnt or message["content"] == wanted, message
    assert "reasoning" not in message and got["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0, got
    return message["content"]

def refused(param, what, messages=ASKED, **more):
    status, got = chat(messages, **more)
    assert status == 400 and got["error"]["param"] == param, got
    assert got["error"]["type"] == "invalid_request_error" and what in got["error"]["message"], got

model = json.loads(get("/v1/models")[1])["data"][0]
assert model["chat"] is True and model["chat_format"] == "nanochat" and model["reasoning"] is False, model
whole = answer(ASKED, "sol verify.")
answer(LAMP, "A lamp.", reasoning_effort="none")
answer(LAMP + [{"role": "assistant", "content": "A"}], " lamp.")
answer(LAMP + [{"role": "assistant", "content": "A lamp."}] + ASKED, "sol verify.")
status, text = get("/v1/chat/completions", {"messages": ASKED, "temperature": 0, "max_tokens": 20, "stream": True})
chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == whole, text
schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
held = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
status, got = chat(ASKED, response_format=held)
assert isinstance(json.loads(got["choices"][0]["message"]["content"])["a"], bool), got
status, text = get("/v1/responses", {"input": "What checks kernels?", "temperature": 0, "max_output_tokens": 20})
output = json.loads(text)["output"]
assert [o["type"] for o in output] == ["message"] and output[0]["content"][0]["text"] == whole, output

refused("reasoning_effort", "has no levels of reasoning", reasoning_effort="high")
refused("tools", "has no calls of functions", tools=[{"type": "function", "function": {"name": "get"}}])
call = {"id": "c", "type": "function", "function": {"name": "get", "arguments": "{}"}}
refused("messages[1].tool_calls[0].function", "has no calls of functions",
        ASKED + [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "1"}])
refused(None, "has none of the user behind it", [{"role": "system", "content": "Be a lamp."}])
status, text = get("/v1/responses", {"input": "x", "reasoning": {"effort": "low"}})
assert status == 400 and json.loads(text)["error"]["param"] == "reasoning.effort", text
print("all answered")
PYTHON
kill -TERM $server
wait $server
is "the server's end" $? 0
exit $((failures != 0))
