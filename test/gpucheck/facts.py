#!/usr/bin/env python3
"""What the driver and the frameworks answer on this machine, raw, before anything is concluded from it.

    facts.py FILE [PART …]    all of it, or these parts added to the file, as JSON; each part is a process of its own, so that one that
                              hangs or dies costs only itself
    facts.py part NAME FILE   one part of it
    facts.py hold BYTES       a process that holds device memory until its standard input is closed

Owns what is asked. Never judges an answer, changes a setting of a GPU, or leaves a process behind. Every call of NVML that gpumux
makes is here, with its code and how long it took. Needs nothing but Python; what is missing is written down as missing.
"""

import ctypes
import glob
import importlib.metadata
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import frameworks
from nvml import NVML, device_files, ms

GIB = 1 << 30
HOLDERS = 4
# How long what is waited for may take, in seconds.
SMI, HOLD, RETURN = 15, 30, 10
# Programs whose absence changes what can be checked.
PROGRAMS = ("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-persistenced", "nvcc", "ncu", "compute-sanitizer", "unshare")
# The variables that are written down: never one that may be a secret.
TELLING = re.compile("^(?!.*(KEY|TOKEN|SECRET|PASS)).*(CUDA|NVIDIA|^LD_|XLA|JAX|TORCH|CUPY|^TF_|^OMP_|^HOME$|^PATH$|^TMPDIR$)")


def read(path, most=4096):
    try:
        with open(path, "rb") as file:
            return file.read(most).decode(errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def link(path):
    try:
        return os.readlink(path)
    except OSError as error:
        return f"({error.strerror})"


def lines(pattern, path):
    return [line for line in read(path, 1 << 16).splitlines() if re.search(pattern, line)]


def writable(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
        return True
    except OSError as error:
        return error.strerror


def memory():
    """The host's memory in bytes, in all and available; a virtual machine's may grow as it is used."""
    found = dict(re.findall(r"(MemTotal|MemAvailable|SwapTotal): +(\d+) kB", read("/proc/meminfo")))
    return {name: int(size) << 10 for name, size in found.items()}


def runtime(about):
    """What the machine runs in, as far as it says."""
    names = [name for name in about["machine"].values() if not name.startswith("(")]
    kernel = "gVisor" if "gvisor" in about["version"].lower() else f"Linux {about['uname'][2]}"
    return ", ".join([kernel, *names, "virtual" if about["virtual"] else "no hypervisor"])


def host():
    return {
        "uname": list(platform.uname()),
        "version": read("/proc/version"),
        "system": lines("^PRETTY_NAME", "/etc/os-release"),
        "processors": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)),
        "memory": memory(),
        "machine": {name: read("/sys/class/dmi/id/" + name) for name in ("sys_vendor", "product_name")},
        "virtual": "hypervisor" in "".join(lines("^flags", "/proc/cpuinfo")[:1]).split(),
        "programs": {name: shutil.which(name) for name in PROGRAMS},
        "cgroup": read("/proc/self/cgroup"),
        "mounts": lines("cgroup| /dev/shm | / |nvidia", "/proc/mounts"),
        "pid": {"here": os.getpid(), "namespace": link("/proc/self/ns/pid"), "first": read("/proc/1/comm")},
        "status": lines("^(NSpid|CapEff|Seccomp|NoNewPrivs)", "/proc/self/status"),
        "writable": {name: writable("/proc/self/" + name) for name in ("mem", "clear_refs", "oom_score_adj")},
        "smaps_rollup": len(read("/proc/self/smaps_rollup")),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "devices": [f"{path} {oct(os.stat(path).st_mode)}" for path in sorted(glob.glob("/dev/nvidia*"))],
        "driver": read("/proc/driver/nvidia/version"),
        "free": {path: shutil.disk_usage(path).free for path in ("/tmp", "/dev/shm") if os.path.isdir(path)},
        "environment": {name: value for name, value in sorted(os.environ.items()) if TELLING.search(name)},
    }


def python():
    wanted = re.compile("^(torch|triton|jax|cupy|numpy|nvidia|cuda)")
    names = {each.metadata["Name"] or "": each.version for each in importlib.metadata.distributions()}
    return {"version": sys.version, "executable": sys.executable, "prefix": sys.prefix,
            "packages": {name: names[name] for name in sorted(names) if wanted.match(name.lower())}}


def smi():
    out = {}
    for name, command in (("table", ["nvidia-smi"]), ("query", ["nvidia-smi", "-q"]), ("topology", ["nvidia-smi", "topo", "-m"])):
        began = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SMI)
            out[name] = {"code": done.returncode, "ms": ms(began), "said": (done.stdout + done.stderr)[:40000]}
        except (OSError, subprocess.TimeoutExpired) as error:
            out[name] = {"failed": str(error), "ms": ms(began)}
            break
    return out


def nvml():
    library = NVML()
    return {"library": library.name, "start": library.started, "files": device_files(), "system": library.system(),
            "devices": [library.all_of(device) for device in library.devices]}


