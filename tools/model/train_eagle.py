#!/usr/bin/env python3
"""An EAGLE-3 head for the built-in model, in PyTorch, in steps that each read what those before wrote:

    train_eagle.py prompts --tokenizer tokenizer.json --books DIR --talk FILE.jsonl --out DIR [--count N] [--held-out]
    train_eagle.py texts --gguf FILE --out DIR [--device cuda] [--temperature T]
    train_eagle.py train --gguf FILE --out DIR [--device cuda] [--steps N]
    train_eagle.py record --gguf FILE --head DIR --out DIR --temperature T [--count N] [--first N] > RECORD
    train_eagle.py vectors --gguf FILE --tokenizer tokenizer.json --head DIR --text FILE --out FILE.json

prompts: pieces of books, four of five, and questions of conversations (conversations.py); --held-out: of the one book
that is not trained on. texts: what the model writes behind each, at one of several temperatures. train: the head as it
is published for gpt-oss, by training-time test (each step but the first is fed with what the one before made), and how
many guesses are right on every twentieth text, which it is not trained on. record: for each of a text's first tokens, how
many guesses behind it are right, and how sure the head is of each, in percent (bench/speculation.c replays it), drawn as
src/generate/draft_eagle.c does: T is the temperature of the texts.
vectors: what a head makes of a text, for tests.

EAGLE-3: https://arxiv.org/abs/2503.01840. The target's numbers are transformers' (tools/golden). Packages: requirements.txt,
torch, transformers, safetensors.
"""
import argparse
import json
import random
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "golden"))
import check
import make_golden as golden

# How guesses are drawn.
COLDER, SHARPER = map(float, re.search(r"colder = ([\d.]+), sharper = ([\d.]+);", (
    Path(__file__).resolve().parents[2] / "src/generate/draft_eagle.c").read_text()).groups())
LENGTH, PROMPT = 256, 24  # tokens of a text, and of a book's piece before it
GUESSES, VECTOR_GUESSES = 6, 4
WARM = 0, 0, 0.5, 0.8, 1  # temperatures
TOGETHER = 2048  # texts that are written at a time
SIZES = dict(heads=4, kv_heads=2, head_dim=64, inter=1536, vocab=4096, theta=10000.0, eps=1e-5, layers=(0, 2, 4))


class Target:
    """The model, and what a head sees of it: the stream behind three of its layers."""

    def __init__(self, path, device):
        m = check.Model(path)
        self.device = device
        self.model = golden.transformers_model(golden.Config(n_tokens=1, positions=(0,), **m.fixed), m.weights).to(device)
        for p in self.model.parameters():
            p.requires_grad_(False)
        self.embed = self.model.model.embed_tokens.weight
        self.head = self.model.lm_head.weight
        self.norm = self.model.model.norm.weight

    @torch.no_grad()
    def features(self, ids, layers):
        """[batch][n][3 * hidden] and logits [batch][n][vocab]; state i is what layer i reads."""
        out = self.model(input_ids=ids, output_hidden_states=True, use_cache=False)
        return torch.cat([out.hidden_states[n + 1] for n in layers], -1), out.logits

    @torch.no_grad()
    def write(self, prompts, warm, ends):
        """Behind prompts up to LENGTH tokens or an end, each at its temperature."""
        longest = max(map(len, prompts))
        rows = lambda pad, fill: torch.tensor([[pad] * (longest - len(p)) + fill(p) for p in prompts], device=self.device)
        ids, real = rows(0, list), rows(0, lambda p: [1] * len(p))
        heat = torch.tensor(warm, device=self.device).clamp(min=1e-4)[:, None]
        out = self.model.generate(ids, attention_mask=real, do_sample=True, top_k=0, top_p=1.0, temperature=1.0, use_cache=True,
                                  max_length=LENGTH, eos_token_id=ends, pad_token_id=ends[0],
                                  logits_processor=[lambda _, scores: scores / heat]).tolist()
        texts = []
        for prompt, row in zip(prompts, out):
            said = row[longest:]
            end = next((i + 1 for i, t in enumerate(said) if t in ends), len(said))
            texts.append({"ids": prompt + said[:end], "prompt": len(prompt)})
        return texts


# ---- the head ----

