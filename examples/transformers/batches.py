"""What the tasks share: where they run, their texts, and when each batch ran."""

import functools
import os
import time

import numpy as np
import torch

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
TEXTS = 256


def tokens(items, vocabulary, length):
    """A batch of texts. There are 256 of them, over and over; nothing is fetched, so their tokens are random numbers."""
    rows = [np.random.default_rng(item % TEXTS).integers(vocabulary, size=length) for item in items]
    return torch.from_numpy(np.stack(rows)).to(DEVICE)


def timed(call):
    """Each value with when its batch began and ended, in seconds since 1970, and in which process."""

    @functools.wraps(call)
    def batch(self, items):
        began = time.time()
        values = call(self, items)
        ended = time.time()
        return [{"value": value, "began": began, "ended": ended, "pid": os.getpid()} for value in values]

    return batch
