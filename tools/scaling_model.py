#!/usr/bin/env python3
"""A model of data-parallel training on 1 to 1024 GPUs: the time of a step from a measured step, the bytes of the
gradients and the speed of the links. A model is no measurement: it prints what would be if its formulas held.

usage: tools/scaling_model.py [--measured scaling.json] [--step-ms X --batch N --gradient-bytes N] [--speed-up X]
                              [--node nvlink4 --network ndr400 --gpus-per-node 8] [--links all-reduce.json]
                              [--backward-share 0.667] [--reduce-dtype fp32|bf16] [--json FILE]

--measured: what `heddle bench scaling --json` wrote; its step of one rank, gradient bytes and buckets are used. --links: what
`heddle bench all-reduce --json` wrote; latency and bandwidth of all links are fitted to it. Formulas, and where they come
from: docs/scaling.md. Prints Markdown tables; --json writes all numbers.
"""
import argparse
import json
import math
import sys
from dataclasses import dataclass

GPU_COUNTS = [2 ** i for i in range(11)]


@dataclass(frozen=True)
class Link:
    """latency: seconds of a message without bytes; bandwidth: bytes/s of one GPU in one direction."""
    latency: float
    bandwidth: float
    source: str


# Bandwidths are what the vendors publish, of one direction. Vendors publish no latencies: these are assumptions, and the
# place to put what `heddle bench all-reduce` or nccl-tests measure.
LINKS = {
    "nvlink5": Link(3e-6, 900e9, "B200: 1.8 TB/s of both directions, https://www.nvidia.com/en-us/data-center/nvlink/"),
    "nvlink4": Link(3e-6, 450e9, "H100: 900 GB/s of both directions, https://www.nvidia.com/en-us/data-center/nvlink/"),
    "nvlink3": Link(3e-6, 300e9, "A100: 600 GB/s of both directions, https://www.nvidia.com/en-us/data-center/nvlink/"),
    "pcie5": Link(5e-6, 64e9, "x16: 128 GB/s of both directions, https://www.nvidia.com/en-us/data-center/h100/"),
    "pcie4": Link(5e-6, 32e9, "x16: 64 GB/s of both directions, https://www.nvidia.com/en-us/data-center/a100/"),
    "ndr400": Link(5e-6, 50e9, "400 Gb/s a port, one a GPU, https://docs.nvidia.com/networking/display/ConnectX7VPI/Introduction"),
    "hdr200": Link(5e-6, 25e9, "200 Gb/s a port, one a GPU, https://docs.nvidia.com/networking/display/ConnectX6VPI/Introduction"),
    "100gbe": Link(20e-6, 12.5e9, "100GBASE Ethernet, one port a GPU, IEEE 802.3"),
    "10gbe": Link(30e-6, 1.25e9, "10GBASE Ethernet, one port a GPU, IEEE 802.3"),
}


class InputError(Exception):
    """What a user gave makes no sense."""


# ---- all-reduce -----------------------------------------------------------------------------------------------------
def ring_seconds(ranks, nbytes, link):
    """2 (n - 1) messages one after the other, each of 1/n of the bytes."""
    if ranks == 1:
        return 0.0
    return 2 * (ranks - 1) * (link.latency + nbytes / ranks / link.bandwidth)


def tree_seconds(ranks, nbytes, link):
    """Two binary trees, each for half of the bytes, in a pipeline: up and down, and every link carries all bytes twice."""
    if ranks == 1:
        return 0.0
    return 2 * math.ceil(math.log2(ranks)) * link.latency + 2 * nbytes / link.bandwidth


ALGORITHMS = {"ring": ring_seconds, "tree": tree_seconds}


