"""Training of a small network whose steps are garbage in reference cycles, which only a collection finds. An item is a seed."""

import gc
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a second one is slower here

import numpy as np

# As programs do that want steps of even length. Python counts objects and not their bytes, so it would come late in any case.
gc.disable()

STEPS = 200


class Step:
    """One step. It holds the function of its gradients, which holds the step: a cycle with 80 KiB of arrays."""

    def __init__(self, first, second, x, y):
        self.hidden = np.tanh(x @ first)
        self.error = self.hidden @ second - y
        self.loss = float((self.error**2).mean())

        def gradients():
            back = self.error @ second.T * (1 - self.hidden**2)
            return x.T @ back * 2 / len(x), self.hidden.T @ self.error * 2 / len(x)

        self.gradients = gradients


def train(seed, steps=STEPS):
    """The loss before and after some steps with the network of a seed."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((512, 1024))
    y = np.sin(x[:, :8].sum(axis=1, keepdims=True))
    first, second = random.standard_normal((1024, 16)) / 32, random.standard_normal((16, 1)) / 4
    losses = []
    for _ in range(steps):
        step = Step(first, second, x, y)
        losses.append(step.loss)
        a, b = step.gradients()
        first, second = first - 0.002 * a, second - 0.002 * b
    return [losses[0], losses[-1]]


def long(seed):
    """Five times as many steps, and as much garbage: between two steps nobody cleans up."""
    return train(seed, 5 * STEPS)
