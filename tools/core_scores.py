#!/usr/bin/env python3
"""Makes tests/data/core_tasks, a small folder of CORE tasks, and tests/data/core_scores.json: what nanochat makes of them
with a model that transformers runs.

    python3 tools/core_scores.py NANOCHAT tests/data

NANOCHAT is a checkout of karpathy/nanochat (made with 92d63d4), whose nanochat/core_eval.py runs as it is. The model is
tests/data/hf_tiny, in float32. Needs torch, transformers, jinja2 and pyyaml (made with 2.15.0, 5.24.0).
"""
import csv
import importlib.util
import json
import os
import random
import sys

import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, Mxfp4Config

WORDS = "pear clock harbour gull winter letter bell chimney ferry crate wall noon".split()

YAML = """# made by tools/core_scores.py
icl_tasks:
-
  label: fruit_zeroshot
  dataset_uri: things/fruit.jsonl
  num_fewshot: [0]
  icl_task_type: multiple_choice
-
  label: fruit_8shot
  dataset_uri: things/fruit.jsonl
  num_fewshot: [8]
  icl_task_type: multiple_choice
  continuation_delimiter: "\\nAnswer: "
  has_categories: true
-
  label: ferries
  dataset_uri: ferries.jsonl
  num_fewshot:
  - 2
  icl_task_type: schema
-
  label: 'next'
  dataset_uri: next.jsonl   # what the model says itself
  num_fewshot: [0]
  icl_task_type: language_modeling
  continuation_delimiter: ''
-
  label: words
  dataset_uri: words.jsonl
  num_fewshot: [3]
  icl_task_type: language_modeling
"""
BASELINES = {"fruit_zeroshot": 25, "fruit_8shot": 25, "ferries": 50, "next": 0, "words": 0.5}


class Tokenizer:
    def __init__(self, folder):
        self.t = AutoTokenizer.from_pretrained(folder)

    def get_bos_token_id(self):
        return self.t.convert_tokens_to_ids("<|startoftext|>")

    def encode(self, text):
        return self.t.encode(text, add_special_tokens=False)

    def __call__(self, prompts, prepend):
        return [[prepend] + self.encode(p) for p in prompts]


class Model:
    """What core_eval asks of one: logits."""

    def __init__(self, folder):
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.float32,
            attn_implementation="eager").eval()

    def __call__(self, ids):
        return self.model(ids).logits


def sentence(rng, n):
    return " ".join(rng.choices(WORDS, k=n))


def make_next(model, tokenizer, rng):
    """Texts whose likeliest next token is text, and some with another answer."""
    items = []
    while len(items) < 12:
        context = f"The {sentence(rng, 4)} and the"
        ids = [tokenizer.get_bos_token_id()] + tokenizer.encode(context)
        with torch.no_grad():
            top = model(torch.tensor([ids]))[0, -1].argmax().item()
        said = tokenizer.t.decode([top])
        if tokenizer.encode(context + said) != ids[1:] + [top] or not said.isprintable():
            continue
        items.append({"context": context, "continuation": said if len(items) % 3 else said + "x"})
    return items


