#!/usr/bin/env python3
"""heddle train under a real mpirun (Open MPI): two processes train what two threads train, a signal to mpirun saves the
run, and a killed rank ends the job. Exits with 77 (skipped) where Open MPI or Gloo is missing, or where mpirun starts
nothing.

    mpirun_test.py PROGRAM HAS_GLOO
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from idx_files import write_dataset  # noqa: E402
from program_runs import description_of, kill_processes, program_processes, read_text, wait_until  # noqa: E402

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


class Mpirun(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='heddle-mpirun-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(kill_processes, PROGRAM, self.folder)
        # An epoch takes a few milliseconds.
        self.data = os.path.join(self.folder, 'data')
        write_dataset(self.data, 97, 20)

    @staticmethod
    def end_launcher(process):
        if process.poll() is None:
            process.kill()
            process.wait()

    def arguments(self, run, *more):
        return [PROGRAM, 'train', '--dataset', 'idx', '--data-dir', self.data, '--batch-size', '32', '--threads', '1', '--lr', '0.05', '--momentum', '0.9',
                '--out', os.path.join(self.folder, run), *more]

    def description(self, run):
        return description_of(os.path.join(self.folder, run))

    def start(self, run, *flags):
        """Starts an endless training, and returns behind its first checkpoint."""
        output = os.path.join(self.folder, 'output')
        with open(output, 'wb') as file:
            process = subprocess.Popen(launcher() + list(flags) +
                                       self.arguments(run, '--epochs', '1000000', '--comm-timeout', '30'),
                                       stdout=file, stderr=subprocess.STDOUT)
        self.addCleanup(self.end_launcher, process)
        wait_until(lambda: process.poll() is not None or 'train loss' in read_text(output), 100)
        if process.poll() is not None or 'train loss' not in read_text(output):
            self.fail(f'no epoch was trained: {read_text(output)}')
        return process

    def wait_until_gone(self):
        wait_until(lambda: not program_processes(PROGRAM, self.folder), 45)
        self.assertEqual(program_processes(PROGRAM, self.folder), [])

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
        wait_until(lambda: not meeting_folders() - before, 20)
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

    def test_a_signal_to_mpirun_that_leaves_time_saves_all(self):
        # Open MPI waits that long, passes the signal on, waits once more, and kills what is left. All the time it reads
        # nothing of what its ranks print, which is more than a terminal or a pipe holds.
        process = self.start('run', '--mca', 'odls_base_sigkill_timeout', '8')
        process.send_signal(signal.SIGTERM)
        self.expect_end_and_checkpoint(process)
        result = self.description('run').get('result')
        self.assertIsNotNone(result, 'run.json has no result')
        self.assertFalse(result['finished'])
        epochs = read_text(os.path.join(self.folder, 'run', 'metrics.jsonl')).splitlines()
        self.assertEqual(result['epochs'], len(epochs))

    def test_a_killed_rank_ends_the_job(self):
        process = self.start('run')
        os.kill(program_processes(PROGRAM, self.folder)[-1], signal.SIGKILL)
        self.expect_end_and_checkpoint(process)


if __name__ == '__main__':
    if sys.argv[2] != 'true' or not open_mpi_works():
        print('Open MPI or Gloo is missing, or mpirun starts nothing')
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
