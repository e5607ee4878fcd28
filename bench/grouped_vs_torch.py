#!/usr/bin/env python3
"""sol's grouped products of NVFP4 beside torch._grouped_mm on the same numbers in bf16, in one process on one GPU.

usage: bench/grouped_vs_torch.py [--library build/libsol.so] [--json]

The four shapes of the task nvfp4_group_gemm. Codes and scales are the task's, so every value is exact in bf16: both
compute the same products, which are compared with float64. Both are CUDA graphs over sets of buffers that exceed the
cache four times, launched in turn; times are of one call. Needs a PyTorch that has torch._grouped_mm with a GPU of
compute capability 9.0 or 10.x, as 2.8 and later have, and sol's library (SOL_LIBRARY names it too).

Exit status: 0 all right, 5 something is missing, which is said, 7 a result is wrong.
"""
import argparse
import ctypes
import json
import math
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples" / "grouped_gemm")]
from predict_grouped_gemm import SHAPES, over  # noqa: E402

MISSING, WRONG = 5, 7  # as sol's own
WARM, REPETITIONS, SETS_MAX, BLOCK = 3, 15, 16, 16
DEVICE = "cuda"
VALUES = [0, .5, 1, 1.5, 2, 3, 4, 6]
# Sums are exact in float32, so a result differs by its rounding alone: fp16 has 11 bits, bf16 8.
TOLERANCE = {"sol": 2.0**-11, "torch": 2.0**-8}


def missing(text):
    print(f"grouped_vs_torch.py: {text}", file=sys.stderr)
    sys.exit(MISSING)


# ---- what is there ----

def load_torch():
    try:
        import torch
    except ImportError:
        missing("no torch: python3 -m pip install torch")
    if not torch.cuda.is_available():
        missing(f"no GPU: torch {torch.__version__} sees none")
    if not hasattr(torch, "_grouped_mm"):
        missing(f"torch {torch.__version__} has no _grouped_mm: 2.8 is the first that is meant")
    capability = torch.cuda.get_device_capability()
    if capability[0] not in (9, 10):
        missing(f"torch._grouped_mm has kernels for compute capability 9.0 and 10.x, the GPU has "
                f"{capability[0]}.{capability[1]}: there it would be products one by one")
    return torch


def load_sol(library):
    """The module of the example, which says what sol/grouped_gemm.h does."""
    if library:
        os.environ["SOL_LIBRARY"] = library
    import submission
    try:
        return submission, submission.Gemm.of(0)
    except RuntimeError as error:
        missing(error)


# ---- operands ----

