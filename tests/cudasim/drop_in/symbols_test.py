#!/usr/bin/env python3
"""Whether the simulated CUDA can stand in for the real libraries under a program that was linked with those: it has the
names of their files, and every function of theirs that the program imports, under the version that it asks for.

    symbols_test.py PLUGIN DROP_IN_FOLDER TOOLKIT_LIBRARIES
"""
import os
import re
import subprocess
import sys
import unittest

PLUGIN, FOLDER, TOOLKIT = sys.argv[1:4]
LIBRARY = re.compile(r'lib(cuda|cudart|cublas|cublasLt|cudnn|nccl)\.so')


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def real_library(name):
    """The file of a real library: in the toolkit, or, as cuDNN may, where the compiler looks."""
    path = os.path.join(TOOLKIT, name)
    return path if os.path.exists(path) else output('c++', '-print-file-name=' + name).strip()


def needed(file):
    return re.findall(r'\(NEEDED\).*\[(.*)\]', output('readelf', '-dW', file))


def soname(file):
    return re.findall(r'\(SONAME\).*\[(.*)\]', output('readelf', '-dW', file))


def symbols(file, *options):
    """[name, version] of dynamic symbols; the version is '' if there is none."""
    for line in output('nm', '-D', '--with-symbol-versions', *options, file).splitlines():
        name, _, version = line.split()[-1].replace('@@', '@').partition('@')
        yield name, version


def is_cuda(name):
    return re.match(r'(__)?cu|nccl', name) is not None


class Symbols(unittest.TestCase):
    def setUp(self):
        self.libraries = [name for name in needed(PLUGIN) if LIBRARY.match(name)]
        self.imported = {symbol for symbol in symbols(PLUGIN, '--undefined-only') if is_cuda(symbol[0])}

    def test_the_plugin_is_linked_with_the_real_libraries(self):
        self.assertGreaterEqual(len(self.libraries), 3, needed(PLUGIN))
        self.assertIn('__cudaRegisterFatBinary', {name for name, _ in self.imported})
        for name in self.libraries:
            self.assertEqual(soname(real_library(name)), [name])

    def test_each_library_that_the_plugin_asks_for_is_there(self):
        files = {os.path.realpath(os.path.join(FOLDER, name)) for name in self.libraries}
        self.assertEqual(len(files), 1, 'one file stands for all of them')
        self.assertTrue(os.path.isfile(files.pop()))

    def test_each_function_that_the_plugin_imports_is_exported_under_its_version(self):
        exported = set(symbols(os.path.join(FOLDER, self.libraries[0]), '--defined-only'))
        names = {name for name, _ in exported}
        missing = sorted(name + '@' + version for name, version in self.imported
                         if (name, version) not in exported and not (version == '' and name in names))
        self.assertEqual(missing, [])

    def test_the_real_libraries_export_under_the_same_versions(self):
        ours = {symbol for symbol in symbols(os.path.join(FOLDER, self.libraries[0]), '--defined-only')
                if is_cuda(symbol[0]) and not symbol[0].startswith('nccl')}
        real = set()
        for name in os.listdir(FOLDER):
            if LIBRARY.match(name) and os.path.exists(real_library(name)):
                real.update(symbols(real_library(name), '--defined-only'))
        self.assertEqual(sorted(ours - real), [])

    def test_no_host_code_calls_a_function_that_is_compiled_for_gpus_alone(self):
        # In host code nvcc makes of such a function, without a word, one that ends the program.
        self.assertNotIn('exit', {name for name, _ in symbols(PLUGIN, '--undefined-only')})


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
