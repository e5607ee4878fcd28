#!/usr/bin/env bash
# sol bench --serve against a server whose delays are known: what is measured is what it did, and every fault of a
# server is counted as what it is.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
unset SOL_API_KEY http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }
server=
trap '[ "$server" ] && kill $server; rm -rf "$work"' EXIT

# serve SETTING...: the server with these settings in place of the last ones
serve() {
    local settings
    if [ ! "$server" ]; then
        rm -f ready
        python3 "$SOL_SOURCE_DIR/tests/load_server.py" "$work/ready" &
        server=$!
        for _ in $(seq 1200); do
            [ -f ready ] && break
            sleep 0.05
        done
        url=http://127.0.0.1:$(cat ready)
    fi
    settings=$(printf '&%s' "$@")
    exec 3<>"/dev/tcp/127.0.0.1/${url##*:}"
    printf 'GET /set?%s HTTP/1.1\r\nConnection: close\r\n\r\n' "${settings:1}" >&3
    head -n 1 <&3 | grep -q 200 || fail "the server does not take $*"
    exec 3>&-
}
stop() {
    kill "$server"
    wait "$server" 2>/dev/null
    server=
}
# load STATUS OPTION...: a small one, as JSON in out
load() {
    local status=$1
    shift
    run "$status" bench --serve "$url" --lengths random:100,10 --no-store -q --json "$@"
}
# holds WHAT EXPRESSION: of r, the result, l, its first level, and s, what the server did (warm-ups left out)
holds() {
    python3 - "$2" <<'PY' 2>>"$work/err" || fail "$1: $2"
import json, sys
r = json.load(open("out"))
l = r["levels"][0]
s = [json.loads(line) for line in open("ready.log")]
f = l["failures"]
near = lambda a, b, part, ms=0: abs(a - b) <= part * b + ms
if not eval("(" + sys.argv[1] + ")"):
    print(json.dumps({k: v for k, v in l.items() if k != "itl_quantiles_ms"}), file=sys.stderr)
    sys.exit(1)
PY
}

serve
if ! load 0 --requests 3; then
    grep -q 'install libcurl4' err && { echo "skipped: there is no libcurl"; exit 0; }
fi
if grep -q 'install libcurl4' err; then
    echo "skipped: there is no libcurl"
    exit 0
fi

# ---- what it did is what is measured ----
# A busy machine makes the server late too: its own log of when it sent is what counts. What comes between the two of them
# is tried again.
cat >compare.py <<'PY'
import json, statistics, sys
r = json.load(open("out"))
l = r["levels"][0]
s = [json.loads(line) for line in open("ready.log")][2:]
def quantile(values, part):
    values = sorted(values)
    at = part * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])
ttft = [1e-6 * (x["sent"][0] - x["arrived"]) for x in s]
gaps = [[1e-6 * (b - a) for a, b in zip(x["sent"], x["sent"][1:])] for x in s]
tpot = [1e-6 * (x["sent"][-1] - x["sent"][0]) / (len(x["sent"]) - 1) for x in s]
total = [1e-6 * (x["sent"][-1] - x["arrived"]) for x in s]
every = [g for one in gaps for g in one]
wanted = {
    "ttft_ms": (quantile(ttft, 0.5), quantile(ttft, 0.9), quantile(ttft, 0.99)),
    "itl_ms": (quantile([quantile(one, 0.5) for one in gaps], 0.5), quantile(every, 0.9), quantile(every, 0.99)),
    "tpot_ms": (quantile(tpot, 0.5), quantile(tpot, 0.9), quantile(tpot, 0.99)),
    "end_to_end_ms": (quantile(total, 0.5), quantile(total, 0.9), quantile(total, 0.99)),
}
slack = float(sys.argv[1])
for name, values in wanted.items():
    for part, value in zip(("p50", "p90", "p99"), values):
        got = l[name][part]
        room = slack * (1 if part == "p50" else 4)
        if not value - room <= got <= value + room:
            sys.exit(f"{name} {part}: measured {got:.2f}, the server made {value:.2f}")
