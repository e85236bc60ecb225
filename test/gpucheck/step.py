"""A command with a time limit, which leaves no process behind.

Owns what check.py starts. Never decides what runs or what it means. A step stops when its command ends, or with its time.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

GRACE = 5  # seconds between TERM and KILL
PASSED, FAILED, SKIPPED, TIMED_OUT, LEFT_OUT = "passed", "FAILED", "skipped", "TIMED OUT", "LEFT OUT"
BAD = (FAILED, TIMED_OUT, LEFT_OUT)


class Step:
    """A command with a time limit; read makes figures and reasons of what it printed, and of the file measured that it wrote."""

    def __init__(self, name, command, limit, read=None, cwd=None, env=None, measured=""):
        self.name, self.command, self.limit, self.cwd, self.env = name, command, limit, cwd, env or {}
        self.read, self.measured = read or (lambda step, text: None), measured
        self.result, self.seconds, self.figures, self.why, self.code = LEFT_OUT, 0.0, [], "", None

    def row(self):
        return {"step": self.name, "result": self.result, "seconds": round(self.seconds, 1), "figures": self.figures, "why": self.why}


def adopt_orphans():
    """Make processes whose parents ended this one's children, so that none is out of reach."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def descendants():
    """The processes below this one."""
    children = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
    found, queue = [], list(children.get(os.getpid(), ()))
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, ())
    return found


def sweep(process):
    """End what a step left: its group, and whoever came out of it."""
    for _ in range(200):
        left = [pid for pid in descendants() if pid != process.pid or process.poll() is None]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
        if not left:
            return
        time.sleep(0.02)


def run(step, limit, log):
    """Run a step for at most so many seconds; what it prints goes to log, a binary file."""
    began = time.monotonic()
    if step.measured and os.path.exists(step.measured):
        os.remove(step.measured)  # of an earlier run
    log.write(f"\n===== {step.name}: {' '.join(step.command)}\n".encode())
    log.flush()
    start = log.tell()
    try:
        process = subprocess.Popen(step.command, cwd=step.cwd, env={**os.environ, **step.env}, stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        step.result, step.why = FAILED, f"does not start: {error}"
        return step
    try:
        step.code = process.wait(limit)
        step.result = PASSED if step.code == 0 else FAILED
        step.why = "" if step.code == 0 else f"exit status {step.code}"
    except subprocess.TimeoutExpired:
        step.result, step.why = TIMED_OUT, f"took longer than {limit:.0f} s"
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:  # it sleeps in the driver, where no signal reaches it
                step.why += "; the system cannot end it"
        sweep(process)
        step.seconds = time.monotonic() - began
        log.flush()
    log.seek(start)
    text = log.read().decode(errors="replace")
    log.seek(0, os.SEEK_END)
    step.read(step, text)
    if step.result == FAILED:
        step.why += last_words(text)
    return step


def answer(command, seconds, cwd=None):
    """A command's exit status, output and errors. One that takes longer is killed and not waited for: it may sleep in the driver."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return code, *texts


def last_words(text):
    """The lines that most likely say why a step failed: those of the first assertion."""
    said = []
    for line in text.splitlines():
        found = re.match(r"\s+(Error|Messages|expected|actual)\s*:\s*(\S.*)", line)
        if found and found[1] == "Error" and said:
            break
        if found:
            said.append(found[2].strip() if found[1] in ("Error", "Messages") else f"{found[1]} {found[2].strip()}")
        elif said and line.strip().startswith(("---", "FAIL")):
            break
    if said:
        return ": " + ", ".join(each[:200] for each in said)[:400]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ": " + lines[-1][:200] if lines else ""
