"""Arrays of random bits: by themselves, which travel raw, and number by number, which travel as JSON."""

import gpumux
import numpy

random = numpy.random.default_rng(20)


def both(dtype):
    """The same numbers twice: the array, then as the next item asks the same again, a list of its numbers."""
    if dtype is not None:
        both.last = numpy.frombuffer(random.bytes(8 * 3000), dtype)[:3000].reshape(2, -1, 5)
        return both.last
    return list(both.last.ravel())


def flags(_):
    return numpy.frombuffer(random.bytes(100), "u1").reshape(10, 10) > 127


@gpumux.batch(max=8)
def embeddings(items):
    return numpy.array([[item / 7, item] for item in items], "f4")


def large(n):
    return numpy.arange(n) / 7


def data(n):
    return b"\x00\xff" * n