class Holder:
    """A process below a shell that holds memory on a device."""

    def __init__(self, uuid, size):
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            ["sh", "-c", '"$0" "$@"; exit $?', sys.executable, os.path.abspath(__file__), "hold", str(size)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid})
        self.said = {}

    def wait(self):
        """What it says once it holds its memory."""
        timer = threading.Timer(HOLD, self.process.kill)
        timer.start()
        printed = ""
        for line in self.process.stdout:
            printed += line
            if line.startswith("{"):
                self.said = json.loads(line)
                break
        timer.cancel()
        return {**(self.said or {"failed": printed[-2000:]}), "shell": self.process.pid, "ms": ms(self.began)}

    def close(self):
        try:
            self.process.communicate(timeout=RETURN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def holding():
    """What is seen of one process with memory, of several, and of one that is killed."""
    library = NVML()
    if not library.devices:
        return {"left out": "no device"}
    device = library.devices[0]
    uuid, out, holders = library.uuid(device), {}, []
    try:
        out["before"] = library.now(device)
        first = Holder(uuid, GIB)
        out["first context"] = first.wait()
        first.close()
        settled(library, device, out["before"]["used"])
        holders.append(Holder(uuid, GIB))
        out["one holds 1 GiB"] = {"process": holders[0].wait(), "seen": library.now(device)}
        began = time.perf_counter()
        holders += [Holder(uuid, GIB) for _ in range(HOLDERS - 1)]
        out["four hold 1 GiB"] = {"processes": [each.wait() for each in holders[1:]], "ms": ms(began), "seen": library.now(device)}
        victim = holders[-1].said.get("pid")
        if victim:
            out["one is killed"] = killed(library, device, victim)
    finally:
        began = time.perf_counter()
        for each in holders:
            each.close()
    settled(library, device, out.get("before", {}).get("used", 0))
    out["all ended"] = {"ms": ms(began), "seen": library.now(device)}
    return out


def killed(library, device, pid):
    """When the memory of a killed process is back, and when the driver lists it no more."""
    before, began, out = library.used(device), time.perf_counter(), {}
    os.kill(pid, signal.SIGKILL)
    while len(out) < 3 and time.perf_counter() < began + RETURN:
        if "ended" not in out and (not os.path.exists(f"/proc/{pid}") or ") Z " in read(f"/proc/{pid}/stat")):
            out["ended"] = ms(began)
        if "memory back" not in out and library.used(device) <= before - GIB:
            out["memory back"] = ms(began)
        if "not listed" not in out and pid not in [row["pid"] for row in library.list(device, "Compute").get("rows", ())]:
            out["not listed"] = ms(began)
    return out


def settled(library, device, before):
    end = time.perf_counter() + RETURN
    while library.used(device) > before + (64 << 20) and time.perf_counter() < end:
        time.sleep(0.01)


def hold(size):
    cuda, said = ctypes.CDLL("libcuda.so.1"), {"pid": os.getpid()}

    def do(name, *arguments):
        began, function = time.perf_counter(), getattr(cuda, name, None)
        said[name] = {"missing": True} if function is None else {"code": function(*arguments), "ms": ms(began)}

    number, device, context, pointer = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    sizes = (ctypes.c_size_t * 2)()
    do("cuInit", ctypes.c_uint(0))
    do("cuDriverGetVersion", ctypes.byref(number))
    do("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    do("cuDeviceTotalMem_v2", ctypes.byref(sizes), device)
    said["total"] = sizes[0]
    do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    do("cuCtxSetCurrent", context)
    do("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    do("cuMemGetInfo_v2", ctypes.byref(sizes), ctypes.byref(sizes, ctypes.sizeof(ctypes.c_size_t)))
    said.update(version=number.value, free=sizes[0], files=device_files(), status=[*lines("^NSpid", "/proc/self/status")])
    print(json.dumps(said), flush=True)
    sys.stdin.read()


# What each part is, and how long it may take in seconds.
PARTS = {
    "host": (host, 10), "python": (python, 20), "nvml": (nvml, 20), "holding": (holding, 60), "smi": (smi, 30),
    "frameworks": (frameworks.everything, 80),
}


def part(name, path):
    """One part, in a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), "part", name, path]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True)
    try:
        said, _ = process.communicate(timeout=PARTS[name][1])
        with open(path) as file:
            return json.load(file)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            said, _ = process.communicate(timeout=2)
        except subprocess.TimeoutExpired:  # it sleeps in the driver, where no signal reaches it
            said = "the system cannot end it"
        return {"failed": f"took longer than {PARTS[name][1]} s: {said[-1500:]}"}
    except (OSError, ValueError):
        return {"failed": f"exit status {process.returncode}: {said[-1500:].strip()}"}


def each_context(facts):
    """The seconds that a process with a context costs when others start beside it; 0 where that is not known."""
    four = facts.get("holding", {}).get("four hold 1 GiB")
    return four["ms"] / 1000 / (HOLDERS - 1) if four and all("pid" in each for each in four["processes"]) else 0


def missing(facts):
    """Why NVML lists no device, as far as it says."""
    asked = facts.get("nvml", {})
    began, nodes = asked.get("start", {}), facts.get("host", {}).get("devices") or []
    if "failed" in began:
        why = f"libnvidia-ml.so.1 cannot be loaded ({began['failed'][0] if began['failed'] else 'no reason'}); install the driver"
    elif began.get("code"):
        why = f"{asked.get('library')} says {began['code']} {began.get('says', '')}; see whether nvidia-smi says the same"
    else:
        why = asked.get("failed") or "it lists none"
    return f"{why}; device files: {', '.join(each.split()[0] for each in nodes) or 'none in /dev'}"


def told(facts):
    """The figures that are worth a line, of the parts that there are."""
    return [*host_lines(facts), *device_lines(facts), *framework_lines(facts)]


def host_lines(facts):
    about = facts.get("host", {})
    if "machine" not in about:
        return []
    sizes = ", ".join(f"{name} {size / GIB:.1f} GiB" for name, size in about["memory"].items())
    return [f"{runtime(about)}; {about['usable']} of {about['processors']} processors; {sizes}",
            "programs: " + ", ".join(f"{name} {place or 'is missing'}" for name, place in about["programs"].items())]


def device_lines(facts):
    if "nvml" not in facts:
        return []
    devices, seen, out = facts["nvml"].get("devices") or [], facts.get("holding", {}), []
    if not devices:
        return [f"no device of NVML: {missing(facts)}"]
    system, began, mode = facts["nvml"]["system"], facts["nvml"]["start"], devices[0]["nvmlDeviceGetPersistenceMode"]
    persistence = "unknown" if mode.get("code", 1) else ("off", "on")[mode["value"][0]]
    out.append(f"{devices[0]['name']['value']}, driver {system['driver']['value']}; persistence mode {persistence}")
    out.append(f"NVML begins in {began.get('ms')} ms and keeps open {[each['path'] for each in facts['nvml']['files']]}")
    one, four = seen.get("one holds 1 GiB"), seen.get("four hold 1 GiB")
    if one and "pid" in one["process"]:
        pid, rows = one["process"]["pid"], one["seen"]["lists"]["Compute"].get("rows", [])
        mine = [row["bytes"] for row in rows if row["pid"] == pid]
        beside = one["seen"]["used"] - seen["before"]["used"] - GIB
        others = [row["pid"] for row in rows]
        listed = f"lists it with {mine[0] - GIB >> 20} MiB" if mine else f"does not list process {pid}, but {others}"
        out.append(f"a bare context takes {beside >> 20} MiB of the device and {one['process']['ms']:.0f} ms, the one before it "
                   f"{seen['first context']['ms']:.0f} ms; the driver {listed}")
    if four and all("pid" in each for each in four["processes"]):
        asked = four["seen"]["lists"]["Compute"].get("ms")
        out.append(f"three more contexts side by side take {four['ms']:.0f} ms; a list of all takes {asked} ms")
    if "one is killed" in seen:
        out.append("after a kill: " + ", ".join(f"{what} {took:.0f} ms" for what, took in seen["one is killed"].items()))
    return out


def framework_lines(facts):
    out = []
    for name, about in facts.get("frameworks", {}).items():
        if name == "failed":
            continue
        steps = {each["step"]: each for each in about["steps"]}
        took = ", ".join(f"{step} {each['took'] / 1000:.1f} s" + (f" ({each['held'] >> 20} MiB)" if each.get("held") else "")
                         for step, each in steps.items() if "failed" not in each and step not in ("devices", "allocator"))
        left = steps.get("import", {})
        opened = f"; its import opens {left['files']}" if left.get("files") else ""
        threads = f"; its import leaves {left['threads'] - 1} threads" if left.get("threads", 1) > 1 else ""
        forked = f"; in a fork {steps['in a fork'].get('value')}" if "in a fork" in steps else ""
        out.append(f"{name} {left.get('version', left.get('failed', ''))}: {took}{opened}{threads}{forked}")
    return out


def main():
    if sys.argv[1] == "hold":
        return hold(int(sys.argv[2]))
    if sys.argv[1] == "part":
        return write(sys.argv[3], PARTS[sys.argv[2]][0]())
    facts, parts = {}, sys.argv[2:]
    if parts and os.path.exists(sys.argv[1]):
        with open(sys.argv[1]) as file:
            facts = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        for name in parts or PARTS:
            began = time.perf_counter()
            facts[name] = part(name, os.path.join(folder, name))
            facts.setdefault("ms", {})[name] = ms(began)
            print(f"{name}: {ms(began):.0f} ms{', ' + facts[name]['failed'] if 'failed' in facts[name] else ''}", flush=True)
            write(sys.argv[1], facts)


def write(path, what):
    with open(path + ".tmp", "w") as file:
        json.dump(what, file, indent=1, default=str)
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main()
