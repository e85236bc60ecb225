"""Tests of what check.py reads out of the machine's files."""

import json
import os
import tempfile
import unittest

import check

PLAN = [{"name": "slot ^TestA"}, {"name": "kernelcheck ^TestB"}]


class Rows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(setattr, check, "SHARE", check.SHARE)
        check.SHARE = folder.name
        os.makedirs(os.path.join(folder.name, "out"))

    def write(self, name, text):
        with open(os.path.join(check.SHARE, "out", name), "w") as file:
            file.write(text)

    def ended(self, *codes):
        self.write("ended.json", json.dumps({"kernel": "6.1", "steps": [{"code": code, "seconds": 1} for code in codes]}))

    def test_each_test_has_a_row_and_its_parents_none(self):
        self.write("0.log", "=== RUN   TestA\n=== RUN   TestA/x\n--- PASS: TestA (0.50s)\n    --- PASS: TestA/x (0.25s)\nPASS\n")
        self.write("1.log", "=== RUN   TestB\n--- SKIP: TestB (0.00s)\n=== RUN   TestC\n--- FAIL: TestC (2.00s)\nFAIL\n")
        self.ended(0, 1)
        self.assertEqual(check.rows(PLAN), ("6.1", [
            ("TestA/x", check.PASSED, 0.25), ("TestB", check.SKIPPED, 0.0), ("TestC", check.FAILED, 2.0)]))

    def test_a_parent_that_failed_by_itself_has_a_row(self):
        for child, parents in ("PASS", [("TestA", check.FAILED, 0.5)]), ("FAIL", []):
            self.write("0.log", f"=== RUN   TestA\n=== RUN   TestA/x\n--- FAIL: TestA (0.50s)\n    --- {child}: TestA/x (0.25s)\nFAIL\n")
            self.write("1.log", "--- PASS: TestB (0.50s)\n")
            self.ended(1, 0)
            self.assertEqual(check.rows(PLAN)[1], [
                *parents, ("TestA/x", check.RESULTS[child], 0.25), ("TestB", check.PASSED, 0.5)])

    def test_what_had_not_ended_with_the_machine_is_left_out(self):
        self.write("0.log", "=== RUN   TestA\n")
        self.ended()
        self.assertEqual(check.rows(PLAN)[1], [
            ("TestA", check.LEFT_OUT, 0.0), ("slot ^TestA", check.LEFT_OUT, 0.0), ("kernelcheck ^TestB", check.LEFT_OUT, 0.0)])

    def test_a_program_that_ends_badly_without_a_word_failed(self):
        self.write("0.log", "--- PASS: TestA (0.50s)\npanic: late\n")
        self.write("1.log", "cannot run\n")
        self.ended(2, 1)
        self.assertEqual([row[:2] for row in check.rows(PLAN)[1]],
                         [("TestA", check.PASSED), ("slot ^TestA", check.FAILED), ("kernelcheck ^TestB", check.FAILED)])

    def test_without_a_machine_there_is_no_kernel(self):
        self.assertEqual(check.rows(PLAN)[0], "")


if __name__ == "__main__":
    unittest.main()
