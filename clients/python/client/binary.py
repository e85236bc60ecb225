"""Where the gpumux command is."""

from __future__ import annotations

import os
import shutil
import sysconfig

from .fault import Unavailable


def find() -> str:
    """The path of the command: GPUMUX_BINARY, else the one that came with this package, else that of PATH."""
    named = os.environ.get("GPUMUX_BINARY")
    if named:
        return named
    user = "osx_framework_user" if sysconfig.get_config_var("PYTHONFRAMEWORK") else f"{os.name}_user"
    for scheme in (None, user):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        path = os.path.join(folder, "gpumux")
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("gpumux")
    if not found:
        raise Unavailable("there is no gpumux command: install the wheel of gpumux, or put the command on PATH, or name it in GPUMUX_BINARY")
    return found
