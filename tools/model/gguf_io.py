"""Write the model as a GGUF file that any gpt-oss loader reads, and read such a file back."""
import json

import numpy as np
import torch
from gguf import GGMLQuantizationType as T, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from data import SPECIALS
from model import Config, Model, mxfp4_scale_and_values


def tensor_names(c):
    """(GGUF name, parameter name, storage) of every tensor."""
    out = [("token_embd.weight", "embed.weight", T.Q8_0), ("output_norm.weight", "norm.weight", T.F32),
           ("output.weight", "head.weight", T.Q8_0)]
    for i in range(c.layers):
        b = f"blk.{i}."
        out += [(b + "attn_norm.weight", f"attn_norm.{i}.weight", T.F32),
                (b + "post_attention_norm.weight", f"moe_norm.{i}.weight", T.F32),
                (b + "attn_sinks.weight", f"attn.{i}.sinks", T.F32),
                (b + "ffn_gate_inp.weight", f"moe.{i}.router.weight", T.F32),
                (b + "ffn_gate_inp.bias", f"moe.{i}.router.bias", T.F32)]
        for g, p in (("q", "q"), ("k", "k"), ("v", "v"), ("output", "o")):
            out += [(b + f"attn_{g}.weight", f"attn.{i}.{p}.weight", T.Q8_0),
                    (b + f"attn_{g}.bias", f"attn.{i}.{p}.bias", T.F32)]
        for p in ("gate", "up", "down"):
            out += [(b + f"ffn_{p}_exps.weight", f"moe.{i}.{p}", T.MXFP4),
                    (b + f"ffn_{p}_exps.bias", f"moe.{i}.{p}_bias", T.F32)]
    return out


def pack_mxfp4(w):
    """17 bytes per 32 values: exponent + 127, then byte j = element j (low nibble) and element j + 16."""
    scale, value = mxfp4_scale_and_values(w)
    exponent = (torch.log2(scale).round() + 127).to(torch.uint8).numpy()
    grid = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
    code = torch.searchsorted(grid, value.abs().contiguous()).to(torch.uint8) | (torch.signbit(value).to(torch.uint8) << 3)
    code = code.numpy()
    block = np.concatenate([exponent, code[..., :16] | (code[..., 16:] << 4)], -1)
    return block.reshape(*w.shape[:-1], -1)


def write_gguf(path, model, tok):
    c = model.c
    w = GGUFWriter(path, "gpt-oss")
    w.add_name("sol built-in")
    w.add_description("gpt-oss architecture in small, trained on public-domain novels")
    w.add_license("CC0-1.0")
    w.add_size_label(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f}M")
    w.add_languages(["en"])
    w.add_file_type(38)  # MXFP4 experts
    w.add_quantization_version(2)
    w.add_vocab_size(c.vocab)
    w.add_block_count(c.layers)
    w.add_context_length(c.context)
    w.add_embedding_length(c.dim)
    w.add_feed_forward_length(c.expert_dim)
    w.add_head_count(c.heads)
    w.add_head_count_kv(c.kv_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.eps)
    w.add_sliding_window(c.window)
    w.add_expert_count(c.experts)
    w.add_expert_used_count(c.top_k)
    w.add_expert_feed_forward_length(c.expert_dim)
    w.add_rope_freq_base(c.theta)
    w.add_rope_dimension_count(c.head_dim)
    w.add_string("gpt-oss.rope.scaling.type", "yarn")
    w.add_float32("gpt-oss.rope.scaling.factor", c.yarn_factor)
    w.add_uint32("gpt-oss.rope.scaling.original_context_length", c.yarn_context)
    w.add_float32("gpt-oss.rope.scaling.yarn_beta_fast", c.beta_fast)
    w.add_float32("gpt-oss.rope.scaling.yarn_beta_slow", c.beta_slow)

    spec = json.loads(tok.to_str())
    tokens = [None] * c.vocab
    for s, i in tok.get_vocab(with_added_tokens=True).items():
        tokens[i] = s
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list(tokens)
    w.add_token_types([3 if t in SPECIALS else 1 for t in tokens])
    w.add_token_merges(merges)
    w.add_bos_token_id(tok.token_to_id("<|startoftext|>"))
    w.add_eos_token_id(tok.token_to_id("<|return|>"))
    w.add_pad_token_id(tok.token_to_id("<|endoftext|>"))
    w.add_add_bos_token(False)

    state = {k: v.detach().float().cpu() for k, v in model.state_dict().items()}
    for name, key, kind in tensor_names(c):
        t = state[key]
        if kind == T.F32:
            w.add_tensor(name, t.numpy())
        elif kind == T.Q8_0:
            w.add_tensor(name, quantize(t.numpy(), kind), raw_dtype=kind)
        else:
            w.add_tensor(name, pack_mxfp4(t), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read_gguf(path):
    """The file as a Model that holds the dequantised weights (float32), and the tokenizer's token list."""
    r = GGUFReader(path)
    get = lambda k: r.fields[k].contents()
    a = "gpt-oss."
    c = Config(vocab=get(a + "vocab_size"), dim=get(a + "embedding_length"), layers=get(a + "block_count"),
               heads=get(a + "attention.head_count"), kv_heads=get(a + "attention.head_count_kv"),
               head_dim=get(a + "attention.key_length"), experts=get(a + "expert_count"),
               top_k=get(a + "expert_used_count"), expert_dim=get(a + "expert_feed_forward_length"),
               window=get(a + "attention.sliding_window"), context=get(a + "context_length"))
    model = Model(c)
    data = {t.name: t for t in r.tensors}
    state = {}
    for name, key, kind in tensor_names(c):
        t = data.pop(name)
        assert t.tensor_type == kind, name
        state[key] = torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), dtype=np.float32))
    assert not data, list(data)
    model.load_state_dict(state)
    return model.eval(), get("tokenizer.ggml.tokens")
