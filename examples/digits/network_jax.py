"""The same training as network_numpy, compiled by JAX into one program per size of network."""

import jax
import jax.numpy as jnp
import numpy as np

MOMENTUM = 0.9
DEVICE = f"{jax.devices()[0].device_kind} (JAX)"


def fit(start, x, y, batches, rate, l2):
    """Run one step per row of batches, which holds positions in x; return the trained w1, b1, w2, b2."""
    return [np.asarray(p) for p in _fit([jnp.asarray(p) for p in start], x, y, batches, jnp.float32(rate), jnp.float32(l2))]


def _loss(parameters, images, digits, l2):
    w1, b1, w2, b2 = parameters
    logits = jax.nn.relu(images @ w1 + b1) @ w2 + b2
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), digits[:, None], axis=1)
    return -picked.mean() + l2 / 2 * ((w1**2).sum() + (w2**2).sum())


@jax.jit
def _fit(parameters, x, y, batches, rate, l2):
    def step(state, batch):
        parameters, speeds = state
        slopes = jax.grad(_loss)(parameters, x[batch], y[batch], l2)
        speeds = [MOMENTUM * speed - rate * slope for speed, slope in zip(speeds, slopes)]
        return ([p + speed for p, speed in zip(parameters, speeds)], speeds), None

    speeds = [jnp.zeros_like(p) for p in parameters]
    (parameters, _), _ = jax.lax.scan(step, (parameters, speeds), batches)
    return parameters
