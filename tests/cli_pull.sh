#!/usr/bin/env bash
# sol pull against a hub of this machine: what it fetches and where, resumed after cuts and kills, and a server that
# lies, cuts connections and sends wrong bytes.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
export HF_HUB_CACHE=$work/cache HF_HOME=$work/home
unset HF_TOKEN HF_TOKEN_PATH HF_HUB_OFFLINE http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
server=
trap '[ "$server" ] && kill $server; rm -rf "$work"' EXIT

# hub FAULT...: a server with these faults in place of the last one
hub() {
    [ ! "$server" ] || kill "$server"
    rm -f ready ready.log
    python3 "$SOL_SOURCE_DIR/tests/hub_server.py" "$work/hub" "$work/ready" "$@" &
    server=$!
    until_ "no server" [ -f ready ]
    export HF_ENDPOINT=http://127.0.0.1:$(cat ready)
}
asked() { grep -c "$1" ready.log; }
blobs() { find cache -path '*/blobs/*' | wc -l; }

# ---- a hub ----
mkdir -p hub/me/gguf hub/me/many hub/me/tensors/original hub/me/none hub/me/parts
cp "$SOL_SOURCE_DIR/models/builtin.gguf" hub/me/gguf/tiny.gguf
echo '# tiny' >hub/me/gguf/README.md
head -c 200000 /dev/urandom >hub/me/many/a-Q8_0.gguf
head -c 200000 /dev/urandom >hub/me/many/a-F16.gguf
head -c 1000 /dev/urandom >hub/me/tensors/original/consolidated.bin
for i in 1 2; do head -c $((3000000 + i)) /dev/urandom >hub/me/tensors/model-0000$i-of-00002.safetensors; done
echo '{}' >hub/me/tensors/config.json
echo 'x' >hub/me/none/README.md
for i in 1 2; do head -c 150000 /dev/urandom >hub/me/parts/p-0000$i-of-00002.gguf; done

if [ "${SOL_CURL:-}" = /nonexistent ] || ! { hub; run 0 pull me/gguf; }; then
    if grep -q 'install libcurl4' err; then
        echo "skipped: there is no libcurl"
        exit 0
    fi
fi

# ---- a GGUF file: fetched, found, run by its name ----
has out '^me/gguf: [0-9.]+ MB, of which [0-9.]+ were fetched$'
has out "^next: sol run -m me/gguf -p 'The sea'\$"
eval "run 0 $(sed -n 's/^next: sol //p' out)"
commit=0123456789abcdef0123456789abcdef01234567
snapshot=cache/models--me--gguf/snapshots/$commit
cmp "$snapshot/tiny.gguf" hub/me/gguf/tiny.gguf || fail "the file differs"
is "the ref" "$(cat cache/models--me--gguf/refs/main)" $commit
is "the link" "$(readlink $snapshot/tiny.gguf)" ../../blobs/$(sha256sum <hub/me/gguf/tiny.gguf | cut -d' ' -f1)
is "files that nobody needs" "$(ls $snapshot)" tiny.gguf
run 0 run -m me/gguf -p 'Once' -n 4
run 0 run -m gguf -p 'Once' -n 4
run 0 run -m me/gguf:TINY -p 'Once' -n 4
echo "a b" >text
run 0 tok encode -m me/gguf text
run 0 model info -m me/gguf
run 0 pull me/gguf
has out 'of which 0.0 were fetched'
run 0 pull --offline me/gguf --json
is "the model of --json" "$(python3 -c 'import json; print(json.load(open("out"))["model"])')" "$work/$snapshot/tiny.gguf"
rm -rf cache
run 3 run -m me/gguf -p x
run 0 $(sed -n 's/.*; try: sol //p' err) # what it says helps
run 0 run -m me/gguf -p 'Once' -n 1
run 2 pull me/gguf --files '*.bin'
run 0 $(sed -n 's/.*; see: sol //p' err)
run 3 run -m me/other -p x
has err 'me/other: there is no such file, and no model of that name was pulled; try: sol pull me/other'
run 3 pull --offline me/other
HF_HUB_OFFLINE=1 run 3 pull me/other

# ---- which files ----
run 2 pull me/many
has err 'several models.*a-F16.gguf .*a-Q8_0.gguf'
run 0 pull --list me/many
has out '^a-F16.gguf +0.2'
run 0 pull me/many:q8
run 2 pull me/many:q9
has err 'no GGUF file whose name contains q9'
run 0 pull me/many --files '*.gguf'
run 2 run -m me/many -p x
has err 'several models'
run 0 pull me/parts
is "all parts" "$(ls cache/models--me--parts/snapshots/$commit | wc -l)" 2
run 5 pull me/none
run 2 pull me/none --files '*.bin'
run 0 pull me/tensors --json
is "safetensors" "$(ls cache/models--me--tensors/snapshots/$commit | tr '\n' ' ')" \
    "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
