"""Keeps the frameworks within the slot's budget and frees their caches.

Owns the caps that need code, what the C library keeps for the next item, and what is freed after an out-of-memory error. Never imports a
framework or starts CUDA: the task does both. Sets a cap when the framework itself begins to use the device, so a task may fork before.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import sys
from typing import Any, Callable, Optional

from . import allocators
from .fault import is_memory

# The folder with what runs at the start of the Pythons that a task starts.
_CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child")

# The limit of a test, far below any task's, and the allocation that it must refuse.
_TRIED, _ASKED = 32 << 20, 128 << 20

# JAX's names for the share of a device that it may take.
_FRACTION, _OLD_FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"

Tell = Callable[[str, Optional[str]], None]
"""Reports a framework, and why its limit does not hold or None."""

# Frameworks that do not say when they begin to use the device: the test of their limit, which is False until they have begun, and the
# report.
_untried: dict[str, tuple[Callable[[Any], bool], Tell]] = {}


def cap(room: int, tell: Tell = lambda name, why: None) -> None:
    """Limit the frameworks that the task will import to so many bytes on each device; 0: they are not limited."""
    if not room:
        return
    os.environ.setdefault("CUPY_GPU_MEMORY_LIMIT", str(room))
    # For the Pythons that the task starts.
    os.environ["GPUMUX_ROOM"] = str(room)
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder not in ("", _CHILD)]
    os.environ["PYTHONPATH"] = os.pathsep.join([_CHILD, *folders])
    _untried["cupy"] = _cupy, tell
    _untried["jax"] = lambda jax: _jax(jax, room), tell
    _untried["tensorflow"] = lambda tf: _tensorflow_holds(tf, room), tell
    sys.meta_path.insert(
        0,
        AfterImport(
            {
                "torch": lambda torch: _torch(torch, room, tell),
                "tensorflow": lambda tf: _tensorflow(tf, room, tell),
                "jaxlib.xla_client": _one_fraction,
            },
            lambda name, why: (_untried.pop(name, None), _warn(name, why, tell)),
        ),
    )


def prove() -> None:
    """Test the limits of frameworks that have begun to use the device since the last call; between two items."""
    for name in [name for name in _untried if name in sys.modules]:
        check, tell = _untried[name]
        try:
            begun = check(sys.modules[name])
        except Exception as error:
            _warn(name, f"{type(error).__name__}: {error}", tell)
        else:
            if not begun:
                continue
            tell(name, None)
        del _untried[name]


class AfterImport:
    """Calls an action with a module when its import is complete, or failed with its name and why the action was not done."""

    def __init__(self, actions: dict[str, Callable[[Any], None]], failed: Callable[[str, str], None]) -> None:
        self._actions = actions
        self._failed = failed

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        action = self._actions.pop(name, None)
        if action is None:
            return None
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        execute = getattr(spec and spec.loader, "exec_module", None)
        if execute is None:
            self._actions[name] = action
            return spec
        loader = spec.loader

        # On the loader itself: the module knows its loader, whose class must stay.
        def exec_module(module: Any) -> None:
            try:
                execute(module)
            except BaseException:
                self._actions[name] = action
                raise
            finally:
                loader.__dict__.pop("exec_module", None)
            # A framework that changed must not fail the task.
            try:
                action(module)
            except Exception as error:
                self._failed(name, f"{type(error).__name__}: {error}")

        try:
            loader.exec_module = exec_module
        except AttributeError:
            self._failed(name, "its loader cannot be followed")
        return spec


def _torch(torch: Any, room: int, tell: Tell) -> None:
    def limit() -> None:
        passed = None
        for index in range(torch.cuda.device_count()):
            total = torch.cuda.get_device_properties(index).total_memory
            try:
                passed = _passes(torch, index, total) or passed
            finally:
                torch.cuda.set_per_process_memory_fraction(min(1.0, room / total), index)
        if passed:
            raise RuntimeError(passed)
        tell("torch", None)

    # torch's own queue of calls for CUDA's start, such as seeds; it runs them at once when CUDA is up.
    torch.cuda._lazy_call(lambda: _try("torch", limit, tell))


def _passes(torch: Any, index: int, total: int) -> Optional[str]:
    """Why torch's limit does not hold, or None.

    The test sets a small limit, which the allocator checks before it asks the device, so it takes nothing from neighbours.
    """
    torch.cuda.set_per_process_memory_fraction(_TRIED / total, index)
    try:
        taken = torch.empty(_ASKED, dtype=torch.uint8, device=f"cuda:{index}")
    except Exception as error:
        if is_memory(error):
            return None
        raise
    del taken
    torch.cuda.empty_cache()
    return f"an allocation of {_ASKED >> 20} MiB passed a limit of {_TRIED >> 20} MiB on device {index}"


def _cupy(cupy: Any) -> bool:
    """Ask for more than the pool allows: it refuses that itself and takes nothing from neighbours."""
    if not allocators.cuda_begun():
        # The pool would start CUDA, after which the task could not fork.
        return False
    pool = getattr(cupy.cuda.get_allocator(), "__self__", None)
    if not hasattr(pool, "get_limit"):
        raise RuntimeError(f"the task allocates through {cupy.cuda.get_allocator()!r}, which has no limit")
    taken = pool.total_bytes()
    if not taken:
        return False
    limit = pool.get_limit()
    if not limit:
        raise RuntimeError("its memory pool has no limit")
    pool.set_limit(size=taken)
    try:
        # More than the free blocks of the pool, which it would use again.
        got = cupy.empty(pool.free_bytes() + _ASKED, dtype="uint8")
    except Exception as error:
        if is_memory(error):
            return True
        raise
    finally:
        pool.set_limit(size=limit)
    del got
    pool.free_all_blocks()
    raise RuntimeError(f"an allocation of {_ASKED >> 20} MiB passed the limit of its memory pool")


def _jax(jax: Any, room: int) -> bool:
    """Ask the allocators of the devices what they may take; JAX has no call that lowers it."""
    devices = allocators.jax_devices(jax)
    for device in devices:
        allocator = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default").lower()
        if allocator not in ("default", "bfc"):
            # The others take all of the device; their limit is only on what they cache.
            raise RuntimeError(f"XLA_PYTHON_CLIENT_ALLOCATOR={allocator} has no limit")
        limit = (device.memory_stats() or {}).get("bytes_limit")
        if limit is None:
            raise RuntimeError(f"device {device.id} does not say what its allocator may take")
        # The limit is a rounded share of the device.
        if limit > room + (64 << 20):
            raise RuntimeError(f"its allocator may take {limit >> 20} MiB of device {device.id}, not {room >> 20}")
    return bool(devices)


def _one_fraction(xla_client: Any) -> None:
    """Let JAX start on a device although the task set the old name of its limit, which it refuses beside the new one, the slot's."""
    generate = getattr(xla_client, "generate_pjrt_gpu_plugin_options", None)
    if generate is None:
        return

    @functools.wraps(generate)
    def generate_pjrt_gpu_plugin_options(*args: Any, **more: Any) -> Any:
        slots, tasks = os.environ.get(_FRACTION), os.environ.get(_OLD_FRACTION)
        if slots and tasks:
            os.environ[_FRACTION] = min(slots, tasks, key=float)
            del os.environ[_OLD_FRACTION]
        return generate(*args, **more)

    # JAX's plugins look it up here when the task first uses a device.
    xla_client.generate_pjrt_gpu_plugin_options = generate_pjrt_gpu_plugin_options


