#!/usr/bin/env bash
# Loading a model from disk beside dd, both past the page cache, in turn.
# usage: MODEL=gpt-oss-20b.gguf [SOL=build/sol] [ROUNDS=5] bench/load_vs_dd.sh
# Before each load as much memory as the model takes is touched and given back: under a hypervisor that
# takes back memory that a guest does not use, the first touch is far slower than any disk, and the
# script would time that.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${MODEL:?name a GGUF file: MODEL=gpt-oss-20b.gguf bench/load_vs_dd.sh}"
exec python3 - "$MODEL" "${SOL:-$here/../build/sol}" "${ROUNDS:-5}" <<'PYTHON'
import json, mmap, os, statistics, subprocess, sys, time

model, sol, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
size = os.path.getsize(model)

def forget():
    fd = os.open(model, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)

def touch():
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)  # as sol asks for: the same pages come back
    for at in range(0, size, 4096):
        memory[at] = 1
    memory.close()

def dd():
    start = time.monotonic()
    subprocess.run(["dd", f"if={model}", "of=/dev/null", "bs=16M", "iflag=direct"], check=True,
                   stderr=subprocess.DEVNULL)
    return size / (time.monotonic() - start)

def load():
    touch()
    forget()
    out = subprocess.run([sol, "run", "-m", model, "--load", "read", "-n", "1", "--tokens", "1", "--json", "-q"],
                         check=True, capture_output=True, text=True).stdout
    return size / find(json.loads(out), "load_s")

def find(value, key):
    if isinstance(value, dict):
        for k, v in value.items():
            found = v if k == key else find(v, key)
            if found is not None:
                return found
    return None

pairs = []
for _ in range(rounds):
    pairs.append((dd(), load()))
    print(f"dd {pairs[-1][0] / 1e9:.2f} GB/s, sol {pairs[-1][1] / 1e9:.2f} GB/s", flush=True)
ratios = sorted(b / a for a, b in pairs)
print(f"medians: dd {statistics.median(a for a, _ in pairs) / 1e9:.2f}, "
      f"sol {statistics.median(b for _, b in pairs) / 1e9:.2f} GB/s; "
      f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
PYTHON
