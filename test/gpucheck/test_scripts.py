"""Tests of check.py, reading.py, facts.py, frameworks.py, step.py and bundle.py; check_test.go runs them."""

import contextlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bundle
import check
import facts
import frameworks
import reading
import step

# A stand-in for facts.py, which takes longer; TestLong_Rehearsal runs that.
FACTS = """
import json, os, sys
json.dump(json.loads(os.environ.get("FACTS", "{}")), open(sys.argv[1], "w"))
"""

# A stand-in for both programs of the bundle: it answers as they do.
PROGRAM = """#!/usr/bin/env python3
import json, os, sys, time
if sys.argv[1:2] == ["gpus"]:
    gpus = [{"kind": "gpu", "name": "a GPU"}] if "GPU" in os.environ else []
    print(json.dumps({"devices": [*gpus, {"kind": "cpu", "name": "a processor"}], "reason": "no driver"}))
elif sys.argv[1] == "-test.list":
    print("TestGPU_FreshItemsLeaveNothing\\nTestGPU_Caps\\nTestGPU_Good\\nTestGPU_Bad\\nTestGPU_CostOfALook\\nok")
    print("TestGPU_MPS\\nTestGPU_MPSBlame" if "MPS" in os.environ else "")
elif "MPS" in sys.argv[1]:
    if "Clients" in sys.argv[1]:
        sys.exit("the daemon does not answer")
    print("--- PASS: TestGPU_MPS (0.00s)")
elif sys.argv[1] == "bench":
    path = sys.argv[sys.argv.index("--json") + 1]
    share = {"median": 0.985, "q1": 0.97, "q3": 0.99}
    row = {"workload": "medium", "size": 8, "clients": 2, "itemsPerSecond": {"median": 10.0}, "itemSeconds": {"median": 0.1}}
    rows = [{**row, "way": "bare"}, {**row, "way": "persistent", "sharing": "default", "ofBare": share}]
    json.dump({"machine": {"device": "a processor", "framework": "numpy 2"}, "rows": rows}, open(path, "w"))
elif "Caps" in sys.argv[1]:
    print("    a_test.go:1: figure: " + sys.argv[1] + "\\n    --- PASS: TestGPU_Caps/x (0.00s)\\n--- PASS: TestGPU_Caps (0.00s)")
elif "Fresh" in sys.argv[1] and "GPU" in os.environ:
    print("    a_test.go:1: figure: " + os.environ["GPUMUX_GPU_ITEMS"] + " items\\n--- PASS: TestGPU_FreshItemsLeaveNothing (0.00s)")
elif "Bad" in sys.argv[1]:
    print("--- FAIL: TestGPU_Bad (0.00s)\\n    Error:  it is broken")
    sys.exit(int(os.environ.get("BAD", "0")))
elif "Good" in sys.argv[1]:
    print("    a_test.go:1: figure: 7 ms\\n--- PASS: TestGPU_Good (0.00s)")
else:
    print("    a_test.go:1: skip: no NVIDIA GPU: none\\n--- SKIP: TestGPU_FreshItemsLeaveNothing (0.00s)")
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        step.adopt_orphans()

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def run_step(self, code, limit=60, read=None, measured=""):
        ran = step.Step("a step", [sys.executable, "-c", code], limit, read, cwd=self.folder, measured=measured)
        with open(self.path("log"), "w+b") as log:
            return step.run(ran, limit, log)

    def quietly(self, action):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errs:
            result = action()
        return result, out.getvalue(), errs.getvalue()


class TestSteps(Folder):
    # A step that does not listen to TERM, with a child in its group, one in a session of its own and an orphan of that one.
    HANGING = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("pids", "a") as pids:
    pids.write(f"{os.getpid()}\\n")
    pids.write(f"{subprocess.Popen(['sleep', '600']).pid}\\n")
    pids.write(f"{subprocess.Popen(['sleep', '600'], start_new_session=True).pid}\\n")
    out = subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True)
    pids.write(out.stdout)
print("hanging", flush=True)
time.sleep(600)
"""

    def test_time_limit_ends_a_step_and_all_that_it_started(self):
        step.GRACE = 0.2
        ran = self.run_step(self.HANGING, limit=3)
        self.assertEqual(ran.result, step.TIMED_OUT)
        self.assertIn("3 s", ran.why)
        with open(self.path("pids")) as file:
            pids = [int(line) for line in file]
        self.assertEqual(len(pids), 4)
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        with open(self.path("log")) as log:
            self.assertIn("hanging", log.read(), "what it printed is kept")

    def test_a_step_that_ends_leaves_no_process(self):
        ran = self.run_step("import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)")
        self.assertEqual(ran.result, step.PASSED)
        with open(self.path("log")) as log:
            self.assertFalse(alive(int(log.read().split()[-1])))

    def test_results(self):
        self.assertEqual(self.run_step("pass").result, step.PASSED)
        failed = self.run_step("import sys; sys.exit('the last words')")
        self.assertEqual((failed.result, failed.why), (step.FAILED, "exit status 1: the last words"))
        killed = self.run_step("import os; os.kill(os.getpid(), 9)")
        self.assertEqual((killed.result, killed.code), (step.FAILED, -signal.SIGKILL))
        with open(self.path("log"), "w+b") as log:
            none = step.run(step.Step("none", [self.path("nothing")], 5), 5, log)
        self.assertEqual(none.result, step.FAILED)
        self.assertIn("does not start", none.why)

    def test_an_answer_that_does_not_come_is_not_waited_for(self):
        self.assertEqual(step.answer([sys.executable, "-c", "import sys; print(1); sys.exit('why')"], 60), (1, "1\n", "why\n"))
        with self.assertRaises(step.subprocess.TimeoutExpired):
            step.answer(["sleep", "600"], 0.05)

    def test_the_first_assertion_that_failed(self):
        text = "x\n    Error Trace:\ta_test.go:3\n    Error:\tNot equal: \n   expected: 1\n   actual  : 2\n    Test:\tT\n    Messages:\tof a\n--- FAIL\n"
        self.assertEqual(step.last_words(text), ": Not equal:, expected 1, actual 2, of a")

    def test_reading_tests(self):
        for text, result, why in (
            ("--- PASS: TestGPU_A (1s)", step.PASSED, ""),
            ("    a_test.go:3: skip: no NVIDIA GPU\n--- SKIP: TestGPU_A (1s)", step.SKIPPED, "no NVIDIA GPU"),
            ("    --- SKIP: TestGPU_A/x (1s)\n--- PASS: TestGPU_A (1s)", step.SKIPPED, ""),
            ("    --- SKIP: TestGPU_A/x (1s)\n    --- PASS: TestGPU_A/y (1s)\n--- PASS: TestGPU_A (1s)", step.PASSED, ""),
            ("testing: warning: no tests to run", step.FAILED, "no test ran: testing: warning: no tests to run"),
        ):
            ran = self.run_step(f"print({text!r})", read=reading.read_test)
            self.assertEqual((ran.result, ran.why), (result, why), text)


