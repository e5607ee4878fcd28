#!/usr/bin/env python3
"""Where a decoded token's time goes on an NVIDIA GPU: time stamps in every block of the kernels for few rows.

usage: bench/stamp_device.py [--sol build/sol] [--model ...] [--kernels kernels] [sol bench's options]

Copies the kernels' sources, has their blocks note %globaltimer (begin; input there; activations in place; last
weights multiplied; end) and prints one step's layers, from the end of the kernel before, in us. Stamps make a step
5 % longer, and each kernel has its share: do not compare steps of different numbers of kernels by them. Of a kernel
with more than 1024 blocks only those are noted.
"""
import argparse
import collections
import itertools
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

STAMPED = ["attn_in/attn_in.cu", "attn_in/attn_in_rows.cu", "attn_out/attn_out.cu", "attn_out/attn_out_rows.cu",
           "moe/moe_row.cu", "moe/moe_few.cu", "gemm/expert_rows.cuh", "attention/attention_decode.cu"]
STAMPED_ONCE = ["gemm/gemv.cu", "gemm/gemv_wide.cu"]  # of the head, not of each layer
STEP = 150  # the step behind the one that is shown
HEADER = r"""
enum { STAMP_KERNELS = 16, STAMP_RUNS = 32, STAMP_BLOCKS = 1024 };
struct stamp_record { unsigned long long begin, input, ready, done, end; };
__device__ stamp_record stamp_records[STAMP_KERNELS][STAMP_RUNS][STAMP_BLOCKS];
__device__ int stamp_count[STAMP_KERNELS][STAMP_BLOCKS];
__shared__ stamp_record stamp_now;
#ifndef __CUDACC_RTC__ /* it knows printf */
extern "C" __device__ int printf(const char *, ...);
#endif

__device__ inline unsigned long long stamp_time()
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
    return t;
}

/* By the first thread of a block. */
#define STAMP(field) if (threadIdx.x == 0) stamp_now.field = stamp_time()

struct stamp_block {
    int kernel, runs;
    const char *name;
    __device__ stamp_block(int k, int r, const char *n) : kernel(k), runs(r), name(n)
    {
        if (threadIdx.x == 0) stamp_now.input = stamp_now.ready = stamp_now.done = 0;
        STAMP(begin);
    }
    __device__ ~stamp_block()
    {
        if (threadIdx.x) return;
        STAMP(end);
        int block = (int)(blockIdx.x + gridDim.x * blockIdx.y), count;
        if (block >= STAMP_BLOCKS) return;
        count = stamp_count[kernel][block];
        stamp_records[kernel][count % STAMP_RUNS][block] = stamp_now;
        stamp_count[kernel][block] = count + 1;
        if (block == 0 && count == runs * STEP_SHOWN) print(count);
    }
    __device__ __noinline__ void print(int count)
    {
        for (int run = count - runs; run < count; run++) {
            unsigned long long first[5], last[5], sum[5];
            int n[5] = {0, 0, 0, 0, 0};
            for (int f = 0; f < 5; f++) first[f] = ~0ull, last[f] = sum[f] = 0;
            for (int b = 0; b < (int)(gridDim.x * gridDim.y) && b < STAMP_BLOCKS; b++) {
                const volatile unsigned long long *r = (const volatile unsigned long long *)
                    &stamp_records[kernel][run % STAMP_RUNS][b];
                unsigned long long base = stamp_records[kernel][run % STAMP_RUNS][0].begin - 100000;
                for (int f = 0; f < 5; f++) {
                    unsigned long long t = r[f];
                    if (!t) continue;
                    first[f] = t < first[f] ? t : first[f], last[f] = t > last[f] ? t : last[f];
                    sum[f] += t - base, n[f]++;
                }
            }
            unsigned long long base = stamp_records[kernel][run % STAMP_RUNS][0].begin - 100000;
            printf("STAMP %s %d", name, (int)(gridDim.x * gridDim.y));
            for (int f = 0; f < 5; f++)
                printf(" %llu %llu %llu", n[f] ? first[f] : 0, n[f] ? sum[f] / n[f] + base : 0, last[f]);
            printf("\n");
        }
    }
};
"""


