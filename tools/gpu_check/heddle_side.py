"""Heddle's side of the comparison, and what the checks ask of `heddle train`: runs it and reads what it wrote."""
import json
import os
import subprocess
import tempfile

# Engine of the table -> arguments of `heddle train`.
ENGINES = {"Heddle stream": ["--no-graph"], "Heddle graph": []}
DTYPES = ("fp32", "tf32")


def data_arguments(folder):
    """Any four IDX files, so that nobody's warning about unknown images is in the way."""
    return ["--dataset", "idx", "--data-dir", folder]


def train(heddle, arguments):
    """One run in a folder of its own: (description, epochs) as in run.json and metrics.jsonl.

    Raises RuntimeError with what the program printed if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        command = [heddle, "train", *arguments, "--out", out]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} exited {done.returncode}:\n{done.stdout}{done.stderr}")
        with open(os.path.join(out, "run.json"), encoding="utf-8") as f:
            description = json.load(f)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
            return description, [json.loads(line) for line in f]


def measure(options, model, dtype, engine):
    """A measurement as table.py takes it, of one process; the first epoch, in which steps are recorded, is left out."""
    description, epochs = train(options.heddle, [
        "--model", model, "--preset", "seed", "--precision", dtype, "--device", "cuda", "--batch-size", str(options.batch),
        "--epochs", str(options.epochs + 1), "--checkpoint-every", str(options.epochs + 1), *ENGINES[engine],
        *data_arguments(options.data_dir)])
    simulated = description["device"]["simulated"]
    if simulated != options.simulated:
        raise RuntimeError(f"the GPU that heddle trained on is {'simulated' if simulated else 'real'}, expected the other")
    step = description["result"]["step"]
    steps = epochs[1]["step"] - epochs[0]["step"]
    result = {"model": model, "dtype": dtype, "engine": engine, "side": "heddle", "batch": options.batch, "steps": steps,
              "images": description["data"]["files"][0]["items"], "launches_per_step": step["launches"],
              "declared_bytes_per_step": step["read_bytes"] + step["written_bytes"]}
    if "recorded" in step:
        result["kernels_per_step"] = step["recorded"]["kernels"]
        result["other_work_per_step"] = sum(step["recorded"].values()) - step["recorded"]["kernels"]
    if not simulated:
        result["epoch_seconds"] = [e["seconds"] for e in epochs[1:]]
    return result
