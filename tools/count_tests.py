#!/usr/bin/env python3
"""Adds up what a `meson test` run did and prints `N passed, N failed, N skipped`; exits 1 if something failed.

usage: tools/count_tests.py testlog.json...

A Catch2 program counts each of its test cases, a Python unittest program each of its tests, any other test counts 1.
A program that fails without naming a failed case (a crash, a time-out) counts one failure more.
"""
import json
import re
import sys

PASSED = re.compile(r"All tests passed \(\d+ assertions? in (\d+) test cases?\)")
TOTALS = re.compile(r"^test cases:(.*)$", re.M)
PART = re.compile(r"(\d+) (passed|failed as expected|failed|skipped)")
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(OK|FAILED)(?: \((.*)\))?", re.M)


def count_one(record):
    """(passed, failed, skipped) of one line of the log."""
    result = record["result"]
    output = record.get("stdout", "") + "\n" + record.get("stderr", "")
    passed = failed = skipped = 0
    # A program that ran several sessions prints several summaries; the last line of each counts.
    for match in PASSED.finditer(output):
        passed += int(match.group(1))
    for match in TOTALS.finditer(output):
        for number, kind in PART.findall(match.group(1)):
            if kind == "skipped":
                skipped += int(number)
            elif kind == "failed":
                failed += int(number)
            else:
                passed += int(number)
    for match in UNITTEST.finditer(output):
        details = dict(part.split("=") for part in (match.group(3) or "").split(", ") if "=" in part)
        bad = int(details.get("failures", 0)) + int(details.get("errors", 0)) + int(details.get("unexpected successes", 0))
        left_out = int(details.get("skipped", 0))
        failed += bad
        skipped += left_out
        passed += max(int(match.group(1)) - bad - left_out, 0)
    if result in ("OK", "EXPECTEDFAIL"):
        return (passed or (0 if skipped else 1), 0, skipped)
    if result == "SKIP":
        return (passed, failed, skipped or 1)
    return (passed, failed or 1, skipped)


def count(lines):
    totals = [0, 0, 0]
    for line in lines:
        if line.strip():
            totals = [a + b for a, b in zip(totals, count_one(json.loads(line)))]
    return totals


def main(paths):
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    lines = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as f:
                lines += f.readlines()
        except OSError as error:
            print(f"no log of a test run: {error}", file=sys.stderr)
    passed, failed, skipped = count(lines)
    if not lines:
        failed = 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