def rms(x, gain, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def rotate(x, positions, theta):
    """[batch][n][heads][d], in halves."""
    half = x.shape[-1] // 2
    angle = positions[:, None].float() * theta ** (-torch.arange(half, device=x.device).float() / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Head(nn.Module):
    def __init__(self, hidden, s):
        super().__init__()
        self.s = s
        linear = lambda n, k: nn.Linear(k, n, bias=False)
        width, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
        self.fc = linear(hidden, 3 * hidden)
        self.q, self.k, self.v = (linear(n, 2 * hidden) for n in (width, kv, kv))
        self.o = linear(hidden, width)
        self.gate, self.up, self.down = linear(s["inter"], hidden), linear(s["inter"], hidden), linear(hidden, s["inter"])
        self.input_norm, self.hidden_norm, self.post_norm, self.norm = (nn.Parameter(torch.ones(hidden)) for _ in range(4))
        self.lm_head = linear(s["vocab"], hidden)

    def start(self, embeds, x, position):
        """Queries, keys and values of rows whose first stands at `position`."""
        s, (b, n, _) = self.s, x.shape
        both = torch.cat([rms(embeds, self.input_norm, s["eps"]), rms(x, self.hidden_norm, s["eps"])], -1)
        at = position + torch.arange(n, device=x.device)
        turned = lambda w, h: rotate(w(both).view(b, n, h, -1), at, s["theta"])
        return turned(self.q, s["heads"]), turned(self.k, s["kv_heads"]), self.v(both).view(b, n, s["kv_heads"], -1)

    def end(self, x, mixed):
        """What the layer leaves, and logits."""
        s = self.s
        x = x + self.o(mixed.flatten(2))
        y = rms(x, self.post_norm, s["eps"])
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return x, self.lm_head(rms(x, self.norm, s["eps"]))

    def attend(self, q, first, later):
        """Row i sees rows 0 to i of `first`, and row i of each of `later`: the steps of its own chain."""
        s, (b, n, heads, d) = self.s, q.shape
        group = heads // s["kv_heads"]
        k, v = (t.repeat_interleave(group, 2) for t in first)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / d ** 0.5
        scores = scores.masked_fill(torch.ones(n, n, device=q.device).triu(1).bool(), float("-inf"))
        own = [torch.einsum("bihd,bihd->bhi", q, k.repeat_interleave(group, 2))[..., None] / d ** 0.5 for k, _ in later]
        weights = torch.cat([scores] + own, -1).softmax(-1)
        out = torch.einsum("bhij,bjhd->bihd", weights[..., :n], v)
        for i, (_, v) in enumerate(later):
            out = out + weights[..., n + i].transpose(1, 2)[..., None] * v.repeat_interleave(group, 2)
        return out

    def chain(self, features, embeds, steps):
        """Logits of each step: of step j row i foresees token i + j + 2 from features up to i and tokens up to
        i + j + 1. embeds: of tokens 1, 2, ..."""
        n = features.shape[1] - steps
        x, later, out = self.fc(features[:, :n]), [], []
        for j in range(steps):
            q, k, v = self.start(embeds[:, j:j + n], x, j)
            if j == 0:
                first = k, v
            else:
                later.append((k, v))
            x, logits = self.end(x, self.attend(q, first, later))
            out.append(logits)
        return out

    NAMES = {"fc": "fc", "q": "midlayer.self_attn.q_proj", "k": "midlayer.self_attn.k_proj", "v": "midlayer.self_attn.v_proj",
             "o": "midlayer.self_attn.o_proj", "gate": "midlayer.mlp.gate_proj", "up": "midlayer.mlp.up_proj",
             "down": "midlayer.mlp.down_proj", "lm_head": "lm_head"}
    NORMS = {"input_norm": "midlayer.input_layernorm", "hidden_norm": "midlayer.hidden_norm",
             "post_norm": "midlayer.post_attention_layernorm", "norm": "norm"}

    def save(self, folder, ids, vocab):
        from safetensors.torch import save_file
        s, folder, hidden = self.s, Path(folder), len(self.norm)
        folder.mkdir(parents=True, exist_ok=True)
        bf16 = lambda t: t.detach().cpu().to(torch.bfloat16).contiguous()
        tensors = {f"{name}.weight": bf16(getattr(self, own).weight) for own, name in self.NAMES.items()}
        tensors |= {f"{name}.weight": bf16(getattr(self, own)) for own, name in self.NORMS.items()}
        known = torch.zeros(vocab, dtype=torch.bool)
        known[ids] = True
        tensors |= {"d2t": ids - torch.arange(len(ids)), "t2d": known}
        save_file(tensors, folder / "model.safetensors")
        config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
                  "hidden_size": hidden, "target_hidden_size": hidden, "intermediate_size": s["inter"],
                  "num_attention_heads": s["heads"], "num_key_value_heads": s["kv_heads"], "head_dim": s["head_dim"],
                  "num_hidden_layers": 1, "rms_norm_eps": s["eps"], "rope_theta": s["theta"], "vocab_size": vocab,
                  "draft_vocab_size": s["vocab"], "max_position_embeddings": 4096, "tie_word_embeddings": False,
                  "torch_dtype": "bfloat16", "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(s["layers"]),
                                                              "use_aux_hidden_state": True}}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    @staticmethod
    def load(folder):
        from safetensors.torch import load_file
        c, t = json.loads((Path(folder) / "config.json").read_text()), load_file(Path(folder) / "model.safetensors")
        s = dict(heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"], head_dim=c["head_dim"],
                 inter=c["intermediate_size"], vocab=c["draft_vocab_size"], theta=c["rope_theta"], eps=c["rms_norm_eps"],
                 layers=tuple(c["eagle_config"]["eagle_aux_hidden_state_layer_ids"]))
        head = Head(c["hidden_size"], s)
        state = {f"{own}.weight": t[f"{name}.weight"].float() for own, name in Head.NAMES.items()}
        state |= {own: t[f"{name}.weight"].float() for own, name in Head.NORMS.items()}
        head.load_state_dict(state)
        return head, t["d2t"] + torch.arange(s["vocab"])


