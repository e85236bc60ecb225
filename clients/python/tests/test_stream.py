import itertools
import pathlib
import tempfile
import threading
import unittest

import gpumux

from . import tasks
from .program import interrupted


class Stream(unittest.TestCase):
    def test_items_that_never_end(self):
        taken = []

        def endless():
            for n in itertools.count():
                taken.append(n)
                yield n

        with gpumux.stream(tasks.double, endless(), slots=2, ahead=10) as results:
            first = [next(results).value for _ in range(500)]
            self.assertEqual(first, [2 * n for n in range(500)])
            self.assertLessEqual(len(taken), 511)
            self.assertRegex(repr(results), "^<gpumux.Rows: 500 results given, runs>$")
            with self.assertRaises(TypeError):
                len(results)
        self.assertEqual(list(results), [])

    def test_ahead_bounds_what_is_read(self):
        taken = []
        came = threading.Event()

        def each():
            for n in range(8):
                taken.append(n)
                if n == 2:
                    came.set()
                yield n

        with gpumux.stream(tasks.double, each(), slots=1, ahead=3) as results:
            came.wait()
            tasks.await_true(lambda: results._command.running and results._ahead._value == 0)
            self.assertEqual(taken, [0, 1, 2])
            next(results)
            tasks.await_true(lambda: len(taken) == 4)
            self.assertEqual([r.value for r in results], [2 * n for n in range(1, 8)])
        for ahead in 0, True, 1.5:
            with self.assertRaisesRegex(ValueError, f"ahead={ahead!r}: "):
                gpumux.stream(tasks.double, [1], ahead=ahead)

    def test_each_item_runs_when_it_comes(self):
        """The next item depends on the result before it."""
        def chain():
            value = 1
            while value < 1000:
                given.clear()
                yield value
                given.wait()
                value = last[0]

        given, last = threading.Event(), [0]
        found = []
        for result in gpumux.stream(tasks.double, chain(), slots=1):
            found.append(result.value)
            last[0] = result.value
            given.set()
        self.assertEqual(found, [2**n for n in range(1, 11)])

    def test_in_any_order(self):
        with tempfile.TemporaryDirectory() as folder:
            items = [(folder, n, "" if n else "came") for n in range(3)]
            with gpumux.stream(tasks.mark, items, slots=2, ordered=False) as results:
                self.assertEqual({next(results).value, next(results).value}, {1, 2})
                pathlib.Path(folder, "came").touch()
                self.assertEqual(next(results).index, 0)

    def test_what_it_shares_with_map(self):
        self.assertEqual([r.value for r in gpumux.stream(tasks.joined, [1], [(2,)], slots=1, pickle=True)], ["1 (2,)"])
        nan = list(gpumux.stream(tasks.same, [float("nan"), "NaN"], slots=1))
        self.assertEqual([repr(r.value) for r in nan], ["nan", "'NaN'"])
        results = gpumux.stream(tasks.printing, range(1, 6), slots=1, with_item=True)
        self.assertEqual([(r.item, r.output) for r in results][:2], [(1, "at 1\n"), (2, "at 2\n")])
        (fault,) = results.faults()
        self.assertEqual(fault.fault.message, "not three")
        with self.assertRaisesRegex(gpumux.BadInput, "^memory='much': "):
            list(gpumux.stream(tasks.double, [1], memory="much"))

    def test_what_the_items_raise_comes_after_their_results(self):
        def failing(error):
            yield from (1, 2)
            raise error

        for error in BrokenPipeError("its own pipe"), SystemExit("own"):
            found = []
            with self.assertRaisesRegex(type(error), "own"):
                for result in gpumux.stream(tasks.double, failing(error), slots=1):
                    found.append(result.value)
            self.assertEqual(found, [2, 4])
            with self.assertRaisesRegex(type(error), "own"):
                list(gpumux.map(tasks.double, failing(error), slots=1))

    def test_one_interrupt_is_enough(self):
        """Also while the items wait for one that never comes."""
        program = """
            import asyncio, queue
            import gpumux
            from tests import tasks

            def each():
                yield 1
                print("waits", flush=True)
                queue.Queue().get()

            async def all_of(results):
                return [result async for result in results]

            CALL
        """
        for call in (
            "list(gpumux.map(tasks.double, each(), slots=1))", "asyncio.run(all_of(gpumux.map(tasks.double, each(), slots=1)))",
            "with gpumux.stream(tasks.double, each(), slots=1) as results: list(results)",
        ):
            with self.subTest(call):
                status, said = interrupted(program.replace("CALL", call))
                self.assertIn("\nKeyboardInterrupt\n", said)
                self.assertNotEqual(status, 0)

    def test_closing_does_not_wait_for_the_next_item(self):
        waits = threading.Event()

        def stuck():
            yield 1
            waits.wait()

        results = gpumux.stream(tasks.double, stuck(), slots=1)
        self.assertEqual(next(results).value, 2)
        results.close()
        waits.set()
        results._feeder.join()


if __name__ == "__main__":
    unittest.main()