assert len(s) == 40 and l["requests"] == l["ok"] == 40, (len(s), l["requests"])
low, high = l["ttft_ms"]["ci95"]
assert low <= l["ttft_ms"]["p50"] <= high and l["ttft_ms"]["requests"] == 40
assert len(l["itl_quantiles_ms"]) == 101 and l["itl_quantiles_ms"] == sorted(l["itl_quantiles_ms"])
assert l["output_tokens"] == 400 and l["chunks"] == 400 and l["tokens_per_chunk"] == 1
assert abs(l["output_tokens_per_s"] * l["seconds"] - 400) < 1e-3
assert abs(l["total_tokens_per_s"] * l["seconds"] - 400 - l["prompt_tokens"]) < 1e-3
assert l["peak_concurrency"] == 4
assert r["model"] == "scripted" and r["endpoint"] == "chat" and r["without"] is None
# words are counted by the server: a frame of 70, one and a half a word
assert abs(l["prompt_tokens"] / 40 - 100) < 2, l["prompt_tokens"]
assert len({x["body"]["messages"][0]["content"] for x in s}) == 40
assert all(x["body"]["ignore_eos"] and x["body"]["min_tokens"] == 10 for x in s)
PY
# What is wrong is so each time; a busy machine is not.
for attempt in $(seq 20); do
    serve ttft=100 itl=20 jitter=60 wobble=60
    load 0 --requests 40 --concurrency 4 --warmup 0
    python3 compare.py 10 2>>err && break
    [ "$attempt" != 20 ] || fail "measured times: $(tail -n 1 err)"
done
holds "delays" 'l["ttft_ms"]["p50"] > 99 and l["itl_ms"]["p50"] > 19 and l["ttft_ms"]["p90"] > 159'

# ---- tables ----
serve chunk=4
run 0 bench --serve "$url/v1/" --lengths random:100,10 --requests 8 --concurrency 2,3 --label two
has out '^c2 +8 '
has out '^c3 +8 '
has out '^3\.33 tokens a chunk: ITL is between chunks, TPOT a token \(c2; c3\)$'
has out '^run [a-z]'
run 0 runs --kind serve
has out 'two'
run 0 runs show last
has out 'c3: TTFT p99'
run 0 report last -o page.html
grep -q 'Distribution of ITL' page.html || fail "no curves in the report"
run 0 bench --serve "$url" --lengths random:100,10 --requests 8 --no-store -q -o csv
is "lines of csv" "$(wc -l <out)" 2
run 0 bench --serve "$url" --lengths random:100,10 --requests 8 --no-store -q -o md --output result.json
has result.json '^\| c1 '
run 2 bench --serve "$url" -o sql
has err 'the formats are'

# ---- loads ----
serve slots=2 ttft=30 itl=2
load 0 --burst 8
holds "all at once" 'l["peak_concurrency"] == 8 and l["arrival"] == "burst" and l["ok"] == 8'
holds "those that wait" 'l["ttft_ms"]["max"] > 3 * 30'
load 0 --rate 40 --duration 1 --seed 5
holds "Poisson" '20 < l["requests"] < 60 and l["arrival"] == "poisson" and l["peak_concurrency"] > 2'
load 0 --rate 20,40 --requests 10
holds "two rates" '[x["name"] for x in r["levels"]] == ["rate 20", "rate 40"]'
load 0 --concurrency 3 --duration 0.5
holds "by time" 'l["requests"] > 3 and l["seconds"] < 5 and l["peak_concurrency"] == 3'
serve ttft=20 jitter=600 wobble=100
load 0 --requests 6 --warmup 0 --ttft-limit 500 --itl-limit 1000 --lengths random:100,4
holds "goodput" 'near(l["good_part"], 2 / 3, 1e-6) and near(l["goodput_per_s"] * l["seconds"], 4, 1e-3)'
load 0 --requests 6 --warmup 0 --itl-limit 80 --lengths random:100,4
holds "goodput by ITL" 'near(l["good_part"], 2 / 3, 1e-6)'
load 0 --requests 4
holds "no limits" 'l["good_part"] is None and l["goodput_per_s"] is None'

