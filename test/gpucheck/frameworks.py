#!/usr/bin/env python3
"""What frameworks take on a device, step by step, and why one cannot be used.

    frameworks.py NAME   imports a framework, uses the device, and prints a line of JSON after each step

Owns the steps. Never sets a limit that a slot would not set.
"""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time

from nvml import NVML, device_files, ms

FRAMEWORKS = ("torch", "jax", "cupy")
LIMIT = 60  # seconds for all, which run side by side
LATE = "too late"  # in place of an exit status
GIB = 1 << 30
# What each framework does after its import, step by step; m is its module.
STEPS = {
    "torch": {
        "reaches": "m.cuda.is_available()",
        "started": "m.zeros(1, device='cuda').item()",
        "product": "(m.ones(1024, 1024, device='cuda') @ m.ones(1024, 1024, device='cuda'))[0, 0].item()",
        "half product": "(lambda a: (a @ a)[0, 0].item())(m.ones(4096, 4096, device='cuda', dtype=m.bfloat16))",
        "convolution": "m.nn.functional.conv2d(*(m.ones(8, 3, n, n, device='cuda') for n in (64, 3))).sum().item()",
        "allocator": "[m.cuda.memory_reserved(), m.cuda.mem_get_info(), m.cuda.get_device_properties(0).total_memory]",
    },
    "torch forked": {
        "reaches": "m.cuda.is_available()",
        "in a fork": "forked(lambda: m.zeros(1, device='cuda').item())",
    },
    "jax": {
        "reaches": "m.default_backend() == 'gpu'",
        "devices": "[[d.platform, d.device_kind] for d in m.devices()]",
        "started": "float(m.numpy.zeros(1).sum())",
        "product": "float((m.numpy.ones((1024, 1024)) @ m.numpy.ones((1024, 1024)))[0, 0])",
        "allocator": "m.local_devices()[0].memory_stats()",
    },
    "cupy": {
        "reaches": "m.cuda.runtime.getDeviceCount() > 0",
        "started": "float(m.zeros(1).sum())",
        "product": "float((m.ones((1024, 1024), m.float32) @ m.ones((1024, 1024), m.float32))[0, 0])",
        "kernel": "m.RawKernel('extern \"C\" __global__ void f() {}', 'f')((1,), (1,), ())",
        "allocator": "(lambda p: [p.total_bytes(), p.get_limit(), m.cuda.runtime.memGetInfo()])(m.get_default_memory_pool())",
    },
}
# As a slot of 8 GiB would have it, so that what comes of it is seen, and for "torch forked" the question that leaves CUDA alone.
CAPS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_CLIENT_MEM_FRACTION": ".05", "CUPY_GPU_MEMORY_LIMIT": str(7 * GIB)}
ASKING = {"torch forked": {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}}


def steps(name):
    """Print a line after each step."""
    began = time.perf_counter()

    def say(step, **more):
        files = sorted({each["path"] for each in device_files()})
        print(json.dumps({"step": step, "took": ms(began), "files": files, "threads": len(os.listdir("/proc/self/task")), **more},
                         default=str), flush=True)

    package = name.split()[0]
    if importlib.util.find_spec(package) is None:
        say("import", failed="not installed")
        return
    module = importlib.import_module(package)
    if package == "jax":
        importlib.import_module("jax.numpy")
    say("import", version=module.__version__)
    library = None
    for step, expression in STEPS[name].items():
        try:
            answer = {"value": eval(expression, {"m": module, "forked": forked})}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"[:500]}
        took = ms(began)
        if step not in ("reaches", "devices", "in a fork"):
            # Not before the framework itself has opened the device.
            library = library or NVML()
            answer["held"] = held(library)
        say(step, took=took, **answer)


def forked(action):
    """What an action comes to in a child that was forked from this process."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(tell, repr(action()).encode())
        except BaseException as error:
            os.write(tell, f"{type(error).__name__}: {error}"[:500].encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as answer:
        text = answer.read()
    return [text, os.waitpid(pid, 0)[1]]


def held(library):
    """What the driver says that this process holds, None where it does not know it."""
    rows = library.list(library.devices[0], "Compute").get("rows", ()) if library.devices else ()
    return next((row["bytes"] for row in rows if row["pid"] == os.getpid()), None)


def everything():
    """All side by side, since most of it is reading files."""
    started = {
        name: subprocess.Popen([sys.executable, os.path.abspath(__file__), name], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env={**os.environ, **CAPS, **ASKING.get(name, {})})
        for name in STEPS
    }
    end, out = time.monotonic() + LIMIT, {}
    for name, process in started.items():
        late = False
        try:
            said, errors = process.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            try:
                said, errors = process.communicate(timeout=2)
            except subprocess.TimeoutExpired:  # it sleeps in the driver, where no signal reaches it
                said, errors = "", "the system cannot end it"
        steps = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        out[name] = {"code": LATE if late else process.returncode, "steps": steps, "errors": errors[-3000:]}
    return out


def lacks(facts):
    """Why a framework cannot be used, by its name; those of which nothing is known are left out."""
    answer = {}
    for name, about in facts.get("frameworks", {}).items():
        if name not in FRAMEWORKS:
            continue
        steps = {each["step"]: each for each in about.get("steps", ())}
        if "failed" in steps.get("import", {}):
            answer[name] = steps["import"]["failed"]
        elif "reaches" in steps:
            reached = steps["reaches"]
            answer[name] = "" if reached.get("value") is True else f"reaches no GPU: {reached.get('failed', '')}".rstrip(": ")
        elif about.get("code") not in (0, None, LATE):
            answer[name] = f"its import failed: {(about.get('errors') or str(about['code'])).strip().splitlines()[-1]}"[:200]
    return answer


def versions(facts):
    """The version of each framework that was imported."""
    said = {name: about.get("steps", ()) for name, about in facts.get("frameworks", {}).items() if name in FRAMEWORKS}
    return {name: each["version"] for name, steps in said.items() for each in steps if "version" in each}


if __name__ == "__main__":
    steps(sys.argv[1])
