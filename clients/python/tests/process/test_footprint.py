"""What an import may leave in a process that is forked."""

import os
import subprocess
import sys
import tempfile
import unittest

from gpumux.process import footprint

RUNTIME = os.path.dirname(os.path.dirname(os.path.dirname(footprint.__file__)))


def unfit(left: str, folder: str) -> str:
    """What is found in a process that ran the code; files below folder/nvidia are devices."""
    code = f"""
import mmap, os, socket, subprocess, sys, threading, time
from gpumux.process import footprint
from gpumux.process.devices import open_files
known = list(open_files())
{left}
print(footprint.unfit(known, {'at embed.py:3' if 'nvidia' in left else ''!r}, (sys.argv[1] + "/nvidia",)))
os._exit(0)
"""
    # os._exit leaves out the output's buffer.
    done = subprocess.run([sys.executable, "-u", "-c", code, folder], env={**os.environ, "PYTHONPATH": RUNTIME}, capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise AssertionError(done.stderr)
    return done.stdout.strip()


class TestFootprint(unittest.TestCase):
    def test_what_an_import_leaves(self):
        nvidia = "file = open(sys.argv[1] + '/nvidia0', 'rb+')"
        for left, want in {
            "": "",
            "files = open('/dev/null'), open('/dev/urandom'), os.memfd_create('gpumux-x')": "",
            nvidia: "uses the device at embed.py:3 (",
            nvidia + "; memory = mmap.mmap(file.fileno(), 1); file.close()": "nvidia0 is open)",
            "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()": "leaves 1 threads running",
            "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE)": "running, which belongs to no item",
            "pair = socket.socketpair()": "leaves socket:[",
            "file = open(sys.argv[1] + '/x y.bin')": "/x y.bin open",
            "shared = mmap.mmap(-1, 4096)": "memory that all items would share (/dev/zero",
        }.items():
            with self.subTest(left=left), tempfile.TemporaryDirectory() as folder:
                for name in ("nvidia0", "x y.bin"):
                    with open(os.path.join(folder, name), "w") as file:
                        file.write("x")
                found = unfit(left, folder)
                if want:
                    self.assertIn(want, found)
                else:
                    self.assertEqual("", found)
