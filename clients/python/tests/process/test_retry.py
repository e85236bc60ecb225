"""Which exceptions an item is tried again after."""

import asyncio
import concurrent.futures
import json
import unittest

from gpumux.process.retry import Retry


def made(name, module, *bases):
    return type(name, bases or (Exception,), {"__module__": module})


class TestRetry(unittest.TestCase):
    def test_names(self):
        timeout = made("Timeout", "requests.exceptions", OSError)
        read = made("ReadTimeout", "requests.exceptions", timeout)
        for error, name, named in [
            (TimeoutError(), "TimeoutError", True),
            (TimeoutError(), "builtins.TimeoutError", True),
            (TimeoutError(), "OSError", True),
            (TimeoutError(), "BaseException", True),
            (OSError(), "TimeoutError", False),
            (TimeoutError(), "Error", False),
            (TimeoutError(), "asyncio.TimeoutError", asyncio.TimeoutError is TimeoutError),
            (asyncio.TimeoutError(), "concurrent.futures.TimeoutError", concurrent.futures.TimeoutError is asyncio.TimeoutError),
            (OSError(), "IOError", True),
            (OSError(), "no.such.module", False),
            (json.JSONDecodeError("", "", 0), "json.JSONDecodeError", True),
            (json.JSONDecodeError("", "", 0), "decoder.JSONDecodeError", True),
            (read(), "requests.exceptions.Timeout", True),
            (read(), "requests.Timeout", True),
            (read(), "requests.exceptions", False),
            (read(), "requests", False),
            (read(), "httpx.Timeout", False),
            (made("Outer.Inner", "a.b")(), "Outer.Inner", True),
            (made("Outer.Inner", "a.b")(), "a.Inner", True),
        ]:
            with self.subTest(error=error, name=name):
                self.assertEqual(Retry(3, [name]).final(error), not named)
                self.assertFalse(Retry(3, ["ZeroDivisionError", name, "OSError", "Exception"]).final(error))

    def test_all_without_names(self):
        self.assertFalse(Retry(2).final(SystemExit(1)))
        self.assertEqual(Retry.of({"run": 1}), Retry(1, ()))

    def test_a_group_is_what_is_in_it(self):
        class Group(Exception):
            exceptions: tuple = ()

        inner, outer, odd = Group(), Group(), Group()
        inner.exceptions, outer.exceptions, odd.exceptions = (KeyError(),), (ValueError(), inner), 7
        self.assertFalse(Retry(2, ["LookupError"]).final(outer))
        self.assertTrue(Retry(2, ["OSError"]).final(outer))
        self.assertTrue(Retry(2, ["OSError"]).final(odd))
        outer.exceptions = (outer,)
        self.assertFalse(Retry(2, ["OSError"]).final(outer), "what cannot be told is tried again")

        class Raising(Exception):
            @property
            def exceptions(self):
                raise ZeroDivisionError

        self.assertFalse(Retry(2, ["OSError"]).final(Raising()))


if __name__ == "__main__":
    unittest.main()
