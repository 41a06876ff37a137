#!/usr/bin/env python3
"""A GPU of a generation for which the plugin holds no code, or only code that the driver has to translate: the program
notices it when the device is chosen; so does a driver that offers no GPU at all. Runs the plugin that nvcc compiled on simulated GPUs of other generations.

    other_gpu_test.py PROGRAM BUILT_FOR

BUILT_FOR is the plugin's list, like "90 and PTX 90".
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
from idx_files import write_dataset  # noqa: E402

PROGRAM = os.path.realpath(sys.argv[1])
BUILT_FOR = sys.argv[2]
CAPABILITIES = [int(number) for number in re.findall(r'\d+', BUILT_FOR)]
OLDER = 70
NEWER = 130


def capability_text(capability):
    return f'{capability // 10}.{capability % 10}'


class OtherGpu(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix='heddle-other-gpu-')
        self.addCleanup(shutil.rmtree, self.work)
        self.data = os.path.join(self.work, 'data')
        write_dataset(self.data, 64, 32)

    def train(self, capability, device, **environment):
        return subprocess.run([PROGRAM, 'train', '--dataset', 'idx', '--data-dir', self.data, '--epochs', '1',
                               '--batch-size', '32', '--threads', '1', '--device', device, '--out',
                               os.path.join(self.work, 'run')], capture_output=True, text=True, check=False,
                              env={**os.environ, 'CUDASIM_CAPABILITY': str(capability), **environment})

    def test_a_driver_without_a_gpu_is_no_gpu(self):
        for environment, reason in (({}, 'the driver finds no GPU'),
                                    ({'CUDA_VISIBLE_DEVICES': '7'}, "no GPU with CUDA_VISIBLE_DEVICES='7'")):
            with self.subTest(reason=reason):
                done = self.train(CAPABILITIES[0], 'cuda', CUDASIM_DEVICES='0', **environment)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertEqual((done.stdout, done.stderr.count('\n')), ('', 1), done.stderr)
                self.assertIn(reason, done.stderr)
                done = self.train(CAPABILITIES[0], 'auto', CUDASIM_DEVICES='0', **environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                notices = [line for line in done.stdout.splitlines() if '--device auto' in line]
                self.assertEqual(len(notices), 1, done.stdout)
                self.assertIn(reason + ', so the CPU is used', notices[0])
                shutil.rmtree(os.path.join(self.work, 'run'))

    def test_an_older_gpu_is_refused_with_its_capability_and_the_built_ones(self):
        self.assertLess(OLDER, min(CAPABILITIES))
        done = self.train(OLDER, 'cuda')
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stdout, '')
        self.assertEqual(done.stderr.count('\n'), 1, done.stderr)
        self.assertIn('compute capability ' + capability_text(OLDER), done.stderr)
        self.assertIn('built for ' + BUILT_FOR, done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.work, 'run')))

    def test_a_gpu_between_the_built_ones_needs_code_that_is_not_newer(self):
        between = min(CAPABILITIES) - 1
        done = self.train(between, 'cuda')
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn('compute capability ' + capability_text(between), done.stderr)

    def test_the_doctor_says_so_and_works(self):
        done = subprocess.run([PROGRAM, 'doctor'], capture_output=True, text=True, check=False,
                              env={**os.environ, 'CUDASIM_CAPABILITY': str(OLDER)})
        self.assertIn('compute capability ' + capability_text(OLDER), done.stdout)
        self.assertIn(BUILT_FOR, done.stdout)

    def test_built_and_newer_gpus_train(self):
        for capability in (CAPABILITIES[0], NEWER):
            with self.subTest(capability=capability):
                done = self.train(capability, 'cuda')
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                shutil.rmtree(os.path.join(self.work, 'run'))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
