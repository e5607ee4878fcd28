#!/usr/bin/env bash
# Copies of a model behind one server (--copies): on the processor, where each has its share of the cores, and on
# emulated cards, one of which fails. What clients see: tests/copies_client.py.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
cd "$work" || exit 1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }

# ---- usage ----
run 2 serve --port 0 --copies 2 --gpus 3
has err '--copies 2 share --gpus 3 equally'
run 2 serve --port 0 --copies 2 --backend auto
has err '--copies 2 wants --backend cuda'
run 2 serve --port 0 --copies 17
need_http

# served WHAT ARGUMENT...: a server, and what the client's part of that name says of it
served() {
    local what=$1 server address=''
    shift
    rm -f out
    "$SOL_BINARY" serve --port 0 --responses none --drain 120 "$@" >out 2>err </dev/null &
    server=$!
    for _ in $(seq 600); do
        address=$(sed -nE 's/^listening on //p' out 2>/dev/null)
        [ "$address" ] && break
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    [ "$address" ] || fail "$what: no server"
    timeout 200 python3 "$SOL_SOURCE_DIR/tests/copies_client.py" "$what" "$address" "$server" >said || fail "$what: $(cat said)"
    local ends=$SECONDS
    kill -TERM $server 2>/dev/null
    wait $server
    is "$what: the server's end" $? 0
    [ $((SECONDS - ends)) -lt 100 ] || fail "$what: the server waited for what had ended"
}

exact="--exact --kv f32 --parallel 8 -c 512"
# shellcheck disable=SC2086 # words
{
    served texts $exact
    mv said of_one
    served texts $exact --copies 2
    has out 'builtin: 2 copies; 8 texts at once, context 512, cache of 4096 tokens'
    is "texts of two copies" "$(cat said)" "$(cat of_one)"
    served prefix $exact --copies 2
    served spread $exact --copies 2
    served drain $exact --copies 2
    served texts $exact --copies 2 --gpus 4
    is "texts of two copies, each shared" "$(cat said)" "$(cat of_one)"
}

# ---- cards: one that fails, of a driver that computes nothing; emulated ones, which answer alike ----
if [ -z "${SOL_FAKE_GPU:-}" ] || [ -z "${SOL_EMULATED_GPU:-}" ]; then exit $((failures != 0)); fi
export FAKE_CUDA_MAJOR=9 FAKE_CUDA_DEVICES=2
card="-m synth:small,layers=1 --backend cuda --parallel 4 -b 16 -c 128 --copies"
# shellcheck disable=SC2086 # words
{
    export LD_LIBRARY_PATH=$SOL_FAKE_GPU
    FAKE_CUDA_FAIL=launch:40:700:1 served failure $card 2
    has err 'warning: copy 1 of 2 has failed, the others go on: .*CUDA_ERROR_'
    if grep 'fake driver: ' err; then fail "leaks, or uses what it has wrongly"; fi
    run 5 serve --port 0 $card 3
    has err 'there is no GPU 2'
    export LD_LIBRARY_PATH=$SOL_EMULATED_GPU
    served twins $card 2 --deterministic --force attn_out=composed --force attn_add=composed --force attn_route=composed \
        --force moe=moe_row_cuda:single
}
exit $((failures != 0))
