"""Maps tasks on the workers of a Temporal server."""

from __future__ import annotations

import os
import subprocess
from typing import Any, Iterable, NamedTuple, Optional, Sequence, Union

from . import items as inputs
from .command import find
from .fault import failure
from .options import Exceptions, Paths, Words, flags
from .rows import Feed, Rows
from .stages import Stage, tasks


class Cluster(NamedTuple):
    """The workers of one server. Where something is None, the command's own defaults hold, which Temporal's variables set."""

    address: Optional[str] = None
    """host:port of Temporal."""
    namespace: Optional[str] = None
    store: Optional[str] = None
    """The workers' store, such as s3://bucket/gpumux."""
    connect: Union[str, "os.PathLike[str]", None] = None
    """The connection file of a server of `gpumux dev --listen`, in place of an address."""

    def map(
        self,
        task: Union[str, Stage, Sequence[Union[str, Stage]]],
        items: Optional[Iterable[Any]] = None,
        *,
        source: Union[str, "os.PathLike[str]", None] = None,
        columns: Optional[Words] = None,
        text: Optional[Words] = None,
        key: Optional[str] = None,
        with_item: bool = False,
        skip: Optional[Paths] = None,
        pool: Optional[Words] = None,
        mode: Optional[str] = None,
        timeout: Optional[float] = None,
        attempts: Optional[int] = None,
        retry_on: Optional[Exceptions] = None,
        backoff: Optional[float] = None,
        arg: Any = None,
        max_failures: Union[int, str, None] = None,
        chunk: Optional[int] = None,
        edition: Optional[str] = None,
        priority: Optional[int] = None,
        fairness_key: Optional[str] = None,
        fairness_weight: Optional[float] = None,
        no_wait: bool = False,
        files: Union[str, "os.PathLike[str]", None] = None,
        id: Optional[str] = None,
        retry: bool = False,
        ordered: bool = True,
        raise_faults: bool = False,
        progress: Optional[bool] = None,
        show_output: bool = False,
    ) -> Rows:
        """Run a task that the workers know over items, or over a source in their store, and give a Result for each as they come.

        Several names in a list are stages; gpumux.stage gives one options of its own, such as its pool.

        The map is the server's: it goes on when this program ends, and the same call, or one with the same id, takes it up again.
        Closing the results leaves it running; cancel(id) stops it. See gpumux.map for what the options share with it.
        """
        over, feed, total = inputs.given(items, source)
        options = dict(
            columns=columns, text=text, key=key, with_item=with_item, skip=skip, pool=pool, mode=mode, timeout=timeout, attempts=attempts,
            retry_on=retry_on, backoff=backoff, arg=arg, max_failures=max_failures, chunk=chunk, edition=edition, priority=priority, fairness_key=fairness_key,
            fairness_weight=fairness_weight, no_wait=no_wait, files=files, id=id, retry=retry, ordered=ordered, **self._asdict(),
        )
        return Rows(
            ["map", *tasks(task, "").words, "--out", "-", *over], options, feed and Feed(feed, total), show=progress, show_output=show_output,
            raise_faults=raise_faults, total=total,
        )

    def results(
        self, id: str, *, files: Union[str, "os.PathLike[str]", None] = None, ordered: bool = True,
        raise_faults: bool = False, progress: Optional[bool] = None, show_output: bool = False,
    ) -> Rows:
        """The results of a map, as they come while it runs. files is a folder for what items kept with gpumux.save."""
        options = dict(files=files, ordered=ordered, **self._asdict())
        return Rows(["results", id, "--follow"], options, show=progress, show_output=show_output, raise_faults=raise_faults)

    def cancel(self, id: str) -> None:
        """Stop a map. What has finished is kept, and the same map started again goes on."""
        options = {**self._asdict(), "store": None}
        ended = subprocess.run([find(), "cancel", id, *flags(options)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if ended.returncode != 0:
            raise failure(ended.returncode, ended.stderr.strip(), options)


def connect(
    address: Optional[str] = None, *, file: Union[str, "os.PathLike[str]", None] = None, namespace: Optional[str] = None, store: Optional[str] = None
) -> Cluster:
    """The workers of the Temporal server at address, or of that which has written a connection file, by default those of TEMPORAL_ADDRESS
    or TEMPORAL_CONFIG_FILE. Nothing is sent until something is asked."""
    return Cluster(address, namespace, store, file)
