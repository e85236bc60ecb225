"""Fetches the arrays of NumPy, PyTorch, CuPy and JAX as NumPy's.

Owns which types are arrays of numbers, and the digits of short floats. Never imports a library, and never changes a value.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}


def known(kind: type) -> bool:
    """Whether values of this type may be arrays of numbers."""
    return _module(kind) in _FETCH


def fetch(value: Any) -> Any:
    """value as a NumPy array of numbers, fetched from its device, or None where that is not simple."""
    get = _FETCH.get(_module(type(value)))
    if get is None or "numpy" not in sys.modules:
        return None
    try:
        array = get(value)
    except Exception:
        # encode.py describes the error.
        return None
    if type(array) is not sys.modules["numpy"].ndarray:
        return None
    dtype = array.dtype
    if dtype.itemsize in _SIZES.get(dtype.kind, ()):
        return array
    return array.astype("f4") if dtype.name == "bfloat16" else None


def shortest(value: Any) -> Any:
    """An array or a scalar of floats of 16 or 32 bits as nested lists or a number, each float with its own shortest digits."""
    numpy = sys.modules["numpy"]
    masked = isinstance(value, numpy.ma.MaskedArray)
    array = value.data if masked else fetch(value)
    if array is None:
        array = numpy.asarray(value)
    if array.dtype.name == "bfloat16":
        array = array.astype("f4")
    # One float in 2^31 becomes another if its shortest digits are read as a double first.
    with numpy.errstate(all="ignore"):
        exact, short = array.astype("f8"), array.astype("U").astype("f8")
        digits = numpy.where(short.astype(array.dtype) == array, short, exact)
        return (numpy.where(value.mask, None, digits) if masked else digits).tolist()


def _torch(value: Any) -> Any:
    value = value.detach().cpu()
    # NumPy has no bfloat16; every one is a float32.
    return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()


# How to copy each library's arrays to the host. Subclasses have rules of their own, which encode.py respects.
_FETCH: dict[str, Callable[[Any], Any]] = {
    "numpy.ndarray": lambda value: value,
    "numpy.memmap": lambda value: sys.modules["numpy"].asarray(value),
    "torch.Tensor": _torch,
    "torch.nn.parameter.Parameter": _torch,
    "cupy.ndarray": lambda value: value.get(),
    "jaxlib.ArrayImpl": lambda value: sys.modules["numpy"].asarray(value),
}


def _module(kind: type) -> str:
    module = kind.__module__
    # The module of a class differs between releases of its library.
    library = module.partition(".")[0]
    if library in ("cupy", "jaxlib"):
        module = library
    return f"{module}.{kind.__qualname__}"
