"""Tasks that do what they can to stay, to hide, or to hurt what ends them."""

import ctypes
import os
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


WAYS = {
    "memory": lambda: away(hold_memory),
    "subreaper": lambda: away(subreaper),
    "traced child": lambda: away(traced_child),
    "namespaces": namespaces,
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
