"""What an import hears of devices, and where it opens one."""

import importlib
import os
import sys
import tempfile
import unittest
from unittest import mock

from gpumux.process import devices

# As torch 2.11: is_available and device_count ask the two functions.
TORCH = """
import sys, types
begun = []
def _count():
    begun.append("CUDA")
    return 8
def _nvml():
    begun.append("NVML")
    return 8
_C = types.ModuleType("torch._C")
_C._cuda_getDeviceCount = _count
cuda = types.ModuleType("torch.cuda")
cuda._device_count_nvml = _nvml
cuda.is_available = lambda: _C._cuda_getDeviceCount() > 0
cuda.device_count = lambda: cuda._device_count_nvml()
sys.modules["torch._C"], sys.modules["torch.cuda"] = _C, cuda
"""
TASK = """
import torch
from torch._C import _cuda_getDeviceCount as kept
def name():
    return 1
ANSWERS = torch.cuda.is_available(), torch.cuda.device_count()
import opener
x = name()
handle = opener.begin(path)  # as a model that goes to the device
y = name()
"""
OPENER = """
import time
def begin(path):
    time.sleep(0.005)
    return open(path)
"""


class TestDevices(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.elsewhere = os.path.join(self.folder.name, "elsewhere")
        self.mine = os.path.join(self.folder.name, "mine")
        os.mkdir(self.elsewhere)
        os.mkdir(self.mine)
        self.device = os.path.join(self.elsewhere, "nvidia0")
        self.write(self.elsewhere, "nvidia0", "")
        self.write(self.elsewhere, "torch.py", TORCH)
        self.write(self.elsewhere, "opener.py", OPENER)
        known = set(sys.modules)
        path = mock.patch.object(sys, "path", [self.elsewhere, self.mine, *sys.path])
        path.start()
        self.addCleanup(path.stop)
        self.addCleanup(lambda: [sys.modules.pop(name) for name in set(sys.modules) - known if name.startswith(("torch", "opener", "task"))])
        importlib.invalidate_caches()

    def write(self, folder, name, text):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)

    def load(self, visible, task=TASK):
        self.write(self.mine, "tasked.py", f"path = {self.device!r}\n" + task)
        with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": visible}):
            asked = devices.Devices(self.mine, (self.device,))
            asked.begin()
            module = importlib.import_module("tasked")
            self.addCleanup(sys.modules.pop, "tasked")
            opened = asked.end()
        if hasattr(module, "handle"):
            module.handle.close()
        return module, opened

    def test_answers_of_the_slot_open_nothing(self):
        module, _ = self.load("GPU-a,GPU-b")
        self.assertEqual(module.ANSWERS, (True, 2))
        self.assertEqual(module.torch.begun, [])

    def test_a_slot_on_the_cpu_has_none(self):
        module, opened = self.load("")
        self.assertEqual(module.ANSWERS, (False, 0))
        self.assertEqual((module.torch.begun, opened), ([], ""))

    def test_afterwards_the_frameworks_answer(self):
        module, _ = self.load("GPU-a")
        self.assertEqual((module.torch.cuda.device_count(), module.kept()), (8, 8))
        self.assertEqual(module.torch.begun, ["NVML", "CUDA"])
        self.assertIsNone(sys.gettrace())

    def test_the_line_that_opens_a_device_is_named(self):
        _, opened = self.load("GPU-a")
        self.assertEqual(opened, "at tasked.py:10, 'handle = opener.begin(path)  # as a model that goes to the device'")

    def test_the_last_line_is_named_too(self):
        _, opened = self.load("GPU-a", "import opener\nhandle = opener.begin(path)\n")
        self.assertEqual(opened, "at tasked.py:3, 'handle = opener.begin(path)'")

    def test_a_line_of_a_function_of_the_task_is_named(self):
        _, opened = self.load("GPU-a", "import opener\ndef model():\n    got = opener.begin(path)\n    return got\nhandle = model()\n")
        self.assertEqual(opened, "at tasked.py:4, 'got = opener.begin(path)'")


if __name__ == "__main__":
    unittest.main()