def make_tasks(folder, model, tokenizer):
    rng = random.Random(5)
    fruit = [{"query": f"{i}: which {sentence(rng, 3)}?", "choices": rng.sample(WORDS, 2 + i % 4),
              "gold": rng.randrange(2 + i % 4)} for i in range(24)]
    ferries = [{"context_options": [f"The {w} {sentence(rng, 9)}, for the {w}" for w in rng.sample(WORDS, 2)],
                "continuation": f"was late {i}.", "gold": rng.randrange(2)} for i in range(15)]
    words = [{"context": f"{i}. The {sentence(rng, 12)}", "continuation": rng.choice(WORDS)} for i in range(10)]
    for name, items in [("things/fruit", fruit), ("ferries", ferries), ("next", make_next(model, tokenizer, rng)),
                        ("words", words)]:
        path = os.path.join(folder, "eval_data", name + ".jsonl")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in items)
    with open(os.path.join(folder, "core.yaml"), "w", encoding="utf-8") as file:
        file.write(YAML)
    with open(os.path.join(folder, "eval_meta_data.csv"), "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["Eval Task", "Task Category", "Random baseline", "Description"])
        for name, percent in BASELINES.items():
            out.writerow([name, "made up", percent, f'short, and "{name}"\nmeans nothing'])


def load_core_eval(folder):
    spec = importlib.util.spec_from_file_location("core_eval", os.path.join(folder, "nanochat", "core_eval.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score(core_eval, model, tokenizer, task, data):
    """Each item: the losses of its answers, whether each is what the model would say, and whether it is right."""
    seen = {}
    forward = core_eval.forward_model

    def batched(name):
        made = getattr(core_eval, name)

        def call(*args):
            tokens, begins, ends = made(*args)
            seen["spans"] = list(zip(begins, ends))
            return tokens, begins, ends
        return call

    def observed(*args):
        seen["losses"], seen["said"] = forward(*args)
        seen["ids"] = args[1]
        return seen["losses"], seen["said"]

    names = ["batch_sequences_mc", "batch_sequences_schema", "batch_sequences_lm"]
    kept = {n: getattr(core_eval, n) for n in names}
    for n in names:
        setattr(core_eval, n, batched(n))
    core_eval.forward_model = observed
    out = []
    for i in range(len(data)):
        right = core_eval.evaluate_example(i, model, tokenizer, data, "cpu", task)
        losses, likely = [], []
        for k, (begin, end) in enumerate(seen["spans"]):
            losses.append(round(seen["losses"][k, begin - 1:end - 1].mean().item(), 7))
            likely.append(bool((seen["said"][k, begin - 1:end - 1] == seen["ids"][k, begin:end]).all()))
        out.append({"losses": losses, "likely": likely, "right": bool(right)})
    core_eval.forward_model = forward
    for n in names:
        setattr(core_eval, n, kept[n])
    return out


def main():
    nanochat, to = sys.argv[1:]
    model, tokenizer = Model(os.path.join(to, "hf_tiny")), Tokenizer(os.path.join(to, "hf_tiny"))
    folder = os.path.join(to, "core_tasks")
    make_tasks(folder, model, tokenizer)
    core_eval = load_core_eval(nanochat)
    with open(os.path.join(folder, "core.yaml"), encoding="utf-8") as file:
        tasks = yaml.safe_load(file)["icl_tasks"]
    with open(os.path.join(folder, "eval_meta_data.csv"), encoding="utf-8") as file:
        baselines = {row["Eval Task"]: float(row["Random baseline"]) for row in csv.DictReader(file)}
    made, centered = [], []
    for task in tasks:
        with open(os.path.join(folder, "eval_data", task["dataset_uri"]), encoding="utf-8") as file:
            data = [json.loads(line) for line in file]
        random.Random(1337).shuffle(data)
        meta = {"task_type": task["icl_task_type"], "num_fewshot": task["num_fewshot"][0],
                "continuation_delimiter": task.get("continuation_delimiter", " ")}
        items = score(core_eval, model, tokenizer, meta, data)
        accuracy = sum(item["right"] for item in items) / len(items)
        baseline = baselines[task["label"]]
        centered.append((accuracy - 0.01 * baseline) / (1.0 - 0.01 * baseline))
        made.append({"label": task["label"], "accuracy": accuracy, "centered": centered[-1], "items": items})
    with open(os.path.join(to, "core_scores.json"), "w", encoding="utf-8") as file:
        file.write(f'{{"made by": "tools/core_scores.py", "core": {sum(centered) / len(centered)!r}, "tasks": [\n')
        file.write(",\n".join(json.dumps(m) for m in made) + "]}\n")


main()
