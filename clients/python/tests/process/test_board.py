"""The writing end of the board against the same golden memory that the reading end is tested with."""

import json
import os
import random
import socket
import struct
import threading
import unittest

from gpumux.process import board, wire
from gpumux.process.raw import Raw

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "..", "..", "..", "internal", "wire", "testdata", "board.json")


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class TestBoard(unittest.TestCase):
    def test_golden_memory(self):
        with open(GOLDEN, encoding="utf-8") as file:
            golden = json.load(file)
        memory = bytearray(golden["size"])
        b = board.Board(memory)
        for step in golden["steps"]:
            struct.pack_into("<Q", memory, 8, step["read"])
            for r in step["records"]:
                value = Raw(r["kind"], b"", bytes.fromhex(r["hex"])) if "kind" in r else dump(r["value"])
                self.assertTrue(b.add(r["run"], r["n"], value, r["attempts"], r["busy"], r["ended"], r["out"], r.get("peak", 0)))
            self.assertEqual(b.publish(), step["board"])
            self.assertEqual(memory.hex(), step["memory"])

    def test_full_until_read(self):
        memory = bytearray(board.HEAD + 256)
        b = board.Board(memory)
        rounds = 0
        for n in range(1000):
            value = b"x" * random.randrange(1, b.largest + 1)
            if not b.add(1, n, value, 1, 0.0, 0.0, 0):
                rounds += 1
                struct.pack_into("<Q", memory, 8, b.published)
                self.assertTrue(b.add(1, n, value, 1, 0.0, 0.0, 0))
            b.publish()
            self.assertLessEqual(b.unread(), 256)
        self.assertGreater(rounds, 100)

    def test_nothing_is_seen_before_it_is_published(self):
        memory = bytearray(board.HEAD + 256)
        b = board.Board(memory)
        b.add(1, 0, b"1", 1, 0.0, 0.0, 0)
        self.assertEqual(memory[:8], bytes(8))
        b.publish()
        self.assertNotEqual(memory[:8], bytes(8))

    def test_a_worker_that_read_more_than_there_is(self):
        memory = bytearray(board.HEAD + 128)
        b = board.Board(memory)
        struct.pack_into("<Q", memory, 8, 1 << 20)
        with self.assertRaisesRegex(ValueError, "has read 1048576 bytes of 0"):
            b.add(1, 0, b"1", 1, 0.0, 0.0, 0)


class TestWire(unittest.TestCase):
    """Results that go to the board, as far as they fit."""

    def setUp(self):
        far, near = socket.socketpair()
        far.settimeout(10)
        self.far, self.wire = wire.Wire(far), wire.Wire(near)
        self.memory = bytearray(board.HEAD + 4096)
        self.board = board.Board(self.memory)
        self.wire.use_board(self.board)
        self.addCleanup(self.far.close)
        self.addCleanup(self.wire.close)

    def told(self):
        header, _ = self.far.read()
        return header

    def test_told_in_the_middle_of_a_run_and_then_seldom(self):
        for items, middle in ((1, 0), (2, 0), (3, 1), (9, 4), (10, 4)):
            self.wire.begin_run(items)
            before = self.board.published
            for n in range(items):
                self.wire.result(1, n, b"1", 0.0, 10.0)
            if items == 1:
                self.assertEqual(self.told()["board"], 64, "the first at once")
                continue
            self.assertEqual(self.told(), {"type": "posted", "board": before + (middle + 1) * 64})
        self.wire.begin_run(3)
        before = self.board.published
        for n, ended in ((0, 10.05), (1, 10.06), (2, 10.161)):
            self.wire.result(1, n, b"1", 0.0, ended)
        self.assertEqual(self.told()["board"], before + 2 * 64)
        self.assertEqual(self.told()["board"], before + 3 * 64, "a long item is told of by itself")

    def test_a_micro_batch_over_the_middle_is_told(self):
        self.wire.begin_run(8)
        for n in range(0, 8, 2):
            self.wire.results(1, n, [b"1", b"2"], 0.0, 10.0)
        self.assertEqual(self.told()["board"], 2 * 64, "the first at once")
        self.assertEqual(self.told()["board"], 4 * 64)
        self.far._sock.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.far.read()

    def test_told_before_it_waits_and_only_then(self):
        self.wire.result(1, 0, b"1", 0.0, 10.0)
        self.told()
        self.wire.result(1, 1, b"1", 0.0, 10.0001)
        run = b'{"type":"run","run":2,"sizes":[1],"attempts":1}\n7'
        self.far._sock.sendall(len(run).to_bytes(4, "big") + run)
        self.assertEqual(self.wire.read()[0]["run"], 2)
        reader = threading.Thread(target=self.wire.read)
        reader.start()
        self.assertEqual(self.told(), {"type": "posted", "board": 128})
        self.far._send(b'{"type":"stop"}\n', b"")
        reader.join()

    def test_a_full_board_waits_for_the_worker(self):
        def answer():
            for n in range(200):
                self.wire.result(1, n, b'"%s"' % (b"x" * 500), 0.0, 10.0)
            self.wire.progress(1, 200, b"0")

        process = threading.Thread(target=answer)
        process.start()
        waited, read = 0, 0
        while (header := self.told())["type"] != "progress":
            self.assertLessEqual(header["board"] - read, 4096)
            if header.get("wait"):
                waited, read = waited + 1, header["board"]
                struct.pack_into("<Q", self.memory, 8, read)
                self.far._send(b'{"type":"next"}\n', b"")
        process.join()
        self.assertGreater(waited, 20)

    def test_a_large_value_is_a_frame_that_waits(self):
        self.wire.result(1, 0, b"1", 0.0, 10.0)
        self.told()
        self.wire.result(1, 1, b"1", 0.0, 10.0001)
        self.far._send(b'{"type":"next"}\n', b"")
        self.wire.result(1, 2, b'"%s"' % (b"x" * 5000), 0.5, 10.0)
        header, body = self.far.read()
        self.assertEqual((header["n"], header["board"], header["wait"], len(body)), (2, 128, True, 5002))
        self.assertEqual(self.board.published, 128)

    def test_a_micro_batch_is_published_whole(self):
        self.wire.results(1, 0, [b"1", b"2", b"3"], 0.5, 10.0)
        self.assertEqual(self.told(), {"type": "posted", "board": 3 * 64})

    def test_a_forked_child_has_none(self):
        self.wire.forked()
        self.assertIsNone(self.wire._board)
        self.assertEqual(bytes(self.memory), bytes(len(self.memory)))


if __name__ == "__main__":
    unittest.main()
