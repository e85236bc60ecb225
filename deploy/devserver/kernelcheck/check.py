#!/usr/bin/env python3
"""Runs the tests that need a kernel with cgroups of version 2 in a virtual machine, and ends with one table.

    make kernel-check         which builds what it runs into .kernel

Needs Debian, root, Go and Python 3.10. QEMU, busybox and Debian's kernel come from apt-get; the kernel is unpacked into .kernel
and not installed. The machine sees the files of this one, and can change none of them. Its workers use a Temporal server that runs
here, since one that is emulated takes minutes to start. The exit code is 0 when every test passed, 1 when one failed, was skipped
or did not get its turn, and 2 when there was no machine.
"""

import argparse
import contextlib
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
WORK = os.path.join(ROOT, ".kernel")
SHARE = os.path.join(WORK, "share")
LIMIT = 8 * 60
# What the machine takes to boot and to stop.
MARGIN = 45
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_blk", "virtio_net")
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static"}
META = "linux-image-amd64"
# Where the machine finds this one's own services.
HOST = "10.0.2.2"
PASSED, FAILED, SKIPPED, LEFT_OUT = "passed", "FAILED", "SKIPPED", "LEFT OUT"
RESULTS = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}


class Unusable(Exception):
    """There is no machine; the message says what to do."""


def apt(*command, cwd=None):
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)
    if done.returncode:
        raise Unusable(f"`{' '.join(command)}` failed: {done.stderr.strip()[-500:]}\n"
                       "run `apt-get update`, and see that this machine reaches Debian's packages")
    return done.stdout


def install():
    """The programs that make and run the machine."""
    if os.uname().machine != "x86_64":
        raise Unusable(f"this runs on amd64 alone, and the machine is {os.uname().machine}")
    if os.geteuid() != 0:
        raise Unusable("this needs root, to install packages and to show all files to the virtual machine: sudo make kernel-check")
    lacking = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if not lacking and os.path.isdir(os.path.join(WORK, "kernel")):
        return
    if not shutil.which("apt-get"):
        raise Unusable("this needs Debian, whose packages have the kernel; there is no apt-get here")
    if lacking:
        apt("apt-get", "install", "-y", "--no-install-recommends", *lacking)


def kernel():
    """Debian's kernel, unpacked: its image and the modules to load, each after those that it needs."""
    at = os.path.join(WORK, "kernel")
    if not os.path.isdir(at):
        found = re.search(r"^\s*Depends: (linux-image-\S+)", apt("apt-cache", "depends", META), re.M)
        if not found:
            raise Unusable(f"apt knows no package that {META} depends on; run `apt-get update`")
        # apt-get downloads as another user, who may not write just anywhere.
        with tempfile.TemporaryDirectory(prefix="gpumux-kernel-") as into:
            os.chmod(into, 0o777)
            apt("apt-get", "download", found[1], cwd=into)
            package, = glob.glob(os.path.join(into, "*.deb"))
            apt("dpkg", "-x", package, at + ".part")
        os.rename(at + ".part", at)
    image, = glob.glob(os.path.join(at, "boot", "vmlinuz-*"))
    found = glob.glob(os.path.join(at, "**", "*.ko"), recursive=True)
    files = {os.path.basename(path)[:-3].replace("-", "_"): path for path in found}
    order = []

    def add(name):
        if name in order or name not in files:  # it is built in
            return
        with open(files[name], "rb") as file:
            needs = re.search(rb"\0depends=([^\0]*)\0", file.read())
        for other in needs[1].decode().split(",") if needs else ():
            add(other.replace("-", "_"))
        order.append(name)

    for name in MODULES:
        add(name)
    return image, [files[name] for name in order]


