"""Tasks whose results stay on the board: with QUIET the process never tells the worker of them, unless it waits."""

import ctypes
import os
import signal
import sys
import time

import gpumux
from gpumux.process import board, wire

if os.environ.get("QUIET"):
    post = wire.Wire._post
    wire.Wire._post = lambda self, now, wait=False: post(self, now, wait) if wait else None


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def half(self, run, n, value, *rest):
    """Die in the middle of writing a record over what the worker has read."""
    self._memory[self._at : self._at + 40] = b"\xff" * 40
    die()


def item(x):
    with open(os.environ["LOG"], "a") as file:
        file.write(f"{x['i']}\n")
    how = x.get("how")
    if how == "kill":
        die()
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "hang":
        time.sleep(600)
    elif how == "gate":
        while not os.path.exists(x["gate"]):
            time.sleep(0.002)
    elif how == "unpublished":
        board.Board.publish = die
    elif how == "half":
        board.Board.add = half
    elif how == "fork":
        os.fork()
    elif how == "raw fork":
        # Nobody tells Python of this one.
        ctypes.CDLL(None).fork()
    elif how == "print":
        sys.stdout.write(f"this is {x['i']}\n" * (x["i"] % 3))
    elif how == "raise":
        raise ValueError("no")
    elif how == "bytes":
        return b"%06d" % x["i"] * x["times"]
    time.sleep(x.get("nap", 0))
    return [x["i"], "x" * x.get("size", 0)]


@gpumux.batch(max=32)
def items(xs):
    return [item(x) for x in xs]
