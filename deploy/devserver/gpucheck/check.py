#!/usr/bin/env python3
"""Runs the GPU tests and the benchmarks of a bundle on this machine, and ends with one table.

    make gpu-check            or, without make:   python3 deploy/devserver/gpucheck/check.py

Needs the bundle that `make gpu-bundle` left in .gpu, Python 3.10 and, for what it is about, an NVIDIA GPU with its driver; neither
Go nor a network. Tests come first, then benchmarks; each step has a time limit and all of them one together. The table also goes
to the folder $OUT, as summary.txt and summary.json, with all that the steps printed in steps.log. The exit code is 0 when
everything that this machine can run passed, 1 when not, and 2 when nothing could be run.

It never changes a setting of a GPU and leaves no process behind.
"""

import argparse
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

from step import BAD, FAILED, LEFT_OUT, PASSED, SKIPPED, TIMED_OUT, Step, adopt_orphans, run

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
LIMIT = 9 * 60
# What is kept back for the table and for ending the last step.
CLOSING = 10
GOAL = 97
FRAMEWORKS = ("torch", "jax", "cupy")
REACH = """
import importlib.util, json, sys
name = sys.argv[1]
if importlib.util.find_spec(name) is None:
    print(json.dumps({"why": "not installed"})); sys.exit()
module = importlib.import_module(name)
reached = {"torch": lambda: module.cuda.is_available(), "jax": lambda: module.default_backend() == "gpu",
           "cupy": lambda: module.cuda.runtime.getDeviceCount() > 0}[name]
try:
    why = "" if reached() else "reaches no GPU"
except Exception as error:
    why = f"reaches no GPU: {error}"[:200]
print(json.dumps({"version": module.__version__, "why": why}))
"""


class Unusable(Exception):
    """Nothing can be run; the message says what to do."""


def read_test(step, text):
    """Figures and skips of `go test -v`."""
    marks = re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", text, re.M)
    step.figures = re.findall(r"_test\.go:\d+: figure: (.*)", text)
    skips = list(dict.fromkeys(re.findall(r"_test\.go:\d+: skip: (.*)", text)))
    parents = {name.rpartition("/")[0] for _, name in marks}
    leaves = [mark for mark, name in marks if name not in parents]
    if step.result == PASSED and not leaves:
        step.result, step.why = FAILED, "no test ran"
    elif step.result == PASSED and all(mark == "SKIP" for mark in leaves):
        step.result, step.why = SKIPPED, "; ".join(skips)
    elif skips:
        step.figures += ["skipped: " + why for why in skips]


def read_bench(path, step, text):
    """Throughput beside bare processes, from the JSON of gpumux bench."""
    if step.result != PASSED:
        return
    with open(path) as file:
        report = json.load(file)
    machine = report["machine"]
    step.figures.append(f"{machine['device']}, {machine.get('framework', 'no framework')}")
    for row in report["rows"]:
        if row["way"] in ("persistent", "fresh") and row["ofBare"]:
            name = row["workload"] + (f" {row['size']}" if row.get("size") else "")
            goal = f" (goal {GOAL} %)" if name.startswith("medium") and row["way"] == "persistent" and not report.get("quick") else ""
            step.figures.append(f"{name}, {row['way']}: {row['slots']} slots do {100 * row['ofBare']:.1f} % of as many bare processes"
                                f"{goal}; {row['itemsPerSecond']:.1f} items/s, {1000 * row['medianSeconds']:.3f} ms")
    step.figures += ["note: " + note for note in report.get("notes") or ()]
    step.report = report


def read_reach(step, text):
    answer = next((json.loads(line) for line in text.splitlines() if line.startswith("{")), None)
    step.lacks = "its import failed" if answer is None else answer["why"]
    if step.result == PASSED and step.lacks:
        step.result, step.why = SKIPPED, step.lacks
    elif step.result == PASSED:
        step.figures = [answer["version"]]


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
            raise Unusable(f"{packed} cannot be unpacked: {error}; run `make gpu-bundle` again and bring all of the folder") from error
        if digest.hexdigest() != about["sha256"]:
            raise Unusable(f"{packed} is not the file that was packed; run `make gpu-bundle` again")
        os.chmod(path, 0o755)
    return {name: os.path.join(into, name) for name in files}


def ask(*command):
    """What a program of the bundle prints."""
    name = os.path.basename(command[0])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=HERE)
    except subprocess.TimeoutExpired:
        raise Unusable(f"{name} {command[1]} does not answer; see whether nvidia-smi does") from None
    except OSError as error:
        raise Unusable(f"{name} does not run here: {error}") from error
    if done.returncode:
        raise Unusable(f"{name} does not run here: {done.stderr.strip()[-500:]}")
    return done.stdout


def has_gpu(program):
    """Whether gpumux finds a GPU, and what it says."""
    found = json.loads(ask(program, "gpus", "--json"))
    names = [device["name"] for device in found["devices"] if device["kind"] != "cpu" and not device.get("mig")]
    return bool(names), ", ".join(names) or "no NVIDIA GPU: " + found.get("reason", "")


