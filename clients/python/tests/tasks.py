"""Functions that the tests map, of a module that slots import."""

import dataclasses
import os
import sys
import threading
import time

import gpumux


def double(x):
    return x * 2


def field(row):
    return row["a"] + row["b"]


def same(x):
    return x


def kinds(x):
    import gpumux

    return [x, type(x).__name__, gpumux.arg()]


def array(x):
    """Arrays, which travel as bytes, beside numbers."""
    import numpy

    return [x, *numpy.array([numpy.nan, numpy.inf]), {"a": numpy.array([x], "f4")}]


def shared(_):
    import gpumux

    return gpumux.arg()


class Offset:
    def __init__(self):
        self.offset = 100

    def __call__(self, x):
        return x + self.offset


class Look:
    """Looks rows of an array up, which is in memory once for all slots."""

    def __init__(self, index, offset):
        self.index, self.offset = index, offset

    def __call__(self, x):
        return [float(self.index[x].sum()) + self.offset, self.index.flags.writeable]


class Scale:
    def __init__(self, factor, offset=0):
        self.factor, self.offset = factor, offset

    def __call__(self, x):
        return self.factor * x + self.offset


def saving(x):
    import gpumux

    gpumux.save("a.txt", str(x))


def picky(x):
    if x == 3:
        raise ValueError("not three")
    return x


def once(item):
    """Leaves a mark for each run."""
    folder, n = item
    with open(os.path.join(folder, str(n)), "a") as marks:
        marks.write("x")
    time.sleep(0.02)
    return n


def await_file(path):
    """Runs until path is there."""
    while not os.path.exists(path):
        time.sleep(0.01)
    return "came"


def pid(_):
    return os.getpid()


def die(_):
    os._exit(9)


def leave_thread(seconds):
    threading.Thread(target=time.sleep, args=(seconds,)).start()


def signal_itself(number):
    os.kill(os.getpid(), number)
    time.sleep(600)


