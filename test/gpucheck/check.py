#!/usr/bin/env python3
"""Runs the GPU tests and the benchmarks of a bundle on this machine, and ends with one table.

    make gpu-check            or, without make:   python3 test/gpucheck/check.py

Needs the bundle that `make gpu-bundle` left in .gpu, Python 3.10 and, for what it is about, an NVIDIA GPU with its driver; neither
Go nor a network. First comes what the machine answers, raw, then tests, then benchmarks. Each step has a time limit, all of them
one together, and what came of it is printed at once. The table also goes to the folder $OUT, as summary.txt and summary.json, and
by claim, for the documentation, as report.md; with the answers in facts.json and all that the steps printed in steps.log. The exit
code is 0 when everything that this machine can run passed, 1 when not, and 2 when no test could be run.

It never changes a setting of a GPU and leaves no process behind.
"""

import argparse
import glob
import hashlib
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

from facts import GIB, PARTS, memory
from frameworks import FRAMEWORKS
from reading import REACH, markdown, read_bench, read_facts, read_figures, read_reach, read_test
from step import BAD, FAILED, LEFT_OUT, PASSED, SKIPPED, TIMED_OUT, Step, adopt_orphans, answer, run

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
LIMIT = 390
# What is kept back for the table and for ending the last step.
CLOSING = 10
FACTS = os.path.join(HERE, "facts.py")
CLAIMS = os.path.join(ROOT, "docs", "gpu.md")
THROUGHPUT = "bench throughput"
# The tests, and parts of tests that are steps of their own, in the order in which they are worth running: what the driver answers,
# each framework's first map, budgets, the figure that README has, faults, MPS, what takes longest. What is not here comes after.
ORDER = (
    "Answers", "InventoryIsNvidiaSMIs", "Probe", "MemoryOfAProcessTree", "MapOfEachFramework/torch", "MapOfEachFramework/jax",
    "MapOfEachFramework/cupy", "FreshFromTemplate/torch", "Caps/torch", "BudgetOverrun", "SlotsSideBySide", THROUGHPUT,
    "OutOfMemory/torch", "RuinedContext/torch", "SuggestedMemory/torch", "MPS/Clients", "MPS/Limits", "MPS/Fault", "MPSBlame",
    "MPS/Quit", "StatusIsNvidiaSMIs", "ProcessesAreNvidiaSMIs", "CostOfALook", "WhatItDid/torch", "OOMExplained/torch",
    "DoctorCommand", "GPUsCommand", "FreshFromTemplate/jax", "FreshFromTemplate/cupy", "Caps/jax", "Caps/cupy", "RuinedContext/cupy", "SecondWorker",
    "OldVariable/jax", "TwoFrameworks/cupy", "PeaksAreWhatWasLive/torch", "ProcessNumbersOfItsOwn", "ImportsAtOnce/torch",
    "RecycledProcessGivesBack", "AnotherDevice", "NearlyFull", "MIG", "ManagedMemory", "SuggestedMemory/cupy",
    "OutOfMemory/cupy", "SuggestedMemory/jax", "OutOfMemory/jax", "Preallocation/jax", "TwoFrameworks/jax", "PeaksAreWhatWasLive/jax",
    "PeaksAreWhatWasLive/cupy", "Packing/torch", "FreshItemsLeaveNothing",
)
# What is left out for want of time should be one test, not many.
LAST = ORDER[-1]
# How long a test may take in seconds: one that hangs costs so much of the whole. JAX waits up to 10 s before each refusal.
USUAL, LONG = 80, {"MPS": 40, "OutOfMemory/jax": 150, "Packing": 120, LAST: 150}
# One of these that takes its time and fails ends the others: a daemon of MPS that half works costs each of them as much.
BREAKER = re.compile("TestGPU_MPS")
HALTED = 30
# How long a GPU may go on with what a step has left there, such as a kernel of a killed process, before what follows is told of it.
SETTLES = 10
# A step is not begun when less time is left than this, or than it may take.
LEAST = 20
# Of what a step prints, so much from its begin and its end is kept: a file that is too large may not come back at all.
KEPT = 1 << 20


class Unusable(Exception):
    """Nothing can be run; the message says what to do."""