# ---- texts ----

def write_prompts(a):
    from tokenizers import Tokenizer
    tok, rng = Tokenizer.from_file(a.tokenizer), random.Random(a.seed)
    encode = lambda text: tok.encode(text, add_special_tokens=False).ids
    books = [encode(p.read_text(encoding="utf-8")) for p in sorted(Path(a.books).glob("*.txt"))
             if (p.stem == "frankenstein") == a.held_out]
    prompts = []
    for _ in range(a.count * 4 // 5):
        book = rng.choice(books)
        at = rng.randrange(len(book) - PROMPT)
        prompts.append(book[at:at + PROMPT])
    lines = Path(a.talk).read_text(encoding="utf-8").splitlines()
    tok.encode_special_tokens = False
    for line in rng.sample(lines, min(a.count // 5, len(lines))):
        asked = encode(json.loads(line)["segments"][0]["text"])
        if len(asked) <= LENGTH * 3 // 4:
            prompts.append(asked)
    Path(a.out).mkdir(parents=True, exist_ok=True)
    ends = [tok.token_to_id(end) for end in ("<|return|>", "<|call|>", "<|endoftext|>")]
    (Path(a.out) / "prompts.json").write_text(json.dumps({"ends": ends, "prompts": prompts}))


def write_texts(a):
    target, rng = Target(a.gguf, a.device), random.Random(a.seed)
    torch.manual_seed(a.seed)
    made = json.loads((Path(a.out) / "prompts.json").read_text())
    prompts, texts, began = sorted(made["prompts"], key=len), [], time.time()  # of like length together
    for at in range(0, len(prompts), TOGETHER):
        some = prompts[at:at + TOGETHER]
        warm = [rng.choice(WARM) if a.temperature is None else a.temperature for _ in some]
        texts += target.write(some, [float(w) for w in warm], made["ends"])
        print(f"{len(texts)} texts, {time.time() - began:.0f} s", flush=True)
    rng.shuffle(texts)
    (Path(a.out) / "texts.json").write_text(json.dumps(texts))


# ---- training ----

def batch_of(texts, device):
    """ids [n][longest], and which of them are text."""
    n = max(len(t["ids"]) for t in texts)
    ids, real = torch.zeros(len(texts), n, dtype=torch.long), torch.zeros(len(texts), n, dtype=torch.bool)
    for i, t in enumerate(texts):
        ids[i, :len(t["ids"])] = torch.tensor(t["ids"])
        real[i, :len(t["ids"])] = True
    return ids.to(device), real.to(device)


def losses(head, target, texts, own):
    """Cross entropy to the target's distribution over the head's words, of each step of a chain."""
    ids, real = batch_of(texts, target.device)
    features, logits = target.features(ids, head.s["layers"])
    wanted, steps = logits[..., own], GUESSES
    n = ids.shape[1] - 1 - steps
    with torch.autocast(target.device, torch.bfloat16):
        chain = head.chain(features[:, :n + steps], target.embed[ids[:, 1:]], steps)
    out = []
    for j, made in enumerate(chain):
        here = real[:, j + 1:j + 1 + n]
        p = wanted[:, j + 1:j + 1 + n][here].softmax(-1)
        out.append(F.cross_entropy(made[here].float(), p))
    return out


def begin(target, counts):
    """The words that come most, and the model's own rows for them; nothing is added to the stream yet."""
    own = torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:SIZES["vocab"]]).copy())
    head = Head(len(target.norm), SIZES | {"vocab": len(own)})
    with torch.no_grad():
        head.lm_head.weight.copy_(target.head[own.to(target.device)])
        head.norm.copy_(target.norm)
        head.o.weight.zero_()
        head.down.weight.zero_()
    return head, own


