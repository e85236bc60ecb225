"""What the frameworks' allocators hold on the slot's devices.

Owns the questions to the frameworks. Never imports one and never starts CUDA: it asks only those that the task has imported and that
have begun to use the device.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, NamedTuple, Optional

# CUDA's error 3: this process has not started the driver.
_NOT_INITIALIZED = 3


class Usage(NamedTuple):
    """Bytes on all devices of the slot."""

    live: int
    """What values occupy."""
    reserved: int
    """What the allocators have taken of the devices, with what is free in it."""
    peak: int
    """The most that was live since the last reset; of an allocator that does not tell, the most that can have been."""


def usage() -> Optional[Usage]:
    """What the allocators say, or None where none has begun to use a device."""
    total = None
    for name, ask in _ALLOCATORS.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        try:
            one = ask(module)
        except Exception:
            # An old release, or an allocator of somebody else's. What it holds counts as held beside the others.
            continue
        if one is not None:
            total = one if total is None else Usage(*map(sum, zip(total, one)))
    return total


def reset_peaks() -> None:
    """Start the peaks anew, where a framework can."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            for index in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(index)
    except Exception:
        # The next peak is that of more items.
        pass


def _usage(live: int, taken: int, peak: int) -> Usage:
    return Usage(live, max(taken, live), max(peak, live))


def _torch(torch: Any) -> Optional[Usage]:
    if not torch.cuda.is_initialized():
        return None
    total = [0, 0, 0]
    for index in range(torch.cuda.device_count()):
        # One call for all figures; the flat dictionary takes five times as long.
        stats = torch.cuda.memory_stats_as_nested_dict(index)
        live, taken = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]["current"]
        for i, each in enumerate((live["current"], taken, live["peak"])):
            total[i] += each
    return _usage(*total)


def _cupy(cupy: Any) -> Optional[Usage]:
    if not cuda_begun():
        return None
    pool = cupy.get_default_memory_pool()
    live, taken = pool.used_bytes(), pool.total_bytes()
    return _usage(live, taken, taken) if taken else None


def _jax(jax: Any) -> Optional[Usage]:
    total = [0, 0, 0]
    devices = jax_devices(jax)
    for device in devices:
        stats = device.memory_stats() or {}
        live = stats["bytes_in_use"]
        taken = stats.get("pool_bytes") or stats.get("bytes_reserved") or live
        for i, each in enumerate((live, taken, stats.get("peak_bytes_in_use", taken))):
            total[i] += each
    return _usage(*total) if devices else None


def _tensorflow(tf: Any) -> Optional[Usage]:
    if not tensorflow_begun():
        return None
    total = [0, 0, 0]
    for device in tf.config.list_logical_devices("GPU"):
        told = tf.config.experimental.get_memory_info(device.name.rpartition("device:")[2])
        # Its arena never shrinks, so it is at least as large as its contents ever were.
        for i, each in enumerate((told["current"], told["peak"], told["peak"])):
            total[i] += each
    return _usage(*total)


def _rmm(statistics: Any) -> Optional[Usage]:
    told = statistics.get_statistics() if cuda_begun() else None
    # The task has not enabled them, or else a pool is as large as its contents ever were.
    return None if told is None else _usage(told.current_bytes, told.peak_bytes, told.peak_bytes)


_ALLOCATORS: dict[str, Callable[[Any], Optional[Usage]]] = {
    "torch": _torch,
    "cupy": _cupy,
    "jax": _jax,
    "tensorflow": _tensorflow,
    "rmm.statistics": _rmm,
}

_begun = False


def cuda_begun() -> bool:
    """Whether this process uses CUDA, without starting it."""
    global _begun
    if not _begun:
        import ctypes

        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            # There is no driver to start.
            _begun = True
        else:
            context = ctypes.c_void_p()
            _begun = driver.cuCtxGetCurrent(ctypes.byref(context)) != _NOT_INITIALIZED
    return _begun


def jax_devices(jax: Any) -> list:
    """The GPUs that JAX uses, once it has begun to."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None or not bridge.backends_are_initialized():
        return []
    return [device for device in jax.local_devices() if device.platform != "cpu"]


def tensorflow_begun() -> bool:
    """Whether TensorFlow has divided the devices and uses them."""
    from tensorflow.python.eager import context

    return context.context()._initialized
