#!/usr/bin/env python3
"""Takes one barrier, wait, or check of an end out of the kernels at a time; the tests must notice each.

    tests/cuda/mutate.py [--compiler g++] [--jobs 2] [--only REGEX] [--list]

Every mutation is a copy of include/heed/cuda/kernels with one line changed, with which the tests of that kernel are
compiled and run. One that survives is printed, and makes the exit status 1. A mutation whose program cannot be compiled
counts as noticed. SURVIVES lists those that nothing can notice, and why.
"""

import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "include/heed/cuda/kernels"

# Which tests look at which kernels.
TESTS = {
    "attention.hpp": ["test_device_attention", "test_device_kv_cache"],
    "attention_mma.hpp": ["test_device_attention_mma"],
    "attention_scores.hpp": ["test_device_attention_mma"],
    "compressive_memory.hpp": ["test_device_memory"],
    "linear.hpp": ["test_device_linear"],
    "linear_mma.hpp": ["test_device_linear_mma"],
    "mma.hpp": ["test_device_linear_mma"],
    "kv_append.hpp": ["test_device_kv_cache"],
    "norms.hpp": ["test_device_rows"],
    "softmax.hpp": ["test_device_rows"],
    "rotary_embedding.hpp": ["test_device_rows"],
    "embedding.hpp": ["test_device_rows"],
    "repeat_kv.hpp": ["test_device_rows"],
    "activations.hpp": ["test_device_rows"],
    "gated_mix.hpp": ["test_device_memory"],
    "kernel.hpp": ["test_device_rows"],
}

# What is taken out, and what takes its place. A check of an end is anything of the form `x < …extent(…)`, `exists`, …
MUTATIONS = [
    ("sync", re.compile(r"context\.sync\(\);"), ";"),
    ("sync_warp", re.compile(r"context\.sync_warp\(\);"), ";"),
    ("wait", re.compile(r"context\.template wait_copies<\d+>\(\);"), ";"),
    ("end", re.compile(r"(?<=[ (])[\w.()+* ]+? < [\w.>()-]*extent\(\d\)"), "true"),
    ("exists", re.compile(r"\bexists\b(?= \?| &&)"), "true"),
    ("limit", re.compile(r"if \((i|row|t|first \+ row|d) < \w+\)"), "if (true)"),
]

# (file, part of the line): reason.
SURVIVES = {
    ("attention_mma.hpp", "exists ? row + chunk * mma_chunk"): "nothing is read through it then",
    ("attention_mma.hpp", "exists ? from : tokens.data_handle()"): "nothing is read through it then",
    ("linear_mma.hpp", "exists ? from.pointer(first + row, own_feature)"): "nothing is read through it then",
    ("attention.hpp", "const T* const from = exists ?"): "nothing is read through it then",
    ("linear.hpp", "const bool more = k + depth < x.extent(1);"):
        "what is loaded beyond the end is 0, and nothing is computed with it",
    ("compressive_memory.hpp", "context.sync_warp();  // the features are there"):
        "a shuffle comes before it, which orders memory in the executor, and need not on a device",
}


def mutations():
    for path in sorted(KERNELS.glob("*.hpp")):
        lines = path.read_text().splitlines(keepends=True)
        for number, line in enumerate(lines):
            code = line.split("//")[0]
            if "for (" in code or code.lstrip().startswith("#"):
                continue  # what ends loops is not a check of an end
            for kind, pattern, replacement in MUTATIONS:
                for match in pattern.finditer(code):
                    changed = line[: match.start()] + replacement + line[match.end():]
                    yield path.name, number, kind, line.strip(), "".join(lines[:number] + [changed] + lines[number + 1:])


def noticed(file, text, compiler, tests, main_object):
    """True if the tests fail, or cannot be compiled, with `text` in the place of a kernel's header."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shutil.copytree(ROOT / "include", folder / "include")
        (folder / "include/heed/cuda/kernels" / file).write_text(text)
        for test in tests:
            program = folder / test
            command = [compiler, "-std=c++20", "-O1", f"-I{folder}/include", f"-I{ROOT}/tests", str(main_object),
                       f"{ROOT}/tests/cuda/{test}.cpp", "-o", str(program), "-pthread"]
            if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                return True
            try:
                if subprocess.run([str(program)], capture_output=True, timeout=300, check=False).returncode != 0:
                    return True
            except subprocess.TimeoutExpired:
                return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="a regular expression for file:line kind")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    chosen = [m for m in mutations() if re.search(arguments.only, f"{m[0]}:{m[1] + 1} {m[2]}")]
    if arguments.list:
        for file, number, kind, line, _ in chosen:
            print(f"{file}:{number + 1} {kind}: {line}")
        return 0

    survived = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        main_object = pathlib.Path(folder) / "main.o"
        subprocess.run([arguments.compiler, "-std=c++20", "-c", f"{ROOT}/tests/main.cpp", "-o", str(main_object)], check=True)
        results = pool.map(lambda m: noticed(m[0], m[4], arguments.compiler, TESTS[m[0]], main_object), chosen)
        for (file, number, kind, line, _), result in zip(chosen, results):
            known = any(file == f and part in line for f, part in SURVIVES)
            survived += not result and not known
            print(f"{'noticed' if result else 'known' if known else 'SURVIVES'} {file}:{number + 1} {kind}: {line}", flush=True)
    print(f"{len(chosen)} mutations, {survived} not noticed")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