def unpack(bundle, into):
    """Unpack the files of a bundle; Unusable when it is not there or damaged."""
    listed = os.path.join(bundle, "bundle.json")
    if not os.path.isfile(listed):
        raise Unusable(f"there is no bundle in {bundle}; run `make gpu-bundle` on a machine with Go and bring the folder along")
    with open(listed) as file:
        files = json.load(file)["files"]
    for name, about in files.items():
        packed, digest, path = os.path.join(bundle, name + ".xz"), hashlib.sha256(), os.path.join(into, name)
        try:
            with lzma.open(packed) as source, open(path, "wb") as out:
                while True:
                    block = source.read(1 << 20)
                    if not block:
                        break
                    digest.update(block)
                    out.write(block)
        except (OSError, EOFError, lzma.LZMAError) as error:
            hint = "run `make gpu-bundle` again and bring all of the folder"
            raise Unusable(f"{packed} cannot be unpacked: {error}; {hint}") from error
        if digest.hexdigest() != about["sha256"]:
            raise Unusable(f"{packed} is not the file that was packed; run `make gpu-bundle` again")
        os.chmod(path, 0o755)
    return {name: os.path.join(into, name) for name in files}


def ask(*command):
    """What a program of the bundle prints."""
    name = os.path.basename(command[0])
    try:
        code, out, errors = answer(command, 60, HERE)
    except subprocess.TimeoutExpired:
        raise Unusable(f"{name} {command[1]} does not answer; see whether nvidia-smi does") from None
    except OSError as error:
        raise Unusable(f"{name} does not run here: {error}") from error
    if code:
        raise Unusable(f"{name} does not run here: {errors.strip()[-500:] or f'exit status {code}'}")
    return out


def find_gpus(program):
    """The GPUs that gpumux finds, MIG instances among them, and why there are none."""
    found = json.loads(ask(program, "gpus", "--json"))
    return [device for device in found["devices"] if device["kind"] != "cpu" and not device.get("mig")], found.get("reason", "")


def tests_of(path):
    """The GPU tests of a compiled test program, and their parts that are steps of their own, in the order of ORDER."""
    names = [line[len("TestGPU_"):] for line in ask(path, "-test.list", "^TestGPU_").split() if line.startswith("TestGPU_")]
    known = [each for each in ORDER if each.partition("/")[0] in names or each == THROUGHPUT]
    tests = {each.partition("/")[0] for each in known}
    new = [name for name in names if name not in tests]
    at = len(known) - (known[-1] == LAST)
    return known[:at] + new + known[at:]