def patch(folder, layers):
    def edit(name, *pairs):
        path = os.path.join(folder, name)
        text = open(path).read()
        for pattern, new in pairs:
            text, found = re.subn(pattern, new, text)
            if not found:
                sys.exit(f"stamp_device: {name} has nothing like {pattern}")
        open(path, "w").write(text)

    header = HEADER.replace("STEP_SHOWN", str(STEP))
    edit("ptx.cuh", (r'#include "types.h"\n', lambda m: m.group(0) + header),
         (r'(asm volatile\("griddepcontrol.wait;" ::: "memory"\);)', r"\1\n    STAMP(input);"))
    edit("gemm/few_rows.cuh", (r"(void run\(float sum.*\n\s*\{)", r"\1\n        STAMP(ready);"),
         (r"(f\[d % HELD\] = read\(min.*\n\s*\}\n)", r"\1        STAMP(done);\n"))
    edit("gemm/stream_rows.cuh", (r"(void run\(stream_partial.*\n\s*\{)", r"\1\n        STAMP(ready);"),
         (r"(\n\s*uint32_t warp = threadIdx.x / WARP, lane.*g = lane)", r"\n        STAMP(done);\1"))
    first = r"\1\n        if (!stamp_now.ready) STAMP(ready);"
    edit("gemm/expert_rows.cuh", (r"(if \(fresh\) __syncthreads\(\);)", first),
         (r"(\n#pragma unroll\n\s*for \(int i = 0; i < M; i\+\+\)\n#pragma unroll\n.*\n?.*partial\[i\]\.put)",
          r"\n        STAMP(done);\1"))
    edit("moe/moe_few.cu", (r"(barrier_wait\(shared_address\(&state.there\[number % 2\]\), .*)", first),
         (r"(if \(now.inside\(\)\) step\(.*)", r"\1\n        STAMP(done);"))
    stamp = f" stamp_block stamp_all(1, {layers}, __FUNCTION__);"
    edit("moe_down/moe_down_rows.cu", (r"(moe_down_join, join_rows_args\) \{)", lambda m: m.group(0) + stamp))
    for name in STAMPED + STAMPED_ONCE:
        runs = 1 if name in STAMPED_ONCE else layers
        number = itertools.count()  # a macro makes several kernels of one model's formats: one of them runs
        edit(name, (r"(const __grid_constant__ \w+ a\)\s*\\?\s*\{)", lambda m: m.group(0) +
                    f" stamp_block stamp_all({next(number)}, {runs}, __FUNCTION__);"))
    edit("moe/moe_few.cu", (r"stamp_all\(0,", "stamp_all(up,"))  # both of a macro's kernels run


def show(lines, each):
    kernels = collections.defaultdict(list)
    for line in lines:
        parts = line.split()
        kernels[parts[1]].append([int(p) for p in parts[2:]])
    runs = sorted((r[1], name, r) for name, all_runs in kernels.items() for r in all_runs)
    rows, before = collections.defaultdict(list), None
    for _, name, r in runs:
        if before is not None and each:
            print(f"{name:26} " + " ".join(f"{(t - before) / 1000:7.2f}" if t else "      -" for t in r[1:]))
        if before is not None:
            rows[name].append([(t - before) / 1000 if t else None for t in r[1:]] + [r[0]])
        before = max(r[15], r[12])
    print(f"{'us from the end of the kernel before':38}" + "".join(f"{t:>23}" for t in
          ("begin", "input", "ready", "done", "end")) + "\n" + f"{'':38}" + "  first   mean   last" * 5)
    total = 0
    for name, all_rows in sorted(rows.items(), key=lambda item: -len(item[1])):
        middle = []
        for f in range(15):
            values = [r[f] for r in all_rows if r[f] is not None]
            middle.append(f"{statistics.mean(values):7.2f}" if values else "      -")
        total += sum(r[14] for r in all_rows)
        print(f"{name:26} x{len(all_rows):3} {all_rows[0][15]:5}  " + " ".join(
            "".join(middle[3 * i:3 * i + 3]).rjust(22) for i in range(5)))
    print(f"all of them: {total:.1f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sol", default="build/sol")
    parser.add_argument("--model", default="synth:gpt-oss-20b")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--each", action="store_true", help="each kernel of the step too, as the table's columns")
    parser.add_argument("--kernels", default=os.path.join(os.path.dirname(__file__), "..", "kernels"))
    args, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = os.path.join(folder, "kernels")
        shutil.copytree(args.kernels, sources)
        patch(sources, args.layers)
        done = subprocess.run([args.sol, "bench", "-m", args.model, "--backend", "cuda", "-p", "0", "-n", "64",
                               "-r", "3", "--no-limits", "--no-store", "--kernel-src", sources, *rest],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("STAMP")]
    print("\n".join(line for line in done.stdout.splitlines() if not line.startswith("STAMP")))
    if not lines:
        sys.exit(f"stamp_device: no stamps\n{done.stderr[-3000:]}")
    show(lines, args.each)


if __name__ == "__main__":
    main()
