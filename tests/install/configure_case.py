"""What the tests of configuring share: a machine whose PATH and pkg-config folder hold links to a few files only."""
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


class ConfigureCase(unittest.TestCase):
    """A machine of its own: what its PATH and its pkg-config folder link to, and a build folder."""

    source = None

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

    def setup_build(self, *options):
        """(exit code, output) of meson setup."""
        done = subprocess.run([shutil.which("meson"), "setup", os.path.join(self.work, "build"), self.source,
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
        # The colons of a section stand below each other.
        for line in lines:
            self.assertIn(line.replace(" :", ":"), summary.replace(" :", ":"))


def main():
    """Runs the tests of the calling program with the source folder from its command line; 77 means skipped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    known, rest = parser.parse_known_args()
    ConfigureCase.source = known.source
    if not shutil.which("meson") or not shutil.which("pkg-config"):
        print("skipped: meson or pkg-config is missing")
        return 77
    unittest.main(argv=[sys.argv[0], *rest])
