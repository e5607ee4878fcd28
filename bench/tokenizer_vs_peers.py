#!/usr/bin/env python3
"""sol's tokenizer beside tiktoken and the `tokenizers` library: equality of ids, encoding speed on
one thread, and training of a vocabulary. Peers and sol take turns; medians and ratios are printed.

usage: tokenizer_vs_peers.py --sol build/sol --vocab o200k_base.tiktoken [--rounds N]
                             [--vocab-size N] [--threads N] [--skip encode|train] FILE...

needs: pip install tiktoken tokenizers. Speeds of sol come from whole runs of `sol tok encode --count`
less the same run on an empty text, i.e. without start and loading; those of tiktoken are of the call
encode_ordinary alone. Both are processor time of one thread. Training is wall time of whole runs, with
the same number of threads.
"""
import argparse
import base64
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])


# Where pieces end whatever surrounds them: behind a line end, before a letter or digit.
STRETCH = r"(?<=\n)(?=[A-Za-z0-9])"


def say(*words):
    print(*words, flush=True)


def processor_seconds(command):
    """Processor time of a child process, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out


def spread(values):
    return f"{min(values):.3g} to {max(values):.3g}"


def compare_encoding(o, text, path, folder):
    import tiktoken
    ranks = {}
    with open(o.vocab, "rb") as f:
        for line in f:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    peer = tiktoken.Encoding("peer", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    empty = os.path.join(folder, "empty.txt")
    open(empty, "w").close()
    sol = [o.sol, "tok", "encode", "--vocab", o.vocab]

    mine = [int(x) for x in subprocess.run(sol + [path], check=True, stdout=subprocess.PIPE).stdout.split()]
    theirs = peer.encode_ordinary(text)
    say(f"encode: {len(text.encode()) / 1e6:.2f} MB, {len(mine)} ids,",
        "identical to tiktoken" if mine == theirs else "DIFFERENT from tiktoken")
    say(f"  {len(text.encode()) / len(mine):.4f} bytes per token")

    seconds = {"sol": [], "tiktoken": []}
    for _ in range(o.rounds):
        loading, _ = processor_seconds(sol + ["--count", empty])
        total, _ = processor_seconds(sol + ["--count", path])
        seconds["sol"].append(total - loading)
        start = time.process_time()
        peer.encode_ordinary(text)
        seconds["tiktoken"].append(time.process_time() - start)
    size = len(text.encode()) / 1e6
    speeds = {name: [size / s for s in values] for name, values in seconds.items()}
    for name, values in speeds.items():
        say(f"  {name:9} median {statistics.median(values):6.1f} MB/s ({spread(values)})")
    ratio = statistics.median(speeds["sol"]) / statistics.median(speeds["tiktoken"])
    say(f"  sol / tiktoken: {ratio:.2f}")
    return mine == theirs


def train_peer(o, files, out, whole=False):
    """In a process of its own, so that the number of threads can be set. The library reads files line by
    line, so that it sees no piece that goes over a line end; `whole` gives it stretches that end where
    pieces end anyway, which makes the results comparable merge by merge."""
    train = f"t.train({files!r}, trainer)"
    if whole:
        train = f"""
import re
parts = []
for name in {files!r}:
    text = open(name, encoding="utf-8", newline="").read()
    parts += re.split({STRETCH!r}, text)
t.train_from_iterator(parts, trainer)
"""
    code = f"""
import sys, time
from tokenizers import Tokenizer, Regex, models, pre_tokenizers, decoders, trainers
t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex({PATTERN!r}), "isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
t.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size={o.vocab_size}, show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
start = time.perf_counter()
{train}
print(time.perf_counter() - start)
t.save({out!r})
"""
    environment = dict(os.environ, RAYON_NUM_THREADS=str(o.threads), TOKENIZERS_PARALLELISM="true")
    run = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, env=environment)
    return float(run.stdout.split()[0])


def train_sol(o, files, out):
    start = time.perf_counter()
    subprocess.run([o.sol, "tok", "train", "--vocab-size", str(o.vocab_size), "-o", out,
                    "-t", str(o.threads)] + files, check=True, stdout=subprocess.PIPE)
    return time.perf_counter() - start


def model_of(path):
    with open(path, encoding="utf-8") as f:
        model = json.load(f)["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    return model["vocab"], list(dict.fromkeys(merges))


def compare_vocabularies(mine, theirs, text):
    from tokenizers import Tokenizer
    my_vocab, my_merges = model_of(mine)
    their_vocab, their_merges = model_of(theirs)
    same = 0
    while same < min(len(my_merges), len(their_merges)) and my_merges[same] == their_merges[same]:
        same += 1
    say(f"  vocabularies {'identical' if my_vocab == their_vocab else 'differ'}: {len(my_vocab)} and"
        f" {len(their_vocab)} tokens, {len(set(my_vocab) & set(their_vocab))} in both")
    say(f"  merges {'identical' if my_merges == their_merges else 'differ'}: {len(my_merges)} and"
        f" {len(their_merges)}, the first {same} in the same order")
    size = len(text.encode())
    counts = {}
    for name, path in (("sol", mine), ("tokenizers", theirs)):
        tokenizer = Tokenizer.from_file(path)
        # In stretches: the library takes long over one long text.
        ids = [e.ids for e in tokenizer.encode_batch(re.split(STRETCH, text))]
        counts[name] = sum(map(len, ids))
        say(f"  {name:10} vocabulary: {size / counts[name]:.4f} bytes per token (by the tokenizers library)")
    return counts["sol"] <= counts["tokenizers"] * 1.0005


def compare_training(o, text, files, folder):
    mine, theirs = os.path.join(folder, "sol.json"), os.path.join(folder, "peer.json")
    seconds = {"sol": [], "tokenizers": []}
    for _ in range(o.rounds):
        seconds["sol"].append(train_sol(o, files, mine))
        seconds["tokenizers"].append(train_peer(o, files, theirs))
    say(f"train: {o.vocab_size} tokens, {o.threads} threads")
    for name, values in seconds.items():
        say(f"  {name:10} median {statistics.median(values):6.2f} s ({spread(values)})")
    ratio = statistics.median(seconds["tokenizers"]) / statistics.median(seconds["sol"])
    say(f"  sol is {ratio:.1f} times as fast")
    good = compare_vocabularies(mine, theirs, text)
    say("  against the library with pieces over line ends:")
    train_peer(o, files, theirs, whole=True)
    return compare_vocabularies(mine, theirs, text) and good


def main():
    p = argparse.ArgumentParser(description="sol's tokenizer beside tiktoken and tokenizers")
    p.add_argument("--sol", required=True)
    p.add_argument("--vocab", required=True, help=".tiktoken file")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--vocab-size", type=int, default=32000)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--skip", choices=["encode", "train"])
    p.add_argument("files", nargs="+")
    o = p.parse_args()
    text = ""
    for name in o.files:
        with open(name, encoding="utf-8", newline="") as f:
            text += f.read()
    good = True
    say("load average", " ".join(f"{x:.1f}" for x in os.getloadavg()))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text.txt")
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(text)
        if o.skip != "encode":
            good = compare_encoding(o, text, path, folder) and good
        if o.skip != "train":
            good = compare_training(o, text, o.files, folder) and good
    say("load average", " ".join(f"{x:.1f}" for x in os.getloadavg()))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
