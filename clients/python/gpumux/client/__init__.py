"""The client: maps a function over inputs, on this machine or on a server's workers.

Owns the way from Python values to the gpumux command and back. Never runs a function itself, keeps no state, and decides nothing
about a map: the command does. What it started ends with it, however it ends.
"""

from .cluster import Cluster, connect
from .executor import Executor
from .fault import BadInput, Error, Fault, MapFailed, Result, Unavailable
from .here import map, starmap, stream
from .parallel import register_joblib
from .rows import Rows
from .slurm import slurm
from .stages import stage

__all__ = [
    "BadInput", "Cluster", "Error", "Executor", "Fault", "MapFailed", "Result", "Rows", "Unavailable", "connect", "map", "register_joblib",
    "slurm", "stage", "starmap", "stream",
]
