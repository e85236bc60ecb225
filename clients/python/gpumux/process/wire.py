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
from functools import partial
from time import perf_counter
from typing import Any, Callable, Iterator, Sequence

from . import board as boards
from .allocators import Usage
from .raw import ARRAY, MIXED, Raw

VERSION = 1
MAX_FRAME = 1 << 30
DESCRIPTOR = 3
# A frame from this size on is sent in two pieces, to spare a copy.
_LARGE = 1 << 18
# How long results stay on the board before a posted message, while others follow, in seconds. The worker also polls, and gets a message
# in the middle of each run, when it sends the next one.
_QUIET = 0.1

_length = struct.Struct(">I")
_dumps = json.JSONEncoder(separators=(",", ":")).encode


class WireError(Exception):
    """The other side breaks the protocol, or the socket is gone."""


def check_run(header: dict, body: memoryview) -> None:
    """Raise WireError where a run is not valid."""
    sizes = header.get("sizes")
    numbers = [header.get("run"), header.get("attempts") or 1]
    if not isinstance(sizes, list) or not _positive([*numbers, *sizes]):
        raise WireError(f"a run has a header that is not valid: {str(header)[:200]}")
    kinds = header.get("kinds") or [0] * len(sizes)
    if not isinstance(kinds, list) or len(kinds) != len(sizes) or any(kind not in (0, ARRAY, MIXED) for kind in kinds):
        raise WireError(f"a run has {len(sizes)} items, and their kinds are {str(kinds)[:200]}")
    if sum(sizes) != len(body):
        raise WireError(f"a run has a body of {len(body)} bytes, and sizes for {sum(sizes)}")


def items(header: dict, body: memoryview) -> Iterator[memoryview | Raw]:
    """The items of a valid run as they came: as JSON, or Raw."""
    kinds, start = header.get("kinds"), 0
    for n, size in enumerate(header["sizes"]):
        piece = body[start : start + size]
        start += size
        yield Raw(kinds[n], b"", piece) if kinds and kinds[n] else piece


def _positive(numbers: list) -> bool:
    return set(map(type, numbers)) == {int} and min(numbers) > 0


def inherit() -> socket.socket:
    """Move the inherited descriptor away from the task and its children."""
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


