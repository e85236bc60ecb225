"""Tasks that do to their process what must not reach the wire. The item says which."""

import ctypes
import logging
import multiprocessing
import os
import subprocess
import sys
import threading

import gpumux


def prints(x):
    print("printed", x)
    sys.stdout.write("no newline")
    print("to stderr", file=sys.stderr)
    logging.getLogger("task").info("logged")
    return x


def binary(x):
    for fd in (0, 1, 2):
        try:
            os.write(fd, b"\0\0\0\2{}\n\xff\xfe" * 100)
        except OSError:
            pass
    return x


def closes(x):
    for fd in (0, 1, 2):
        try:
            os.close(fd)
        except OSError:
            pass
    try:
        print("into nothing")
    except (OSError, ValueError):
        pass
    return x


def replaces(x):
    sys.stdout = [None, object(), open(os.devnull, "w")][x % 3]
    if x == 2:
        sys.stdout.close()
    sys.stderr = None
    return x


def children(x):
    subprocess.run([sys.executable, "-c", "print('grandchild')"], check=True)
    pid = os.fork()
    if pid == 0:
        print("child", x)
        sys.stdout.flush()
        os._exit(7)
    return os.WEXITSTATUS(os.waitpid(pid, 0)[1])


def links():
    for fd in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink("/proc/self/fd/" + fd)
        except OSError:
            # The folder that listdir read.
            pass


def inherited(x):
    """What the task itself, a program that it starts and a fork have of the wire."""
    wire = os.readlink(f"/proc/self/fd/{gpumux._report.__self__._wire._sock.fileno()}")
    program = subprocess.run(["ls", "-l", "/proc/self/fd"], check=True, capture_output=True, text=True).stdout
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"has it" if wire in links() else b"clean")
        os._exit(0)
    os.close(write)
    fork = os.read(read, 100).decode()
    os.close(read)
    os.waitpid(pid, 0)
    return [wire in links(), wire in program, fork]


left = []


def returns_in_child(x):
    """Both parent and child come back from this item."""
    pid = os.fork()
    if pid:
        left.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return left[-1]
    if x == "raise":
        raise ValueError("in the child")
    if x == "exit":
        sys.exit(9)
    return "from the child"


def forks_behind_python(x):
    """A fork that Python's hooks do not see."""
    pid = ctypes.CDLL(None).fork()
    if pid:
        return os.WEXITSTATUS(os.waitpid(pid, 0)[1])
    return "from the child"


def square(x):
    return x * x


def pools(x):
    got = []
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            got.append(pool.map(square, range(x)))
    return got


def threads(x):
    got = []
    workers = [threading.Thread(target=lambda: (print("thread"), got.append(1))) for _ in range(x)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(got)
