#!/usr/bin/python3
"""Makes the golden files of the ResNets with PyTorch (written with 1.13, any version should do).

usage: make_golden_resnet.py [CASE...]        writes CASE-golden.safetensors beside this script

The networks are written by hand below, with torchvision's names. Weights, images and labels come from a formula
(hash_u32, as in make_golden.py and resnet_golden_test.cpp), so the files hold none of the 11 million weights. All is
computed in float64 from float32 inputs. Two steps of SGD with momentum, weight decay and Nesterov are made on two
batches; STEP is "first" or "second":
  STEP/images (uint8, NHWC), STEP/labels, STEP/logits and STEP/loss (f64, in training mode), eval/logits (f64, of the
  first batch in evaluation mode after both steps), and for each tensor
  STEP/grad/NAME      gradient of the mean loss
  STEP/NAME           running statistics after the step
  weights/NAME        parameters after the second step
each as "whole" (float32) up to FULL_NUMEL elements, else as "samples" (float32, every stride-th element) and "summary"
(f64: L2 norm, then projections on signs from the hash).

A ReLU that two precisions decide differently would make a comparison meaningless, and there are too many of them to
find images that leave a margin. So the shift of each batch norm is chosen for it: channel by channel it moves into the
widest gap of the values in front of the ReLU. Before each step both sides take these shifts, STEP/shifts, in the order
of the parameters. For the maximum pooling the first stream of images is taken that leaves a margin.
"""
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_golden import hash_u32, write_safetensors  # noqa: E402

FULL_NUMEL = 64
PROJECTIONS = 8
SAMPLES = 64
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 5e-4
REACH = 0.25  # how far a shift may move
MIN_MARGIN = 2e-5

# model, base width, batch, image size
CASES = {
    'resnet18': ('resnet18', 64, 16, 28),
    'resnet18-cifar': ('resnet18-cifar', 64, 4, 28),
    'resnet18-tv': ('resnet18-tv', 64, 8, 40),
    'resnet18-narrow': ('resnet18', 8, 8, 28),
    'resnet18-cifar-narrow': ('resnet18-cifar', 8, 4, 12),
}


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride, kind):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=kind != 'resnet18-tv')
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=kind != 'resnet18-tv')
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 and kind == 'resnet18-tv':
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        elif stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride))

    def forward(self, x, norm):
        y = norm(self.bn1, self.conv1(x), None)
        shortcut = x
        if self.downsample is not None:
            shortcut = self.downsample[0](x)
            if len(self.downsample) > 1:
                shortcut = norm(self.downsample[1], shortcut, None, relu=False)
        return norm(self.bn2, self.conv2(y), shortcut)


def plain_norm(bn, x, addend, relu=True):
    y = bn(x)
    if addend is not None:
        y = y + addend
    return F.relu(y) if relu else y


