"""Residents: values that stay in the process of a lease, and the handles that name them.

Owns the values that tasks keep, and how a handle in an item becomes its value. Never moves a value unasked. The values end with the
process.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
import threading
from typing import Any, Callable, NamedTuple, Optional

FIELD = "gpumux.handle"
"""A handle in JSON is an object with this field alone."""


class HandleError(LookupError):
    """A handle does not name a resident of this process."""


@dataclasses.dataclass(frozen=True)
class Handle:
    """What names a resident. A task returns it, and gets the value where it is part of an item."""

    host: Optional[str]
    device: Optional[str]
    """The slot's device."""
    slot: Optional[str]
    lease: Optional[str]
    process: str
    task: Optional[str]
    key: str
    place: str
    """The framework's name of the device within the process, such as "cuda:1"; empty where it has none."""
    type: str
    shape: Optional[list]
    bytes: int
    """Of the arrays in the value."""

    def __str__(self) -> str:
        what = self.type + (str(self.shape) if self.shape is not None else "")
        return f"{self.key!r} ({what}, {self.bytes} bytes)"


class _Lease(NamedTuple):
    """What the worker said of the lease: its name, the host, and whether a key stands for the resident that an earlier process had."""

    name: str
    host: Optional[str]
    rebuilt: bool


_kept: dict[str, Any] = {}
_handles: dict[str, Handle] = {}
_lock = threading.RLock()
_process = ""
_count = 0
_lease: Optional[_Lease] = None
_tell: Optional[Callable[[int, int], None]] = None


def begin(name: str, host: Optional[str], rebuilt: bool, tell: Callable[[int, int], None]) -> None:
    """This process belongs to a lease; tell takes the number and the bytes of its residents when they change."""
    global _lease, _tell
    _lease, _tell = _Lease(name, host, rebuilt), tell


def _identity() -> str:
    global _process
    if not _process.startswith(f"{os.getpid()}-"):
        _process = f"{os.getpid()}-{os.urandom(4).hex()}"
    return _process


def keep(value: Any, key: Optional[str]) -> Handle:
    import gpumux

    slot = gpumux.slot()
    if _lease is None and slot.name is not None:
        raise RuntimeError("gpumux.keep needs a lease, whose calls share this process; call this task within workflows.WithSlot")
    if key is not None and (type(key) is not str or not key):
        raise TypeError(f"gpumux.keep(key={key!r}): give a text that is not empty")
    global _count
    with _lock:
        if key is None:
            _count += 1
            key = f"{_identity()}/{_count}"
        place, kind, shape = _describe(value)
        name = _lease.name if _lease else None
        host = _lease.host if _lease else None
        handle = Handle(host, slot.device, slot.name, name, _identity(), slot.task, key, place, kind, shape, _bytes(value))
        _kept[key], _handles[key] = value, handle
        _changed()
    return handle


def drop(handle: Any) -> None:
    with _lock:
        key = _find(handle) if isinstance(handle, Handle) else handle
        if key not in _kept:
            raise HandleError(f"there is no resident {key!r} in this process")
        del _kept[key], _handles[key]
        _changed()


def _changed() -> None:
    if _tell is not None:
        _tell(len(_handles), sum(handle.bytes for handle in _handles.values()))


def field(handle: Handle) -> dict:
    """A handle as JSON."""
    return {FIELD: {name: value for name, value in vars(handle).items() if value not in (None, "")}}


def resolve(item: Any) -> Any:
    """item with values in the places of their handles."""
    if type(item) is list:
        return [resolve(each) for each in item]
    if type(item) is not dict:
        return item
    if len(item) == 1 and type(item.get(FIELD)) is dict:
        fields = item[FIELD]
        handle = _read(fields)
        with _lock:
            key = _find(handle)
            to = fields.get("to")
            if to and to != _handles[key].place:
                value = _move(_kept[key], to)
                _kept[key] = value
                place, kind, shape = _describe(value)
                _handles[key] = dataclasses.replace(_handles[key], place=place, type=kind, shape=shape)
            return _kept[key]
    return {name: resolve(each) for name, each in item.items()}


