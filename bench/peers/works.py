"""The work that is compared, each with everyone who can do it. Axes are heed's: [batch, tokens, heads, head dim]."""

import glob
import math
import os
import tempfile

import numpy as np
import torch
from torch.nn import functional

import graphs
import library
import needle
import sentences
from library import Job, Threads
from measure import Contestant, Work

MODEL = os.path.join(os.path.dirname(__file__), "../../examples/needle/model.safetensors")


def openblas_libraries():
    """{peer's name: path}: the one that numpy brings, and the system's, if there is one."""
    folder = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    found = {"OpenBLAS": path for path in glob.glob(os.path.join(folder, "libscipy_openblas*"))}
    for path in glob.glob("/usr/lib/*/libopenblas.so.0") + glob.glob("/usr/lib64/libopenblas.so.0"):
        found["OpenBLAS (system)"] = path
    return found


def random(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_torch(function, as_heed=lambda result: result):
    """A contestant that returns a new tensor in every call, as torch's functions do."""
    last = None

    def run():
        nonlocal last
        last = function()

    return Contestant(run, lambda: as_heed(last))


def by_heed(out, maker, *arguments):
    return Contestant(Job(maker, *arguments), lambda: out)


def by_graph(graph, shape):
    return Contestant(graph, lambda: torch.from_numpy(graph.output()).reshape(shape))


def torch_type(scalar):
    return {"float": torch.float32, "bfloat16": torch.bfloat16}[scalar]


def heads_first(x):
    return x.transpose(1, 2).contiguous()


def attention(name, batch, tokens, heads, dim, causal, scalar, threads, by_hand=False):
    """by_hand: Eigen and OpenBLAS, too."""
    dtype = torch_type(scalar)
    query, key, value = (random(batch, tokens, heads, dim, seed=i, dtype=dtype) for i in range(3))
    pairs = tokens * (tokens + 1) / 2 if causal else tokens * tokens
    shape = {"batch": batch, "tokens": tokens, "heads": heads, "head_dim": dim}
    work = Work(name, shape, scalar, threads, "GFLOP/s", 4.0 * pairs * dim * heads * batch)
    work.tolerance = 1e-4 if scalar == "float" else 3e-2

    out = torch.zeros_like(query)
    sizes = (batch, tokens, heads, dim, causal)
    work.contestants["heed"] = by_heed(
        out, "heed_attention", scalar, Threads(threads), *sizes, query, key, value, out
    )
    q, k, v = heads_first(query), heads_first(key), heads_first(value)
    work.contestants["torch"] = by_torch(
        lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal), lambda r: r.transpose(1, 2)
    )
    if scalar == "float":
        arrays = [x.numpy() for x in (query, key, value)]
        graph = graphs.attention(*arrays, causal, threads)
        work.contestants["onnxruntime"] = by_graph(graph, out.shape)
        if causal and batch == 1:
            graph = graphs.causal_attention(*arrays, threads)
            work.contestants["onnxruntime GQA"] = by_graph(graph, out.shape)
        products = {"Eigen": "eigen", **openblas_libraries()} if by_hand else {}
        for peer, product in products.items():
            theirs = torch.zeros_like(query)
            work.contestants[peer] = by_heed(
                theirs, "product_attention", product, Threads(threads), *sizes, query, key, value, theirs
            )
    return work


