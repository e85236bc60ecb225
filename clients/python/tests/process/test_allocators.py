"""What the allocators say, of stand-ins for the frameworks with the names and figures of real ones."""

import contextlib
import sys
import types
import unittest

from gpumux.process import allocators, peak
from gpumux.process.allocators import Usage

MIB = 1 << 20


def pools(current, most=0):
    return {"all": {"current": current, "peak": most}, "large_pool": {"current": 1, "peak": 1}}


def torch(up=True):
    stats = {
        "allocated_bytes": pools(100, 700),
        "active_bytes": pools(120, 700),
        "inactive_split_bytes": pools(80),
        "reserved_bytes": pools(1000, 1000),
    }
    fake = types.ModuleType("torch")
    fake.reset = []

    def ask(value):
        assert up, "CUDA was used before the task started it"
        return value

    fake.cuda = types.SimpleNamespace(
        is_initialized=lambda: up,
        device_count=lambda: ask(2),
        memory_stats_as_nested_dict=lambda index: ask(stats),
        reset_peak_memory_stats=lambda index: fake.reset.append(ask(index)),
    )
    return {"torch": fake}


def cupy(live, taken):
    fake = types.ModuleType("cupy")
    fake.get_default_memory_pool = lambda: types.SimpleNamespace(used_bytes=lambda: live, total_bytes=lambda: taken)
    return {"cupy": fake}


def jax(stats, up=True):
    fake, bridge = types.ModuleType("jax"), types.ModuleType("jax._src.xla_bridge")
    bridge.backends_are_initialized = lambda: up

    def local_devices():
        assert up, "JAX was started"
        return [types.SimpleNamespace(platform="cpu"), types.SimpleNamespace(platform="gpu", memory_stats=lambda: stats)]

    fake.local_devices = local_devices
    return {"jax": fake, "jax._src.xla_bridge": bridge}


def tensorflow(up=True):
    fake, context = types.ModuleType("tensorflow"), types.ModuleType("tensorflow.python.eager.context")
    asked = {"GPU:0": {"current": 5, "peak": 50}, "GPU:1": {"current": 7, "peak": 70}}
    fake.config = types.SimpleNamespace(
        list_logical_devices=lambda kind: [types.SimpleNamespace(name=f"/device:{name}") for name in asked],
        experimental=types.SimpleNamespace(get_memory_info=asked.__getitem__),
    )
    context.context = lambda: types.SimpleNamespace(_initialized=up)
    packages = {name: types.ModuleType(name) for name in ("tensorflow.python", "tensorflow.python.eager")}
    packages["tensorflow.python.eager"].context = context
    return {"tensorflow": fake, **packages, context.__name__: context}


def rmm(enabled=True):
    fake = types.ModuleType("rmm.statistics")
    told = types.SimpleNamespace(current_bytes=30, peak_bytes=90) if enabled else None
    fake.get_statistics = lambda: told
    return {"rmm.statistics": fake}


@contextlib.contextmanager
def imported(*frameworks, cuda=True):
    before, begun = dict(sys.modules), allocators.cuda_begun
    for each in frameworks:
        sys.modules.update(each)
    allocators.cuda_begun = lambda: cuda
    try:
        yield
    finally:
        allocators.cuda_begun = begun
        for name in set(sys.modules) - set(before):
            del sys.modules[name]


class TestUsage(unittest.TestCase):
    def test_of_each_framework(self):
        bfc = {"bytes_in_use": 200, "pool_bytes": 900, "peak_bytes_in_use": 600}
        for name, frameworks, want in (
            ("none", [], None),
            # On each of two devices 1000 are taken; blocks that are partly free, or that a stream still uses, do not come back.
            ("torch", [torch()], Usage(200, 2000, 1400)),
            ("cupy", [cupy(300, 800)], Usage(300, 800, 800)),
            ("cupy that has taken nothing", [cupy(0, 0)], None),
            ("jax", [jax(bfc)], Usage(200, 900, 600)),
            ("jax whose arena has another name", [jax({"bytes_in_use": 200, "bytes_reserved": 900})], Usage(200, 900, 900)),
            ("jax without an arena", [jax({"bytes_in_use": 200, "peak_bytes_in_use": 600})], Usage(200, 200, 600)),
            ("jax that does not tell", [jax(None)], None),
            ("tensorflow", [tensorflow()], Usage(12, 120, 120)),
            ("rmm", [rmm()], Usage(30, 90, 90)),
            ("rmm without statistics", [rmm(False)], None),
            ("two", [cupy(300, 800), jax(bfc)], Usage(500, 1700, 1400)),
            ("one that does not tell", [cupy(300, 800), jax(None)], Usage(300, 800, 800)),
        ):
            with self.subTest(name), imported(*frameworks):
                self.assertEqual(allocators.usage(), want)

    def test_asks_nobody_who_has_not_begun(self):
        frameworks = [torch(up=False), cupy(300, 800), jax({}, up=False), tensorflow(up=False), rmm()]
        with imported(*frameworks, cuda=False):
            self.assertIsNone(allocators.usage())
            allocators.reset_peaks()


class TestPeak(unittest.TestCase):
    def test_of_a_device_begins_when_a_framework_does(self):
        told = []
        measured = peak.of_device(told.append)
        self.assertEqual(measured.measure(1.0), 0)
        self.assertEqual(measured.due, 1.05)
        framework = torch()
        with imported(framework):
            self.assertEqual(measured.measure(2.0), 1400)
        self.assertEqual(told, [Usage(200, 2000, 1400)])
        self.assertEqual(framework["torch"].reset, [0, 1], "the next peak is that of later items")

    def test_of_the_host_ends_where_it_cannot_be_read(self):
        marks = [5 * MIB, None]
        measured = peak.Peak(lambda: marks.pop(0))
        self.assertEqual([measured.measure(1.0), measured.measure(2.0), measured.measure(3.0)], [5 * MIB, 0, 0])
        self.assertEqual(measured.due, float("inf"))


if __name__ == "__main__":
    unittest.main()
