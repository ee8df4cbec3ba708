"""What the numbers were measured on, and with."""

import glob
import os
import platform
import shlex
import subprocess
import sys

import numpy
import onnxruntime
import torch

import library
import works


def _first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def _processor():
    with open("/proc/cpuinfo") as file:
        fields = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    name = fields.get("model name", platform.machine())
    if "cpu family" in fields:
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    return name


def _caches():
    """{"L2": "2048K", …} of the first core."""
    found = {}
    for index in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        entry = {name: open(f"{index}/{name}").read().strip() for name in ("level", "size", "type")}
        if entry["type"] != "Instruction":
            found[f"L{entry['level']}"] = entry["size"]
    return found


def describe(options):
    root = os.path.join(os.path.dirname(__file__), "../..")
    about = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "system": f"{platform.system()} {platform.release()}",
        "load": float(os.environ.get("HEED_PEERS_LOAD", "0")),
        "command": shlex.join(["bench/peers/run", *sys.argv[3:]]),  # without --library and its path
        "heed": library.about(),
        "commit": _first_line("git", "-C", root, "describe", "--always", "--dirty"),
        "compiler": _first_line(os.environ.get("CXX", "c++"), "--version"),
        "torch": torch.__version__,
        "torch_vectors": torch.backends.cpu.get_cpu_capability(),
        "onnxruntime": onnxruntime.__version__,
        "numpy": numpy.__version__,
        "Eigen": library.about("eigen"),
    }
    for name, path in works.openblas_libraries().items():
        about[name] = library.about(path)
    return about
