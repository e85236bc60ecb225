"""A task as most are: its module imports PyTorch, which takes longer than anything else at the start."""

import os
import time

_began = time.monotonic()
import torch

_imported = time.monotonic() - _began
import tasks


def imported(item):
    """{"folder", "count"}: the seconds that the import took, once so many processes have come as far."""
    torch.zeros(1, device="cuda").item()
    tasks.meet(item["folder"], item["count"])
    return {"pid": os.getpid(), "seconds": _imported, "threads": os.environ.get("OMP_NUM_THREADS", "")}
