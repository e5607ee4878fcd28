#!/usr/bin/env python3
"""Writes tests/support/train_vectors.h: parameters after steps of nanochat's own optimizers, in float32.

usage: tools/train_vectors.py JULY JANUARY

JULY and JANUARY are checkouts of karpathy/nanochat: nanochat/optim.py of the first (2026-07-03, 92d63d4), and
nanochat/muon.py of the second (January 2026). Needs torch. Inputs are multiples of 1/64 that a line of C makes
too (fill), so that only results are written.
"""
import importlib.util
import os
import pathlib
import sys

os.environ["NANOCHAT_DTYPE"] = "float32"
os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch

STEPS = 3
# matrices, rows, columns
SHAPES = {"tall": (2, 7, 4), "wide": (2, 4, 6), "square": (1, 5, 5)}


def load(folder, name):
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("of_" + name, pathlib.Path(folder, "nanochat", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.pop(0)
    return module


def fill(shape, seed):
    count = 1
    for n in shape:
        count *= n
    return torch.tensor([((i * 37 + seed * 101 + i * i * 11) % 127 - 63) / 64 for i in range(count)]).reshape(shape)


def number(x):
    return torch.tensor(x)


def write(name, values):
    numbers = [f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f"
               for v in values.flatten().tolist()]
    print(f"static const float {name}[{len(numbers)}] = {{")
    for i in range(0, len(numbers), 6):
        print("    " + ", ".join(numbers[i:i + 6]) + ",")
    print("};")


def adamw(july):
    p, mean, square = fill((3, 5), 1), torch.zeros(3, 5), torch.zeros(3, 5)
    for step in range(1, STEPS + 1):
        july.adamw_step_fused(p, fill((3, 5), 10 + step), mean, square, number(float(step)), number(0.05),
                              number(0.8), number(0.95), number(1e-10), number(0.1))
    write("adamw_parameters", p)
    write("adamw_means", mean)
    write("adamw_squares", square)


def muon_july(july, name, shape):
    count, rows, cols = shape
    p, momentum = fill(shape, 2), torch.zeros(shape)
    second = torch.zeros(count, rows, 1) if rows >= cols else torch.zeros(count, 1, cols)
    for step in range(1, STEPS + 1):
        july.muon_step_fused(fill(shape, 20 + step), p, momentum, second, number(0.9), number(0.05), number(0.2),
                             number(0.9), 5, -1 if rows >= cols else -2)
    write(f"july_{name}_parameters", p)
    write(f"july_{name}_momentum", momentum)
    write(f"july_{name}_second", second)


def muon_january(january, name, shape):
    count, rows, cols = shape
    ps = [torch.nn.Parameter(x.clone()) for x in fill(shape, 3)]
    optimizer = january.Muon(ps, lr=0.05, momentum=0.95, ns_steps=5)
    for step in range(1, STEPS + 1):
        for p, g in zip(ps, fill(shape, 30 + step)):
            p.grad = g.clone()
        optimizer.step()
    write(f"january_{name}_parameters", torch.stack([p.detach() for p in ps]))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    july, january = load(sys.argv[1], "optim"), load(sys.argv[2], "muon")
    torch.Tensor.bfloat16 = torch.Tensor.float  # January rounds without asking
    print("/* Made by tools/train_vectors.py with torch", torch.__version__.split("+")[0], "*/")
    print("#ifndef TESTS_SUPPORT_TRAIN_VECTORS_H\n#define TESTS_SUPPORT_TRAIN_VECTORS_H\n")
    print("/* clang-format off */")
    print(f"enum {{ TRAIN_VECTOR_STEPS = {STEPS} }};")
    adamw(july)
    for name, shape in SHAPES.items():
        muon_july(july, name, shape)
    for name, shape in SHAPES.items():
        muon_january(january, name, shape)
    print("/* clang-format on */\n\n#endif")


main()
