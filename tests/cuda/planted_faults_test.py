#!/usr/bin/env python3
"""Plants one fault at a time into a copy of the product's own sources and demands that the simulated CUDA finds it.

Each fault is a text of one source file (found exactly once) and what stands there instead. The file is copied, changed
and compiled with the command that the build itself uses, the plugin (or the engine's library) is linked again into a
folder of its own, and the test program that fits must fail with the words that the fault is known by, where it passes
without the fault.

    planted_faults_test.py SOURCE_ROOT BUILD_ROOT [NAME OF A FAULT...]
"""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import unittest

SOURCE, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
ONLY = sys.argv[3:]
del sys.argv[1:]

PLUGIN = "kernels/libheddle_cuda.so"
DEVICE, BACKEND, STEP = "tests/device/test_device", "tests/backend/test_backend", "tests/step/test_step"
SHARDS = "tests/nccl_comm/test_micro_shards"
# Only where the simulated NCCL is built.
NCCL, TRAINING = "tests/nccl_comm/test_nccl", "tests/nccl_comm/test_nccl_training"


@dataclasses.dataclass
class Fault:
    name: str
    file: str  # that is changed
    find: str
    replace: str
    program: str
    case: str  # of the program
    report: str  # in its output
    unit: str = ""  # that is compiled again, if that is another file
    settings: dict = dataclasses.field(default_factory=dict)  # of the simulator
    hidden_by: dict = None  # settings with which the fault does not show
    target: str = PLUGIN  # what is linked again


