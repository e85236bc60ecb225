"""The other side of the comparison: a task's batches one after the other in a plain loop, in one process without gpumux.

python bare.py FILE:CLASS SECONDS BATCHES. It runs for so long after the first batch, and for so many batches at least, and prints
JSON lines: the machine first, then a line for each batch.
"""

import importlib
import json
import os
import pathlib
import platform
import resource
import sys
import time
import types

LIBRARIES = ("torch", "transformers")


def batch(max):
    """In gpumux's place: the decorator tells how long the loop's batches are."""

    def mark(call):
        call.size = max
        return call

    return mark


def main(task, seconds, batches):
    path, name = task.split(":")
    sys.modules["gpumux"] = types.SimpleNamespace(batch=batch)
    sys.path.insert(0, str(pathlib.Path(path).parent))
    run = getattr(importlib.import_module(pathlib.Path(path).stem), name)()
    size, done, until = run.__call__.size, [], None
    while len(done) < batches or time.monotonic() < until:
        first = len(done) * size
        done.append(run(list(range(first, first + size))))
        until = until or time.monotonic() + seconds
    torch = sys.modules.get("torch")
    gpu = torch is not None and torch.cuda.is_available()
    about = {
        "device": torch.cuda.get_device_name() if gpu else f"{os.cpu_count()} processors",
        "with": ", ".join([f"Python {platform.python_version()}"] + [f"{m} {sys.modules[m].__version__}" for m in LIBRARIES if m in sys.modules]),
        "peak": None if gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # PyTorch does not tell what a context takes
        "texts": run.texts, "allowed": run.allowed, "differing": run.differing,
    }  # fmt: skip
    print(json.dumps(about))
    for values in done:
        print(json.dumps(values))


if __name__ == "__main__":
    try:
        main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
    except ModuleNotFoundError as missing:
        sys.exit(f"{missing}: install what examples/transformers/requirements.txt names, for {sys.executable}")
