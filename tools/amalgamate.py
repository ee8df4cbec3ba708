#!/usr/bin/env python3
"""Makes one header of heed's many, for projects that would rather copy a file than use a package.

    tools/amalgamate.py -o heed.hpp                                  everything on the CPU (heed/heed.hpp)
    tools/amalgamate.py -o heed.hpp heed/heed.hpp heed/io/safetensors.hpp heed/core/openmp_executor.hpp

Headers are named as in #include. Each header of heed is put in once, where it is first needed; all other includes stay,
so a unit that includes the result needs xsimd (8.1 or newer) on its include path, and what else the headers named need.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
INCLUDE_LINE = re.compile(r'^\s*#\s*include\s*["<](heed/[^">]+)[">]')
CONDITION_LINE = re.compile(r"^\s*#\s*(if|ifdef|ifndef|endif)\b\s*(.*)")
# Only false for a compiler of device code, which the one header is not for, and where nothing may be compiled.
ALWAYS_TRUE = ["HEED_CPU_KERNELS", "!defined(HEED_REFUSED)"]


def expand(name, done, out):
    """Appends the lines of header `name`, and before them, where they are included, those of the headers it needs."""
    done.add(name)
    conditions = []
    lines = (INCLUDE / name).read_text(encoding="utf-8").splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    out.append(f"// ---- {name}")
    for number, line in enumerate(lines, 1):
        if line.strip() == "#pragma once":
            continue
        condition = CONDITION_LINE.match(line)
        if condition and condition[1] == "endif":
            conditions.pop()
        elif condition:
            conditions.append(condition[2])
        included = INCLUDE_LINE.match(line)
        if not included:
            out.append(line)
        elif included[1] not in done:
            # Text under a condition would be missing where a later header needs it without.
            if any(each not in ALWAYS_TRUE for each in conditions):
                sys.exit(f"{name}:{number}: cannot put in a header that is included under a condition")
            expand(included[1], done, out)
            out.append(f"// ---- {name}, continued")


def version():
    text = (INCLUDE / "heed/version.hpp").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define HEED_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", text, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it; standard output if left out")
    parser.add_argument("headers", nargs="*", default=["heed/heed.hpp"], metavar="HEADER",
                        help="what to put in, as in #include (default: heed/heed.hpp)")
    arguments = parser.parse_args()

    out = [f"// heed {version()}, all in one header. Made by tools/amalgamate.py; do not edit.",
           f"// It holds: {', '.join(arguments.headers)}", "//"]
    out += ["// " + line if line else "//" for line in (ROOT / "LICENSE").read_text(encoding="utf-8").splitlines()]
    out += ["#pragma once", ""]
    done = set()
    for name in arguments.headers:
        if not (INCLUDE / name).is_file():
            sys.exit(f"there is no header {name} in {INCLUDE}")
        if name not in done:
            expand(name, done, out)

    text = "\n".join(out) + "\n"
    if arguments.output:
        pathlib.Path(arguments.output).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
