"""Classes that are asynchronous context managers: entered before the first item, and left when the process ends."""

import asyncio
import os

import gpumux


class Engine:
    """Items go to a task that runs from the entry to the exit."""

    async def __aenter__(self):
        self.loop = asyncio.get_running_loop()
        self.entries = getattr(self, "entries", 0) + 1
        self.asked = asyncio.Queue()
        self.server = asyncio.create_task(self.serve())
        return self

    async def serve(self):
        try:
            while (asked := await self.asked.get()) is not None:
                item, answer = asked
                answer.set_result([item, self.entries])
            print("served", flush=True)
        except asyncio.CancelledError:
            print("the server was cancelled", flush=True)

    async def __aexit__(self, *error):
        await self.asked.put(None)
        await self.server
        print("left", error, asyncio.get_running_loop() is self.loop, flush=True)

    @gpumux.concurrent(max=4)
    async def __call__(self, item):
        try:
            answer = self.loop.create_future()
            await self.asked.put((item, answer))
            value = await answer
            if item == "waits":
                gpumux.progress("waits")
                await asyncio.Event().wait()
            return [*value, asyncio.get_running_loop() is self.loop]
        finally:
            if item == "waits":
                await asyncio.sleep(0)
                print("cancelled", flush=True)


class One(Engine):
    """The same, an item at a time."""

    async def __call__(self, item):
        return await super().__call__(item)


class Leaves:
    """Its exit does what an environment variable of the item says."""

    async def __aenter__(self):
        self.helper = asyncio.create_task(self.help())

    async def help(self):
        try:
            await asyncio.Event().wait()
        finally:
            print("helped", flush=True)

    async def __aexit__(self, *_):
        print("leaving", flush=True)
        if self.how == "raises":
            raise ValueError("no way out")
        if self.how == "exits":
            raise SystemExit(3)
        if self.how == "hangs":
            await asyncio.Event().wait()
        if self.how == "cancelled":
            raise asyncio.CancelledError

    async def __call__(self, how):
        self.how = how


class Closed:
    async def __aenter__(self):
        self.helper = asyncio.create_task(Leaves.help(self))
        await asyncio.sleep(0)
        raise ConnectionError("the engine said no")

    async def __aexit__(self, *_):
        print("left", flush=True)

    async def __call__(self, item):
        return item


class Quits(Closed):
    async def __aenter__(self):
        raise SystemExit(3)


class Half:
    async def __aenter__(self):
        print("entered", flush=True)

    def __call__(self, item):
        return item


class Slow(Closed):
    async def __aenter__(self):
        try:
            with open(os.environ["HOME"] + "/entering", "w"):
                pass
            await asyncio.Event().wait()
        finally:
            print("stopped entering", flush=True)
