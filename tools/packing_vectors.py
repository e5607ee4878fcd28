#!/usr/bin/env python3
"""Makes tests/data/packing.json: the rows that nanochat's own data loader packs from documents of given lengths.

    python3 tools/packing_vectors.py NANOCHAT > tests/data/packing.json

NANOCHAT is a checkout of karpathy/nanochat (made with 92d63d4). Its nanochat/dataloader.py runs as it is, over numpy in
torch's place and documents that need no parquet. Needs numpy.
"""
import json
import math
import os
import random
import sys
import types

import numpy as np


class Tensor(np.ndarray):
    """What the loader asks of torch's."""

    def view(self, *shape):
        return self.reshape(shape)

    def copy_(self, other, non_blocking=False):
        np.copyto(self, other)


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


def empty(*shape, dtype=None, pin_memory=False, device=None):
    return np.ndarray.__new__(Tensor, shape[0] if isinstance(shape[0], tuple) else shape, dtype=np.int64)


class Column:
    def __init__(self, documents):
        self.documents = documents

    def to_pylist(self):
        return self.documents


class RowGroup:
    def __init__(self, documents):
        self.documents = documents

    def column(self, name):
        return Column(self.documents)


class ParquetFile:
    documents = []  # of the one row group
    num_row_groups = 1

    def __init__(self, path):
        pass

    def read_row_group(self, index):
        return RowGroup(ParquetFile.documents)


class Tokenizer:
    """Document i of length n is the tokens 4096 i, 4096 i + 1, ..., the first of which stands for BOS."""

    def __init__(self, lengths):
        self.lengths = lengths

    def get_bos_token_id(self):
        return 0

    def encode(self, documents, prepend, num_threads):
        return [[4096 * i + at for at in range(self.lengths[i])] for i in documents]


def load(folder):
    module("torch", empty=empty, long=np.int64,
           tensor=lambda values, dtype=None: np.array(values, dtype=np.int64))
    module("pyarrow").parquet = module("pyarrow.parquet", ParquetFile=ParquetFile)
    module("nanochat")
    module("nanochat.common", get_dist_info=lambda: (False, 0, 0, 1))
    module("nanochat.dataset", list_parquet_files=lambda warn_on_legacy=False: ["train", "val"])
    loader = module("nanochat.dataloader")
    path = os.path.join(folder, "nanochat", "dataloader.py")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), loader.__dict__)
    return loader


def pieces(row):
    """[document, tokens of it] from its beginning on, in the order of the row."""
    out = []
    for token in row:
        document, at = divmod(int(token), 4096)
        if at == 0:
            out.append([document, 0])
        assert out[-1] == [document, at]
        out[-1][1] += 1
    return out


def case(loader, name, lengths, tokens, rows, buffer, refill):
    ParquetFile.documents = list(range(len(lengths)))
    batches = loader.tokenizing_distributed_data_loader_with_state_bos_bestfit(
        Tokenizer(lengths), rows, tokens, "train", tokenizer_batch_size=refill, device="cpu", buffer_size=buffer)
    x, y, state = next(batches)
    assert (x[:, 1:] == y[:, :-1]).all()
    packed = [pieces(list(a) + [b[-1]]) for a, b in zip(x, y)]
    return {"name": name, "row": tokens + 1, "buffer": buffer, "refill": refill, "epoch": state["epoch"],
            "lengths": lengths, "rows": packed}


def main():
    loader = load(sys.argv[1])
    rng = random.Random(3)
    web = [min(4000, 1 + int(math.exp(rng.gauss(4.4, 1.1)))) for _ in range(1280)]
    cases = [
        case(loader, "a small buffer, several epochs, many ties", [rng.randrange(1, 30) for _ in range(64)], 32, 90, 20,
             8),
        case(loader, "no document fits, all are cut", [rng.randrange(40, 60) for _ in range(32)], 16, 40, 10, 4),
        case(loader, "nanochat's buffer", web, 256, 120, 1000, 128),
        case(loader, "a buffer of one", [rng.randrange(1, 12) for _ in range(16)], 10, 20, 1, 1),
    ]
    text = json.dumps({"made by": "tools/packing_vectors.py", "cases": cases}, separators=(",", ":"))
    print(text.replace('{"name"', '\n{"name"').replace('"rows":', '\n"rows":'))


main()
