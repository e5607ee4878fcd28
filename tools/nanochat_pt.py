#!/usr/bin/env python3
"""Converts checkpoints that nanochat's base_train saved to sol's safetensors, and back.

    tools/nanochat_pt.py in DIR STEP -o FOLDER
    tools/nanochat_pt.py out FOLDER -o DIR [--step STEP] [--ranks N]

DIR holds model_%06d.pt, meta_%06d.json and, for as many ranks as trained, optim_%06d_rank%d.pt (without them
only weights are converted). FOLDER gets
  model.safetensors      weights under nanochat's names, in the types that they have
  config.json            the meta file as it is
  optimizer.safetensors  for each parameter NAME of AdamW NAME.exp_avg and NAME.exp_avg_sq; of Muon NAME.momentum
                         and, for July, NAME.second_momentum ([rows, 1] or [1, columns]); metadata: recipe, step
                         (updates done), and param_groups as nanochat had them
`out` writes what base_train --resume-from-step reads; states are cut up for --ranks ranks as the optimizer of
July does (January's: 1). Without param_groups in the metadata, as sol writes them, the groups are made from
user_config of config.json; base_train itself sets their rates, momentum and decay at every step.

Parameters are in nanochat's order, which its state_dict has too; so no nanochat is needed, only torch and
safetensors. January is told from July by resid_lambdas, which it has not.
"""
import argparse
import json
import os
import re
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

SMALL = 1024  # elements; July's AdamW does not cut what has fewer
SMEAR = ("smear_gate.weight", "smear_lambda", "backout_lambda")


def fail(text):
    sys.exit(f"nanochat_pt.py: {text}")


# ---- which parameters belong together ----

def groups_of(model):
    """Kind and names of each group, in the order of nanochat's optimizers: a list of groups for each."""
    matrices = [n for n in model if n.startswith("transformer.h.")]
    if "resid_lambdas" not in model:
        sizes = {model[n].numel() for n in matrices}  # a set, as there: its order is part of the file
        muon = [("muon", [n for n in matrices if model[n].numel() == size]) for size in sizes]
        return [[("adamw", ["lm_head.weight"]), ("adamw", ["transformer.wte.weight"])], muon]
    adamw = [["lm_head.weight"], ["transformer.wte.weight"], [n for n in model if n.startswith("value_embeds.")],
             ["resid_lambdas"], ["x0_lambdas"], list(SMEAR)]
    shapes = sorted({tuple(model[n].shape) for n in matrices})
    return [[("adamw", names) for names in adamw]
            + [("muon", [n for n in matrices if tuple(model[n].shape) == shape]) for shape in shapes]]


# ---- nanochat's files to sol's ----

def unwrapped(model):
    """torch.compile puts a word before names."""
    return {name.removeprefix("_orig_mod."): t for name, t in model.items()}


def ranks_in(folder, step):
    found = {}
    for name in os.listdir(folder):
        match = re.fullmatch(rf"optim_{step:06d}_rank(\d+)\.pt", name)
        if match:
            found[int(match[1])] = os.path.join(folder, name)
    if sorted(found) != list(range(len(found))):
        fail(f"{folder}: of step {step} only the optimizers of ranks {sorted(found)} are there")
    return [found[rank] for rank in sorted(found)]


def joined(parts, whole):
    """A state of AdamW: cut along its rows, or the same on every rank."""
    return parts[0] if parts[0].shape == whole.shape else torch.cat(parts)


def read_group(kind, names, ids, states, model, july):
    """Tensors of one group; states: for each rank the state by number of parameter."""
    out, steps = {}, set()
    if kind == "adamw":
        for name, i in zip(names, ids):
            if i not in states[0]:
                continue
            steps.add(int(states[0][i]["step"]))
            for what in ("exp_avg", "exp_avg_sq"):
                out[f"{name}.{what}"] = joined([s[i][what] for s in states], model[name])
    elif july:
        if ids[0] in states[0]:
            for what in ("momentum", "second_momentum"):
                stack = torch.cat([s[ids[0]][what + "_buffer"] for s in states])  # filled up with zeros
                out.update({f"{name}.{what}": stack[k] for k, name in enumerate(names)})
    else:
        for name, i in zip(names, ids):
            if i in states[0]:
                out[f"{name}.momentum"] = states[0][i]["momentum_buffer"]
    return out, steps


