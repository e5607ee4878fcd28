"""bench/grouped_vs_torch.py without a GPU: where scales lie, what is reported, and when it fails. cli_torch.sh runs it."""
import contextlib
import io
import json
import math
import sys

sys.path.insert(0, sys.argv[1])
import grouped_vs_torch as script  # noqa: E402


def part(us, error=.5):
    return script.summary([us - 1, us, us + 2], error)


def shapes(error=.5):
    return [{"name": "one", "variant": "grouped_gemm_fake", "sol": part(10), "torch": part(20, error)},
            {"name": "two", "variant": "grouped_gemm_fake", "sol": part(40), "torch": part(20)}]


def atoms():
    """Every scale has a place of its own, and a few are where the header says."""
    rows, blocks = 130, 6
    places = {script.atom_of(r, b, blocks) for r in range(rows) for b in range(blocks)}
    assert len(places) == rows * blocks and max(places) < 2 * 2 * 512
    assert [script.atom_of(*at, blocks) for at in ((0, 0), (0, 3), (1, 0), (32, 0), (0, 4), (128, 5))] == [
        0, 3, 16, 4, 512, 1024 + 512 + 1]


def reports():
    result = script.report({"gpu": "Fake GPU", "torch": "2.10"}, shapes())
    assert [s["of_torch"] for s in result["shapes"]] == [.5, 2] and math.isclose(result["of_torch"], 1)
    assert math.isclose(result["mean_us"], 20) and math.isclose(result["torch_mean_us"], 20)
    lines = script.table(result)
    assert len(set(map(len, lines))) == 1 and lines[1].split() == (
        "one 10.0 9.0 to 12.0 yes 20.0 19.0 to 22.0 yes 0.50").split()
    assert lines[-1].split() == "geometric mean 20.0 20.0 1.00".split()


def main_prints(arguments, error):
    """The status, and what is printed, where measuring gives these numbers."""
    queue, out = shapes(error) * 2, io.StringIO()
    torch = type("", (), {"__version__": "2.10", "manual_seed": None, "cuda": type("", (), {})})
    torch.manual_seed = torch.cuda.empty_cache = lambda *_: None
    torch.cuda.get_device_name = lambda: "Fake GPU"
    script.load_torch, script.load_sol = lambda: torch, lambda _: (None, None)
    script.measure = lambda *_: dict(queue.pop(0))
    sys.argv = ["grouped_vs_torch.py", *arguments]
    with contextlib.redirect_stdout(out):
        status = script.main()
    return status, out.getvalue()


def statuses():
    status, text = main_prints([], .5)
    assert status == 0 and "Fake GPU, torch 2.10, grouped_gemm_fake" in text and " NO " not in text
    status, text = main_prints([], 1.5)
    assert status == script.WRONG and " NO " in text
    status, text = main_prints(["--json"], math.inf)
    parsed = json.loads(text)
    assert status == script.WRONG and parsed["shapes"][0]["torch"] == {
        "us": 20, "least_us": 19, "most_us": 22, "error_of_allowed": None, "right": False}
    assert len(parsed["shapes"]) == len(script.SHAPES) == 4


atoms()
reports()
statuses()
print("grouped_vs_torch.py: right")
