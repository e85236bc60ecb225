import os
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

    def test_options_are_those_of_an_executor(self):
        with joblib.parallel_config(backend="gpumux", memory="much"):
            with self.assertRaisesRegex(gpumux.Error, "^memory='much': "):
                joblib.Parallel()(joblib.delayed(tasks.double)(x) for x in range(2))


if __name__ == "__main__":
    unittest.main()