def all_reduce_seconds(ranks, nbytes, algorithm, node, network, gpus_per_node):
    """Inside a node over `node`. Between nodes each GPU of a node reduces its part of the bytes with those of the same place in
    the other nodes: reduce-scatter in the node, all-reduce over the network, all-gather in the node."""
    function = ALGORITHMS[algorithm]
    if ranks <= gpus_per_node:
        return function(ranks, nbytes, node)
    if ranks % gpus_per_node:
        raise InputError(f"{ranks} GPUs are no whole number of nodes with {gpus_per_node}")
    inside = ring_seconds(gpus_per_node, nbytes, node)
    return inside + function(ranks // gpus_per_node, nbytes / gpus_per_node, network)


def fit_link(results):
    """Latency and bandwidth with which ring_seconds() comes nearest to measured all-reduces, by least squares of relative
    errors. results: (ranks, bytes, seconds)."""
    rows = [(2 * (n - 1) / t, 2 * (n - 1) / n * s / t) for n, s, t in results if n > 1 and t > 0]
    aa = sum(a * a for a, _ in rows)
    ab = sum(a * b for a, b in rows)
    bb = sum(b * b for _, b in rows)
    determinant = aa * bb - ab * ab
    if len(rows) < 2 or determinant <= 1e-12 * aa * bb:
        raise InputError("to fit a link takes measurements of two sizes at least")
    latency = (sum(a for a, _ in rows) * bb - sum(b for _, b in rows) * ab) / determinant
    inverse = (aa * sum(b for _, b in rows) - ab * sum(a for a, _ in rows)) / determinant
    if inverse <= 0:
        raise InputError("the measured all-reduces do not become slower with their size")
    if latency < 0:
        latency, inverse = 0.0, sum(b for _, b in rows) / bb
    return Link(latency, 1 / inverse, "fitted to measurements")


# ---- a step ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Step:
    """Of one GPU: seconds for `batch` images without any exchange, and what it exchanges."""
    seconds: float
    batch: int
    gradient_bytes: float
    last_bucket_bytes: float  # of the bucket that is ready last
    source: str


@dataclass(frozen=True)
class Cluster:
    node: Link
    network: Link
    gpus_per_node: int


def exposed_seconds(total, last_bucket, backward):
    """Of an exchange that takes `total`: what does not fit behind the backward pass, at least the last bucket, which is
    ready when nothing is left to compute."""
    return max(last_bucket, total - backward)


def predict(step, cluster, ranks, algorithm, backward_share=2 / 3, strong=False):
    """A dict of the seconds of a step, images/s and efficiency. strong: the batch is shared by all GPUs."""
    compute = step.seconds / ranks if strong else step.seconds
    images = step.batch if strong else step.batch * ranks

    def exchange(nbytes):
        return all_reduce_seconds(ranks, nbytes, algorithm, cluster.node, cluster.network, cluster.gpus_per_node)

    total, last = exchange(step.gradient_bytes), exchange(step.last_bucket_bytes)
    exposed = exposed_seconds(total, last, compute * backward_share)
    seconds = compute + exposed
    return {"gpus": ranks, "step_seconds": seconds, "compute_seconds": compute, "all_reduce_seconds": total,
            "exposed_seconds": exposed, "hidden_seconds": total - exposed, "images_per_second": images / seconds,
            "efficiency": images / seconds / (ranks * step.batch / step.seconds)}


# ---- input and output -----------------------------------------------------------------------------------------------
def read_json(path, benchmark):
    try:
        with open(path, encoding="utf-8") as f:
            report = json.load(f)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    if not isinstance(report, dict) or report.get("benchmark") != benchmark:
        raise InputError(f"{path} is no report of heddle bench {benchmark} --json")
    return report


def step_of_report(report, source):
    """The step of one rank in a report of `heddle bench scaling`."""
    try:
        one = next(r for r in report["results"] if r["ranks"] == 1)
        buckets = report["bucket_elements"]
        nbytes = report["gradient_bytes"]
        return Step(one["compute_seconds"] + one["loader_seconds"], one["batch_size"], nbytes,
                    nbytes * buckets[-1] / sum(buckets), source)
    except (KeyError, IndexError, TypeError, StopIteration) as error:
        raise InputError(f"{source} has no step of one rank") from error


def links_of_report(report):
    """(ranks, bytes, seconds) of the f32 sums in a report of `heddle bench all-reduce`."""
    rows = [r for r in report["results"] if r.get("median_seconds") and r["dtype"] == "f32" and r["op"] == "sum"]
    backends = sorted({r.get("backend", "") for r in rows})
    if len(backends) > 1:
        raise InputError(f"the report has several backends ({', '.join(backends)}), each of another speed; run heddle bench "
                         f"all-reduce --backend NAME")
    return [(r["ranks"], r["bytes"], r["median_seconds"]) for r in rows]


def table(rows, title):
    lines = [f"### {title}", "", "| GPUs | step, ms | compute, ms | all-reduce, ms | exposed, ms | images/s | efficiency |",
             "|---|---|---|---|---|---|---|"]
    for r in rows:
        times = " | ".join(f"{r[name] * 1e3:.3f}" for name in
                           ("step_seconds", "compute_seconds", "all_reduce_seconds", "exposed_seconds"))
        lines.append(f"| {r['gpus']} | {times} | {r['images_per_second']:.0f} | {r['efficiency']:.1%} |")
    return "\n".join(lines) + "\n"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", help="JSON of heddle bench scaling")
    parser.add_argument("--step-ms", type=float, help="a step of one GPU without exchange")
    parser.add_argument("--batch", type=int, default=256, help="images of that step (default: 256)")
    parser.add_argument("--gradient-bytes", type=float)
    parser.add_argument("--last-bucket-bytes", type=float, help="default: all, so that nothing is hidden")
    parser.add_argument("--speed-up", type=float, default=1.0, help="the GPU's speed over that of the measured step")
    parser.add_argument("--node", choices=LINKS, default="nvlink4", help="link inside a node")
    parser.add_argument("--network", choices=LINKS, default="ndr400", help="link between nodes")
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--links", help="JSON of heddle bench all-reduce: all links are as measured there")
    parser.add_argument("--backward-share", type=float, default=2 / 3, help="of a step that exchanges can hide behind")
    parser.add_argument("--reduce-dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--json", help="write all numbers")
    return parser.parse_args(arguments)


def read_step(options):
    if options.measured:
        if options.step_ms or options.gradient_bytes:
            raise InputError("--measured brings the step and the bytes of its gradients; leave out --step-ms and "
                             "--gradient-bytes")
        step = step_of_report(read_json(options.measured, "scaling"), options.measured)
    else:
        if not options.step_ms or not options.gradient_bytes:
            raise InputError("give --measured FILE, or --step-ms and --gradient-bytes")
        step = Step(options.step_ms / 1e3, options.batch, options.gradient_bytes,
                    options.last_bucket_bytes or options.gradient_bytes, "the command line")
    factor = 0.5 if options.reduce_dtype == "bf16" else 1.0
    for name, value in (("--speed-up", options.speed_up), ("the step", step.seconds), ("--batch", step.batch),
                        ("--gradient-bytes", step.gradient_bytes), ("--last-bucket-bytes", step.last_bucket_bytes),
                        ("--gpus-per-node", options.gpus_per_node)):
        if not value > 0:
            raise InputError(f"{name} is {value}; it must be above 0")
    if not 0 <= options.backward_share <= 1:
        raise InputError(f"--backward-share is {options.backward_share}; it is from 0 to 1")
    return Step(step.seconds / options.speed_up, step.batch, step.gradient_bytes * factor,
                step.last_bucket_bytes * factor, step.source)


def main(arguments=None):
    options = parse(arguments)
    try:
        step = read_step(options)
        node, network = LINKS[options.node], LINKS[options.network]
        if options.links:
            node = network = fit_link(links_of_report(read_json(options.links, "all-reduce")))
        cluster = Cluster(node, network, options.gpus_per_node)
        counts = [n for n in GPU_COUNTS if n <= options.gpus_per_node or n % options.gpus_per_node == 0]
        print(f"A MODEL, not a measurement: a step of {step.seconds * 1e3:.3f} ms for {step.batch} images on one GPU "
              f"(from {step.source}), {step.gradient_bytes:.0f} bytes of gradients.\n"
              f"Inside a node of {options.gpus_per_node}: {node.bandwidth / 1e9:g} GB/s, {node.latency * 1e6:g} us "
              f"({node.source}); between nodes: {network.bandwidth / 1e9:g} GB/s, {network.latency * 1e6:g} us "
              f"({network.source}).\n")
        rows = {}
        for algorithm in ALGORITHMS:
            for strong in (False, True):
                title = f"{'strong' if strong else 'weak'} scaling, {algorithm}"
                rows[title] = [predict(step, cluster, n, algorithm, options.backward_share, strong) for n in counts]
                print(table(rows[title], title))
        if options.json:
            with open(options.json, "w", encoding="utf-8") as f:
                json.dump({"model": True, "step": vars(step), "node": vars(node), "network": vars(network),
                           "gpus_per_node": options.gpus_per_node, "backward_share": options.backward_share,
                           "tables": rows}, f, indent=2)
    except (InputError, OSError) as error:
        print(f"scaling_model: {error}", file=sys.stderr)
        return 2
    except (KeyError, TypeError) as error:
        print(f"scaling_model: a report lacks what is needed: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
