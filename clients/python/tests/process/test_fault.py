"""What a fault says, and which exceptions are about memory."""

import json
import pathlib
import sys
import types
import unittest

from gpumux.process import fault


def make(name, module, base=RuntimeError):
    return type(name, (base,), {"__module__": module})


def raised(error, cause=None):
    try:
        raise error from cause
    except BaseException as caught:
        return caught


class TestDescribe(unittest.TestCase):
    def test_class_with_its_module(self):
        self.assertEqual(fault.describe(ValueError("no"))["class"], "ValueError")
        error = make("OutOfMemoryError", "torch")("CUDA out of memory.")
        self.assertEqual(fault.describe(error), {"class": "torch.OutOfMemoryError", "message": "CUDA out of memory."})

    def test_chain_is_nearest_first(self):
        error = raised(ValueError("third"), raised(KeyError("second"), OSError("first")))
        got = fault.describe(error)
        self.assertEqual(got["chain"], [{"class": "KeyError", "message": "'second'"}, {"class": "OSError", "message": "first"}])
        self.assertIn("The above exception was the direct cause", got["traceback"])

    def test_chain_of_a_group(self):
        error = RuntimeError("several")
        error.exceptions = (ValueError("one"), KeyError("two"))
        self.assertEqual([each["class"] for each in fault.describe(error)["chain"]], ["ValueError", "KeyError"])

    def test_chain_that_loops(self):
        one, two = ValueError("one"), KeyError("two")
        one.__cause__, two.__cause__ = two, one
        self.assertEqual(len(fault.describe(one)["chain"]), 1)

    def test_code(self):
        error = make("AcceleratorError", "torch")("CUDA error: out of memory")
        error.error_code = 2
        self.assertEqual(fault.describe(error)["code"], 2)
        own = ValueError("x")
        own.code = 5
        self.assertNotIn("code", fault.describe(own))

    def test_message_that_does_not_print(self):
        class Bad(Exception):
            def __str__(self):
                raise ValueError

        self.assertEqual(fault.describe(raised(Bad()))["message"], "(its str() raised ValueError)")

    def test_attributes_that_raise(self):
        class Delegating(Exception):
            def __getattr__(self, name):
                raise RuntimeError(f"no response that has {name}")

        class Causeless(Exception):
            __cause__ = property()

        for kind in Delegating, Causeless:
            error = raised(kind("lost"))
            self.assertEqual(fault.describe(error)["message"], "lost")
            self.assertFalse(fault.is_memory(error))

    def test_long_texts_are_cut(self):
        got = fault.describe(raised(ValueError("x" * 10**6)))
        self.assertLess(len(got["message"]), 10000)
        self.assertLess(len(got["traceback"]), 70000)

    def test_exit(self):
        self.assertIn("sys.exit(3)", fault.describe(SystemExit(3))["message"])


class TestMemory(unittest.TestCase):
    def test_is_memory(self):
        for error in [
            make("OutOfMemoryError", "torch")("any words"),
            make("OutOfMemoryError", "cupy.cuda.memory", MemoryError)("…"),
            MemoryError(),
            RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
            make("JaxRuntimeError", "jax.errors")("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3 bytes."),
            make("CudaAPIError", "numba.cuda.cudadrv.driver", Exception)("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"),
            raised(ValueError("model failed"), make("OutOfMemoryError", "torch")("")),
        ]:
            with self.subTest(repr(error)):
                self.assertTrue(fault.is_memory(error))

    def test_is_not_memory(self):
        for error in [ValueError("out of memory"), RuntimeError("shape mismatch"), KeyError("x"), RuntimeError("device-side assert triggered")]:
            with self.subTest(repr(error)):
                self.assertFalse(fault.is_memory(error))

    def test_agrees_with_the_worker(self):
        """The worker's diagnosis has the last word; a batch is halved before it speaks."""
        path = pathlib.Path(__file__).parents[4] / "internal" / "diagnosis" / "testdata" / "diagnosis.json"
        # These need more than the words: a number, a log, another process, or another library's meaning of them.
        apart = ("CUBLAS_STATUS_NOT_INITIALIZED", "cuDNN", "DataLoader", "NCCL", "Engine core", "process pool", "Tried to allocate 20.00 MiB",
                 "CUBLAS_STATUS_ALLOC_FAILED", "Shared memory size limit", "No space left", "std::bad_alloc: CUDA error", "quota",
                 "larger than max", "item 7 failed", "could not shrink")
        checked = 0
        for case in json.loads(path.read_text()):
            if not case["message"] or any(words in case["message"] for words in apart):
                continue
            module, _, name = case["class"].rpartition(".")
            base = MemoryError if name.endswith("MemoryError") else RuntimeError
            with self.subTest(case["name"]):
                self.assertEqual(fault.is_memory(make(name, module or "builtins", base)(case["message"])), case["kind"].endswith("oom"))
            checked += 1
        self.assertGreater(checked, 60)


if __name__ == "__main__":
    unittest.main()
