"""The detector that gpumux bench measures, with weights that tell one place from another."""

import functools
import pathlib
import sys
import time

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "internal" / "cli" / "bench"))
import workloads


def detect(number):
    """The highest score of each output over all places of an image, and what the inference took."""
    began = time.perf_counter()
    scores = np.asarray(compiled()(image(number), *weights()))
    return {"seconds": time.perf_counter() - began, "scores": scores.max(axis=1)}


@functools.cache
def compiled():
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")  # a GPU would take 10 of 23 bits
    return jax.jit(workloads.detect)


def image(number):
    return np.random.default_rng(number).random((workloads.CHANNELS[0], workloads.PIXELS, workloads.PIXELS), np.float32)


@functools.cache
def weights():
    """For each layer nine matrices, one for each place of a kernel of 3 x 3, row by row; and the head's matrix."""
    random = np.random.default_rng(0)
    sides = zip(workloads.CHANNELS, workloads.CHANNELS[1:])
    kernels = [list(random.normal(0, (2 / (9 * into)) ** 0.5, (9, out, into)).astype(np.float32)) for into, out in sides]
    return kernels, random.normal(0, workloads.CHANNELS[-1] ** -0.5, (workloads.OUTPUTS, workloads.CHANNELS[-1])).astype(np.float32)
