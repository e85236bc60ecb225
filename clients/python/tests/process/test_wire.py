"""The Python end of the wire against the same golden frames that the Go end is tested with."""

import glob
import json
import os
import socket
import tempfile
import threading
import unittest

from gpumux.process import wire
from gpumux.process.allocators import Usage
from gpumux.process.board import HEAD, Board
from gpumux.process.raw import Raw

NEXT = b'\0\0\0\x10{"type":"next"}\n'
GOLDENS = os.path.join(os.path.dirname(__file__), "..", "..", "..", "..", "internal", "wire", "testdata", "*.golden")


def goldens(side):
    for path in sorted(glob.glob(GOLDENS)):
        with open(path, encoding="utf-8") as file:
            golden = json.load(file)
        if golden["from"] == side:
            yield os.path.basename(path), golden, bytes.fromhex(golden["length"]) + golden["frame"].encode()


class Ends(unittest.TestCase):
    def setUp(self):
        self.far, near = socket.socketpair()
        self.far.settimeout(10)
        self.wire = wire.Wire(near)
        self.addCleanup(self.far.close)
        self.addCleanup(self.wire.close)


class TestPeek(Ends):
    def test_takes_whole_messages_and_never_waits(self):
        self.assertIsNone(self.wire.peek())
        self.far.sendall(NEXT[:9])
        self.assertIsNone(self.wire.peek())
        self.far.sendall(NEXT[9:] + NEXT + NEXT[:2])
        self.assertEqual(self.wire.peek()[0], {"type": "next"})
        self.assertEqual([self.wire.read()[0], self.wire.read()[0]], [{"type": "next"}] * 2)
        self.assertIsNone(self.wire.peek())
        self.far.sendall(NEXT[2:])
        self.assertEqual(self.wire.read()[0], {"type": "next"}, "what peek has of a message is not lost")
        self.assertFalse(self.wire.over)

    def test_sees_the_end(self):
        self.far.sendall(NEXT)
        self.far.close()
        self.assertEqual(self.wire.peek()[0], {"type": "next"})
        self.assertTrue(self.wire.over)
        self.wire.read()
        self.assertIsNone(self.wire.peek())
        self.assertIsNone(self.wire.read())

    def test_refuses_a_frame_that_is_too_large(self):
        self.far.sendall(b"\xff\xff\xff\xff")
        with self.assertRaisesRegex(wire.WireError, "at most"):
            self.wire.peek()


