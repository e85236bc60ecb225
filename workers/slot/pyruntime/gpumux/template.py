"""A process that has imported the task and forks children, each of which then serves the wire as a task process does.

Owns the channel on which the worker asks for children, and what a child has to make its own: its descriptors, its marks, its
random state. Never runs an item. Stops when the worker closes the channel. One child always waits ahead; it takes the request
off the channel itself, and the template forks the next.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import socket
import sys
import time
import warnings
from typing import Any, Callable, Optional

from .chance import Chance
from .wire import DESCRIPTOR, Wire, take

# Descriptors that a child receives, from that of the wire on; kept free while the task is imported.
_RESERVED = 5
_PR_SET_PDEATHSIG = 1
# How long a fork for trial may take, in seconds, and the exit status that says that it went well.
_TRY, _FINE = 3, 77
_MARK = b"GPUMUX_PROCESS="


class Template:
    """The template's side of the channel, and in a child what it was forked with."""

    def __init__(self, descriptor: int, worker: int) -> None:
        """Take the channel, an inherited socket; worker is the process that children belong to."""
        fd = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
        os.close(descriptor)
        self._channel = socket.socket(fileno=fd)
        self._channel.setblocking(True)
        self._worker = worker
        self.child = False
        """This process is a child that the worker has taken."""
        self._chance = Chance()
        self._output = -1
        self._outputs: list[int] = []
        self._known: list[int] = []
        self._handlers: dict[int, Any] = {}
        self._why = ""

    def before(self) -> None:
        """Get ready for the import of the task."""
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(DESCRIPTOR, DESCRIPTOR + _RESERVED):
            if fd != null:
                os.dup2(null, fd, inheritable=False)
        # What the task does to its standard output stays; only what leads to this file leads to the item's own later.
        self._output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 20)
        self._known = _descriptors()
        self._handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._chance.follow()
        except Exception as error:
            self._why = f"{type(error).__name__}: {error}"

    def after(self) -> None:
        """The task is imported: tell the worker on the channel whether children can be forked, and why not."""
        why = self._why
        try:
            self._prctl, self._split = _system()
            self._mark, self._title = _memory()
            self._chance.settle()
            now = {number: signal.getsignal(number) for number in self._handlers}
            self._handlers = {number: now[number] for number in now if now[number] not in (None, self._handlers[number])}
            _try_fork()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        gc.collect()
        gc.freeze()
        _flush()
        self._outputs = _same(self._output)
        known = ",".join(map(str, self._known))
        self._channel.send(f"refused {why}".encode()[:4096] if why else f"ready {known}".encode())

    def serve(self) -> Optional[Wire]:
        """In each child its wire; in the template None, when the worker wants no more."""
        if not self._channel.recv(64):
            # The worker has looked at what the import left, and wants no child.
            return None
        pause = 0.0
        while True:
            told, tell = os.pipe()
            # The child of a child belongs to the worker, which thus sees its end as that of any task process. The one between does
            # nothing, so Python need not know of it; this process has no other thread that could be in its way.
            if (pid := self._split()) == 0:
                try:
                    if _fork():
                        os._exit(0)
                    os.close(told)
                    return self._wait(tell)
                except BaseException:
                    _leave_with_error()
            os.close(tell)
            if pid < 0:
                raise OSError("the system forks no more processes")
            os.waitpid(pid, 0)
            word = os.read(told, 1)
            os.close(told)
            if word == b"e":
                return None
            # A child that ended by itself may do so again and again.
            pause = 0.0 if word else min(1.0, pause * 2 or 0.01)
            time.sleep(pause)

    # In a child.

    def handle(self) -> None:
        """Put back the signal handlers that the task set while it was imported."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _wait(self, tell: int) -> Wire:
        """Wait for a request and become what it asks for."""
        self._tie()
        token, fds, _, _ = socket.recv_fds(self._channel, 64, _RESERVED + 1)
        try:
            os.write(tell, b"t" if token else b"e")
        except BrokenPipeError:
            # The template is gone; nobody forks the next.
            pass
        os.close(tell)
        if not token:
            os._exit(0)
        os.setpgid(0, 0)
        try:
            self._mine(token, fds)
            _forget_exits()
            self._chance.renew()
            wire = Wire(take(), self._output)
        except Exception as error:
            self._answer(f"failed {type(error).__name__}: {error}")
            os._exit(1)
        self.child = True
        self._answer(f"pid {os.getpid()}")
        self._channel.close()
        return wire

    def _answer(self, text: str) -> None:
        self._channel.send(text.encode(errors="replace")[:4096])

    def _tie(self) -> None:
        """End with the worker. The kernel looks at who is the parent at the time of its end, so the parent must be right."""
        deadline = time.monotonic() + 10
        while os.getppid() != self._worker:
            if time.monotonic() > deadline:
                os._exit(1)
            time.sleep(0.0002)
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._worker:
            os._exit(1)

    def _mine(self, token: bytes, fds: list[int]) -> None:
        """Put the descriptors in their places, and this process's own mark where its and its descendants' is looked for."""
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 30) for fd in fds]
        for fd in fds:
            os.close(fd)
        for fd in self._outputs:
            os.dup2(high[0], fd, inheritable=os.get_inheritable(fd))
        for place, fd in enumerate(high[1:], DESCRIPTOR):
            os.dup2(fd, place, inheritable=False)
        for fd in high:
            os.close(fd)
        for fd in range(DESCRIPTOR + len(high) - 1, DESCRIPTOR + _RESERVED):
            os.close(fd)
        os.environ[_MARK[:-1].decode()] = token.decode()
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        os.pwrite(memory, token, self._mark)
        os.pwrite(memory, bytes(self._title[1] - self._title[0]), self._title[0])
        os.close(memory)


def _forget_exits() -> None:
    """Leave out what the import wants done at its exit: a folder that it made for a time is every child's. What the standard library
    does at the exit of a child for the child's own things stays."""
    import atexit
    import logging
    from weakref import finalize

    for each in list(finalize._registry):  # type: ignore[attr-defined]
        each.detach()
    atexit._clear()
    atexit.register(logging.shutdown)
    if finalize._registered_with_atexit:  # type: ignore[attr-defined]
        atexit.register(finalize._exitfunc)  # type: ignore[attr-defined]
    processes = sys.modules.get("multiprocessing.util")
    if processes is not None:
        processes._finalizer_registry.clear()
        atexit.register(processes._exit_function)


