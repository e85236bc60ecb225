import imitated
import jax

uint8, float32 = 1, 4


def _refuse(size):
    return jax.errors.JaxRuntimeError(f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {size} bytes.")


def _make(size, value=0.0, count=1):
    return imitated.Array(jax._pool, size, jax._limit(), _refuse, value, count)


def zeros(shape, dtype):
    return _make(shape[0] * shape[1] * dtype)


def full(shape, value, dtype=float32):
    return _make(4 * shape[0] * shape[1], value, shape[0] * shape[1])


def matmul(a, b):
    return full((a.count, 1), a.value * b.value)
