"""Tasks on a device that only counts, with frameworks that imitate the allocators of real ones. Sizes are in MiB."""

import os
import time

import device
from device import MIB

kept = []


def compiled(item):
    """{"size"}: a program of 4 ms in an arena that never shrinks."""
    import jax

    device.take("context", 40 * MIB)
    if not jax.live:
        jax.keep(50 * MIB)
    jax.run("step", item["size"] * MIB)
    time.sleep(0.004)
    return {"pid": os.getpid(), "compiled": jax.compiled, "cleared": jax.cleared}


def cached(item):
    """{"size", "keep", "cycle", "native", "seconds"}: takes memory for a moment, keeps some, litters, and leaks past the framework."""
    import torch

    device.take("context", 40 * MIB)
    if not kept:
        kept.append(torch.Block(50 * MIB))
    block = torch.Block(item.get("size", 0) * MIB)
    if "keep" in item:
        kept.append(torch.Block(item["keep"] * MIB))
    if "cycle" in item:
        cycle = [torch.Block(item["cycle"] * MIB)]
        cycle.append(cycle)
    if "native" in item:
        kept.append(item["native"])
        device.take("native", sum(kept[1:]) * MIB)
    time.sleep(item.get("seconds", 0.004))
    del block
    return {"pid": os.getpid(), "emptied": torch.emptied}