def decode(keys, cache, threads):
    """A token of 32 query heads over a cache of 8 kv heads of 128. cache: float, bfloat16 or int8."""
    heads, kv_heads, dim = 32, 8, 128
    scalar = "float" if cache == "int8" else cache
    dtype = torch_type(scalar)
    query = random(1, 1, heads, dim, seed=0, dtype=dtype)
    key, value = (random(1, keys, kv_heads, dim, seed=i, dtype=dtype) for i in (1, 2))
    elements = 2.0 * keys * kv_heads * dim
    shape = {"keys": keys, "heads": heads, "kv_heads": kv_heads, "head_dim": dim}
    work = Work("decode", shape, cache, threads, "GB/s", elements * dtype.itemsize)
    work.tolerance = {"float": 1e-4, "bfloat16": 3e-2, "int8": 3e-2}[cache]

    def by_heed_cache(kind):
        out = torch.zeros_like(query)
        sizes = (keys, heads, kv_heads, dim)
        return by_heed(out, "heed_decode", kind, Threads(threads), *sizes, query, key, value, out)

    work.contestants["heed"] = by_heed_cache(cache)
    if cache == "int8":  # nobody else has one; against heed's own in float
        work.amount = elements * (1 + 4 / dim)  # a scale for every head of every token
        work.contestants["heed float"] = by_heed_cache("float")
        work.contestants["heed float"].amount = elements * 4
        return work

    q, k, v = heads_first(query), heads_first(key), heads_first(value)
    work.contestants["torch"] = by_torch(
        lambda: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True), lambda r: r.transpose(1, 2)
    )
    # A group's query heads as rows of one: what torch's own documentation does not say, and is faster.
    rows = q.reshape(1, kv_heads, heads // kv_heads, dim)
    work.contestants["torch (grouped by hand)"] = by_torch(
        lambda: functional.scaled_dot_product_attention(rows, k, v), lambda r: r.reshape(1, 1, heads, dim)
    )
    if scalar == "float":
        graph = graphs.decode(query.numpy(), key.numpy(), value.numpy(), threads)
        work.contestants["onnxruntime"] = by_graph(graph, query.shape)
    return work


def linear(m, n, k, scalar, threads):
    dtype = torch_type(scalar)
    x = random(m, k, seed=0, dtype=dtype)
    weight = (random(n, k, seed=1) / math.sqrt(k)).to(dtype)
    bias = random(n, seed=2, dtype=dtype)
    shape = {"m": m, "n": n, "k": k}
    work = Work("linear", shape, scalar, threads, "GFLOP/s", 2.0 * m * n * k)
    if m == 1:  # which is reading the weight
        work.unit, work.amount = "GB/s", float(n * k * dtype.itemsize)
    work.tolerance = 1e-4 if scalar == "float" else 3e-2

    out = torch.zeros(m, n, dtype=dtype)
    work.contestants["heed"] = by_heed(
        out, "heed_linear", scalar, Threads(threads), m, n, k, x, weight, bias, out
    )
    work.contestants["torch"] = by_torch(lambda: functional.linear(x, weight, bias))
    if scalar == "float":
        graph = graphs.linear(x.numpy(), weight.numpy(), bias.numpy(), threads)
        work.contestants["onnxruntime"] = by_graph(graph, out.shape)
        for peer, product in {"Eigen": "eigen", **openblas_libraries()}.items():
            theirs = torch.zeros_like(out)
            work.contestants[peer] = by_heed(
                theirs, "product_linear", product, Threads(threads), m, n, k, x, weight, bias, theirs
            )
    return work


def self_attention(batch, tokens, threads):
    """The self-attention layer of MiniLM: hidden size 384, 12 heads."""
    hidden, heads = 384, 12
    dim = hidden // heads
    x = random(batch, tokens, hidden, seed=0)
    weights = random(4, hidden, hidden, seed=1) / math.sqrt(hidden)
    biases = random(4, hidden, seed=2) / 10
    shape = {"batch": batch, "tokens": tokens, "hidden": hidden, "heads": heads}
    operations = 8.0 * batch * tokens * hidden * hidden + 4.0 * batch * tokens * tokens * hidden
    work = Work("self-attention layer", shape, "float", threads, "GFLOP/s", operations, tolerance=1e-4)

    out = torch.zeros_like(x)
    sizes = (batch, tokens, hidden, heads)
    work.contestants["heed"] = by_heed(
        out, "heed_self_attention", Threads(threads), *sizes, x, weights, biases, out
    )
    inputs, input_biases = weights[:3].reshape(3 * hidden, hidden), biases[:3].reshape(-1)

    def by_functions():
        qkv = functional.linear(x, inputs, input_biases).reshape(batch, tokens, 3, heads, dim)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        context = functional.scaled_dot_product_attention(query, key, value)
        return functional.linear(context.transpose(1, 2).reshape(batch, tokens, hidden), weights[3], biases[3])

    work.contestants["torch"] = by_torch(by_functions)
    graph = graphs.self_attention(x.numpy(), weights.numpy(), biases.numpy(), heads, threads)
    work.contestants["onnxruntime"] = by_graph(graph, x.shape)
    return work


def sentence_embeddings(batch, tokens, threads, shortest=None):
    """all-MiniLM-L6-v2's sizes. shortest: sentences of that many to `tokens` tokens, padded to the longest."""
    ids = torch.randint(sentences.VOCABULARY, (batch, tokens), generator=torch.Generator().manual_seed(0))
    valid = torch.ones(batch, tokens, dtype=torch.bool)
    shape = {"batch": batch, "tokens": tokens}
    operations = sentences.operations(batch, tokens)
    if shortest is not None:
        shape["shortest"] = shortest
        lengths = torch.linspace(shortest, tokens, batch).round().long()
        valid = torch.arange(tokens) < lengths[:, None]
        operations = sum(sentences.operations(1, int(length)) for length in lengths)
    work = Work("sentence embeddings", shape, "float", threads, "GFLOP/s", operations, tolerance=1e-5)

    weights = sentences.random_weights()
    out = torch.zeros(batch, sentences.HIDDEN)
    with tempfile.TemporaryDirectory() as folder:
        sentences.write(folder, weights)
        work.contestants["heed"] = by_heed(
            out, "heed_sentences", folder, Threads(threads), batch, tokens, ids, valid, out
        )
    mask = None if shortest is None else valid
    work.contestants["torch"] = by_torch(sentences.by_torch(weights, ids, mask))
    work.contestants["onnxruntime"] = by_torch(sentences.by_onnxruntime(weights, ids, mask, threads))
    return work


def needle_search(batch, count, threads):
    """A text of so many bytes in each row of a batch."""
    work = Work("needle", {"batch": batch, "bytes": count}, "float", threads, "KB/s", float(batch * count))
    asked = 44  # bytes of the question and the answer, which heed reads, too
    work.contestants["heed"] = Contestant(Job("heed_needle_search", MODEL, Threads(threads), batch, count - asked))
    model = needle.Model(MODEL)
    work.contestants["torch"] = Contestant(needle.search(model, batch, 1, count))
    if batch == 1:
        work.contestants["torch (8 segments a call)"] = Contestant(needle.search(model, batch, 8, count))
    return work


def needle_difference():
    """The largest difference between heed's and torch's logits over the model's test vector, and between torch's and
    what the file says."""
    model = needle.Model(MODEL)
    tokens = model.tensors["test.input"]
    ours = torch.zeros(len(tokens), 256)
    Job("heed_needle_logits", MODEL, tokens.to(torch.uint8), len(tokens), ours)()
    theirs = needle.logits(model, tokens)
    known = theirs[model.tensors["test.positions"]].double() - model.tensors["test.logits"]
    return (ours - theirs).abs().max().item(), known.abs().max().item()


def all_works(quick, threads):
    """Functions that make the works, in the order of the table: what a work needs is made when its turn comes."""

    def add(function, *arguments, **options):
        works.append(lambda: function(*arguments, **options))

    works = []
    for causal in (False, True):
        name = "attention, causal" if causal else "attention"
        for tokens, heads in ((512, 8), (2048, 4), (8192, 2)):
            for dim in (64, 128):
                if quick and tokens == 8192 and dim == 128:
                    continue
                by_hand = not quick or tokens <= 2048
                add(attention, name, 1, tokens, heads, dim, causal, "float", threads, by_hand=by_hand)
        for tokens, heads in ((512, 8), (2048, 4)) if quick else ((512, 8), (2048, 4), (8192, 2)):
            for dim in (64,) if quick else (64, 128):
                add(attention, name, 1, tokens, heads, dim, causal, "bfloat16", threads)
    for tokens in (16, 32, 64, 128):
        add(attention, "attention, short", 8, tokens, 12, 64, False, "float", threads)
    for cache in ("float", "bfloat16", "int8"):
        for keys in (4096, 16384) if quick else (1024, 4096, 16384):
            add(decode, keys, cache, threads)
    for n, k in ((768, 768), (4096, 4096)) if quick else ((384, 384), (768, 768), (3072, 768), (4096, 4096)):
        for m in (1, 8, 64, 512, 2048):
            if not quick or m * n * k < 1e10:
                add(linear, m, n, k, "float", threads)
    for m in (1, 64, 512):
        add(linear, m, 768, 768, "bfloat16", threads)
    for batch, tokens in ((1, 16), (1, 64), (1, 256), (32, 32), (32, 128)):
        add(self_attention, batch, tokens, threads)
    for batch, tokens in ((1, 16), (32, 32)) if quick else ((1, 16), (1, 128), (32, 32), (8, 128)):
        add(sentence_embeddings, batch, tokens, threads)
    add(sentence_embeddings, 32, 64, threads, shortest=8)
    add(needle_search, 1, 8192 if quick else 32768, threads)
    add(needle_search, 48, 1024 if quick else 8192, threads)
    return works