def _tensorflow(tf: Any, room: int, tell: Tell) -> None:
    from tensorflow.python.eager.context import Context

    start = Context.ensure_initialized

    def ensure_initialized(self: Any, *args: Any, **more: Any) -> Any:
        Context.ensure_initialized = start
        if not _try("tensorflow", limit, tell):
            _untried.pop("tensorflow", None)
        return start(self, *args, **more)

    def limit() -> None:
        for gpu in tf.config.list_physical_devices("GPU"):
            # A task that divides its devices itself keeps its own limits.
            if not tf.config.get_logical_device_configuration(gpu):
                part = tf.config.LogicalDeviceConfiguration(memory_limit=room >> 20)
                tf.config.set_logical_device_configuration(gpu, [part])

    Context.ensure_initialized = ensure_initialized


def _tensorflow_holds(tf: Any, room: int) -> bool:
    """Ask the allocators of the devices what they may take, whoever divided the devices."""
    if not allocators.tensorflow_begun():
        return False
    devices = [limit for kind, limit in _tensorflow_limits() if kind == "GPU"]
    allocator = os.environ.get("TF_GPU_ALLOCATOR", "")
    if devices and allocator.startswith("cuda_malloc"):
        raise RuntimeError(f"TF_GPU_ALLOCATOR={allocator} has no limit")
    most = room * len(tf.config.list_physical_devices("GPU"))
    if sum(devices) > most:
        raise RuntimeError(f"its allocators may take {sum(devices) >> 20} MiB of its devices, not {most >> 20}")
    return True