run 0 pull me/tensors --files 'original/*'
cmp cache/models--me--tensors/snapshots/$commit/original/consolidated.bin hub/me/tensors/original/consolidated.bin ||
    fail "a file in a folder"
for name in me '../x' me/.. a/b/c ./x/y 'me/x y' -- me/; do run 2 pull -- "$name"; done
run 2 pull
run 2 pull me/nothing
has err 'there is no such repository'
run 2 pull me/gguf --revision v7
has err "no branch, tag or commit 'v7'"
run 0 pull me/gguf --revision v1

# ---- ranges over several connections ----
big=me/tensors
fresh() { rm -rf cache; }
same() {
    for i in 1 2; do
        cmp "cache/models--me--tensors/snapshots/$commit/model-0000$i-of-00002.safetensors" \
            "hub/me/tensors/model-0000$i-of-00002.safetensors" || fail "$1: file $i differs"
    done
    is "$1: nothing is left over" "$(find cache -name '*part*' -o -name '*.sol-[0-9]*' | wc -l)" 0
}
fresh && hub && run 0 pull $big && same "plain"
is "pieces of 1 MiB" "$(asked 'bytes=1048576-2097151')" 2
fresh && hub cut=700000 && run 0 pull $big && same "cut"
fresh && hub refuse=3 && run 0 pull $big && same "busy"
fresh && hub no-ranges && run 0 pull $big && same "no ranges"
fresh && hub redirect && HF_TOKEN=secret run 0 pull $big && same "redirected"
is "the token elsewhere" "$(grep localhost ready.log | grep -c secret)" 0
is "the token at home" "$(grep -v localhost ready.log | grep -vc secret)" 0
fresh && hub wrong=1 && run 0 pull $big && same "one wrong byte"

# ---- servers that stay wrong ----
refused() { # FAULT STATUS PATTERN
    fresh && hub "$1" && run "$2" pull $big
    has err "$3"
    [ ! -e cache/models--me--tensors/refs/main ] || fail "$1: the name finds what is not there"
    run 3 run -m $big -p x
}
refused wrong=1000 4 'wrong bytes twice: model-00001-of-00002.safetensors: its checksum is'
refused size=7 4 'the server sends 10 bytes, the list of files says 3$'
refused longer 4 'other bytes than were asked for'
refused other 4 'other bytes than were asked for'
refused html 4 'no JSON'
refused path=../../../evil 4 "a file of the name '../../../evil'"
refused path=/etc/evil 4 'a file of the name'
refused gated 2 'accepted its terms.*HF_TOKEN'
HF_TOKEN=wrong refused gated 2 'does not accept this token'
HF_TOKEN=secret run 0 pull $big
fresh && mkdir -p home && echo secret >home/token && run 0 pull $big && same "the token of a file"
rm home/token
HF_ENDPOINT=ftp://x run 2 pull $big
(HF_ENDPOINT=http://127.0.0.1:1 SOL_CURL=/nonexistent run 5 pull $big; exit $failures) || failures=$((failures + 1))
has err 'install libcurl4'

under_way() { [ "$(find cache -name '*.sol-part' 2>/dev/null | wc -l)" = 1 ] && [ "$(asked resolve)" -gt 2 ]; }

# ---- an interruption, and a kill, go on where they were ----
for signal in INT KILL; do
    fresh
    hub slow=60
    "$SOL_BINARY" pull $big --connections 2 >out 2>err &
    pull=$!
    until_ "no large file is under way" under_way
    sleep 1.3
    kill -$signal $pull
    wait $pull 2>/dev/null
    [ $signal = KILL ] || has err 'the same command goes on from here'
    [ "$(find cache -name '*.sol-part' | wc -l)" = 1 ] || fail "$signal: nothing to go on with"
    hub
    run 0 pull $big --json
    same $signal
    fetched=$(python3 -c 'import json; print(json.load(open("out"))["fetched_bytes"])')
    [ "$fetched" -lt 6000000 ] || fail "$signal: all of it was fetched again ($fetched bytes)"
done

# ---- what is there is damaged ----
blob=$(readlink -f cache/models--me--tensors/snapshots/$commit/model-00001-of-00002.safetensors)
printf x | dd of="$blob" bs=1 seek=5000 conv=notrunc 2>/dev/null
run 0 pull $big --check
has err 'its checksum is .*; it is fetched again'
same "checked"

# ---- the hub's own program finds it, and the other way round ----
if python3 -c 'import huggingface_hub' 2>/dev/null; then
    python3 - <<'PY' || fail "huggingface_hub"
from huggingface_hub import hf_hub_download, snapshot_download
import os
path = hf_hub_download("me/tensors", "config.json", local_files_only=True)
assert open(path).read() == "{}\n", path
os.environ["HF_HUB_OFFLINE"] = "0"
PY
else
    echo "skipped: there is no huggingface_hub"
fi

exit $((failures != 0))
