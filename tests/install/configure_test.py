#!/usr/bin/env python3
"""Configures Heddle on machines where a library is missing, too old or there twice, which are made by hiding files from
Meson: a PATH and a pkg-config folder of links, and a compiler that refuses some names.

usage: configure_test.py --source DIR [unittest arguments]
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PACKAGES = {"nlohmann_json": "nlohmann-json3-dev", "CLI11": "libcli11-dev", "fmt": "libfmt-dev", "zlib": "zlib1g-dev",
            "libpng": "libpng-dev", "catch2": "catch2"}
TOOLS = ["c++", "g++", "clang++", "ld", "as", "ar", "gcc-ar", "ninja", "pkg-config", "python3", "readlink", "sh", "bash",
         "cat", "grep", "uname"]

arguments = None


class ConfigureTest(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="heddle-configure-")
        self.addCleanup(shutil.rmtree, self.work)
        self.bin = os.path.join(self.work, "bin")
        self.packages = os.path.join(self.work, "pkgconfig")
        os.mkdir(self.bin)
        os.mkdir(self.packages)
        for tool in TOOLS:
            path = shutil.which(tool)
            if path:
                os.symlink(path, os.path.join(self.bin, tool))
        # CMake finds what pkg-config does not: it must not be on PATH.
        self.env = {"PATH": self.bin, "PKG_CONFIG_LIBDIR": self.packages, "HOME": self.work, "LC_ALL": "C.UTF-8"}
        for name in (*PACKAGES, "libpng16", "catch2-with-main"):
            self.link_package(name)

    def link_package(self, name):
        for folder in subprocess.run(["pkg-config", "--variable=pc_path", "pkg-config"], capture_output=True,
                                     text=True).stdout.strip().split(":"):
            path = os.path.join(folder, name + ".pc")
            if os.path.exists(path):
                os.symlink(path, os.path.join(self.packages, name + ".pc"))
                return

    def hide(self, name):
        for leaf in (name, {"catch2": "catch2-with-main"}.get(name)):
            if leaf and os.path.lexists(os.path.join(self.packages, leaf + ".pc")):
                os.remove(os.path.join(self.packages, leaf + ".pc"))

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

    def setup_build(self, *options):
        """(exit code, output) of meson setup."""
        done = subprocess.run([shutil.which("meson"), "setup", os.path.join(self.work, "build"), arguments.source,
                               *options], env=self.env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def expect_error(self, options, *parts):
        code, output = self.setup_build(*options)
        self.assertNotEqual(code, 0, output)
        message = output.split("ERROR:", 1)[-1]
        for part in parts:
            self.assertIn(part, message)

    def expect_summary(self, options, *lines):
        code, output = self.setup_build(*options)
        self.assertEqual(code, 0, output)
        summary = " ".join(output.split("\n  Build\n", 1)[0].split()) + " ".join(output.split("\n  Build\n", 1)[1].split())
        for line in lines:
            self.assertIn(line, summary)

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
                          "option gpu_arch is native, but nvcc finds no GPU on this machine")

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


def main():
    global arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    arguments, rest = parser.parse_known_args()
    if not shutil.which("meson") or not shutil.which("pkg-config"):
        print("skipped: meson or pkg-config is missing")
        return 77
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    sys.exit(main())
