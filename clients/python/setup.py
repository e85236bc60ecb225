"""The wheel: the package, with the gpumux command in it where that can be had.

The command is the one that GPUMUX_BINARY names. Else make builds it, from a clone of the repository where Go is. Without it the package
is for any platform, and runs the command that is on the PATH.
"""

import os
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PATH = os.path.join("build", "gpumux")


def built() -> str:
    """The command, built by make; nothing where that cannot be."""
    compiler = "gcc" if sys.platform == "linux" else "cc"
    missing = [tool for tool in ("make", os.environ.get("GO", "go"), os.environ.get("CC", compiler)) if not shutil.which(tool)]
    if not os.path.isdir(os.path.join(TOP, "cmd", "gpumux")):
        missing = ["clone of gpumux"]
    if missing:
        print(f"gpumux: no {' and no '.join(missing)} here, so the package is built without the gpumux command; put the command on the PATH, "
              "or name it in GPUMUX_BINARY", file=sys.stderr, flush=True)
        return ""
    # With -v Go names each package that it compiles, which pip -v shows.
    flags = {**os.environ, "GOFLAGS": os.environ.get("GOFLAGS", "") + " -v"}
    subprocess.run(["make", "--no-print-directory", "-C", TOP, "build"], check=True, stdout=sys.stderr, env=flags)
    return os.path.join(TOP, "bin", "gpumux")


class Build(build):
    """A build with the command among the files of the package."""

    def run(self) -> None:
        named = os.environ.get("GPUMUX_BINARY")
        if named and not os.path.isfile(named):
            sys.exit(f"GPUMUX_BINARY: there is no file {named}; name the gpumux command that the package shall have, or unset it")
        command = named or built()
        if command:
            os.makedirs("build", exist_ok=True)
            shutil.copy(command, PATH)
            self.distribution.data_files = [("bin", [PATH])]
        super().run()


class Wheel(bdist_wheel):
    """A wheel for any Python; with the command in it, on this platform."""

    def run(self) -> None:
        self.run_command("build")
        self.root_is_pure = not self.distribution.data_files
        super().run()

    def get_tag(self) -> tuple:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build": Build, "bdist_wheel": Wheel})
