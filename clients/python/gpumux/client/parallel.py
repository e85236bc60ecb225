"""A backend for joblib."""

from __future__ import annotations

import concurrent.futures
import os
from typing import Any, Optional

from .executor import Executor
from .fault import Error

# What a Parallel gives every backend. All else are options that were given to it.
_OF_JOBLIB = "prefer", "require", "max_nbytes", "temp_folder", "mmap_mode", "verbose", "context"


def register_joblib() -> None:
    """Let joblib run its calls in slots: joblib.parallel_config(backend="gpumux", n_jobs=2), with the options of an Executor beside it."""
    import joblib
    from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase

    class Backend(AutoBatchingMixin, ParallelBackendBase):
        """Runs batches of calls in an Executor, which lives as long as one Parallel does."""

        supports_retrieve_callback = True
        default_n_jobs = -1

        def __init__(self, *, nesting_level: Optional[int] = None, inner_max_num_threads: Optional[int] = None, **options: Any) -> None:
            super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
            self._options = options
            self._executor: Optional[Executor] = None
            # joblib submits in its callbacks, and the thread that reads results must not wait for that.
            self._callbacks = concurrent.futures.ThreadPoolExecutor(1)

        def effective_n_jobs(self, n_jobs: Optional[int]) -> int:
            """How many calls joblib thinks run side by side. It would run those of a single job in the program itself."""
            if n_jobs == 0:
                raise ValueError("n_jobs == 0 in Parallel has no meaning")
            slots = self._options.get("slots")
            return max(2, n_jobs if n_jobs and n_jobs > 0 else slots if isinstance(slots, int) else os.cpu_count() or 2)

        def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
            self.parallel = parallel
            given = {name: value for name, value in options.items() if name not in _OF_JOBLIB}
            self._given = {"slots": n_jobs if n_jobs > 0 else None, **self._options, **given}
            return self.effective_n_jobs(n_jobs)

        def submit(self, func: Any, callback: Any = None) -> Any:
            if self._executor is None:
                self._executor = Executor(**self._given)
            try:
                future = self._executor.submit(type(func).__call__, func)
            except Exception as error:
                # Where it is raised in a callback, joblib waits for ever.
                future = concurrent.futures.Future()
                future.set_exception(error)
            future.add_done_callback(lambda done: self._callbacks.submit(callback, done))
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            try:
                return out.result()
            except Exception as error:
                try:
                    error.__traceback__ = None  # as joblib will, which waits for ever where it cannot
                except Exception:
                    raise error.__cause__ or Error(repr(error)) from None
                raise

        def abort_everything(self, ensure_ready: bool = True) -> None:
            self._end(Executor.terminate_workers)

        def terminate(self) -> None:
            self._end(Executor.shutdown)

        def _end(self, end: Any) -> None:
            executor, self._executor = self._executor, None
            if executor is not None:
                end(executor)

    joblib.register_parallel_backend("gpumux", Backend)
