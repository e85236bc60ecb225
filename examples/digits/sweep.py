"""A sweep over small neural networks that read handwritten digits: one item is one configuration to train.

    {"hidden": 64, "rate": 0.1, "l2": 0.0001, "epochs": 80, "seed": 1}

The same numbers go in whether JAX or NumPy trains, so both come to the same network but for rounding.
"""

import gzip
import os
import time

import numpy as np

import gpumux

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = 10
TRAINED = 1400  # of 1,797 images; the others measure
BATCH = 50
FIELDS = {"hidden", "rate", "l2", "epochs", "seed"}


def train(item):
    """Train one network; return how well it reads the images that it has not seen."""
    if set(item) != FIELDS:
        raise ValueError(f"a configuration has the fields {sorted(FIELDS)}, not {sorted(item)}")
    began = time.perf_counter()
    x, y = gpumux.resident("digits", _load)
    network = gpumux.resident("network", _backend)

    random = np.random.default_rng(item["seed"])
    shapes = [(x.shape[1], item["hidden"]), (item["hidden"], CLASSES)]
    start = [a for rows, columns in shapes for a in (_weights(random, rows, columns), np.zeros(columns, np.float32))]
    order = np.concatenate([random.permutation(TRAINED) for _ in range(item["epochs"])]).astype(np.int32)
    trained = network.fit(start, x[:TRAINED], y[:TRAINED], order.reshape(-1, BATCH), item["rate"], item["l2"])

    accuracy, loss = _measure(trained, x[TRAINED:], y[TRAINED:])
    return {
        "accuracy": round(accuracy, 4),
        "loss": round(loss, 4) if np.isfinite(loss) else None,
        "seconds": round(time.perf_counter() - began, 3),
        "device": network.DEVICE,
    }


def _backend():
    """JAX where it is installed, on the GPU when the slot has one; else NumPy."""
    try:
        import network_jax as network
    except ImportError:
        import network_numpy as network
    return network


def _load():
    """The images, one per row with values from 0 to 1, and their digits, in an order that is always the same."""
    with gzip.open(os.path.join(HERE, "digits.csv.gz"), "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    return table[:, :-1] / 16, table[:, -1].astype(np.int32)


def _weights(random, rows, columns):
    return (random.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)


def _measure(trained, x, y):
    """The share of images that are read right, and the mean cross-entropy."""
    w1, b1, w2, b2 = trained
    logits = (np.maximum(x @ w1 + b1, 0) @ w2 + b2).astype(np.float64)
    top = logits.max(axis=1, keepdims=True)
    logarithms = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return float((logits.argmax(axis=1) == y).mean()), float(-logarithms[np.arange(len(y)), y].mean())
