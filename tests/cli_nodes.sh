#!/usr/bin/env bash
# Two nodes: network namespaces of this machine that only a link joins, ranks on each. Training over the link gives what
# one process gives; a link that goes away and a node that dies end what is left, with a reason.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"

skip() { echo "skipped: $1"; exit 0; }
mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "there is no mpirun of Open MPI (openmpi-bin)"
command -v ip >/dev/null || skip "there is no ip (iproute2)"
a=sol-a-$$ b=sol-b-$$
ip netns add "$a" 2>/dev/null || skip "no network namespaces can be made here"
trap 'for n in $a $b; do ip netns pids $n 2>/dev/null | xargs -r kill -9; ip netns del $n 2>/dev/null; done; rm -rf "$work"' EXIT
ip netns add "$b" && ip link add la netns "$a" type veth peer name lb netns "$b" || skip "no link between namespaces here"
ip -n "$a" addr add 10.213.77.1/24 dev la
ip -n "$b" addr add 10.213.77.2/24 dev lb
for node in "$a la" "$b lb"; do
    ip -n "${node% *}" link set lo up
    ip -n "${node% *}" link set "${node#* }" up
done
cd "$work" || exit 1

# What mpirun starts its own process on a host with: HOST COMMAND...
cat >agent <<END
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c 'hostname $b; eval "\$*"' sh "\$@"
END
chmod +x agent
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # of Open MPI's
nodes() { # ARGUMENT...: sol on two ranks of each node
    ASAN_OPTIONS=$ASAN_OPTIONS ip netns exec "$a" unshare --uts sh -c "hostname $a; exec \"\$@\"" sh \
        mpirun -H 10.213.77.1:2,10.213.77.2:2 -n 4 --bind-to none --mca plm_rsh_agent "$work/agent" \
        --mca oob_tcp_if_include 10.213.77.0/24 --mca btl_tcp_if_include 10.213.77.0/24 --mca btl tcp,self,vader \
        -x ASAN_OPTIONS -x SOL_RANK_SECONDS --wdir "$work" "$SOL_BINARY" "$@" </dev/null
}

mills text
"$SOL_BINARY" tok train text --vocab-size 290 -o vocabulary.json >/dev/null || fail "tok train"
train="train --data text --tokenizer vocabulary.json --depth 1 --head-dim 32 --max-seq-len 32 --device-batch-size 2
    --total-batch-size 512 --no-store --sample-every -1 -t 1"
export SOL_RANK_SECONDS=60
# shellcheck disable=SC2086 # words
{
    run 0 $train --num-iterations 5 --exact -q -o alone
    nodes $train --num-iterations 5 --exact -o both >out 2>err || fail "two nodes: $(cat out err)"
    cmp alone/step_000005/model.safetensors both/step_000005/model.safetensors || fail "two nodes give other weights"
    grep -q '4 ranks, started by Open MPI (OMPI_COMM_WORLD_RANK), 2 of them on this host' out || fail "ranks: $(cat out)"
}

ranks_of() { ip netns pids "$1" | xargs -r ps -o comm= -p | grep -c '^sol$'; }

# ended WHAT TEXT COMMAND...: does COMMAND while they train. mpirun itself may wait for a node that it lost; no rank does.
ended() {
    local what=$1 text=$2
    shift 2
    rm -rf gone
    # shellcheck disable=SC2086 # words
    SOL_RANK_SECONDS=8 nodes $train --num-iterations 100000 --save-every 5 -o gone >log 2>&1 &
    local started=$!
    for _ in $(seq 600); do [ -e gone/step_000005/train.json ] && break; sleep 0.1; done
    is "$what: ranks on the first node before" "$(ranks_of "$a")" 2
    "$@"
    for _ in $(seq 400); do [ "$(ranks_of "$a")" = 0 ] && break; sleep 0.1; done
    is "$what: ranks on the first node" "$(ranks_of "$a")" 0
    for _ in $(seq 100); do grep -qE "$text" log && break; sleep 0.1; done # mpirun says it behind that
    ip netns pids "$a" | xargs -r kill -9
    wait $started 2>/dev/null
    grep -qE "$text" log || fail "$what: no '$text' in $(tail -n 20 log)"
    [ -e gone/step_000005/train.json ] || fail "$what: the checkpoint is gone"
}
die() { ip netns pids "$b" | xargs kill -9; }
# Open MPI has a text for each thing that it may notice first: the peer, its daemon, what started that.
ended "a node that dies" 'unexpectedly disconnected|lost communication|ORTE was unable|waited 8 s for the other 3 ranks' die
ended "a link that goes" 'waited 8 s for the other 3 ranks' ip -n "$a" link set la down
exit $((failures != 0))
