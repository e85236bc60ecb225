"""As much of JAX as the tasks here use: an arena that never shrinks, and programs that take long to compile."""

import time
import types

import device
from jax._src import xla_bridge

COMPILATION = 0.12  # seconds
live = arena = compiled = cleared = 0
_programs = {}


def run(name, size):
    """Run a program that needs so many bytes while it runs."""
    global arena, compiled
    xla_bridge.begun = True
    if name not in _programs:
        time.sleep(COMPILATION)
        compiled += 1
        _programs[name] = True
    arena = max(arena, live + size)
    device.take("jax", arena)


def keep(size):
    """Keep so many bytes more."""
    global live
    live += size
    run("keep", 0)


def clear_caches():
    global cleared
    cleared += 1
    _programs.clear()


def local_devices():
    stats = {"bytes_in_use": live, "pool_bytes": arena, "peak_bytes_in_use": arena, "bytes_limit": arena}
    return [types.SimpleNamespace(id=0, platform="gpu", memory_stats=lambda: stats)]
