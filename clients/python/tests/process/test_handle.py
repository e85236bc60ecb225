"""Residents and their handles."""

import json
import os
import tempfile
import unittest

import gpumux
from gpumux.process import encode, handle, item


def read(value):
    return item.read(memoryview(json.dumps(value).encode()))


def sent(kept):
    return json.loads(encode.encode(kept))


class Array:
    """As much of an array as a handle tells."""

    def __init__(self, *shape):
        self.shape, self.dtype = shape, "float32"
        self.nbytes = 4
        for n in shape:
            self.nbytes *= n


class TestHandle(unittest.TestCase):
    def setUp(self):
        self.told = []
        self.before = gpumux._slot
        gpumux._slot = gpumux.Slot("gpu/0", "GPU-a", None, "persistent", "model:load")
        handle.begin("lease-1", "node1", False, lambda count, size: self.told.append((count, size)))

    def tearDown(self):
        gpumux._slot = self.before
        handle._lease = handle._tell = None
        handle._kept.clear()
        handle._handles.clear()

    def test_a_handle_becomes_its_value(self):
        value = Array(3, 4)
        kept = sent({"model": [gpumux.keep(value, "weights")]})
        fields = kept["model"][0]["gpumux.handle"]
        self.assertEqual((fields["key"], fields["shape"], fields["bytes"], fields["type"]), ("weights", [3, 4], 48, "float32"))
        self.assertEqual((fields["host"], fields["device"], fields["slot"]), ("node1", "GPU-a", "gpu/0"))
        self.assertIs(read({"at": {"deep": kept["model"]}})["at"]["deep"][0], value)
        self.assertEqual(self.told, [(1, 48)])

    def test_bytes_of_what_holds_arrays(self):
        class Module:
            def parameters(self):
                return iter([Array(2), Array(3)])

            def buffers(self):
                return iter([Array(1)])

        self.assertEqual(gpumux.keep({"a": [Array(5)], "b": Module()}).bytes, 4 * 11)

    def test_dropped(self):
        kept = gpumux.keep([1])
        gpumux.drop(kept)
        with self.assertRaisesRegex(handle.HandleError, "is no longer kept; it was dropped"):
            read(sent(kept))
        gpumux.keep([2], "k")
        gpumux.drop("k")
        self.assertEqual(self.told[-1], (0, 0))
        with self.assertRaisesRegex(LookupError, "no resident 'k'"):
            gpumux.drop("k")

    def test_of_another_process(self):
        fields = sent(gpumux.keep([1], "k"))
        fields["gpumux.handle"]["process"] = "77-abcd"
        with self.assertRaisesRegex(handle.HandleError, "lies in process 77-abcd on GPU-a of node1, and this call runs in process .* ended"):
            read(fields)
        fields["gpumux.handle"]["lease"] = "lease-2"
        with self.assertRaisesRegex(handle.HandleError, "call on the lease that holds it, or bring it here .*workflows.Move"):
            read(fields)
        fields["gpumux.handle"]["lease"] = "lease-1"
        handle.begin("lease-1", "node1", True, lambda *_: None)
        self.assertEqual(read(fields), [1])
        fields["gpumux.handle"]["key"] = "other"
        with self.assertRaisesRegex(handle.HandleError, "has ended"):
            read(fields)

    def test_without_a_lease(self):
        kept = sent(gpumux.keep([1], "k"))
        handle._lease = None
        with self.assertRaisesRegex(RuntimeError, "needs a lease"):
            gpumux.keep([1])
        kept["gpumux.handle"]["process"] = "1-2"
        with self.assertRaisesRegex(handle.HandleError, "this call to none"):
            read(kept)

    def test_through_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "value")
            kept = gpumux.keep({"a": [1.5]}, "k")
            self.assertGreater(handle._save(read({"value": sent(kept), "path": path})), 0)
            again = handle._load({"path": path, "key": "copy"})
            self.assertEqual(read(sent(again)), {"a": [1.5]})
            handle._drop({"handles": [sent(again)["gpumux.handle"]]})
            with self.assertRaises(handle.HandleError):
                read(sent(again))

    def test_moves_only_what_has_a_device(self):
        fields = sent(gpumux.keep("text", "k"))
        fields["gpumux.handle"]["to"] = "cuda:1"
        with self.assertRaisesRegex(handle.HandleError, "a str has no device"):
            read(fields)

    def test_keys(self):
        for bad in ("", 5):
            with self.assertRaisesRegex(TypeError, "give a text"):
                gpumux.keep(1, bad)
        self.assertNotEqual(gpumux.keep(1).key, gpumux.keep(1).key)
