#!/usr/bin/env python3
"""Builds a program that has Heddle as a Meson subproject: it links, runs, and installs only what is its own.

usage: subproject_test.py --source DIR --compiler "ccache c++"
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

BUILD = """project('host', 'cpp', version: '7.1', default_options: ['cpp_std=c++20', 'warning_level=3', 'werror=true'])
heddle = dependency('heddle', fallback: ['heddle', 'heddle_dep'], default_options: ['default_library=shared'])
app = executable('app', 'app.cpp', dependencies: heddle, install: true)
test('app', app)
"""
PROGRAM = """#include <heddle/core/version.h>
#include <heddle/heddle.h>
#include <heddle/nccl_comm/data_parallel.h>
#include <heddle/ops/ops.h>
#include <cstdio>
int main() {
  const heddle::Tensor x = heddle::Tensor::full({4}, 0.25);
  std::printf("%s %.2f\\n", heddle::version(), heddle::ops::sum(x).data().item());
}
"""


def run(*command, **options):
    done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited {done.returncode}:\n{done.stdout}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--compiler", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="heddle-subproject-") as work:
        os.mkdir(os.path.join(work, "subprojects"))
        os.symlink(arguments.source, os.path.join(work, "subprojects", "heddle"))
        for name, text in (("meson.build", BUILD), ("app.cpp", PROGRAM)):
            with open(os.path.join(work, name), "w", encoding="utf-8") as f:
                f.write(text)
        build = os.path.join(work, "build")
        # The flags of Heddle's own default build, so that a compiler cache helps.
        summary = run("meson", "setup", build, work, "-Dbuildtype=plain", "-Doptimization=0",
                      env={**os.environ, "CXX": arguments.compiler})
        words = " ".join(summary.split()).replace(" :", ":")
        if "program heddle: no" not in words or "tests: no" not in words:
            raise SystemExit(f"a subproject should make the library only:\n{summary}")
        run("ninja", "-C", build, "app")
        output = run(os.path.join(build, "app"))
        with open(os.path.join(arguments.source, "VERSION"), encoding="utf-8") as f:
            if output != f"{f.read().strip()} 1.00\n":
                raise SystemExit(f"the program printed {output}")
        run("meson", "install", "-C", build, "--no-rebuild", "--destdir", os.path.join(work, "out"))
        installed = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(work, "out"))
                     for name in names]
        if [os.path.basename(path) for path in installed] != ["app"]:
            raise SystemExit(f"installed: {installed}; expected the host's program only")
    print("a program with Heddle as a subproject builds, runs and installs")


if __name__ == "__main__":
    if not shutil.which("meson") or not shutil.which("ninja"):
        print("skipped: meson or ninja is missing")
        sys.exit(77)
    main()