def first_files(modules):
    """The archive with the machine's first program, boot.sh, and what that needs."""
    at = os.path.join(WORK, "first")
    shutil.rmtree(at, ignore_errors=True)
    for name in ("bin", "modules"):
        os.makedirs(os.path.join(at, name))
    shutil.copy(shutil.which("busybox"), os.path.join(at, "bin", "busybox"))
    os.symlink("busybox", os.path.join(at, "bin", "sh"))
    shutil.copy(os.path.join(HERE, "boot.sh"), os.path.join(at, "init"))
    os.chmod(os.path.join(at, "init"), 0o755)
    for path in modules:
        shutil.copy(path, os.path.join(at, "modules"))
    with open(os.path.join(at, "modules", "order"), "w") as file:
        file.writelines(os.path.basename(path) + "\n" for path in modules)
    packed = os.path.join(WORK, "first.cpio")
    with open(packed, "wb") as out:
        subprocess.run("find . | busybox cpio -o -H newc", shell=True, check=True, cwd=at, stdout=out, stderr=subprocess.DEVNULL)
    return packed


def steps(only, port):
    """What runs in the machine. The tests of slots and processes each have a cgroup of their own, which they move about in."""
    env = {"GPUMUX_KERNEL_CHECK": "1", "GPUMUX_BINARY": "/share/bin/gpumux", "TEMPORAL_ADDRESS": f"{HOST}:{port}",
           "GPUMUX_TEST_PYTHON": "/usr/bin/python3"}
    slot = os.path.join(ROOT, "workers", "slot")
    process = os.path.join(slot, "process")
    # The machine's own temporary files take no attributes, which one of these tests sets.
    plan = [("process", "^TestCgroups_", process, {"TMPDIR": "/share/scratch"})]
    plan += [("slot", pattern, slot, {}) for pattern in (
        "^TestSlot_TheKernelEndsWhatPassesItsBudget$", "^TestSlot_FaultsOfHostMemory$", "^TestExposure_")]
    plan += [("kernelcheck", "^TestKernel_" + only, HERE, {})]
    return [{"name": f"{program} {pattern}", "dir": where, "env": {**env, **more}, "delegated": program != "kernelcheck",
             "command": [f"/share/bin/{program}.test", f"-test.run={pattern}", "-test.v", "-test.timeout=0"]}
            for program, pattern, where, more in plan if not only or program == "kernelcheck"]


@contextlib.contextmanager
def server():
    """A Temporal server of this machine, and its port. Emulated it would take minutes to start."""
    with socket.socket() as free, tempfile.TemporaryDirectory(prefix="gpumux-kernel-") as data:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [os.path.join(WORK, "bin", "gpumux"), "dev", "--no-worker", "--headless", "--port", str(port), "--data", data]
        # Its output is a file, since a pipe that nobody reads on would stop it.
        with open(os.path.join(WORK, "server.log"), "w+") as log:
            run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                end = time.monotonic() + 120
                while "Ctrl-C stops" not in open(log.name).read():
                    if run.poll() is not None or time.monotonic() > end:
                        raise Unusable(f"the Temporal server did not start; {log.name} says why")
                    time.sleep(0.05)
                yield port
            finally:
                run.terminate()
                try:
                    run.wait(30)
                except subprocess.TimeoutExpired:
                    run.kill()


def boot(image, first, plan, limit, accelerator):
    """Run the machine to its end, or to the limit."""
    for name in ("out", "scratch"):
        shutil.rmtree(os.path.join(SHARE, name), ignore_errors=True)
        os.makedirs(os.path.join(SHARE, name))
    shutil.copy(os.path.join(HERE, "guest.py"), SHARE)
    with open(os.path.join(SHARE, "steps.json"), "w") as file:
        json.dump({"limit": max(30, limit - MARGIN), "steps": plan}, file)
    swap = os.path.join(WORK, "swap")
    with open(swap, "wb") as file:
        file.truncate(1 << 30)

    def folder(path, tag, *more):
        return ["-virtfs", ",".join(["local", f"path={path}", f"mount_tag={tag}", "security_model=none", *more])]

    command = ["qemu-system-x86_64", "-accel", accelerator, "-cpu", "max", "-smp", "2", "-m", "1G", "-nographic",
               "-monitor", "none", "-nic", "user,model=virtio-net-pci", "-no-reboot", "-kernel", image, "-initrd", first,
               # On a busy machine the kernel would take its timer for broken.
               "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check",
               *folder("/", "host", "readonly=on", "multidevs=remap"), *folder(SHARE, "share"),
               "-drive", f"file={swap},format=raw,if=virtio,cache=unsafe"]
    log = os.path.join(WORK, "console.log")
    with open(log, "wb") as console:
        machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        try:
            machine.wait(limit)
        except subprocess.TimeoutExpired:
            print(f"check.py: the machine was ended after {limit:.0f} s", file=sys.stderr)
        finally:
            machine.kill()
            machine.wait()
            os.remove(swap)
    return log


