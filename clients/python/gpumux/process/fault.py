"""Describes exceptions for the worker, which classifies them.

Owns what a fault says. Never keeps an exception: its traceback would hold the arrays of its frames.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, Iterator

from .encode import type_name

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MAX_MESSAGE = 8 << 10
_MAX_TRACEBACK = 64 << 10
_MAX_CHAIN = 16

# The attribute with the device runtime's error number, by the package of the exception.
_CODES = {"torch": "error_code", "cupy": "status", "cupy_backends": "status", "numba": "code", "cuda": "code"}

# How the frameworks say that memory is exhausted.
_MEMORY_CLASSES = ("OutOfMemoryError", "OutOfGPUMemoryError", "MemoryError", "ResourceExhaustedError")
_MEMORY_TEXTS = (
    "out of memory",
    "RESOURCE_EXHAUSTED",
    "Resource exhausted",
    "OOM when allocating",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "out_of_memory:",
    "Failed to allocate memory for requested buffer",
    "is smaller than requested bytes of",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "Exceeded memory limit",
    "Maximum pool size exceeded",
    "No available memory for the cache blocks",
    "KV cache is needed, which is larger",
    "OUT_OF_DEVICE_MEMORY",
    "failed to allocate CUDA",
    "failed to allocate Vulkan",
    "Cannot allocate memory",
)


def describe(error: BaseException, memory: bool | None = None) -> dict:
    """The fault of a message: class, message, and where there are any traceback, chain and code. memory is is_memory's answer, if known."""
    try:
        fault: dict[str, Any] = {"class": class_name(error), "message": _message(error)}
        text = _traceback(error)
        if memory is None:
            memory = is_memory(error)
        if memory:
            text = f"{text}\n{_held(error)}".strip("\n")
        if text:
            fault["traceback"] = text
        chain = [{"class": class_name(each), "message": _message(each)} for each in _chain(error)]
        if chain:
            fault["chain"] = chain
        code = _code(error)
        if code:
            fault["code"] = code
        return fault
    except (MemoryError, RecursionError):
        # There is no memory to describe it.
        return {"class": class_name(error), "message": "(no memory was left to describe it)"}


def plain(class_: str, message: str) -> dict:
    """A fault without an exception of the task."""
    return {"class": class_, "message": message}


def is_memory(error: BaseException) -> bool:
    """Whether error, or what led to it, says that memory is exhausted."""
    for each in (error, *_chain(error)):
        if any(kind.__name__ in _MEMORY_CLASSES for kind in type(each).__mro__):
            return True
        if isinstance(each, (RuntimeError, OSError)) or type(each).__module__ not in ("builtins", "__main__"):
            text = _message(each)
            if any(sign in text for sign in _MEMORY_TEXTS):
                return True
    return False


def class_name(error: BaseException) -> str:
    return type_name(type(error))


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the task called sys.exit({error.code!r}); return a value or raise an exception instead"
    try:
        text = str(error)
    except Exception as second:
        text = f"(its str() raised {type(second).__name__})"
    return _cut(text, _MAX_MESSAGE)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The causes of error, nearest first; members of a group come before the cause of the group."""
    seen = {id(error)}
    queue = _causes(error)
    while queue and len(seen) <= _MAX_CHAIN:
        each = queue.pop(0)
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            queue = _causes(each) + queue


def _causes(error: BaseException) -> list:
    try:
        members, cause = getattr(error, "exceptions", None), error.__cause__
        context = None if error.__suppress_context__ else error.__context__
    except Exception:
        return []  # attributes may be code of the task
    causes = [each for each in members if isinstance(each, BaseException)] if isinstance(members, (tuple, list)) else []
    last = context if cause is None else cause
    return causes if last is None else [*causes, last]


def _code(error: BaseException) -> int:
    field = _CODES.get(type(error).__module__.partition(".")[0])
    code = getattr(error, field, 0) if field else 0
    try:
        return int(code)
    except (TypeError, ValueError):
        return 0


def _traceback(error: BaseException) -> str:
    """The traceback as Python prints it, from the first frame of the task on."""
    tb = error.__traceback__
    between = (_ROOT, "<frozen importlib", *folders("asyncio", "importlib"))
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(between):
        tb = tb.tb_next
    if tb is None and not isinstance(error, SyntaxError) and error.__cause__ is None:
        return ""
    try:
        text = "".join(traceback.format_exception(type(error), error, tb))
    except Exception as second:
        text = f"(the traceback does not print: {type(second).__name__})"
    return _cut(text, _MAX_TRACEBACK)


def _held(error: BaseException) -> str:
    """What the devices of the frameworks held that say so in error, or in what led to it."""
    loaded = {"torch", "jax"} & sys.modules.keys()
    if not loaded:
        return ""
    try:
        chain = [error, *_chain(error)]
        packages = {type(each).__module__.partition(".")[0].replace("jaxlib", "jax") for each in chain}
        if any("CUDA" in _message(each) for each in chain):
            packages.add("torch")
        # Here, since few processes ever need it.
        from .explain import held

        return held(packages & loaded)
    except Exception:
        # There may be neither memory nor a descriptor for it.
        return ""


def folders(*packages: str) -> Iterator[str]:
    """Where those of the packages lie that are there."""
    for name in packages:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            yield os.path.dirname(file) + os.sep


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters cut …\n{text[-half:]}"
