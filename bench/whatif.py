#!/usr/bin/env python3
"""Pairs of profiles, before and after a change, and what --what-if says of it; see bench/whatif.sh."""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
VISIBLE = 0.02  # a change of less is noise

parser = argparse.ArgumentParser()
parser.add_argument("--sol", default=os.path.join(HERE, "../build/sol"))
parser.add_argument("--backend", default="cuda")
parser.add_argument("--model")
parser.add_argument("--out", default=os.path.join(HERE, "../src/advise/whatif_error.json"))
parser.add_argument("--keep", help="the store with all runs, for a look later")
parser.add_argument("--seconds", type=float, default=200, help="begin no pair later")
args = parser.parse_args()
gpu = args.backend != "cpu"
STARTS = 1 if gpu else 12
sol = os.path.abspath(args.sol)
model = args.model or ("synth:gpt-oss-20b" if gpu else "builtin")
os.environ["SOL_STORE"] = os.path.abspath(args.keep or tempfile.mkdtemp())
start = time.monotonic()
rows, profiles, made = [], {}, []


def run(command, timeout=150):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout)


def ask(*arguments):
    done = run([sol, *arguments])
    if done.returncode:
        raise RuntimeError(f"sol {' '.join(arguments)}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def fastest(key, command, starts, again=False):
    """The label of the fastest of some starts, which other programs disturbed least. Each is made once, unless more
    are asked for."""
    if key not in profiles or again:
        labels = [profiles[key]] if key in profiles else []
        for _ in range(starts):
            made.append(f"run{len(made)}")
            labels.append(made[-1])
            done = run([sol, "profile", "--label", labels[-1], *command])
            if done.returncode:
                raise RuntimeError(f"{' '.join(command[-4:])}: {done.stderr.strip()[-300:]}")
        profiles[key] = min(labels, key=step_of)
    return profiles[key]


def own(*options, prompt=0, generate=32, depth=0, again=False):
    """A profile of sol's own engine."""
    backend = ["--backend", args.backend] if gpu else ["-t", "1"]
    return fastest(("own", prompt, generate, depth, *options),
                   ["-q", "--no-limits", "-m", model, *backend, "-p", str(prompt), "-n", str(generate), "-d",
                    str(depth), "-r", "7", *options], STARTS, again)


def traced(*command):
    """A traced program, kernel by kernel."""
    return fastest(("traced", *command), ["--level", "node", "--report", os.devnull, "--", *command], 1)


def step_of(label):
    return ask("advise", label, "--what-if", "gap=1", "-o", "json")["steps"][0]["measured_ns"]


def op_times(label):
    """ns a token of each op, of each composite, and of each op of a composite; "=gemm": of ops alone."""
    times = {}
    for k in ask("runs", "export", label)["kernels"]:
        per_token = k["total_ns"] / (k["calls"] / k["calls_per_token"])
        for name in {k["name"], k["name"].split("/")[0], k["op"], "=" + k["op"]}:
            times[name] = times.get(name, 0) + per_token
    return times


def op_factors(before, after, names):
    a, b = op_times(before), op_times(after)
    return [f"{n}={b[n] / a[n]:.6g}" for n in names if n in a and n in b]


def role_factors(before, after, names=None):
    """Of all roles that the first has, unless some are named; what the second lacks takes no time."""
    roles = ask("compare", "--roles", before, after, "-o", "json")["roles"]
    return [f"{r['role']}={r['new_ns'] / r['old_ns']:.6g}" for r in roles
            if r["role"] not in ("between kernels", "not placed") and r["old_ns"] > 0
            and (names is None or r["role"] in names)]


def pair(change, before, after, what_if):
    """before, after: functions that give a label; what_if: of both labels, a list."""
    if time.monotonic() - start > args.seconds:
        print(f"skipped: {change}: no time left")
        return
    try:
        a, b = before(), after()
        asked = what_if(a, b)
        was, measured = step_of(a), step_of(b)
        if abs(measured / was - 1) < VISIBLE:
            print(f"skipped: {change}: {100 * (measured / was - 1):+.1f} % says nothing")
            return
        options = [word for w in asked for word in ("--what-if", w)]
        predicted = ask("advise", a, *options, "-o", "json")["steps"][0]["changes"][-1]["step_ns"]
    except (RuntimeError, subprocess.TimeoutExpired, KeyError) as problem:
        print(f"skipped: {change}: {problem}")
        return
    rows.append({"device": device, "gpu": gpu, "change": change, "what_if": asked, "before_ns": round(was),
                 "predicted_ns": round(predicted), "measured_ns": round(measured)})
    print(f"{change}: {was / 1e3:.1f} -> {measured / 1e3:.1f} us, predicted {predicted / 1e3:.1f} "
          f"({100 * (predicted / measured - 1):+.1f} %)", flush=True)


def settle(names, options, where):
    """On a processor that others use too: more starts, until what was not changed takes the same time in both."""
    while time.monotonic() - start < args.seconds / 2:
        a, b = op_times(own(*options, **where)), op_times(own(**where))
        rest = [sum(t for n, t in x.items() if n.startswith("=") and n[1:] not in names) for x in (a, b)]
        if abs(rest[0] / rest[1] - 1) < 0.05:
            return
        slower = options if rest[0] > rest[1] else []
        own(*slower, **where, again=True)


def force_pair(change, names, options, prompt=0, generate=32, depth=0):
    """Kernels of these ops, other ones against the usual: the usual ones are the change."""
    where = {"prompt": prompt, "generate": generate, "depth": depth}
    if not gpu:
        settle(names, options, where)
    pair(change, lambda: own(*options, **where), lambda: own(**where),
         lambda a, b: op_factors(a, b, names))


def of_cpu():
    force_pair("attention by the reference", ["attention"], ["--force", "attention=reference"], depth=1000)
    force_pair("products for AVX2", ["gemm"], ["--force", "gemm=gemm_i8_q_avx2"])
    force_pair("products for AVX2, prompt", ["gemm"], ["--force", "gemm=gemm_i8_q_avx2"], prompt=64, generate=0)
    force_pair("products in float32", ["gemm"], ["--exact"])
    force_pair("products in float32, prompt", ["gemm"], ["--exact"], prompt=64, generate=0)
    force_pair("attention for AVX2, deep", ["attention"], ["--force", "attention=attention_f32_avx2"], depth=1000)
    force_pair("attention planted slower", ["attention"], ["--slow", "attention=400"], depth=1000)
    force_pair("norms by the reference", ["rmsnorm"], ["--force", "rmsnorm=reference"])
    force_pair("rotation by the reference", ["rope"], ["--force", "rope=reference"])
    force_pair("activation by the reference, prompt", ["swiglu"], ["--force", "swiglu=reference"], prompt=64,
               generate=0)


def of_sol():
    force_pair("general attention", ["attention"], ["--force", "attention=attention_any_cuda"])
    force_pair("general attention, deeper", ["attention"], ["--force", "attention=attention_any_cuda"], depth=256)
    force_pair("attn_in composed", ["attn_in"], ["--force", "attn_in=composed"])
    # Else both are one op of one row.
    apart = lambda *options: lambda: own("--force", "attn_moe=composed", *options)
    pair("attn_out composed", apart("--force", "attn_out=composed", "--force", "attn_add=composed"), apart(),
         lambda a, b: op_factors(a, b, ["attn_out"]))
    pair("experts by single blocks", apart("--force", "moe=moe_row_cuda:single"), apart(),
         lambda a, b: op_factors(a, b, ["moe"]))
    force_pair("general products, prompt", ["attn_in", "attn_out", "moe_up", "moe_down", "moe"],
               ["--force", "gemm=gemm_mma_cuda", "--force", "attn_in=composed", "--force", "attn_out=composed",
                "--force", "attn_add=composed"],
               prompt=2048, generate=0)
    force_pair("attention on mma, prompt", ["attention"], ["--force", "attention=attention_mma_cuda"], prompt=2048,
               generate=0)
    fused = lambda a, b: ["fuse attn_in/rmsnorm attn_in/gemm attn_in/rope attn_in/kv_write"]
    pair("attn_in fused", lambda: own("--force", "attn_in=composed"), own, fused)


def of_traced_sol():
    bench = [sol, "bench", "-q", "--no-store", "--no-limits", "-m", model, "--backend", args.backend, "-p", "0", "-n",
             "32", "-r", "2"]
    plain = lambda: traced(*bench)
    apart = lambda: traced(*bench, "--force", "attn_moe=composed")
    for change, roles, force in [
            ("general attention, traced", ["attention"], ["attention=attention_any_cuda"]),
            ("attn_in composed, traced", None, ["attn_in=composed"]),
            ("attn_out composed, traced", None, ["attn_out=composed", "attn_add=composed"]),
            ("experts by single blocks, traced", ["experts"], ["moe=moe_row_cuda:single"])]:
        options = [word for f in force for word in ("--force", f)]
        other = apart if force[0].startswith(("attn_out", "moe")) else plain
        pair(change, lambda o=options: traced(*bench, *o), other, lambda a, b, r=roles: role_factors(a, b, r))


def of_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: PyTorch is not here")
        return
    step = lambda *options: lambda: traced(sys.executable, os.path.join(HERE, "whatif_step.py"), *options)
    pair("PyTorch decode step as a CUDA graph", step(), step("--mode", "graph"), lambda a, b: ["gap.host=0"])
    pair("PyTorch, 2048 rows, math to flash attention", step("--rows", "2048", "--attention", "math"),
         step("--rows", "2048"), lambda a, b: role_factors(a, b, ["attention"]))
    pair("PyTorch, 1024 rows, float32 products in TF32", step("--rows", "1024", "--float", "f32"),
         step("--rows", "1024", "--float", "tf32"), role_factors)
    pair("PyTorch, 2048 rows, torch.compile", step("--rows", "2048"), step("--rows", "2048", "--mode", "compile"),
         role_factors)
    pair("PyTorch decode step, torch.compile", step(), step("--mode", "compile"), role_factors)


def find_cupti():
    for folder in sys.path:
        found = glob.glob(os.path.join(folder, "nvidia/*/lib/libcupti.so*"))
        if found and not os.environ.get("SOL_CUPTI"):
            os.environ["SOL_CUPTI"] = found[0]


def write():
    record = {"format": "sol what-if error", "version": 1, "changes": []}
    if os.path.exists(args.out):
        record = json.load(open(args.out))
    record["changes"] = [c for c in record["changes"] if c["device"] != device] + rows
    lines = ",\n".join("  " + json.dumps(c) for c in record["changes"])
    with open(args.out, "w") as out:
        out.write('{"format": "sol what-if error", "version": 1, "changes": [\n' + lines + "\n]}\n")


find_cupti()
device = ask("runs", "export", own())["device"]
if gpu:
    of_sol()
    of_torch()
    of_traced_sol()
else:
    of_cpu()
off = sorted(abs(r["predicted_ns"] / r["measured_ns"] - 1) for r in rows)
print(f"{len(rows)} changes on {device} in {time.monotonic() - start:.0f} s")
if len(rows) < 6:
    sys.exit("fewer than 6 changes: nothing is written")
print(f"off by {100 * statistics.median(off):.1f} % of a step (median), {100 * off[-1]:.1f} % at worst")
write()
