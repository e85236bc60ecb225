"""A process that has imported the task and forks children, each of which serves the wire as a task process.

Owns the channel for the worker's requests, and what a child replaces after the fork: its descriptors, its random state.
Never runs an item. Stops when the worker closes the channel. A few children always wait; they receive the requests themselves, and the
template forks more.
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
from typing import Any, Callable

from .chance import Chance
from .devices import Devices, open_files
from .footprint import unfit
from .wire import DESCRIPTOR, Wire

# Descriptors from that of the wire on which a task finds closed; the import must leave them free.
_RESERVED = 5
# How many children are forked together. The next ones follow when half of them are taken.
_BATCH = 4
_PR_SET_PDEATHSIG = 1
# How long a trial fork may take, in seconds, and its exit status on success.
_TRY, _FINE = 3, 77
# Modules whose hooks for forks change nothing that children must have apart; chance.py seeds their generators.
_STANDARD = getattr(sys, "stdlib_module_names", ("concurrent", "logging", "random", "threading"))


class Template:
    """The template's side of the channel, and in a child what it was forked with."""

    def __init__(self, descriptor: int, worker: int) -> None:
        """descriptor is the channel, an inherited socket; worker is the process that adopts the children."""
        fd = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
        os.close(descriptor)
        self._channel = socket.socket(fileno=fd)
        self._channel.setblocking(True)
        self._worker = worker
        self.child = False
        """This process is a child that serves the worker."""
        self._chance = Chance()
        self._output = self._writer = -1
        self._outputs: list[tuple[int, bool]] = []
        self._known: list[int] = []
        self._hooked = False
        self._handlers: dict[int, Any] = {}
        self._why = ""

    def prepare(self, folder: str) -> None:
        """Before the import of the task, which is in folder."""
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(DESCRIPTOR, DESCRIPTOR + _RESERVED):
            if fd != null:
                os.dup2(null, fd, inheritable=False)
        # Later, every descriptor of this file will lead to the item's own output.
        self._output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 20)
        self._known = list(open_files())
        self._handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        self._register, os.register_at_fork = os.register_at_fork, self._registered
        try:
            self._chance.follow()
        except Exception as error:
            self._why = f"{type(error).__name__}: {error}"
        self._devices = Devices(folder)
        self._devices.begin()

    def imported(self) -> None:
        """After the import of the task: tell the worker whether children can be forked, or why not."""
        why = self._why
        try:
            opened = self._devices.end()
            os.register_at_fork = self._register
            self._prctl, self._split = _system()
            self._title = _title()
            self._chance.settle()
            now = {number: signal.getsignal(number) for number in self._handlers}
            self._handlers = {number: now[number] for number in now if now[number] not in (None, self._handlers[number])}
            _try_fork()
            gc.collect()
            why = why or unfit(self._known, opened)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        gc.freeze()
        _flush()
        self._outputs = [(fd, os.get_inheritable(fd)) for fd in _same(self._output)]
        self._answer(f"refused {why}" if why else "ready")

    def serve(self) -> bool:
        """True in a process that is ready to take a request; in the template False, when the worker wants no more."""
        if not self._channel.recv(64):
            # The worker wants no child.
            return False
        # Python's hooks cost more than a fork. They run once for the children of a batch, unless the import brought hooks of its own.
        fork, batch = (self._split, 1) if self._hooked else (_fork, _BATCH)
        pause = 0.0
        while True:
            reader, writer = os.pipe()
            # The template double-forks, so the worker adopts the children and reaps them like any task process.
            if (pid := fork()) == 0:
                try:
                    if self._hooked and _fork():
                        os._exit(0)
                    os.close(reader)
                    self._writer = writer
                    _forget_exits()
                    _stand_in()
                    return True
                except BaseException:
                    _leave_with_error()
            os.close(writer)
            if pid < 0:
                raise OSError("the system forks no more processes")
            os.waitpid(pid, 0)
            taken = b""
            while b"e" not in taken and 2 * len(taken) < batch and (more := os.read(reader, batch)):
                taken += more
            os.close(reader)
            if b"e" in taken:
                return False
            # Backoff: children that ended by themselves may do so again and again.
            pause = 0.0 if taken else min(1.0, pause * 2 or 0.01)
            time.sleep(pause)

    def _registered(self, **hooks: Any) -> None:
        """os.register_at_fork during the import."""
        hook = hooks.get("after_in_child")
        if hook is not None and str(getattr(hook, "__module__", "")).partition(".")[0] not in _STANDARD:
            self._hooked = True
        self._register(**hooks)

    # In what it forks.

    def restore_handlers(self) -> None:
        """Restore the signal handlers that the task's import set."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def take(self, wire: Wire) -> None:
        """Become a batch of children, each of which waits for a request and gives wire its socket."""
        if not self._hooked and all(self._split() for _ in range(_BATCH)):
            os._exit(0)
        os.setpgid(0, 0)
        self._end_with_worker()
        self._chance.renew()
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        word, fds, _, _ = socket.recv_fds(self._channel, 64, 2)
        try:
            os.write(self._writer, b"t" if word else b"e")
        except BrokenPipeError:
            # The template is gone, or has forked another batch.
            pass
        os.close(self._writer)
        if not word:
            os._exit(0)
        try:
            output, descriptor = fds
            for fd, inheritable in self._outputs:
                os.dup2(output, fd, inheritable)
            os.close(output)
            # The arguments that only a template has.
            os.pwrite(memory, bytes(self._title[1] - self._title[0]), self._title[0])
            os.close(memory)
            wire.join(descriptor, self._output)
        except Exception as error:
            self._answer(f"failed {type(error).__name__}: {error}")
            os._exit(1)
        self.child = True
        self._answer(f"pid {os.getpid()}")
        self._channel.close()

    def _answer(self, text: str) -> None:
        self._channel.send(text.encode(errors="replace")[:4096])

    def _end_with_worker(self) -> None:
        """Ask for the parent-death signal. It is that of the parent at this moment, so the worker must have adopted this process."""
        deadline = time.monotonic() + 10
        while os.getppid() != self._worker:
            if time.monotonic() > deadline:
                os._exit(1)
            time.sleep(0.001)
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._worker:
            os._exit(1)


def _stand_in() -> None:
    """Close the descriptors that were kept free, except for a socket in the place of a wire until there is one."""
    with socket.socket(socket.AF_UNIX) as own:
        os.dup2(own.fileno(), DESCRIPTOR, inheritable=False)
    for fd in range(DESCRIPTOR + 1, DESCRIPTOR + _RESERVED):
        os.close(fd)


def _forget_exits() -> None:
    """Drop the import's exit handlers: all children share its temporary folders. The standard library's own stay."""
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
    """End a child as an interpreter ends, but let the system free its memory, which is much faster."""
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
        # They are about threads, which footprint.py finds.
        warnings.simplefilter("ignore")
        return os.fork()


def _try_fork() -> None:
    """Fork once as a trial. A library that supports forks ends its threads for it; a thread that still runs would be missing in every
    child. A library that does not may hang or end the child."""
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
    return [other for other in open_files() if os.path.samestat(os.fstat(other), file)]


def _system() -> tuple[Callable[..., int], Callable[[], int]]:
    """prctl and fork of the C library."""
    import ctypes

    library = ctypes.PyDLL(None)
    library.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    return library.prctl, library.fork


def _title() -> tuple[int, int]:
    """The addresses of the arguments that only a template has."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = map(int, fields[45:47])
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        title = os.pread(memory, end - start, start).rfind(b"\0template\0")
        if title < 0:
            raise OSError("the arguments of this process are not where the kernel shows them")
        # A write that fails now would fail in a child.
        os.pwrite(memory, b"t", start + title + 1)
    finally:
        os.close(memory)
    return start + title + 1, end
