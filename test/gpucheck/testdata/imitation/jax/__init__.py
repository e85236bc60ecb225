"""As much of JAX as tasks.py and gpumux bench use."""

import functools
import sys
import types

import imitated
from jaxlib import xla_client

__version__ = "0.0+imitation"
_pool = imitated.Pool()


class errors:
    class JaxRuntimeError(RuntimeError):
        __module__ = "jax.errors"


def devices():
    return [types.SimpleNamespace(platform="gpu", device_kind="an imitation")]


@functools.cache
def _limit():
    """What the allocator may take, as it is when the device is first used."""
    return int(xla_client.generate_pjrt_gpu_plugin_options().get("memory_fraction", 0.75) * imitated.TOTAL)


def _stats():
    limit = _limit()
    return {"bytes_limit": limit, "pool_bytes": _pool.used, "bytes_in_use": _pool.used, "peak_bytes_in_use": _pool.peak}


def local_devices():
    return [types.SimpleNamespace(id=0, platform="gpu", memory_stats=_stats)]


_bridge = types.ModuleType("jax._src.xla_bridge")
_bridge.backends_are_initialized = lambda: imitated.started
sys.modules[_bridge.__name__] = _bridge


def default_backend():
    return "gpu"


def clear_caches():
    pass


def jit(function):
    return function