def widen(target, head, own):
    """The head with the words that it lacks, and the model's own rows for them; with as wide an MLP as is wanted, of which
    what is new adds nothing yet."""
    words, inter = min(SIZES["vocab"], len(target.embed)), SIZES["inter"]
    if (len(own), head.s["inter"]) == (words, inter):
        return head, own
    assert words in (len(own), len(target.embed)) and inter >= head.s["inter"], "no fewer words, and no narrower"
    wide = Head(len(target.norm), head.s | {"vocab": words, "inter": inter})
    state, new = head.state_dict(), wide.state_dict()
    for name, x in state.items():
        if name == "lm_head.weight" and words > len(own):
            new[name] = target.head.detach().cpu().clone()
            new[name][own] = x
        else:
            new[name][tuple(map(slice, x.shape))] = x
    new["down.weight"][:, head.s["inter"]:] = 0
    wide.load_state_dict(new)
    return wide, own if words == len(own) else torch.arange(words)


def train(a):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    target, texts = Target(a.gguf, a.device), json.loads((Path(a.out) / "texts.json").read_text())
    held, texts = texts[::20], [t for i, t in enumerate(texts) if i % 20]
    vocab = len(target.embed)
    counts = np.bincount([i for t in texts for i in t["ids"]], minlength=vocab)
    if a.head:
        head, own = widen(target, *Head.load(a.head))
    else:
        head, own = begin(target, counts)
    head, own = head.to(a.device), own.to(a.device)
    print(f"{len(texts)} texts, {counts.sum()} tokens, {counts[own.cpu()].sum() / counts.sum():.4f} of them words of the head", flush=True)
    inner = [p for n, p in head.named_parameters() if p.dim() == 2 and n != "lm_head.weight"]
    others = [p for n, p in head.named_parameters() if p.dim() == 1 or n == "lm_head.weight"]
    opts = [torch.optim.Muon(inner, lr=a.rate, weight_decay=0.01, momentum=0.95),
            torch.optim.AdamW(others, lr=a.rate / 10, betas=(0.9, 0.95), weight_decay=0.01)]
    rates = [(g, g["lr"]) for opt in opts for g in opt.param_groups]
    at = lambda step: min(1, (step + 1) / 30) * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * step / a.steps)))
    rng, began = random.Random(2), time.time()
    for step in range(a.steps):
        for g, rate in rates:
            g["lr"] = rate * at(step)
        each = losses(head, target, rng.sample(texts, a.batch), own)
        loss = sum(0.8 ** j * l for j, l in enumerate(each))
        head.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for opt in opts:
            opt.step()
        if step % a.say == 0 or step + 1 == a.steps:
            print(f"{step}: {[round(l.item(), 3) for l in each]}, {time.time() - began:.0f} s", flush=True)
        if step % (6 * a.say) == 6 * a.say - 1 or step + 1 == a.steps:
            head.save(a.out, own.cpu(), vocab)
            print(f"held out, right of {GUESSES}: {accepted(head, target, held[:400], own)}", flush=True)


@torch.no_grad()
def accepted(head, target, texts, own):
    """Of each start in the model's part of a text: how many guesses in a row are what the text goes on with; how many
    first ones, first two, and so on."""
    right, starts = [0] * GUESSES, 0
    for at in range(0, len(texts), 16):
        ids, real = batch_of(texts[at:at + 16], target.device)
        features, _ = target.features(ids, head.s["layers"])
        n = ids.shape[1] - 1 - GUESSES
        still = real[:, 1 + GUESSES:1 + GUESSES + n].clone()
        for i, t in enumerate(texts[at:at + 16]):
            still[i, :max(t["prompt"] - 2, 0)] = False
        starts += still.sum().item()
        for j, made in enumerate(head.chain(features[:, :n + GUESSES], target.embed[ids[:, 1:]], GUESSES)):
            still &= own[made.argmax(-1)] == ids[:, j + 2:j + 2 + n]
            right[j] += still.sum().item()
    return f"{sum(right) / starts:.3f} ({', '.join(f'{r / starts:.3f}' for r in right)})"


