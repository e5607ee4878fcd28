#!/usr/bin/env python3
"""PyTorch's all-reduces of one small message in a CUDA graph: its symmetric-memory one-shot, its two-shot, and NCCL.

usage: bench/all_reduce_torch.py [--gpus 2] [--bytes 11520] [--calls 200] [--passes 20]

One process a GPU. A graph of `calls` calls is timed by events; of each pass counts the rank that took least, which began
last. One JSON object on stdout: us a call, the median of passes, and why something was not measured. NVLink multicast
stays off: the multimem variants are not called.
"""
import argparse
import json
import os
import socket
import statistics


def work(rank, options, port, queue):
    os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(options.gpus))
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=options.gpus, device_id=torch.device("cuda", rank))
    group = dist.group.WORLD.group_name
    numbers = options.bytes // 4
    out = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(rank)}

    def timed(name, call):
        try:
            for _ in range(3):
                call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(options.calls):
                    call()
            each = []
            for i in range(options.passes + 3):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                dist.barrier()
                torch.cuda.synchronize()
                begin.record()
                graph.replay()
                end.record()
                torch.cuda.synchronize()
                all_of = [None] * options.gpus
                dist.all_gather_object(all_of, 1e3 * begin.elapsed_time(end) / options.calls)
                if i >= 3:
                    each.append(min(all_of))
            out[name] = statistics.median(each)
        except Exception as error:  # other variants are still of use
            out[name] = None
            out[name + "_error"] = f"{type(error).__name__}: {error}"[:300]

    x = torch.zeros(numbers, device="cuda")
    timed("nccl_us", lambda: dist.all_reduce(x))
    try:
        import torch.distributed._symmetric_memory as symmetric
        if hasattr(symmetric, "enable_symm_mem_for_group"):
            symmetric.enable_symm_mem_for_group(group)
        y = symmetric.empty(numbers, device="cuda").zero_()
        symmetric.rendezvous(y, group)
        z = torch.empty_like(y)
        timed("one_shot_us", lambda: torch.ops.symm_mem.one_shot_all_reduce_out(y, "sum", group, out=z)
              if hasattr(torch.ops.symm_mem, "one_shot_all_reduce_out") else torch.ops.symm_mem.one_shot_all_reduce(y, "sum", group))
        timed("two_shot_us", lambda: torch.ops.symm_mem.two_shot_all_reduce_(y, "sum", group))
    except Exception as error:
        out["one_shot_us"] = None
        out["one_shot_us_error"] = f"{type(error).__name__}: {error}"[:300]
    if rank == 0:
        queue.put(out)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=11520)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--passes", type=int, default=20)
    options = parser.parse_args()
    import torch.multiprocessing as multiprocessing
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = context.SimpleQueue()
    ranks = [context.Process(target=work, args=(r, options, port, queue)) for r in range(options.gpus)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    if queue.empty():
        raise SystemExit("all_reduce_torch: no rank came to its end")
    print(json.dumps(queue.get()))


if __name__ == "__main__":
    main()
