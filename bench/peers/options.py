"""What bench/peers/run can be told. Alone, it only checks that; with nothing installed yet."""

import argparse
import os


def threads_list(text):
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise ValueError
    return counts


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="bench/peers/run",
        description="Measures heed beside torch, onnxruntime, Eigen and OpenBLAS on the same work, in one process, in"
        " turns, with the machine's limits measured in between.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rounds; ends within 4 minutes")
    parser.add_argument("--threads", type=threads_list, default=[1], metavar="N", help="or several: 1,2 (default: 1)")
    parser.add_argument("--only", default="", metavar="REGEX", help="only work whose name it is found in")
    parser.add_argument("--json", metavar="FILE", help="a list of records")
    parser.add_argument("--markdown", metavar="FILE", help="the table, with the machine and the command")
    parser.add_argument("--plots", metavar="FOLDER", help="SVG")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    if max(options.threads) > cores:
        parser.error(f"--threads: this process may run on {cores} cores")
    for path in (options.json, options.markdown):
        if path and not os.path.isdir(os.path.dirname(path) or "."):
            parser.error(f"{path}: there is no such folder")
    return options


if __name__ == "__main__":
    parse()
