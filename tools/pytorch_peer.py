"""What scripts that measure PyTorch beside Heddle share: the models, the data, and the Python that has PyTorch.

torch is imported only by the functions that a process of that Python calls.
"""
import gzip
import os
import struct
import subprocess
import sys

DATA_PLACES = ("/usr/share/datasets/fashion-mnist", os.path.expanduser("~/.cache/heddle/fashion-mnist"))
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def build_model(name):
    """The same layers as Heddle's model of that name, with PyTorch's own initial weights."""
    from torch import nn
    if name == "lenet":
        layers = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                  nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    elif name == "lenet-d2l":
        layers = [nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
                  nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)]
    else:
        raise SystemExit(f"unknown model {name}: lenet or lenet-d2l")
    return nn.Sequential(*layers)


def read_idx(path):
    """A uint8 tensor from an IDX file, compressed (path.gz) or not."""
    import torch
    if os.path.exists(path):
        with open(path, "rb") as f:
            data = f.read()
    else:
        with gzip.open(path + ".gz", "rb") as f:
            data = f.read()
    rank = data[3]
    dims = struct.unpack(f">{rank}I", data[4:4 + 4 * rank])
    return torch.frombuffer(bytearray(data[4 + 4 * rank:]), dtype=torch.uint8).reshape(dims)


def training_set(folder):
    """Images u8 (N,1,H,W) and labels i64 (N)."""
    return read_idx(os.path.join(folder, IMAGES)).unsqueeze(1), read_idx(os.path.join(folder, LABELS)).long()


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def find_python():
    """A Python that can import torch, or None."""
    return next((p for p in (sys.executable, "/usr/bin/python3") if p and os.path.exists(p) and has_torch(p)), None)
