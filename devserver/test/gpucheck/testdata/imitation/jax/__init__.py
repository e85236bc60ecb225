"""As much of JAX as tasks.py and gpumux bench use."""

import os
import sys
import types

import imitated

__version__ = "0.0+imitation"
_pool = imitated.Pool()


class errors:
    class JaxRuntimeError(RuntimeError):
        __module__ = "jax.errors"


def devices():
    return [types.SimpleNamespace(platform="gpu", device_kind="an imitation")]


def _limit():
    """What the allocator may take; it raises as jaxlib 0.10.2 does where both names are set."""
    fraction, deprecated = (os.environ.get(name, "") for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"))
    if fraction and deprecated:
        raise ValueError(
            "XLA_CLIENT_MEM_FRACTION is specified together with XLA_PYTHON_CLIENT_MEM_FRACTION. Remove the latter one, it is deprecated."
        )
    return int(float(fraction or deprecated or ".75") * imitated.TOTAL)


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
