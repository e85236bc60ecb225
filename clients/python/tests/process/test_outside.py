"""gpumux in a program that runs outside of a slot."""

import asyncio
import threading
import unittest

import gpumux


class TestOutside(unittest.TestCase):
    def test_slot_knows_nothing(self):
        self.assertEqual(gpumux.slot(), gpumux.Slot(None, None, None, None, None))

    def test_progress_does_nothing(self):
        self.assertIsNone(gpumux.progress(object()))

    def test_batch_leaves_a_function(self):
        @gpumux.batch
        def one(items):
            return [2 * item for item in items]

        @gpumux.batch(max=3)
        def two(items):
            return items

        self.assertEqual(one([1, 2]), [2, 4])
        self.assertEqual((one.__gpumux_batch__, two.__gpumux_batch__), (64, 3))

    def test_batch_refuses_nonsense(self):
        for bad in (0, -1, 1.5, True, "3", None):
            with self.subTest(bad):
                with self.assertRaisesRegex(ValueError, "whole number of at least 1"):
                    gpumux.batch(max=bad)
        with self.assertRaisesRegex(TypeError, r"write gpumux.batch\(max=…\)"):
            gpumux.batch(5)

    def test_batch_of_an_unknown_format(self):
        with self.assertRaisesRegex(ValueError, r"gpumux.batch\(format='csv'\): give \"pandas\", \"polars\", \"arrow\" or \"numpy\""):
            gpumux.batch(format="csv")

    def test_batch_by_cost(self):
        @gpumux.batch(max=8, limit=100)
        def one(items):
            return items

        @gpumux.batch(cost=abs, limit=2.5)
        def two(items):
            return items

        self.assertEqual((one.__gpumux_limit__, two.__gpumux_limit__), ((len, 100), (abs, 2.5)))
        for bad in (0, -1, True, "3", float("nan")):
            with self.subTest(bad):
                with self.assertRaisesRegex(ValueError, "give a number over 0"):
                    gpumux.batch(limit=bad)
        with self.assertRaisesRegex(ValueError, "a cost needs a limit"):
            gpumux.batch(cost=abs)
        with self.assertRaisesRegex(TypeError, "a function that returns what an item costs"):
            gpumux.batch(cost=5, limit=5)

    def test_concurrent_leaves_a_function(self):
        @gpumux.concurrent
        async def one(item):
            return 2 * item

        @gpumux.concurrent(max=3)
        async def two(item):
            return item

        self.assertEqual(asyncio.run(one(1)), 2)
        self.assertEqual((one.__gpumux_concurrent__, two.__gpumux_concurrent__), (64, 3))

    def test_concurrent_refuses_nonsense(self):
        async def generates(item):
            yield item

        class Callable:
            async def __call__(self, item):
                return item

        for bad in (0, 1.5, True):
            with self.subTest(bad):
                with self.assertRaisesRegex(ValueError, r"gpumux.concurrent\(max=.*whole number of at least 1"):
                    gpumux.concurrent(max=bad)
        for bad, why in ((len, "len is no async function; write `async def`"), (generates, "generates is no async"), (Callable, "mark its __call__")):
            with self.subTest(bad):
                with self.assertRaisesRegex(TypeError, why):
                    gpumux.concurrent(bad)
        with self.assertRaisesRegex(TypeError, r"write gpumux.concurrent\(max=…\)"):
            gpumux.concurrent(5)

    def test_batch_and_concurrent_exclude_each_other(self):
        async def both(items):
            return items

        with self.assertRaisesRegex(TypeError, "both has gpumux.batch, and can have only one"):
            gpumux.concurrent(gpumux.batch(both))

        async def other(items):
            return items

        with self.assertRaisesRegex(TypeError, "other has gpumux.concurrent, and can have only one"):
            gpumux.batch(gpumux.concurrent(other))

    def test_resident_builds_once(self):
        built = []
        started = threading.Barrier(8)

        def build():
            built.append(1)
            return object()

        got = []

        def ask():
            started.wait()
            got.append(gpumux.resident("once", build))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(built), len(set(map(id, got)))), (1, 1))

    def test_resident_builds_again_after_a_failure(self):
        with self.assertRaises(ZeroDivisionError):
            gpumux.resident("fails", lambda: 1 / 0)
        self.assertIsNone(gpumux.resident("fails", lambda: None))
        self.assertIsNone(gpumux.resident("fails", lambda: 1), "None is a value too")

    def test_resident_within_resident(self):
        self.assertEqual(gpumux.resident("outer", lambda: gpumux.resident("inner", lambda: 1) + 1), 2)

    def test_resident_refuses_a_coroutine(self):
        async def build():
            return 1

        with self.assertRaisesRegex(TypeError, "give a plain function"):
            gpumux.resident("async", build)


if __name__ == "__main__":
    unittest.main()