class Kept(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code

    def __reduce__(self):
        return Kept, (str(self), self.code)


class Broken(Exception):
    """Does not unpickle, as args has only the one."""

    def __init__(self, one, other):
        super().__init__(f"{one} {other}")


class Holding(Exception):
    """Does not pickle."""

    def __init__(self):
        super().__init__(open(os.devnull, "w"))


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Nothing can be set on one, such as what caused it."""


class Causeless(Exception):
    __cause__ = property()


def raise_class(kind):
    raise kind


class Bomb:
    """Raises where it is unpickled."""

    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        return raise_class, (self.kind,)


class BombError(Exception):
    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        return raise_class, (self.kind,)


def raise_bomb(kind):
    raise BombError(kind)


def bomb_row(row):
    return Bomb(ValueError) if row["bomb"] else row["n"]


def leaving(_):
    return Bomb(SystemExit)


prepared = []


def prepare(*values):
    prepared.append(values)


def prepared_with(_):
    return prepared


def unprepared():
    raise OSError("no model here")


def raise_kept(text, code):
    raise Kept(text, code)


def raise_broken(one, other):
    raise Broken(one, other)


def raise_holding():
    raise Holding


def exhaust():
    raise MemoryError("no more")


def fill(size):
    held = bytearray(os.urandom(1 << 20) * (size >> 20))
    await_file("/no/such/file")
    return len(held)


def leave():
    sys.exit(3)


class Point:
    def __init__(self, x):
        self.x = x


def move(point, by=1):
    return Point(point.x + by)


@dataclasses.dataclass
class Pair:
    left: int
    right: tuple


def name_of_type(x):
    return type(x).__name__


@gpumux.batch(max=8)
def batched(items):
    return [(item, type(item).__name__) for item in items]


@gpumux.concurrent(max=8)
async def together(item):
    return item, type(item).__name__


class OnUvloop:
    def __init__(self):
        import asyncio

        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

    @gpumux.concurrent(max=8)
    async def __call__(self, item):
        import asyncio

        return type(asyncio.get_running_loop()).__module__, "x" * item


@gpumux.batch(max=8)
def rows_of_floats(items):
    import numpy

    return numpy.zeros((len(items), 2), "f4")


@gpumux.batch(max=2)
def as_table(items):
    """Two rows for two items, as what the items name."""
    import collections

    import numpy
    import pandas
    import polars
    import pyarrow

    columns = {"n": list(range(len(items))), "text": ["x"] * len(items)}
    index = pandas.Index(["i"] * len(items), name="id")
    return {
        "pandas": lambda: pandas.DataFrame(columns), "index": lambda: pandas.DataFrame(columns, index), "arrow": lambda: pyarrow.table(columns),
        "polars": lambda: polars.DataFrame(columns), "series": lambda: polars.Series(columns["n"]), "array": lambda: pyarrow.array(columns["n"]),
        "generator": lambda: iter(columns["n"]), "mapping": lambda: collections.UserDict(columns), "dict": lambda: columns, "text": lambda: "ab",
        "named": lambda: collections.namedtuple("Found", "values indices")([1, 2], [3, 4]), "nothing": lambda: None,
        "short": lambda: numpy.zeros(len(items) + 1), "rows": lambda: pandas.DataFrame({"n": [1, 2, 3], "m": 0, "o": 0}),
    }[items[0]]()


def generator(_):
    return (n for n in range(2))


def joined(*words):
    return " ".join(map(str, words))


def printing(x):
    if x == 3:
        raise ValueError("not three")
    print("at", x)
    return x


def measured(row):
    if row["x"] == 3:
        raise ValueError("not three")
    return {"square": row["x"] ** 2, "key": row["id"]}


def mark(item):
    """Leaves a mark, and waits for a file where it has one."""
    folder, n, wait = item
    open(os.path.join(folder, str(n)), "w").close()
    if wait:
        await_file(os.path.join(folder, wait))
    return n


def await_true(condition):
    while not condition():
        time.sleep(0.01)


def failing_once(x):
    """Raises at the first try of each item; the map's arg is a folder."""
    mark = os.path.join(gpumux.arg(), f"tried-{x}")
    if not os.path.exists(mark):
        open(mark, "w").close()
        raise ValueError("once")
    return x


@gpumux.batch(max=3, format="pandas")
def of_pandas(rows):
    kind = type(rows).__name__
    return rows.assign(kind=kind, total=rows["n"] * 2) if kind == "DataFrame" else [[kind, value] for value in rows]


@gpumux.batch(max=8, format="pandas")
def backwards(rows):
    """Rows in another order: as pandas' table, as a column, and as a dict of columns."""
    found = rows.assign(size=len(rows)).sort_values("n", ascending=False)
    columns = {"n": found["n"], "m": rows["n"]}
    mixed = {"n": found["n"], "size": [len(rows)] * len(rows)}
    return {"table": found, "column": found["n"], "dict": columns, "again": found.sort_index(), "mixed": mixed}[rows["as"].iloc[0]]


@gpumux.batch(max=3, format="polars")
async def of_polars(rows):
    kind = type(rows).__name__
    return [{"n": row["n"], "kind": kind, "total": row["n"] * 2} for row in rows.to_dicts()] if kind == "DataFrame" else [[kind, value] for value in rows]


@gpumux.batch(max=3, format="arrow")
def of_arrow(rows):
    import pyarrow.compute

    kind = type(rows).__name__
    if kind != "Table":
        return [[kind, value] for value in rows.to_pylist()]
    return rows.append_column("kind", [[kind] * len(rows)]).append_column("total", pyarrow.compute.multiply(rows["n"], 2))


class OfNumpy:
    @gpumux.batch(max=3, format="numpy")
    def __call__(self, rows):
        if not isinstance(rows, dict):
            return [[type(rows).__name__, value] for value in rows]
        return {**rows, "kind": ["dict"] * len(rows["n"]), "total": rows["n"] * 2}


@gpumux.batch(max=3, format="numpy")
def crooked(rows):
    if 3 in rows["n"]:
        raise ValueError("three")
    return {"n": rows["n"][1:], "m": rows["n"]}


@gpumux.batch(max=4, format="numpy")
def shapes(rows):
    return [[str(column.dtype), list(column.shape)] for column in rows.values() for _ in column][: len(next(iter(rows.values())))]