def _output(fd: int) -> Callable[[], int] | None:
    """A function for the size of the file behind fd, whatever the task does to fd, or None where it is no file."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        kept = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    except OSError:
        return None
    try:
        # A descriptor of its own allows the fast way, a seek.
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return lambda: os.fstat(kept).st_size
    os.dup2(again, kept, inheritable=False)
    os.close(again)
    return partial(os.lseek, kept, 0, os.SEEK_END)


class Wire:
    """One end of the wire. The main thread reads and answers; any thread may report progress."""

    def __init__(self, sock: socket.socket, output: int = 1) -> None:
        """The socket is the worker's; output is a descriptor of the file that the process prints to."""
        self._sock = sock
        self._identity = os.fstat(sock.fileno())
        self._lock = threading.Lock()
        self._main = threading.get_ident()
        self._waiting = bytearray()
        self._ahead: list[tuple[dict, memoryview]] = []
        self._out, self._printed = _output(output), 0
        self._board: boards.Board | None = None
        # The end of the board in the last message, and its time; the item of the run after which the next one goes out.
        self._posted, self._when, self._middle = 0, 0.0, 0
        self.sending = False
        """The main thread is answering: a signal handler lets it finish."""
        self.over = False
        """peek has seen the end of the stream."""
        # What the allocators hold, as a field of the next answer.
        self._allocators = ""

    def join(self, descriptor: int, output: int) -> None:
        """Replace the socket by the one behind descriptor, and the output likewise."""
        os.dup2(descriptor, self._sock.fileno(), inheritable=False)
        os.close(descriptor)
        self._identity = os.fstat(self._sock.fileno())
        self._out = _output(output)

    def lost(self) -> bool:
        """Whether the task has closed the socket's descriptor, or put something else in its place."""
        try:
            return not os.path.samestat(os.fstat(self._sock.fileno()), self._identity)
        except OSError:
            return True

    def close(self) -> None:
        """Close this process's copy of the socket."""
        self._sock.close()

    def forked(self) -> None:
        """Close the socket in a child, whatever another thread of the parent was doing with it."""
        self._lock = threading.Lock()
        self._board = None
        self._sock.close()

    def use_board(self, board: boards.Board | None) -> None:
        """Put results that fit on the board from now on."""
        self._board = board

    def begin_run(self, items: int) -> None:
        """A run of so many items begins."""
        self._middle = (items - 1) // 2

    # From the worker.

    def read(self) -> tuple[dict, memoryview] | None:
        """The next message, as header and body, or None at the end of the stream. Before a wait the worker learns of all results."""
        if self._ahead:
            return self._ahead.pop(0)
        return self._read()

    def peek(self) -> tuple[dict, memoryview] | None:
        """The next message if it has come whole, which stays the next one, or None. Never waits."""
        while not self.over:
            try:
                data = self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            self.over = not data
            self._waiting += data
        while len(self._waiting) >= 4:
            size = _length.unpack_from(self._waiting)[0]
            if size <= MAX_FRAME and len(self._waiting) - 4 < size:
                break
            message = self._read()
            assert message is not None
            self._ahead.append(message)
        return self._ahead[0] if self._ahead else None

    def watch(self, loop: Any, call: Callable[[], Any]) -> None:
        """Have the event loop call when peek may find more."""
        loop.add_reader(self._sock.fileno(), call)
        # uvloop makes what it watches non-blocking.
        self._sock.setblocking(True)

    def unwatch(self, loop: Any) -> None:
        loop.remove_reader(self._sock.fileno())

    def await_next(self) -> None:
        """Wait until the worker allows another item: after a fault it may end this process instead."""
        while True:
            message = self._read()
            if message is None or message[0].get("type") == "stop":
                raise SystemExit(0)
            if message[0].get("type") == "next":
                return
            self._ahead.append(message)

    def _read(self) -> tuple[dict, memoryview] | None:
        prefix = self._receive_all(4, True)
        if prefix is None:
            return None
        size = _length.unpack(prefix)[0]
        if size > MAX_FRAME:
            raise WireError(f"the worker announces a frame of {size} bytes; at most {MAX_FRAME} are allowed")
        frame = self._receive_all(size)
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

    def _receive_all(self, size: int, may_end: bool = False) -> bytearray | None:
        waiting = self._waiting
        while len(waiting) < size:
            missing = size - len(waiting)
            try:
                data = self._receive(min(max(missing, 1 << 16), 1 << 22))
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

    def _receive(self, most: int) -> bytes:
        board = self._board
        if board is not None and board.published != self._posted:
            try:
                return self._sock.recv(most, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._post(perf_counter())
        return self._sock.recv(most)

    # To the worker.

    def hello(self, pid: int, runtime: str) -> None:
        self._header({"type": "hello", "version": VERSION, "pid": pid, "runtime": runtime})

    def ready(self, batch: int, concurrent: int = 0, kinds: bool = False) -> None:
        """The task is loaded. With kinds it takes items that have some."""
        header: dict = {"type": "ready", "batch": batch}
        if concurrent:
            header["concurrent"] = concurrent
        if kinds:
            header["kinds"] = True
        self._header(header)

    def canceled(self, runs: list[int]) -> None:
        """No item of these runs is under way any more."""
        header: dict = {"type": "canceled", "runs": runs}
        if end := self._tell_board():
            header["board"] = end
        self._header(header)

    def tell_allocators(self, usage: Usage | None) -> None:
        """Say with the next answer, at once, what the frameworks' allocators hold."""
        if usage is not None:
            self._allocators = f',"allocators":{{"live":{usage.live},"reserved":{usage.reserved}}}'

    def _take_allocators(self) -> str:
        field, self._allocators = self._allocators, ""
        return field

    def cap(self, framework: str, error: str | None) -> None:
        """A framework begins to use the device, and its own limit holds, or error says why not. Any thread may call it."""
        header = {"type": "cap", "framework": framework}
        if error:
            header["error"] = error
        self._say(_dumps(header).encode() + b"\n")

    def result(
        self, run: int, n: int, value: bytes | Raw, busy: float, ended: float, attempts: int = 1, peak: int = 0,
        files: Sequence[str] = (),
    ) -> None:
        """One value; ended is when its item did, by perf_counter, peak is Peak.measure's, and files are the names of those that it left."""
        board = self._board
        if board is None or files or len(value) > board.largest:
            self._values(run, n, [value], [busy], [attempts], peak, files)
            return
        out = self._new_output()
        while not board.add(run, n, value, attempts, busy, ended, out, peak):
            self._make_room()
        end = board.publish()
        if n == self._middle or self._allocators or ended - self._when >= _QUIET or end - self._posted > board.largest:
            self._post(ended)

    def results(
        self, run: int, n: int, values: Sequence[bytes | Raw], busy: float, ended: float, peak: int = 0
    ) -> None:
        """The values of consecutive items, the first at position n, that ended together after busy seconds each."""
        board = self._board
        if board is None or max(map(len, values)) > board.largest:
            self._values(run, n, values, [busy] * len(values), [1] * len(values), peak)
            return
        out = self._new_output()
        for i, value in enumerate(values):
            while not board.add(run, n + i, value, 1, busy, ended, out, peak):
                board.publish()
                self._make_room()
            out = 0
        end = board.publish()
        news = n <= self._middle < n + len(values) or self._allocators
        if news or ended - self._when >= _QUIET or end - self._posted > board.largest:
            self._post(ended)

    def _values(
        self, run: int, n: int, values: Sequence[bytes | Raw], busy: list[float], attempts: list[int], peak: int,
        files: Sequence[str] = (),
    ) -> None:
        """Values in a frame. With a board, the worker must read it before the next record."""
        more = "" if max(attempts) == 1 else f',"attempts":[{",".join(map(str, attempts))}]'
        out = self._new_output()
        if out:
            more += f',"out":{out}'
        if peak:
            more += f',"peak":{peak}'
        if self._board is not None:
            more += f'{self._board_field()},"wait":true'
        kinds = [value.kind if type(value) is Raw else 0 for value in values]
        if any(kinds):
            more += f',"kinds":[{",".join(map(str, kinds))}]'
        more += self._take_allocators()
        if files:
            more += f',"files":{json.dumps(list(files), ensure_ascii=False, separators=(",", ":"))}'
        sizes = ",".join([str(len(value)) for value in values])
        seconds = ",".join(["%.6f" % each for each in busy])
        head = f'{{"type":"results","run":{run},"n":{n},"sizes":[{sizes}],"busy":[{seconds}]{more}}}\n'
        pieces: list = []
        for value in values:
            pieces += (value.head, value.data) if type(value) is Raw else (value,)
        self._send(head.encode(), pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._board is not None:
            self._posted = self._board.published
            self.await_next()

    def post(self) -> None:
        """Tell the worker of all results on the board: this process waits for something else than the worker."""
        board = self._board
        if board is not None and board.published != self._posted:
            self._post(perf_counter())

    def _post(self, now: float, wait: bool = False) -> None:
        """Send the end of the board."""
        board = self._board
        assert board is not None
        self._posted, self._when = board.published, now
        more = (',"wait":true' if wait else "") + self._take_allocators()
        self._send(f'{{"type":"posted","board":{board.published}{more}}}\n'.encode(), b"")

    def _make_room(self) -> None:
        self._post(perf_counter(), True)
        self.await_next()
        if self._board.unread():
            raise WireError(f"the worker left {self._board.unread()} bytes on a full board")

    def _tell_board(self) -> int:
        """The end of the board, which the worker learns now."""
        if self._board is None:
            return 0
        self._posted = self._board.published
        return self._posted

    def _board_field(self) -> str:
        """The field with the end of the board."""
        board = self._board
        return f',"board":{board.published}' if board is not None and board.published else ""

    def fault(
        self, fault: dict, run: int = 0, n: int = 0, attempts: int = 1, busy: float = 0.0, peak: int = 0, final: bool = False,
        late: bool = False,
    ) -> None:
        """The exception of an item or, without a run, of the import. A late one is that of its timeout."""
        fields = {
            "run": run, "n": n, "attempts": attempts if attempts > 1 else 0, "final": final, "late": late, "busy": round(busy, 6),
            "out": run and self._new_output(), "peak": peak, "board": self._tell_board(),
        }
        header = {"type": "fault", **{name: value for name, value in fields.items() if value}, "fault": fault}
        self._send(f"{_dumps(header)[:-1]}{self._take_allocators()}}}\n".encode(), b"")

    def progress(self, run: int, n: int, value: bytes) -> None:
        """How far an item is, or of run 0 what the process says of itself. Any thread may call it."""
        head = b'{"type":"progress","run":%d,"n":%d,"value":%b%b}\n' % (run, n, value, self._board_field().encode())
        self._say(head)

    def _new_output(self) -> int:
        """The size of the output, or 0 when that has not changed since the last answer."""
        if self._out is None:
            return 0
        try:
            size = self._out()
        except OSError:
            # The task closed the descriptor; the worker then divides the output by time.
            self._out = None
            return 0
        if size == self._printed:
            return 0
        self._printed = size
        return size

    def _say(self, head: bytes) -> None:
        """A message without a body, from any thread."""
        if threading.get_ident() == self._main:
            self._send(head, b"")
        else:
            with self._lock:
                self._sock.sendall(_length.pack(len(head)) + head)

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
