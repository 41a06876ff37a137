#!/usr/bin/env python3
"""What somebody finds who uses an installed Heddle: package files, headers, names, examples.

usage: install_test.py --build DIR --source DIR [unittest arguments]

Installs the build into a folder of its own, moves that folder, and works with the moved copy. Exits 77 if the build
does not install anything here (sanitizers) or pkg-config is missing; single tests skip when their tool is missing.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
COMPILERS = {"g++": "c++23", "clang++": "c++2b"}
SYSTEM_MACROS = re.compile(r"^\s*#\s*define\s+(?!HEDDLE_)(\w+)", re.M)
# Mangled names of namespace heddle: see engine/heddle.map.
OWN_NAME = re.compile(r"^_Z(GV|GR|TV|TT|TI|TS|TW|TH|T[hvc].*_)?Z?N[KRO]*6heddle")

arguments = None
prefix = None
library_folder = None


def run(*command, check=True, cwd=None, env=None):
    """Runs a command; raises AssertionError with its output if it fails."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} exited {done.returncode}:\n{done.stdout}")
    return done.stdout


def build_option(name):
    with open(os.path.join(arguments.build, "meson-info", "intro-buildoptions.json"), encoding="utf-8") as f:
        return next(option["value"] for option in json.load(f) if option["name"] == name)


def pkg_config(*options, folder=None):
    folder = folder or library_folder
    return run("pkg-config", *options, "heddle", env={"PKG_CONFIG_PATH": os.path.join(folder, "pkgconfig")}).split()


def compilers():
    return [c for c in COMPILERS if shutil.which(c)]


def installed_headers():
    include = os.path.join(prefix, "include")
    return sorted(os.path.relpath(os.path.join(folder, name), include)
                  for folder, _, names in os.walk(include) for name in names)


def in_parallel(function, items):
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(function, items))


def setUpModule():
    global prefix, library_folder
    work = tempfile.mkdtemp(prefix="heddle-install-")
    unittest.addModuleCleanup(shutil.rmtree, work)
    staged = os.path.join(work, "staged")
    run("meson", "install", "-C", arguments.build, "--no-rebuild", "--quiet", "--destdir", staged)
    # DESTDIR and prefix were one thing at configuration and another now.
    prefix = os.path.join(work, "moved")
    shutil.move(os.path.join(staged, build_option("prefix").lstrip("/")), prefix)
    library_folder = os.path.join(prefix, build_option("libdir"))


class InstalledFiles(unittest.TestCase):
    def test_versions_agree_everywhere(self):
        with open(os.path.join(arguments.source, "VERSION"), encoding="utf-8") as f:
            version = f.read().strip()
        self.assertEqual(pkg_config("--modversion"), [version])
        with open(os.path.join(prefix, "include/heddle/core/version.h"), encoding="utf-8") as f:
            self.assertIn(f'HEDDLE_VERSION_STRING "{version}"', f.read())
        program = os.path.join(prefix, "bin", "heddle")
        if os.path.exists(program):
            self.assertIn(version, run(program, "--version"))

    def test_the_shared_library_has_a_soname_and_no_run_path(self):
        dynamic = run("readelf", "-d", os.path.join(library_folder, "libheddle.so"))
        self.assertIn("soname: [libheddle.so.0]", dynamic)
        # Helper threads may still run when a host program unloads the library.
        self.assertIn("NODELETE", dynamic)
        self.assertNotIn("RPATH", dynamic)
        self.assertNotIn("RUNPATH", dynamic)
        self.assertEqual(os.readlink(os.path.join(library_folder, "libheddle.so.0"))[:13], "libheddle.so.")

    def test_exported_names_are_in_our_namespace(self):
        lines = run("nm", "-D", "--defined-only", os.path.join(library_folder, "libheddle.so")).splitlines()
        names = [line.split()[-1] for line in lines]
        self.assertGreater(len(names), 100)
        self.assertEqual([n for n in names if not OWN_NAME.match(n)], [])
        for wanted in ("_ZTVN6heddle4NodeE", "_ZTIN6heddle15InvalidArgumentE", "_ZN6heddle7versionEv"):
            self.assertIn(wanted, names)

    def test_no_installed_file_names_the_build_folder(self):
        places = [arguments.build.encode(), arguments.source.encode()]
        for folder, _, names in os.walk(prefix):
            for name in names:
                with open(os.path.join(folder, name), "rb") as f:
                    content = f.read()
                for place in places:
                    self.assertFalse(place in content, f"{name} holds {place.decode()}")

    def test_headers_define_prefixed_macros_only(self):
        self.assertGreater(len(installed_headers()), 20)
        for header in installed_headers():
            with open(os.path.join(prefix, "include", header), encoding="utf-8") as f:
                self.assertEqual(SYSTEM_MACROS.findall(f.read()), [], header)