TWO_STREAMS = "what two streams do in a step of NCCL is ordered, called and recorded"
FAULTS = [
    Fault("missing event wait", "kernels/cuda/cuda_runtime.cpp",
          "  HEDDLE_CUDA_CHECK(cudaStreamWaitEvent(handle_of(stream), static_cast<cudaEvent_t>(event.handle.get()), 0));\n",
          "", DEVICE, "work of one stream waits for an event of another, also of another GPU",
          "CHECK( result.to_vector<float>() == values )"),
    Fault("missing wait of the host", "kernels/cuda/staging.cpp",
          "    HEDDLE_CUDA_CHECK(cudaEventSynchronize(buffer.copied));\n", "", DEVICE,
          "ordinary host memory may be changed as soon as a copy from it is queued, and nothing waits",
          "FAILED:", hidden_by={"CUDASIM_STREAM_ORDER": "eager"}),
    Fault("missing barrier", "kernels/device/reduce.cuh",
          "    if (lane % 32 == 0) of_warp[lane / 32] = total;\n    __syncthreads();\n",
          "    if (lane % 32 == 0) of_warp[lane / 32] = total;\n", BACKEND, "a long sum of f32 keeps the accuracy of f32",
          "FAILED:", unit="kernels/launch/reduce.cu"),
    Fault("missing barrier behind the first thread", "kernels/device/gather_images.cuh",
          "    b.batch_labels[j] = b.labels[image];\n  }\n  __syncthreads();\n",
          "    b.batch_labels[j] = b.labels[image];\n  }\n", BACKEND, "batches agree with the reference, augmented or not",
          "FAILED:", unit="kernels/launch/gather_images.cu", settings={"CUDASIM_THREAD_ORDER": "reverse"},
          hidden_by={"CUDASIM_THREAD_ORDER": "forward"}),
    Fault("barrier that a part of the block leaves out", "kernels/device/update.cuh",
          "    range[p] = ranges.at[p].range;\n  }\n  __syncthreads();\n",
          "    range[p] = ranges.at[p].range;\n    __syncthreads();\n  }\n", BACKEND,
          "SGD agrees with PyTorch's formula", "cudasim: kernel", unit="kernels/launch/update.cu"),
    Fault("host read of device memory", "kernels/cuda/softmax.cpp", ".ignore_index = params.ignore_index,",
          ".ignore_index = *data_of<std::int64_t>(labels),", BACKEND, "cross-entropy agrees with the reference",
          "cudasim: host code touched device memory"),
    Fault("overrun by one element", "kernels/device/elementwise.cuh",
          "if (const std::int64_t e = single_element<N>(i, packs); e < count) y[e] = value;",
          "if (const std::int64_t e = single_element<N>(i, packs); e <= count) y[e] = value;", BACKEND,
          "fill writes one value", "overrun: byte", unit="kernels/launch/elementwise.cu"),
    Fault("read behind the end", "kernels/device/elementwise.cuh",
          "    for (int k = 0; k < N; ++k) out.at[k] = convert_to<To>(in.at[k]);\n    store_pack<N>(y + i * N, out);\n"
          "    return;\n  }\n",
          "    for (int k = 0; k < N; ++k) out.at[k] = convert_to<To>(in.at[k]);\n"
          "    out.at[0] = convert_to<To>(x[i * N + 4096]);\n    store_pack<N>(y + i * N, out);\n    return;\n  }\n",
          BACKEND, "casts between all dtypes truncate towards zero", "illegal access to", unit="kernels/launch/elementwise.cu"),
    Fault("result that is declared to be read", "kernels/launch/softmax.cu", "writes(a.dlogits, a.rows * a.classes)",
          "reads(a.dlogits, a.rows * a.classes)", BACKEND, "cross-entropy agrees with the reference", "that is only read"),
    Fault("accumulation that is declared to overwrite", "kernels/launch/elementwise.cu", "updates(y, count)",
          "writes(y, count)", BACKEND, "axpy adds a multiple", "FAILED:"),
    Fault("missing barrier between the rows of a batch norm", "kernels/device/batch_norm_sums.cuh",
          "    for (int k = 0; k < N; ++k) place[k] = own[k];\n  }\n  __syncthreads();\n",
          "    for (int k = 0; k < N; ++k) place[k] = own[k];\n  }\n", BACKEND,
          "a mean far from 0 with a small variance is normalised right", "FAILED:", unit="kernels/launch/batch_norm.cu"),
    Fault("one channel too many", "kernels/device/batch_norm_sums.cuh",
          "  return norm_thread() < columns && channel < shape.channels;\n",
          "  return norm_thread() < columns && channel <= shape.channels;\n", BACKEND,
          "a mean far from 0 with a small variance is normalised right", "overrun: byte",
          unit="kernels/launch/batch_norm.cu"),
    Fault("ticket that is not given back", "kernels/device/batch_norm_sums.cuh",
          "    if (last) split.tickets[blockIdx.x] = 0;\n", "", BACKEND,
          "a batch cut into ranks gives what the whole batch gives, with an empty rank and one of one row", "FAILED:",
          unit="kernels/launch/batch_norm.cu"),
    Fault("mask of a ReLU that is declared to be read", "kernels/launch/batch_norm.cu",
          "writes(call.mask, mask_nbytes(size.rows, size.channels))",
          "reads(call.mask, mask_nbytes(size.rows, size.channels))", BACKEND,
          "a batch cut into ranks gives what the whole batch gives, with an empty rank and one of one row",
          "that is only read"),
    Fault("use after free", "engine/step/step_graph.cpp", "  memory_->set_keep_segments(true);\n", "", STEP,
          "recorded steps keep their memory when there is too little for another", "of freed allocation",
          target="engine/libheddle.so.0.1.0"),
    Fault("uninitialised memory", "kernels/cuda/split_tickets.cpp",
          "  runtime_for(device).fill_async(memory_.mutable_raw_data(), 0, memory_.nbytes(), stream);\n", "", BACKEND,
          "cross-entropy agrees with the reference", "FAILED:"),
    Fault("leaked graph", "kernels/cuda/cuda_recorder.cpp",
          "    ~Graph() {\n      if (graph != nullptr) cudaGraphDestroy(graph);\n    }\n", "", STEP,
          "nothing of a step graph is left when it is gone", "1 graph"),
    Fault("leaked executable graph", "kernels/cuda/cuda_recorder.cpp", "    cudaGraphExecDestroy(graph_);\n", "", STEP,
          "nothing of a step graph is left when it is gone", "1 graph exec"),
    Fault("wait inside a recorded step", "kernels/cuda/elementwise.cpp",
          "void CudaBackend::fill(Tensor& y, double value) {\n",
          "void CudaBackend::fill(Tensor& y, double value) {\n  cudaStreamSynchronize(stream());\n", STEP,
          "a step is called once, recorded once, and launched as one graph from then on",
          "cudaErrorStreamCaptureInvalidated"),
    Fault("sum in the order of the ranks", "nccl_comm/tree_sum.cpp",
          "    if (terms_[next_].node == node) return values_[next_++] + at_;\n",
          "    for (std::int64_t i = 0; i < n_; ++i) {\n      out[i] = 0.0f;\n"
          "      for (const float* x : values_) out[i] += x[at_ + i];\n    }\n    return out;\n", SHARDS,
          "any number of ranks adds in the order of the tree, bit for bit", "CHECK( same )",
          target="engine/libheddle.so.0.1.0"),
    Fault("exchange that does not wait for the gradients", "nccl_comm/data_parallel.cpp",
          "  runtime.wait(stream_, runtime.record(current_stream(stream_.device)));\n", "", TRAINING, TWO_STREAMS, "FAILED:",
          target="engine/libheddle.so.0.1.0", settings={"CUDASIM_DEVICES": "2"}),
    Fault("update that does not wait for the exchange", "nccl_comm/data_parallel.cpp",
          "  runtime.wait(current_stream(stream_.device), runtime.record(stream_));\n", "", TRAINING, TWO_STREAMS, "FAILED:",
          target="engine/libheddle.so.0.1.0", settings={"CUDASIM_DEVICES": "2"}),
    Fault("memory that is freed while NCCL knows it", "nccl_comm/nccl_memory.cpp",
          "  if (links_ > 0) return free;\n", "", NCCL,
          "NCCL: memory that nobody uses stays registered until its group ends, and outlives it with a tensor",
          "is still registered with rank", settings={"CUDASIM_DEVICES": "2"}),
    Fault("communicator that ends with registered memory", "nccl_comm/nccl_link.cpp",
          "<NcclLeave>(comm_, std::move(calls));", "<NcclLeave>(comm_, std::vector<std::function<ncclResult_t()>>());", NCCL,
          "NCCL: an older library has registered buffers, or only ordinary memory",
          "is still registered with rank", settings={"CUDASIM_DEVICES": "2"}),
    Fault("windows of an NCCL that a lost rank stops for ever", "nccl_comm/nccl_memory.cpp",
          "constexpr int kWindowsSince = 22'907;", "constexpr int kWindowsSince = 22'700;", NCCL,
          "NCCL: a lost rank's group gives its memory back, while a GPU still waits for it too",
          "do not look at the flag that aborts them", settings={"CUDASIM_DEVICES": "2"}),
    Fault("ranks at different places of a window", "nccl_comm/nccl_communicator.cpp",
          "    request.exchanged_input = link_.place_of(x.raw_data());\n"
          "    request.exchanged_output = link_.place_of(y.raw_data());\n", "", NCCL,
          "NCCL: ranks that exchange from different places of such memory are told so, and nothing is exchanged",
          "FAILED:", settings={"CUDASIM_DEVICES": "2"}),
    Fault("wrong device", "kernels/cuda/cuda_runtime.cpp",
          "void CudaRuntime::use() const { use_device(device_.index); }", "void CudaRuntime::use() const {}", DEVICE,
          "tensors travel between host and GPUs", "cudaErrorInvalidValue"),
]

