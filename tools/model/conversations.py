#!/usr/bin/env python3
"""Conversations for the built-in model, in the harmony format, as documents of labelled segments.

    conversations.py --out FILE.jsonl [--count N] [--seed S] [--held-out FILE.jsonl]

Each document is a conversation up to one answer. openai-harmony renders it; what the assistant says last (its
thoughts, a call of a tool, the answer) is labelled, all else is not, and sol train --init-from learns the labelled
part. Kinds: how sol is used, small talk, calls of simple tools and what follows from their results, answers that a
JSON schema asks for, and what was said before in a conversation. Everything is made from lists in this file and in
conversations_text.py; a seed gives the same file.

openai-harmony reads o200k_base.tiktoken, from the folder that TIKTOKEN_ENCODINGS_BASE names or from the net.
"""
import argparse
import json
import random

from openai_harmony import (Author, Conversation, DeveloperContent, HarmonyEncodingName, Message, ReasoningEffort,
                            RenderConversationConfig, Role, SystemContent, ToolDescription, load_harmony_encoding)

import conversations_text as text

EFFORTS = {"low": ReasoningEffort.LOW, "medium": ReasoningEffort.MEDIUM, "high": ReasoningEffort.HIGH}


# ---- messages ----

def user(words):
    return Message.from_role_and_content(Role.USER, words)


def thought(words):
    return Message.from_role_and_content(Role.ASSISTANT, words).with_channel("analysis")


def answer(words):
    return Message.from_role_and_content(Role.ASSISTANT, words).with_channel("final")


def call(name, arguments):
    return (Message.from_role_and_content(Role.ASSISTANT, json.dumps(arguments)).with_channel("commentary")
            .with_recipient("functions." + name).with_content_type("<|constrain|>json"))


def result(name, value):
    return (Message.from_author_and_content(Author.new(Role.TOOL, "functions." + name), json.dumps(value))
            .with_channel("commentary").with_recipient("assistant"))


class Talk:
    """What stands before the first question, and the messages after it; `turns` are where an answer is learnt:
    (number of messages known by then, messages to learn)."""

    def __init__(self, rng):
        self.rng = rng
        self.effort = rng.choice(["low", "medium", "medium", "medium", "high"])
        self.instructions, self.tools = None, []
        self.said, self.turns = [], []

    def ask(self, words):
        self.said.append(user(words))

    def reply(self, words, why=None):
        """An answer, after a thought unless the effort is low. Thoughts before an answer are not kept."""
        new = [thought(why)] if why and self.effort != "low" else []
        self.turns.append((len(self.said), new + [answer(words)]))
        self.said.append(answer(words))

    def use(self, name, arguments, value, why):
        """A call of a tool and its result. Thoughts stay until the answer."""
        new = [thought(why)] if self.effort != "low" else []
        new.append(call(name, arguments))
        self.turns.append((len(self.said), new))
        self.said += new + [result(name, value)]

    def head(self):
        system = SystemContent.new().with_reasoning_effort(EFFORTS[self.effort])
        if self.rng.random() < 0.7:
            system = system.with_conversation_start_date(f"20{self.rng.randint(25, 29)}-{self.rng.randint(1, 12):02}-"
                                                         f"{self.rng.randint(1, 28):02}")
        messages = [Message.from_role_and_content(Role.SYSTEM, system)]
        if self.instructions or self.tools:
            developer = DeveloperContent.new()
            if self.instructions:
                developer = developer.with_instructions(self.instructions)
            if self.tools:
                developer = developer.with_function_tools(self.tools)
            messages.append(Message.from_role_and_content(Role.DEVELOPER, developer))
        return messages


# ---- kinds of conversations ----

def fill(rng, template, **more):
    """{a|b} picks one; {word} takes from the lists."""
    while "{" in template:
        start = template.rindex("{")
        end = template.index("}", start)
        inside = template[start + 1:end]
        if "|" in inside:
            value = rng.choice(inside.split("|"))
        else:
            value = str(more[inside] if inside in more else rng.choice(text.LISTS[inside]))
        template = template[:start] + value + template[end + 1:]
    return template


