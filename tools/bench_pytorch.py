#!/usr/bin/env python3
"""Times a training step of Heddle and of PyTorch side by side: same model, batch, threads, data and machine.

usage: tools/bench_pytorch.py [--model lenet] [--model lenet-d2l] [--batch 256] [--threads N] [--rounds 5]
                              [--heddle build/tools/heddle] [--python PYTHON_WITH_TORCH] [--json FILE]

The runs alternate, so that a slow minute of the machine meets both. Heddle: `heddle train` over the whole of
Fashion-MNIST, the last epoch's `seconds` in metrics.jsonl divided by its steps, so that shuffling and batch assembly are
in it. PyTorch: epochs over the same images, which lie in memory as one tensor (no DataLoader processes: their cost is
not PyTorch's arithmetic); per step, the batch is gathered, scaled to [0,1], and forward, loss, backward and SGD run, in
both memory formats; the faster one counts. Also a step on a batch that is ready is timed ("bare step"). The numbers are
medians over the rounds, with the smallest and largest beside them. Prints a Markdown table, and JSON with --json.
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from pytorch_peer import DATA_PLACES, build_model, find_python, training_set

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FORMATS = ("contiguous", "channels_last")


# ---- the PyTorch side, run in a process of its own ----------------------------------------------------------------
def worker(options):
    """One measurement: JSON with milliseconds per step, data included and without."""
    import torch
    from torch import nn
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    images, labels = training_set(options.data_dir)
    model = build_model(options.model[0])
    layout = torch.channels_last if options.worker == "channels_last" else torch.contiguous_format
    model = model.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss_function = nn.CrossEntropyLoss()

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def batch(index):
        return images[index].float().div_(255).contiguous(memory_format=layout), labels[index]

    order = torch.randperm(len(images))
    x, y = batch(order[:options.batch])
    for _ in range(10):
        step(x, y)
    bare = []
    for _ in range(options.steps):
        start = time.perf_counter()
        step(x, y).item()
        bare.append(time.perf_counter() - start)
    start, steps = time.perf_counter(), 0
    for begin in range(0, min(len(images), options.steps * options.batch), options.batch):
        loss = step(*batch(order[begin:begin + options.batch]))
        steps += 1
    loss.item()
    full = (time.perf_counter() - start) / steps
    print(json.dumps({"version": torch.__version__, "step_ms": full * 1e3, "bare_step_ms": statistics.median(bare) * 1e3}))


# ---- both sides -----------------------------------------------------------------------------------------------------
def time_pytorch(options, model, memory_format):
    done = subprocess.run([options.python, os.path.abspath(__file__), "--worker", memory_format, "--model", model,
                           "--batch", str(options.batch), "--threads", str(options.threads),
                           "--steps", str(options.steps), "--data-dir", options.data_dir],
                          capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})
    if done.returncode != 0:
        raise SystemExit(f"PyTorch failed ({options.python}):\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def time_heddle(options, model):
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        done = subprocess.run([options.heddle, "train", "--model", model, "--preset", "seed", "--epochs", "2",
                               "--batch-size", str(options.batch), "--data-dir", options.data_dir, "--out", run],
                              capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})
        if done.returncode != 0:
            raise SystemExit(f"heddle train failed:\n{done.stdout}{done.stderr}")
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
            epochs = [json.loads(line) for line in f]
    steps = epochs[-1]["step"] - epochs[-2]["step"]
    return {"step_ms": epochs[-1]["seconds"] / steps * 1e3, "epoch_seconds": epochs[-1]["seconds"]}


def spread(values):
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def measure(options, model):
    heddle, pytorch, version = [], {f: [] for f in FORMATS}, ""
    for number in range(options.rounds):
        heddle.append(time_heddle(options, model))
        for memory_format in FORMATS:
            result = time_pytorch(options, model, memory_format)
            version = result.pop("version")
            pytorch[memory_format].append(result)
        print(f"{model}: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    best = min(FORMATS, key=lambda f: statistics.median(r["step_ms"] for r in pytorch[f]))
    row = {
        "model": model, "batch": options.batch, "threads": options.threads, "rounds": options.rounds,
        "heddle_step_ms": spread([r["step_ms"] for r in heddle]),
        "heddle_epoch_seconds": spread([r["epoch_seconds"] for r in heddle]),
        "pytorch": version, "pytorch_memory_format": best,
        "pytorch_step_ms": spread([r["step_ms"] for r in pytorch[best]]),
        "pytorch_bare_step_ms": spread([min(r[i]["bare_step_ms"] for r in pytorch.values())
                                        for i in range(options.rounds)]),
    }
    row["speedup"] = round(row["pytorch_step_ms"]["median"] / row["heddle_step_ms"]["median"], 2)
    row["speedup_over_bare_step"] = round(row["pytorch_bare_step_ms"]["median"] / row["heddle_step_ms"]["median"], 2)
    return row


def print_table(rows):
    def text(value):
        return f"{value['median']:.2f} ({value['min']:.2f}-{value['max']:.2f})"

    print("| model | batch | threads | Heddle, ms a step | PyTorch, ms a step | its bare step | ratio | ratio to the bare step |")
    print("|---|---|---|---|---|---|---|---|")
    for r in rows:
        print(f"| {r['model']} | {r['batch']} | {r['threads']} | {text(r['heddle_step_ms'])} | "
              f"{text(r['pytorch_step_ms'])}, {r['pytorch_memory_format']} | {text(r['pytorch_bare_step_ms'])} | "
              f"{r['speedup']:.2f} | {r['speedup_over_bare_step']:.2f} |")


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="lenet or lenet-d2l; default both")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60, help="PyTorch steps that are timed in a round")
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "tools", "heddle"))
    parser.add_argument("--python")
    parser.add_argument("--data-dir", default=next((p for p in DATA_PLACES if os.path.isdir(p)), DATA_PLACES[0]))
    parser.add_argument("--json", help="write the numbers to this file")
    parser.add_argument("--worker", choices=FORMATS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.model = options.model or ["lenet", "lenet-d2l"]
    if options.worker:
        worker(options)
        return
    if not shutil.which(options.heddle):
        raise SystemExit(f"{options.heddle} is missing: build Heddle, or name the program with --heddle")
    options.python = options.python or find_python()
    if options.python is None:
        raise SystemExit("no Python with PyTorch (Debian package: python3-torch); name one with --python")
    rows = [measure(options, model) for model in options.model]
    print(f"PyTorch {rows[0]['pytorch']}, {cpu_name()}, {options.threads} threads, medians of {options.rounds} "
          "alternating rounds (smallest-largest)\n")
    print_table(rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"cpu": cpu_name(), "command": " ".join(sys.argv), "rows": rows}, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    main()
