#!/usr/bin/env python3
"""Configures Heddle on machines where a library is missing, too old or there twice, which are made by hiding files from
Meson: a PATH and a pkg-config folder of links, and a compiler that refuses some names.

usage: configure_test.py --source DIR [unittest arguments]
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from configure_case import PACKAGES, ConfigureCase, main  # noqa: E402


class ConfigureTest(ConfigureCase):
    def refuse_in_compiler(self, word):
        """The compiler fails on sources and arguments that hold the word."""
        path = os.path.join(self.bin, "refusing-c++")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\ncase "$*" in *{word}*) exit 1;; esac\n'
                    f'for a in "$@"; do case "$a" in *.cpp) grep -q {word} "$a" && exit 1;; esac; done\n'
                    'if [ "$*" = "${*%-}" ]; then exec c++ "$@"; fi\n'
                    f'text=$(cat); case "$text" in *{word}*) exit 1;; esac\n'
                    'printf "%s\\n" "$text" | exec c++ "$@"\n')
        os.chmod(path, 0o755)
        self.env["CXX"] = path

    def fake_onednn(self, version):
        """A folder with the system's library and headers that state another version."""
        root = os.path.join(self.work, "onednn")
        shutil.copytree("/usr/include/oneapi", os.path.join(root, "include/oneapi"))
        path = subprocess.run(["c++", "-print-file-name=libdnnl.so"], capture_output=True, text=True).stdout.strip()
        if not os.path.isabs(path):
            self.skipTest("the compiler does not find oneDNN")
        os.mkdir(os.path.join(root, "lib"))
        os.symlink(os.path.realpath(path), os.path.join(root, "lib", "libdnnl.so"))
        header = os.path.join(root, "include/oneapi/dnnl/dnnl_version.h")
        with open(header, "w", encoding="utf-8") as f:
            for name, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".")):
                f.write(f"#define DNNL_VERSION_{name} {number}\n")
            f.write('#define DNNL_VERSION_HASH ""\n')
        return root

    def test_the_summary_has_paths_and_versions(self):
        self.expect_summary([], "compiler :", "oneDNN :", "libdnnl.so", "OpenMP :", "nlohmann-json :", "CLI11 :",
                            "CUDA : no: ", "tests : yes", "program heddle: yes")

    def test_the_gpu_option_has_the_choices_of_this_version(self):
        self.expect_summary(["-Dcuda=disabled"], "CUDA : no: switched off")
        shutil.rmtree(os.path.join(self.work, "build"))
        self.expect_error(["-Dcuda=enabled", "-Dtoolkit_root=/nonexistent"], "cuda", "enabled", "/nonexistent")

    def test_kernels_for_the_gpu_of_a_machine_without_one_are_refused(self):
        nvcc = shutil.which("nvcc")
        if nvcc is None or os.path.exists("/dev/nvidiactl"):
            self.skipTest("needs nvcc, and a machine without a GPU")
        root = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
        if not os.path.exists(os.path.join(root, "include", "cudnn.h")):
            self.skipTest("cuDNN is missing")
        self.expect_error(["-Dcuda=enabled", "-Dgpu_arch=native", f"-Dtoolkit_root={root}", "-Ddefault_library=shared"],
                          "option gpu_arch is native, but neither nvidia-smi nor nvcc finds a GPU on this machine")

    def test_missing_gloo_narrows_the_build_unless_it_is_wanted(self):
        self.refuse_in_compiler("gloo")
        self.expect_summary([], "Gloo : no: Debian package libgloo-dev", "ranks in processes: no: Gloo is missing",
                            "Debian package: libgloo-dev")
        shutil.rmtree(os.path.join(self.work, "build"))
        self.expect_error(["-Dgloo=enabled"], "option gloo is enabled", "Gloo is missing", "libgloo-dev")

    def test_gloo_is_in_the_summary_with_its_path_and_version(self):
        if not os.path.exists("/usr/include/gloo/config.h"):
            self.skipTest("Gloo is not installed")
        with open("/usr/include/gloo/config.h", encoding="utf-8") as f:
            version = ".".join(re.findall(r"#define GLOO_VERSION_\w+ (\d+)", f.read()))
        self.expect_summary(["-Dgloo=enabled"], f"Gloo : {version} (/", "ranks in processes: yes, by Gloo")

    def test_the_sources_are_no_place_to_install(self):
        self.expect_error([f"--prefix={os.path.realpath(self.source)}"], "--prefix is the folder of the sources")

    def test_a_missing_required_library_is_an_error_with_its_package(self):
        self.hide("nlohmann_json")
        self.expect_error([], "nlohmann-json", "nlohmann-json3-dev")

    def test_missing_onednn_is_an_error_with_its_package(self):
        self.refuse_in_compiler("dnnl")
        self.expect_error([], "oneDNN is missing", "libdnnl-dev", "2.6", "onednn_root")

    def test_missing_openmp_is_an_error_with_its_package(self):
        self.refuse_in_compiler("fopenmp")
        self.expect_error([], "OpenMP is missing", "libomp-dev")

    def test_an_empty_onednn_root_is_named(self):
        self.expect_error(["-Donednn_root=" + self.work], "onednn_root", os.path.join(self.work, "lib"), "libdnnl-dev")

    def test_a_onednn_that_is_too_old_is_named(self):
        root = self.fake_onednn("2.5.4")
        self.expect_error(["-Donednn_root=" + root], "oneDNN 2.5.4", root, "too old", "2.6")

    def test_headers_and_library_of_two_onednns_are_named(self):
        root = self.fake_onednn("2.99.1")
        self.expect_error(["-Donednn_root=" + root], "two copies of oneDNN", "2.99.1", root)

    def test_a_missing_optional_library_narrows_the_build_and_is_named(self):
        self.hide("libpng")
        self.hide("CLI11")
        self.hide("catch2")
        self.expect_summary([], "libpng : no: Debian package libpng-dev", "program heddle: no: CLI11", "libcli11-dev",
                            "PNG images : no: libpng", "tests : no: Catch2", "Debian package: catch2")

    def test_a_wanted_option_whose_library_is_missing_is_an_error(self):
        for library, option in (("CLI11", "tools"), ("fmt", "tools"), ("libpng", "png"), ("catch2", "tests")):
            with self.subTest(library=library):
                self.hide(library)
                self.expect_error([f"-D{option}=enabled"], f"option {option} is enabled", PACKAGES[library])
                self.link_package(library)
                shutil.rmtree(os.path.join(self.work, "build"))


if __name__ == "__main__":
    sys.exit(main())
