"""Answers an import that asks for devices, without opening one, so that its process can be forked; and says where one is opened.

Owns what frameworks hear of the slot's devices while a template imports a task: how many there are, and whether. What only a device
itself knows opens it. Ends with the import.
"""

from __future__ import annotations

import functools
import importlib.util
import linecache
import os
import sys
import time
from typing import Any, Callable, Optional

from .memory import AfterImport

# The files of GPUs and other accelerators.
FILES = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/accel", "/dev/dxg", "/dev/vfio/")

# To open a device takes longer, in seconds.
_SOON = 0.001


class Devices:
    def __init__(self, folder: str, files: tuple = FILES) -> None:
        """folder is the task's; where its own code opens one of the files is found."""
        self._folder = os.path.join(os.path.abspath(folder or "."), "")
        self._files = files
        self._asked = False
        self._replaced: list[tuple[Any, str, Any]] = []
        self._since = 0.0
        self._at: tuple[str, int] = ("", 0)
        self._opened: Optional[tuple[str, int]] = None

    def begin(self) -> None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return
        count = len([each for each in visible.split(",") if each not in ("", "-1")])
        self._asked = True
        actions: dict[str, Callable[[Any], None]] = {"torch": lambda torch: self._torch(torch, count)}
        if count:
            actions["cupy_backends.cuda.api.runtime"] = lambda runtime: self._answer(runtime, "getDeviceCount", lambda: count)
            actions["jax._src.xla_bridge"] = lambda bridge: self._jax(bridge, count)
            sys.settrace(self._call)
        self._after = AfterImport(actions, lambda name, why: None)
        sys.meta_path.insert(0, self._after)

    def end(self) -> str:
        """Give the frameworks their own answers back. Returns where the import opened a device, or nothing."""
        if not self._asked:
            return ""
        if sys.gettrace() == self._call:
            self._look()
            sys.settrace(None)
        self._asked = False
        sys.meta_path.remove(self._after)
        for module, name, real in self._replaced:
            setattr(module, name, real)
        cupy = sys.modules.get("cupy.cuda")
        if cupy is not None:
            cupy._available = None  # type: ignore[attr-defined]
        if not self._opened:
            return ""
        path, line = self._opened
        return f"at {os.path.relpath(path, self._folder)}:{line}, {linecache.getline(path, line).strip()!r}"

    def _answer(self, module: Any, name: str, value: Callable[[], Any]) -> None:
        """Let module.name return the value during the import, where that is not None and the call has no arguments."""
        real = getattr(module, name, None)
        if real is None:
            return

        @functools.wraps(real)
        def answer(*args: Any, **more: Any) -> Any:
            # The task may have kept this one.
            known = value() if self._asked and not args and not more else None
            return real(*args, **more) if known is None else known

        setattr(module, name, answer)
        self._replaced.append((module, name, real))

    def _torch(self, torch: Any, count: int) -> None:
        # is_available and device_count ask them, which begin CUDA or NVML.
        self._answer(torch._C, "_cuda_getDeviceCount", lambda: count)
        self._answer(torch.cuda, "_device_count_nvml", lambda: count)

    def _jax(self, bridge: Any, count: int) -> None:
        if not _has_plugin():
            return

        def on_devices() -> bool:
            platforms = bridge.config.jax_platforms.value
            return not platforms or platforms.partition(",")[0] in ("cuda", "gpu")

        self._answer(bridge, "default_backend", lambda: "gpu" if on_devices() else None)
        for name in ("device_count", "local_device_count"):
            self._answer(bridge, name, lambda: count if on_devices() else None)

    # A trace of the lines of the task's own files.

    def _call(self, frame: Any, event: str, arg: Any) -> Optional[Callable[..., Any]]:
        path = frame.f_code.co_filename
        return self._line if path.startswith(self._folder) and "site-packages" not in path else None

    def _line(self, frame: Any, event: str, arg: Any) -> Callable[..., Any]:
        if time.monotonic() - self._since > _SOON:
            self._look()
        if event == "line":
            self._at = frame.f_code.co_filename, frame.f_lineno
        self._since = time.monotonic()
        return self._line

    def _look(self) -> None:
        if self._opened is None and any(path.startswith(self._files) for path in open_files().values()):
            self._opened = self._at


def _has_plugin() -> bool:
    """Whether JAX is installed for NVIDIA's GPUs."""
    spec = importlib.util.find_spec("jax_plugins")
    folders = (spec and spec.submodule_search_locations) or []
    return any(name.startswith("xla_cuda") for folder in folders for name in os.listdir(folder))


def open_files() -> dict[int, str]:
    """The paths of this process's open files, by descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            # That of the list itself.
            pass
    return found
