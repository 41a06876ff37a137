#!/usr/bin/env python3
"""The list of GPUs that a build is for by default, with the nvcc that is here: Meson configures it, one unit of device
code is compiled for all of it, and the object holds machine code for each generation, and PTX of the lowest and of the
highest. Needs nvcc and the libraries of CUDA, no GPU; exit code 77 where they are missing.

    default_gpus_test.py SOURCE_ROOT
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fat_binary import Code, fat_binaries  # noqa: E402

ROOT = os.path.realpath(sys.argv.pop(1) if len(sys.argv) > 1 else '.')
UNIT = 'kernels/launch_probe_cu.o'
# The list in docs/gpu.md, of which a build takes what its nvcc knows.
DEFAULT = {75, 80, 90, 100, 120}


class DefaultGpus(unittest.TestCase):
    def test_one_unit_holds_code_for_each_generation_of_the_list(self):
        with tempfile.TemporaryDirectory(prefix='heddle-default-gpus-') as folder:
            done = subprocess.run(['meson', 'setup', folder, ROOT, '-Dcuda=enabled', '-Ddefault_library=shared',
                                   '-Dtests=disabled', '-Dtools=disabled', '-Dgloo=disabled'], capture_output=True,
                                  text=True, check=False)
            missing = re.search(r'ERROR: option cuda is enabled, but (.*)', done.stdout)
            if missing:
                self.skipTest(missing.group(1))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            listed = re.search(r'CUDA\s*: yes, for: ([\d, ]+) and PTX ([\d, ]+)', done.stdout)
            self.assertIsNotNone(listed, done.stdout)
            cubins, ptx = (tuple(sorted(map(int, text.split(',')))) for text in listed.groups())
            nvcc = re.search(r'nvcc\s*: \S+ \((.*)\)', done.stdout).group(1)
            known = subprocess.run([nvcc, '--list-gpu-arch'], check=True, capture_output=True, text=True).stdout
            self.assertEqual(set(cubins), DEFAULT & set(map(int, re.findall(r'compute_(\d+)$', known, re.M))))
            self.assertEqual(ptx, (min(cubins), max(cubins)))
            subprocess.run(['ninja', '-C', folder, UNIT], check=True, capture_output=True)
            with open(os.path.join(folder, UNIT), 'rb') as file:
                self.assertEqual(fat_binaries(file.read()), [Code(cubins, ptx)])


if __name__ == '__main__':
    if shutil.which('nvcc') is None and not os.path.exists('/usr/local/cuda/bin/nvcc') or shutil.which('meson') is None:
        print('skipped: no nvcc, or no meson')
        sys.exit(77)
    unittest.main()
