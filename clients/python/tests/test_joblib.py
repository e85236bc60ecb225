import concurrent.futures
import os
import threading
import unittest

import joblib

import gpumux

from . import tasks


class Joblib(unittest.TestCase):
    def setUp(self):
        gpumux.register_joblib()

    def test_calls(self):
        with joblib.parallel_config(backend="gpumux", n_jobs=2):
            self.assertEqual(joblib.Parallel()(joblib.delayed(tasks.double)(x) for x in range(200)), [2 * x for x in range(200)])
            with joblib.Parallel() as parallel:
                found = {pid for _ in range(2) for pid in parallel(joblib.delayed(lambda _: os.getpid())(x) for x in range(20))}
            self.assertTrue(0 < len(found) <= 2 and os.getpid() not in found, found)
            each = joblib.Parallel(return_as="generator_unordered")(joblib.delayed(tasks.move)(tasks.Point(x), by=1) for x in range(20))
            self.assertEqual({point.x for point in each}, set(range(1, 21)))

    def test_what_a_call_raises_ends_all(self):
        with joblib.parallel_config(backend="gpumux", slots=1):
            calls = [joblib.delayed(tasks.picky)(3), *(joblib.delayed(tasks.await_file)("/no/such/file") for _ in range(5))]
            with self.assertRaisesRegex(ValueError, "not three") as raised:
                joblib.Parallel(batch_size=1)(calls)
            self.assertIsInstance(raised.exception.__cause__, gpumux.Fault)

    def test_a_call_that_cannot_be_submitted_ends_all(self):
        """Also where joblib submits it in a callback."""
        calls = (joblib.delayed(tasks.same)(threading.Lock() if n == 30 else n) for n in range(60))
        with self.assertRaisesRegex(TypeError, "cannot be pickled"):
            joblib.Parallel(backend="gpumux", slots=1, batch_size=1)(calls)

    def test_an_initializer(self):
        parallel = joblib.Parallel(backend="gpumux", slots=1, initializer=tasks.prepare, initargs=(1,))
        self.assertEqual(parallel(joblib.delayed(tasks.prepared_with)(n) for n in range(20)), [[(1,)]] * 20)
        with joblib.parallel_config(backend="gpumux", n_jobs=2, initializer=tasks.unprepared):
            with self.assertRaisesRegex(concurrent.futures.BrokenExecutor, "no model here"):
                joblib.Parallel()(joblib.delayed(tasks.double)(n) for n in range(20))

    def test_what_a_result_does_here_ends_its_parallel_alone(self):
        for call, kind, said in (
            (tasks.Bomb, SystemExit, "^task_error: SystemExit: the result of the call cannot be unpickled here"),
            (tasks.raise_class, tasks.Frozen, r"^task_error: tests\.tasks\.Frozen\n"),
        ):
            with joblib.parallel_config(backend="gpumux", slots=1):
                with self.assertRaisesRegex(gpumux.Fault, said):
                    joblib.Parallel(batch_size=1)(joblib.delayed(call)(kind) for _ in range(3))
                self.assertEqual(joblib.Parallel()(joblib.delayed(tasks.double)(n) for n in range(3)), [0, 2, 4])

    def test_options_are_those_of_an_executor(self):
        with joblib.parallel_config(backend="gpumux", memory="much"):
            with self.assertRaisesRegex(gpumux.Error, "^memory='much': "):
                joblib.Parallel()(joblib.delayed(tasks.double)(x) for x in range(2))
        with self.assertRaisesRegex(gpumux.Error, "^memory='much': "):
            joblib.Parallel(backend="gpumux", memory="much")(joblib.delayed(tasks.double)(x) for x in range(2))


if __name__ == "__main__":
    unittest.main()