# ---- Ctrl-C: what was finished is there ----
serve ttft=5 itl=2
"$SOL_BINARY" bench --serve "$url" --lengths random:100,10 --duration 100 --concurrency 1,2 -q --json >out 2>err &
bench=$!
for _ in $(seq 400); do
    [ "$(wc -l <ready.log)" -gt 40 ] && break
    sleep 0.05
done
kill -INT $bench
wait $bench
is "the status after Ctrl-C" $? 130
holds "what was finished" 'len(r["levels"]) == 1 and not l["complete"] and l["ok"] > 5 and l["requests"] == l["ok"] and not f'
run 0 runs show last --json
grep -q '"state": "partial"' out || fail "the run is not partial"

# ---- lengths, seeds, endpoints ----
serve ttft=1 itl=0
load 0 --requests 20 --lengths random:200,20,0.5 --seed 3
python3 -c '
import json
s = [json.loads(line)["body"] for line in open("ready.log")][3:]
lengths = [b["max_tokens"] for b in s]
assert len(s) == 20 and min(lengths) >= 10 and max(lengths) <= 30 and len(set(lengths)) > 5, lengths
json.dump(s, open("first", "w"))' 2>>err || fail "lengths within their range"
serve ttft=1 itl=0
load 0 --requests 20 --lengths random:200,20,0.5 --seed 3
python3 -c '
import json
s = [json.loads(line)["body"] for line in open("ready.log")][3:]
assert s == json.load(open("first"))' 2>>err || fail "a seed repeats the load"
serve ttft=1 itl=0
load 0 --requests 5 --lengths prefix:300,30,5
python3 -c '
import json, os
s = [json.loads(line)["body"]["messages"][0]["content"] for line in open("ready.log")][3:]
common = os.path.commonprefix(s)
assert 190 <= len(common.split()) <= 206, len(common.split())' 2>>err || fail "a shared prefix"
load 0 --requests 30 --lengths sharegpt --concurrency 30
holds "sharegpt" 'l["ok"] == 30'
serve ttft=1 itl=0
load 0 --requests 5 -m builtin --lengths random:123,5
holds "exact tokens" 'l["prompt_tokens"] == 5 * 123 and r["exact_tokens"] and r["endpoint"] == "completions"'
run 2 bench --serve "$url" -m builtin --endpoint chat
has err 'exact tokens'
load 0 --requests 5 --endpoint completions --extra '{"temperature": 0, "top_k": 1}' --serve-model other
holds "extra fields" 's[-1]["body"]["top_k"] == 1 and s[-1]["body"]["model"] == "other" and r["model"] == "other"'

# ---- servers that know less ----
for style in 1 2 3; do
    serve ttft=1 itl=0 style=$style after=100
    load 0 --requests 4
    holds "style $style" 'l["ok"] == 4 and r["without"] is not None'
done
holds "without usage" 'not l["counted_by_server"] and l["output_tokens"] == 40 and l["prompt_tokens"] is None'
serve usage=0 ttft=1 itl=0
run 0 bench --serve "$url" --lengths random:100,10 --requests 4 --no-store -q
has out 'the server counts no tokens'

# ---- the key ----
serve key=secret ttft=1 itl=0
load 3 --requests 2
has err '401: the key is wrong'
printf 'secret\n' >key
load 0 --requests 2 --key key
SOL_API_KEY=secret load 0 --requests 2
run 3 bench --serve "$url" --key missing --no-store
head -c 5000 /dev/zero | tr '\0' k >key
run 4 bench --serve "$url" --key key --no-store
grep -q secret out err && fail "the key is shown"