class Check:
    """One run of all steps."""

    def __init__(self, out, limit, only=""):
        self.began, self.limit, self.only, self.out = time.monotonic(), limit, only, out
        self.rows, self.reports, self.machine, self.halted = [], {}, {}, ""
        self.log = open(os.path.join(out, "steps.log"), "w+b")

    def left(self):
        return self.limit - CLOSING - (time.monotonic() - self.began)

    def take(self, step, always=False):
        """Run a step in the time that is left, unless it was not asked for, and keep the table on disk up to date."""
        if not always and self.only and not re.search(self.only, step.name):
            return step
        limit = min(step.limit, self.left())
        if self.halted and BREAKER.match(step.name):
            step.why = f"{self.halted} took its time and failed; run it alone with --only '^{step.name}$'"
        elif limit < min(step.limit, LEAST):
            step.why = f"the {self.limit:.0f} s of the whole check were used up; run it alone with --only '^{step.name}$'"
        else:
            print(f"{time.monotonic() - self.began:5.0f} s  {step.name}", flush=True)
            start = self.log.seek(0, os.SEEK_END)
            run(step, limit, self.log)
            if step.result in (FAILED, TIMED_OUT):
                self.look_around()
                if BREAKER.match(step.name) and step.seconds > HALTED:
                    self.halted = step.name
            if BREAKER.match(step.name):
                step.figures += settle()
            self.trim(start)
            self.machine.setdefault("memory", []).append([round(size / GIB, 2) for size in memory().values()])
        self.rows.append(step.row())
        for line in [f"{step.result} after {step.seconds:.1f} s" + (f": {step.why}" if step.why else ""), *step.figures]:
            print(" " * 9 + line, flush=True)
        if hasattr(step, "report"):
            self.reports[step.name] = step.report
        self.save()
        return step

    def look_around(self):
        """Write down in what state a step that failed has left the machine."""
        for command in (["nvidia-smi"], ["ps", "-eo", "pid,ppid,pgid,stat,etimes,rss,args"]):
            try:
                said = answer(command, 10)[1]
            except (OSError, subprocess.TimeoutExpired) as error:
                said = str(error)
            self.log.write(f"\n----- {command[0]} after it\n{said[:KEPT]}\n".encode())
        self.log.flush()

    def trim(self, start):
        """Cut the middle out of what was logged from start on, when it is too much."""
        end = self.log.seek(0, os.SEEK_END)
        if end - start > 2 * KEPT:
            self.log.seek(end - KEPT)
            tail = self.log.read()
            self.log.truncate(start + KEPT)
            self.log.seek(start + KEPT)
            self.log.write(f"\n… {end - start - 2 * KEPT} bytes cut …\n".encode() + tail)
            self.log.flush()

    def skip(self, name, why):
        if not self.only or re.search(self.only, name):
            self.rows.append({"step": name, "result": SKIPPED, "seconds": 0.0, "figures": [], "why": why})

    def save(self):
        summary = {"machine": self.machine, "seconds": round(time.monotonic() - self.began, 1), "steps": self.rows,
                   "measured": self.reports}
        texts = {"summary.json": json.dumps(summary, indent=1) + "\n", "summary.txt": self.table(),
                 "report.md": markdown(self.machine, self.rows, CLAIMS)}
        for name, text in texts.items():
            path = os.path.join(self.out, name)
            with open(path + ".tmp", "w") as file:
                file.write(text)
            os.replace(path + ".tmp", path)

    def table(self):
        width = max([len(row["step"]) for row in self.rows] + [4])
        lines = [f"{'step':<{width}}  {'result':<9}  {'seconds':>7}  figure"]
        for row in self.rows:
            told = ([row["why"]] if row["why"] else []) + row["figures"]
            first = told[0] if told else ""
            lines.append(f"{row['step']:<{width}}  {row['result']:<9}  {row['seconds']:>7.1f}  {first}".rstrip())
            lines += [" " * (width + 22) + more for more in told[1:]]
        results = PASSED, FAILED, TIMED_OUT, LEFT_OUT, SKIPPED
        count = {result: sum(row["result"] == result for row in self.rows) for result in results}
        said = ", ".join(f"{n} {result.lower()}" for result, n in count.items() if n) or "no step ran"
        if sizes := self.machine.get("memory"):
            total, available = (sorted(each[at] for each in sizes) for at in (0, 1))
            lines.append(f"the host's memory after each step: {total[0]} to {total[-1]} GiB, available {available[0]} to {available[-1]} GiB")
        return "\n".join(lines + [f"{said}; {self.machine.get('gpu', '')}; {time.monotonic() - self.began:.0f} s"]) + "\n"

    def rest(self):
        """The pattern of --only that runs what was left out."""
        names = [re.escape(row["step"]) for row in self.rows if row["result"] == LEFT_OUT]
        return f"^({'|'.join(names)})$" if names else ""

    def code(self):
        if not self.rows or any(row["result"] in BAD for row in self.rows):
            return 1
        tests = [row["result"] for row in self.rows if row["step"].startswith("TestGPU_")]
        return 2 if tests and PASSED not in tests else 0


def measured(scratch, title):
    """Where a step keeps what it has measured, until it is in the summary."""
    return os.path.join(scratch, title.replace(" ", "-") + ".json")


def keep_awake():
    """Keep the devices open: without persistence mode the driver sets a GPU up anew, for seconds, whenever nobody has it open."""
    for path in glob.glob("/dev/nvidia[0-9]*"):
        try:
            os.open(path, os.O_RDWR)
        except OSError:
            pass  # the next step says why


def settle():
    """Wait until no GPU is busy, and say which still is."""
    end = time.monotonic() + SETTLES
    while True:
        try:
            said = answer(["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"], 10)[1]
        except (OSError, subprocess.TimeoutExpired):
            return []
        busy = [f"GPU {at} is still {share} % busy after it" for at, share in enumerate(said.split()) if share.isdigit() and int(share) > 5]
        if not busy or time.monotonic() > end:
            return busy
        time.sleep(0.2)