def noise_behind(logits, tokens):
    """What was added to the logits where their largest is now at `tokens`: that, and Gumbel noise for the others that leaves
    them below it."""
    log_p = logits.double().log_softmax(-1)
    uniform = lambda shape: torch.rand(shape, dtype=torch.double)
    top = -torch.log(-torch.log(uniform(tokens.shape)))[:, None]
    others = -torch.log(torch.exp(-top) - torch.log(uniform(log_p.shape)) / log_p.exp().clamp(min=1e-300))
    return others.scatter(-1, tokens[:, None], top) - log_p


def draw(made, own, logits, tokens, temperature):
    """A head's guesses where `tokens` were drawn from `logits`, and its shares of them."""
    if temperature:
        made = made.double() / (temperature * COLDER) + noise_behind(logits / temperature, tokens)[:, own]
    else:
        made = made.double() / SHARPER
    sure, first = made.softmax(-1).max(-1)
    return own[first], sure


@torch.no_grad()
def write_record(a):
    torch.manual_seed(a.seed)
    target, (head, own) = Target(a.gguf, "cpu"), Head.load(a.head)
    for text in json.loads((Path(a.out) / "texts.json").read_text())[:a.count]:
        ids = torch.tensor([text["ids"]])
        features, logits = target.features(ids, head.s["layers"])
        n = ids.shape[1] - 1 - GUESSES
        chain = head.chain(features[:, :n + GUESSES], target.embed[ids[:, 1:]], GUESSES)
        tokens = [ids[0, j + 2:j + 2 + n] for j in range(GUESSES)]
        drawn = [draw(made[0], own, logits[0, j + 1:j + 1 + n], tokens[j], a.temperature) for j, made in enumerate(chain)]
        right = torch.stack([guess == token for (guess, _), token in zip(drawn, tokens)], 1)
        sure = torch.stack([s for _, s in drawn], 1)
        first = max(text["prompt"] - 2, 0)
        for i in range(first, min(n, first + a.first)):
            print(int(right[i].long().cumprod(0).sum()), *(int(100 * p + 0.5) for p in sure[i].tolist()))


# ---- vectors ----

@torch.no_grad()
def write_vectors(a):
    """A chain of guesses behind a text, each from the ones before it, with the first of its logits."""
    from tokenizers import Tokenizer
    target, (head, own) = Target(a.gguf, "cpu"), Head.load(a.head)
    ids = Tokenizer.from_file(a.tokenizer).encode(Path(a.text).read_text(encoding="utf-8"), add_special_tokens=False).ids
    out = []
    for n in (2, 30, 150):
        text, guesses, logits = ids[:n], [], []
        features, _ = target.features(torch.tensor([text[:-1]]), head.s["layers"])
        for j in range(VECTOR_GUESSES):
            padded = F.pad(features, (0, 0, 0, j + 1))
            made = head.chain(padded, target.embed[torch.tensor([text[1:] + guesses])], j + 1)[-1][0, -1]
            guesses.append(own[made.argmax()].item())
            logits.append([round(x, 5) for x in made[:24].tolist()])
        out.append({"ids": text, "guesses": guesses, "logits": logits})
    Path(a.out).write_text(json.dumps(out) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("what", choices=["prompts", "texts", "train", "record", "vectors"])
    p.add_argument("--gguf")
    p.add_argument("--out", required=True)
    p.add_argument("--tokenizer")
    p.add_argument("--books")
    p.add_argument("--talk")
    p.add_argument("--head", help="train: to begin with")
    p.add_argument("--held-out", action="store_true")
    p.add_argument("--temperature", type=float)
    p.add_argument("--text")
    p.add_argument("--count", type=int, default=40000, help="prompts; record: texts")
    p.add_argument("--first", type=int, default=LENGTH, help="record: tokens of a text")
    p.add_argument("--seed", type=int, default=1, help="of prompts and texts")
    p.add_argument("--device", default="cpu")
    p.add_argument("--steps", type=int, default=9000)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--say", type=int, default=100, help="train: steps between two lines")
    p.add_argument("--rate", type=float, default=0.02, help="of Muon; AdamW's is a tenth")
    a = p.parse_args()
    {"prompts": write_prompts, "texts": write_texts, "train": train, "record": write_record, "vectors": write_vectors}[a.what](a)


if __name__ == "__main__":
    main()