def tests_of(path):
    """The GPU tests of a compiled test program, in the order in which they are worth running."""
    names = [line for line in ask(path, "-test.list", "^TestGPU_").split() if line.startswith("TestGPU_")]
    # The longest last: what is left out for want of time should be one test, not many.
    return sorted(names, key=lambda name: name == "TestGPU_FreshItemsLeaveNothing")


class Check:
    """One run of all steps."""

    def __init__(self, out, limit, only=""):
        self.began, self.limit, self.only, self.out = time.monotonic(), limit, only, out
        self.rows, self.reports, self.machine = [], {}, {}
        self.log = open(os.path.join(out, "steps.log"), "w+b")

    def left(self):
        return self.limit - CLOSING - (time.monotonic() - self.began)

    def take(self, step, always=False):
        """Run a step in the time that is left, unless it was not asked for, and keep the table on disk up to date."""
        if not always and self.only and not re.search(self.only, step.name):
            return step
        limit = min(step.limit, self.left())
        if limit < 5:
            step.why = f"the {self.limit:.0f} s of the whole check were used up; run it alone with --only '^{step.name}$'"
        else:
            print(f"{time.monotonic() - self.began:5.0f} s  {step.name}", flush=True)
            run(step, limit, self.log)
        self.rows.append(step.row())
        if hasattr(step, "report"):
            self.reports[step.name] = step.report
        self.save()
        return step

    def skip(self, name, why):
        if not self.only or re.search(self.only, name):
            self.rows.append({"step": name, "result": SKIPPED, "seconds": 0.0, "figures": [], "why": why})

    def save(self):
        summary = {"machine": self.machine, "seconds": round(time.monotonic() - self.began, 1), "steps": self.rows, "benchmarks": self.reports}
        for name, text in (("summary.json", json.dumps(summary, indent=1) + "\n"), ("summary.txt", self.table())):
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
        count = {result: sum(row["result"] == result for row in self.rows) for result in (PASSED, FAILED, TIMED_OUT, LEFT_OUT, SKIPPED)}
        said = ", ".join(f"{n} {result.lower()}" for result, n in count.items() if n) or "no step ran"
        return "\n".join(lines + [f"{said}; {self.machine.get('gpu', '')}; {time.monotonic() - self.began:.0f} s"]) + "\n"

    def code(self):
        return 1 if not self.rows or any(row["result"] in BAD for row in self.rows) else 0


def steps(check, files, python, scratch):
    """All steps, in order of what is worth most when time runs out."""
    program, tests = files["gpumux"], files["gpucheck.test"]
    gpu, check.machine["gpu"] = has_gpu(program)
    check.machine.update(python=platform.python_version(), system=f"{platform.system()} {platform.release()}", processors=os.cpu_count())
    # JAX would otherwise take most of the GPU at its start.
    calm = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TMPDIR": scratch}
    lacks = {}
    for name in FRAMEWORKS:
        if gpu:
            reach = check.take(Step(name, [python, "-c", REACH, name], 90, read_reach, env=calm), always=True)
            lacks[name] = getattr(reach, "lacks", "it was not asked in time")
        else:
            lacks[name] = "no NVIDIA GPU"
    env = {**calm, "GPUMUX_BINARY": program, "GPUMUX_TEST_PYTHON": python, "GPUMUX_GPU_LACKS": json.dumps(lacks)}
    for name in tests_of(tests):
        command = [tests, f"-test.run=^{name}$", "-test.v", "-test.timeout=0"]
        check.take(Step(name, command, 180, read_test, HERE, env))
    benches = [(f"bench {name}", name, "gpu", ["--quick", "--workloads", "medium"]) for name in FRAMEWORKS]
    benches[0:0] = [("bench throughput", next((n for n in FRAMEWORKS if not lacks[n]), "torch"), "gpu", ["--workloads", "medium"])]
    benches.append(("bench numpy", "numpy", "cpu", ["--quick", "--workloads", "medium,light"]))
    for title, framework, pool, more in benches:
        if pool == "gpu" and lacks[framework]:
            check.skip(title, lacks[framework])
            continue
        if pool == "cpu" and subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode:
            check.skip(title, f"{python} has no NumPy")
            continue
        path = os.path.join(scratch, title.replace(" ", "-") + ".json")
        command = [program, "bench", *more, "--framework", framework, "--pool", pool, "--python", python, "--json", path]
        check.take(Step(title, command, 150, lambda step, text, path=path: read_bench(path, step, text), scratch, calm))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bundle", default=os.path.join(ROOT, ".gpu"), help="the folder that make gpu-bundle made")
    parser.add_argument("--only", default="", metavar="PATTERN", help="run only the steps whose names match this regular expression")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="the time for all steps together (default 540)")
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
            files = unpack(given.bundle, scratch)
            steps(check, files, python, scratch)
            code = check.code()
        except Unusable as error:
            print(f"check.py: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            code = 130
    check.save()
    print(f"\nwhat the steps printed: {os.path.join(out, 'steps.log')}\n")
    print(check.table(), end="", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
