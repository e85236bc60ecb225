import concurrent.futures
import os
import unittest

import gpumux

from . import tasks


class Executor(unittest.TestCase):
    def test_calls(self):
        with gpumux.Executor(slots=2) as executor:
            self.assertEqual(executor.submit(tasks.double, 21).result(), 42)
            self.assertEqual(list(executor.map(pow, range(200), [2] * 200)), [n * n for n in range(200)])
            self.assertEqual(executor.submit(tasks.move, tasks.Point(1), by=2).result().x, 3)
            self.assertEqual(executor.submit(lambda x: x + 1, 1).result(), 2)
            futures = [executor.submit(tasks.pid, n) for n in range(50)]
            found = {future.result() for future in concurrent.futures.as_completed(futures)}
            self.assertTrue(0 < len(found) <= 2 and os.getpid() not in found, found)
        with self.assertRaisesRegex(RuntimeError, "shut down"):
            executor.submit(tasks.double, 1)

    def test_faults(self):
        with gpumux.Executor(slots=1) as executor:
            with self.assertRaisesRegex(gpumux.Fault, "not three") as raised:
                executor.submit(tasks.picky, 3).result()
            self.assertEqual(raised.exception.raised, "ValueError")
            died = executor.submit(tasks.die, 0).exception()
            self.assertEqual(died.kind, "crash")
            self.assertGreaterEqual(died.attempts, 2, "tried again alone")
            self.assertEqual(executor.submit(tasks.double, 1).result(), 2, "after a crash")
            self.assertEqual(executor.submit(lambda: open(os.devnull)).exception().raised, "TypeError")

    def test_what_cannot_start(self):
        with gpumux.Executor(memory="nonsense") as executor:
            with self.assertRaisesRegex(gpumux.Error, "--memory"):
                executor.submit(tasks.double, 1).result()

    def test_ended_before_its_calls(self):
        executor = gpumux.Executor(slots=1)
        waits = executor.submit(tasks.await_file, "/no/such/file")
        executor.shutdown(cancel_futures=True)
        self.assertIsInstance(waits.exception(), gpumux.Error)
