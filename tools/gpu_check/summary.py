#!/usr/bin/env python3
"""Puts what the parts of tools/gpu_check.sh left in their folder into one file, gpu_check.json.

usage: summary.py FOLDER real|simulated PART=passed|failed...

Parts that an earlier run did are kept, so that parts can be run one by one; those of another kind of GPU are dropped.
"""
import datetime
import json
import os
import sys

NAMES = {"1": "build", "2": "tests", "3": "compute-sanitizer", "4": "accuracy", "5": "kernels", "6": "table"}
REPORTS = {"4": "accuracy.json", "5": "bench.json", "6": "table.json"}


def read(path):
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def merge(folder, simulated, results):
    """The whole report, with this run's results over the earlier ones."""
    earlier = read(os.path.join(folder, "gpu_check.json")) or {}
    parts = earlier.get("parts", {}) if earlier.get("simulated") == simulated else {}
    parts.update({number: {"name": NAMES[number], "passed": verdict == "passed"} for number, verdict in results.items()})
    report = {"simulated": simulated, "date": datetime.date.today().isoformat(), "parts": dict(sorted(parts.items()))}
    for number, name in REPORTS.items():
        if parts.get(number, {}).get("passed"):
            report[NAMES[number]] = read(os.path.join(folder, name))
    return report


def main():
    folder, kind, *rest = sys.argv[1:]
    report = merge(folder, kind == "simulated", dict(pair.split("=") for pair in rest))
    path = os.path.join(folder, "gpu_check.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(report, f, indent=2)
        f.write("\n")
    mark = "simulated: " if report["simulated"] else ""
    verdicts = ", ".join(f"{n} {p['name']} {'passed' if p['passed'] else 'FAILED'}" for n, p in report["parts"].items())
    print(f"== {mark}parts: {verdicts}; report {path}")


if __name__ == "__main__":
    main()