class Headers(unittest.TestCase):
    def check(self, compiler, standard, text):
        command = [compiler, f"-std={standard}", *WARNINGS, "-fsyntax-only", "-x", "c++", "-I", f"{prefix}/include", "-"]
        done = subprocess.run(command, input=text, text=True, capture_output=True)
        return "" if done.returncode == 0 else f"{compiler} {standard}:\n{text}\n{done.stderr}"

    def test_each_header_compiles_alone(self):
        jobs = [(c, "c++20", f"#include <{h}>\n") for c in compilers() for h in installed_headers()]
        failures = [text for text in in_parallel(lambda job: self.check(*job), jobs) if text]
        self.assertEqual(failures, [], "\n".join(failures))

    def test_all_headers_compile_together_in_any_order_and_in_the_next_standard(self):
        names = installed_headers()
        orders = ["".join(f"#include <{h}>\n" for h in order) for order in (names, reversed(names))]
        jobs = [(c, s, text) for c in compilers() for s in ("c++20", COMPILERS[c]) for text in orders]
        failures = [text for text in in_parallel(lambda job: self.check(*job), jobs) if text]
        self.assertEqual(failures, [], "\n".join(failures))


class Programs(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="heddle-app-")
        self.addCleanup(shutil.rmtree, self.work)
        with open(os.path.join(self.work, "all_headers.h"), "w", encoding="utf-8") as f:
            f.write("#pragma once\n" + "".join(f"#include <{h}>\n" for h in installed_headers()))

    def static_folder(self):
        """A copy of the library folder without the shared library, so that -lheddle means the static one."""
        if not os.path.exists(os.path.join(library_folder, "libheddle.a")):
            self.skipTest("this build has no static library")
        folder = os.path.join(self.work, "prefix")
        shutil.copytree(prefix, folder, symlinks=True)
        libraries = os.path.join(folder, os.path.relpath(library_folder, prefix))
        for name in os.listdir(libraries):
            if name.startswith("libheddle.so"):
                os.remove(os.path.join(libraries, name))
        return libraries

    def build_app(self, compiler, standard, cflags, libs):
        sources = [os.path.join(arguments.source, "tests/install", name) for name in ("app.cpp", "other.cpp")]
        program = os.path.join(self.work, f"app-{compiler}-{standard}")
        run(compiler, f"-std={standard}", *WARNINGS, "-I", self.work, *cflags, *sources, "-o", program, *libs)
        return program

    def check_app(self, program, libraries):
        output = run(program, env={"LD_LIBRARY_PATH": libraries})
        with open(os.path.join(arguments.source, "VERSION"), encoding="utf-8") as f:
            version = f.read().strip()
        self.assertIn(f"versions {version} {version}\n", output)
        self.assertIn("own 7\nsum 42\n", output)
        self.assertRegex(output, r"caught .*\(2,3\).*\(4\)")

    def test_a_program_with_own_names_links_the_shared_library(self):
        if not os.path.exists(os.path.join(library_folder, "libheddle.so")):
            self.skipTest("this build has no shared library")
        for compiler in compilers():
            for standard in ("c++20", COMPILERS[compiler]):
                with self.subTest(compiler=compiler, standard=standard):
                    libs = pkg_config("--libs")
                    self.assertNotIn("-ldnnl", libs)
                    self.check_app(self.build_app(compiler, standard, pkg_config("--cflags"), libs), library_folder)

    def test_a_program_links_the_static_library(self):
        folder = self.static_folder()
        for compiler in compilers():
            with self.subTest(compiler=compiler):
                program = self.build_app(compiler, "c++20", pkg_config("--static", "--cflags", folder=folder),
                                         pkg_config("--static", "--libs", folder=folder))
                self.assertNotIn("libheddle", run("readelf", "-d", program))
                self.check_app(program, "")

    def check_example(self, program, libraries):
        output = run(program, env={"LD_LIBRARY_PATH": libraries})
        self.assertRegex(output, r"accuracy 0\.9|accuracy 1")

    def test_the_example_builds_with_make_and_pkg_config(self):
        if not shutil.which("make"):
            self.skipTest("make is missing")
        for compiler in compilers():
            with self.subTest(compiler=compiler):
                folder = os.path.join(self.work, "embed-" + compiler)
                shutil.copytree(os.path.join(arguments.source, "examples/embed"), folder)
                run("make", f"CXX={compiler}", cwd=folder,
                    env={"PKG_CONFIG_PATH": os.path.join(library_folder, "pkgconfig"), "MAKEFLAGS": ""})
                self.check_example(os.path.join(folder, "embed"), library_folder)

    def test_the_example_of_data_parallel_training_builds_with_make_and_with_cmake(self):
        source = os.path.join(arguments.source, "examples/scratch_data_parallel")
        if shutil.which("make"):
            folder = os.path.join(self.work, "scratch-make")
            shutil.copytree(source, folder)
            run("make", "CXXFLAGS=-O1 -Wall -Wextra -Werror", cwd=folder,
                env={"PKG_CONFIG_PATH": os.path.join(library_folder, "pkgconfig"), "MAKEFLAGS": ""})
            output = run(os.path.join(folder, "scratch_data_parallel"), env={"LD_LIBRARY_PATH": library_folder})
            self.assertIn("the weights agree", output)
        if shutil.which("cmake"):
            folder = os.path.join(self.work, "scratch-cmake")
            run("cmake", "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Werror")
            run("cmake", "--build", folder)
            self.assertIn("the weights agree", run(os.path.join(folder, "scratch_data_parallel"), "--steps", "2"))

    def test_the_example_with_an_own_kernel_builds_with_make(self):
        """Without nvcc for the CPU; with it, where the build has the plugin, for a GPU, and runs on the CPU here."""
        if not shutil.which("make"):
            self.skipTest("make is missing")
        nvcc = shutil.which("nvcc") if build_option("cuda") == "enabled" else None
        for name in [""] + ([nvcc] if nvcc else []):
            with self.subTest(nvcc=name):
                folder = os.path.join(self.work, "own_kernel-" + ("nvcc" if name else "cpu"))
                shutil.copytree(os.path.join(arguments.source, "examples/own_kernel"), folder)
                run("make", f"NVCC={name}", "ARCH=sm_90", cwd=folder,
                    env={"PKG_CONFIG_PATH": os.path.join(library_folder, "pkgconfig"), "MAKEFLAGS": ""})
                output = run(os.path.join(folder, "own_kernel"), "cpu", env={"LD_LIBRARY_PATH": library_folder})
                self.assertRegex(output, r"accuracy 0\.9|accuracy 1")

    def test_the_example_builds_with_cmake(self):
        if not shutil.which("cmake"):
            self.skipTest("cmake is missing")
        for compiler in compilers():
            with self.subTest(compiler=compiler):
                folder = os.path.join(self.work, "cmake-" + compiler)
                run("cmake", "-S", os.path.join(arguments.source, "examples/embed"), "-B", folder,
                    f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Werror")
                run("cmake", "--build", folder)
                self.check_example(os.path.join(folder, "embed"), "")

    def test_cmake_finds_the_static_library_and_checks_versions(self):
        if not shutil.which("cmake"):
            self.skipTest("cmake is missing")
        self.static_folder()
        with open(os.path.join(self.work, "CMakeLists.txt"), "w", encoding="utf-8") as f:
            f.write("cmake_minimum_required(VERSION 3.16)\nproject(app CXX)\nfind_package(heddle ${WANTED} REQUIRED)\n"
                    f"add_executable(app {arguments.source}/tests/install/app.cpp "
                    f"{arguments.source}/tests/install/other.cpp)\n"
                    "target_include_directories(app PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})\n"
                    "target_link_libraries(app heddle::heddle_static)\n")
        folder = os.path.join(self.work, "out")
        run("cmake", "-S", self.work, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", "-DWANTED=0.1")
        run("cmake", "--build", folder)
        self.assertNotIn("libheddle", run("readelf", "-d", os.path.join(folder, "app")))
        self.check_app(os.path.join(folder, "app"), "")
        refused = run("cmake", "-S", self.work, "-B", folder + "2", f"-DCMAKE_PREFIX_PATH={prefix}", "-DWANTED=9.0",
                      check=False)
        self.assertIn('compatible with requested version "9.0"', " ".join(refused.split()))


def main():
    global arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    arguments, rest = parser.parse_known_args()
    if build_option("b_sanitize") not in ("none", "", []):
        print("skipped: a library with a sanitizer needs its flags in every program that links it")
        return 77
    for tool in ("pkg-config", "meson", "readelf", "nm"):
        if not shutil.which(tool):
            print(f"skipped: {tool} is missing")
            return 77
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    sys.exit(main())