class ResNet(nn.Module):
    def __init__(self, kind, width=64, channels=None, classes=10):
        super().__init__()
        channels = channels or (3 if kind == 'resnet18-tv' else 1)
        small = kind == 'resnet18-cifar'
        self.pooled = not small
        self.conv1 = nn.Conv2d(channels, width, 3 if small else 7, 1 if small else 2, 1 if small else 3,
                               bias=kind != 'resnet18-tv')
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for i in range(4):
            outputs = width << i
            blocks = [Residual(inputs, outputs, 1 if i == 0 else 2, kind), Residual(outputs, outputs, 1, kind)]
            setattr(self, f'layer{i + 1}', nn.Sequential(*blocks))
            inputs = outputs
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x, norm=plain_norm, watch_pool=None):
        x = norm(self.bn1, self.conv1(x), None)
        if self.pooled:
            if watch_pool is not None:
                watch_pool(x)
            x = F.max_pool2d(x, 3, 2, 1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in layer:
                x = block(x, norm)
        return self.fc(x.mean((2, 3)))


def set_weights(model):
    """Uniform with variance 1/fan_in, rounded to float32; parameter number i draws from stream i. The scales of the
    batch norms are around 1, their shifts 0."""
    fan_in = 1
    norms = {f'{k}.weight' for k, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    shifts = {k.replace('.weight', '.bias') for k in norms}
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            if p.dim() > 1:
                fan_in = p[0].numel()
            u = (hash_u32(i, p.numel()) >> np.uint32(8)).astype(np.float64) * 2.0**-24
            values = (2 * u - 1) * np.sqrt(3 / fan_in)
            if name in norms:
                values = 0.75 + 0.5 * u
            if name in shifts:
                values = 0 * u
            p.copy_(torch.from_numpy(values.astype(np.float32).reshape(p.shape)))


def make_batch(stream, batch, size, channels):
    images = (hash_u32(1000 + stream, batch * size * size * channels) >> np.uint32(24)).astype(np.uint8)
    labels = (hash_u32(2000 + stream, batch) % np.uint32(10)).astype(np.int64)
    images = images.reshape(batch, size, size, channels)
    pixels = (images.astype(np.float32) / np.float32(255)).astype(np.float64)
    return images, labels, torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)


def widest_gap(values):
    """The shift of each channel of values (N,C,H,W), at most REACH, that leaves the most room around 0."""
    shifts = []
    for channel in values.transpose(0, 1).reshape(values.shape[1], -1):
        near = channel[channel.abs() < REACH].sort().values
        edges = torch.cat([torch.tensor([-REACH], dtype=near.dtype), near, torch.tensor([REACH], dtype=near.dtype)])
        widest = (edges[1:] - edges[:-1]).argmax()
        shifts.append(-(edges[widest] + edges[widest + 1]) / 2)
    return torch.stack(shifts)


def choose_shifts(model, x):
    """Sets the shifts of the batch norms for this batch; returns the least distance of a ReLU's input from 0."""
    margins = []

    def norm(bn, v, addend, relu=True):
        y = F.batch_norm(v, None, None, bn.weight, bn.bias, True, 0.0, bn.eps)
        if addend is not None:
            y = y + addend
        if not relu:
            return y
        bias = (bn.bias + widest_gap(y)).float().double()
        y = y + (bias - bn.bias).view(1, -1, 1, 1)
        bn.bias.copy_(bias)
        margins.append(y.abs().min().item())
        return F.relu(y)

    with torch.no_grad():
        model(x, norm)
    return min(margins)


def pool_margin(model, x):
    least = [1.0]

    def watch(y):
        windows = F.pad(y, (1, 1, 1, 1)).unfold(2, 3, 2).unfold(3, 3, 2).flatten(-2).sort(-1).values
        gap = (windows[..., 8] - windows[..., 7])[windows[..., 8] > 0]
        least[0] = gap.min().item()

    def norm(bn, v, addend, relu=True):
        y = F.batch_norm(v, None, None, bn.weight, bn.bias, True, 0.0, bn.eps)
        return F.relu(y if addend is None else y + addend) if relu else y

    with torch.no_grad():
        model(x, norm, watch)
    return least[0]


def add_tensor(tensors, name, value):
    value = value.detach().numpy()
    if value.size <= FULL_NUMEL:
        tensors[f'{name}/whole'] = value.astype(np.float32)
        return
    flat = value.ravel()
    signs = [1.0 - 2.0 * (hash_u32(3000 + j, flat.size) & np.uint32(1)) for j in range(PROJECTIONS)]
    summary = [np.linalg.norm(flat)] + [float((flat * s).sum()) for s in signs]
    tensors[f'{name}/summary'] = np.array(summary, dtype=np.float64)
    tensors[f'{name}/samples'] = flat[::flat.size // SAMPLES].astype(np.float32)


def is_shift(model, name):
    return name.endswith('.bias') and isinstance(model.get_submodule(name[:-len('.bias')]), nn.BatchNorm2d)


def make(case, folder):
    kind, width, batch, size = CASES[case]
    model = ResNet(kind, width)
    set_weights(model)
    model.double()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY,
                                nesterov=True)
    tensors, stream, least, losses = {}, 0, 1.0, []
    for step in ('first', 'second'):
        before = {k: v.clone() for k, v in model.state_dict().items()}
        while True:
            images, labels, x, y = make_batch(stream, batch, size, model.conv1.in_channels)
            stream += 1
            margin = min(choose_shifts(model, x), pool_margin(model, x))
            if margin >= MIN_MARGIN:
                break
            model.load_state_dict(before)
        if step == 'first':
            first_x = x
        least = min(least, margin)
        shifts = [p.detach().numpy() for k, p in model.named_parameters() if is_shift(model, k)]
        tensors[f'{step}/shifts'] = np.concatenate(shifts).astype(np.float32)
        tensors[f'{step}/images'], tensors[f'{step}/labels'] = images, labels
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        losses.append(loss.item())
        tensors[f'{step}/logits'] = logits.detach().numpy()
        tensors[f'{step}/loss'] = np.array([loss.item()])
        for k, p in model.named_parameters():
            add_tensor(tensors, f'{step}/grad/{k}', p.grad)
        for k, b in model.named_buffers():
            if not k.endswith('num_batches_tracked'):
                add_tensor(tensors, f'{step}/{k}', b)
        optimizer.step()
    for k, p in model.named_parameters():
        add_tensor(tensors, f'weights/{k}', p)
    model.eval()
    tensors['eval/logits'] = model(first_x).detach().numpy()
    path = os.path.join(folder, f'{case}-golden.safetensors')
    write_safetensors(path, tensors, {
        'format': 'pt', 'torch': torch.__version__, 'model': kind, 'width': str(width),
        'learning_rate': str(LEARNING_RATE), 'momentum': str(MOMENTUM), 'weight_decay': str(WEIGHT_DECAY)})
    print(f'{case}: losses {losses}, margin {least:.1e}, {stream} streams, {os.path.getsize(path)} bytes')


if __name__ == '__main__':
    for case_name in sys.argv[1:] or CASES:
        make(case_name, os.path.dirname(os.path.abspath(__file__)))