COMMANDS = {entry["file"]: entry["command"] for entry in
            json.loads((BUILD / "compile_commands.json").read_text())}


def build_file(source):
    """The file that Meson compiles for a source, as its compile commands name it."""
    if source.endswith(".cu"):
        unit = source.removeprefix("kernels/").replace("/", "_").replace(".", "_") + ".cpp"
        return os.path.join("kernels", unit)
    return os.path.relpath(SOURCE / source, BUILD)


def run(command):
    done = subprocess.run(command, cwd=BUILD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(shlex.join(command)[-300:] + "\n" + done.stdout[-3000:])
    return done.stdout


def compile_with(folder, source):
    """Compiles a source, or the copy of it in `folder`, with the copies of headers in there. Returns (the build's object,
    the new object)."""
    words = shlex.split(COMMANDS[build_file(source)])
    original = words[words.index("-o") + 1]
    made = folder / "changed.o"
    words[words.index("-o") + 1] = str(made)
    for option in ("-MQ", "-MF"):
        del words[words.index(option):words.index(option) + 2]
    words.remove("-MD")
    words.insert(next(i for i, word in enumerate(words) if word.startswith("-I")), f"-I{folder}")
    if (folder / source).exists() and not source.endswith(".cu"):
        words[words.index(build_file(source))] = str(folder / source)
    # A fault may leave a parameter without use.
    run(words + ["-Wno-error"])
    return original, made


def link_with(folder, target, original, made):
    """Links the target of the build again with one other object."""
    words = shlex.split(run(["ninja", "-t", "commands", "-s", target]).strip().splitlines()[-1])
    words[words.index("-o") + 1] = str(folder / os.path.basename(target))
    archive = "kernels/libsimulated_kernels.a"
    if original not in words:
        members = run(["ar", "t", archive]).split()
        at = words.index(archive)
        words[at:at + 1] = [member if "/" in member else f"kernels/libsimulated_kernels.a.p/{member}" for member in members]
    words[words.index(original)] = str(made)
    run(words)


def plant(fault, find=None, replace=None):
    """A folder with the library in which the fault is."""
    folder = BUILD / "tests/cuda/planted_faults" / fault.name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    text = (SOURCE / fault.file).read_text()
    find = fault.find if find is None else find
    if text.count(find) != 1:
        raise AssertionError(f"{fault.file} has {text.count(find)} times what the fault replaces, expected 1:\n{find}")
    changed = folder / fault.file
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(find, fault.replace if replace is None else replace))
    link_with(folder, fault.target, *compile_with(folder, fault.unit or fault.file))
    if fault.target != PLUGIN:
        (folder / "libheddle.so.0").symlink_to(os.path.basename(fault.target))
    return folder


