#!/usr/bin/python3
"""Weights that Heddle saved load into PyTorch, strictly, and give the same logits.

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


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)
    for name in ('lenet', 'lenet-d2l'):
        model = make_golden.make_model(name)
        model.load_state_dict(read_safetensors(os.path.join(folder, f'{name}.safetensors')), strict=True)
        expected = read_safetensors(os.path.join(folder, f'{name}-logits.safetensors'))
        with torch.no_grad():
            logits = model.double()(expected['images'].permute(0, 3, 1, 2).double())
        error = ((logits - expected['logits']).norm() / logits.norm()).item()
        print(f'{name}: relative error of the logits {error:.2e}')
        assert error < 1e-5
