#!/usr/bin/env python3
"""Makes tests/data/core.json: the prompts that nanochat makes of the items of small tasks.

    python3 tools/core_vectors.py NANOCHAT > tests/data/core.json

NANOCHAT is a checkout of karpathy/nanochat (made with 92d63d4). Its nanochat/core_eval.py runs as it is, without torch,
until it has the prompts of an item. Needs jinja2.
"""
import json
import os
import random
import sys
import types

WORDS = "pear clock harbour gull winter letter bell chimney ferry crate wall noon".split()


class Prompts(Exception):
    pass


class Tokenizer:
    def get_bos_token_id(self):
        return 0

    def __call__(self, prompts, prepend):
        raise Prompts(prompts)


def load(folder):
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.no_grad = lambda: lambda function: function
    torch.distributed = sys.modules["torch.distributed"] = types.ModuleType("torch.distributed")
    made = types.ModuleType("core_eval")
    path = os.path.join(folder, "nanochat", "core_eval.py")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), made.__dict__)
    return made


def items(kind, n):
    rng = random.Random(n)
    for i in range(n):
        some = " ".join(rng.choices(WORDS, k=4))
        if kind == "multiple_choice":
            yield {"query": f"{i}: which {some}?", "choices": rng.sample(WORDS, 3), "gold": rng.randrange(3)}
        elif kind == "schema":
            yield {"context_options": [f"The {w} {some}, for the {w}" for w in rng.sample(WORDS, 2)],
                   "continuation": f"was late {i}.", "gold": rng.randrange(2)}
        else:
            yield {"context": rng.choice(["", " ", "\u00a0", "\n"]) + f"{{{{ {i} }}}} The {some}" +
                   rng.choice(["", "  ", "\u3000", "\t\n"]), "continuation": rng.choice(WORDS + ["fünf <b>"])}


def case(core_eval, kind, n, few_shot, delimiter, indices):
    data = list(items(kind, n))
    shuffled = list(data)
    random.Random(1337).shuffle(shuffled)
    meta = {"task_type": kind, "num_fewshot": few_shot, "continuation_delimiter": delimiter}
    prompts = []
    for index in indices:
        try:
            core_eval.evaluate_example(index, None, Tokenizer(), shuffled, None, meta)
        except Prompts as made:
            prompts.append([index, made.args[0]])
    return {"kind": kind, "few_shot": few_shot, "delimiter": delimiter, "items": data, "prompts": prompts}


def main():
    core_eval = load(sys.argv[1])
    cases = [
        case(core_eval, "multiple_choice", 12, 0, " ", [0, 5, 11]),
        case(core_eval, "multiple_choice", 30, 10, "\nAnswer: ", [0, 29]),
        case(core_eval, "schema", 40, 3, " ", [0, 7, 39]),
        case(core_eval, "language_modeling", 30, 5, " ", [0, 1, 2, 28]),
        case(core_eval, "language_modeling", 9, 8, "", [4]),
    ]
    print('{"made by": "tools/core_vectors.py", "cases": [')
    print(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "]}")


main()
