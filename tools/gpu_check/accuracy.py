#!/usr/bin/env python3
"""Trains on the GPU and on the CPU with the same settings, and compares the accuracies on the test images.

usage: accuracy.py --heddle PROGRAM --data-dir DIR --json FILE [--model NAME ...] [--epochs 2] [--batch 256]
                   [--allowed 0.005]

Exit code 1 if an epoch's accuracy differs by more than is allowed, or a run fails.
"""
import argparse
import json
import sys

import heddle_side


def compare(gpu, cpu, allowed):
    """Differences by epoch, and whether all are allowed."""
    differences = [a - b for a, b in zip(gpu, cpu)]
    return differences, len(gpu) == len(cpu) and all(abs(d) <= allowed for d in differences)


def check_model(options, model):
    accuracies, simulated = {}, False
    for device in ("cuda", "cpu"):
        description, epochs = heddle_side.train(options.heddle, [
            "--model", model, "--preset", "seed", "--device", device, "--epochs", str(options.epochs),
            "--batch-size", str(options.batch), *heddle_side.data_arguments(options.data_dir)])
        simulated = simulated or description["device"]["simulated"]
        accuracies[device] = [e["test_accuracy"] for e in epochs]
    differences, passed = compare(accuracies["cuda"], accuracies["cpu"], options.allowed)
    where = "simulated cuda" if simulated else "cuda"
    for epoch, difference in enumerate(differences):
        print(f"{model} epoch {epoch + 1}: {where} {accuracies['cuda'][epoch]:.4f}, cpu {accuracies['cpu'][epoch]:.4f}, "
              f"difference {difference:+.4f} of {options.allowed} allowed")
    return {"model": model, "simulated": simulated, "test_accuracy": accuracies, "passed": passed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--model", action="append")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--allowed", type=float, default=0.005)
    options = parser.parse_args()
    try:
        results = [check_model(options, model) for model in options.model or ("lenet", "lenet-d2l")]
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    with open(options.json, "w", encoding="utf-8") as f:
        json.dump({"allowed": options.allowed, "models": results}, f, indent=2)
        f.write("\n")
    return 0 if all(r["passed"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
