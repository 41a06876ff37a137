#!/usr/bin/python3
"""Makes the golden files of this folder with PyTorch (written with 1.13, any version should do).

usage: make_golden.py [MODEL...]        writes MODEL-weights.safetensors and MODEL-golden.safetensors beside this script

One model each of the two LeNets, as torch.nn.Sequential. Weights, images and labels come from a formula (hash_u32 below,
the same in golden_test.cpp), so that both sides start from the same bits. Everything is computed in float64 from float32
inputs. The golden file holds, in PyTorch's names and layouts:
  images (uint8), labels, logits (f64), loss (f64, of two steps), and per parameter NAME:
  grad/NAME      gradient of the mean loss at the first step, rounded to float32
  first/NAME     weight after one update, second/NAME after two: SGD with momentum, weight decay and Nesterov.
                 Tensors above FULL_NUMEL elements are kept as first/NAME/samples (every stride-th element) and
                 first/NAME/summary (f64: L2 norm, then projections on signs from the hash), to stay small.
A ReLU or a maximum that two precisions may decide differently would make a comparison meaningless, so the number of the
images' stream is the first from 0 on that leaves a margin; it is written into the metadata.
"""
import json
import os
import struct
import sys

import numpy as np
import torch
from torch import nn

BATCH = 32
FULL_NUMEL = 4096
PROJECTIONS = 16
SAMPLES = 1024
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 5e-4
MIN_MARGIN = 1.5e-6


def hash_u32(stream, count):
    """count 32-bit numbers of a stream: an integer hash ("lowbias32") of the position, shifted by the stream."""
    x = (np.arange(count, dtype=np.uint64) + np.uint64(0x9E3779B9) * np.uint64(stream + 1)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> np.uint64(shift)
        x = (x * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return (x ^ (x >> np.uint64(16))).astype(np.uint32)


def make_model(name):
    if name == 'lenet':
        return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                             nn.MaxPool2d(2, 2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84),
                             nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2, 2), nn.Conv2d(20, 50, 5), nn.ReLU(),
                         nn.AvgPool2d(2, 2), nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


def set_weights(model):
    """Uniform in +-1/sqrt(fan_in), rounded to float32; parameter number i draws from stream i."""
    fan_in = 1
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            if p.dim() > 1:
                fan_in = p[0].numel()
            u = (hash_u32(i, p.numel()) >> np.uint32(8)).astype(np.float64) * 2.0**-24
            values = ((2 * u - 1) * (1 / np.sqrt(fan_in))).astype(np.float32)
            p.copy_(torch.from_numpy(values.reshape(p.shape)))


def make_batch(stream):
    images = (hash_u32(1000 + stream, BATCH * 784) >> np.uint32(24)).astype(np.uint8)
    labels = (hash_u32(2000, BATCH) % np.uint32(10)).astype(np.int64)
    pixels = (images.astype(np.float32) / np.float32(255)).astype(np.float64)
    return images, labels, torch.from_numpy(pixels.reshape(BATCH, 1, 28, 28)), torch.from_numpy(labels)


def margin(model, x):
    """Smallest distance, relative to the layer's largest value, of a ReLU's input from 0 and of a maximum from the next."""
    least = 1.0
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.ReLU):
                least = min(least, (x.abs().min() / x.abs().max()).item())
            if isinstance(layer, nn.MaxPool2d):
                windows = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2).sort(-1).values
                gap = (windows[..., 3] - windows[..., 2])[windows[..., 3] > 0]
                least = min(least, (gap.min() / x.max()).item())
            x = layer(x)
    return least


def write_safetensors(path, tensors, metadata):
    types = {'float32': 'F32', 'float64': 'F64', 'int64': 'I64', 'uint8': 'U8'}
    header, at = {'__metadata__': metadata}, 0
    for name, value in tensors.items():
        header[name] = {'dtype': types[str(value.dtype)], 'shape': list(value.shape),
                        'data_offsets': [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for value in tensors.values():
            f.write(np.ascontiguousarray(value).tobytes())


def add_weight(tensors, step, name, value):
    flat = value.detach().numpy().ravel()
    if flat.size <= FULL_NUMEL:
        tensors[f'{step}/{name}'] = value.detach().numpy().astype(np.float32)
        return
    signs = [1.0 - 2.0 * (hash_u32(3000 + j, flat.size) & np.uint32(1)) for j in range(PROJECTIONS)]
    summary = [np.linalg.norm(flat)] + [float((flat * s).sum()) for s in signs]
    tensors[f'{step}/{name}/summary'] = np.array(summary, dtype=np.float64)
    tensors[f'{step}/{name}/samples'] = flat[::flat.size // SAMPLES].astype(np.float32)


def two_steps(name, stream):
    """Tensors of the golden file and the margin, or None if the margin is too small."""
    model = make_model(name)
    set_weights(model)
    model.double()
    images, labels, x, y = make_batch(stream)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY,
                                nesterov=True)
    tensors, losses, least = {'images': images.reshape(BATCH, 28, 28, 1), 'labels': labels}, [], 1.0
    for step in ('first', 'second'):
        least = min(least, margin(model, x))
        if least < MIN_MARGIN:
            return None
        optimizer.zero_grad()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        losses.append(loss.item())
        if step == 'first':
            tensors['logits'] = logits.detach().numpy()
            for k, p in model.named_parameters():
                tensors[f'grad/{k}'] = p.grad.numpy().astype(np.float32)
        optimizer.step()
        for k, p in model.named_parameters():
            add_weight(tensors, step, k, p)
    tensors['loss'] = np.array(losses, dtype=np.float64)
    return tensors, least


def make(name, folder):
    model = make_model(name)
    set_weights(model)
    metadata = {'format': 'pt'}
    write_safetensors(os.path.join(folder, f'{name}-weights.safetensors'),
                      {k: v.numpy() for k, v in model.state_dict().items()}, metadata)
    stream = 0
    while (result := two_steps(name, stream)) is None:
        stream += 1
    tensors, least = result
    print(f'{name}: images of stream {stream}, losses {tensors["loss"]}, margin {least:.2e}')
    metadata.update(torch=torch.__version__, image_stream=str(stream), learning_rate=str(LEARNING_RATE),
                    momentum=str(MOMENTUM), weight_decay=str(WEIGHT_DECAY))
    write_safetensors(os.path.join(folder, f'{name}-golden.safetensors'), tensors, metadata)


if __name__ == '__main__':
    for model_name in sys.argv[1:] or ['lenet', 'lenet-d2l']:
        make(model_name, os.path.dirname(os.path.abspath(__file__)))
