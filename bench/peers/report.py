"""Records as text: a line for each work while it runs, and the page for docs/."""

import math
import os

BUSY = "the load average was above 0.5 when this began: other programs were at work, and the numbers are noise"

NAMES = {
    "batch": "batch {}",
    "tokens": "{} tokens",
    "shortest": "the shortest of {}",
    "heads": "{} heads",
    "kv_heads": "{} kv heads",
    "head_dim": "head dim {}",
    "keys": "{} keys",
    "m": "{} rows",
    "n": "{} out",
    "k": "{} in",
    "hidden": "hidden size {}",
    "bytes": "{} bytes",
}


def is_busy(about):
    return about["load"] > 0.5


def shape_of(shape):
    return ", ".join(NAMES[name].format(size) for name, size in shape.items() if (name, size) != ("batch", 1))


def title_of(work, shape, scalar, threads):
    return f"{work}, {shape_of(shape)}, {scalar}, {threads} thread{'s' * (threads > 1)}"


def short(size):
    """4096 as 4K."""
    for unit, factor in (("M", 2**20), ("K", 2**10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def cell(record):
    """A record as in `torch 98 GFLOP/s (0.62) heed 1.31x [1.29, 1.33]`."""
    text = f"{record['peer']} {number(record['rate'])} {record['unit']}"
    if record["of_limit"] is not None:
        text += f" ({record['of_limit']:.2f})"
    ratio = record["ratio"]
    if record["peer"] != "heed":
        text += f" heed {ratio['median']:.2f}x [{ratio['q1']:.2f}, {ratio['q3']:.2f}]"
    if record["agrees"] is False:
        text += f" WRONG by {record['max_error']:.1e}"
    return text


def text_of(about):
    return "\n".join(f"{name}: {value}" for name, value in about.items())


def _table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _groups(records):
    """[(heed's record, [peers' records])] under each work's name, in order."""
    groups = {}
    for record in records:
        if record["work"] == "context":
            continue
        rows = groups.setdefault(record["work"], [])
        if record["peer"] == "heed":
            rows.append((record, []))
        else:
            rows[-1][1].append(record)
    return groups


def _best(peers):
    """The fastest peer, of those that compute the same. (heed with another cache is no peer.)"""
    peers = [peer for peer in peers if peer["agrees"] is not False and not peer["peer"].startswith("heed")]
    return min(peers, key=lambda peer: peer["ratio"]["median"], default=None)


def _work_table(rows):
    peers = list(dict.fromkeys(peer["peer"] for _, others in rows for peer in others))
    several = len({ours["threads"] for ours, _ in rows}) > 1
    lines = []
    for ours, others in rows:
        limit = {"GFLOP/s": "peak", "GB/s": "reading"}.get(ours["unit"])
        share = f", {ours['of_limit']:.2f} of {limit}" if limit else ""
        line = [shape_of(ours["shape"]), ours["scalar"]]
        line += [str(ours["threads"])] if several else []
        line += [f"{number(ours['rate'])} {ours['unit']}{share}"]
        found = {peer["peer"]: peer for peer in others}
        for name in peers:
            if name not in found:
                line.append("")
                continue
            peer = found[name]
            ratio = peer["ratio"]
            text = f"{number(peer['rate'])}: **{ratio['median']:.2f}x** ({ratio['q1']:.2f} … {ratio['q3']:.2f})"
            line.append(text if peer["agrees"] is not False else f"another result, off by {peer['max_error']:.1e}")
        lines.append(line)
    header = ["shape", "scalar"] + (["threads"] if several else []) + ["heed"] + peers
    return _table(header, lines)


def _summary(groups):
    """Geometric means against the best peer of each row."""
    rows = []
    for name, works in groups.items():
        for scalar in dict.fromkeys(ours["scalar"] for ours, _ in works):
            best = [_best(others) for ours, others in works if ours["scalar"] == scalar]
            ratios = [peer["ratio"]["median"] for peer in best if peer]
            if ratios:
                mean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
                least, most = min(ratios), max(ratios)
                rows.append([name, scalar, str(len(ratios)), f"{least:.2f}x", f"**{mean:.2f}x**", f"{most:.2f}x"])
    return _table(["work", "scalar", "shapes", "least", "geometric mean", "most"], rows)


def _losses(groups):
    """A line for each row in which somebody is faster than heed."""
    lines = []
    for name, works in groups.items():
        for ours, others in works:
            faster = sorted(
                (peer["ratio"]["median"], peer["peer"])
                for peer in others
                if peer["ratio"]["median"] < 1 and not peer["peer"].startswith("heed")
            )
            if faster:
                title = title_of(name, ours["shape"], ours["scalar"], ours["threads"])
                lines.append(f"* {title}: " + ", ".join(f"{peer} {1 / ratio:.2f}x" for ratio, peer in faster))
    return "\n".join(lines) + "\n" if lines else "Nowhere in this run.\n"


def _size(count):
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{number(count)} {unit}"
        count /= 1000
    return f"{number(count)} GB"


def _context_table(records):
    rows = []
    for tokens in dict.fromkeys(record["shape"]["tokens"] for record in records):
        found = {record["peer"]: record for record in records if record["shape"]["tokens"] == tokens}
        line = [short(tokens)]
        for peer in ("heed full", "torch full", "heed infini"):
            line.append(f"{number(found[peer]['seconds'])} s" if peer in found else "")
            if peer != "torch full":
                line.append(_size(found[peer]["bytes"]) if peer in found else "")
        both = "heed full" in found and "heed infini" in found
        line.append(f"{found['heed full']['seconds'] / found['heed infini']['seconds']:.1f}x" if both else "")
        rows.append(line)
    header = ["tokens", "heed, full", "memory", "torch, full", "heed, Infini", "memory", "times faster"]
    return _table(header, rows)


def markdown(records, about, plots, page):
    """The page. `plots` are paths of pictures, `page` is where the page will be."""
    groups = _groups(records)
    folder = os.path.dirname(page) if page else "."
    parts = [
        f"# Performance: {about['processor']}\n",
        "Written by the command below, not by hand. [What the numbers mean](performance.md), and how to get yours.\n",
        f"```sh\n{about['command']}\n```\n",
    ]
    if is_busy(about):
        parts.append(f"**{BUSY[0].upper()}{BUSY[1:]}.**\n")
    caches = ", ".join(f"{level} {size}" for level, size in about["caches"].items())
    machine = [
        ["processor", f"{about['processor']}, {about['cores']} cores, {caches}"],
        ["system", f"{about['system']}, load average at the start {about['load']}"],
        ["heed", f"{about['heed']}; commit {about['commit']}; {about['compiler']}"],
        ["torch", f"{about['torch']}, {about['torch_vectors']}"],
        ["onnxruntime", about["onnxruntime"]],
    ]
    machine += [[name, text] for name, text in about.items() if name == "Eigen" or name.startswith("OpenBLAS")]
    peaks = {r["threads"]: r["limit"] for r in records if r.get("unit") == "GFLOP/s"}
    for threads, peak in peaks.items():
        machine.append([f"peak, {threads} thread{'s' * (threads > 1)}", f"{number(peak)} GFLOP/s"])
    machine.append(["took", f"{about['minutes']} minutes"])
    parts.append(_table(["", ""], machine))
    if about["left_out"]:
        parts.append(f"Left out, because the time of `--quick` was over: {'; '.join(about['left_out'])}.\n")
    if groups:
        parts += ["## Against the best peer of each row\n", _summary(groups)]
        parts += ["## Where a peer is faster\n", _losses(groups)]
    for name, rows in groups.items():
        parts += [f"## {name[0].upper()}{name[1:]}\n", _work_table(rows)]
    contexts = [record for record in records if record["work"] == "context"]
    for threads in dict.fromkeys(record["threads"] for record in contexts):
        parts += [
            f"## A growing context, {threads} thread{'s' * (threads > 1)}\n",
            _context_table([record for record in contexts if record["threads"] == threads]),
        ]
    for path in plots:
        name = os.path.splitext(os.path.basename(path))[0]
        parts.append(f"![{name}]({os.path.relpath(path, folder)})\n")
    return "\n".join(parts)