def rows(plan):
    """One row for each test that ran, or was to."""
    path = os.path.join(SHARE, "out", "ended.json")
    report = {"kernel": "", "steps": []}
    if os.path.isfile(path):
        with open(path) as file:
            report = json.load(file)
    table = []
    for number, step in enumerate(plan):
        path = os.path.join(SHARE, "out", f"{number}.log")
        text = ""
        if os.path.isfile(path):
            with open(path, errors="replace") as file:
                text = file.read()
        marks = re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", text, re.M)
        parents = {name.rpartition("/")[0] for _, name, _ in marks}
        # A test with tests in it has a row where only it failed.
        blamed = {name.rpartition("/")[0] for mark, name, _ in marks if mark == "FAIL"}
        table += [(name, RESULTS[mark], float(took)) for mark, name, took in marks
                  if name not in parents or mark == "FAIL" and name not in blamed]
        # A test that began and did not end.
        done = {name for _, name, _ in marks}
        table += [(name, FAILED if number < len(report["steps"]) else LEFT_OUT, 0.0)
                  for name in re.findall(r"^=== RUN\s+(\S+)$", text, re.M) if name not in done]
        ended = report["steps"][number]["code"] if number < len(report["steps"]) else None
        if not marks:
            table.append((step["name"], LEFT_OUT if ended is None else FAILED, 0.0))
        elif ended != 0 and all(result == PASSED for _, result, _ in table):
            table.append((step["name"], FAILED, 0.0))
    return report["kernel"], table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="run only the tests that go on like this after TestKernel_")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"the time for the machine (default {LIMIT})")
    parser.add_argument("--accel", default="tcg,thread=multi",
                        help="QEMU's accelerator; kvm is faster where it works (default: %(default)s)")
    given = parser.parse_args()
    began = time.monotonic()
    try:
        install()
        for name in ("bin/gpumux", "share/bin/gpumux", "share/bin/process.test", "share/bin/slot.test", "share/bin/kernelcheck.test"):
            if not os.path.isfile(os.path.join(WORK, name)):
                raise Unusable(f"there is no {WORK}/{name}; run `make kernel-check`, which builds it")
        image, modules = kernel()
        with server() as port:
            plan = steps(given.only, port)
            log = boot(image, first_files(modules), plan, given.limit, given.accel)
    except Unusable as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 2
    release, table = rows(plan)
    if not release:
        with open(log, errors="replace") as file:
            print("".join(file.readlines()[-20:]), file=sys.stderr)
        print(f"check.py: the machine did not come up; all that it said is in {log}", file=sys.stderr)
        return 2
    print(f"what the tests printed: {SHARE}/out; what the machine said: {log}\n")
    width = max(len(name) for name, _, _ in table)
    print(f"{'test':<{width}}  {'result':<8}  seconds")
    for name, result, took in table:
        print(f"{name:<{width}}  {result:<8}  {took:7.1f}")
    count = {kind: sum(result == kind for _, result, _ in table) for kind in (PASSED, FAILED, SKIPPED, LEFT_OUT)}
    said = ", ".join(f"{n} {kind.lower()}" for kind, n in count.items() if n)
    print(f"{said}; Linux {release}; {time.monotonic() - began:.0f} s")
    return 0 if all(result == PASSED for _, result, _ in table) else 1


if __name__ == "__main__":
    sys.exit(main())
