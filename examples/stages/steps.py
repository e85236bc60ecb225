"""What compare.py runs in each way: the steps of each pipeline, and how many processes run each."""

import pathlib
import time
from typing import Any, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent


def nap5(item):
    time.sleep(0.005)
    return item


def nap20(item):
    time.sleep(0.02)
    return item


class Step(NamedTuple):
    file: str
    name: str
    processes: int
    batch: int = 1

    def task(self):
        return f"{HERE / self.file}:{self.name}"

    def call(self):
        """The function, which takes a list where the step has a batch."""
        found: Any = getattr(__import__(self.file.removesuffix(".py")), self.name)
        return found() if isinstance(found, type) else found


class Pipeline(NamedTuple):
    steps: tuple
    items: int
    ideal: float = 0.0
    """Seconds, where the steps wait and calculate nothing."""


PIPELINES = {
    "images": Pipeline((Step("pipeline.py", "decode", 2), Step("pipeline.py", "Embed", 1, 32)), 5000),
    "naps": Pipeline((Step("steps.py", "nap20", 1), Step("steps.py", "nap20", 1)), 600, 600 * 0.02),
    "middle": Pipeline((Step("steps.py", "nap5", 1), Step("steps.py", "nap20", 2), Step("steps.py", "nap5", 1)), 4000, 4000 * 0.02 / 2),
}
