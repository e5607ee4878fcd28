#!/usr/bin/env python3
"""Plants faults in a GPU program and looks whether `sol advise` names each, and none in the clean program.
usage: rules_device.py [--sol BINARY]     needs an NVIDIA GPU, PyTorch, and CuPy for the transpose
Exit status 1 when a rule missed its fault or fired on the clean program.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("--sol", default=os.path.join(here, "../build/sol"))
args = parser.parse_args()
sol = os.path.abspath(args.sol)
work = tempfile.mkdtemp()
environment = dict(os.environ, SOL_STORE=os.path.join(work, "store"))
gates = ["--expect", "[Ss]oft[Mm]ax", "--max-share", "quantize|transpose=10%"]
# fault: the rules of which at least one must fire
faults = {
    "clean": [],
    "sync": ["sync"],
    "pageable": ["pageable"],
    "missing": ["expected"],
    "transpose": ["quant_transpose", "expected"],
    "unfused": ["unfused"],
    "tiny": ["tiny_kernels", "launch_bound"],
}


def run(*command):
    return subprocess.run(command, env=environment, capture_output=True, text=True)


bad = 0
for fault, wanted in faults.items():
    profile = run(sol, "profile", "--label", fault, *gates, "--report", os.path.join(work, fault), "--",
                  sys.executable, os.path.join(here, "rules_plant.py"), fault)
    advice = run(sol, "advise", fault, "--json", *gates)
    try:
        found = [a for a in json.loads(advice.stdout)["advice"] if a.get("counted", True) or a["severity"] == "invalid"]
    except (ValueError, KeyError):
        found = None
    if found is None:
        print(f"FAILED {fault}: profile {profile.returncode}, advise {advice.returncode}: "
              f"{profile.stderr.strip()[-300:]} {advice.stderr.strip()[-300:]}")
        bad += 1
        continue
    rules = sorted({a["rule"] for a in found})
    good = any(r in rules for r in wanted) if wanted else not rules
    bad += not good
    shares = ", ".join(f"{a['rule']} {100 * a['ceiling_ns'] / a['window_ns']:.1f} %" for a in found if a["window_ns"])
    print(f"{'ok    ' if good else 'FAILED'} {fault}: profile exit {profile.returncode}, fired: {' '.join(rules) or 'none'}"
          f"  ({shares})", flush=True)
    if not good:
        print(open(os.path.join(work, fault)).read()[:1800], advice.stdout[:2500])
sys.exit(1 if bad else 0)