def about_sol(rng, talk):
    for fact in rng.sample(text.FACTS, rng.choice([1, 1, 2, 3])):
        talk.ask(fill(rng, rng.choice(fact["ask"])))
        talk.reply(fill(rng, rng.choice(fact["say"])), rng.choice(["The user asks about sol. " + fact["why"], fact["why"]]))


def small_talk(rng, talk):
    for topic in rng.sample(text.TALK, rng.choice([1, 2, 3])):
        talk.ask(fill(rng, rng.choice(topic["ask"])))
        talk.reply(fill(rng, rng.choice(topic["say"])), topic["why"])


def remember(rng, talk):
    """What the user said of himself comes back later."""
    thing = rng.choice(text.REMEMBER)
    value = fill(rng, thing["value"])
    talk.ask(fill(rng, rng.choice(thing["tell"]), value=value))
    talk.reply(fill(rng, rng.choice(thing["note"]), value=value), f"The user tells me something: {value}. I take note.")
    if rng.random() < 0.5:
        small_talk(rng, talk)
    talk.ask(fill(rng, rng.choice(thing["ask"])))
    talk.reply(fill(rng, rng.choice(thing["say"]), value=value), f"The user said before: {value}.")


def with_tools(rng, talk):
    tool = rng.choice(text.TOOLS)
    others = rng.sample([t for t in text.TOOLS if t is not tool], rng.choice([0, 0, 1, 2]))
    offered = [tool] + others
    rng.shuffle(offered)
    talk.tools = [ToolDescription.new(t["name"], t["about"], parameters=t["parameters"]) for t in offered]
    for _ in range(rng.choice([1, 1, 2])):
        if rng.random() < 0.15:  # a tool is there and is not needed
            small_talk(rng, talk)
            continue
        made = tool["make"](rng)
        talk.ask(fill(rng, rng.choice(tool["ask"]), **made["words"]))
        talk.use(tool["name"], made["arguments"], made["result"], f"I need {tool['name']} for this.")
        talk.reply(fill(rng, rng.choice(tool["say"]), **made["words"]), "The tool has answered. I say what it found.")


def as_json(rng, talk):
    schema = rng.choice(text.SCHEMAS)
    made = schema["make"](rng)
    names = list(made)
    talk.instructions = ("Answer with JSON.\n\n# Response Formats\n\n## " + schema["name"] + "\n\n" +
                         json.dumps(schema["schema"], separators=(",", ":")))
    talk.ask(fill(rng, rng.choice(schema["tell"]), **made))
    value = {k: made[k] for k in names if k in schema["schema"]["properties"]}
    talk.reply(json.dumps(value), f"The answer has the form {schema['name']}: " + ", ".join(value) + ".")


KINDS = [(about_sol, 5), (small_talk, 4), (remember, 3), (with_tools, 4), (as_json, 3)]


# ---- as segments ----

def segments(encoding, talk):
    """A document for each answer."""
    keep = RenderConversationConfig(auto_drop_analysis=False)
    head = talk.head()
    for known, new in talk.turns:
        before = head + talk.said[:known]
        asked = encoding.decode_utf8(encoding.render_conversation_for_training(Conversation.from_messages(before), keep))
        whole = encoding.decode_utf8(
            encoding.render_conversation_for_training(Conversation.from_messages(before + new), keep))
        assert whole.startswith(asked + "<|start|>assistant"), whole
        asked += "<|start|>assistant"
        yield [{"text": asked, "label": False}, {"text": whole[len(asked):], "label": True}]


def write(path, documents):
    with open(path, "w", encoding="utf-8") as out:
        for d in documents:
            out.write(json.dumps({"segments": d}, ensure_ascii=False) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", required=True)
    p.add_argument("--held-out", help="the last twentieth goes there")
    p.add_argument("--count", type=int, default=20000, help="conversations")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    documents = []
    for _ in range(a.count):
        talk = Talk(rng)
        rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0](rng, talk)
        documents += segments(encoding, talk)
    held = len(documents) // 20 if a.held_out else 0
    write(a.out, documents[:len(documents) - held])
    if a.held_out:
        write(a.held_out, documents[len(documents) - held:])
    print(f"{len(documents)} documents of {a.count} conversations")


if __name__ == "__main__":
    main()
