#!/usr/bin/env python3
"""Predicts how long grouped products of NVFP4 take: the task's four shapes on sm_90a, where they were measured, and
with the same formula on GB10 and B200, where sol has not run.

  time = launch + max(memory, multiprocessors) + before

  memory           every operand and result once, at the bandwidth that copies reach; the operands of tiles that share
                   them come from L2
  multiprocessors  tiles are given out in order, each to the first multiprocessor that is free (or, where a kernel cuts
                   tiles, equal shares for all, and the cost of adding up the sums of cut tiles). A tile: until its
                   first step is there, then steps, then the store. A step: instructions over the issue rate and
                   products over the tensor rate, one behind the other where the same warps do both, else the longer
  before           activations decoded by all, where the kernel does that

The ladder's steps (kernels/grouped_gemm/grouped_ladder.cuh) have the same formula, with what a step of 128 columns takes
made of its parts, as not all steps let them overlap: see Rung.

usage: bench/predict_grouped_gemm.py [--parameters | --ladder]
"""
import heapq
import sys
from dataclasses import dataclass, fields

SHAPES = [  # src/ops/grouped_gemm_shapes.c: m of the groups, n, k
    ([80, 176, 128, 72, 64, 248, 96, 160], 4096, 7168),
    ([40, 76, 168, 72, 164, 148, 196, 160], 7168, 2048),
    ([192, 320], 3072, 4096),
    ([128, 384], 4096, 1536),
]
MEASURED_H200 = [110.2, 74.6, 30.1, 17.0]  # us, grouped_gemm_wgmma_cuda


@dataclass
class Card:
    name: str
    multiprocessors: int
    clock: float  # GHz, under this load
    tensor: float  # flops a cycle of a multiprocessor
    bandwidth: float  # GB/s, datasheet
    reached: float = 0.9  # of it, by a copy
    launch: float = 4.0  # us: a launch, and until its first data are there
    l2: float = 4500.0  # GB/s, for what all write and read at once


# Tensor rates: 989 TFLOP/s of fp16 are 4096 flops a cycle at 1.83 GHz; the clock is what an H200 holds under such load.
H200 = Card("H200", 132, 1.755, 4096, 4800)
# The ladder was measured on it. 3.0 TB/s are reached; its clock was not read, so it is the H200's.
H100 = Card("H100", 132, 1.755, 4096, 3350)
# 1 PFLOP/s with sparsity, 0.5 without: 4096 flops of e2m1 a cycle at 2.42 GHz, 16 cycles for an m16n8k64 of a
# scheduler. (An RTX 5090's 1676 TFLOP/s at 2.41 GHz on 170 multiprocessors are the same 4096.)
GB10 = Card("GB10", 48, 2.42, 4096, 273, l2=1000)
# 9 PFLOP/s of dense e2m1 at 1.85 GHz on 148 multiprocessors.
B200 = Card("B200", 148, 1.85, 32768, 8000, l2=9000)