class TestWhole(Folder):
    def setUp(self):
        super().setUp()
        program = self.write("program", PROGRAM)
        _, said, _ = self.quietly(lambda: bundle.pack(self.path("bundle"), {"gpumux": program, "gpucheck.test": program}, 60 << 20))
        self.assertIn("gpumux.xz", said)
        os.environ["OUT"] = self.path("out")
        for name in ("OUT", "BAD", "GPU", "FACTS"):
            self.addCleanup(os.environ.pop, name, None)
        self.addCleanup(setattr, check, "FACTS", check.FACTS)
        check.FACTS = self.write("facts", FACTS)

    def check(self, *more):
        sys.argv = ["check.py", "--bundle", self.path("bundle"), *more]
        return self.quietly(check.main)

    def summary(self):
        with open(self.path("out", "summary.json")) as file:
            return json.load(file)

    def test_one_table_last_and_in_files(self):
        code, out, _ = self.check()
        self.assertEqual(code, 0, out)
        with open(self.path("out", "summary.txt")) as file:
            table = file.read()
        # The last line of the table on the screen has the time of its own printing.
        self.assertIn(table.rpartition(";")[0], out)
        self.assertRegex(table, r"TestGPU_Good +passed +\d+\.\d  7 ms")
        self.assertRegex(table, r"TestGPU_FreshItemsLeaveNothing +skipped +\d+\.\d  no NVIDIA GPU")
        self.assertRegex(table, r"bench torch +skipped +0\.0  no NVIDIA GPU")
        self.assertRegex(table, r"figure embedding +skipped +0\.0  no NVIDIA GPU")
        rows = {row["step"]: row for row in self.summary()["steps"]}
        caps = [f"TestGPU_Caps/{name}" for name in ("torch", "jax", "cupy")]
        names = ["facts", "facts of frameworks", caps[0], "bench throughput", "TestGPU_CostOfALook", *caps[1:], "TestGPU_Good", "TestGPU_Bad"]
        self.assertEqual(list(rows)[: len(names)], names)
        self.assertEqual(list(rows)[-1], "TestGPU_FreshItemsLeaveNothing")
        files = ["facts.json", "report.md", "steps.log", "summary.json", "summary.txt"]
        self.assertEqual(sorted(os.listdir(self.path("out"))), files, "a lent machine may give back few files")
        if rows["bench numpy"]["result"] != step.SKIPPED:
            self.assertIn("98.5 %", rows["bench numpy"]["figures"][1])
            self.assertIn("bench numpy", self.summary()["measured"])

    def test_a_report_by_claim(self):
        os.environ["BAD"] = "1"
        self.addCleanup(setattr, check, "CLAIMS", check.CLAIMS)
        check.CLAIMS = self.write("gpu.md", "## What is checked\n\n| tests | claim |\n|---|---|\n| Good, Bad | it is [good](x.md) |\n\n## More\n")
        self.check("--only", "TestGPU")
        with open(self.path("out", "report.md")) as file:
            report = file.read()
        self.assertRegex(report, r"(?m)^\| no NVIDIA GPU \|  \| 20\S+ \|  \| 1 \| 1 \| 5 \|$")
        self.assertIn("\n| it is good | Good | Bad (exit status 1: it is broken) |  |\n", report)
        self.assertRegex(report, r"(?m)^\| CostOfALook \|  \|  \| CostOfALook \(no NVIDIA GPU\) \|$")
        claims = reading.claims_of(os.path.join(check.ROOT, "docs", "gpu.md"))
        self.assertEqual(sorted(claims), sorted({each.partition("/")[0] for each in check.ORDER} - {check.THROUGHPUT}))

    def test_what_was_left_out_runs_with_one_command(self):
        _, out, _ = self.check("--limit", "1", "--only", "TestGPU_(Good|Caps)")
        self.assertRegex(out, r"to run what was left out: \S+ \S*check.py --only '\^\(TestGPU_Good\)\$'\n$")

    def test_what_the_facts_say_of_frameworks(self):
        reached = {"steps": [{"step": "import", "took": 900, "threads": 1}, {"step": "reaches", "took": 1000, "threads": 1, "value": True}]}
        missing = {"steps": [{"step": "import", "took": 1, "failed": "not installed"}]}
        broken = {"code": 1, "steps": [], "errors": "Traceback\nImportError: libx.so\n"}
        holds = {"processes": [{"pid": 1}], "ms": 900, "seen": {"lists": {"Compute": {}}}}
        os.environ["GPU"] = "1"
        os.environ["FACTS"] = json.dumps({
            "frameworks": {"torch": reached, "jax": missing, "cupy": broken}, "holding": {"four hold 1 GiB": holds}, "nvml": {"failed": "a hang"},
        })
        code, out, _ = self.check("--only", "facts|TestGPU|bench [a-m]", "--limit", "100")
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"TestGPU_Caps/torch +passed +\d+\.\d  -test.run=\^TestGPU_Caps\$/\^torch\$")
        self.assertRegex(out, r"TestGPU_Caps/jax +skipped +0\.0  not installed")
        self.assertRegex(out, r"TestGPU_Caps/cupy +skipped +0\.0  its import failed: ImportError: libx.so")
        self.assertRegex(out, r"facts +passed +\d+\.\d  nvml: a hang")
        items = re.search(r"TestGPU_Fresh\w+ +passed +\d+\.\d  (\d+) items", out)
        self.assertLess(int(items[1]), 1000 * 100 / 300, "no more than there is time for")
        self.assertEqual(check.fresh_items(0.001, 500), 1000)

    def test_a_framework_that_was_slow_is_asked_once_more(self):
        late = {"code": frameworks.LATE, "steps": [], "errors": ""}
        self.assertEqual(frameworks.lacks({"frameworks": {"torch": late, "jax": {**late, "code": -9}}}), {"jax": "its import failed: -9"})

    def test_a_part_of_mps_that_takes_its_time_and_fails_ends_the_others(self):
        os.environ["MPS"] = "1"
        self.addCleanup(os.environ.pop, "MPS")
        for halted, result in ((0, step.LEFT_OUT), (60, step.PASSED)):
            self.addCleanup(setattr, check, "HALTED", check.HALTED)
            check.HALTED = halted
            self.check("--only", "MPS")
            rows = {row["step"]: row for row in self.summary()["steps"]}
            self.assertEqual(rows["TestGPU_MPS/Clients"]["result"], step.FAILED)
            self.assertEqual(rows["TestGPU_MPS/Quit"]["result"], result)

    def test_what_a_bench_that_was_ended_has_measured(self):
        measured = self.write("report.json", "of an earlier run")
        report = json.dumps({"machine": {"device": "a GPU"}, "rows": []})
        code = f"import time; open('report.json', 'x').write({report!r}); time.sleep(600)"
        ended = self.run_step(code, 5, reading.read_bench, measured)
        self.assertEqual((ended.result, ended.figures), (step.TIMED_OUT, ["a GPU, no framework"]))
        self.assertEqual(self.run_step("import sys; sys.exit(1)", read=reading.read_bench, measured=measured).figures, [])

    def test_too_much_output_is_cut_in_the_middle(self):
        whole = check.Check(self.folder, 60)
        check.KEPT, kept = 1000, check.KEPT
        self.addCleanup(setattr, check, "KEPT", kept)
        code = "print('first'); print('x' * 5000); print('figure'); print('last')"
        ran = step.Step("a step", [sys.executable, "-c", code], 60, lambda ran, text: ran.figures.append(str(len(text))))
        self.quietly(lambda: whole.take(ran))
        self.quietly(lambda: whole.take(step.Step("another", [sys.executable, "-c", "print('another')"], 60)))
        self.assertGreater(int(ran.figures[0]), 5000, "all of it is read before")
        with open(self.path("steps.log")) as log:
            text = log.read()
        self.assertLess(len(text), 2500)
        self.assertRegex(text, r"(?s)a step.*first.*… \d+ bytes cut ….*last.*another")

    def test_a_failure_is_the_exit_code_and_the_rest_goes_on(self):
        os.environ["BAD"] = "1"
        code, out, _ = self.check()
        self.assertEqual(code, 1)
        self.assertRegex(out, r"TestGPU_Bad +FAILED +\d+\.\d  exit status 1: it is broken")
        self.assertRegex(out, r"(?s)  TestGPU_Bad\n +FAILED after \d+\.\d s: exit status 1: it is broken\n.*bench numpy", "said at once")
        with open(self.path("out", "steps.log")) as log:
            self.assertRegex(log.read(), r"(?s)it is broken.*----- nvidia-smi after it\n.*----- ps after it\n")

    def test_steps_without_time_are_left_out_and_told(self):
        code, out, _ = self.check("--limit", "1")
        self.assertEqual(code, 1)
        self.assertRegex(out, r"TestGPU_Good +LEFT OUT +0\.0  the 1 s of the whole check were used up")

    def test_no_gpu_is_exit_code_2(self):
        code, out, _ = self.check("--only", "facts|CostOfALook|Caps")
        self.assertEqual(code, 2, out)
        self.assertRegex(out, r"2 passed, 4 skipped; no NVIDIA GPU: no driver; \d+ s\n$")

    def test_only(self):
        code, out, _ = self.check("--only", "^TestGPU_Good$")
        self.assertEqual(code, 0)
        self.assertEqual([row["step"] for row in self.summary()["steps"]], ["TestGPU_Good"])
        self.assertEqual(self.check("--only", "nonsense")[0], 1)

    def test_a_program_that_does_not_run(self):
        self.write("program", "#!/bin/sh\necho 'for another machine' >&2\nexit 1\n")
        self.quietly(lambda: bundle.pack(self.path("bundle"), {"gpumux": self.path("program"), "gpucheck.test": self.path("program")}, 1 << 20))
        code, _, errs = self.check()
        self.assertEqual(code, 2)
        self.assertIn("gpumux does not run here: for another machine", errs)

    def test_bundles_that_cannot_be_used(self):
        def refused(*says):
            code, _, errs = self.check("--only", "x")
            self.assertEqual(code, 2)
            for each in says:
                self.assertIn(each, errs)

        packed = self.path("bundle", "gpumux.xz")
        with open(packed, "rb") as file:
            whole = file.read()
        with open(packed, "wb") as file:
            file.write(whole[: len(whole) // 2])
        refused("gpumux.xz cannot be unpacked", "make gpu-bundle")
        os.remove(packed)
        refused("gpumux.xz cannot be unpacked", "No such file")
        os.rename(self.path("bundle", "gpucheck.test.xz"), packed)
        with open(self.path("bundle", "bundle.json")) as file:
            listed = json.load(file)
        listed["files"]["gpumux"]["sha256"] = "0"
        self.write("bundle/bundle.json", json.dumps(listed))
        refused("is not the file that was packed")
        os.remove(self.path("bundle", "bundle.json"))
        refused("there is no bundle in", "make gpu-bundle")


class TestFacts(Folder):
    def test_a_part_that_hangs_or_dies_costs_only_itself(self):
        self.addCleanup(facts.PARTS.update, dict(facts.PARTS))
        facts.PARTS["host"] = (facts.host, 0.01)
        self.assertIn("took longer than 0.01 s", facts.part("host", self.path("host"))["failed"])
        facts.PARTS["host"] = (facts.host, 60)
        self.assertRegex(facts.part("host", self.path("missing", "host"))["failed"], "(?s)^exit status 1: .*FileNotFoundError")
        self.assertEqual(facts.part("host", self.path("host"))["processors"], os.cpu_count())

    def test_why_there_is_no_device(self):
        def missing(start, **more):
            return facts.told({"nvml": {"library": "libnvidia-ml.so.1", "start": start, "devices": []}, **more})

        self.assertEqual(missing({"code": 9, "says": "Driver Not Loaded"}), [
            "no device of NVML: libnvidia-ml.so.1 says 9 Driver Not Loaded; see whether nvidia-smi says the same; device files: none in /dev"])
        self.assertIn("cannot be loaded (no such file); install the driver; device files: /dev/nvidiactl",
                      missing({"failed": ["no such file"]}, host={"devices": ["/dev/nvidiactl 0o20666"]})[0])
        self.assertIn("no device of NVML: took longer than 20 s", facts.told({"nvml": {"failed": "took longer than 20 s"}})[0])

    def test_no_secret_is_written_down(self):
        told = [name for name in ("CUDA_HOME", "NVIDIA_API_KEY", "JAX_TOKEN", "HOME", "USER", "XLA_FLAGS") if facts.TELLING.search(name)]
        self.assertEqual(told, ["CUDA_HOME", "HOME", "XLA_FLAGS"])


class TestBundle(Folder):
    def test_a_bundle_over_the_limit_is_none(self):
        path = self.path("noise")
        with open(path, "wb") as file:
            file.write(os.urandom(1 << 16))
        with self.assertRaisesRegex(ValueError, "more than 0 MiB; leave something out"):
            self.quietly(lambda: bundle.pack(self.path("bundle"), {"noise": path}, 1 << 15))
        self.assertEqual(os.listdir(self.path("bundle")), [])

    def test_what_is_missing(self):
        with self.assertRaisesRegex(ValueError, "there is no file .*nothing to pack as x; build it first"):
            bundle.pack(self.path("bundle"), {"x": self.path("nothing")}, 1)

    def test_an_old_bundle_is_replaced(self):
        path = self.write("a", "text")
        os.makedirs(self.path("bundle", "old"))
        self.write("bundle/old.xz", "")
        self.quietly(lambda: bundle.pack(self.path("bundle"), {"a": path}, 1 << 20))
        self.assertEqual(sorted(os.listdir(self.path("bundle"))), ["a.xz", "bundle.json"])
        os.mkdir(self.path("to"))
        files = check.unpack(self.path("bundle"), self.path("to"))
        with open(files["a"]) as file:
            self.assertEqual(file.read(), "text")


if __name__ == "__main__":
    unittest.main()
