"""Tasks whose items run together: by cost, and at the same time."""

import asyncio

import gpumux

counted = []


def cost(item):
    if item == "counted":
        return 0
    counted.append(item)
    return {"raises": lambda: 1 / 0, "text": lambda: "12", "nan": lambda: float("nan"), "less": lambda: -1}.get(item, lambda: item)()


@gpumux.batch(max=4, cost=cost, limit=10)
def priced(items):
    """Each with how many were together. "counted" tells how often a cost was asked for."""
    if items == ["full", 1]:
        raise MemoryError
    return [counted[:] if item == "counted" else [item, len(items)] for item in items]


@gpumux.batch(max=8, limit=10)
def texts(items):
    return [len(items)] * len(items)


class Gate:
    """Holds items until enough have begun."""

    def __init__(self):
        self.begun = 0
        self.changed = asyncio.Condition()

    async def begin(self, until):
        async with self.changed:
            self.begun += 1
            self.changed.notify_all()
            await self.changed.wait_for(lambda: self.begun >= until)


gate = None


@gpumux.concurrent(max=4)
async def meet(until):
    """Ends when so many items have begun; returns how many had."""
    global gate
    gate = gate or Gate()
    await gate.begin(until)
    return gate.begun


tries = {}


@gpumux.concurrent
async def faulty(item):
    tries[item] = tries.get(item, 0) + 1
    await asyncio.sleep(0)
    if item == "exit":
        raise SystemExit(3)
    if item == "odd":
        return object()
    if item == "third" and tries[item] < 3:
        raise ValueError(f"try {tries[item]}")
    return tries[item]


@gpumux.concurrent
async def flaky(x):
    tries[x] = tries.get(x, 0) + 1
    if tries[x] < x:
        raise OverflowError(f"try {tries[x]}")
    return tries[x]


opened = {}


@gpumux.concurrent(max=4)
async def reports(item):
    """The second tells before the first; it ends when the third opens it."""
    told, opens = (opened.setdefault(name, asyncio.Event()) for name in ("told", "opens"))
    if item == "second":
        await asyncio.to_thread(gpumux.progress, "of the second, early")
        gpumux.progress("of the second")
        told.set()
        await opens.wait()
    elif item == "first":
        await told.wait()
        gpumux.progress("of the first")
    else:
        opens.set()
    return item


@gpumux.concurrent(max=4)
async def cleans(item):
    try:
        if item == 1:
            print("both run", flush=True)
            gpumux.progress("both run")
        if item == 0:
            gpumux.progress("the first runs")
        await asyncio.Event().wait()
    finally:
        print("cleaned", item, flush=True)


class Engine:
    def __init__(self):
        self.scale = 2

    @gpumux.concurrent(max=1)
    async def __call__(self, x):
        return self.scale * x


@gpumux.concurrent(max=2)
async def saves(name):
    gpumux.save(name, "of " + name)
    await asyncio.sleep(0)
    gpumux.save("more", "more of " + name)
    if name == "bad":
        raise ValueError(name)
    return name


@gpumux.concurrent(max=4)
async def waits(name):
    """Tells that it runs, and waits; prints when it is cancelled."""
    opened = gates.setdefault(0, asyncio.Event())
    if name == "later":
        return name
    if name == "opens":
        opened.set()
        return name
    gpumux.progress(name)
    try:
        await opened.wait()
    except asyncio.CancelledError:
        if name != "stubborn":
            print(name, flush=True)
            raise
        await opened.wait()
        raise ValueError("cancelled")
    return name


gates = {}