def ask_machine(check, python, scratch):
    """What the machine answers, raw, as two steps: what is quick is told at once. The second knows of frameworks."""
    path, env, slow = os.path.join(check.out, "facts.json"), {"TMPDIR": scratch}, ["frameworks"]
    for title, parts in (("facts", [name for name in PARTS if name not in slow]), ("facts of frameworks", slow)):
        command = [python, FACTS, path, *parts]
        step = check.take(Step(title, command, 120, lambda step, text: read_facts(path, parts, step, text), HERE, env))
    return step


def fresh_items(each, seconds):
    """How many processes with a context of their own can be had one after the other in so many seconds, when each costs so much."""
    return min(1000, max(50, int(0.6 * (seconds - 20) / max(each, 0.01))))


def steps(check, files, python, scratch, facts):
    """All steps, in order of what is worth most when time runs out, after the facts."""
    program, tests = files["gpumux"], files["gpucheck.test"]
    gpus, reason = find_gpus(program)
    check.machine["gpu"] = ", ".join(device["name"] for device in gpus) or f"no NVIDIA GPU: {reason}"
    check.machine["driver"] = next((device.get("driver", "") for device in gpus), "")
    check.machine["date"] = time.strftime("%Y-%m-%d")
    system = f"{platform.system()} {platform.release()}"
    check.machine.update(python=platform.python_version(), system=system, processors=os.cpu_count())
    # JAX would otherwise take most of the GPU at its start. The memory of some virtual machines grows as it is used: a host that
    # seems full is none.
    calm = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "GPUMUX_HOST_RESERVE": "0", "TMPDIR": scratch}
    # Each test has a home of its own, where each would compile what the one before it has compiled.
    calm |= {name: os.path.join(scratch, "compiled", name) for name in ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR")}
    known, lacking = getattr(facts, "lacks", {}), {}
    for name in FRAMEWORKS:
        if not gpus:
            lacking[name] = "no NVIDIA GPU"
        elif name in known:
            lacking[name] = known[name]
        else:
            reach = check.take(Step(name, [python, "-c", REACH, name], 90, read_reach, env=calm), always=True)
            lacking[name] = getattr(reach, "lacks", "it was not asked in time")
    env = {**calm, "GPUMUX_BINARY": program, "GPUMUX_TEST_PYTHON": python, "GPUMUX_GPU_LACKS": json.dumps(lacking)}
    check.machine["frameworks"] = getattr(facts, "versions", {})
    for each in tests_of(tests):
        if each == THROUGHPUT:
            throughput(check, program, python, scratch, lacking, calm)
            continue
        if each == LAST:
            figures(check, program, python, scratch, lacking, calm)
            benches(check, program, python, scratch, lacking, calm)
        name, _, part = each.partition("/")
        title, pattern, limit = f"TestGPU_{each}", f"^TestGPU_{name}$", LONG.get(each, LONG.get(name, USUAL))
        if part:
            pattern += f"/^{part}$"
        if lacking.get(part):
            check.skip(title, lacking[part])
            continue
        own = {"GPUMUX_GPU_LIMIT": str(limit)}
        if each == LAST:
            items = fresh_items(getattr(facts, "each_context", 0), min(limit, check.left()))
            own["GPUMUX_GPU_ITEMS"] = os.environ.get("GPUMUX_GPU_ITEMS", str(items))
        check.take(Step(title, [tests, f"-test.run={pattern}", "-test.v", "-test.timeout=0"], limit, read_test, HERE, {**env, **own}))


def first_of(lacking):
    """The first framework that there is."""
    return next((name for name in FRAMEWORKS if not lacking[name]), "torch")


def throughput(check, program, python, scratch, lacking, env):
    """How much as many bare processes do, as README has it."""
    run = (THROUGHPUT, first_of(lacking), "gpu", ["--workloads", "medium", "--sharing", "default", "--no-fresh", "--limit", "8s"])
    bench(check, run, program, python, scratch, lacking, env, 200)


def figures(check, program, python, scratch, lacking, env):
    """What convinces a sceptic: examples and benches beside processes without gpumux, in the order of what they are worth."""
    first = first_of(lacking)
    short = ["--no-fresh", "--limit", "6s", "--workloads"]
    briefly = ["--seconds", "4", "--slots", "1,4,8"]
    runs = [
        ("figure embedding", "transformers", ["embed", *briefly, "--sharing", "default,mps"], 90),
        ("figure device memory", "survive", ["--cases", "device,ruin", "--items", "20", "--ways", "gpumux,Pool", "--seconds", "40"], 100),
        ("figure item", "", [*short, "light", "--clients", "1", "--sharing", "default"], 40),
        ("figure detector", "", [*short, "detector", "--clients", "1,4", "--sharing", "mps"], 100),
        ("figure host memory", "survive", ["--cases", "host", "--items", "20", "--seconds", "20", "--patience", "5"], 65),
        ("figure product", "", [*short, "medium", "--clients", "1,2,8", "--sharing", "default"], 120),
        ("figure generate", "transformers", ["generate", *briefly, "--sharing", "default"], 70),
        ("figure auto", "transformers", ["embed", "--seconds", "6", "--slots", "4,auto", "--sharing", "default"], 60),
    ]
    for title, example, words, limit in runs:
        if not example:
            bench(check, (title, first, "gpu", words), program, python, scratch, lacking, env, limit)
        elif lacking["torch"]:
            check.skip(title, lacking["torch"])
        else:
            path, script = measured(scratch, title), os.path.join(ROOT, "examples", example, "compare.py")
            command = [python, script, *words, "--gpumux", program, "--limit", str(limit - 15), "--json", path]
            check.take(Step(title, command, limit, read_figures, scratch, env, path))


def benches(check, program, python, scratch, lacking, env):
    """Short runs of each framework."""
    first, short = first_of(lacking), ["--limit", "5s", "--workloads"]
    runs = [(f"bench {first}", first, "gpu", [*short, "light"])]
    runs += [(f"bench {name}", name, "gpu", [*short, "medium"]) for name in FRAMEWORKS if name != first]
    runs.append(("bench numpy", "numpy", "cpu", ["--limit", "10s", "--workloads", "medium,light"]))
    for run in runs:
        bench(check, run, program, python, scratch, lacking, env)


def bench(check, run, program, python, scratch, lacking, env, limit=120):
    title, framework, pool, more = run
    if pool == "gpu" and lacking[framework]:
        check.skip(title, lacking[framework])
        return
    if pool == "cpu" and subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode:
        check.skip(title, f"{python} has no NumPy")
        return
    path = measured(scratch, title)
    command = [program, "bench", *more, "--framework", framework, "--pool", pool, "--python", python, "--json", path]
    check.take(Step(title, command, limit, read_bench, scratch, env, path))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bundle", default=os.path.join(ROOT, ".gpu"), help="the folder that make gpu-bundle made")
    parser.add_argument("--only", default="", metavar="PATTERN",
                        help="run only the steps whose names match this regular expression")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS",
                        help=f"the time for all steps together (default {LIMIT})")
    parser.add_argument("--python", default=os.environ.get("GPUMUX_TEST_PYTHON", ""), help="the Python that runs the tasks")
    given = parser.parse_args()
    python = shutil.which(given.python) or sys.executable
    adopt_orphans()
    out = os.environ.get("OUT")
    if out:
        os.makedirs(out, exist_ok=True)
    else:
        out = tempfile.mkdtemp(prefix="gpumux-gpu-check-")
    check = Check(out, given.limit, given.only)
    code = 2
    with tempfile.TemporaryDirectory(prefix="gpumux-gpu-", ignore_cleanup_errors=True) as scratch:
        try:
            facts = ask_machine(check, python, scratch)
            keep_awake()
            steps(check, unpack(given.bundle, scratch), python, scratch, facts)
            code = check.code()
        except Unusable as error:
            check.machine.setdefault("gpu", str(error))
            check.save()
            if check.rows:
                print(f"\n{check.table()}", end="", flush=True)
            print(f"check.py: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            code = 130
    check.save()
    print(f"\nwhat the steps printed: {os.path.join(out, 'steps.log')}\n")
    print(check.table(), end="", flush=True)
    if check.rest():
        print(f"to run what was left out: {sys.executable} {os.path.relpath(__file__)} --only '{check.rest()}'")
    return code


if __name__ == "__main__":
    sys.exit(main())
