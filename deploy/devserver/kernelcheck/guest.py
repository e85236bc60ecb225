"""Runs the steps of steps.json one after the other in the virtual machine, as its first process, and writes how each ended."""

import ctypes
import glob
import json
import mmap
import os
import signal
import subprocess
import sys
import time

SHARE = "/share"
CGROUPS = "/sys/fs/cgroup"


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def keep(*paths):
    """Leave programs in memory. Where it is short, the kernel would drop what it can read from their files again, and do so for
    minutes on a machine like this one, before it ends a process.
    """
    for path in paths:
        with open(path, "rb") as file:
            kept.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))
    present = 1
    if ctypes.CDLL(None, use_errno=True).mlockall(present):
        raise OSError(ctypes.get_errno(), "mlockall")


kept = []


def delegated(name):
    """A cgroup that is handed over to what runs in it, as a service manager does."""
    path = os.path.join(CGROUPS, name)
    os.mkdir(path)
    for kind in ("trusted", "user"):
        os.setxattr(path, kind + ".delegate", b"1")
    return path


def await_end(pid, limit):
    """Wait for a process and reap all orphans on the way, which the first process has to; None when it took too long."""

    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(max(1, int(limit)))
    try:
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == pid:
                return os.waitstatus_to_exitcode(status)
    except TimeoutError:
        return None
    finally:
        signal.alarm(0)


def run(number, step, end):
    began = time.monotonic()
    home = delegated(f"step-{number}") if step.get("delegated") else CGROUPS
    env = {**os.environ, "HOME": "/root", **step.get("env", {})}
    with open(os.path.join(SHARE, "out", f"{number}.log"), "wb") as log:
        child = subprocess.Popen(step["command"], cwd=step["dir"], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 start_new_session=True,
                                 preexec_fn=lambda: write(os.path.join(home, "cgroup.procs"), "0"))
        code = await_end(child.pid, end - time.monotonic())
        if code is None:
            os.killpg(child.pid, signal.SIGQUIT)  # a Go program says where it was
            if await_end(child.pid, 5) is None:
                os.killpg(child.pid, signal.SIGKILL)
    return {"code": code, "seconds": time.monotonic() - began}


def main():
    keep(sys.executable, "/bin/sh", "/bin/sleep", *glob.glob(os.path.join(SHARE, "bin", "*")))
    write(os.path.join(CGROUPS, "cgroup.subtree_control"), "+memory +pids")
    with open(os.path.join(SHARE, "steps.json")) as file:
        plan = json.load(file)
    end, ended = time.monotonic() + plan["limit"], []
    for number, step in enumerate(plan["steps"]):
        print(f"guest: {step['name']}", flush=True)
        ended.append(run(number, step, end))
        path = os.path.join(SHARE, "out", "ended.json")
        write(path + ".tmp", json.dumps({"kernel": os.uname().release + " " + os.uname().version, "steps": ended}))
        os.replace(path + ".tmp", path)


try:
    main()
except BaseException as error:  # the first process must not end
    print(f"guest: {type(error).__name__}: {error}", flush=True)
finally:
    sys.stdout.flush()
    with open(os.path.join(SHARE, "out", "dmesg.log"), "wb") as log:
        subprocess.run(["dmesg"], stdout=log)
    os.sync()
    subprocess.run(["busybox", "poweroff", "-f"])
