#!/usr/bin/env python3
"""Measures Heddle and PyTorch on a GPU in turns, and prints the table of both; see docs/gpu.md.

usage: compare.py --heddle PROGRAM --data-dir DIR --json FILE [--python PYTHON_WITH_TORCH] [--rounds 5] [--epochs 6]
                  [--batch 256] [--seconds 420] [--simulated]

A round runs every row once for some epochs, so that a slow minute of the machine meets all of them. After the first
round no other is begun that would not end within --seconds. --simulated: the GPU is the tests' simulated one; no time is
taken or written, and PyTorch is left out.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import floor
import heddle_side
import table

HERE = os.path.dirname(os.path.abspath(__file__))
# dtype and engine of PyTorch's rows. Mixed precision has no choice of fp32 or tf32.
PYTORCH_ROWS = (
    ("fp32", "PyTorch eager"), ("tf32", "PyTorch eager"), ("bf16 AMP", "PyTorch channels_last+AMP"),
    ("fp32", "PyTorch compile reduce-overhead"), ("tf32", "PyTorch compile reduce-overhead"),
    ("bf16 AMP", "PyTorch compile reduce-overhead, channels_last+AMP"))
# The simulated CUDA counts a library call as one kernel; the fused plan has so many.
MOST_KERNELS = {"lenet": 23}


class PyTorch:
    """The process that answers requests; absent (reason says why) if it cannot be started."""

    def __init__(self, options):
        self.process, self.about, self.reason = None, {}, "no --python was given"
        if options.python is None:
            return
        command = [options.python, os.path.join(HERE, "pytorch_side.py"), "--data-dir", options.data_dir,
                   "--device", options.pytorch_device, "--batch", str(options.batch), "--limit", str(options.limit)]
        try:
            with open(options.log, "w", encoding="utf-8") as log:
                self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                                text=True)
        except OSError as error:
            self.reason = f"{options.python}: {error.strerror}"
            return
        self.about = self.answer()
        if "error" in self.about:
            self.reason = self.about["error"]
            self.close()

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "PyTorch's process ended; its output is in the log"}

    def ask(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"error": "PyTorch's process ended; its output is in the log"}
        return self.answer()

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def device_limits(options):
    """Limits of the GPU by dtype, as `heddle bench` knows them."""
    found = {}
    for dtype in ("f32", "bf16"):
        path = f"{options.json}.{dtype}"
        subprocess.run([options.heddle, "bench", "fill", "--shape", "n=1024", "--device", "cuda", "--dtype", dtype,
                        "--repeats", "1", "--json", path], check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as f:
            report = json.load(f)
        os.remove(path)
        found[dtype] = report.get("limits", {})
        found["machine"] = report["machine"]
    return found


class Comparison:
    def __init__(self, options):
        self.options = options
        self.measurements, self.notes = {}, []

    def add(self, measurement):
        key = tuple(measurement[k] for k in ("model", "dtype", "engine"))
        if key in self.measurements and "epoch_seconds" in measurement:
            self.measurements[key]["epoch_seconds"] += measurement["epoch_seconds"]
        else:
            self.measurements.setdefault(key, measurement)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            print("note: " + text, file=sys.stderr, flush=True)

    def round(self, pytorch):
        options = self.options
        for model in options.model:
            for dtype in heddle_side.DTYPES:
                for engine in heddle_side.ENGINES:
                    self.add(heddle_side.measure(options, model, dtype, engine))
            for dtype, engine in PYTORCH_ROWS if pytorch.process else ():
                request = {"model": model, "dtype": dtype, "engine": engine, "epochs": options.epochs}
                answer = pytorch.ask(request)
                if "error" in answer:
                    self.note(f"no row {model}, {dtype}, {engine}: {answer['error']}")
                    continue
                images = pytorch.about["images"]
                self.add({**request, **answer, "side": "pytorch", "batch": options.batch, "images": images,
                          "steps": -(-images // options.batch)})

    def measure(self, pytorch):
        begin, done = time.monotonic(), 0
        while done < self.options.rounds:
            self.round(pytorch)
            done += 1
            passed = time.monotonic() - begin
            if self.options.simulated or passed * (done + 1) / done > self.options.seconds:
                break
            print(f"round {done} of {self.options.rounds} after {passed:.0f} s", file=sys.stderr, flush=True)
        return done

    def rows(self, found):
        rows = []
        for measurement in self.measurements.values():
            measurement = dict(measurement)
            # A stream's kernels are those of the recording.
            graph = self.measurements.get((measurement["model"], measurement["dtype"], "Heddle graph"), {})
            if measurement["side"] == "heddle":
                measurement.setdefault("kernels_per_step", graph.get("kernels_per_step"))
            limits = None if self.options.simulated else floor.limits_for(measurement["dtype"], found["f32"], found["bf16"])
            rows.append(table.make_row(measurement, limits))
        return table.add_ratios(rows)


def failed_checks(rows, measurements, simulated):
    """What of the plan of a step is not as it must be."""
    problems = []
    for m in measurements:
        if m["engine"] == "Heddle graph" and m.get("other_work_per_step", 0) != 0:
            problems.append(f"{m['model']} {m['dtype']}: {m['other_work_per_step']} copies or fills in a step")
    for row in rows if simulated else ():
        most = MOST_KERNELS.get(row["model"])
        if row["side"] == "heddle" and most and not (row["kernels_per_step"] or most + 1) <= most:
            problems.append(f"{row['model']} {row['dtype']}: {row['kernels_per_step']} kernels in a step, at most {most}")
    return problems


def print_result(report, rows):
    mark = "simulated: " if report["simulated"] else ""
    for name, value in report["machine"].items():
        print(f"{mark}{name}: {value}")
    print(f"{mark}PyTorch: {report['pytorch']}")
    for note in report["notes"]:
        print(f"{mark}note: {note}")
    if report["simulated"]:
        print("simulated: counts and checks only, nothing is timed")
    else:
        print(f"medians over epochs of {report['rounds']} alternating rounds; spread: quartiles; floor: the fused plan with "
              f"{floor.GRAPH_LAUNCH * 1e6:.0f} us a kernel; x best: PyTorch's fastest row of the model")
    print("\n" + table.markdown(rows, report["simulated"]))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--python")
    parser.add_argument("--pytorch-device", choices=("cuda", "cpu"), default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--model", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6, help="timed in a round")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--simulated", action="store_true")
    options = parser.parse_args()
    options.model = options.model or list(floor.MODELS)
    options.log = options.json + ".pytorch.log"
    if options.simulated:
        options.python = None
    return options


def main():
    options = parse()
    comparison = Comparison(options)
    pytorch = PyTorch(options)
    try:
        found = device_limits(options)
        rounds = comparison.measure(pytorch)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        pytorch.close()
    comparison.note("rows in bf16 come when heddle train offers it")
    rows = comparison.rows(found)
    problems = failed_checks(rows, comparison.measurements.values(), options.simulated)
    peer = "not measured" if options.simulated else f"not measured: {pytorch.reason}"
    if "version" in pytorch.about:
        peer = f"{pytorch.about['version']} on {pytorch.about['device']}"
    report = {"simulated": options.simulated, "machine": found["machine"], "batch": options.batch, "rounds": rounds,
              "pytorch": peer, "notes": comparison.notes, "problems": problems, "rows": rows}
    if not options.simulated:
        report["limits"] = {dtype: found[dtype] for dtype in ("f32", "bf16")}
    with open(options.json, "w", encoding="utf-8") as f:
        json.dump(report, f, indent=2)
        f.write("\n")
    print_result(report, rows)
    for problem in problems:
        print("error: " + problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