def outcome(fault, folder, settings):
    """Exit code and output of the fault's test case, with the libraries of the build or of a folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDASIM_")}
    environment |= settings | {"XDG_CACHE_HOME": "/dev/null/none"}
    if folder is not None and fault.target == PLUGIN:
        environment["HEDDLE_PLUGIN_PATH"] = str(folder)
    elif folder is not None:
        environment |= {"LD_LIBRARY_PATH": str(folder), "HEDDLE_PLUGIN_PATH": str(BUILD / PLUGIN)}
    case = fault.case.replace(",", "\\,")
    done = subprocess.run([BUILD / fault.program, case], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=300)
    if "No test cases matched" in done.stdout or "No tests ran" in done.stdout:
        raise AssertionError(f"{fault.program} has no test '{fault.case}'")
    return done.returncode, done.stdout


def check(fault):
    code, text = outcome(fault, None, fault.settings)
    if code != 0:
        return f"fails without the fault, too:\n{text[-2000:]}"
    folder = plant(fault)
    code, text = outcome(fault, folder, fault.settings)
    if code == 0:
        return "was not found"
    if fault.report not in text:
        return f"was found without the words '{fault.report}':\n{text[-2000:]}"
    if fault.hidden_by is not None:
        code, text = outcome(fault, folder, fault.hidden_by)
        if code != 0:
            return f"was expected to be hidden by {fault.hidden_by}:\n{text[-2000:]}"
    return None


class PlantedFaultsTest(unittest.TestCase):
    def test_every_planted_fault_is_found(self):
        faults = [fault for fault in FAULTS if (not ONLY or fault.name in ONLY) and
                  (fault.program not in (NCCL, TRAINING) or (BUILD / fault.program).exists())]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            running = [(fault, pool.submit(check, fault)) for fault in faults]
            for fault, future in running:
                with self.subTest(fault.name):
                    self.assertIsNone(future.result())

    def test_a_copy_without_a_fault_passes(self):
        fault = dataclasses.replace(FAULTS[0], name="no fault")
        code, text = outcome(fault, plant(fault, replace=fault.find), fault.settings)
        self.assertEqual(code, 0, text[-2000:])

    def test_a_text_that_is_not_there_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "0 times"):
            plant(dataclasses.replace(FAULTS[0], name="no text"), find="no such text")


if __name__ == "__main__":
    unittest.main(verbosity=2)
