"""Time and memory of one attention layer over a text that grows: full attention, whose work grows with the square,
against Infini-attention, whose work grows in proportion and whose memory does not grow."""

import math

import torch
from torch.nn import functional

from library import Job, Threads
from measure import settle, timed

HEADS, KV_HEADS, HEAD_DIM = 8, 2, 64
HIDDEN = HEADS * HEAD_DIM
SEGMENT = 2048  # as in heed_jobs.cpp
CONTEXTS = [1024 * 2**i for i in range(11)]  # 1K … 1M


def _operations(peer, tokens):
    """The projections, and attention to all tokens before, or to half a segment and the memory."""
    projections = 4 * HIDDEN * (HIDDEN + KV_HEADS * HEAD_DIM)
    seen = SEGMENT / 2 + HEAD_DIM if peer == "heed infini" else tokens / 2
    return tokens * (projections + 4 * HIDDEN * seen)


def seconds_beyond(peer, tokens, measured_tokens, seconds):
    """What so many tokens would take, by the count of operations; for the dashed lines of plots."""
    return seconds * _operations(peer, tokens) / _operations(peer, measured_tokens)


def bytes_beyond(peer, tokens, measured_tokens, byte_count):
    each = 0 if peer == "heed infini" else 2 * KV_HEADS * HEAD_DIM * 4
    return byte_count + each * (tokens - measured_tokens)


def by_torch(tokens):
    """The layer in torch, all tokens in one call, with the weights packed as one would; without RoPE."""
    x = torch.randn(1, tokens, HIDDEN)
    inputs = torch.randn((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN) / math.sqrt(HIDDEN)
    output = torch.randn(HIDDEN, HIDDEN) / math.sqrt(HIDDEN)

    def run():
        heads = functional.linear(x, inputs).unflatten(2, (-1, HEAD_DIM)).transpose(1, 2)
        query, key, value = heads.split([HEADS, KV_HEADS, KV_HEADS], 1)
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        functional.linear(context.transpose(1, 2).flatten(2), output)

    return run


def records(quick, threads):
    """One record a peer and length, as far as each is measured; beyond, only plots go, dashed."""
    most = {"heed full": 16384, "torch full": 8192, "heed infini": 65536}
    if not quick:
        most = {"heed full": 65536, "torch full": 32768, "heed infini": 1048576}
    found = []
    for tokens in CONTEXTS:
        for peer, last in most.items():
            if tokens > last:
                continue
            if peer == "torch full":
                run, kept = by_torch(tokens), None
            else:
                run = Job("heed_context", peer.split()[1], Threads(threads), tokens, HEADS, KV_HEADS, HEAD_DIM)
                kept = run.bytes()
            settle()
            seconds = timed(run)
            if seconds < 2:  # the first one was for pages and caches
                seconds = min(timed(run) for _ in range(3))
            found.append(
                {
                    "work": "context",
                    "shape": {"tokens": tokens, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM},
                    "scalar": "float",
                    "threads": threads,
                    "peer": peer,
                    "seconds": seconds,
                    "bytes": kept,
                }
            )
    return found
