"""Files that an item keeps: what may be saved, and what is there afterwards."""

import io
import os
import pathlib
import tempfile
import unittest

import gpumux
from gpumux.process.files import Files, check


class Names(unittest.TestCase):
    def test_names(self):
        for good in ["plot.png", "a b", "zażółć.txt", "...", ".hidden", "-x", "a" * 200]:
            self.assertEqual(check(good), good)
        bad = ["", ".", "..", "../a", "/etc/passwd", "a/b", "a\\b", "a\nb", "a\0", "a\x7f", "\x80", "\udc80", "a.attrs", "a__0x2f", "a" * 201]
        for name in bad:
            with self.subTest(name), self.assertRaises(ValueError):
                check(name)
        with self.assertRaises(TypeError):
            check(pathlib.Path("a"))

    def test_outside_of_a_slot(self):
        gpumux.save("plot.png", b"1")
        with self.assertRaises(ValueError):
            gpumux.save("../plot.png", b"1")


class Saved(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.files = Files()
        self.item = os.path.join(self.folder, "1-0")

    def save(self, name, data):
        self.files.save(self.item, name, data)

    def test_every_kind_of_data(self):
        source = pathlib.Path(self.folder, "source")
        source.write_bytes(b"of a path")
        self.save("bytes", b"1")
        self.save("memory", memoryview(b"12"))
        self.save("text", "zażółć")
        self.save("path", source)
        self.save("file", io.BytesIO(b"of a file"))
        self.save("text file", io.StringIO("ż"))
        self.save("bytes", b"anew")
        found = {path.name: path.read_bytes() for path in pathlib.Path(self.item).iterdir()}
        want = {"bytes": b"anew", "memory": b"12", "text": "zażółć".encode(), "path": b"of a path", "file": b"of a file", "text file": "ż".encode()}
        self.assertEqual(found, want)
        self.assertEqual(sorted(self.files.take()), sorted(want))
        self.assertEqual(self.files.take(), [])

    def test_what_cannot_be_saved_leaves_nothing(self):
        for data in [7, None, pathlib.Path(self.folder, "nowhere")]:
            with self.assertRaises((TypeError, OSError)):
                self.save("a", data)
        self.assertEqual(os.listdir(self.item), [])
        self.assertEqual(self.files.take(), [])

    def test_a_failed_try_leaves_nothing(self):
        self.save("a", b"1")
        self.files.drop()
        self.assertFalse(os.path.exists(self.item))
        self.save("b", b"1")
        self.assertEqual(self.files.take(), ["b"])

    def test_too_many(self):
        for n in range(100):
            self.save(str(n), b"")
        self.save("7", b"again")
        with self.assertRaisesRegex(ValueError, "100 files"):
            self.save("100", b"")

    def test_without_a_place(self):
        with self.assertRaisesRegex(RuntimeError, "no place for files"):
            self.files.save("", "a", b"1")
