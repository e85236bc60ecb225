"""Tasks that do what they can to stay, to hide, or to hurt what ends them."""

import ctypes
import os
import resource
import signal
import subprocess
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)


def away(f):
    """Run f in a process that has left the group and whose parent is gone; return when it says so."""
    done, hold = os.pipe()
    if os.fork() == 0:
        os.close(done)
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        f(lambda: os.write(hold, b"."))
        time.sleep(600)
        os._exit(0)
    os.close(hold)
    assert os.read(done, 1), "the other process said nothing"
    os.close(done)


def hold_memory(ready):
    held = bytearray(os.urandom(1 << 20)) * 64
    ready()
    time.sleep(600)
    return held


def subreaper(ready):
    """Collect orphans, so that they come to nobody else."""
    assert libc.prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
    os.wait()
    ready()


def trace(pid):
    """Hold a process as a debugger does, and never look what becomes of it."""
    def f(ready):
        assert libc.ptrace(16, pid, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PTRACE_ATTACH
        os.waitpid(pid, 0x40000000)  # __WALL
        ready()

    return f


def traced_child(ready):
    """Have a child that is stopped before its first instruction."""
    if os.fork() == 0:
        libc.ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(-1, os.WUNTRACED)
    ready()


def breed():
    while True:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
        time.sleep(0.2)


def namespaces():
    """Go on in a user namespace and a number space of its own, where nobody has the numbers that they have outside."""
    child = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "setsid", "sh", "-c",
         "trap '' TERM; sleep 600 & echo; setsid sleep 600 & wait"],
        stdout=subprocess.PIPE, start_new_session=True, env={"FAULTS": os.environ["FAULTS"], "PATH": os.environ["PATH"]})
    if not child.stdout.readline():
        raise OSError("no namespaces here")


def sweepers():
    """The processes that end what this one leaves behind when the worker is gone."""
    mark = b"\0gpumux-sweeper\0%d\0" % (resource.getrlimit(10)[0] // 10**6)
    for each in os.listdir("/proc"):
        try:
            with open(f"/proc/{each}/cmdline", "rb") as file:
                if mark in file.read():
                    yield int(each)
        except OSError:
            pass


def kill_sweepers():
    for pid in sweepers():
        os.kill(pid, signal.SIGKILL)


WAYS = {
    "memory": lambda: away(hold_memory),
    "subreaper": lambda: away(subreaper),
    "traced child": lambda: away(traced_child),
    "namespaces": namespaces,
    "sweeper": kill_sweepers,
    "traced": lambda: (libc.prctl(0x59616D61, -1, 0, 0, 0), away(trace(os.getpid()))),
    "vfork": lambda: ctypes.CDLL(os.environ["NATIVE"]).borrow(),
    "stop group": lambda: os.killpg(0, signal.SIGSTOP),
    "breed": lambda: ([threading.Thread(target=breed, daemon=True).start() for _ in range(4)], time.sleep(600)),
}


def item(x):
    with open(os.environ["LOG"], "a") as file:
        file.write(f"{x['i']}\n")
    if "how" in x:
        WAYS[x["how"]]()
    return [x["i"], os.getpid()]