def atom_of(row, block, blocks):
    """Where a scale lies in atoms of 128 rows by 4 blocks; of numbers and of tensors."""
    return (row // 128 * over(blocks, 4) + block // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4


class Matrix:
    """Codes and scales of the task as its tensors, and the same numbers in bf16."""

    def __init__(self, torch, rows, k):
        blocks = k // BLOCK
        atoms = over(rows, 128), over(blocks, 4)
        codes = torch.randint(256, (rows, k // 2), dtype=torch.uint8, device=DEVICE) & 0xbb
        flat = torch.randint(2, (atoms[0] * atoms[1] * 512,), dtype=torch.uint8, device=DEVICE)
        place = atom_of(torch.arange(rows, device=DEVICE)[:, None], torch.arange(blocks, device=DEVICE)[None, :], blocks)
        table = torch.tensor(VALUES + [-v for v in VALUES], dtype=torch.bfloat16, device=DEVICE)
        pairs = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)
        scales = (1 + flat[place].to(torch.bfloat16)).repeat_interleave(BLOCK, dim=1)
        self.numbers = table[pairs.long()] * scales
        self.codes = codes.as_strided((rows, k // 2, 1), (k // 2, 1, rows * k // 2))
        flat = 0x38 + 8 * flat  # 1 and 2 in e4m3
        self.scales = flat.as_strided((32, 4, atoms[0], 4, atoms[1], 1),
                                      (16, 4, atoms[1] * 512, 1, 512, flat.numel()))


def copied(tensor):
    """Another one, elsewhere, that lies as this one does; clone() does not keep every layout."""
    flat = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,))
    return flat.clone().as_strided(tensor.shape, tensor.stride())


def sets_of(torch, size):
    """How many sets of buffers of so many bytes exceed the cache four times; 2 at least."""
    return min(SETS_MAX, max(2, over(4 * torch.cuda.get_device_properties(0).L2_cache_size, size)))


# ---- the two programs ----

class Sol:
    name = "sol"

    def __init__(self, torch, module, gemm, shape, pairs):
        rows, n, k = shape
        self.torch, self.gemm, self.sets = torch, gemm, []
        size = sum((m + n) * k * 9 // 16 + 2 * m * n for m in rows)
        for _ in range(sets_of(torch, size)):
            abc, scales = [], []
            for m, (a, b) in zip(rows, pairs):
                c = torch.empty((m, n), dtype=torch.float16, device=DEVICE).as_strided((m, n, 1), (n, 1, m * n))
                abc.append((copied(a.codes), copied(b.codes), c))
                scales.append((copied(a.scales), copied(b.scales)))
            data = abc, scales, scales, [(m, n, k, 1) for m in rows]
            self.sets.append((data, module.problem_of(data)))
        self.bytes = ctypes.c_size_t()
        gemm.check(gemm.library.sol_grouped_gemm_workspace(gemm.handle, ctypes.byref(self.sets[0][1][0]),
                                                           ctypes.byref(self.bytes)))
        self.memory = torch.empty(self.bytes.value + module.ALIGN, dtype=torch.uint8, device=DEVICE)
        self.workspace = over(self.memory.data_ptr(), module.ALIGN) * module.ALIGN
        self.variant = gemm.variant(self.sets[0][1][0])

    def call(self):
        stream = self.torch.cuda.current_stream().cuda_stream
        for _, (problem, _, _) in self.sets:
            self.gemm.check(self.gemm.library.sol_grouped_gemm_run(
                self.gemm.handle, ctypes.byref(problem), self.workspace, self.bytes, stream))

    def results(self):
        return [[c[:, :, 0] for _, _, c in data[0]] for data, _ in self.sets]


class Torch:
    """All groups' rows behind each other, [sum of m, k], weights [groups, k, n] whose k are neighbours, and where each
    group's rows end."""
    name = "torch"

    def __init__(self, torch, shape, pairs):
        rows, n, k = shape
        self.torch, self.rows = torch, rows
        a, b = torch.cat([x.numbers for x, _ in pairs]), torch.stack([y.numbers for _, y in pairs])
        ends = torch.tensor(rows, device=DEVICE).cumsum(0).to(torch.int32)
        size = 2 * (a.numel() + b.numel() + sum(rows) * n)
        self.sets = [(a.clone(), b.clone().transpose(-2, -1), ends) for _ in range(sets_of(torch, size))]
        self.out = []

    def call(self):
        self.out = [self.torch._grouped_mm(a, b, offs=ends) for a, b, ends in self.sets]

    def results(self):
        return [out.split(self.rows) for out in self.out]


# ---- measuring ----

def captured(torch, program):
    """As PyTorch's documents ask for it: first on a stream of its own."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            program.call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.call()
    return graph


def worst_error(torch, program, graph, pairs):
    """Of all sets after a launch of the graph: the largest difference over what is allowed; 1 and less is right."""
    for group in (c for results in program.results() for c in results):
        group.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    worst, tolerance = 0.0, TOLERANCE[program.name]
    for i, (a, b) in enumerate(pairs):
        right = a.numbers.double() @ b.numbers.double().T
        allowed = tolerance * right.abs() + 1e-3
        for results in program.results():
            error = ((results[i].double() - right).abs() / allowed).max().item()
            worst = max(worst, error) if error == error else math.inf
    return worst


def time_in_turn(torch, runs):
    """Microseconds of a call, REPETITIONS for each program."""
    samples = [[] for _ in runs]
    for i in range(-WARM, REPETITIONS):
        for (program, graph), to in zip(runs, samples):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if i >= 0:
                to.append(1e3 * begin.elapsed_time(end) / len(program.sets))
    return samples


def measure(torch, sol, shape):
    rows, n, k = shape
    pairs = [(Matrix(torch, m, k), Matrix(torch, n, k)) for m in rows]
    programs = [Sol(torch, *sol, shape, pairs), Torch(torch, shape, pairs)]
    runs = [(program, captured(torch, program)) for program in programs]
    errors = [worst_error(torch, *run, pairs) for run in runs]
    samples = time_in_turn(torch, runs)
    return {"name": f"g{len(rows)} n{n} k{k}", "m": rows, "n": n, "k": k, "variant": programs[0].variant,
            "sol": summary(samples[0], errors[0]), "torch": summary(samples[1], errors[1])}


# ---- reporting ----

def summary(samples, error):
    return {"us": statistics.median(samples), "least_us": min(samples), "most_us": max(samples),
            "error_of_allowed": error if math.isfinite(error) else None, "right": error <= 1}


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def report(device, shapes):
    """The object that --json prints. Means are geometric."""
    ours, theirs = (mean([shape[who]["us"] for shape in shapes]) for who in ("sol", "torch"))
    for shape in shapes:
        shape["of_torch"] = shape["sol"]["us"] / shape["torch"]["us"]
    return dict(device, shapes=shapes, mean_us=ours, torch_mean_us=theirs, of_torch=ours / theirs)


def table(result):
    """Lines of text."""
    def cells(name, ours, theirs, ratio):
        return [name, *ours, *theirs, f"{ratio:.2f}"]

    def of(part):
        return [f"{part['us']:.1f}", f"{part['least_us']:.1f} to {part['most_us']:.1f}", "yes" if part["right"] else "NO"]

    lines = [["shape", "sol us", "range", "right", "torch us", "range", "right", "sol over torch"]]
    lines += [cells(s["name"], of(s["sol"]), of(s["torch"]), s["of_torch"]) for s in result["shapes"]]
    lines.append(cells("geometric mean", [f"{result['mean_us']:.1f}", "", ""], [f"{result['torch_mean_us']:.1f}", "", ""],
                       result["of_torch"]))
    widths = [max(map(len, column)) for column in zip(*lines)]
    return ["  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths))) for line in lines]


def show(result):
    print(f"{result['gpu']}, torch {result['torch']}, {result['shapes'][0]['variant']}; medians of {REPETITIONS}, in turn")
    print("sol: NVFP4, scales in atoms, results in fp16. torch: torch._grouped_mm, all in bf16.")
    print("\n".join(table(result)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="\n".join(__doc__.splitlines()[4:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libsol.so; without, SOL_LIBRARY or what the loader finds")
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    options = parser.parse_args()
    torch = load_torch()
    sol = load_sol(options.library)
    torch.manual_seed(1)
    shapes = []
    for shape in SHAPES:
        shapes.append(measure(torch, sol, shape))
        torch.cuda.empty_cache()
    result = report({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}, shapes)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return 0 if all(shape[who]["right"] for shape in shapes for who in ("sol", "torch")) else WRONG


if __name__ == "__main__":
    sys.exit(main())
