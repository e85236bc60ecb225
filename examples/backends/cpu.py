"""The same operations with NumPy, for what the first backend refuses. An array from there may be JAX's."""

import numpy as np

import gpumux


def load(item):
    return gpumux.keep(np.random.default_rng(item["seed"]).standard_normal((item["n"], item["n"]), np.float32))


def product(item):
    a, b = map(np.asarray, item)
    return gpumux.keep(a @ b)


def relu(item):
    return gpumux.keep(np.maximum(np.asarray(item[0]), 0))


def softmax(item):
    x = np.asarray(item[0])
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return gpumux.keep(powers / powers.sum(axis=-1, keepdims=True))


def eigenvalues(item):
    """The generalised ones: with b = l·lᵀ they are those of l⁻¹·a·l⁻ᵀ."""
    x = np.asarray(item[0])
    lower = np.linalg.cholesky(x @ x.T + np.eye(len(x), dtype=x.dtype))
    half = np.linalg.solve(lower, x + x.T)
    return gpumux.keep(np.linalg.eigvalsh(np.linalg.solve(lower, half.T)))


def value(array):
    return np.asarray(array).tolist()
