#!/usr/bin/env python3
"""Writes tests/support/nvfp4_vectors.h: codes and scales of NVFP4 that TransformerEngine's own reference makes.

usage: tools/nvfp4_vectors.py PATH

PATH is a checkout of NVIDIA/TransformerEngine (read at d0067d0, August 2026), of which one file is loaded:
transformer_engine/pytorch/custom_recipes/reference_nvfp4.py. Needs torch, on the CPU; nothing is built. Inputs are
dyadic numbers that a line of C makes too (fill), whose sums in the Hadamard transform are exact in float32, so
that only results are written.
"""
import enum
import importlib.util
import pathlib
import sys
import types

import torch


class Anything:
    def __init__(self, rowwise=True, columnwise=True):
        self.rowwise_usage, self.columnwise_usage = rowwise, columnwise


class Fp4Formats(enum.Enum):
    E2M1 = "e2m1"


def load(path):
    """The file alone: what it imports of its package is of kernels and modules that nothing here calls."""
    package = "transformer_engine.pytorch"
    for name in ("transformer_engine", package, package + ".custom_recipes"):
        sys.modules[name] = types.ModuleType(name)
    gemm, utils, tensor = (types.ModuleType(n) for n in ("gemm", "reference_utils", "quantized_tensor"))
    gemm.MMParams, gemm.GEMMType = Anything, types.SimpleNamespace(FPROP=0)
    utils.Fp4Formats = Fp4Formats
    tensor.QuantizedTensorStorage, tensor.Quantizer = object, Anything
    sys.modules[package + ".custom_recipes"].gemm = gemm
    sys.modules[package + ".custom_recipes"].reference_utils = utils
    sys.modules[package + ".quantized_tensor"] = tensor
    spec = importlib.util.spec_from_file_location(
        "reference_nvfp4", pathlib.Path(path, *package.split("."), "custom_recipes", "reference_nvfp4.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference_nvfp4"] = module
    spec.loader.exec_module(module)
    return module


def fill(rows, cols, seed, exponent):
    """Magnitudes over eleven binades; every fifth block of sixteen is 0."""
    x = [0.0 if i // 16 % 5 == 4 else ((i * 37 + seed * 101 + i * i * 11) % 127 - 63) * 2.0 ** (i % 11 - 11 + exponent)
         for i in range(rows * cols)]
    return torch.tensor(x, dtype=torch.float32).reshape(rows, cols)


# name, rows and columns of the input, exponent, what is taken of it
CASES = [("rows", 24, 64, 0, dict(tile=(1, 16))), ("squares", 48, 80, 0, dict(tile=(16, 16))),
         ("hadamard", 64, 24, 0, dict(tile=(1, 16), hadamard=True)),
         ("large", 8, 32, 110, dict(tile=(1, 16))), ("tiny", 8, 32, -124, dict(tile=(1, 16)))]


def write(name, values):
    print(f"static const uint8_t nvfp4_{name}[{len(values)}] = {{")
    for at in range(0, len(values), 16):
        print("    " + " ".join(f"0x{v:02x}," for v in values[at:at + 16]))
    print("};")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    module = load(sys.argv[1])
    print("/* Made by tools/nvfp4_vectors.py with torch", torch.__version__.split("+")[0], "*/")
    print("#ifndef TESTS_SUPPORT_NVFP4_VECTORS_H\n#define TESTS_SUPPORT_NVFP4_VECTORS_H\n")
    print("#include <stdint.h>\n\n/* clang-format off */")
    for seed, (name, rows, cols, exponent, how) in enumerate(CASES):
        hadamard = how.get("hadamard", False)
        quantizer = module.NVFP4QuantizerRef(Fp4Formats.E2M1, quant_tile_shape=how["tile"], with_rht=hadamard)
        q, s, q_t, s_t, amax, amax_t = quantizer._quantize(fill(rows, cols, seed, exponent))
        if hadamard:
            q, s, amax = q_t, s_t, amax_t
        write(name + "_codes", q.flatten().tolist())
        write(name + "_scales", s.contiguous().view(torch.uint8).flatten().tolist())
        print(f"static const float nvfp4_{name}_amax = {amax.item():.9g}f;")
    print("/* clang-format on */\n\n#endif")


main()
