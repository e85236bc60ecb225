"""The gpumux command: where it is, and one run of it.

Owns the process from its start to its end. Nothing of it is left when what started it is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
import weakref
from typing import Any, Callable, Optional, Sequence

from ..process import argument
from .fault import Error, Unavailable, failure, in_python
from .options import flags

_log = logging.getLogger("gpumux")
# How long the command may take to end its processes before it is killed; its own sweeper ends them then.
_GRACE = 20.0


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
        raise Unavailable("there is no gpumux command: put it on PATH, or name it in GPUMUX_BINARY; where Go is, installing the package from a clone of gpumux builds it")
    return found


class Command:
    """A run of the command, which ends with its owner."""

    def __init__(
        self, owner: Any, arguments: Sequence[str], options: dict, *, fed: bool, environ: Optional[dict] = None,
        heard: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Run it with arguments and the flags of options. heard gets what it says, line by line, in a thread of its own."""
        self._options, files = options, []
        if options.get("arg") is not None:
            # A word of a command has at most 128 KiB.
            file = tempfile.NamedTemporaryFile(prefix="gpumux-", suffix=".arg")
            try:
                argument.write(options["arg"], file)
                file.flush()
            except OSError as error:
                raise OSError(error.errno, f"cannot write arg to {file.name}: {error.strerror}; set TMPDIR to a folder with room for it") from None
            arguments, files = [*arguments, "--arg", file.name], [file]
        self.process = subprocess.Popen(
            [find(), *arguments, *flags({**options, "arg": None})], stdin=subprocess.PIPE if fed else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environ, bufsize=1 << 16, start_new_session=True,
        )
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._said: list[str] = []
        # What the finalizer and the thread hold must not keep the owner alive.
        self._end = weakref.finalize(owner, unless_forked, os.getpid(), _stop, self.process, files)
        if fed:
            _fed.add(self.process)
        self._listener = threading.Thread(target=_listen, args=(self.process, self._said, heard), daemon=True)
        self._listener.start()

    @property
    def running(self) -> bool:
        """Whether nobody has ended it yet."""
        return self._end.alive

    def end(self) -> None:
        """End it and wait until nothing of it is left."""
        self._end()
        self._listener.join()

    def failure(self) -> Error:
        """The error that its exit code and its last words are."""
        code = self.process.wait()
        self._listener.join()
        return failure(code, "\n".join(self._said) or f"gpumux ended with {code} and said nothing", self._options)


# Processes with an input, which ends when nobody has it any more.
_fed: "weakref.WeakSet[subprocess.Popen]" = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: have no part in inputs that the parent is to end."""
    null = os.open(os.devnull, os.O_RDWR)
    for process in _fed:
        if process.stdin is not None and not process.stdin.closed:
            os.dup2(null, process.stdin.fileno(), inheritable=False)
    os.close(null)


os.register_at_fork(after_in_child=_let_go)


def unless_forked(process: int, call: Callable[..., Any], *args: Any, **named: Any) -> None:
    """Call it, but not in a child that has a copy of what is the parent's."""
    if os.getpid() == process:
        call(*args, **named)


def _listen(process: subprocess.Popen, said: list, heard: Callable[[str], None]) -> None:
    """Log what the command says on standard error, its notes as warnings, and keep the end of it."""
    assert process.stderr is not None
    with process.stderr as said_now:
        for raw in said_now:
            line = raw.decode(errors="replace").rstrip("\n")
            if line.startswith("note: "):
                _log.warning("%s", in_python(line, {}))
            else:
                _log.info("%s", line)
            heard(line)
            said.append(line)
            del said[:-200]


def _stop(process: subprocess.Popen, files: list) -> None:
    """End the command and wait until nothing of it is left, and remove files that are its own."""
    for file in files:
        file.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdout is not None
    process.stdout.close()
    if process.stdin is not None:
        with contextlib.suppress(OSError, ValueError):  # its reader is gone, or who writes closes it just now
            process.stdin.close()