# ---- faults, each of which is counted ----
# fault WORD KIND EXAMPLE [OPTION...]: every second request has it
fault() {
    local word=$1 kind=$2 example=$3
    shift 3
    serve ttft=2 itl=1 after=4 every=2 fault="$word"
    load 0 --requests 8 --warmup 1 "$@"
    holds "fault $word" "l['requests'] == 8 and l['ok'] == 4 and list(f) == ['$kind'] and f['$kind']['count'] == 4 and
        '$example' in f['$kind']['example'] and l['ttft_ms']['requests'] == 4 and l['output_tokens'] == 40"
}
fault cut closed ''
fault drop closed ''
fault garbage garbage '<html>'
fault endless garbage ''
fault type no_stream 'all of it'
fault html no_stream '<html>hello'
fault busy busy '429: too many'
fault broken server_error '500: a bug'
fault bad rejected '400: not with me'
fault error error_event 'the engine failed'
fault silent silent ''
fault hang timeout 'no text for 1.5 s' --timeout 1.5 --concurrency 8
fault hush timeout 'no text for 1.5 s' --timeout 1.5 --concurrency 8
serve ttft=2 itl=1 after=4 every=2 fault=hush
run 0 bench --serve "$url" --lengths random:100,10 --requests 4 --concurrency 4 --warmup 0 --no-store -q --timeout 1.5
has out '^2 failed: timed out: no text for 1.5 s \(c4\)$'
serve ttft=1 itl=0 after=8 fault=refuse
load 0 --requests 10 --warmup 0
holds "refused" 'l["ok"] == 5 and f["refused"]["count"] >= 2 and f["refused"]["count"] + f["closed"]["count"] == 5'
stop
serve ttft=1 itl=0 fault=broken
load 3 --requests 3 --warmup 0
has err 'every request failed'
holds "the figures are there" 'l["ok"] == 0 and l["ttft_ms"]["p50"] is None and l["output_tokens_per_s"] == 0'
serve ttft=1 itl=0 fault=broken
load 3 --duration 100 --warmup 0 --concurrency 4
holds "a hopeless server ends it" 'l["requests"] >= 1000 and l["seconds"] < 60'
serve fault=bad after=1
load 3
has err 'the first request failed \(request rejected'
# 429 obeyed: the wait is in the time of the request
serve ttft=1 itl=0 fault=once after=4 retry=1
load 0 --requests 4 --warmup 1 --retry
holds "sent again" 'l["ok"] == 4 and l["busy_answers"] == 1 and l["ttft_ms"]["max"] > 1000 and l["seconds"] > 1'
# a date says no number of seconds: one is waited for
serve ttft=1 itl=0 fault=once after=4 retry=Fri
load 0 --requests 4 --warmup 1 --retry
holds "sent again after a date" 'l["ok"] == 4 and l["ttft_ms"]["max"] > 1000'
serve ttft=1 itl=0 context=200
load 3 --lengths random:500,5 --requests 3
has err 'every request failed'
stop
load 3
has err "$url/v1"

# ---- sol's own server ----
"$SOL_BINARY" serve --port 0 -t 1 >served 2>&1 &
server=$!
for _ in $(seq 400); do
    grep -q '^listening\|error' served && break
    sleep 0.05
done
url=$(sed -n 's/^listening on //p' served)
if [ "$url" ]; then
    load 0 -m builtin --lengths random:33,7 --requests 6 --concurrency 3
    holds "its completions" 'l["ok"] == 6 and l["prompt_tokens"] == 6 * 33 and l["output_tokens"] == 42'
    load 0 --lengths random:300,8 --requests 6 --warmup 0
    holds "its chats" 'l["ok"] + f.get("silent", {"count": 0})["count"] == 6 and r["model"] == "builtin"'
    holds "words" 'near(l["prompt_tokens"] / max(l["ok"], 1), 300, 0.1)'
    kill $server
    wait $server || fail "the server ends with status $?"
    server=
else
    grep -q microhttpd served && echo "skipped: sol serve has no libmicrohttpd"
    grep -q microhttpd served || fail "sol serve: $(tail -n 1 served)"
fi

# ---- wrong usage ----
run 2 bench --serve 127.0.0.1:80
has err "write the server's address"
for option in '--concurrency 3' '--timeout 5' --retry; do
    run 2 bench $option
    has err 'name it with --serve'
done
run 2 bench --serve "$url" -p 4
has err 'leave out what is of a model'
run 2 bench --serve "$url" --backend cuda
has err 'leave out what is of a model'
run 2 bench --serve "$url" --lengths random:5
run 2 bench --serve "$url" --rate 1,x
run 2 bench --serve "$url" --rate 0
run 2 bench --serve "$url" --extra '[1]'
SOL_CURL=/nonexistent run 5 bench --serve "$url"
has err 'install libcurl4'
exit $((failures != 0))
