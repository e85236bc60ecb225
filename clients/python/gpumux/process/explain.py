"""Says which lines of the task allocated what a device holds, for the fault of an item that ran out of memory.

Owns the questions to PyTorch and JAX, and the text of the answer. Never imports a framework, and asks only those that have begun to use a
device. JAX knows the lines by itself; PyTorch knows those of what it allocates after record.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any, Callable, Iterator

from .memory import AfterImport

# The lines of the text, and the functions in one.
_MOST_PLACES, _MOST_FRAMES = 5, 3
_MOST_PROFILE = 64 << 20

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = tuple(_STANDARD + each for each in ("site-packages", "dist-packages"))

Allocation = tuple  # the device, bytes, number, and frames (file, line, function), the innermost first


def record() -> None:
    """Have PyTorch remember the lines that allocate, some 2 µs each, from the start of CUDA on."""

    def begin(torch: Any) -> None:
        torch.cuda._lazy_call(lambda: torch.cuda.memory._record_memory_history("state", context="state", stacks="python"))

    def failed(name: str, why: str) -> None:
        print(f"gpumux: PyTorch cannot say which lines allocate: {why}", file=sys.stderr)

    sys.meta_path.insert(0, AfterImport({"torch": begin}, failed))


def held() -> str:
    """What the devices hold and which lines of the task allocated it, some lines for each device; empty where no framework tells."""
    texts = []
    for name, ask in _ASKED.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        try:
            texts += _describe(list(ask(module)))
        except Exception:
            # An old release, or a context that is lost.
            continue
    return "\n".join(texts)


def _describe(allocations: list[Allocation]) -> Iterator[str]:
    for device in sorted({device for device, *_ in allocations}):
        size: Counter = Counter()
        number: Counter = Counter()
        for at, bytes_, count, frames in allocations:
            if at == device and bytes_:
                place = _place(frames)
                size[place] += bytes_
                number[place] += count
        total = sum(size.values())
        if not total:
            continue
        if set(size) == {""}:
            yield f"{device} held {_size(total)}; --explain-oom, explain_oom in a worker's file, says which lines allocated it"
            continue
        yield f"{device} held {_size(total)}, allocated by"
        for place, bytes_ in size.most_common(_MOST_PLACES):
            yield f"  {_size(bytes_):>8}  {number[place]} × {place or 'lines that were not recorded'}"
        rest = size.most_common()[_MOST_PLACES:]
        if rest:
            yield f"  {_size(sum(each for _, each in rest)):>8}  by {len(rest)} other lines"


def _place(frames: list[tuple[str, int, str]]) -> str:
    """The innermost functions that are no framework's, or the innermost of all."""
    ours = [frame for frame in frames if not _foreign(frame[0])] or frames[:1]
    return ", from ".join(f"{'/'.join(file.split(os.sep)[-2:])}:{line} {name}" for file, line, name in ours[:_MOST_FRAMES])


def _foreign(file: str) -> bool:
    if file.startswith(("<", _OWN, *_frameworks())):
        return True
    return file.startswith(_STANDARD) and not file.startswith(_PACKAGES)


def _frameworks() -> tuple:
    modules = (sys.modules.get(name) for name in ("torch", "jax", "jaxlib", "numpy"))
    return tuple(os.path.dirname(file) + os.sep for file in (getattr(module, "__file__", None) for module in modules) if file)


def _size(bytes_: int) -> str:
    return f"{bytes_ / (1 << 30):.1f}GiB" if bytes_ >= 1 << 30 else f"{bytes_ / (1 << 20):.1f}MiB"


def _torch(torch: Any) -> Iterator[Allocation]:
    if not torch.cuda.is_initialized():
        return
    for segment in torch.cuda.memory._snapshot()["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                frames = [(frame["filename"], frame["line"], frame["name"]) for frame in block.get("frames") or ()]
                yield f"cuda:{segment['device']}", block["size"], 1, frames


def _jax(jax: Any) -> Iterator[Allocation]:
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None or not bridge.backends_are_initialized():
        return
    import gzip

    profile = jax.profiler.device_memory_profile()
    if len(profile) <= _MOST_PROFILE:
        yield from _pprof(gzip.decompress(profile))


# The fields of pprof's profile.proto that are read here.
_SAMPLE, _LOCATION, _FUNCTION, _STRING = 2, 4, 5, 6


def _pprof(profile: bytes) -> Iterator[Allocation]:
    texts: list[str] = []
    functions: dict[int, dict] = {}
    locations: dict[int, list[dict]] = {}
    samples = []
    for field, value in _fields(profile):
        if field == _STRING:
            texts.append(value.decode(errors="replace"))
        elif field == _FUNCTION:
            function = dict(_fields(value))
            functions[function[1]] = function
        elif field == _LOCATION:
            location = list(_fields(value))
            locations[dict(location)[1]] = [dict(_fields(line)) for key, line in location if key == 4]
        elif field == _SAMPLE:
            samples.append(list(_fields(value)))
    for sample in samples:
        labels = {texts[label[1]]: texts[label.get(2, 0)] for label in (dict(_fields(value)) for field, value in sample if field == 3)}
        if labels.get("kind") != "buffer":
            continue
        ids = [each for field, value in sample if field == 1 for each in _numbers(value)]
        count, bytes_ = [each for field, value in sample if field == 2 for each in _numbers(value)]
        frames = []
        for line in (line for each in ids for line in locations[each]):
            function = functions[line[1]]
            frames.append((texts[function.get(4, 0)], line.get(2, 0), texts[function[2]]))
        yield labels.get("device", "the device"), bytes_, count, frames


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message in protobuf's encoding: numbers, and bytes."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        value, at = _number(data, at)
        if key & 7 == 2:
            at, value = at + value, data[at : at + value]
        elif key & 7:
            raise ValueError(f"a field of type {key & 7}")
        yield key >> 3, value


def _numbers(value: int | bytes) -> Iterator[int]:
    """A repeated number, packed or not."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = _number(value, at)
        yield number


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


_ASKED: dict[str, Callable[[Any], Iterator[Allocation]]] = {"torch": _torch, "jax": _jax}
