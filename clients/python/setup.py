"""Builds the wheel: the package, and the command that `make wheel` has built."""

import os
import re

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """A wheel for any Python on this platform, since it has a program in it."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple:
        return "py3", "none", super().get_tag()[2]


def version(said: str) -> str:
    """What git says of a release is its version; any other commit is a local version."""
    if re.fullmatch(r"v?\d+(\.\d+)*", said):
        return said.lstrip("v")
    return "0+" + re.sub(r"[^a-zA-Z0-9]+", ".", said).strip(".")


setup(
    version=version(os.environ.get("GPUMUX_VERSION", "dev")),
    packages=["gpumux", "gpumux.client", "gpumux.llm", "gpumux.process", "gpumux.process.child"],
    package_data={"gpumux": ["py.typed"], "gpumux.client": ["*.sh"]},
    data_files=[("bin", ["../../bin/wheel/gpumux"])],
    cmdclass={"bdist_wheel": Wheel},
)
