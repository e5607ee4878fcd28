"""Corpus, tokenizer and token streams for the built-in model.

The corpus is a folder of plain-text books. One of them is held out: neither the tokenizer nor the
network sees it. The last 1.5 % of every other book is kept for validation during training.
"""
import random
import re
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

# Same order as in o200k_harmony. They sit at the end of the vocabulary.
SPECIALS = ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>",
            "<|start|>", "<|end|>", "<|message|>", "<|call|>"]

SPLIT = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def clean(text):
    """LF line ends; no credits of the e-text's makers at the top, no publisher's advertisements below."""
    text = text.replace("\r\n", "\n").lstrip("\ufeff\n ")
    for mark in ("\nTypographical errors corrected by the etext", "\n                     _There's More to Follow"):
        if mark in text:
            text = text[:text.index(mark)]
    head = text[:400].split("\n\n\n")[0]
    if re.match(r"(Produced by|An Anonymous Volunteer)", head):
        text = text[len(head):]
    text = re.sub(r"\n*Original Transcriber.s Notes:\n.*?\n\n\n+", "\n\n\n\n", text, count=1, flags=re.S)
    return text.strip("\n ") + "\n"


def load_books(corpus, held_out):
    """(list of (name, text) to learn from, text of the held-out book)"""
    books, held = [], None
    for path in sorted(Path(corpus).glob("*.txt")):
        text = clean(path.read_text(encoding="utf-8"))
        if path.name == held_out:
            held = text
        else:
            books.append((path.name, text))
    if held is None:
        raise SystemExit(f"{held_out} is not in {corpus}")
    return books, held


def train_tokenizer(texts, vocab):
    """Byte-level BPE with o200k's split. Specials get the last ids."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab - len(SPECIALS), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    assert tok.get_vocab_size() == vocab
    return tok


def encode(tok, text):
    """Ids of text alone; a special token's name in it is plain text."""
    tok.encode_special_tokens = True
    return tok.encode(text, add_special_tokens=False).ids


def book_streams(tok, books):
    """(training ids, validation ids): <|startoftext|> book <|endoftext|> <|startoftext|> book ..."""
    bos, eos = tok.token_to_id(SPECIALS[0]), tok.token_to_id(SPECIALS[1])
    train, val = [], []
    for _, text in books:
        cut = text.index("\n", int(len(text) * 0.985)) + 1
        train += [bos] + encode(tok, text[:cut]) + [eos]
        val += encode(tok, text[cut:])
    return np.array(train, np.int32), np.array(val, np.int32)


ASKS = ["", "", "", "Continue the story.\n\n", "Go on:\n\n", "Continue this:\n\n", "Please go on with this tale.\n\n"]
THOUGHTS = ["The user gives a passage. I shall go on with the story in the same manner.",
            "We should continue the text. Keep the tone of an old novel.",
            "The reader wishes to hear what happens next. I continue.",
            "A piece of a story. I go on from here."]


def chat_stream(tok, books, count, seed=1):
    """Conversations in the harmony format made from the training books: the user gives a passage, the
    assistant goes on with the passage that follows. So the control tokens get a meaning and an answer an
    end; there is nothing in it that could teach the model facts or obedience."""
    rng = random.Random(seed)
    sp = {s.strip("<|>"): [tok.token_to_id(s)] for s in SPECIALS}

    def msg(head, body, end, channel=None):
        ch = sp["channel"] + encode(tok, channel) if channel else []
        return sp["start"] + encode(tok, head) + ch + sp["message"] + encode(tok, body) + sp[end]

    paragraphs = []
    for _, text in books:
        text = text[:int(len(text) * 0.985)]
        ps = [re.sub(r"\s*\n\s*", " ", p).strip() for p in re.split(r"\n\s*\n", text)]
        paragraphs.append([p for p in ps if len(p) > 40])
    weights = [sum(map(len, ps)) for ps in paragraphs]

    def passage(ps, at, words):
        out = []
        while at < len(ps) and sum(len(p.split()) for p in out) < words:
            out.append(ps[at])
            at += 1
        return "\n\n".join(out), at

    ids = []
    for _ in range(count):
        ps = rng.choices(paragraphs, weights)[0]
        at = rng.randrange(max(1, len(ps) - 12))
        effort = rng.choice(["low", "medium", "medium", "medium", "high"])
        date = f"20{rng.randint(24, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        ids += msg("system", "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
                   + rng.choice(["", f"Current date: {date}\n", f"Current date: {date}\n"])
                   + f"\nReasoning: {effort}\n\n# Valid channels: analysis, commentary, final. "
                   "Channel must be included for every message.", "end")
        if rng.random() < 0.2:
            ids += msg("developer", "# Instructions\n\nYou tell stories.", "end")
        turns = rng.choice([1, 1, 2])
        for turn in range(turns):
            last = turn == turns - 1
            user, at = passage(ps, at, rng.choice([1, 1, 30, 60]))
            sentences = re.split(r"(?<=[.!?]) ", user)
            if len(sentences) > 2 and rng.random() < 0.5:  # leave off inside a paragraph
                k = rng.randint(1, len(sentences) - 1)
                user, rest = " ".join(sentences[:k]), " ".join(sentences[k:])
            else:
                rest = ""
            more, at = passage(ps, at, 0 if len(rest) > 500 else rng.choice([30, 80, 150]))
            answer = "\n\n".join(filter(None, [rest, more]))
            if not answer:
                break
            ids += msg("user", rng.choice(ASKS) + user, "end")
            if last and (effort != "low" or rng.random() < 0.3):
                ids += msg("assistant", rng.choice(THOUGHTS), "end", "analysis")
            ids += msg("assistant", answer, "return" if last else "end", "final")
    return np.array(ids, np.int32)
