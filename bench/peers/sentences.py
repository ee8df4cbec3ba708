"""Sentence embeddings by a model of all-MiniLM-L6-v2's sizes (but for the vocabulary) with random weights: written as
the folder that heed reads, in PyTorch as one would write it there, and as the graph that onnxruntime's optimizer makes of
a BERT."""

import json
import math
import os

import numpy as np
import torch
from onnx import helper
from torch.nn import functional

import graphs

HIDDEN, HEADS, LAYERS, INNER, VOCABULARY, POSITIONS, EPS = 384, 12, 6, 1536, 1000, 512, 1e-12


def operations(batch, tokens):
    """Those of the products."""
    token = 2 * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER) + 4 * tokens * HIDDEN
    return float(LAYERS * batch * tokens * token)


def random_weights():
    """{name as Hugging Face's BertModel has it: array}."""
    random = np.random.default_rng(0)
    weights = {}

    def linear(name, out, into):
        weights[name + ".weight"] = random.normal(0, 1 / math.sqrt(into), (out, into)).astype(np.float32)
        weights[name + ".bias"] = random.normal(0, 0.1, out).astype(np.float32)

    def norm(name):
        weights[name + ".weight"] = random.normal(1, 0.1, HIDDEN).astype(np.float32)
        weights[name + ".bias"] = random.normal(0, 0.1, HIDDEN).astype(np.float32)

    for table, rows in (("word", VOCABULARY), ("position", POSITIONS), ("token_type", 2)):
        weights[f"embeddings.{table}_embeddings.weight"] = random.normal(0, 1, (rows, HIDDEN)).astype(np.float32)
    norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            linear(at + name, HIDDEN, HIDDEN)
        norm(at + "attention.output.LayerNorm")
        linear(at + "intermediate.dense", INNER, HIDDEN)
        linear(at + "output.dense", HIDDEN, INNER)
        norm(at + "output.LayerNorm")
    return weights


def write(folder, weights):
    """config.json and model.safetensors."""
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "layer_norm_eps": EPS,
        "max_position_embeddings": POSITIONS,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "type_vocab_size": 2,
        "vocab_size": VOCABULARY,
    }
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    header, at = {}, 0
    for name, array in weights.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in weights.values():
            file.write(array.tobytes())


def by_torch(weights, ids, valid):
    """A function that embeds ids [batch, tokens]; valid: false is padding, None: there is none."""
    w = {name: torch.from_numpy(array) for name, array in weights.items()}
    batch, tokens = ids.shape
    positions = w["embeddings.position_embeddings.weight"][:tokens] + w["embeddings.token_type_embeddings.weight"][0]
    layers = []
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        part = {name[len(at) :]: tensor for name, tensor in w.items() if name.startswith(at)}
        for kind in ("weight", "bias"):
            part[kind] = torch.cat([part[f"attention.self.{name}.{kind}"] for name in ("query", "key", "value")])
        layers.append(part)
    mask = None if valid is None else valid[:, None, None, :]
    share = None if valid is None else (valid / valid.sum(1, keepdim=True)).unsqueeze(-1)

    def norm(x, part, name):
        return functional.layer_norm(x, (HIDDEN,), part[name + ".weight"], part[name + ".bias"], EPS)

    def run():
        x = norm(functional.embedding(ids, w["embeddings.word_embeddings.weight"]) + positions, w, "embeddings.LayerNorm")
        for part in layers:
            qkv = functional.linear(x, part["weight"], part["bias"]).reshape(batch, tokens, 3, HEADS, HIDDEN // HEADS)
            context = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), attn_mask=mask)
            context = context.transpose(1, 2).reshape(batch, tokens, HIDDEN)
            y = functional.linear(context, part["attention.output.dense.weight"], part["attention.output.dense.bias"])
            x = norm(x + y, part, "attention.output.LayerNorm")
            y = functional.linear(x, part["intermediate.dense.weight"], part["intermediate.dense.bias"])
            y = functional.linear(functional.gelu(y), part["output.dense.weight"], part["output.dense.bias"])
            x = norm(x + y, part, "output.LayerNorm")
        return functional.normalize(x.mean(1) if share is None else (x * share).sum(1))

    return run


def by_onnxruntime(weights, ids, valid, threads):
    """The hidden states' part as a graph; the mean of a few rows is numpy's."""
    batch, tokens = ids.shape
    nodes, constants = [], {name: array for name, array in weights.items() if "embeddings" in name}

    def add(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], domain="com.microsoft", **attributes))

    def product(x, name, out):
        constants[name] = np.ascontiguousarray(weights[name + ".weight"].T)
        constants[name + ".bias"] = weights[name + ".bias"]
        nodes.append(helper.make_node("MatMul", [x, name], [out]))

    def skip_norm(x, y, dense, name, out):
        constants.update({f"{name}.{kind}": weights[f"{name}.{kind}"] for kind in ("weight", "bias")})
        add(
            "SkipLayerNormalization",
            [x, y, name + ".weight", name + ".bias", dense + ".bias"],
            out,
            epsilon=EPS,
        )

    tables = [f"embeddings.{table}_embeddings.weight" for table in ("word", "position", "token_type")]
    nodes.append(
        helper.make_node(
            "EmbedLayerNormalization",
            ["ids", "types", *tables, "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"],
            ["x0", "unused"],
            domain="com.microsoft",
            epsilon=EPS,
        )
    )
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        parts = [at + f"attention.self.{name}" for name in ("query", "key", "value")]
        constants[at + "qkv"] = np.ascontiguousarray(np.concatenate([weights[name + ".weight"] for name in parts]).T)
        constants[at + "qkv.bias"] = np.concatenate([weights[name + ".bias"] for name in parts])
        mask = [] if valid is None else ["mask"]
        add("Attention", [f"x{layer}", at + "qkv", at + "qkv.bias", *mask], at + "context", num_heads=HEADS)
        product(at + "context", at + "attention.output.dense", at + "y")
        skip_norm(
            f"x{layer}", at + "y", at + "attention.output.dense", at + "attention.output.LayerNorm", at + "x"
        )
        product(at + "x", at + "intermediate.dense", at + "inner")
        add("BiasGelu", [at + "inner", at + "intermediate.dense.bias"], at + "active")
        product(at + "active", at + "output.dense", at + "z")
        skip_norm(at + "x", at + "z", at + "output.dense", at + "output.LayerNorm", f"x{layer + 1}")
    inputs = {"ids": ids.numpy().astype(np.int32), "types": np.zeros((batch, tokens), np.int32)}
    if valid is not None:
        inputs["mask"] = valid.numpy().astype(np.int32)
    out = {f"x{LAYERS}": np.zeros((batch, tokens, HIDDEN), np.float32)}
    graph = graphs.Graph(nodes, inputs, out, constants, threads)

    def run():
        graph()
        hidden = torch.from_numpy(graph.output(f"x{LAYERS}"))
        if valid is None:
            return functional.normalize(hidden.mean(1))
        return functional.normalize((hidden * valid.unsqueeze(-1)).sum(1))

    return run
