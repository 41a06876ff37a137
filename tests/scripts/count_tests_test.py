#!/usr/bin/env python3
"""Tests of tools/count_tests.py with outputs as Catch2 2 and 3 and unittest print them."""
import json
import os
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.dont_write_bytecode = True
import count_tests  # noqa: E402


def record(result, stdout="", stderr=""):
    return {"name": "x", "result": result, "stdout": stdout, "stderr": stderr}


class CountTestsTest(unittest.TestCase):
    def test_each_catch2_case_counts(self):
        text = "=====\nAll tests passed (1234 assertions in 12 test cases)\n"
        self.assertEqual(count_tests.count_one(record("OK", text)), (12, 0, 0))
        text = "All tests passed (1 assertion in 1 test case)\n"
        self.assertEqual(count_tests.count_one(record("OK", text)), (1, 0, 0))

    def test_failed_and_skipped_cases_are_split(self):
        text = "test cases:  5 |  4 passed | 1 failed\nassertions: 90 | 88 passed | 2 failed\n"
        self.assertEqual(count_tests.count_one(record("FAIL", text)), (4, 1, 0))
        text = "test cases: 5 | 2 passed | 1 skipped | 2 failed as expected\nassertions: 9 | 9 passed\n"
        self.assertEqual(count_tests.count_one(record("OK", text)), (4, 0, 1))

    def test_unittest_programs_count_their_tests(self):
        text = "..s.\n-----\nRan 4 tests in 0.01s\n\nOK (skipped=1)\n"
        self.assertEqual(count_tests.count_one(record("OK", "", text)), (3, 0, 1))
        text = "Ran 4 tests in 0.01s\n\nFAILED (failures=1, errors=1)\n"
        self.assertEqual(count_tests.count_one(record("FAIL", "", text)), (2, 2, 0))

    def test_other_programs_count_once(self):
        self.assertEqual(count_tests.count_one(record("OK", "done")), (1, 0, 0))
        self.assertEqual(count_tests.count_one(record("SKIP")), (0, 0, 1))
        self.assertEqual(count_tests.count_one(record("EXPECTEDFAIL")), (1, 0, 0))

    def test_a_crash_or_time_out_is_a_failure(self):
        for result in ("FAIL", "TIMEOUT", "INTERRUPT", "ERROR", "UNEXPECTEDPASS"):
            self.assertEqual(count_tests.count_one(record(result, "some output")), (0, 1, 0))
        text = "All tests passed (3 assertions in 2 test cases)\n"  # and then the program crashed on exit
        self.assertEqual(count_tests.count_one(record("FAIL", text)), (2, 1, 0))

    def test_the_program_adds_up_and_fails_when_there_is_no_log(self):
        lines = [json.dumps(record("OK")) + "\n", "\n", json.dumps(record("SKIP")) + "\n"]
        self.assertEqual(count_tests.count(lines), [1, 0, 1])
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools/count_tests.py"), "/nonexistent/log"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, "0 passed, 1 failed, 0 skipped\n"))


if __name__ == "__main__":
    unittest.main()
