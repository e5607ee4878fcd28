#!/usr/bin/env bash
# One number for one thing: what a benchmark, a profile or an import says in the terminal, in its files, in `sol
# runs`, in a comparison, in the report and to an agent is the same figure, to the digits that each shows.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }

# bench LABEL OPTION...: one run, read by its table and by each of its formats
bench() {
    local label=$1
    shift
    "$SOL_BINARY" bench -m synth:tiny -q --wide --label "$label" --output "$work/$label.json" "$@" \
        >"$work/$label.txt" 2>"$work/err" || fail "bench $label"
}
import() { "$SOL_BINARY" import --label "$1" "$2" >/dev/null 2>"$work/err" || fail "import $1"; }

bench limits -p 16,64 -n 8
bench again -p 0 -n 4,8 -r 9 --no-limits
bench few -p 8 -n 4 -r 3 --no-limits
bench starts -p 8 -n 4 -r 3 --starts 6 --no-limits
bench kernels -p 32 -n 8 -npl 1,3 -r 6 --ops
bench deep -p 0 -n 4 -d 0,64 -r 6 --no-limits
bench pair -p 0 -n 0 -pg 16,4 -r 7 --no-limits
for n in 1 2 3 4 5 6 7 8; do bench "quick$n" -p 0 -n "$n" -r 6 --no-limits; done
for file in llama_bench_cuda llama_bench_new llama_bench_old nvbench; do
    import "$file" "$SOL_SOURCE_DIR/tests/data/import/$file.json"
done
"$SOL_BINARY" profile -m synth:tiny -p 16 -n 4 -d 0,32 --label profile >"$work/profile.txt" 2>"$work/err" || fail profile
"$SOL_BINARY" runs export limits >"$work/export.json" && import exported "$work/export.json"
[ "$(("$("$SOL_BINARY" runs -n 0 -o csv | wc -l)" - 1))" -ge 20 ] || fail "fewer than twenty runs"

python3 - "$SOL_BINARY" "$work" <<'PY' || failures=$((failures + 1))
import csv, html, io, json, os, re, subprocess, sys

sol, work = sys.argv[1:]
wrong = checks = 0


def run(*words):
    done = subprocess.run([sol, *words], capture_output=True, text=True)
    if not done.stdout:
        sys.exit(f"FAILED: sol {' '.join(words)}: {done.stderr}")
    return done.stdout


def plain(text):
    """A number as shown: without groups of three, units and signs of an interval."""
    found = re.search(r"-?[0-9][0-9,]*(\.[0-9]+)?", text.replace("\u2212", "-").replace("\u00a0", " "))
    return found.group(0).replace(",", "") if found else None


def agree(where, shown, exact):
    """Whether `shown` is `exact` to the digits it has; a dash, an empty cell or null stand for unknown."""
    global wrong, checks
    checks += 1
    if isinstance(shown, str):
        shown = plain(shown)
        digits = len(shown.split(".")[1]) if shown and "." in shown else 0
        good = shown is None if exact is None else shown is not None and \
            abs(float(shown) - exact) <= 0.501 * 10 ** -digits + 1e-8 * abs(exact)
    else:
        good = shown == exact if shown is None or exact is None else abs(shown - exact) <= 1e-8 * abs(exact)
    if not good:
        wrong += 1
        print(f"FAILED: {where}: shows {shown}, but the figure is {exact}")


