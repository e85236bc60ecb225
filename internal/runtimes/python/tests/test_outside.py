"""gpumux in a program that runs outside of a slot."""

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
