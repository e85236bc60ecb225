"""Tasks that fail."""

import os
import weakref

import gpumux


def raises(x):
    if x == "exit":
        raise SystemExit(3)
    if x == "interrupt":
        raise KeyboardInterrupt
    if x == "deep":
        return raises(x)
    if x == "memory":
        raise MemoryError
    if x == "chained":
        try:
            {}["missing"]
        except KeyError as error:
            raise RuntimeError("could not look up") from error
    if x == "value":
        return {"scores": [1, object()]}
    if x == "group":
        raise BaseException("not an Exception")
    return x


async def raises_awaited(x):
    if x == "exit":
        raise SystemExit(3)
    if x == "error":
        raise ValueError("awaited")
    return x


tries = {}


def flaky(x):
    """Succeeds at the x-th try."""
    tries[x] = tries.get(x, 0) + 1
    if tries[x] < x:
        raise OverflowError(f"try {tries[x]}")
    return tries[x]


@gpumux.batch(max=8)
def flaky_batch(xs):
    return [flaky(x) for x in xs]


def dies(x):
    if x == "die":
        os.abort()
    return x


class Big:
    """Stands for a large array."""

    def tolist(self):
        return "big"


seen = []


def keeps(x):
    """How many of the arrays of earlier items are alive."""
    alive = sum(ref() is not None for ref in seen)
    if x == "count":
        return alive
    big = Big()
    seen.append(weakref.ref(big))
    if x == "raise":
        raise ValueError("with an array in its frame")
    return big


class OutOfMemoryError(RuntimeError):
    pass


OutOfMemoryError.__module__ = "torch"

calls = []
room = 3


@gpumux.batch(max=16)
def tight(items):
    """Has room for three items. "calls" tells the sizes of the calls so far."""
    if items == ["calls"]:
        return [calls[:]]
    calls.append(len(items))
    if len(items) > room:
        array = Big()
        seen.append(weakref.ref(array))
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return [sum(ref() is not None for ref in seen)] * len(items)


@gpumux.batch(max=4)
def never(items):
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@gpumux.batch(max=4)
def guilty(items):
    calls.append(len(items))
    if "bad" in items:
        raise ValueError("bad item")
    return [object() if item == "odd" else item for item in items]


@gpumux.batch(max=4)
def short(items):
    return items[:1]
