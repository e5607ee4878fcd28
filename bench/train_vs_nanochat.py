#!/usr/bin/env python3
"""sol's training beside nanochat's own under torch.compile, same models, same machine, one GPU or several.

usage: bench/train_vs_nanochat.py --july PATH [--january PATH] [--sol build/sol] [--only NAME,...]
                                  [--gpus N] [--steps N] [--limit S] [--budget S] [--out FILE]
       bench/train_vs_nanochat.py --july PATH --january PATH --device cpu --tiny     (tries it out)

PATH are checkouts of karpathy/nanochat: 92d63d4 for July, ccf4b7f for January. Nothing is read from a network;
tokens are random. Each case has a process of its own, ended after --limit seconds; all of them together end
within --budget seconds (default 530), and what was measured until then is kept. A case is
  july_full     depth 20, B=32 T=2048 V=65536, full windows: forward and backward
  july          the same with V=32768, and with its optimizer after every micro-batch
  july_windows  the same with windows SSSL: without FlashAttention 3, which needs a network, masks for SDPA
  january       depth 20, B=8 T=1024 V=65536: forward and backward, and with its optimizers (and its clipping)
As in base_train a step lies between two synchronizations, gradients are set to None behind it, and Python's
collector is off. With --gpus N each GPU has such a micro-batch, nanochat is started by torchrun, as its own runs are, and only steps with the
optimizer are measured, in which alone GPUs meet; tokens/s are of all. After 3 steps that do not count (the first compiles) come --steps that do.

One JSON object a line on stdout, and in --out: engine, name, tok_per_s (median), sd, min, max (of sol ci95 in
their place), peak_gib, steps, and what they were measured with; or engine, name and error. A table with ratios
goes to stderr. Needs a PyTorch with filelock; without --july and --january sol alone is measured.

Exit status: 0 all measured, 1 something is not.
"""
import argparse
import contextlib
import gc
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

# What measures one row for sol, its keys, and what makes tokens/s and bytes of them.
SOL_COMMAND = ("{sol} train bench --json --quiet --recipe={recipe} --depth={depth} --aspect-ratio={aspect} "
               "--head-dim={head_dim} --max-seq-len={length} --device-batch-size={batch} --vocab-size={vocab} "
               "--window-pattern={windows} --num-iterations={steps} --warmup-steps={warm} --optimizer={optimizer} "
               "--backend={backend} --gpus={gpus}")
SOL_RATE, SOL_INTERVAL, SOL_PEAK = "tokens_per_s", "ci95", "peak_bytes"

WARM, GIB = 3, 2**30
D20 = dict(depth=20, aspect=64, head_dim=128)
TINY = dict(depth=3, aspect=32, head_dim=32, batch=2, length=160, vocab=256)
JULY = D20 | dict(recipe="2026-07", batch=32, length=2048, vocab=32768, windows="L")
CASES = {
    "july_full": JULY | dict(vocab=65536, measures=["fwd_bwd"]),
    "july": JULY | dict(measures=["fwd_bwd", "step"]),
    "july_windows": JULY | dict(windows="SSSL", measures=["fwd_bwd"]),
    "january": D20 | dict(recipe="2026-01", batch=8, length=1024, vocab=65536, windows="L",
                          measures=["fwd_bwd", "step"]),
}
OPTIMIZER = {"fwd_bwd": "none", "step": "every"}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--july")
    p.add_argument("--january")
    p.add_argument("--sol", help="sol's program; without it nanochat alone is measured")
    p.add_argument("--only", default=",".join(CASES))
    p.add_argument("--gpus", type=int, default=1)
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--limit", type=float, default=240)
    p.add_argument("--budget", type=float, default=530)
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--tiny", action="store_true", help="very small models instead")
    p.add_argument("--out")
    p.add_argument("--child", help=argparse.SUPPRESS)
    args = p.parse_args()
    args.only = args.only.split(",")
    for name in args.only:
        if name not in CASES:
            p.error(f"no case '{name}': {', '.join(CASES)}")
    if not (args.july or args.january or args.sol):
        p.error("nothing to measure: give --july, --january or --sol")
    return args


def case_of(args, name):
    case = CASES[name] | (TINY if args.tiny else {})
    return case | dict(measures=[m for m in case["measures"] if m == "step"]) if args.gpus > 1 else case


# ---- nanochat, in a process of its own ----

def build(torch, case, device):
    """As base_train: on no device first, then compiled. Returns the model, and a step of its optimizers."""
    from nanochat.gpt import GPT, GPTConfig
    width = -(-case["depth"] * case["aspect"] // case["head_dim"]) * case["head_dim"]
    heads = width // case["head_dim"]
    sizes = dict(sequence_len=case["length"], vocab_size=case["vocab"], n_layer=case["depth"], n_head=heads,
                 n_kv_head=heads, n_embd=width)
    july = case["recipe"] == "2026-07"
    with torch.device("meta"):
        gpt = GPT(GPTConfig(**sizes, window_pattern=case["windows"]) if july else GPTConfig(**sizes))
    gpt.to_empty(device=device)
    gpt.init_weights()
    if july:
        optimizers = [gpt.setup_optimizer(weight_decay=0.1)]
    else:
        optimizers = gpt.setup_optimizers()

    def update():
        if not july:
            torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0).item()
        for optimizer in optimizers:
            optimizer.step()

    return torch.compile(gpt, dynamic=False), update


