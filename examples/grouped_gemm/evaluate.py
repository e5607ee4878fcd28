#!/usr/bin/env python3
"""Runs the task nvfp4_group_gemm's own evaluation (gpu-mode/reference-kernels) with submission.py.

    git clone https://github.com/gpu-mode/reference-kernels
    git -C reference-kernels checkout f83cb92a
    python3 examples/grouped_gemm/evaluate.py reference-kernels --library build/libsol.so

The task's files are copied into a folder that goes away, beside submission.py. Their imports of
cutlass, which this submission does not use, are served by stubs where it is not installed. On GPUs
whose torch._scaled_mm does not multiply fp4 (all before compute capability 10.0) the reference is
the same product in float64 instead, held to the task's tolerance. What was replaced is said first.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
PROBLEM = pathlib.PurePath("problems/nvidia/nvfp4_group_gemm")
CLEARED = 70 << 30  # bytes that the evaluation allocates between two measurements

STUBS = {
    "cutlass/__init__.py": "",
    "cutlass/cute/__init__.py": "",
    "cutlass/cute/nvgpu/__init__.py": "",
    "cutlass/cute/nvgpu/common.py": "class OpError(Exception):\n    pass\n",
    "cutlass/_mlir/__init__.py": "",
    "cutlass/_mlir/ir.py": "class MLIRError(Exception):\n    pass\n",
}

# Beside the task's reference, which keeps its inputs and its tolerance.
REFERENCE = '''
import torch
import utils

VALUES = [0, .5, 1, 1.5, 2, 3, 4, 6]


def decoded(codes, scales):
    """[rows, k] in float64 of codes [rows, k / 2] and scales [rows, k / 16]."""
    table = torch.tensor(VALUES + [-v for v in VALUES], dtype=torch.float64, device=codes.device)
    codes = codes.view(torch.uint8)
    pairs = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)
    scales = scales.to(codes.device).to(torch.float64).repeat_interleave(16, dim=1)
    return table[pairs.long()] * scales


def in_float64(data):
    abc, scales, *_, sizes = data
    results = []
    for (a, b, c), (sfa, sfb), (_, _, _, l) in zip(abc, scales, sizes):
        for i in range(l):
            product = decoded(a[:, :, i], sfa[:, :, i]) @ decoded(b[:, :, i], sfb[:, :, i]).T
            c[:, :, i] = product.to(torch.float16)
        results.append(c)
    return results


make = utils.make_match_reference
utils.make_match_reference = lambda reference, **tolerance: make(in_float64, **tolerance)
from task_reference import check_implementation, generate_input
'''

UTILS = "from task_utils import *\nfrom task_utils import clear_l2_cache as clear_l2_cache_large\n"


def fail(text):
    sys.exit(f"evaluate.py: {text}")


def note(text):
    print(f"evaluate.py: {text}", flush=True)


# ---- the task ----

def read_task(folder):
    """Names and sources of its files, and its lists of cases, as task.yml has them: JSON, line by line."""
    try:
        text = (folder / "task.yml").read_text()
    except OSError as error:
        fail(f"{error}; give a checkout of gpu-mode/reference-kernels")
    files, cases = [], {}
    for section, body in re.findall(r"^(files|tests|benchmarks):\n((?:[ \t]+.*\n|\n)*)", text, re.M):
        entries = [json.loads(line) for line in re.findall(r"^\s*-\s*(\{.*\})\s*$", body, re.M)]
        if section == "files":
            files = [(e["name"], e["source"]) for e in entries]
        cases[section] = entries
    if not files or not cases.get("tests") or not cases.get("benchmarks"):
        fail(f"{folder}/task.yml has no files, tests or benchmarks that are understood here")
    return files, cases


def copy_files(folder, files, work):
    for name, source in files:
        path = HERE / "submission.py" if source == "@SUBMISSION@" else (folder / source).resolve()
        if not path.is_file():
            fail(f"{path} is missing; give a whole checkout of gpu-mode/reference-kernels")
        shutil.copyfile(path, work / name)


def write_cases(cases, path):
    with open(path, "w") as out:
        for case in cases:
            out.write("; ".join(f"{key}: {value}" for key, value in case.items()) + "\n")


# ---- what is replaced ----

def put_beside(work, name, text):
    """The task's `name` as task_`name`, and `text` in its place."""
    (work / name).rename(work / f"task_{name}")
    (work / name).write_text(text)


