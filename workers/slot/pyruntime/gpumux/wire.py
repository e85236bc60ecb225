"""The wire: frames on the socket to the worker, protocol version 1. See docs/wire.md.

Owns the socket. Never looks into an item or a value. Stops when the worker closes its end.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import struct
import threading

VERSION = 1
MAX_FRAME = 1 << 30
DESCRIPTOR = 3
# A frame from this size on is sent in two pieces, to spare a copy.
_LARGE = 1 << 18

_length = struct.Struct(">I")
_dumps = json.JSONEncoder(separators=(",", ":")).encode


class WireError(Exception):
    """The other side does not speak this protocol, or the socket is gone."""


def take() -> socket.socket:
    """Move the inherited descriptor out of the way of the task and of every program that the task starts."""
    for lowest in (900, 200, 10):
        try:
            fd = fcntl.fcntl(DESCRIPTOR, fcntl.F_DUPFD_CLOEXEC, lowest)
            break
        except OSError as error:
            # EINVAL: the limit on open files is lower.
            reason = error
    else:
        raise WireError(f"descriptor {DESCRIPTOR} is not open ({reason}); a gpumux worker starts this program") from reason
    os.close(DESCRIPTOR)
    try:
        sock = socket.socket(fileno=fd)
    except OSError as error:
        raise WireError(f"descriptor {DESCRIPTOR} is no socket ({error}); a gpumux worker starts this program") from error
    sock.setblocking(True)
    return sock


def _output() -> int | None:
    """A descriptor of the file behind standard output that the task cannot close, or None where it is no file."""
    try:
        fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 10)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


class Wire:
    """One end of the wire. The main thread reads and answers; any thread may report progress."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._main = threading.get_ident()
        self._waiting = bytearray()
        self._ahead: list[tuple[dict, memoryview]] = []
        self._out, self._printed = _output(), 0
        self.sending = False
        """The main thread is answering: a signal handler lets it come to the end of the answer."""

    def close(self) -> None:
        """Close this process's copy of the socket."""
        self._sock.close()

    def forked(self) -> None:
        """Let go of the socket in a child, whatever another thread of the parent was doing with it."""
        self._lock = threading.Lock()
        self._sock.close()

    # From the worker.

    def read(self) -> tuple[dict, memoryview] | None:
        """The next message, as header and body, or None at the end of the stream."""
        if self._ahead:
            return self._ahead.pop(0)
        return self._read()

    def go_on(self) -> None:
        """Wait for the worker's leave to run another item: after a fault it may end this process instead."""
        while True:
            message = self._read()
            if message is None or message[0].get("type") == "stop":
                raise SystemExit(0)
            if message[0].get("type") == "next":
                return
            self._ahead.append(message)

    def _read(self) -> tuple[dict, memoryview] | None:
        prefix = self._take(4, True)
        if prefix is None:
            return None
        size = _length.unpack(prefix)[0]
        if size > MAX_FRAME:
            raise WireError(f"the worker announces a frame of {size} bytes; at most {MAX_FRAME} are allowed")
        frame = self._take(size)
        line = frame.find(b"\n")
        if line < 0:
            raise WireError(f"a frame of {size} bytes has no header line: {bytes(frame[:60])!r}")
        try:
            header = json.loads(frame[:line])
        except ValueError as error:
            raise WireError(f"a header is not JSON: {error}: {bytes(frame[:line][:60])!r}") from None
        if not isinstance(header, dict):
            raise WireError(f"a header is not a JSON object: {bytes(frame[:line][:60])!r}")
        return header, memoryview(frame)[line + 1 :]

    def _take(self, size: int, may_end: bool = False) -> bytearray | None:
        waiting = self._waiting
        while len(waiting) < size:
            missing = size - len(waiting)
            try:
                data = self._sock.recv(min(max(missing, 1 << 16), 1 << 22))
            except ConnectionResetError:
                data = b""
            if not data:
                if may_end and not waiting:
                    return None
                raise WireError(f"the stream ended {missing} bytes before the end of a frame")
            waiting += data
        if len(waiting) == size:
            self._waiting = bytearray()
            return waiting
        taken = waiting[:size]
        del waiting[:size]
        return taken

    # To the worker.

    def hello(self, pid: int, runtime: str) -> None:
        self._header({"type": "hello", "version": VERSION, "pid": pid, "runtime": runtime})

    def ready(self, batch: int, trim: bool = False) -> None:
        """The task is loaded; trim says that this side understands the message of that name."""
        header: dict = {"type": "ready", "batch": batch}
        if trim:
            header["trim"] = True
        self._header(header)

    def trimmed(self, busy: float) -> None:
        """Memory was given back, which took busy seconds."""
        self._header({"type": "trimmed", "busy": round(busy, 6)})

    def cap(self, framework: str, error: str | None, reserved: int | None) -> None:
        """A framework begins to use the device, and its own limit holds or why not. With reserved, the bytes that its allocator
        has taken, the main thread waits until the worker has measured what the process holds beside them. May come from any
        thread.
        """
        main = threading.get_ident() == self._main
        header: dict = {"type": "cap", "framework": framework}
        if error:
            header["error"] = error
        if reserved is not None and main:
            if reserved:
                header["reserved"] = reserved
            header["wait"] = True
        if main:
            self._header(header)
            if "wait" in header:
                self.go_on()
            return
        head = _dumps(header).encode() + b"\n"
        with self._lock:
            self._sock.sendall(_length.pack(len(head)) + head)

    def result(self, run: int, n: int, value: bytes, busy: float) -> None:
        """One value that took one attempt: the frame of most items, so it is put together by hand."""
        head = b'{"type":"results","run":%d,"n":%d,"sizes":[%d],"busy":[%.6f]%b}\n'
        self._send(head % (run, n, len(value), busy, self._new_output()), value)

    def results(self, run: int, n: int, values: list[bytes], busy: list[float], attempts: list[int]) -> None:
        """The values of consecutive items, the first at position n."""
        more = "" if max(attempts) == 1 else f',"attempts":[{",".join(map(str, attempts))}]'
        sizes = ",".join([str(len(value)) for value in values])
        seconds = ",".join(["%.6f" % each for each in busy])
        head = f'{{"type":"results","run":{run},"n":{n},"sizes":[{sizes}],"busy":[{seconds}]{more}{self._new_output().decode()}}}\n'
        self._send(head.encode(), b"".join(values))

    def fault(self, fault: dict, run: int = 0, n: int = 0, attempts: int = 1, busy: float = 0.0) -> None:
        """What an item raised or, without a run, why the task could not be loaded."""
        header: dict = {"type": "fault"}
        if run:
            header["run"] = run
        if n:
            header["n"] = n
        if attempts > 1:
            header["attempts"] = attempts
        if busy:
            header["busy"] = round(busy, 6)
        if run and self._new_output():
            header["out"] = self._printed
        header["fault"] = fault
        self._header(header)

    def progress(self, run: int, n: int, value: bytes) -> None:
        """How far an item is. May come from any thread."""
        head = b'{"type":"progress","run":%d,"n":%d,"value":%b}\n' % (run, n, value)
        if threading.get_ident() == self._main:
            self._send(head, b"")
        else:
            with self._lock:
                self._sock.sendall(_length.pack(len(head)) + head)

    def _new_output(self) -> bytes:
        """The field that says where the output so far ends, when there is more of it than at the last answer."""
        if self._out is None:
            return b""
        size = os.fstat(self._out).st_size
        if size == self._printed:
            return b""
        self._printed = size
        return b',"out":%d' % size

    def _header(self, header: dict) -> None:
        self._send(_dumps(header).encode() + b"\n", b"")

    def _send(self, head: bytes, body: bytes) -> None:
        before, self.sending = self.sending, True
        try:
            size = len(head) + len(body)
            with self._lock:
                if len(body) < _LARGE:
                    self._sock.sendall(_length.pack(size) + head + body)
                else:
                    self._sock.sendall(_length.pack(size) + head)
                    self._sock.sendall(body)
        finally:
            self.sending = before
