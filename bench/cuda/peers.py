"""The same shapes by PyTorch, beside which heed's numbers are read: python3 bench/cuda/peers.py results.json"""

import json
import statistics
import sys

import torch
from torch.nn.functional import linear, scaled_dot_product_attention


def median_ms(run):
    times = []
    for i in range(23):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


results = []


def note(name, ms, flops):
    results.append({"name": name, "ms": ms, "rate": flops / ms * 1e-9, "unit": "TFLOP/s"})
    print(f"{name:48} {ms:9.3f} ms {flops / ms * 1e-9:9.1f} TFLOP/s", flush=True)


for tokens in (512, 2048, 8192, 16384):
    for dims in (64, 128):
        for causal in (False, True):
            batch, heads = max(1, 16384 // tokens), 2048 // dims
            q, k, v = (torch.randn(batch, heads, tokens, dims, device="cuda", dtype=torch.bfloat16) for _ in range(3))
            ms = median_ms(lambda: scaled_dot_product_attention(q, k, v, is_causal=causal))
            note(f"attention bfloat16 D {dims} S {tokens} {'causal' if causal else 'full'}", ms,
                 4 * batch * heads * dims * tokens * tokens * (0.5 if causal else 1))
for rows in (1, 16, 512, 8192):
    x, w = (torch.randn(n, 4096, device="cuda", dtype=torch.bfloat16) for n in (rows, 4096))
    b = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
    note(f"linear bfloat16 {rows} x 4096 x 4096", median_ms(lambda: linear(x, w, b)), 2 * rows * 4096 * 4096)
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "results": results}, file, indent=1)