def read_optimizers(files, model):
    """Tensors by name, the number of updates, and the groups."""
    july = "resid_lambdas" in model
    ranks = [torch.load(path, map_location="cpu", weights_only=True) for path in files]
    ranks = [r if isinstance(r, list) else [r] for r in ranks]
    wanted = groups_of(model)
    if not july and len(ranks) > 1:
        fail("January's optimizers of several ranks are not read: their owners of matrices are not in the files")
    if len(ranks[0]) != len(wanted):
        fail(f"{files[0]}: {len(ranks[0])} optimizers, not {len(wanted)}")
    out, steps, saved = {}, set(), []
    for k, groups in enumerate(wanted):
        there = ranks[0][k]["param_groups"]
        if [len(g["params"]) for g in there] != [len(names) for _, names in groups]:
            fail(f"{files[0]}: its groups are not those of the model")
        states = [r[k]["state"] for r in ranks]
        for (kind, names), group in zip(groups, there):
            tensors, done = read_group(kind, names, group["params"], states, model, july)
            for name, t in tensors.items():
                whole = model[name.rpartition(".")[0]].shape
                if not name.endswith("second_momentum") and t.shape != whole:
                    fail(f"{files[0]}: {name} is {list(t.shape)}, its parameter {list(whole)}")
            out.update(tensors)
            steps |= done
        saved.append(there)
    if len(steps) > 1:
        fail(f"{files[0]}: parameters had different numbers of updates: {sorted(steps)}")
    return out, steps.pop() if steps else 0, saved


def convert_in(args):
    path = os.path.join(args.source, f"model_{args.step:06d}.pt")
    model = unwrapped(torch.load(path, map_location="cpu", weights_only=True))
    with open(os.path.join(args.source, f"meta_{args.step:06d}.json"), encoding="utf-8") as f:
        meta = f.read()
    recipe = "2026-07" if "resid_lambdas" in model else "2026-01"
    os.makedirs(args.out, exist_ok=True)
    save_file({n: t.contiguous() for n, t in model.items()}, os.path.join(args.out, "model.safetensors"),
              {"order": json.dumps(list(model))})
    with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as f:
        f.write(meta)
    files = ranks_in(args.source, args.step)
    if not files:
        print(f"{args.source}: no optimizer of step {args.step}: weights alone", file=sys.stderr)
        return
    tensors, step, groups = read_optimizers(files, model)
    save_file({n: t.clone().contiguous() for n, t in tensors.items()},
              os.path.join(args.out, "optimizer.safetensors"),
              {"recipe": recipe, "step": str(step), "param_groups": json.dumps(groups)})


# ---- sol's files to nanochat's ----

def load(path):
    with safe_open(path, framework="pt") as f:
        return {name: f.get_tensor(name) for name in f.keys()}, f.metadata() or {}


def natural(name):
    """nanochat's order of registration: what the model itself has comes first, and within a layer q, k, v, o."""
    first = ["resid_lambdas", "x0_lambdas", "smear_lambda", "backout_lambda", "transformer.wte", "transformer.h",
             "lm_head", "smear_gate", "value_embeds"]
    inner = ["attn.c_q", "attn.c_k", "attn.c_v", "attn.c_proj", "attn.ve_gate", "mlp.c_fc", "mlp.c_proj"]
    at = next((i for i, n in enumerate(first) if name.startswith(n)), len(first))
    layer = re.search(r"\.(\d+)\.", name)
    part = next((i for i, n in enumerate(inner) if f".{n}." in name), 0)
    return at, int(layer[1]) if layer else 0, part


def made_groups(groups, model, meta):
    """What setup_optimizer makes of user_config; January has no kinds."""
    user, july = meta.get("user_config", {}), "resid_lambdas" in model
    total = meta.get("total_batch_size") or user.get("total_batch_size", 1 << 19)
    scale = (total / 2**19) ** 0.5
    width = (model["lm_head.weight"].shape[1] / 768) ** -0.5
    rate = {k: user.get(k, d) * scale for k, d in
            (("unembedding_lr", 0.008 if july else 0.004), ("embedding_lr", 0.3), ("scalar_lr", 0.5),
             ("matrix_lr", 0.02))}
    head, embed, scalar, matrix = rate.values()
    if july:
        adamw = [(head * width, (0.8, 0.96), 0.01), (embed * width, (0.8, 0.995), 0.001),
                 (embed * width * 0.5, (0.8, 0.995), 0.01), (scalar * 0.01, (0.8, 0.95), 0.05),
                 (scalar, (0.96, 0.95), 0.0), (0.2, (0.8, 0.95), 0.0)]
        options = [dict(kind="adamw", lr=lr, betas=b, eps=1e-10, weight_decay=d) for lr, b, d in adamw]
        muon = dict(kind="muon", lr=matrix, momentum=0.95, ns_steps=5, beta2=0.9, weight_decay=0.0)
        options += [dict(muon) for _ in groups[0][len(adamw):]]
        sets = [options]
    else:
        betas = (user.get("adam_beta1", 0.8), user.get("adam_beta2", 0.95))
        fixed = dict(betas=betas, eps=1e-10, weight_decay=user.get("weight_decay", 0.0), amsgrad=False,
                     maximize=False, foreach=None, capturable=False, differentiable=False, fused=True,
                     decoupled_weight_decay=True)
        muon = dict(lr=matrix, momentum=0.95, nesterov=True, ns_steps=5)
        sets = [[dict(fixed, lr=lr * width) for lr in (head, embed)], [dict(muon) for _ in groups[1]]]
    for options, wanted in zip(sets, groups):
        at = 0
        for group, (_, names) in zip(options, wanted):
            group["initial_lr"] = group["lr"]
            group["params"] = list(range(at, at + len(names)))
            at += len(names)
    return sets


