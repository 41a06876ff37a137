"""The least time of a training step: what the fused plan must compute and move, on a device with given limits.

A plan is the kernels of one step, each with its floating-point operations and the bytes that it must read and write once.
Its floor is the sum over kernels of max(operations / rate, bytes / bandwidth, launch): nothing is credited for data that
stays in a cache, nor for kernels side by side. "Fused" is what cuDNN's graphs, cuBLASLt's epilogues and own kernels allow:
gather and normalisation in one kernel, bias and ReLU in the epilogue of a convolution or product, loss, its gradient and
the count of right answers in one kernel, one update over all parameters. No import beyond the standard library.
"""
from dataclasses import dataclass

IMAGE = 28
CLASSES = 10
# Seconds from the start of one kernel to the start of the next inside a CUDA graph, at least: an assumption, not a
# property that a device tells.
GRAPH_LAUNCH = 1e-6


@dataclass(frozen=True)
class Conv:
    """A convolution without padding, ReLU and a 2x2 pooling (in whichever order: the sizes are the same)."""
    name: str
    in_channels: int
    out_channels: int
    kernel_size: int
    in_size: int  # pixels a side

    @property
    def out_size(self):
        return self.in_size - self.kernel_size + 1

    @property
    def inputs(self):
        return self.in_channels * self.in_size ** 2

    @property
    def outputs(self):
        return self.out_channels * self.out_size ** 2

    @property
    def pooled(self):
        return self.out_channels * (self.out_size // 2) ** 2

    @property
    def weights(self):
        return self.in_channels * self.out_channels * self.kernel_size ** 2

    @property
    def multiply_adds(self):
        return self.weights * self.out_size ** 2


@dataclass(frozen=True)
class Linear:
    name: str
    inputs: int
    outputs: int

    @property
    def weights(self):
        return self.inputs * self.outputs

    @property
    def multiply_adds(self):
        return self.weights


MODELS = {
    "lenet": (Conv("conv1", 1, 6, 5, 28), Conv("conv2", 6, 16, 5, 12), Linear("fc1", 256, 120), Linear("fc2", 120, 84),
              Linear("fc3", 84, CLASSES)),
    "lenet-d2l": (Conv("conv1", 1, 20, 3, 28), Conv("conv2", 20, 50, 5, 13), Linear("fc1", 800, 128),
                  Linear("fc2", 128, CLASSES)),
}


@dataclass(frozen=True)
class Kernel:
    name: str
    flops: int
    nbytes: float


def parameters(model):
    biases = (layer.out_channels if isinstance(layer, Conv) else layer.outputs for layer in MODELS[model])
    return sum(layer.weights for layer in MODELS[model]) + sum(biases)


def step_flops(model, batch):
    """Operations of forward and backward by definition; the first layer has no gradient of its input."""
    return sum(2 * batch * layer.multiply_adds * (2 if i == 0 else 3) for i, layer in enumerate(MODELS[model]))


def fused_plan(model, batch):
    """The kernels of one step with plain SGD in f32."""
    layers, size, kernels = MODELS[model], 4, []

    def add(name, flops, elements):
        kernels.append(Kernel(name, flops, elements * size))

    pixels = batch * IMAGE ** 2
    kernels.append(Kernel("gather", 0, pixels * (1 + size)))
    for layer in layers:
        add(layer.name, 2 * batch * layer.multiply_adds, batch * (layer.inputs + layer.outputs) + layer.weights)
        if isinstance(layer, Conv):
            add(layer.name + " pool", 0, batch * (layer.outputs + layer.pooled))
    add("loss", 0, 3 * batch * CLASSES)
    for i in reversed(range(len(layers))):
        layer = layers[i]
        products = batch * (layer.inputs + layer.outputs) + layer.weights
        if isinstance(layer, Conv):
            # The pooling's gradient needs the ReLU's mask; a bias gradient is not in cuDNN's weight gradient.
            add(layer.name + " pool gradient", 0, batch * (2 * layer.outputs + layer.pooled))
            add(layer.name + " bias gradient", 0, batch * layer.outputs)
        add(layer.name + " weight gradient", 2 * batch * layer.multiply_adds, products)
        if i > 0:
            add(layer.name + " data gradient", 2 * batch * layer.multiply_adds, products)
    add("update", 0, 3 * parameters(model))
    return kernels


@dataclass(frozen=True)
class Limits:
    """Of a device; None: unknown."""
    bytes_per_second: float
    flops_per_second: float
    launch_seconds: float = GRAPH_LAUNCH


def limits_for(dtype, f32, bf16):
    """Limits of a dtype from the "limits" that `heddle bench --json` writes for f32 and bf16; None if one is unknown.

    TF32 products run at half the rate of bf16 ones (whitepapers of A100 and H100: 156 and 312, 495 and 989 TFLOP/s).
    """
    rates = {"fp32": f32.get("flops_per_second"), "tf32": (bf16.get("flops_per_second") or 0) / 2}
    rate, bandwidth = rates.get(dtype), f32.get("bytes_per_second")
    return Limits(bandwidth, rate) if rate and bandwidth else None


def floor_seconds(plan, limits):
    return sum(max(k.flops / limits.flops_per_second, k.nbytes / limits.bytes_per_second, limits.launch_seconds)
               for k in plan)