def over(count, size):
    return -(-count // size)


def moved(shape):
    """Bytes of codes, scales and results in 16 bits."""
    rows, n, k = shape
    return sum((m + n) * k * 9 / 16 + 2 * m * n for m in rows)


def given_out(tiles, workers):
    """When the last is finished: tiles in order, each to who is free first."""
    free = [0.0] * workers
    for tile in tiles:
        heapq.heappush(free, heapq.heappop(free) + tile)
    return max(free)


@dataclass
class Kernel:
    """Of a tile of `features` by a width of tokens, in steps of `step` columns."""

    name: str
    features: int
    widths: list  # of tokens
    step: int
    slots: float  # cycles in which a scheduler issues other instructions than products, a step
    shared: float  # of the cycles of products in which no other instruction is issued; 0: products run beside them
    cut: float  # cycles of adding up sums of cut tiles; 0: tiles are whole
    ends: float  # cycles of a tile until its first step is there, and of its store
    decodes: bool  # activations before all else

    def tokens(self, m):
        """Widths that cover m tokens with least padding, few of them."""
        best = {0: (0, [])}
        for e in range(8, over(m, 8) * 8 + 1, 8):
            best[e] = min((best[max(e - w, 0)][0] + w + 32, best[max(e - w, 0)][1] + [w]) for w in self.widths)
        return best[over(m, 8) * 8][1]

    def step_cycles(self, width, card):
        products = 2 * self.features * width * self.step / card.tensor
        return max(self.slots + self.shared * products, products)

    def time(self, shape, card):
        rows, n, k = shape
        tiles = []
        for m in rows:
            each = [self.ends + over(k, self.step) * self.step_cycles(w, card) for w in self.tokens(m)]
            tiles += each * over(n, self.features)
        if self.cut:
            cycles = sum(tiles) / card.multiprocessors + self.cut
        else:
            cycles = given_out(tiles, card.multiprocessors)
        memory = moved(shape) / (card.bandwidth * card.reached) / 1e3
        before = sum(rows) * k * 2 * 2 / card.l2 / 1e3 if self.decodes else 0
        return card.launch + max(memory, cycles / card.clock / 1e3) + before, memory


# sm_90a (kernels/grouped_gemm/grouped_wgmma.cuh). While products run, 0.57 of the cycles issue nothing else (measured
# alone, docs/LOG.md). What a step takes beside that, what a tile takes for its results, and what sums of cut tiles
# cost were measured by clocks in the kernel.
WIDTHS = [64, 80, 88, 96, 128]
FEW = [16, 40, 64, 72, 80, 88, 96, 128]
SM_90A = [
    Kernel("256", 256, WIDTHS, 128, 1130, 0.57, 24000, 7500, True),
    Kernel("256_whole", 256, WIDTHS, 128, 1130, 0.57, 0, 7500, True),
    Kernel("128", 128, FEW, 128, 680, 0.57, 9600, 2800, True),
    Kernel("128_whole", 128, FEW, 128, 680, 0.57, 0, 2800, True),
]
# sm_12x (kernels/grouped_gemm/grouped_gemm_mxf4.cu): tiles of 128 features by 128 tokens, of which every 16 that there
# are cost tensor time. For half a step a warp issues 16 products, 9 reads of shared memory, 10 others: 2 x 2 x 19 slots
# of a scheduler. Shared memory: 8 warps read 27 lines of 128 bytes, and 72 arrive, 2 x 288 cycles of 2 x 512. A tile is
# alone on its multiprocessor: 1.2 us until its first data are there, and 4096 cycles for its store.
SM_12X = [Kernel("mxf4", 128, list(range(16, 129, 16)), 128, 2 * 288, 0, 0, 2900 + 4096, False)]
# sm_100a (kernels/grouped_gemm/grouped_tcgen05.cuh): tiles of 128 features by up to 128 or 256 tokens, weights and
# scales by copies. What a tile costs beside its products is 1.5 us, half of it behind the next tile's where tensor
# memory has the sums of two.
SM_100A = [
    Kernel("128_tokens", 128, list(range(8, 129, 8)), 256, 0, 0, 0, 1400, False),
    Kernel("256_tokens", 128, list(range(8, 257, 8)), 256, 0, 0, 0, 2800, False),
]


# ---- the ladder, sm_90a: tiles of 128 features by 32, 64, 96 or 128 tokens, steps of 128 columns ----


@dataclass
class Rungs:
    """Cycles. `eight` and `ring` are from before the ladder was measured (680 and 1130 a step of SM_90A's two tile sizes
    are 28 for each eight rows and 230 beside them), `shared` was measured alone. The other six fit the ladder's 24 times
    on an H100, the same for all steps and shapes; what they were before stands behind them."""

    eight: float = 28  # eight rows of a step decoded into registers: issue slots of a scheduler
    put: float = 13  # and to shared memory, whose banks take 16 for 2 KB; 1
    step: float = 400  # barriers, descriptors and loops of those who multiply, and of who copies; 230
    ring: float = 105  # the same of warps that only decode
    shared: float = 0.57  # of the cycles of products, in which nothing else is issued
    latency: float = 500  # from asking for codes to having them, as far as nothing hides it; 1000
    copy: float = 0  # the copy engine's way, beside a load's; 100
    meet: float = 460  # fence, barrier of all threads, first product's start or last one's end; 150
    begin: float = 1300  # a block, until its first codes are there; 1500
    store: float = 2000  # of a tile's results


RUNGS = Rungs()


@dataclass
class Rung:
    """A step of the ladder. With products P of a step and S issue slots of the rest, work = max(P, S + shared P):

    in turn     a block's step takes latency + S + P + two times meet; two blocks on an SM each fill what the other
                leaves, but not more than the SM has: max(that, 2 work)
    overlapped  work + meet
    roles       work, with more warps that have loops of their own
    """

    name: str
    resident: int = 1  # blocks on an SM
    copied: bool = True
    overlapped: bool = True
    roles: bool = False
    blocks: int = 1  # that share their tokens
    persistent: bool = False

    def step_cycles(self, tokens, resident, card):
        r = RUNGS
        products = 2 * 128 * (over(tokens, 32) * 32) * 128 / card.tensor
        slots = 16 * r.eight + over(over(tokens, 8), self.blocks) * (r.eight + r.put) + r.step
        slots += r.ring if self.roles else 16 * r.put
        work = max(products, slots + r.shared * products)
        if self.overlapped:
            return work + (0 if self.roles else r.meet)
        alone = r.latency + (r.copy if self.copied else 0) + slots + products + 2 * r.meet
        return max(alone, resident * work)

    def time(self, shape, card):
        rows, n, k = shape
        tokens = [min(128, m - t) for m in rows for t in range(0, m, 128)]
        count, workers = over(n, 128 * self.blocks), card.multiprocessors // self.blocks
        resident = min(self.resident, over(len(tokens) * count, workers))
        r, tiles = RUNGS, []
        for width in tokens:
            tile = over(k, 128) * self.step_cycles(width, resident, card) + r.store
            tiles += [tile + (0 if self.persistent else r.begin)] * count
        if self.persistent:
            tiles.sort(reverse=True)
        cycles = given_out(tiles, workers * resident) + (r.begin if self.persistent else 0)
        memory = moved(shape) / (card.bandwidth * card.reached) / 1e3
        return card.launch + max(memory, cycles / card.clock / 1e3)


LADDER = [
    Rung("plain", resident=2, copied=False, overlapped=False),
    Rung("swizzle", resident=2, overlapped=False),
    Rung("stages"),
    Rung("roles", roles=True),
    Rung("cluster", roles=True, blocks=2),
    Rung("persistent", roles=True, blocks=2, persistent=True),
]
PREDICTED_LADDER = {  # us of the four shapes, written down for an H200 before anything was measured
    "plain": [206.5, 97.7, 69.5, 29.8],
    "swizzle": [212.8, 100.4, 71.3, 30.5],
    "stages": [165.1, 100.3, 40.5, 18.9],
    "roles": [159.2, 97.0, 39.4, 18.5],
    "cluster": [143.5, 89.6, 35.1, 16.9],
    "persistent": [140.9, 83.7, 35.1, 16.9],
}
MEASURED_LADDER = {  # on an H100, scales in atoms: bench/grouped_ladder.sh
    "plain": [283.7, 137.5, 76.1, 36.4],
    "swizzle": [282.0, 131.8, 78.0, 34.3],
    "stages": [263.2, 146.6, 52.4, 23.4],
    "roles": [206.3, 111.5, 41.2, 18.8],
    "cluster": [184.8, 113.3, 37.5, 18.3],
    "persistent": [163.0, 99.0, 37.7, 18.4],
}


def mean(times):
    product = 1.0
    for time in times:
        product *= time
    return product ** (1 / len(times))


def ladder():
    """The tables of docs/design/grouped-gemm.md: times with their mean and its gain; how far the formula is off."""
    print("| step | predicted before | mean | gain | measured | mean | gain | formula | mean | gain |")
    before, errors = None, {}
    for rung in LADDER:
        measured = MEASURED_LADDER[rung.name]
        formula = [rung.time(shape, H100) for shape in SHAPES]
        columns = [PREDICTED_LADDER[rung.name], measured, formula]
        text = f"| {rung.name}"
        for i, times in enumerate(columns):
            text += f" | {', '.join(f'{t:.1f}' for t in times)} | {mean(times):.1f} | "
            text += f"{mean(before[i]) / mean(times):.2f}" if before else ""
        print(text + " |")
        before = columns
        errors[rung.name] = [100 * (t / m - 1) for t, m in zip(formula, measured)]
    print("\n| step | formula off by, % | mean | worst |")
    for name, off in [*errors.items(), ("all", sum(errors.values(), []))]:
        each = ", ".join(f"{e:+.1f}" for e in off) if name != "all" else ""
        print(f"| {name} | {each} | {sum(map(abs, off)) / len(off):.1f} | {max(map(abs, off)):.1f} |")


def predict(shape, card, kernels):
    best = min(kernels, key=lambda kernel: kernel.time(shape, card)[0])
    time, memory = best.time(shape, card)
    return time, memory, best.name


def row(i, shape, card, kernels, measured):
    time, memory, name = predict(shape, card, kernels)
    flops = sum(2 * m * shape[1] * shape[2] for m in shape[0])
    text = f"{card.name:6} shape {i + 1}  {time:7.1f} us  memory {memory:6.1f}  {flops / time / 1e6:7.0f} TFLOP/s  {name:10}"
    if measured:
        text += f" measured {measured[i]:6.1f}, {100 * (time / measured[i] - 1):+.1f} %"
    print(text)
    return time


def main():
    if "--parameters" in sys.argv[1:]:
        for thing in [H200, H100, GB10, B200] + SM_90A + SM_12X + SM_100A + [RUNGS] + LADDER:
            print(" ".join(f"{f.name}={getattr(thing, f.name)}" for f in fields(thing)))
        return
    if "--ladder" in sys.argv[1:]:
        ladder()
        return
    for card, kernels, measured in ((H200, SM_90A, MEASURED_H200), (GB10, SM_12X, None), (B200, SM_100A, None)):
        product = 1.0
        for i, shape in enumerate(SHAPES):
            product *= row(i, shape, card, kernels, measured)
        print(f"{card.name:6} geometric mean {product ** 0.25:.1f} us")


if __name__ == "__main__":
    main()
