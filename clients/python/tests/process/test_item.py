"""How an item's JSON reads in Python."""

import json
import math
import unittest

from gpumux.process.encode import encode
from gpumux.process.item import read, read_all


def item(text):
    return read(memoryview(text.encode()))


class TestItem(unittest.TestCase):
    def test_as_json_reads_it(self):
        big = "9" * 4000
        for text in (
            "5", "-0.0", '"e400"', "null", ' {"a": [1e308, -1.7e308, 1e-400]} ', '{"x":"1e999"}', big, f"[{big}]",
            "[" * 900 + "1.0" + "]" * 900, '"\\ud800"', '{"\\ud800":1.0}', "[0.0,1.0,-1.0,2.0]",
        ):
            with self.subTest(text[:40]):
                self.assertEqual(repr(item(text)), repr(json.loads(text)))

    def test_number_beyond_a_float_is_refused(self):
        deep = "[" * 900 + "1e400" + "]" * 900
        for text in ("1e400", "-1e400", '{"a":[1,{"b":1e999}]}', "[0.5,-1E+309]", " 1e400 ", "1" * 400 + ".0", deep):
            with self.subTest(text[:40]):
                with self.assertRaisesRegex(OverflowError, "a float of Python ends at 1.8e308; make it a string"):
                    item(text)
        with self.assertRaisesRegex(OverflowError, "the item holds 1e400, "):
            item("[1e400]")

    def test_numbers_that_json_lacks(self):
        """What encode writes comes back as the number that it was, and text as text."""
        nan, inf = math.nan, math.inf
        for value in (
            nan, inf, -inf, [1.5, nan, {"a": [-inf], "NaN": inf}], "NaN", ["Infinity", "-Infinity", nan], ["\\u004eaN", "\x01", '"\\u004eaN"', nan],
        ):
            with self.subTest(value):
                self.assertEqual(repr(item(encode(value).decode())), repr(value))
                self.assertNotIn("NaN,", encode(value).decode(), "JSON for every reader")
        with self.assertRaises(OverflowError):
            item(r'["\u0049nfinity",1e400]')

    def test_a_micro_batch_is_its_items(self):
        nan, deep = encode(math.nan).decode(), "[" * 900 + "]" * 900
        whole = ["1", '"a\\u00e9\\n"', ' {"a": [1.5, null]} ', nan, f'["NaN",{nan}]', r'"\u0049nfinity"', "2" * 40, "[]", deep]
        for texts in (whole, whole[:1], ["1", "2"], ['"x"', "[1e300]"]):
            raws = [memoryview(text.encode()) for text in texts]
            self.assertEqual(repr(read_all(raws)), repr([item(text) for text in texts]))
        for text in ("1e400", "9" * 5000, "[" * 200000, "{a}", '"\ud800"'.encode("utf-8", "surrogatepass").decode("latin-1")):
            outcomes = []
            for way in (lambda: read_all([memoryview(b"1"), memoryview(text.encode("latin-1"))])[1], lambda: read(memoryview(text.encode("latin-1")))):
                try:
                    outcomes.append(repr(way()))
                except (ValueError, OverflowError, RecursionError) as error:
                    outcomes.append(repr(error))
            self.assertEqual(*outcomes, text[:20])

    def test_words(self):
        with self.assertRaisesRegex(ValueError, "the item is not JSON: "):
            item("{a}")
        with self.assertRaisesRegex(ValueError, "the item is not JSON: "):
            item("")
        try:
            int("9" * 5000)
        except ValueError:
            # Releases before the limit read it.
            with self.assertRaisesRegex(ValueError, "the item holds what Python does not read: Exceeds the limit"):
                item("9" * 5000)


if __name__ == "__main__":
    unittest.main()
