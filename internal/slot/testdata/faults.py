"""Tasks that end badly: an item, or the environment, says how and when."""

import atexit
import builtins
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import types


def native(kind=ctypes.CDLL):
    return kind(os.environ["NATIVE"])


def ignore_term():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def sockets():
    """The descriptors of this process that are sockets; the wire is the only one."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + fd).startswith("socket:"):
                yield int(fd)
        except OSError:
            pass


def garbage(text):
    for fd in sockets():
        os.write(fd, text)
    time.sleep(600)


def close_wire():
    os.closerange(3, 2048)
    time.sleep(600)


def recurse(n):
    return recurse(n + 1)


def framework(name, text, **fields):
    """Raise the exception of the class that name says, as a framework does."""
    error = class_of(name)(text)
    for field, value in fields.items():
        setattr(error, field, value)
    raise error


def class_of(name):
    """The exception class that name says, in a module of the right name."""
    if hasattr(builtins, name):
        return getattr(builtins, name)
    module, _, qualified = name.rpartition(".")
    at = ""
    for part in module.split("."):
        at = f"{at}.{part}".lstrip(".")
        sys.modules.setdefault(at, types.ModuleType(at))
    made = type(qualified, (RuntimeError,), {"__module__": module or "builtins"})
    if module:
        setattr(sys.modules[module], qualified, made)
    return made


def bomb():
    """Fork as long as the system lets anybody do it."""
    if os.getuid() == 0:
        # The limit does not hold for root.
        resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
        os.setuid(60000 + os.getpid() % 5000)
    else:
        mine = sum(os.stat("/proc/" + each).st_uid == os.getuid() for each in os.listdir("/proc") if each.isdigit())
        resource.setrlimit(resource.RLIMIT_NPROC, (mine + 60, mine + 60))
    refused = False
    while not refused:
        try:
            os.fork()
        except BlockingIOError:
            refused = True
    time.sleep(600)


def host_memory():
    """Run out of memory in a cgroup of this process's own."""
    with open(os.environ["CGROUP"] + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)))


WAYS = {
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "kill": lambda: (os.kill(os.getpid(), signal.SIGKILL), time.sleep(600)),
    "term": lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(600)),
    "bus": lambda: (os.kill(os.getpid(), signal.SIGBUS), time.sleep(600)),
    "exit0": lambda: os._exit(0),
    "exit3": lambda: os._exit(3),
    "terminate": lambda: native().terminate(),
    "overflow": lambda: native().overflow(0),
    "memory": lambda: bytearray(1 << 62),
    "host_memory": host_memory,
    "device_memory": lambda: framework("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB."),
    "poison": lambda: framework("torch.AcceleratorError", "CUDA error: device-side assert triggered", error_code=710),
    "lost": lambda: framework("pynvml.NVMLError_GpuIsLost", "GPU is lost"),
    "hang": lambda: time.sleep(600),
    "stubborn": lambda: (ignore_term(), time.sleep(600)),
    "spin": lambda: native(ctypes.PyDLL).spin(),
    "stop": lambda: (os.kill(os.getpid(), signal.SIGSTOP), time.sleep(600)),
    "bomb": bomb,
    "garbage": lambda: garbage(b"\x00\x00\x00\x05hello"),
    "length": lambda: garbage(b"\xff\xff\xff\xff"),
    "close_wire": close_wire,
    "lose_wire": lambda: os.closerange(3, 2048),
    "replace_wire": lambda: [os.dup2(os.open(os.devnull, os.O_RDWR), fd) for fd in list(sockets())],
    "sys_exit": lambda: sys.exit(3),
    "interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt()),
    "exception": lambda: {}["missing"],
    "recursion": lambda: recurse(0),
}


def end(how):
    print("last words of", how, flush=True)
    WAYS[how]()


def idle(how, gate):
    """End in this way from another thread once the gate is there, that is between items."""
    while not os.path.exists(gate):
        time.sleep(0.002)
    end(how)


def item(x):
    with open(os.environ["LOG"], "a") as file:
        file.write(f"{x['i']}\n")
    if "idle" in x:
        threading.Thread(target=idle, args=(x["idle"], x["gate"]), daemon=True).start()
    if "end" in x:
        end(x["end"])
    time.sleep(x.get("nap", 0))
    return [x["i"], os.getpid()]


def flood(x):
    while x:
        os.write(1, b"endless " * 8192)
    return x


def daemon(x):
    """Leave a descendant in a session of its own that holds standard output."""
    if x in ("fork", "fork and hang"):
        # Its parent is gone and its group another: a daemon as the books have it.
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            ignore_term()
            while True:
                os.write(1, b".")
                time.sleep(0.01)
        if x != "fork":
            time.sleep(600)
    elif x == "exec":
        subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do echo .; sleep 0.1; done"], start_new_session=True)
    elif x in ("clear", "replace"):
        # As "fork", and nothing of the environment is left; the arguments tell the test whose it is.
        done, hold = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            forever = ["sh", "-c", "trap '' TERM; while :; do sleep 0.2; done", "FAULTS=" + os.environ["FAULTS"]]
            os.execve("/bin/sh", forever, {} if x == "clear" else {"PATH": "/bin:/usr/bin"})
        os.close(hold)
        os.read(done, 1)
        os.close(done)
    elif x == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif x == "hang":
        time.sleep(600)
    return os.getpid()


def guarded(x):
    """Leave a descendant in a session of its own, or wait for a gate."""
    with open(os.environ["LOG"], "a") as file:
        file.write("begun\n")
    if x == "daemon":
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
    else:
        while not os.path.exists(x):
            time.sleep(0.005)
    return os.getpid()


if gate := os.environ.get("LOAD_GATE"):
    while not os.path.exists(gate):
        time.sleep(0.005)
if how := os.environ.get("END_IMPORT"):
    end(how)
if how := os.environ.get("END_EXIT"):
    atexit.register(end, how)
