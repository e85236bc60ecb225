"""The operations of the first backend: JAX, on the device of its slot. What JAX does not have is a NotImplementedError."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

import gpumux


def devices(_):
    """The devices that JAX has in this slot."""
    return [f"{each.platform}:{each.id} {each.device_kind}" for each in jax.devices()]


def load(item):
    return gpumux.keep(jnp.asarray(np.random.default_rng(item["seed"]).standard_normal((item["n"], item["n"]), np.float32)))


def product(item):
    # A GPU would multiply with ten bits of mantissa otherwise.
    return gpumux.keep(jnp.matmul(*item, precision="highest"))


def relu(item):
    return gpumux.keep(jax.nn.relu(*item))


def softmax(item):
    return gpumux.keep(jax.nn.softmax(*item, axis=-1))


def eigenvalues(item):
    """The generalised ones: λ of a·v = λ·b·v, for a symmetric a and a positive definite b."""
    x = item[0]
    return gpumux.keep(jax.scipy.linalg.eigh(x + x.T, x @ x.T + jnp.eye(len(x)), eigvals_only=True))


def value(array):
    return np.asarray(array).tolist()
