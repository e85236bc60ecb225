"""Stochastic gradient descent with momentum for one hidden layer, in NumPy."""

import numpy as np

DEVICE = "CPU (NumPy)"
MOMENTUM = 0.9


def fit(start, x, y, batches, rate, l2):
    """Run one step per row of batches, which holds positions in x; return the trained w1, b1, w2, b2."""
    parameters = [p.copy() for p in start]
    speeds = [np.zeros_like(p) for p in parameters]
    w1, b1, w2, b2 = parameters
    rate, momentum = np.float32(rate), np.float32(MOMENTUM)
    every = np.arange(batches.shape[1])
    # A rate that is too high ends in infinities, which the result then shows.
    with np.errstate(over="ignore", invalid="ignore"):
        for batch in batches:
            images, digits = x[batch], y[batch]
            hidden = np.maximum(images @ w1 + b1, 0)
            error = hidden @ w2 + b2
            error -= error.max(axis=1, keepdims=True)
            np.exp(error, out=error)
            error /= error.sum(axis=1, keepdims=True)
            error[every, digits] -= 1
            error /= len(batch)
            back = (error @ w2.T) * (hidden > 0)
            slopes = (images.T @ back + l2 * w1, back.sum(axis=0), hidden.T @ error + l2 * w2, error.sum(axis=0))
            for parameter, speed, slope in zip(parameters, speeds, slopes):
                speed *= momentum
                speed -= rate * slope.astype(np.float32)
                parameter += speed
    return parameters
