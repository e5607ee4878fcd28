#!/usr/bin/env python3
"""What a client sees of a server with two copies of a model; tests/cli_copies.sh.

usage: copies_client.py texts|prefix|spread|drain|failure|twins ADDRESS PID
"""
import concurrent.futures
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request

what, address, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])


def must(true, *words):
    if not true:
        print(what, *words)
        sys.exit(1)


def get(path):
    return urllib.request.urlopen(address + path, timeout=60).read().decode()


def ask(path, **fields):
    """The answer and its status."""
    request = urllib.request.Request(address + path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer), answer.status
    except urllib.error.HTTPError as error:
        return json.load(error), error.code


def complete(prompt, tokens=6, **more):
    answer, status = ask("/v1/completions", prompt=prompt, **{"max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more})
    must(status == 200, status, answer)
    return answer


def cached(answer):
    usage = answer["usage"]
    return (usage.get("prompt_tokens_details") or usage["input_tokens_details"])["cached_tokens"]


def figures():
    """{name: value}, and {name: [value of each copy]}."""
    text = get("/metrics")
    alone = {name: float(value) for name, value in re.findall(r"^sol:(\w+) (\S+)$", text, re.M)}
    copies = {}
    for name, copy, value in re.findall(r'^sol:copy_(\w+)\{copy="(\d+)"\} (\S+)$', text, re.M):
        copies.setdefault(name, []).append(float(value))
        must(len(copies[name]) == int(copy) + 1, name)
    return alone, copies


def check_sums():
    alone, copies = figures()
    must(copies["up"] == [1, 1], copies["up"])
    must(len(copies) == 15, sorted(copies))
    for name, values in copies.items():
        if name not in ("up", "kv_cache_usage_perc"):
            must(sum(values) == alone[name], name, values, alone[name])
    return copies


def together(jobs):
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        return [job.result() for job in [pool.submit(*job) for job in jobs]]


# ---- parts ----

def texts():
    """Answers that are the same however many copies there are."""
    prompts = [f"Once upon a time there were {n} bears" for n in ("no", "three", "seven", "many")]
    answers = [answer["choices"][0]["text"] for answer in together([(complete, prompt) for prompt in prompts])]
    several = complete(prompts, 4)["choices"] + complete("The cat", 4, n=3)["choices"]
    print(json.dumps([answers, [choice["text"] for choice in several]]))


def prefix():
    """A text that goes on is where its beginning is, though the copies are equally idle."""
    texts = ["The old man looked at the sea and said", "It was a cold day in the town when"]
    for text in texts:
        must(cached(complete(text)) == 0)
    before = check_sums()
    must(all(before["prompt_tokens_total"]), "one copy has both:", before["prompt_tokens_total"])
    for n in range(3):
        for i in range(2):
            texts[i] += " and then the next morning came"
            must(cached(complete(texts[i])) > 6 * n, "not cached:", texts[i])
    after = check_sums()
    must(all(a > b for a, b in zip(after["prefix_cache_hits_total"], before["prefix_cache_hits_total"])))
    # Stored responses follow theirs; the frame of a chat is common to all of them, and kept.
    answer = None
    for n in range(3):
        more = {"previous_response_id": answer["id"]} if answer else {}
        again, status = ask("/v1/responses", input="Tell me a story of a fox and a crow." * (n + 1), max_output_tokens=8, temperature=0, **more)
        must(status == 200, again)
        must(not answer or cached(again) > answer["usage"]["input_tokens"], again["usage"], answer and answer["usage"])
        answer = again
    must(json.loads(get("/health"))["copies"] == [{"copy": 0, "status": "ok"}, {"copy": 1, "status": "ok"}])


def spread():
    together([(complete, f"{n} is a number that", 24) for n in range(8)])
    copies = check_sums()
    tokens = copies["generation_tokens_total"]
    must(sum(tokens) == 8 * 24 and min(tokens) >= 2 * 24, "not spread:", tokens)


def drain():
    """What runs on both copies ends before the server does."""
    running = concurrent.futures.ThreadPoolExecutor(2)
    answers = [running.submit(complete, f"{n} is a number that", 450) for n in range(2)]
    while not all(figures()[1].get("num_requests_running", [0])):
        must(not any(answer.done() for answer in answers), "too quick to be seen")
    os.kill(pid, signal.SIGTERM)
    for answer in answers:
        must(answer.result()["usage"]["completion_tokens"] == 450)


def failure():
    """Texts of the copy that fails are told why; what comes then goes to the other one.

    It fails at its first graph, the second step of one shape: the texts are so long that there is one, however they meet.
    """
    ids = [[n, n + 1, n + 2] for n in range(4)]
    text = lambda ids: ask("/v1/completions", prompt=ids, max_tokens=24, ignore_eos=True)
    answers = together([(text, one) for one in ids])
    failed = [answer["error"]["message"] for answer, status in answers if status == 500]
    must(0 < len(failed) < 4, answers)
    must(all("CUDA_ERROR_" in message for message in failed), failed)
    must(sum(status == 200 for _, status in answers) == 4 - len(failed), answers)
    health = json.loads(get("/health"))
    must(health["status"] == "ok", health)
    must(health["copies"] == [{"copy": 0, "status": "ok"}, {"copy": 1, "status": "failed"}], health)
    must(figures()[1]["up"] == [1, 0])
    for n in range(2):
        complete([n + 9, 5], 1)


def twins():
    """The same, at once: a copy each, and the same bits."""
    same = lambda: complete([5, 6, 7, 8], 3, seed=3, temperature=1)["choices"][0]["text"]
    one, other = together([(same,), (same,)])
    must(figures()[1]["generation_tokens_total"] == [3, 3], figures())
    must(one == other, one, other)


globals()[what]()
