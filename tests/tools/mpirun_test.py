#!/usr/bin/env python3
"""heddle train under a real mpirun (Open MPI): two processes train what two threads train, a signal to mpirun saves the
run, and a killed rank ends the job. Exits with 77 (skipped) where Open MPI or Gloo is missing, or where mpirun starts
nothing.

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


def launcher(processes=2):
    flags = ['--oversubscribe', '-n', str(processes)]
    if os.geteuid() == 0:
        flags.insert(0, '--allow-run-as-root')
    return ['mpirun'] + flags


def open_mpi_works():
    if shutil.which('mpirun') is None:
        return False
    version = subprocess.run(['mpirun', '--version'], capture_output=True, text=True, check=False)
    if 'Open MPI' not in version.stdout:
        return False
    try:
        return subprocess.run(launcher(1) + ['true'], capture_output=True, check=False, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def meeting_folders():
    """Where the ranks of this user's jobs meet, or have met and left something."""
    if not os.path.isdir('/dev/shm'):
        return set()
    return {name for name in os.listdir('/dev/shm') if name.startswith(f'heddle-{os.geteuid()}-openmpi')}


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
        self.addCleanup(self.end_processes)

    def end_processes(self):
        for pid in program_processes(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    @staticmethod
    def end_launcher(process):
        if process.poll() is None:
            process.kill()
            process.wait()

    def arguments(self, run, *more):
        return [PROGRAM, 'train', '--dataset', 'synthetic', '--threads', '1', '--lr', '0.05', '--momentum', '0.9',
                '--out', os.path.join(self.folder, run), *more]

    def description(self, run):
        with open(os.path.join(self.folder, run, 'run.json'), encoding='utf-8') as file:
            return json.load(file)

    def start(self, run, *flags):
        """Starts an endless training, and returns behind its first checkpoint."""
        output = os.path.join(self.folder, 'output')
        with open(output, 'wb') as file:
            process = subprocess.Popen(launcher() + list(flags) +
                                       self.arguments(run, '--epochs', '100000', '--comm-timeout', '30'),
                                       stdout=file, stderr=subprocess.STDOUT)
        self.addCleanup(self.end_launcher, process)
        deadline = time.monotonic() + 100
        text = ''
        while process.poll() is None and time.monotonic() < deadline:
            with open(output, encoding='utf-8', errors='replace') as file:
                text = file.read()
            if 'train loss' in text:
                return process
            time.sleep(0.05)
        self.fail(f'no epoch was trained: {text}')

    def wait_until_gone(self):
        deadline = time.monotonic() + 45
        while program_processes(self.folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(program_processes(self.folder), [])

    def test_two_processes_train_what_two_threads_train(self):
        subprocess.run(self.arguments('threads', '--epochs', '1', '--ranks', '2'), check=True, capture_output=True)
        before = meeting_folders()
        result = subprocess.run(launcher() + self.arguments('processes', '--epochs', '1'), capture_output=True,
                                text=True, check=False, timeout=100)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn('2 in a process each', result.stdout)
        self.assertEqual(self.description('processes')['result']['weights_crc32'],
                         self.description('threads')['result']['weights_crc32'])
        # Another job of this user may meet at this moment.
        deadline = time.monotonic() + 20
        while meeting_folders() - before and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(meeting_folders() - before, set())

    def expect_end_and_checkpoint(self, process):
        process.wait(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.wait_until_gone()
        run = os.path.join(self.folder, 'run')
        check = subprocess.run([PROGRAM, 'eval', '--checkpoint', run], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_a_signal_to_mpirun_ends_the_ranks_and_a_checkpoint_loads(self):
        # Open MPI kills its ranks a second later, whether or not they have said all in run.json.
        process = self.start('run')
        process.send_signal(signal.SIGTERM)
        self.expect_end_and_checkpoint(process)

    def test_a_killed_rank_ends_the_job(self):
        process = self.start('run')
        os.kill(program_processes(self.folder)[-1], signal.SIGKILL)
        self.expect_end_and_checkpoint(process)


if __name__ == '__main__':
    if sys.argv[2] != 'true' or not open_mpi_works():
        print('Open MPI or Gloo is missing, or mpirun starts nothing')
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
