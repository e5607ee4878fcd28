#!/usr/bin/env python3
"""Walks a section of a document: runs the commands of its blocks in turn and compares what they print with what the
document shows. Numbers, ids and widths may differ; `...` stands for any lines.

usage: walk.py DOCUMENT SECTION      (in the folder to walk in; cli_walk.sh)
"""
import re
import subprocess
import sys

MARK = "end-of-command"
shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
failures = commands = 0


def run(command):
    shell.stdin.write(f"{command}\necho {MARK} $?\n")
    shell.stdin.flush()
    lines = []
    while not (line := shell.stdout.readline()).startswith(MARK):
        if not line:
            sys.exit(f"FAILED: the shell ended at '{command}'")
        lines.append(line.rstrip("\n"))
    return lines, int(line.split()[1])


def plain(line):
    """Without what differs from run to run."""
    line = re.sub(r"\b[a-z]?[0-9a-f]{8,12}\b", "ID", line)  # runs, iterations, commits
    line = re.sub(r"/\S*/", "/", line).replace("%", "")  # a heading of two words may be on two lines
    line = re.sub(r"[-+]?\d[\d.]*(e-\d+)?", "N", line)
    return re.sub(r"[\s.]+", " ", line).strip()


def join(lines):
    return " ".join(filter(None, map(plain, lines)))


def check(command, shown):
    global failures, commands
    commands += 1
    printed, status = run(command)
    pieces = [[]]
    for line in shown:
        if line == "...":
            pieces.append([])
        else:
            pieces[-1].append(line)
    wanted = ".*".join(re.escape(join(piece)) for piece in pieces)
    if not re.fullmatch(wanted, join(printed)) or status not in (0, 10):
        failures += 1
        print(f"FAILED: status {status}: {command}", *("    shown:   " + l for l in shown),
              *("    printed: " + l for l in printed), sep="\n")


def walk(document, section):
    text = open(document).read()
    start = text.index(f"\n## {section}\n")
    end = text.find("\n## ", start + 4)
    for block in re.findall(r"^```\n(.*?)^```$", text[start:end], re.M | re.S):
        command, shown = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    check(command, shown)
                command, shown = line[2:], []
            elif "<<'END'" in (command or "") and not command.endswith("\nEND"):
                command += "\n" + line
            else:
                shown.append(line)
        if command:
            check(command, shown)


walk(*sys.argv[1:])
print(f"{commands} commands, {failures} failures")
sys.exit(failures != 0 or commands == 0)