def part(tensor, rank, ranks):
    rows = tensor.shape[0] // ranks
    return tensor[rank * rows:(rank + 1) * rows].clone()


def write_group(kind, names, ids, tensors, step, rank, ranks, july):
    """The state of one group on a rank."""
    state = {}
    if kind == "adamw":
        for name, i in zip(names, ids):
            if f"{name}.exp_avg" not in tensors:
                continue
            state[i] = {"step": step if july else torch.tensor(float(step))}
            for what in ("exp_avg", "exp_avg_sq"):
                t = tensors[f"{name}.{what}"]
                cut = ranks > 1 and t.numel() >= SMALL
                if cut and t.shape[0] % ranks:
                    fail(f"{name} has {t.shape[0]} rows, which {ranks} ranks cannot share")
                state[i][what] = part(t, rank, ranks) if cut else t.clone()
    elif july:
        chunk = -(-len(names) // ranks)
        for what in ("momentum", "second_momentum"):
            if f"{names[0]}.{what}" not in tensors:
                continue
            mine = [tensors[f"{n}.{what}"] for n in names[rank * chunk:(rank + 1) * chunk]]
            mine += [torch.zeros_like(tensors[f"{names[0]}.{what}"])] * (chunk - len(mine))
            state.setdefault(ids[0], {})[what + "_buffer"] = torch.stack(mine)
    else:
        for name, i in zip(names, ids):
            if f"{name}.momentum" in tensors:
                state[i] = {"momentum_buffer": tensors[f"{name}.momentum"].clone()}
    return state


def pairs(groups):
    """JSON has no tuples; betas were one."""
    return [[{k: tuple(v) if k == "betas" else v for k, v in g.items()} for g in options] for options in groups]


def convert_out(args):
    tensors, about = load(os.path.join(args.source, "model.safetensors"))
    order = json.loads(about["order"]) if "order" in about else sorted(tensors, key=natural)
    model = {name: tensors[name] for name in order}
    with open(os.path.join(args.source, "config.json"), encoding="utf-8") as f:
        text = f.read()
    meta = json.loads(text)
    step = meta.get("step") if args.step is None else args.step
    if step is None:
        fail("config.json has no step: give --step")
    os.makedirs(args.out, exist_ok=True)
    torch.save(model, os.path.join(args.out, f"model_{step:06d}.pt"))
    with open(os.path.join(args.out, f"meta_{step:06d}.json"), "w", encoding="utf-8") as f:
        f.write(text)
    path = os.path.join(args.source, "optimizer.safetensors")
    if not os.path.exists(path):
        return
    states, about = load(path)
    july, groups = "resid_lambdas" in model, groups_of(model)
    if args.ranks > 1 and not july:
        fail("January's optimizers are written for one rank")
    if "param_groups" in about:
        options = pairs(json.loads(about["param_groups"]))
    else:
        options = made_groups(groups, model, meta)
    done = int(about.get("step", step))
    for rank in range(args.ranks):
        out = []
        for there, wanted in zip(options, groups):
            state = {}
            for (kind, names), group in zip(wanted, there):
                state |= write_group(kind, names, group["params"], states, done, rank, args.ranks, july)
            out.append({"state": state, "param_groups": there})
        torch.save(out[0] if july else out, os.path.join(args.out, f"optim_{step:06d}_rank{rank}.pt"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    to_sol = commands.add_parser("in", help="nanochat's files to sol's")
    to_sol.add_argument("source", metavar="DIR")
    to_sol.add_argument("step", type=int)
    to_pt = commands.add_parser("out", help="sol's files to nanochat's")
    to_pt.add_argument("source", metavar="FOLDER")
    to_pt.add_argument("--step", type=int)
    to_pt.add_argument("--ranks", type=int, default=1)
    for command in (to_sol, to_pt):
        command.add_argument("-o", "--out", required=True)
    args = p.parse_args()
    {"in": convert_in, "out": convert_out}[args.command](args)


if __name__ == "__main__":
    main()
