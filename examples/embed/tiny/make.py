#!/usr/bin/env python3
"""Makes this folder's model: BERT's form with random weights, 5,968 parameters, for tests. And what a plain float64
formula gives for its sentences (expected.safetensors), which numpy computes here without heed.

Usage: pip install numpy safetensors tokenizers; make.py
"""
import json
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import BertWordPieceTokenizer

here = Path(__file__).parent
E, H, LAYERS, INNER, POSITIONS, EPS = 16, 2, 2, 32, 24, 1e-12
SENTENCES = ["the memory of a token", "A Token, the memory!", "attention", "", "heed " * 40]

vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", ".", "!", "the", "a", "of", "memory", "token", "heed", "cache",
              "attention"] + [chr(code) for code in range(98, 123)] + ["##" + chr(code) for code in range(97, 123)]
(here / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
config = {"model_type": "bert", "vocab_size": len(vocabulary), "hidden_size": E, "num_hidden_layers": LAYERS,
          "num_attention_heads": H, "intermediate_size": INNER, "hidden_act": "gelu", "max_position_embeddings": POSITIONS,
          "type_vocab_size": 2, "layer_norm_eps": EPS, "position_embedding_type": "absolute", "hidden_dropout_prob": 0.1,
          "attention_probs_dropout_prob": 0.1}
(here / "config.json").write_text(json.dumps(config, indent=2) + "\n")
(here / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}\n')

random = np.random.default_rng(7)
weights = {}


def new(name, *shape, around=0.0):
    weights[name] = (around + random.normal(0, 0.3, shape)).astype(np.float32)


for table, rows in (("word", len(vocabulary)), ("position", POSITIONS), ("token_type", 2)):
    new(f"embeddings.{table}_embeddings.weight", rows, E)
norms = ["embeddings.LayerNorm"]
for layer in range(LAYERS):
    at = f"encoder.layer.{layer}."
    for name, out, into in (("attention.self.query", E, E), ("attention.self.key", E, E), ("attention.self.value", E, E),
                            ("attention.output.dense", E, E), ("intermediate.dense", INNER, E), ("output.dense", E, INNER)):
        new(at + name + ".weight", out, into)
        new(at + name + ".bias", out)
    norms += [at + "attention.output.LayerNorm", at + "output.LayerNorm"]
for name in norms:
    new(name + ".weight", E, around=1.0)
    new(name + ".bias", E)
save_file(weights, here / "model.safetensors", metadata={"format": "pt"})
w = {name: value.astype(np.float64) for name, value in weights.items()}


def linear(x, name):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def norm(x, name):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + EPS) * w[name + ".weight"] + w[name + ".bias"]


def embedding(ids):
    x = (w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:len(ids)]
         + w["embeddings.token_type_embeddings.weight"][0])
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        heads = [linear(x, at + "attention.self." + name).reshape(len(ids), H, E // H).swapaxes(0, 1)
                 for name in ("query", "key", "value")]
        scores = heads[0] @ heads[1].swapaxes(1, 2) / math.sqrt(E // H)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ heads[2]).swapaxes(0, 1).reshape(len(ids), E)
        x = norm(x + linear(mixed, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        inner = linear(x, at + "intermediate.dense")
        inner = 0.5 * inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(x + linear(inner, at + "output.dense"), at + "output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


tokenizer = BertWordPieceTokenizer(str(here / "vocab.txt"))
tokenizer.enable_truncation(20)
expected = np.stack([embedding(tokenizer.encode(sentence).ids) for sentence in SENTENCES])
save_file({"embeddings": expected}, here / "expected.safetensors", metadata={"sentences": json.dumps(SENTENCES)})
print(sum(value.size for value in weights.values()), "parameters")
