#!/usr/bin/env python3
"""Inference on several GPUs of one machine against one of them, in the same run: are the logits those of one GPU, how fast
is decoding, are prompts and batches, and where does a step's time go.

usage: bench/tensor_parallel_device.py [--sol build/sol] [--gpus 2] [--parts verify,sums,speed,serve] [--model NAME,...]
                                       [--tests decode,prompt,batch] [--sharing tensor,experts,pipeline]
                                       [--ways one,shared,experts,pipeline,copies,pairs] [--loads queue,prefix] [--requests 512]
                                       [--rounds 1] [--seconds 280] [--tiny] [--out FILE]

  verify   the collectives and joins of the table on N GPUs; then logits of N GPUs against one, over 512 tokens of a model
           cut to 4 layers: divergence (KL), same likeliest token; with rounded activations, and in float32, which judges
  sums     only if it is named: the sums of ranks by size, each kernel of them, in a graph (sol device --gpus); then N GPUs with
           the sums that the rules take and with NCCL's in float32, forced: 8,192 tokens of a prompt, 512 sequences that
           decode together; us of sums in a step, and how much longer a step lasts than its ops (what GPUs wait for the host)
  speed    tokens/s on 1 and then N GPUs, each in one process so that the model is loaded once:
             decode  one sequence (120b wanted: 1.2 times one GPU's on 2, 1.4 on 4)
             prompt  2,048 and 8,192 tokens (120b wanted for 8,192: 1.8 on 2, 3.3 on 4)
             batch   32 and 128 sequences that decode together
           and of the N GPUs each op's time in a step, with what part the collectives are; once more with whole experts, and
           with some layers on each (the 8,192 tokens in one step, in pieces)
  serve    only if it is named: a server (sol serve) on one GPU, with one model over all N, also with whole experts, and
           with some layers on each and as many batches on their way; with a copy on each, and from four on with a copy on each two; output tokens/s a GPU
             queue   --requests a GPU at once, 1,024 tokens in and 512 out, 512 texts a GPU together (120b wanted: over one
                     GPU's, one model 0.95, copies 0.97)
             prefix  32 clients a GPU whose prompts have 4,000 tokens in common and 100 of their own, 128 out: time to the
                     first token, what part of the prompts was kept, and how the copies shared the work
The models are random ones of full size (synth:), made on the way onto the GPUs: no file is needed. Parts run alone; what
fails is said, and the others run; what has no time left of --seconds is said too.
--tiny: shapes for a machine that emulates its GPUs; without times of ops. One JSON object a line on stdout, and in --out.

Exit status: 0 all that ran is as wanted, 1 something is not, or failed.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

WANTED = {("decode", 2): 1.2, ("decode", 4): 1.4, ("prompt", 2): 1.8, ("prompt", 4): 3.3}
PARTS = ("verify", "sums", "speed", "serve")
WHOLE, LAYERS = "--expert-parallel", "--pipeline-parallel"
SHARING = {"tensor": [], "experts": [WHOLE], "pipeline": [LAYERS]}
SERVED = {"shared": 0.95, "pipeline": 0.95, "copies": 0.97}  # output t/s a GPU over one GPU's
TESTS = ("decode", "prompt", "batch")
COLLECTIVES = ("all_reduce", "all_reduce_add", "all_gather", "send_recv")
BY_NCCL = ("--force", "all_reduce_add=composed", "--force", "all_reduce=all_reduce_nccl_cuda")
PORT = 18082


class Run:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.good = True
        self.out = open(options.out, "a") if options.out else None

    def left(self):
        return self.options.seconds - (time.monotonic() - self.began)

    def say(self, **fields):
        line = json.dumps({"at_s": round(time.monotonic() - self.began, 1), **fields})
        print(line, flush=True)
        if self.out:
            print(line, file=self.out, flush=True)

    def sol(self, *arguments, least=5):
        if self.left() < least:
            raise RuntimeError(f"no time left for sol {' '.join(map(str, arguments))}")
        began = time.monotonic()
        try:
            done = subprocess.run([self.options.sol, *map(str, arguments)], capture_output=True, text=True,
                                  timeout=max(self.left(), least))
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"sol {' '.join(map(str, arguments))}: stopped after {error.timeout:.0f} s") from error
        if done.returncode:
            raise RuntimeError(f"sol {' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout, time.monotonic() - began


def place(gpus):
    return ["--backend", "cuda", "--gpus", gpus]


def verify(run, model):
    options = run.options
    if model == options.models[0]:
        ops = (*COLLECTIVES, "join_columns", "attn_add", "attn_route", "own_experts", "combine", "moe", "moe_down")
        ops = [word for op in ops for word in ("--op", op)]
        text, took = run.sol("verify", "--backend", "cuda", "--rounds", 1, "--wide", *ops)
        rows = [line.split() for line in text.splitlines() if "_cuda " in line]
        run.say(part="verify", verified=[row[1] for row in rows if "ok" in row], failed=[row[1] for row in rows if "FAILED" in row],
                seconds=round(took, 1))
    layers = options.gpus if options.tiny else 4  # one for each at least
    for flags in ([], ["--exact"], ["--exact", WHOLE], ["--exact", LAYERS]):
        text, took = run.sol("perplexity", "-m", f"{model},layers={layers}", "--random-tokens", 40 if options.tiny else 512, "-q", "--json",
                             "--kl-one", *flags, *place(options.gpus))
        out = json.loads(text)
        reference = out["reference"]
        # Of random models rounded activations decide which experts a token gets (docs/LOG.md), so that float32 judges.
        good = not flags or (reference["kl_mean"] < 1e-6 and reference["top_margin"] <= reference["tolerance"])
        run.good &= good
        run.say(part="verify", model=model, layers=layers, gpus=options.gpus, exact=bool(flags), whole_experts=WHOLE in flags, pipeline=LAYERS in flags, kl_mean=reference["kl_mean"],
                kl_max=reference["kl_max"], same_top=reference["same_top"], top_margin=reference["top_margin"],
                tolerance=reference["tolerance"], nll=out["nll"], nll_one=reference["nll"], good=good,
                kernels=sorted({kernel["variant"] for kernel in out["kernels"]}), seconds=round(took, 1))


def bench(run, model, gpus, *tests):
    text, took = run.sol("bench", "-m", model, "--no-limits", "--no-store", "-q", "--json", *tests, *place(gpus), least=20)
    return json.loads(text), took


def kind_of(result):
    return "prompt" if result["n_prompt"] else "batch" if result["n_parallel"] > 1 else "decode"


def name_of(result):
    name = f"pp{result['n_prompt']}" if result["n_prompt"] else f"tg{result['n_gen']}"
    return name + (f" x{result['n_parallel']}" if result["n_parallel"] > 1 else "")


def tests_of(options):
    sizes = ("16,40", 3, "3", 1) if options.tiny else ("2048,8192", 64, "32,128", 4)
    wanted = options.tests.split(",")
    generated = [count for test, count in (("decode", "1"), ("batch", sizes[2])) if test in wanted]
    return ["-p", sizes[0] if "prompt" in wanted else 0, "-n", sizes[1] if generated else 0,
            *(["-npl", ",".join(generated)] if generated else []), "-r", sizes[3]]


def times_of(result):
    """us of a step, by op and variant, the longest first."""
    times = {f"{kernel['op']}:{kernel['variant']}": kernel.get("us_per_step") or 0 for kernel in result["kernels"]}
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def longest(times):
    return {op: round(us, 1) for op, us in list(times.items())[:14]}


def sums(run, model):
    gpus, tiny = run.options.gpus, run.options.tiny
    if model == run.options.models[0]:
        text, _ = run.sol("device", "--gpus", gpus, "--measure", "--json", "-q", "--most", 1 if tiny else 64,
                          "--seconds", 0.0001 if tiny else 0.02)
        lines = [line for line in json.loads(text)["links"]["collectives"] if line["op"].startswith("all_reduce")]
        run.say(part="sums", us={f"{line['variant']}:{line['bytes']}": round(line["ns"]["median"] / 1000, 2) for line in lines})
    tests = ("-p", 40, "-n", 2, "-npl", 3, "-r", 1) if tiny else ("-p", 8192, "-n", 16, "-npl", 512, "-r", 3)
    # Emulated cards do nothing of a library in a graph, and have no events.
    for way, forced in (("rules", ()),) if tiny else (("rules", ()), ("nccl", BY_NCCL), ("rules again", ())):
        results, took = bench(run, model, gpus, *tests, *forced, *([] if tiny else ["--ops"]))
        for result in results:
            times = times_of(result)
            rows = result["n_parallel"] if result["n_gen"] else min(result["n_prompt"], 2048)
            step_us = 1e6 * rows / result["ts"]
            of_sums = sum(us for op, us in times.items() if op.split(":")[0] in ("all_reduce", "all_reduce_add", "add", "fill"))
            run.good &= bool(result["proved"])
            run.say(part="sums", model=model, test=name_of(result), gpus=gpus, way=way, ts=result["ts"], proved=result["proved"],
                    step_us=round(step_us, 1), ops_us=round(sum(times.values()), 1), sums_us=round(of_sums, 1),
                    logits_us=round(sum(us for op, us in times.items() if op.split(":")[0] in ("all_gather", "join_columns")), 1),
                    us=longest(times), seconds=round(took, 1))


def speed(run, model):
    gpus = run.options.gpus
    ops = [] if run.options.tiny else ["--ops"]
    tests = tests_of(run.options)
    one, failed = [], None
    try:
        one, took = bench(run, model, 1, *tests, *ops)
        run.say(part="speed", model=model, gpus=1, seconds=round(took, 1), load_s=one[0]["upload_s"],
                ts={name_of(result): result["ts"] for result in one},
                us={name_of(result): longest(times_of(result)) for result in one})
    except (RuntimeError, ValueError) as error:
        failed = error  # those of N GPUs are worth having without
        run.say(part="speed", model=model, gpus=1, failed=str(error))
    first = {name_of(result): result["ts"] for result in one}
    for flags in (SHARING[way] for way in run.options.sharing.split(",")):
        all_, took = bench(run, model, gpus, *tests, *ops, *flags)
        compare(run, model, first, all_, flags, took)
    if failed:
        raise RuntimeError("nothing to compare with: one GPU failed")


def compare(run, model, first, results, flags, took):
    gpus = run.options.gpus
    for result in results:
        name = name_of(result)
        ratio = result["ts"] / first[name] if first.get(name) else None
        wanted = WANTED.get((kind_of(result), gpus)) if "120b" in model and name != "pp2048" and WHOLE not in flags else None
        good = bool(result["proved"]) and (wanted is None or (ratio or 0) >= wanted)
        run.good &= good
        times = times_of(result)
        run.say(part="speed", model=model, test=name, gpus=gpus, whole_experts=WHOLE in flags, pipeline=LAYERS in flags, one=first.get(name), all=result["ts"], ratio=ratio, wanted=wanted,
                proved=result["proved"], good=good, step_us=round(sum(times.values()), 1),
                collectives_us=round(sum(us for op, us in times.items() if op.split(":")[0] in COLLECTIVES), 1),
                us=longest(times), load_s=result["upload_s"], seconds=round(took, 1))


class Server:
    """sol serve, until the block ends."""

    def __init__(self, run, model, gpus, copies, flags):
        texts = (2 if run.options.tiny else 512) * gpus
        context = 160 if run.options.tiny else 4608
        # What emulated cards cannot run (clusters) is composed.
        forced = [word for op in ("attn_out", "attn_add", "attn_route") for word in ("--force", op + "=composed")]
        self.run, self.url = run, f"http://127.0.0.1:{PORT}"
        self.command = [run.options.sol, "serve", "-m", model, "--port", str(PORT), "--responses", "none", "--backend", "cuda",
                        "--gpus", str(gpus), "--copies", str(copies), "--parallel", str(texts), "--context", str(context),
                        "--max-waiting", "100000", "--max-waiting-tokens", str(1 << 30), *flags, *(forced if run.options.tiny else [])]

    def __enter__(self):
        began = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while self.process.poll() is None and time.monotonic() - began < max(self.run.left(), 5):
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=5).status == 200:
                    self.load_s = round(time.monotonic() - began, 1)
                    return self
            except OSError:
                time.sleep(0.2)
        self.process.kill()
        raise RuntimeError(f"{' '.join(self.command)}: not ready: {self.process.communicate()[1].strip()[-500:]}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def load(self, *options):
        vocab = [] if self.run.options.tiny else ["--vocab", os.path.join(os.path.dirname(__file__), "../models/builtin.gguf")]
        text, _ = self.run.sol("bench", "--serve", self.url, "--endpoint", "completions", "-o", "json", "-q", "--no-store",
                               "--warmup", 0, *vocab, *(["-m", "builtin"] if self.run.options.tiny else []), *options, least=20)
        return json.loads(text)["levels"][0]

    def of_copies(self, name):
        text = urllib.request.urlopen(self.url + "/metrics", timeout=30).read().decode()
        found = re.findall(rf'^sol:copy_{name}{{copy="\d+"}} (\S+)$', text, re.M) or re.findall(rf"^sol:{name} (\S+)$", text, re.M)
        return [float(value) for value in found]


def serve(run, model):
    gpus, tiny = run.options.gpus, run.options.tiny
    model = "builtin" if tiny else model
    ways = [("one", 1, 1), ("shared", gpus, 1), ("experts", gpus, 1), ("pipeline", gpus, gpus), ("copies", gpus, gpus)] + ([("pairs", gpus, gpus // 2)] if gpus >= 4 else [])
    queue, prefix = ("random:8,3,0", "prefix:40,8,2") if tiny else ("random:1024,512,0", "prefix:4000,100,128")
    one = {}
    for way, cards, copies in [way for way in ways if way[0] in run.options.ways.split(",")]:
        try:
            with Server(run, model, cards, copies, SHARING.get(way, [])) as server:
                tests = [("queue", ["--burst", (2 if tiny else run.options.requests) * cards, "--lengths", queue])]
                clients = (1 if tiny else 32) * cards
                tests += [("prefix", ["--concurrency", clients, "--requests", (2 if tiny else 8) * clients, "--lengths", prefix])]
                for test, load in [pair for pair in tests if pair[0] in run.options.loads.split(",")]:
                    before = [server.of_copies(name) for name in ("prompt_tokens_total", "prefix_cache_hits_total")]
                    level = server.load(*load)
                    asked, kept = ([now - then for now, then in zip(server.of_copies(name), past)]
                                   for name, past in zip(("prompt_tokens_total", "prefix_cache_hits_total"), before))
                    rate = level["output_tokens_per_s"] / cards
                    one.setdefault(test, rate if way == "one" else None)
                    ratio = rate / one[test] if one[test] else None
                    wanted = SERVED.get(way) if "120b" in model and test == "queue" else None
                    good = level["ok"] == level["requests"] and (wanted is None or (ratio or 0) >= wanted)
                    run.good &= good
                    run.say(part="serve", model=model, test=test, way=way, gpus=cards, copies=copies, ts_gpu=round(rate, 1),
                            ratio=ratio, wanted=wanted, good=good, seconds=level["seconds"], ttft_ms=level["ttft_ms"]["p50"],
                            itl_ms=level["itl_ms"]["p50"], failed=level["requests"] - level["ok"], invalid=level["invalid"],
                            prompt_tokens=asked, kept_share=round(sum(kept) / max(sum(asked), 1), 3), load_s=server.load_s)
        except (RuntimeError, KeyError, ValueError, TypeError, OSError) as error:
            run.good = False
            run.say(part="serve", model=model, way=way, gpus=cards, copies=copies, failed=f"{type(error).__name__}: {error}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sol", default="build/sol")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--parts", default="verify,speed")
    parser.add_argument("--model", default="synth:gpt-oss-120b,synth:gpt-oss-20b")
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--ways", default="one,shared,experts,pipeline,copies,pairs", help="of serving")
    parser.add_argument("--loads", default="queue,prefix", help="of serving")
    parser.add_argument("--sharing", default=",".join(SHARING), help="of a model's speed")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    options.models = ["synth:small"] if options.tiny else options.model.split(",")
    run = Run(options)
    parts = [part for part in PARTS if part in options.parts.split(",")]
    for part in parts:
        for model in options.models:
            for _ in range(1 if part != "speed" else options.rounds):
                try:
                    globals()[part](run, model)
                except (RuntimeError, KeyError, ValueError, TypeError) as error:
                    run.good = False
                    run.say(part=part, model=model, gpus=options.gpus, failed=f"{type(error).__name__}: {error}")
    run.say(part="all", good=run.good)
    sys.exit(0 if run.good else 1)


if __name__ == "__main__":
    main()
