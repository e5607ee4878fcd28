"""examples/grouped_gemm/submission.py on an emulated GPU, with the tensors of tests/fake_torch: results against
sums of fractions, with the task's tuple in both forms, and what it refuses. cli_entry.sh runs it."""
import random
import struct
import sys

import torch
from torch import CPU, GPU, Tensor

sys.path.insert(0, sys.argv[1])
import submission  # noqa: E402

VALUES = [0, .5, 1, 1.5, 2, 3, 4, 6]
SCALE = {0x38: 1, 0x40: 2, 0x3c: 1.5}


def decode(codes, scales, row, k):
    """Numbers of a row; codes and scales by rows."""
    line = codes[row * k // 2:(row + 1) * k // 2]
    nibbles = [n for byte in line for n in (byte & 15, byte >> 4)]
    return [(-1 if n & 8 else 1) * VALUES[n & 7] * SCALE[scales[(row * k + i) // 16]] for i, n in enumerate(nibbles)]


def atoms(scales, rows, blocks):
    """The task's reordered scales; what fills up the last ones is no scale."""
    over = -(-blocks // 4)
    out = bytearray(b"\xff" * (-(-rows // 128) * over * 512))
    for r in range(rows):
        for b in range(blocks):
            out[(r // 128 * over + b // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + b % 4] = scales[r * blocks + b]
    return bytes(out)


def matrix(rng, rows, k):
    """Codes, scales by rows in the host's memory, scales by atoms; and the numbers."""
    blocks, over = k // 16, (-(-rows // 128), -(-(k // 16) // 4))
    codes = bytes(rng.randrange(256) & 0xbb for _ in range(rows * k // 2))
    scales = bytes(rng.choice(list(SCALE)) for _ in range(rows * blocks))
    numbers = [decode(codes, scales, r, k) for r in range(rows)]
    return (Tensor(codes, torch.float4_e2m1fn_x2, (rows, k // 2, 1), (k // 2, 1, rows * k // 2)),
            Tensor(scales, torch.float8_e4m3fn, (rows, blocks, 1), (blocks, 1, rows * blocks), CPU),
            Tensor(atoms(scales, rows, blocks), torch.float8_e4m3fn, (32, 4, over[0], 4, over[1], 1),
                   (16, 4, over[1] * 512, 1, 512, over[0] * over[1] * 512)), numbers)


def make(sizes):
    """The task's tuple, and what the results are to be, as bytes."""
    rng, abc, rows, reordered, wanted = random.Random(3), [], [], [], []
    for m, n, k in sizes:
        a, sfa, sfa_atoms, x = matrix(rng, m, k)
        b, sfb, sfb_atoms, y = matrix(rng, n, k)
        abc.append((a, b, Tensor(b"\x7f" * (2 * m * n), torch.float16, (m, n, 1), (n, 1, m * n))))
        rows.append((sfa, sfb))
        reordered.append((sfa_atoms, sfb_atoms))
        wanted.append(b"".join(struct.pack("<e", sum(p * q for p, q in zip(u, v))) for u in x for v in y))
    return (abc, rows, reordered, [(*size, 1) for size in sizes]), wanted


def moves_are_seen(data, wanted):
    """A tensor whose memory is another one now, and others in the place of those that went."""
    submission.custom_kernel(data)
    c = data[0][1][2]
    fresh = Tensor(b"\x7f" * c.bytes, c.dtype, c.shape, c.strides)
    c.memory, c.offset = fresh.memory, fresh.offset
    submission.custom_kernel(data)
    assert c.contents() == wanted[1]
    for size in (8, 16, 8):
        again, right = make([(size, 8, 64)])
        assert submission.custom_kernel(again)[0].contents() == right[0]
        del again


def refused(change, expected):
    data, _ = make([(8, 8, 64)])
    data = tuple(change(*data))
    before = data[0][0][2].contents() if data[0] else b""
    try:
        submission.custom_kernel(data)
    except (ValueError, RuntimeError) as error:
        assert expected in str(error), f"'{error}' instead of '{expected}'"
    else:
        raise AssertionError(f"not refused: {expected}")
    assert not data[0] or data[0][0][2].contents() == before


def with_a(field, value):
    def change(abc, rows, reordered, sizes):
        setattr(abc[0][0], field, value)
        return abc, rows, reordered, sizes
    return change


def main():
    data, wanted = make([(5, 8, 64), (40, 24, 256), (130, 3, 16), (0, 8, 32)])
    for form in (data, (data[0], data[1], data[3])):
        for _, _, c in data[0]:
            c.memory[c.offset:c.offset + c.bytes] = b"\x7f" * c.bytes
        for _ in range(2):
            results = submission.custom_kernel(form)
            assert [c is given[2] for c, given in zip(results, data[0])] == [True] * 4
            for i, (c, right) in enumerate(zip(results, wanted)):
                assert c.contents() == right, f"group {i} is wrong"
    assert submission.custom_kernel(([], [], [], [])) == []
    moves_are_seen(data, wanted)
    problem, _, kept = submission.problem_of(data)
    assert submission.Gemm.of(0).variant(problem) == "grouped_gemm_mma_cuda" and len(kept) == 9

    refused(with_a("shape", (8, 30, 1)), "a has the shape (8, 30, 1), not (8, 32, 1)")
    refused(with_a("strides", (64, 1, 512)), "a has the strides (64, 1, 512), not (32, 1, 256)")
    refused(with_a("dtype", torch.float16), "a is float16, not float4_e2m1fn_x2")
    refused(with_a("offset", 8), "the codes of a begin at no multiple of 16")
    refused(lambda abc, r, o, s: ([(abc[0][0], abc[0][1].to(CPU), abc[0][2])], r, o, s), "b is on cpu, the first a on cuda:0")
    refused(lambda abc, r, o, s: ([tuple(x.to(CPU) for x in abc[0])], r, [tuple(x.to(CPU) for x in o[0])], s),
            "a is on cpu: the products are computed on a GPU")
    refused(lambda abc, r, o, s: (abc, r, r, s), "sfa has the shape (8, 4, 1), not (32, 4, 1, 4, 1, 1)")
    refused(lambda abc, r, o, s: (abc, r, o, [(8, 8, 64, 2)]), "group 0: l is 2, the task has 1")
    refused(lambda abc, r, o, s: (abc, r, o, s + s), "data is to be")
    refused(lambda abc, r, o, s: (abc, r, [], s), "0 pairs of scales for 1 groups")
    print("submission.py: right")


main()
