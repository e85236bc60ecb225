"""Workers in Slurm for a map of this program."""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple, Union

from .command import find


class Slurm(NamedTuple):
    """Jobs whose workers run the items of a map in place of this machine."""

    command: str
    """The shell command that submits them, stays with them and cancels them; {} is the worker's file."""


def slurm(nodes: int, **options: Union[str, int, None]) -> Slurm:
    """The workers= of a map: an array of so many jobs of one node each, which are cancelled when the map ends, fails or is stopped.

    options are those of sbatch, True for one without a value: gpumux.slurm(4, gpus=8, cpus_per_task=32, time="4:00:00", exclusive=True).
    Jobs that are preempted, or near their time limit, wait in the queue again. Needs Slurm's commands here, and a home folder, or
    XDG_STATE_HOME, that all nodes share.
    """
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1:
        raise ValueError(f"nodes is {nodes!r}; give how many workers, such as 4")
    words = ["env", f"GPUMUX_BINARY={find()}", "bash", os.path.join(os.path.dirname(__file__), "workers.sh"), "{}", str(nodes)]
    for name, value in options.items():
        if value is False:
            raise ValueError(f"{name} is False, which sbatch has no option for; leave it out, or give the opposite, such as no_requeue=True")
        if value is not None:
            words.append("--" + name.replace("_", "-") + ("" if value is True else f"={value}"))
    return Slurm(" ".join(word if word == "{}" else shlex.quote(word) for word in words))
