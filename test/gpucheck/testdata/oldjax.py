"""A script that sets the variable which JAX calls deprecated, as many do, before it imports JAX."""

import os

os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = ".5"
import jax.numpy


def add_up(item):
    """{"number"}: 4096 times the number, and what JAX's allocator may take."""
    total = float(jax.numpy.full((64, 64), float(item["number"])).sum())
    return {"sum": total, "limit": jax.local_devices()[0].memory_stats()["bytes_limit"]}
