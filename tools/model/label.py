#!/usr/bin/env python3
"""Puts into a GGUF file of the built-in model what a checkpoint does not say of it.

    label.py IN.gguf OUT.gguf

Name, licence and description; the ids of its control tokens, for engines that do not know harmony's; and the temperature
that suits it, under the key that llama.cpp reads (general.sampling.temp). Tensors are copied byte for byte.
"""
import argparse

import gguf

TEMPERATURE = 0.5  # models/README.md: how often answers are right at others


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("input")
    p.add_argument("output")
    a = p.parse_args()
    r = gguf.GGUFReader(a.input)
    w = gguf.GGUFWriter(a.output, "gpt-oss")
    w.add_name("sol built-in")
    w.add_description("gpt-oss architecture in small, trained on public-domain novels and conversations about sol")
    w.add_license("CC0-1.0")
    w.add_languages(["en"])
    w.add_float32("general.sampling.temp", TEMPERATURE)
    for field in r.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.name"):
            continue
        kind = field.types[0]
        w.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    tokens = r.fields["tokenizer.ggml.tokens"].contents()
    w.add_bos_token_id(tokens.index("<|startoftext|>"))
    w.add_eos_token_id(tokens.index("<|return|>"))
    w.add_pad_token_id(tokens.index("<|endoftext|>"))
    w.add_add_bos_token(False)
    for t in r.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
