#!/usr/bin/python3
"""Weights that Heddle saved load into PyTorch, strictly, and give the same logits; and the other way round.

usage: torch_reads_weights.py EXPORT_WEIGHTS        exit 77 (skipped) without PyTorch
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as e:
    print(f'skipped: {e}')
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import make_golden  # noqa: E402
import make_golden_resnet  # noqa: E402

LENETS = ('lenet', 'lenet-d2l')
RESNETS = ('resnet18', 'resnet18-cifar', 'resnet18-tv')


def read_safetensors(path):
    with open(path, 'rb') as f:
        data = f.read()
    n = struct.unpack('<Q', data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == '__metadata__':
            continue
        assert entry['dtype'] == 'F32', entry
        begin, end = (8 + n + at for at in entry['data_offsets'])
        tensors[name] = torch.from_numpy(np.frombuffer(data[begin:end], np.float32).reshape(entry['shape']).copy())
    return tensors


def make_model(name):
    return make_golden.make_model(name) if name in LENETS else make_golden_resnet.ResNet(name)


def compare(what, model, expected):
    with torch.no_grad():
        logits = model.double().eval()(expected['images'].permute(0, 3, 1, 2).double())
    error = ((logits - expected['logits']).norm() / logits.norm()).item()
    print(f'{what}: relative error of the logits {error:.2e}')
    assert error < 1e-5


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)
    for name in LENETS + RESNETS:
        model = make_model(name)
        model.load_state_dict(read_safetensors(os.path.join(folder, f'{name}.safetensors')), strict=True)
        compare(f'{name}, from Heddle to PyTorch', model,
                read_safetensors(os.path.join(folder, f'{name}-logits.safetensors')))
    torch.manual_seed(1)
    for name in LENETS + RESNETS:
        model = make_model(name)
        if name in RESNETS:
            # Some batches for the running statistics, of which PyTorch's state dict holds a count, too.
            channels = model.conv1.in_channels
            for _ in range(3):
                model(torch.rand(8, channels, 28, 28))
            assert model.state_dict()['bn1.num_batches_tracked'] == 3
        make_golden.write_safetensors(os.path.join(folder, f'{name}-torch.safetensors'),
                                      {k: v.numpy() for k, v in model.state_dict().items()}, {'format': 'pt'})
        subprocess.run([sys.argv[1], folder, name], check=True)
        compare(f'{name}, from PyTorch to Heddle', model,
                read_safetensors(os.path.join(folder, f'{name}-torch-logits.safetensors')))
