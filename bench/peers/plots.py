"""Pictures of a run: GFLOP/s of attention over the number of tokens, and time and memory over the context."""

import os
import statistics

import matplotlib

import context
import report

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "heed"  # the same run, the same file
from matplotlib import pyplot

COLORS = {
    "heed": "#0b5fa5",
    "torch": "#d9541a",
    "onnxruntime": "#6a9f3a",
    "onnxruntime GQA": "#9fc97a",
    "Eigen": "#8a63b5",
    "OpenBLAS": "#999999",
    "OpenBLAS (system)": "#555555",
    "heed full": "#7fb2dd",
    "torch full": "#d9541a",
    "heed infini": "#0b5fa5",
}


def _save(figure, folder, name):
    path = os.path.join(folder, f"{name}.svg")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _sizes(axis, values):
    axis.set_xscale("log", base=2)
    axis.set_xticks(values, [report.short(value) for value in values])
    axis.grid(alpha=0.3)


def _attention(records, threads, folder, about):
    records = [r for r in records if r["work"] in ("attention", "attention, causal") and r["threads"] == threads]
    records = [r for r in records if r["scalar"] == "float"]
    if not records:
        return None
    dims = sorted({r["shape"]["head_dim"] for r in records})
    kinds = list(dict.fromkeys(r["work"] for r in records))
    figure = pyplot.figure(figsize=(5 * len(dims), 3.6 * len(kinds)), layout="constrained")
    axes = figure.subplots(len(kinds), len(dims), squeeze=False, sharey=True)
    for row, kind in enumerate(kinds):
        for column, dim in enumerate(dims):
            axis = axes[row][column]
            panel = [r for r in records if r["work"] == kind and r["shape"]["head_dim"] == dim]
            for peer in dict.fromkeys(r["peer"] for r in panel):
                points = sorted((r["shape"]["tokens"], r["rate"]) for r in panel if r["peer"] == peer)
                axis.plot(*zip(*points), marker="o", label=peer, color=COLORS.get(peer))
            if panel:
                axis.axhline(statistics.median(r["limit"] for r in panel), color="black", linewidth=1, label="peak")
            _sizes(axis, sorted({r["shape"]["tokens"] for r in panel}))
            axis.set_title(f"{kind}, head dim {dim}")
            axis.set_ylim(bottom=0)
            axis.set_xlabel("tokens")
            axis.set_ylabel("GFLOP/s")
    handles = {}
    for axis in axes.flat:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize="small")
    title = f"Attention in float, {threads} thread{'s' * (threads > 1)}, {about['processor']}"
    figure.suptitle(title, fontsize="medium")
    return _save(figure, folder, f"attention-{threads}-threads" if threads > 1 else "attention")


def _context(records, threads, folder, about):
    records = [r for r in records if r["work"] == "context" and r["threads"] == threads]
    if not records:
        return None
    figure, (time_axis, memory_axis) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for peer in dict.fromkeys(r["peer"] for r in records):
        for axis, key, beyond in (
            (time_axis, "seconds", context.seconds_beyond),
            (memory_axis, "bytes", context.bytes_beyond),
        ):
            points = [(r["shape"]["tokens"], r[key]) for r in records if r["peer"] == peer and r[key] is not None]
            if not points:
                continue
            axis.plot(*zip(*points), marker="o", markersize=4, label=peer, color=COLORS[peer])
            last = points[-1]
            dashed = [(tokens, beyond(peer, tokens, *last)) for tokens in context.CONTEXTS if tokens >= last[0]]
            axis.plot(*zip(*dashed), linestyle="--", color=COLORS[peer])
    time_axis.set_ylabel("seconds for the whole text")
    memory_axis.set_ylabel("bytes of cache or state, and scratch")
    for axis in (time_axis, memory_axis):
        _sizes(axis, context.CONTEXTS[::2])
        axis.set_yscale("log")
        axis.set_xlabel("tokens")
    time_axis.legend()
    layer = f"One layer, {context.HEADS} heads of {context.HEAD_DIM}, {context.KV_HEADS} kv heads"
    figure.suptitle(
        f"{layer}, {threads} thread{'s' * (threads > 1)}, {about['processor']}\n"
        "Dashed: not measured; goes on from the last point by the count of operations or bytes",
        fontsize="medium",
    )
    return _save(figure, folder, f"context-{threads}-threads" if threads > 1 else "context")


def draw(records, folder, about):
    """The paths of the pictures."""
    os.makedirs(folder, exist_ok=True)
    drawn = []
    for threads in dict.fromkeys(record["threads"] for record in records):
        drawn += [_attention(records, threads, folder, about), _context(records, threads, folder, about)]
    return [path for path in drawn if path]
