#!/usr/bin/env python3
"""Configures Heddle with CUDA toolkits that are incomplete, too old, or there twice: folders of headers that state a
version, empty libraries, and a script in the place of nvcc that answers what Meson asks. Nothing is compiled with them.

usage: toolkit_test.py --source DIR [unittest arguments]
"""
import os
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from configure_case import ConfigureCase, main  # noqa: E402

NVCC = """#!/bin/sh
case "$*" in
  --version) echo "Cuda compilation tools, release {release}, V{release}.88" ;;
  --list-gpu-arch) printf 'compute_%s\\n' {known} ;;
  *native*) {native} ;;
  *) exit 1 ;;
esac
"""
# What nvcc 13.0 answers without a GPU, and what another release does.
NO_GPU_WARNING = ("""echo "nvcc warning : Cannot find valid GPU for '-arch=native', default arch is used" >&2;"""
                  " echo '#$ cicc --arch compute_75 -arch=sm_75' >&2")
NO_GPU_ERROR = "echo 'nvcc fatal : no GPU' >&2; exit 1"
ONE_GPU = "echo '#$ ptxas -arch=sm_90' >&2"
LIBRARIES = ("cudart", "cublasLt", "cudnn")  # without which there is no plugin


class ToolkitTest(ConfigureCase):
    def setUp(self):
        super().setUp()
        self.common = ["-Dtests=disabled", "-Dtools=disabled", "-Ddefault_library=shared"]
        self.library = os.path.join(self.work, "empty.so")
        subprocess.run(["c++", "-shared", "-x", "c++", os.devnull, "-o", self.library], check=True)

    def toolkit(self, name="toolkit", release="13.0", runtime="13000", cublas="13.1.0", cudnn="9.19.0", nccl="2.28.9",
                known=(75, 80, 90, 100, 120), native=NO_GPU_ERROR):
        """A folder like that of a toolkit. A part whose version is None is missing."""
        root = os.path.join(self.work, name)
        for folder in ("bin", "include", "lib64"):
            os.makedirs(os.path.join(root, folder))
        if release:
            path = os.path.join(root, "bin", "nvcc")
            with open(path, "w", encoding="utf-8") as file:
                file.write(NVCC.format(release=release, known=" ".join(map(str, known)), native=native))
            os.chmod(path, 0o755)
        for header, macros, version in (
                ("cuda_runtime_api.h", ["CUDART_VERSION"], runtime and [runtime]),
                ("cublasLt.h", ["CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH"], cublas and cublas.split(".")),
                ("cudnn.h", ["CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"], cudnn and cudnn.split(".")),
                ("nccl.h", ["NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"], nccl and nccl.split("."))):
            if version:
                with open(os.path.join(root, "include", header), "w", encoding="utf-8") as file:
                    file.writelines(f"#define {macro} {number}\n" for macro, number in zip(macros, version))
        for library in (*LIBRARIES, "nccl"):
            os.symlink(self.library, os.path.join(root, "lib64", f"lib{library}.so"))
        return root

    def put_on_path(self, root):
        """As the links of a distribution do."""
        os.symlink(os.path.join(root, "bin", "nvcc"), os.path.join(self.bin, "nvcc"))

    def again(self):
        shutil.rmtree(os.path.join(self.work, "build"), ignore_errors=True)

    def wanted(self, root, *options, cuda="enabled"):
        return [*self.common, f"-Dcuda={cuda}", f"-Dtoolkit_root={root}", *options]

    def build_commands(self):
        with open(os.path.join(self.work, "build", "build.ninja"), encoding="utf-8") as file:
            return file.read()

    def test_a_whole_toolkit_is_in_the_summary_with_paths_and_versions(self):
        root = self.toolkit()
        self.expect_summary(self.wanted(root), "CUDA runtime : 13000 (" + root, "cuBLASLt : 13.1.0 (" + root,
                            "cuDNN : 9.19.0 (" + root, "NCCL : 2.28.9 (" + root, "ranks with a GPU each: yes, by NCCL", "nvcc : 13.0 (" + root + "/bin/nvcc)",
                            "CUDA : yes, for: 75, 80, 90, 100, 120 and PTX 75, 120")

    def test_nvcc_and_headers_of_two_toolkits_are_refused_with_both_paths(self):
        root = self.toolkit(release="12.9")
        self.expect_error(self.wanted(root), "two CUDA toolkits", "12.9", os.path.join(root, "bin/nvcc"), "13.0",
                          os.path.join(root, "include"))

    def test_an_nvcc_on_path_is_followed_to_its_own_toolkit(self):
        root = self.toolkit()
        self.put_on_path(root)
        self.expect_summary([*self.common, "-Dcuda=enabled"], "nvcc : 13.0 (" + root + "/bin/nvcc)",
                            "cuDNN : 9.19.0 (" + root)
        # The headers of another toolkit, put into its place.
        self.again()
        shutil.rmtree(os.path.join(root, "include"))
        os.symlink(os.path.join(self.toolkit("other", runtime="12080"), "include"), os.path.join(root, "include"))
        self.expect_error([*self.common, "-Dcuda=enabled"], "two CUDA toolkits", "13.0", "12.8", root)

    def test_the_option_beats_path(self):
        self.put_on_path(self.toolkit("first", release="12.9", runtime="12090"))
        root = self.toolkit("second")
        self.expect_summary(self.wanted(root), "nvcc : 13.0 (" + root + "/bin/nvcc)", "CUDA runtime : 13000 (" + root)

    def test_an_nvcc_off_path_is_found_by_the_option(self):
        root = self.toolkit()
        self.assertIsNone(shutil.which("nvcc", path=self.bin))
        self.expect_summary(self.wanted(root), "nvcc : 13.0 (" + root + "/bin/nvcc)")

    def test_a_toolkit_without_nvcc_builds_the_simulated_gpu_and_no_other(self):
        root = self.toolkit(release=None)
        self.expect_error(self.wanted(root), "option cuda is enabled", root, "no bin/nvcc", "package: cuda-nvcc")
        self.again()
        self.expect_summary(self.wanted(root, cuda="auto"), "CUDA : no: the CUDA toolkit at " + root + " has no bin/nvcc")
        self.again()
        self.expect_summary(self.wanted(root, cuda="sim"), "CUDA : simulated", "CUDA runtime : 13000 (" + root)

    def test_without_a_toolkit_only_the_cpu_is_built(self):
        root = os.path.join(self.work, "nowhere")
        self.expect_error(self.wanted(root), "option cuda is enabled", "no CUDA toolkit at " + root, "option toolkit_root")
        self.again()
        self.expect_error(self.wanted(root, cuda="sim"), "option cuda is sim", "no CUDA toolkit at " + root)
        self.again()
        self.expect_summary(self.wanted(root, cuda="auto"), "CUDA : no: no CUDA toolkit at " + root)
        self.again()
        self.expect_summary(self.wanted(root, cuda="disabled"), "CUDA : no: switched off")

    def test_missing_parts_are_named_with_their_packages(self):
        for part, header, package in (("runtime", "cuda_runtime_api.h", "cuda-cudart-dev"),
                                      ("cublas", "cublasLt.h", "libcublas-dev"), ("cudnn", "cudnn.h", "cudnn9-cuda-13")):
            with self.subTest(header=header):
                root = self.toolkit("without_" + part, **{part: None})
                # A cuDNN that the compiler finds on this machine does not count.
                self.expect_error(self.wanted(root, "-Dcudnn_root=" + root), "option cuda is enabled", "is missing",
                                  os.path.join(root, "include", header), package)
                self.again()
        for library in LIBRARIES:
            with self.subTest(library=library):
                root = self.toolkit("without_lib" + library)
                os.remove(os.path.join(root, "lib64", f"lib{library}.so"))
                # A library of the system's must not be taken for the toolkit's.
                self.expect_error(self.wanted(root), "is missing", f"no lib{library}.so", os.path.join(root, "lib64"))
                self.again()
        root = os.path.join(self.work, "without_cudnn")
        self.expect_summary(self.wanted(root, "-Dcudnn_root=" + root, cuda="auto"), "CUDA : no: cuDNN is missing")

    def test_parts_that_are_too_old_are_named_with_both_versions(self):
        for part, version, least in (("runtime", "11080", "12000"), ("cublas", "11.9.2", "12.0"), ("cudnn", "8.9.7", "9.0")):
            with self.subTest(part=part):
                root = self.toolkit("old_" + part, **{part: version})
                self.expect_error(self.wanted(root), version, "too old", "at least " + least, os.path.join(root, "include"))
                self.again()

    def test_auto_builds_for_a_driver_alone(self):
        root = self.toolkit()
        if subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0:
            self.expect_summary(self.wanted(root, cuda="auto"), "CUDA : yes, for: ")
        else:
            self.expect_summary(self.wanted(root, cuda="auto"), "CUDA : no: no NVIDIA driver on this machine")

    def test_a_static_library_is_for_the_cpu_only(self):
        root = self.toolkit()
        self.expect_error(self.wanted(root, "-Ddefault_library=static"), "static library is for the CPU only")

    def test_the_list_of_gpus_is_checked_against_what_nvcc_knows(self):
        root = self.toolkit()
        self.expect_error(self.wanted(root, "-Dgpu_arch="), "gpu_arch is empty", "80,90", "native", "default")
        self.again()
        self.expect_error(self.wanted(root, "-Dgpu_arch=80,70"), "gpu_arch", "nvcc 13.0 does not know 70",
                          "it knows 75, 80, 90, 100, 120")
        self.again()
        self.expect_error(self.wanted(root, "-Dgpu_arch=ampere"), "does not know ampere")
        self.again()
        self.expect_summary(self.wanted(root, "-Dgpu_arch=80, 90"), "CUDA : yes, for: 80, 90 and PTX 80, 90")
        commands = self.build_commands()
        for flag in ("arch=compute_80,code=sm_80", "arch=compute_90,code=sm_90", "arch=compute_80,code=compute_80",
                     "arch=compute_90,code=compute_90"):
            self.assertIn(flag, commands)
        self.assertNotIn("sm_75", commands)

    def test_the_default_list_is_what_nvcc_knows_and_runs_on_newer_gpus(self):
        root = self.toolkit(known=(80, 90, 100))
        self.expect_summary(self.wanted(root), "CUDA : yes, for: 80, 90, 100 and PTX 80, 100")
        commands = self.build_commands()
        self.assertIn("arch=compute_100,code=compute_100", commands)
        # A GPU between two of the list, like 8.7 or 9.1, runs what the driver makes of the lowest.
        self.assertIn("arch=compute_80,code=compute_80", commands)
        self.assertNotIn("arch=compute_90,code=compute_90", commands)

    def test_native_needs_a_gpu(self):
        for name, answer in (("warning", NO_GPU_WARNING), ("error", NO_GPU_ERROR)):
            with self.subTest(answer=name):
                root = self.toolkit(name, native=answer)
                self.expect_error(self.wanted(root, "-Dgpu_arch=native"), "gpu_arch is native",
                                  "neither nvidia-smi nor nvcc finds a GPU")
                self.again()
                self.expect_summary(self.wanted(root, "-Dgpu_arch=native", cuda="auto"), "CUDA : no: ")
                self.again()
        root = self.toolkit("gpu", native=ONE_GPU)
        self.expect_summary(self.wanted(root, "-Dgpu_arch=native"), "CUDA : yes, for: the GPU of the machine that built it")
        self.assertIn("-arch=native", self.build_commands())

    def smi(self, answer, code=0):
        """A program nvidia-smi that answers with these lines."""
        path = os.path.join(self.bin, "nvidia-smi")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ncat <<EOF\n{answer}\nEOF\nexit {code}\n")
        os.chmod(path, 0o755)

    def test_native_is_what_the_driver_says(self):
        root = self.toolkit(known=(75, 80, 90, 110, 103, 120))
        for answer, text in (("9.0", "90 and PTX 90"), ("8.0\n8.0", "80 and PTX 80"),
                             ("7.5\n12.0", "75, 120 and PTX 75, 120"),
                             # nvcc does not know them yet: the newest code that is not newer, for the driver to compile.
                             ("8.9", "80 and PTX 80"), ("11.1", "110 and PTX 110"), ("13.0", "120 and PTX 120"),
                             ("[N/A]\n9.0", "90 and PTX 90")):
            with self.subTest(answer=answer):
                self.smi(answer)
                self.expect_summary(self.wanted(root, "-Dgpu_arch=native"), "CUDA : yes, for: " + text)
                self.again()
        self.smi("6.1")
        self.expect_error(self.wanted(root, "-Dgpu_arch=native"), "gpu_arch is native", "nvcc 13.0", "6.1", "75, 80")
        self.again()
        # A driver that does not answer is no GPU, unless nvcc sees one.
        self.smi("No devices were found", 6)
        self.expect_error(self.wanted(root, "-Dgpu_arch=native"), "neither nvidia-smi nor nvcc finds a GPU")

    def system_cudnn(self, version="9.5.1", name="system"):
        """A cuDNN outside the toolkit, as packages of the system have it; the root."""
        root = os.path.join(self.work, name)
        folder = os.path.join(root, "lib", os.uname().machine + "-linux-gnu")
        os.makedirs(os.path.join(root, "include"))
        os.makedirs(folder)
        with open(os.path.join(root, "include", "cudnn.h"), "w", encoding="utf-8") as file:
            for macro, number in zip(("MAJOR", "MINOR", "PATCHLEVEL"), version.split(".")):
                file.write(f"#define CUDNN_{macro} {number}\n")
        os.symlink(self.library, os.path.join(folder, "libcudnn.so"))
        return root, folder

    def test_cudnn_is_found_where_the_compiler_looks(self):
        toolkit = self.toolkit(cudnn=None)
        os.remove(os.path.join(toolkit, "lib64", "libcudnn.so"))
        root, folder = self.system_cudnn()
        self.env.update(CPLUS_INCLUDE_PATH=os.path.join(root, "include"), LIBRARY_PATH=folder)
        for cuda in ("enabled", "sim"):
            self.expect_summary(self.wanted(toolkit, cuda=cuda), "cuDNN : 9.5.1 (where the compiler looks)")
            self.again()
        # The toolkit's own comes first.
        self.expect_summary(self.wanted(self.toolkit("whole")), "cuDNN : 9.19.0 (" + os.path.join(self.work, "whole"))
        self.again()
        os.remove(os.path.join(folder, "libcudnn.so"))
        if not system_has("-lcudnn"):
            self.expect_error(self.wanted(toolkit), "cuDNN is missing", "libcudnn.so in the folders of the linker")

    def test_an_option_names_another_cudnn(self):
        toolkit = self.toolkit()
        root, folder = self.system_cudnn()
        self.expect_summary(self.wanted(toolkit, "-Dcudnn_root=" + root), "cuDNN : 9.5.1 (" + root + "/include)")
        commands = self.build_commands()
        self.assertIn("-Wl,-rpath," + folder, commands)
        self.assertLess(commands.index(root + "/include"), commands.index(toolkit + "/include"))
        self.again()
        self.expect_error(self.wanted(toolkit, "-Dcudnn_root=" + self.system_cudnn("8.9.2", "old")[0]), "cuDNN 8.9.2",
                          "too old", "at least 9.0", os.path.join(self.work, "old"))
        self.again()
        nowhere = os.path.join(self.work, "nowhere")
        self.expect_error(self.wanted(toolkit, "-Dcudnn_root=" + nowhere), "cuDNN is missing",
                          nowhere + "/include/cudnn.h, which option cudnn_root names")
        self.again()
        os.remove(os.path.join(folder, "libcudnn.so"))
        self.expect_error(self.wanted(toolkit, "-Dcudnn_root=" + root), "cuDNN is missing", "no libcudnn.so in " + root)

    def test_the_package_of_cudnn_is_that_of_the_toolkits_release(self):
        for release, runtime in (("12.8", "12080"), ("13.0", "13000")):
            with self.subTest(release=release):
                root = self.toolkit("without_" + release, release=release, runtime=runtime, cudnn=None)
                self.expect_error(self.wanted(root, "-Dcudnn_root=" + root), "cuDNN is missing",
                                  "package: cudnn9-cuda-" + release[:2] + ")", "option cudnn_root")
                self.again()


    def test_the_plugin_is_built_without_an_nccl_that_is_missing_or_too_old(self):
        missing = self.toolkit("missing", nccl=None)
        old = self.toolkit("old", nccl="2.18.5")
        no_library = self.toolkit("no_library")
        os.remove(os.path.join(no_library, "lib64", "libnccl.so"))
        for root, cause in ((missing, ["no " + missing + "/include/nccl.h", "option nccl_root names", "package: libnccl-dev"]),
                            (old, ["NCCL 2.18.5 in " + old, "too old", "at least 2.19"]),
                            (no_library, ["no libnccl.so in " + no_library, "package: libnccl-dev"])):
            # An NCCL that the compiler finds on this machine does not count.
            options = self.wanted(root, "-Dnccl_root=" + root)
            with self.subTest(root=root):
                self.expect_summary(options, "NCCL : no: ", "ranks with a GPU each: no: ", "CUDA : yes, for: ")
                self.again()
                self.expect_error([*options, "-Dnccl=enabled"], "option nccl is enabled, but NCCL is missing", *cause)
                self.again()

    def test_nccl_is_switched_off_and_on(self):
        root = self.toolkit()
        self.expect_summary(self.wanted(root, "-Dnccl=disabled"), "NCCL : no: switched off",
                            "ranks with a GPU each: no: switched off")
        self.again()
        self.expect_summary(self.wanted(root, "-Dnccl=enabled"), "NCCL : 2.28.9 (" + root)
        self.again()
        self.expect_error(self.wanted(root, "-Dnccl=enabled", cuda="disabled"), "option nccl is enabled",
                          "the CUDA plugin is not built")
        self.again()
        other = self.toolkit("other", nccl="2.20.3")
        self.expect_summary(self.wanted(root, "-Dnccl_root=" + other), "NCCL : 2.20.3 (" + other + "/include)")

    def test_nccl_is_found_where_the_compiler_looks(self):
        root = self.toolkit(nccl=None)
        os.remove(os.path.join(root, "lib64", "libnccl.so"))
        other = self.toolkit("system")
        self.env.update(CPLUS_INCLUDE_PATH=os.path.join(other, "include"), LIBRARY_PATH=os.path.join(other, "lib64"))
        self.expect_summary(self.wanted(root), "NCCL : 2.28.9 (where the compiler looks)")


def system_has(*options):
    """Whether the compiler of this machine links a program with these options."""
    return subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", os.devnull, *options, "-o", os.devnull],
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