def leave(status: int) -> None:
    """End a child as an interpreter ends, but leave its memory to the system, which takes a fraction of the time."""
    import atexit
    import threading

    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        _flush()
        os._exit(status)


def _fork() -> int:
    with warnings.catch_warnings():
        # They are about threads, for which the worker looks.
        warnings.simplefilter("ignore")
        return os.fork()


def _try_fork() -> None:
    """Fork once for nothing. A library that can be forked ends its threads for it; what then still runs would be missing in every
    child. One that cannot may hang in the child, or end it."""
    pid = _fork()
    if pid == 0:
        os._exit(_FINE)
    end, ended = time.monotonic() + _TRY, 0
    while not ended:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise ChildProcessError(f"a process forked for trial hung for {_TRY} s; something that was imported cannot be forked")
            time.sleep(0.001)
    if os.waitstatus_to_exitcode(status) != _FINE:
        raise ChildProcessError("a process forked for trial did not survive it; something that was imported cannot be forked")


def _leave_with_error() -> None:
    sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    _flush()
    os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def _same(fd: int) -> list[int]:
    """All descriptors of the file behind fd."""
    file = os.fstat(fd)
    return [other for other in _descriptors() if os.path.samestat(os.fstat(other), file)]


def _descriptors() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
            found.append(int(name))
        except OSError:
            # The one that was open for the list.
            pass
    return found


def _system() -> tuple[Callable[..., int], Callable[[], int]]:
    """prctl and fork of the C library."""
    import ctypes

    library = ctypes.PyDLL(None)
    library.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    return library.prctl, library.fork


def _memory() -> tuple[int, tuple[int, int]]:
    """Where the kernel keeps the value of this process's mark, and the arguments that only a template has."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    arguments, end_arguments, environment, end = map(int, fields[45:49])
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        text = b"\0" + os.pread(memory, end - environment, environment)
        at = text.find(b"\0" + _MARK)
        title = os.pread(memory, end_arguments - arguments, arguments).rfind(b"\0template\0")
        if at < 0 or title < 0:
            raise OSError("the mark of this process is not where the kernel shows it")
        # What cannot be written now could not be in a child.
        os.pwrite(memory, text[at + 1 : at + 1 + len(_MARK)], environment + at)
    finally:
        os.close(memory)
    return environment + at + len(_MARK), (arguments + title + 1, end_arguments)
