#!/usr/bin/env python3
"""PyTorch's side of the comparison: trains Heddle's models in the ways that a user of PyTorch would, on one device.

usage: pytorch_side.py --data-dir DIR [--device cuda|cpu] [--batch 256] [--limit IMAGES]

Reads requests from standard input, one JSON object a line, and answers each with one line: {"model", "dtype", "engine",
"epochs"} -> {"epoch_seconds": [...], "kernels_per_step", "loss"} or {"error": text}. One process serves all requests, so
that importing, compiling and warming up is paid once. The first line that it writes says what it runs on. An epoch is all
images once in a new order, which lie on the device as bytes: per step a batch is gathered and scaled, then forward, loss,
backward, SGD. On a GPU epochs are timed by CUDA events.
"""
import argparse
import json
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# The modes of a request: memory format, automatic mixed precision, compiled.
ENGINES = {
    "PyTorch eager": (False, False, False),
    "PyTorch channels_last+AMP": (True, True, False),
    "PyTorch compile reduce-overhead": (False, False, True),
    "PyTorch compile reduce-overhead, channels_last+AMP": (True, True, True),
}
PROFILED_STEPS = 5


class Training:
    """One model in one mode, with its optimiser."""

    def __init__(self, options, data, request):
        import torch
        from pytorch_peer import build_model
        self.torch, self.options = torch, options
        self.images, self.labels = data
        channels_last, self.amp, compiled = ENGINES[request["engine"]]
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.tf32 = request["dtype"] == "tf32"
        torch.manual_seed(1)
        self.model = build_model(request["model"]).to(options.device, memory_format=self.layout)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.compiled = compiled
        self.loss_of = self.eager_loss
        if compiled:
            # One function for all models, modes and batch sizes: more variants than are kept by default. Without fullgraph
            # one too many would run uncompiled, in silence.
            import torch._dynamo
            for limit in ("cache_size_limit", "recompile_limit"):
                if hasattr(torch._dynamo.config, limit):
                    setattr(torch._dynamo.config, limit, 64)
            self.loss_of = torch.compile(self.eager_loss, mode="reduce-overhead", dynamic=False, fullgraph=True)
        self.warm = False

    def eager_loss(self, images, labels):
        x = images.float().div(255).contiguous(memory_format=self.layout)
        with self.torch.autocast(self.options.device, self.torch.bfloat16, enabled=self.amp):
            return self.torch.nn.functional.cross_entropy(self.model(x), labels)

    def step(self, index):
        if self.compiled:
            self.torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        # Gathered outside of what is compiled, whose inputs are copied when it is replayed.
        loss = self.loss_of(self.images[index], self.labels[index])
        loss.backward()
        self.optimizer.step()
        return loss

    def epoch(self):
        order = self.torch.randperm(len(self.images), device=self.options.device)
        for begin in range(0, len(order), self.options.batch):
            loss = self.step(order[begin:begin + self.options.batch])
        return loss

    def set_precision(self):
        self.torch.backends.cuda.matmul.allow_tf32 = self.tf32
        self.torch.backends.cudnn.allow_tf32 = self.tf32
        self.torch.backends.cudnn.benchmark = True

    def timed_epoch(self):
        if self.options.device == "cpu":
            begin = time.perf_counter()
            self.epoch().item()
            return time.perf_counter() - begin
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda.synchronize()
        begin.record()
        self.epoch()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def measure(self, epochs):
        self.set_precision()
        if not self.warm:
            for _ in range(3):
                self.epoch()
            self.warm = True
        seconds = [self.timed_epoch() for _ in range(epochs)]
        return {"epoch_seconds": seconds, "kernels_per_step": self.kernels(), "loss": self.epoch().item()}

    def kernels(self):
        """Kernels of a step of a full batch, by the profiler; None on a CPU."""
        if self.options.device == "cpu":
            return None
        from torch.profiler import ProfilerActivity, profile
        index = self.torch.arange(self.options.batch, device=self.options.device)
        self.torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(PROFILED_STEPS):
                self.step(index)
            self.torch.cuda.synchronize()
        on_device = [e for e in profiler.events() if e.device_type == self.torch.autograd.DeviceType.CUDA]
        return sum(not e.name.startswith(("Memcpy", "Memset")) for e in on_device) / PROFILED_STEPS


def serve(options, requests, answers):
    import torch
    from pytorch_peer import training_set
    if options.device == "cuda" and not torch.cuda.is_available():
        print(json.dumps({"error": f"PyTorch {torch.__version__} finds no GPU"}), file=answers, flush=True)
        return
    data = tuple(t[:options.limit or None].to(options.device) for t in training_set(options.data_dir))
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print(json.dumps({"version": torch.__version__, "device": name, "images": len(data[0])}), file=answers, flush=True)
    trainings = {}
    for line in requests:
        request = json.loads(line)
        key = (request["model"], request["dtype"], request["engine"])
        try:
            if key not in trainings:
                trainings[key] = Training(options, data, request)
            answer = trainings[key].measure(request["epochs"])
        except Exception as error:  # a mode that this PyTorch cannot run is a row that is missing, with the reason
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--limit", type=int, default=0, help="images of an epoch, 0: all")
    options = parser.parse_args()
    # Libraries may print: answers go to the real standard output, everything else to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(options, sys.stdin, answers)


if __name__ == "__main__":
    main()
