"""Every way to write a task."""

import asyncio
import functools

import gpumux

import sibling


def plain(x):
    return 2 * x


async def awaited(x):
    await asyncio.sleep(0)
    return 2 * x


queue = None


async def one_loop(x):
    """Works only if every item runs on the same loop: the queue belongs to the first one's."""
    global queue
    if queue is None:
        queue = asyncio.Queue()
        asyncio.get_running_loop().create_task(queue.put(x))
        return await asyncio.wait_for(queue.get(), 5)
    asyncio.get_running_loop().call_later(0.001, queue.put_nowait, x)
    return await asyncio.wait_for(queue.get(), 5)


class Model:
    scale = 2

    def __call__(self, x):
        return self.scale * x

    def method(self, x):
        return self.scale * x

    @staticmethod
    def static(x):
        return 2 * x

    @gpumux.batch(max=3)
    def together(self, items):
        return [self.scale * x for x in items]


class Counting:
    made = 0

    def __init__(self):
        Counting.made += 1
        self.seen = 0

    def __call__(self, x):
        self.seen += 1
        return [2 * x, Counting.made, self.seen]


class Batching:
    @gpumux.batch(max=3)
    def __call__(self, items):
        return [[2 * x, len(items)] for x in items]


class Refusing:
    def __init__(self):
        raise OSError("no weights here")

    def __call__(self, x):
        return x


model = Model()
partial = functools.partial(lambda factor, x: factor * x, 2)


def through_sibling(x):
    return sibling.double(x)


@gpumux.batch(max=3)
def batch(items):
    return [[2 * x, len(items)] for x in items]


@gpumux.batch
def batch_bare(items):
    return tuple([2 * x, len(items)] for x in items)


@gpumux.batch(max=2)
async def batch_awaited(items):
    await asyncio.sleep(0)
    return ([2 * x, len(items)] for x in items)


not_a_function = 5