class TestGolden(Ends):
    def test_reads_what_a_worker_says(self):
        seen = set()
        for name, golden, frame in goldens("worker"):
            with self.subTest(name):
                self.far.sendall(frame)
                header, body = self.wire.read()
                self.assertEqual(header.pop("type"), golden["type"])
                seen.add(golden["type"])
                if golden["type"] == "run":
                    items, start = [], 0
                    for size in header.pop("sizes"):
                        items.append(json.loads(bytes(body[start : start + size])))
                        start += size
                    self.assertEqual(start, len(body))
                    header["items"] = items
                self.assertEqual(header, golden["message"])
        self.assertEqual(seen, {"hello", "run", "next", "cancel", "stop"})

    def test_writes_what_a_worker_reads(self):
        seen = set()
        for name, golden, frame in goldens("process"):
            with self.subTest(name):
                with tempfile.TemporaryFile() as output:
                    self.say(golden["type"], golden["message"], output, frame)
                got = self.far.recv(1 << 16)
                self.assertEqual(got, frame)
                seen.add(golden["type"])
        self.assertEqual(seen, {"hello", "ready", "results", "posted", "fault", "canceled", "progress", "cap"})

    def say(self, kind, m, output, frame):
        self.wire._out, self.wire._printed = lambda: os.fstat(output.fileno()).st_size, 0
        output.truncate(m.get("out", 0))
        if "board" in m:
            self.wire.use_board(Board(bytearray(HEAD + 1024)))
            self.wire._board.published = m["board"]
        if m.get("wait"):
            self.far.sendall(NEXT)
        if "allocators" in m:
            self.wire.tell_allocators(Usage(peak=0, **m["allocators"]))
        if kind == "hello":
            self.wire.hello(m["pid"], m["runtime"])
        elif kind == "ready":
            self.wire.ready(m["batch"], m.get("concurrent", 0), m.get("kinds", False))
        elif kind == "canceled":
            self.wire.canceled(m["runs"])
        elif kind == "cap":
            self.wire.cap(m["framework"], m.get("error"))
        elif kind == "progress":
            self.wire.progress(m["run"], m["n"], dump(m["value"]))
        elif kind == "fault":
            self.wire.fault(m["fault"], m.get("run", 0), m.get("n", 0), m.get("attempts", 1), m.get("busy", 0), m.get("peak", 0))
        elif kind == "posted":
            self.wire._post(1.0, m.get("wait", False))
        else:
            kinds = m.get("kinds") or [0] * len(m["values"])
            values = [Raw(kind, b"", dump(value)) if kind else dump(value) for kind, value in zip(kinds, m["values"])]
            self.wire._values(m["run"], m["n"], values, m["busy"], m.get("attempts") or [1] * len(values), m.get("peak", 0), m.get("files", ()))
        self.wire.use_board(None)


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class TestRead(Ends):
    def test_end_of_stream(self):
        self.far.close()
        self.assertIsNone(self.wire.read())

    def test_frames_in_any_pieces(self):
        frames = [frame for _, _, frame in goldens("worker")]
        want = [json.loads(frame[4:].split(b"\n", 1)[0]) for frame in frames]

        def send():
            for byte in b"".join(frames):
                self.far.send(bytes([byte]))

        sender = threading.Thread(target=send)
        sender.start()
        self.assertEqual([self.wire.read()[0] for _ in frames], want)
        sender.join()

    def test_large_frame(self):
        body = b"1" * (9 << 20)
        head = b'{"type":"run"}\n'
        frame = (len(head) + len(body)).to_bytes(4, "big") + head + body
        sender = threading.Thread(target=self.far.sendall, args=(frame,))
        sender.start()
        self.assertEqual(bytes(self.wire.read()[1]), body)
        sender.join()

    def test_garbage(self):
        for frame, words in [
            (b"\xff\xff\xff\xff", "at most"),
            (b"\0\0\0\3abc", "no header line"),
            (b"\0\0\0\4abc\n", "not JSON"),
            (b"\0\0\0\3[]\n", "not a JSON object"),
            (b"\0\0\0\5\xff\xfe{}\n", "not JSON"),
        ]:
            with self.subTest(frame):
                self.far.sendall(frame)
                with self.assertRaisesRegex(wire.WireError, words):
                    self.wire.read()
                self.wire._waiting = bytearray()

    def test_frame_cut_short(self):
        self.far.sendall(b"\0\0\0\4ab")
        self.far.close()
        with self.assertRaisesRegex(wire.WireError, "ended 2 bytes before"):
            self.wire.read()

    def test_go_on_keeps_runs_that_came_ahead(self):
        for header in (b'{"type":"run","run":2}\n', b'{"type":"next"}\n', b'{"type":"stop"}\n'):
            self.far.sendall(len(header).to_bytes(4, "big") + header)
        self.wire.await_next()
        self.assertEqual(self.wire.read()[0]["run"], 2)
        with self.assertRaises(SystemExit):
            self.wire.await_next()


class TestItems(unittest.TestCase):
    def test_of_each_kind(self):
        header = {"run": 1, "sizes": [1, 4, 2], "kinds": [0, 2, 3]}
        body = memoryview(b"1123456")
        wire.check_run(header, body)
        plain, array, mixed = wire.items(header, body)
        self.assertEqual((bytes(plain), array.kind, bytes(array.data), mixed.kind, bytes(mixed.data)), (b"1", 2, b"1234", 3, b"56"))
        del header["kinds"]
        self.assertEqual([bytes(each) for each in wire.items(header, body)], [b"1", b"1234", b"56"])

    def test_kinds_that_no_item_has(self):
        for kinds in ([0, 2], [0, 2, 1], [0, 2, 4], [0, 2, None], [0, 2, [3]], 2):
            with self.assertRaisesRegex(wire.WireError, "a run has 3 items, and their kinds are "):
                wire.check_run({"run": 1, "sizes": [1, 4, 2], "kinds": kinds}, memoryview(b"1123456"))


class TestSend(Ends):
    def test_threads_do_not_mix_frames(self):
        def report(run):
            for n in range(200):
                self.wire.progress(run, n, b'"%s"' % (b"x" * 500))

        threads = [threading.Thread(target=report, args=(run,)) for run in (1, 2, 3)]
        got = {1: [], 2: [], 3: []}
        reader = wire.Wire(self.far)
        for thread in threads:
            thread.start()
        for _ in range(600):
            header, _ = reader.read()
            got[header["run"]].append(header["n"])
        for thread in threads:
            thread.join()
        self.assertEqual(list(got.values()), [list(range(200))] * 3)

    def test_large_value(self):
        value = b'"' + b"x" * (3 << 20) + b'"'
        sender = threading.Thread(target=self.wire.result, args=(1, 0, value, 0.5, 1.0))
        sender.start()
        header, body = wire.Wire(self.far).read()
        sender.join()
        self.assertEqual((header["sizes"], bytes(body)), ([len(value)], value))


if __name__ == "__main__":
    unittest.main()