def _read(fields: dict) -> Handle:
    return Handle(**{each.name: fields.get(each.name, _BLANK.get(each.name)) for each in dataclasses.fields(Handle)})


_BLANK: dict[str, Any] = {"process": "", "key": "", "place": "", "type": "", "bytes": 0}


def _find(handle: Handle) -> str:
    """The key of the resident that handle names."""
    ours = handle.process == _identity()
    if handle.key in _kept and (ours or _lease is not None and _lease.rebuilt and handle.lease == _lease.name):
        return handle.key
    if ours:
        raise HandleError(f"the resident {handle} is no longer kept; it was dropped")
    if _lease is None:
        raise HandleError(f"the resident {handle} belongs to a lease, and this call to none; call on its lease (workflows.Call)")
    import gpumux

    there = f"the resident {handle} lies in process {handle.process} on {handle.device} of {handle.host}"
    here = f"this call runs in process {_identity()} on {gpumux.slot().device} of {_lease.host}"
    if handle.lease == _lease.name:
        hint = "that process has ended and its residents with it; keep the value again, or give the lease a Rebuild that keeps it under this key"
    else:
        hint = "call on the lease that holds it, or bring it here through the hosts' memory with workflows.Move"
    raise HandleError(f"{there}, and {here}: {hint}")


def _parts(value: Any) -> Optional[list]:
    """What a value consists of, where it is a container or a module."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if hasattr(value, "parameters") and hasattr(value, "buffers"):
        return [*value.parameters(), *value.buffers()]
    return None


def _bytes(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    return sum(_bytes(part) for part in _parts(value) or ())


def _describe(value: Any) -> tuple:
    """Place, type and shape."""
    from .encode import type_name

    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or kind is None:
        return _place(value), type_name(type(value)), None
    return _place(value), str(kind).replace("torch.", ""), [int(n) for n in shape]


def _place(value: Any) -> str:
    """The place of an array, or of all arrays in value where it is one."""
    parts = _parts(value)
    if parts is not None:
        places = {_place(part) for part in parts} - {""}
        return places.pop() if len(places) == 1 else ""
    device = getattr(value, "device", None)
    package = type(value).__module__.partition(".")[0]
    if package == "torch":
        return str(device)
    if package == "cupy":
        return f"cuda:{device.id}" if device is not None else ""
    if package.startswith("jax") and hasattr(value, "devices"):
        devices = value.devices()
        return "+".join(sorted(f"{each.platform}:{each.id}" for each in devices))
    return ""


def _move(value: Any, to: str) -> Any:
    """value on another device of this process, from device to device where the driver can."""
    if isinstance(value, dict):
        return {key: _move(each, to) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_move(each, to) for each in value)
    package = type(value).__module__.partition(".")[0]
    platform, _, index = to.partition(":")
    if package == "torch" or hasattr(value, "parameters") and hasattr(value, "to"):
        return value.to(to)
    if package == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(int(index or 0)):
            return cupy.array(value)
    if package.startswith("jax"):
        jax = sys.modules["jax"]
        return jax.device_put(value, jax.devices(platform)[int(index or 0)])
    from .encode import type_name

    raise HandleError(f"a {type_name(type(value))} has no device to move to {to} from; keep arrays of torch, JAX or CuPy for that")


# Functions that the worker calls for workflows.Move and Drop; each takes one item.


def _save(item: dict) -> int:
    """Write the resident of a handle, which was resolved already, to the file path."""
    with open(item["path"], "wb") as file:
        pickle.dump(item["value"], file, protocol=5)
        return file.tell()


def _load(item: dict) -> Handle:
    """Keep what another process has saved."""
    with open(item["path"], "rb") as file:
        value = pickle.load(file)
    return keep(value, item.get("key"))


def _drop(item: dict) -> None:
    for fields in item["handles"]:
        drop(_read(fields))
