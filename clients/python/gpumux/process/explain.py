"""Says which lines of the task allocated what a device holds, for the fault of an item that ran out of memory.

Owns the questions to PyTorch and JAX, and the text of the answer. Never imports a framework, and asks only those that have begun to use a
device. JAX knows the lines by itself; PyTorch knows those of what it allocates after record.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from typing import Any, Callable, Collection, Iterator, Tuple

from .fault import folders
from .memory import AfterImport

# The lines with places, the functions in one, and the bytes of a profile of JAX that are read.
_MOST_PLACES, _MOST_FRAMES, _MOST_PROFILE = 3, 3, 2 << 20

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = tuple(_STANDARD + each for each in ("site-packages", "dist-packages"))

# Which stand in the function around them, and are none from Python 3.12 on.
_NO_FUNCTIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")

Frames = Tuple[Tuple[str, int, str], ...]  # file, line and function, the innermost first
Allocation = Tuple[str, int, int, Frames]  # the device, bytes, and how many


def record() -> None:
    """Have PyTorch remember the lines that allocate, some 2 µs each, from the start of CUDA on."""
    sys.meta_path.insert(0, AfterImport({"torch": lambda torch: torch.cuda._lazy_call(lambda: _record(torch))}, _failed))


def _record(torch: Any) -> None:
    try:
        torch.cuda.memory._record_memory_history("state", context="state", stacks="python")
    except Exception as error:
        # As with allocators that are not PyTorch's own.
        _failed("torch", f"{type(error).__name__}: {error}")


def _failed(name: str, why: str) -> None:
    print(f"gpumux: PyTorch cannot say which lines allocate: {why}", file=sys.stderr)


def held(packages: Collection[str]) -> str:
    """What the fullest device of these frameworks holds, and which lines of the task allocated it; empty where none tells."""
    allocations: list[Allocation] = []
    for name in packages:
        try:
            allocations += _ASKED[name](sys.modules[name])
        except Exception:
            # An old release, or a context that is lost.
            continue
    total: Counter = Counter()
    for device, bytes_, _, _ in allocations:
        total[device] += bytes_
    if not any(total.values()):
        return ""
    (device, most), = total.most_common(1)
    lines = list(_describe([each for each in allocations if each[0] == device and each[1]]))
    if lines:
        return "\n".join([f"{device} held {_size(most)}, allocated by", *lines])
    recorded = "torch" not in packages or os.environ.get("GPUMUX_EXPLAIN_OOM")
    hint = "" if recorded else "; --explain-oom, explain_oom in a worker's file, says which lines allocated it"
    return f"{device} held {_size(most)}{hint}"


def _describe(allocations: list[Allocation]) -> Iterator[str]:
    """A line for each of the places with the most, none where there are no places."""
    foreign = ("<", _OWN, *folders("torch", "jax", "jaxlib", "numpy"))
    place = functools.cache(lambda frames: _place(frames, foreign))
    size: Counter = Counter()
    number: Counter = Counter()
    for _, bytes_, count, frames in allocations:
        size[place(frames)] += bytes_
        number[place(frames)] += count
    if set(size) == {""}:
        return
    ordered = size.most_common()
    for at, bytes_ in ordered[:_MOST_PLACES]:
        yield f"  {_size(bytes_):>8}  {number[at]} × {at or 'lines that were not recorded'}"
    if ordered[_MOST_PLACES:]:
        yield f"  {_size(sum(bytes_ for _, bytes_ in ordered[_MOST_PLACES:])):>8}  by {len(ordered) - _MOST_PLACES} other lines"


def _place(frames: Frames, foreign: tuple) -> str:
    """The innermost functions that are no framework's, or the innermost of all."""
    ours = [frame for frame in frames if frame[2] not in _NO_FUNCTIONS and not _is_foreign(frame[0], foreign)] or frames[:1]
    return ", from ".join(f"{'/'.join(file.split(os.sep)[-2:])}:{line} {name}" for file, line, name in ours[:_MOST_FRAMES])


def _is_foreign(file: str, folders: tuple) -> bool:
    return file.startswith(folders) or file.startswith(_STANDARD) and not file.startswith(_PACKAGES)


def _size(bytes_: int) -> str:
    return f"{bytes_ / (1 << 30):.1f}GiB" if bytes_ >= 1 << 30 else f"{bytes_ / (1 << 20):.1f}MiB"


def _torch(torch: Any) -> Iterator[Allocation]:
    if not torch.cuda.is_initialized():
        return
    for segment in torch.cuda.memory._snapshot()["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                frames = tuple((frame["filename"], frame["line"], frame["name"]) for frame in block.get("frames") or ())
                yield f"cuda:{segment['device']}", block["size"], 1, frames


def _jax(jax: Any) -> Iterator[Allocation]:
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None or not bridge.backends_are_initialized():
        return
    import zlib

    unpacked = zlib.decompressobj(wbits=31).decompress(jax.profiler.device_memory_profile(), _MOST_PROFILE)
    if len(unpacked) < _MOST_PROFILE:
        yield from _pprof(unpacked)


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
        yield labels.get("device", "the device"), bytes_, count, tuple(frames)


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
