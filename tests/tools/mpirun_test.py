#!/usr/bin/env python3
"""heddle train under a real mpirun (Open MPI): two processes train what two threads train, a signal to mpirun saves the
run, and a killed rank ends the job. Exits with 77 (skipped) where Open MPI or Gloo is missing.

    mpirun_test.py PROGRAM HAS_GLOO
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.realpath(sys.argv[1])
SKIPPED = 77


def is_open_mpi():
    if shutil.which('mpirun') is None:
        return False
    version = subprocess.run(['mpirun', '--version'], capture_output=True, text=True, check=False)
    return 'Open MPI' in version.stdout


def launcher():
    flags = ['--oversubscribe', '-n', '2']
    if os.geteuid() == 0:
        flags.insert(0, '--allow-run-as-root')
    return ['mpirun'] + flags


def program_processes(folder):
    """Processes of the program that work on the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                words = file.read().decode(errors='replace').split('\0')
        except OSError:
            continue
        if words[0] == PROGRAM and any(folder in word for word in words):
            found.append(int(pid))
    return found


class Mpirun(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='heddle-mpirun-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def arguments(self, run, *more):
        return [PROGRAM, 'train', '--dataset', 'synthetic', '--threads', '1', '--lr', '0.05', '--momentum', '0.9',
                '--out', os.path.join(self.folder, run), *more]

    def description(self, run):
        with open(os.path.join(self.folder, run, 'run.json'), encoding='utf-8') as file:
            return json.load(file)

    def start(self, run):
        process = subprocess.Popen(launcher() + self.arguments(run, '--epochs', '100000', '--comm-timeout', '30'),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if 'train loss' in line:  # written behind the first checkpoint
                return process
        self.fail(process.stderr.read())

    def wait_until_gone(self):
        deadline = time.monotonic() + 20
        while program_processes(self.folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(program_processes(self.folder), [])

    def test_two_processes_train_what_two_threads_train(self):
        subprocess.run(self.arguments('threads', '--epochs', '1', '--ranks', '2'), check=True, capture_output=True)
        result = subprocess.run(launcher() + self.arguments('processes', '--epochs', '1'), capture_output=True,
                                text=True, check=False, timeout=100)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn('2 in a process each', result.stdout)
        self.assertEqual(self.description('processes')['result']['weights_crc32'],
                         self.description('threads')['result']['weights_crc32'])
        shared = [name for name in os.listdir('/dev/shm') if name.startswith(f'heddle-{os.geteuid()}-openmpi')] \
            if os.path.isdir('/dev/shm') else []
        self.assertEqual(shared, [])

    def test_a_signal_to_mpirun_saves_the_run(self):
        process = self.start('run')
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.wait_until_gone()
        run = os.path.join(self.folder, 'run')
        self.assertFalse(self.description('run')['result']['finished'])
        check = subprocess.run([PROGRAM, 'eval', '--checkpoint', run], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_a_killed_rank_ends_the_job(self):
        process = self.start('run')
        os.kill(program_processes(self.folder)[-1], signal.SIGKILL)
        process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.wait_until_gone()
        run = os.path.join(self.folder, 'run')
        check = subprocess.run([PROGRAM, 'eval', '--checkpoint', run], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stderr)


if __name__ == '__main__':
    if sys.argv[2] != 'true' or not is_open_mpi():
        print('Open MPI or Gloo is missing')
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