def find_gpu():
    try:
        import torch
    except ImportError:
        fail("no torch: the task's inputs and its evaluation are PyTorch's; python3 -m pip install torch numpy")
    if not torch.cuda.is_available():
        fail(f"no GPU: torch {torch.__version__} sees none, and the task's inputs are made on one")
    return torch.cuda.get_device_name(), torch.cuda.get_device_capability(), torch.cuda.mem_get_info()[1]


def replace(work):
    name, capability, memory = find_gpu()
    note(f"{name}, compute capability {capability[0]}.{capability[1]}")
    try:
        import cutlass.cute.nvgpu.common  # noqa: F401
    except ImportError:
        note("cutlass is not installed: stubs serve the task's imports")
        for path, text in STUBS.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
    if capability < (10, 0):
        note("torch._scaled_mm knows no fp4 here: the reference is the product in float64, rounded once")
        put_beside(work, "reference.py", REFERENCE)
    if memory < CLEARED:
        note("the cache is cleared with the task's smaller buffer: its larger one is 62.5 GiB")
        put_beside(work, "utils.py", UTILS)


# ---- running ----

def environment(work, library):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [str(work), os.environ.get("PYTHONPATH")])))
    library = library or env.get("SOL_LIBRARY")
    if library and os.sep in library:  # the evaluation runs in another folder
        env["SOL_LIBRARY"] = str(pathlib.Path(library).resolve())
    return env


def read_log(end, log):
    with os.fdopen(end) as lines:
        for line in lines:
            print(line, end="", flush=True)
            key, _, value = line.rstrip("\n").partition(": ")
            log[key] = value


def run(work, mode, env):
    """The evaluation's exit status and its log."""
    log = {}
    reading, writing = os.pipe()
    reader = threading.Thread(target=read_log, args=(reading, log))
    reader.start()
    env["POPCORN_FD"] = str(writing)
    status = subprocess.call([sys.executable, "eval.py", mode, "cases.txt"], cwd=work, env=env, pass_fds=[writing])
    os.close(writing)
    reader.join()
    return status, log


def summary(log):
    means = [float(value) for key, value in log.items() if re.fullmatch(r"benchmark\.\d+\.mean", key)]
    if means:
        mean = math.exp(sum(map(math.log, means)) / len(means))
        note(f"geometric mean of {len(means)} benchmarks: {mean / 1e3:.2f} us")
    note("passed" if log.get("check") == "pass" else "FAILED")


def main():
    parser = argparse.ArgumentParser(description="the task nvfp4_group_gemm's own evaluation of submission.py")
    parser.add_argument("checkout", type=pathlib.Path, help="of gpu-mode/reference-kernels; made for f83cb92a")
    parser.add_argument("--mode", default="test", choices=("test", "benchmark", "leaderboard"))
    parser.add_argument("--library", help="libsol.so; without, SOL_LIBRARY or what the loader finds")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N cases")
    options = parser.parse_args()
    folder = options.checkout / PROBLEM
    files, cases = read_task(folder)
    if options.library and not pathlib.Path(options.library).is_file():
        fail(f"there is no library {options.library}")
    with tempfile.TemporaryDirectory(prefix="sol-task-") as name:
        work = pathlib.Path(name)
        copy_files(folder, files, work)
        replace(work)
        write_cases(cases["tests" if options.mode == "test" else "benchmarks"][:options.first], work / "cases.txt")
        status, log = run(work, options.mode, environment(work, options.library))
    summary(log)
    return status or (log.get("check") != "pass")


if __name__ == "__main__":
    sys.exit(main())