def child(args):
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    case, cuda = case_of(args, args.child), args.device == "cuda"
    sys.path.insert(0, args.july if case["recipe"] == "2026-07" else args.january)
    import torch
    lines = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        import nanochat.common
        nanochat.common.compute_init(args.device)
        model, update = build(torch, case, args.device)
    synchronize = torch.cuda.synchronize if cuda else lambda: None
    autocast = contextlib.nullcontext()
    if case["recipe"] == "2026-01" and cuda:
        autocast = torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)
    shape = (case["batch"], case["length"])
    ranks, first = int(os.environ.get("WORLD_SIZE", "1")), os.environ.get("RANK", "0") == "0"

    def step(updates):
        tokens = torch.randint(case["vocab"], (2, *shape), device=args.device)
        synchronize()
        start = time.perf_counter()
        with autocast:
            loss = model(tokens[0], tokens[1])
        loss.backward()
        if updates:
            update()
        model.zero_grad(set_to_none=True)
        synchronize()
        return time.perf_counter() - start

    for measure in case["measures"]:
        start = time.perf_counter()
        for _ in range(WARM):
            step(measure == "step")
        warm = time.perf_counter() - start
        gc.collect()
        gc.freeze()
        gc.disable()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        rates = [ranks * shape[0] * shape[1] / step(measure == "step") for _ in range(args.steps)]
        row = dict(engine="nanochat", name=f"{args.child} {measure}", tok_per_s=statistics.median(rates),
                   sd=statistics.pstdev(rates), min=min(rates), max=max(rates),
                   peak_gib=torch.cuda.max_memory_allocated() / GIB if cuda else None, steps=args.steps,
                   warm_s=round(warm, 1), gpus=ranks, torch=torch.__version__,
                   device=torch.cuda.get_device_name() if cuda else "cpu", attention=attention())
        if first:
            print(json.dumps(row), file=lines, flush=True)
        gc.enable()
        gc.unfreeze()


def attention():
    module = sys.modules.get("nanochat.flash_attention")
    return "FA3" if module and module.USE_FA3 else "SDPA"


# ---- the processes ----

class Bench:
    def __init__(self, args):
        self.args, self.end, self.rows = args, time.monotonic() + args.budget, []
        self.file = open(args.out, "w", encoding="utf-8") if args.out else None

    def emit(self, row):
        self.rows.append(row)
        for f in (sys.stdout, self.file):
            if f:
                print(json.dumps(row), file=f, flush=True)

    def run(self, command):
        """What it printed, and what is wrong with it."""
        left = min(self.args.limit, self.end - time.monotonic())
        if left <= 0:
            return "", "no time left"
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as process:
            try:
                out, err = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)  # its compilers too
                out, err = process.communicate()
                return out, f"ended after {left:.0f} s"
        return out, "" if process.returncode == 0 else f"status {process.returncode}: {err.strip()[-1500:]}"

    def nanochat(self, name):
        case = case_of(self.args, name)
        if not (self.args.july if case["recipe"] == "2026-07" else self.args.january):
            return
        if not case["measures"]:
            return
        several = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={self.args.gpus}"]
        out, wrong = self.run([sys.executable, *(several if self.args.gpus > 1 else []), os.path.abspath(__file__), *sys.argv[1:],
                               "--child", name])
        rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        for row in rows:
            self.emit(row)
        for measure in case["measures"][len(rows):]:
            self.emit(dict(engine="nanochat", name=f"{name} {measure}", error=wrong or "printed nothing"))

    def sol(self, name, measure):
        values = dict(case_of(self.args, name), sol=shlex.quote(self.args.sol), steps=self.args.steps, warm=WARM,
                      optimizer=OPTIMIZER[measure], backend=self.args.device, gpus=self.args.gpus)
        command = SOL_COMMAND.format(**values)
        out, wrong = self.run(shlex.split(command))
        row = dict(engine="sol", name=f"{name} {measure}")
        try:
            said = json.loads(out)
            row |= dict(tok_per_s=said[SOL_RATE], ci95=said[SOL_INTERVAL], peak_gib=said[SOL_PEAK] / GIB,
                        steps=self.args.steps, command=command)
        except (ValueError, KeyError, TypeError) as error:
            row["error"] = wrong or f"{type(error).__name__}: {error}"
        self.emit(row)

    def table(self):
        by = {(r["engine"], r["name"]): r for r in self.rows}
        names = list(dict.fromkeys(r["name"] for r in self.rows))
        lines = [["case", "nanochat tok/s", "sd", "GiB", "sol tok/s", "GiB", "sol / nanochat", "GiB"]]
        for name in names:
            n, s = by.get(("nanochat", name), {}), by.get(("sol", name), {})
            rate = [r.get("tok_per_s") for r in (n, s)]
            peak = [r.get("peak_gib") for r in (n, s)]
            lines.append([name, shown(rate[0], 0), shown(n.get("sd"), 0), shown(peak[0], 1), shown(rate[1], 0),
                          shown(peak[1], 1), shown(rate[1] / rate[0] if all(rate) else None, 3),
                          shown(peak[1] / peak[0] if all(peak) else None, 2)])
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        for line in lines:
            print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                            for i, (cell, w) in enumerate(zip(line, widths))), file=sys.stderr)
        for row in self.rows:
            if "error" in row:
                print(f"{row['engine']}, {row['name']}: {row['error']}", file=sys.stderr)


def shown(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def main():
    args = options()
    if args.child:
        child(args)
        return 0
    bench = Bench(args)
    for name in args.only:
        bench.nanochat(name)
        if args.sol:
            for measure in case_of(args, name)["measures"]:
                bench.sol(name, measure)
    bench.table()
    return int(any("error" in row for row in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
