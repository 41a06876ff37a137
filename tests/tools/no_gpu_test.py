#!/usr/bin/env python3
"""The program with the CUDA plugin and the real CUDA libraries on a machine that has no driver: it starts at once, trains
on the CPU as if there were no plugin, and says in one sentence why a GPU cannot be used. Skipped where a driver is.

    no_gpu_test.py PROGRAM LIBRARY PLUGIN GPU_TEST_PROGRAM BUILD_FOLDER
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from idx_files import write_dataset  # noqa: E402

PROGRAM, LIBRARY, PLUGIN, GPU_TEST, BUILD = map(os.path.realpath, sys.argv[1:6])
SECONDS_TO_START = 0.1


# What would lead to other libraries.
LEFT_OUT = ('HEDDLE_PLUGIN_PATH', 'HEDDLE_TEST_GPU', 'LD_LIBRARY_PATH')


def run(program, *arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return subprocess.run([program, *arguments], capture_output=True, text=True, env={**clean, **environment}, check=False)


def needed(file):
    output = subprocess.run(['readelf', '-dW', file], check=True, capture_output=True, text=True).stdout
    return re.findall(r'\(NEEDED\).*\[(.*)\]', output)


def metrics(folder):
    with open(os.path.join(folder, 'metrics.jsonl'), encoding='utf-8') as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        del line['seconds'], line['images_per_second']
    return lines


class NoGpu(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix='heddle-no-gpu-')
        self.addCleanup(shutil.rmtree, self.work)
        self.data = os.path.join(self.work, 'data')
        write_dataset(self.data, 256, 128)

    def run_training(self, program, name, *arguments):
        return run(program, 'train', '--dataset', 'idx', '--data-dir', self.data, '--epochs', '2', '--batch-size', '64',
                   '--threads', '1', '--out', os.path.join(self.work, name), *arguments)

    def train(self, program, name, *arguments):
        done = self.run_training(program, name, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.work, name, 'run.json'), encoding='utf-8') as file:
            return done, metrics(os.path.join(self.work, name)), json.load(file)

    def expect_a_quick_start_without_cuda(self, program):
        for flag in ('--help', '--version'):
            best = SECONDS_TO_START + 1
            for _ in range(30):
                begun = time.perf_counter()
                done = run(program, flag)
                best = min(best, time.perf_counter() - begun)
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                if best <= SECONDS_TO_START:
                    break
            self.assertLessEqual(best, SECONDS_TO_START, flag)
            loaded = run(program, flag, LD_DEBUG='files').stderr
            self.assertIn('libheddle.so', loaded)
            self.assertNotRegex(loaded, r'lib(cuda|cudart|cublas|cudnn|nccl|heddle_cuda)\b')

    def test_help_and_version_come_at_once_and_load_no_cuda(self):
        self.expect_a_quick_start_without_cuda(PROGRAM)

    def test_an_installed_copy_with_the_plugin_starts_at_once_and_trains_on_the_cpu(self):
        if shutil.which('meson') is None:
            self.skipTest('meson is missing')
        staged = os.path.join(self.work, 'staged')
        subprocess.run(['meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', staged], check=True,
                       capture_output=True)
        files = {os.path.basename(name): os.path.join(folder, name)
                 for folder, _, names in os.walk(staged) for name in names}
        program, plugin = files['heddle'], files[os.path.basename(PLUGIN)]
        self.expect_a_quick_start_without_cuda(program)
        # The plugin beside the installed library is found, and so are the CUDA libraries that it needs.
        doctor = run(program, 'doctor').stdout
        self.assertIn(plugin, doctor)
        self.assertIn('no NVIDIA driver is installed', doctor)
        done, _, run_file = self.train(program, 'installed')
        self.assertEqual(run_file['device']['name'], 'cpu')
        self.assertIn('no NVIDIA driver is installed, so the CPU is used', done.stdout)

    def test_neither_program_nor_library_needs_cuda_and_the_plugin_needs_no_driver(self):
        for file in (PROGRAM, LIBRARY):
            self.assertEqual([name for name in needed(file) if re.match(r'lib(cu|nccl|nv)', name)], [], file)
        names = needed(PLUGIN)
        self.assertTrue(any(name.startswith('libcudart.so.') for name in names), names)
        self.assertTrue(any(name.startswith('libcudnn.so.') for name in names), names)
        self.assertFalse(any(name.startswith('libcuda.so') for name in names), names)

    def test_the_cpu_trains_with_the_numbers_of_an_installation_without_the_plugin(self):
        installed = os.path.join(self.work, 'installed')
        for folder, file in (('bin', PROGRAM), ('lib', LIBRARY)):
            os.makedirs(os.path.join(installed, folder))
            shutil.copy(file, os.path.join(installed, folder))
        os.symlink(os.path.basename(LIBRARY), os.path.join(installed, 'lib', 'libheddle.so.0'))
        alone = os.path.join(installed, 'bin', 'alone')
        # Found by the variable, since the copy's own path names the build tree.
        with open(alone, 'w', encoding='utf-8') as file:
            file.write(f'#!/bin/sh\nLD_LIBRARY_PATH={installed}/lib exec {installed}/bin/{os.path.basename(PROGRAM)} "$@"\n')
        os.chmod(alone, 0o755)
        self.assertIn('not in this installation', run(alone, 'doctor').stdout)
        _, with_plugin, run_file = self.train(PROGRAM, 'with', '--device', 'cpu')
        _, without, other_run_file = self.train(alone, 'without', '--device', 'cpu')
        self.assertEqual(with_plugin, without)
        self.assertEqual(run_file['result']['weights_crc32'], other_run_file['result']['weights_crc32'])

    def test_without_a_flag_the_cpu_is_used_with_one_notice(self):
        done, _, run_file = self.train(PROGRAM, 'auto')
        self.assertEqual(run_file['device']['name'], 'cpu')
        notices = [line for line in (done.stdout + done.stderr).splitlines() if '--device auto' in line]
        self.assertEqual(len(notices), 1, done.stdout)
        self.assertRegex(notices[0], 'no NVIDIA driver is installed, so the CPU is used')

    def test_a_wish_for_a_gpu_is_refused_in_one_sentence(self):
        for device in ('cuda', 'cuda:0'):
            done = self.run_training(PROGRAM, 'run', '--device', device)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stdout, '')
            self.assertEqual(done.stderr.count('\n'), 1, done.stderr)
            self.assertIn('no NVIDIA driver is installed', done.stderr)
            self.assertFalse(os.path.exists(os.path.join(self.work, 'run')))

    def test_the_doctor_names_the_plugin_and_what_is_missing(self):
        done = run(PROGRAM, 'doctor')
        self.assertIn('libheddle_cuda.so', done.stdout)
        self.assertIn('no NVIDIA driver is installed', done.stdout)

    def test_programs_that_test_gpus_alone_report_that_they_were_skipped(self):
        done = run(GPU_TEST)
        self.assertEqual(done.returncode, 77)
        self.assertIn('skipped: no NVIDIA driver is installed', done.stdout)


def has_driver():
    # In a process of its own, without the simulated libraries that this one may be run with.
    return run(sys.executable, '-c', 'import ctypes; ctypes.CDLL("libcuda.so.1")').returncode == 0


def main():
    if has_driver():
        print('skipped: this machine has a driver')
        return 77
    unittest.main(argv=sys.argv[:1])


if __name__ == '__main__':
    sys.exit(main())
