"""Maps a function on this machine."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import sys
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

from ..process import typed
from . import function as functions
from . import items as inputs
from . import values
from .options import Exceptions, Memory, Paths, Words, words
from .rows import Feed, Rows
from .slurm import Slurm
from .stages import Stage, Task, tasks

_log = logging.getLogger("gpumux")


def map(
    function: Union[Task, Sequence[Task]],
    items: Optional[Iterable[Any]] = None,
    *more: Iterable[Any],
    pickle: bool = False,
    source: Union[str, "os.PathLike[str]", None] = None,
    columns: Optional[Words] = None,
    text: Optional[Words] = None,
    key: Optional[str] = None,
    with_item: bool = False,
    skip: Optional[Paths] = None,
    slots: Union[int, str, Mapping[str, Union[int, str]], None] = None,
    memory: Optional[Memory] = None,
    devices: Optional[Words] = None,
    sharing: Optional[str] = None,
    pool: Optional[Words] = None,
    mode: Optional[str] = None,
    timeout: Optional[float] = None,
    start_timeout: Optional[float] = None,
    attempts: Optional[int] = None,
    retry_on: Optional[Exceptions] = None,
    backoff: Optional[float] = None,
    arg: Any = None,
    max_failures: Union[int, str, None] = None,
    chunk: Optional[int] = None,
    edition: Optional[str] = None,
    files: Union[str, "os.PathLike[str]", None] = None,
    id: Optional[str] = None,
    retry: bool = False,
    ordered: bool = True,
    raise_faults: bool = False,
    progress: Optional[bool] = None,
    show_output: bool = False,
    python: Optional[str] = None,
    gpus_per_slot: Optional[int] = None,
    pass_env: Sequence[str] = (),
    explain_oom: bool = False,
    workers: Union[Slurm, str, None] = None,
) -> Rows:
    """Run function on every item in slots on this machine, and give a Result for each in order.

    Results come while the map runs, and are kept until all were given: the same call continues
    after an interruption, a crash or kill -9. The same call has the same function, items and
    options, or the same id.

    function is a function, its name as "file.py:function", or a class that is made once per process
    and then called with each item. Those of notebooks, lambdas and inner functions need
    cloudpickle. Several in a list are stages, which work at the same time: the value of an item in
    one is its input in the next, and each Result has the value of the last. gpumux.stage gives one
    options of its own.
    items is any iterable of JSON values: rows of arrays arrive as lists, those of tables (pandas,
    Arrow, Polars) as dicts. With pickle items and values may be anything that pickle takes, and
    stay what they are. With more iterables function takes an item of each.
    source is a file or URL of items instead: JSON lines, CSV, TSV or Parquet, also all files
    of a folder or a pattern; columns are those of a table that items have, text those of CSV whose
    cells stay text, such as IDs.
    key names the field of the items, dicts, that each Result has as its key; with_item gives it the
    whole item. skip is files of results, or patterns of them, whose items are left out, known by
    key, or as a whole by with_item; those left are counted anew.
    slots is how many run side by side on a device, or "auto", or a dict of them by pool, such as
    {"cpu": 6, "gpu": 2}: stages take these pools in turn; memory is the budget of each, such as
    "4GiB" or bytes.
    timeout is the most seconds of one item, attempts how often one that raises is tried, backoff
    the seconds before the next try. retry_on is the exceptions that are worth it, classes or their
    names, such as (TimeoutError, "openai.RateLimitError"); others fail at once. start_timeout is the
    most seconds that a process may take to start, downloads of the function's module included (300).
    max_failures, such as 10 or "5%", is the number of failed items with which the map goes on; with 0
    the first ends it. arg is shared by all items, such as a configuration: gpumux.arg() in the
    function, and the arguments of a class, if a dict. retry runs the failed items of a map again.
    edition="any" lets the function's file be edited while the map runs.
    files is the folder for files that items keep with gpumux.save, each as <index>/<name>; the
    default is ./<id of the map>.files.
    raise_faults raises the Fault of the first failed item, and stops the map. progress shows a bar,
    if tqdm is installed; the default is in terminals and notebooks. show_output prints an item's
    output when its result is given.
    workers are those of other hosts: gpumux.slurm, which leaves this machine out, or a shell command
    that starts some with the file {}, such as "ssh gpu2 gpumux worker -f {}".
    The other options are those of `gpumux map --local`.

    Raises BadInput, Unavailable or MapFailed, with what the command said.
    """
    options = dict(
        columns=columns, text=text, key=key, with_item=with_item, skip=skip, slots=slots, memory=memory, devices=devices, sharing=sharing, pool=pool, mode=mode,
        timeout=timeout, start_timeout=start_timeout, attempts=attempts, retry_on=retry_on, backoff=backoff, arg=arg,
        max_failures=max_failures, chunk=chunk, edition=edition, files=files, id=id, retry=retry, ordered=ordered,
        python=python or sys.executable, gpus_per_slot=gpus_per_slot, pass_env=words(pass_env), explain_oom=explain_oom,
        workers=workers.command if isinstance(workers, Slurm) else workers, no_worker=isinstance(workers, Slurm),
    )
    return _start(["map", "--local", "--out", "-"], function, items, more, source, pickle, options, show=progress, show_output=show_output,
        raise_faults=raise_faults)


def starmap(function: Union[Task, Sequence[Task]], items: Iterable[Iterable[Any]], **options: Any) -> Rows:
    """gpumux.map with items that are the arguments of one call each: function(*item). The options are those of gpumux.map."""
    return map(function, inputs.Calls.of(items), **options)


def stream(
    function: Union[Callable[..., Any], str],
    items: Iterable[Any],
    *more: Iterable[Any],
    pickle: bool = False,
    ahead: int = 1000,
    key: Optional[str] = None,
    with_item: bool = False,
    slots: Union[int, str, None] = None,
    memory: Optional[Memory] = None,
    devices: Optional[Words] = None,
    sharing: Optional[str] = None,
    pool: Optional[str] = None,
    mode: Optional[str] = None,
    timeout: Optional[float] = None,
    start_timeout: Optional[float] = None,
    attempts: Optional[int] = None,
    retry_on: Optional[Exceptions] = None,
    arg: Any = None,
    ordered: bool = True,
    raise_faults: bool = False,
    progress: Optional[bool] = None,
    show_output: bool = False,
    python: Optional[str] = None,
    gpus_per_slot: Optional[int] = None,
    pass_env: Sequence[str] = (),
    explain_oom: bool = False,
) -> Rows:
    """Run function on each item as it comes, in slots on this machine, and give a Result for each.

    The items may never end. At most ahead items are read whose results were not given yet. Nothing
    is kept: unfinished work is lost when the program ends. An exception of the items is raised
    after the results of those before. The other options are those of gpumux.map.
    """
    if isinstance(function, (list, tuple, Stage)):
        raise TypeError("gpumux.stream takes one function; give it the values of another stream, or the functions to gpumux.map")
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 1:
        raise ValueError(f"ahead={ahead!r}: give a whole number of at least 1")
    options = dict(
        key=key, with_item=with_item, slots=slots, memory=memory, devices=devices, sharing=sharing, pool=pool, mode=mode, timeout=timeout,
        start_timeout=start_timeout, attempts=attempts, retry_on=retry_on, arg=arg, ordered=ordered, python=python or sys.executable,
        gpus_per_slot=gpus_per_slot, pass_env=words(pass_env), explain_oom=explain_oom,
    )
    return _start(["stream"], function, items, more, None, pickle, options, show=progress, show_output=show_output, raise_faults=raise_faults,
        ahead=ahead)


def _start(
    words: list[str], function: Any, items: Any, more: Sequence[Any], source: Any, pickle: bool, options: dict, *, show: Optional[bool],
    show_output: bool, raise_faults: bool, ahead: Optional[int] = None,
) -> Rows:
    """Start the command of words for a function and its items."""
    if more:
        items = inputs.together([items, *more])
    calls = isinstance(items, inputs.Calls)
    if pickle and source is not None:
        raise TypeError("pickle=True goes with items of this program; those of source= are JSON")
    run = tasks(function, functions.state())
    # Whether slots import the program's own module, with its classes.
    imports = [each.made is None and getattr(one, "__module__", None) == "__main__" for one, each in zip(run.functions, run.named)]
    write = inputs.pickled(calls, imports[0], options["key"]) if pickle else inputs.as_json(calls)
    over, lines, total = inputs.given(items, source, write, ranges=not pickle and ahead is None and not options.get("skip"))
    if lines is not None and total is None and ahead is None:
        _tell_of_streams()
    environ = dict(os.environ)
    paths = [each.path for each in run.named if each.path is not None]
    if paths:
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*dict.fromkeys(paths), os.environ.get("PYTHONPATH")]))
        options["pass_env"].append("PYTHONPATH")
    if pickle or calls:
        environ[typed.VARIABLE] = f"{'pickle' if pickle else 'arguments'} {functions.main() if any(imports) else ''}"
        options["pass_env"].append(typed.VARIABLE)

    def done() -> None:
        for each in run.named:
            if each.made is not None:
                shutil.rmtree(os.path.dirname(each.made), ignore_errors=True)

    return Rows(
        [words[0], *run.words, *words[1:], *over], options, None if lines is None else Feed(lines, total, ahead), environ=environ, total=total,
        show=show, show_output=show_output, raise_faults=raise_faults, value=values.read if pickle else _same, item=values.item, done=done,
    )


def _same(value: Any) -> Any:
    return value


@functools.lru_cache(maxsize=None)
def _tell_of_streams() -> None:
    _log.warning("gpumux.map reads all of a generator before the first item runs; gpumux.stream takes items as they come")