def rows(text, first):
    """Rows of a printed table whose heading begins with `first`, as lists of {column: cell}."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith(first + " ")), None)
    if at is None:
        return []
    heading = re.split(r"\s{2,}", lines[at].strip())
    result = []
    for line in lines[at + 1:]:
        if not line.strip():
            break
        result.append(dict(zip(heading, re.split(r"\s{2,}", line.strip()))))
    return result


class Agent:
    """What an agent is told: the same, to six digits."""

    def __init__(self):
        self.process = subprocess.Popen([sol, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                "clientInfo": {"name": "figures", "version": "1"}})

    def ask(self, method, params):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["result"]

    def metrics(self, run_id):
        answer = self.ask("tools/call", {"name": "run_show", "arguments": {"run": run_id}})
        return json.loads(answer["content"][0]["text"])["result"].get("metrics", [])


agent = Agent()
for item in json.loads(run("runs", "-n", "0", "-o", "json"))["runs"]:
    name = item["label"]
    record = json.loads(run("runs", "show", item["id"], "-o", "json"))
    figures = {m["name"]: m["figure"] for m in record["metrics"]}
    speeds = {k: f for k, f in figures.items() if f["unit"] == "t/s"}
    where = lambda reader, test: f"{name}, {reader}, {test}"

    for row in csv.DictReader(io.StringIO(run("runs", "show", item["id"], "-o", "csv"))):
        f = figures[row["metric"]]
        agree(where("runs show", row["metric"]), row["median"], f["value"])
        agree(where("runs show +-", row["metric"]), row["+-%"], f["half_width_percent"])
        agree(where("runs show limit", row["metric"]), row["% limit"], f["limit_percent"])
        if f["unit"] == "t/s":
            agree(where("runs show ns", row["metric"]), row["ns/token"], 1e9 / f["value"])

    told = 0
    for m in agent.metrics(item["id"]):
        value = m.get("figure", {}).get("value")
        if m["name"] in speeds and value is not None:
            told += 1
            agree(where("run_show of an agent", m["name"]), f"{value:.10g}", speeds[m["name"]]["value"])
    if speeds and not told:
        agree(where("run_show of an agent", "no test"), None, 0.0)

    page = run("report", item["id"], "-o", "-")
    for row in re.findall(r"<tr><th scope=\"row\" class=\"name\">(.*?)</tr>", page, re.S):
        test = html.unescape(re.sub(r"<[^>]*>", "", row.split("</th>")[0]))
        cells = [html.unescape(re.sub(r"<[^>]*>", "", c)) for c in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)]
        if test in speeds:
            agree(where("report", test), cells[0], speeds[test]["value"])
            if speeds[test]["limit_percent"]:
                agree(where("report limit", test), next(c for c in cells[1:] if "%" in c and "\u00b1" not in c),
                      speeds[test]["limit_percent"])

    compared = json.loads(run("compare", "--across", item["id"], item["id"], "-o", "json"))
    for m in compared["metrics"]:
        if m["name"] in speeds:
            agree(where("compare", m["name"]), m["old"], speeds[m["name"]]["value"])
            agree(where("compare", m["name"]), m["change_percent"], 0.0)

    path = os.path.join(work, f"{name}.json")
    if item["kind"] == "bench":
        for test in json.load(open(path)):
            key = [k for k in speeds if len(speeds) == 1 or abs(speeds[k]["value"] - test["ts"]) < 1e-6 * test["ts"]]
            if not key:
                agree(where("JSON", "a test"), test["ts"], 0.0)
                continue
            f = speeds[key[0]]
            agree(where("JSON", key[0]), test["ts"], f["value"])
            agree(where("JSON ns", key[0]), test["ns_per_token"], 1e9 / f["value"])
            agree(where("JSON +-", key[0]), test["half_width_percent"], f["half_width_percent"])
            agree(where("JSON limit", key[0]), test["limit_percent"], f["limit_percent"])
            agree(where("JSON starts", key[0]), test["starts"], f["starts"])
        for row in rows(open(os.path.join(work, f"{name}.txt")).read(), "test"):
            test = row["test"].rstrip(" *!")
            f = speeds[test]
            agree(where("table", test), row["t/s"], f["value"])
            agree(where("table +-", test), row["+-%"], f["half_width_percent"])
            agree(where("table ns", test), row["ns/token"], 1e9 / f["value"])
            if "% limit" in row:
                agree(where("table limit", test), row["% limit"], f["limit_percent"])
    if name == "profile":
        text = open(os.path.join(work, "profile.txt")).read()
        for test, shown in re.findall(r"^(\S.*?) \(\w+, depth \d+\): ([0-9.]+) t/s", text, re.M):
            agree(where("profile", test), shown, speeds[test]["value"])
        # Kernels are a part of what they run in.
        for part in re.findall(r"kernels are ([0-9.]+) % of it", text):
            if not 0 < float(part) <= 100:
                agree(where("profile", "kernels"), part, None)

if checks < 200:
    print(f"FAILED: only {checks} figures were compared")
sys.exit(wrong > 0 or checks < 200)
PY
exit $((failures != 0))
