#!/usr/bin/env python3
"""Records the noise of this machine for tests/unit_compare.c: many process starts in a row, of each
the median repetition in ns per token and the processor time in microseconds, as sol compare --live
reads them.

    tools/noise_record.py build/sol [STARTS] > tests/data/noise.json
"""
import json
import os
import platform
import statistics
import subprocess
import sys
import time

ARGUMENTS = ["bench", "--no-limits", "-q", "-t", "1", "-p", "0", "-n", "32", "-r", "5", "-o", "json"]


def main():
    sol, starts = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 480
    wall, cpu, others = [], [], []
    for _ in range(starts):
        child = subprocess.Popen([sol, *ARGUMENTS], stdout=subprocess.PIPE)
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"sol ended with status {status}")
        record = json.loads(out)[0]
        wall.append(round(statistics.median(record["samples_ns"]) / 32))
        cpu.append(round(1e6 * (usage.ru_utime + usage.ru_stime)))
        others.append(record["disturbance"]["other_cores"])
    json.dump({
        "command": " ".join(["sol", *ARGUMENTS]),
        "machine": f"{record['machine']['cpu']}, {record['machine']['cores']} cores, "
                   f"{platform.system()}, {time.strftime('%Y-%m-%d')}; other programs kept "
                   f"{statistics.mean(others):.1f} cores busy",
        "ns_per_token": wall,
        "cpu_us": cpu,
    }, sys.stdout)
    print()


if __name__ == "__main__":
    main()