def _tensorflow_limits() -> list[tuple[str, int]]:
    """The kind of each logical device that TensorFlow made, and the bytes that its allocator may take."""
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.client import pywrap_tf_session as session
    from tensorflow.python.eager import context

    devices = pywrap_tfe.TFE_ContextListDevices(context.context()._handle)
    try:
        return [
            (session.TF_DeviceListType(devices, i), session.TF_DeviceListMemoryBytes(devices, i))
            for i in range(session.TF_DeviceListCount(devices))
        ]
    finally:
        session.TF_DeleteDeviceList(devices)


def _try(name: str, action: Callable[[], None], tell: Tell) -> bool:
    # A framework that changed must not fail the task: the memory watch is still there.
    try:
        action()
    except Exception as error:
        _warn(name, f"{type(error).__name__}: {error}", tell)
        return False
    return True


def _warn(name: str, why: str, tell: Tell) -> None:
    print(f"gpumux: {name} is not limited to the slot's memory by itself: {why}", file=sys.stderr)
    try:
        tell(name, why)
    except OSError:
        # The worker is gone.
        pass


def reuse() -> None:
    """Have glibc keep up to 16 MiB of what items free for the next ones: it maps memory anew else, for many items each time."""
    # It keeps twice the size of the largest block that it has unmapped. No page of these zeros is ever touched.
    bytes(8 << 20)


def trim() -> None:
    """Free what is not needed now, compiled code included: an item has run out of memory."""
    _quietly("jax", lambda jax: jax.clear_caches())
    gc.collect()
    _quietly("torch", _trim_torch)
    _quietly("cupy", _trim_cupy)
    # Arrow's pool is an allocator of its own.
    _quietly("pyarrow", lambda pyarrow: pyarrow.default_memory_pool().release_unused())
    _trim_heap()


def _quietly(name: str, free: Callable[[Any], None]) -> None:
    module = sys.modules.get(name)
    if module is not None:
        try:
            free(module)
        except Exception:
            # An old release without this call, or a lost context, which the next item will report.
            pass


def _trim_torch(torch: Any) -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _trim_cupy(cupy: Any) -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


_malloc_trim: Any = None


def _trim_heap() -> None:
    """Return the free pages of the C heap to the system, where the C library can."""
    global _malloc_trim
    if _malloc_trim is None:
        try:
            import ctypes

            _malloc_trim = ctypes.CDLL(None).malloc_trim
        except (ImportError, OSError, AttributeError):
            _malloc_trim = False
    if _malloc_trim:
        _malloc_trim(0)
