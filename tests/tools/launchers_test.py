#!/usr/bin/env python3
"""heddle train under other real launchers than Open MPI's: two processes train what two threads train, a killed rank
ends all of them, wrong flags end the job with their exit code. Exits with 77 (skipped) where the launcher or Gloo is
missing, or where it starts nothing (srun without a Slurm that runs).

    launchers_test.py PROGRAM HAS_GLOO mpich|torchrun|srun
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from idx_files import write_dataset  # noqa: E402
from program_runs import description_of, kill_processes, program_processes, read_text, wait_until  # noqa: E402

PROGRAM = os.path.realpath(sys.argv[1])
SKIPPED = 77
# Seconds that a rank waits for another one, and that everything may take beyond it.
PATIENCE, SLACK = 10, 50

# Stands for a folder of the test.
LOGS = 'LOGS'
# Where alternatives exist, the names that are MPICH's own. torchrun of PyTorch 1.13 fails on Python 3.11 unless it is told
# to redirect something. Any free port, since tests run beside each other.
TORCHRUN = ['torchrun', '--no_python', '--nproc_per_node', '2', '--log_dir', LOGS]
COMMANDS = {
    'mpich': [['mpiexec.hydra', '-n', '2'], ['mpiexec.mpich', '-n', '2']],
    'torchrun': [TORCHRUN + ['--standalone'],
                 TORCHRUN + ['--rdzv_backend', 'c10d', '--rdzv_endpoint', 'localhost:0', '--redirects', '1', '--tee', '1']],
    'srun': [['srun', '--immediate=10', '-N', '1', '-n', '2']],
}
# Ranks that torchrun starts would share one thread count.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(('OMPI_', 'PMI', 'SLURM_', 'MASTER_', 'TORCHELASTIC_'))
               and name not in ('RANK', 'WORLD_SIZE')}


def in_folder(command, folder):
    return [os.path.join(folder, 'logs') if argument == LOGS else argument for argument in command]


def working_command(launcher):
    """The command that starts two processes; None if none does."""
    for command in COMMANDS[launcher]:
        if shutil.which(command[0]) is None:
            continue
        try:
            with tempfile.TemporaryDirectory(prefix='heddle-launcher-') as folder:
                works = subprocess.run(in_folder(command, folder) + ['true'], capture_output=True, check=False,
                                       timeout=60, env=ENVIRONMENT)
        except subprocess.TimeoutExpired:
            continue
        if works.returncode == 0:
            return command
    return None


class Launcher(unittest.TestCase):
    found = []

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='heddle-launcher-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(kill_processes, PROGRAM, self.folder)
        self.command = in_folder(self.found, self.folder)
        self.data = os.path.join(self.folder, 'data')
        write_dataset(self.data, 97, 20)

    def arguments(self, run, *more):
        return [PROGRAM, 'train', '--dataset', 'idx', '--data-dir', self.data, '--batch-size', '32', '--threads', '1',
                '--lr', '0.05', '--momentum', '0.9', '--out', os.path.join(self.folder, run), *more]

    @staticmethod
    def end_launcher(process):
        if process.poll() is None:
            process.kill()
            process.wait()

    def test_two_processes_train_what_two_threads_train(self):
        subprocess.run(self.arguments('threads', '--epochs', '2', '--ranks', '2'), check=True, capture_output=True,
                       timeout=100, env=ENVIRONMENT)
        result = subprocess.run(self.command + self.arguments('processes', '--epochs', '2'), capture_output=True,
                                text=True, check=False, timeout=100, env=ENVIRONMENT)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn('2 in a process each', result.stdout)
        self.assertEqual(description_of(os.path.join(self.folder, 'processes'))['result']['weights_crc32'],
                         description_of(os.path.join(self.folder, 'threads'))['result']['weights_crc32'])

    def test_a_killed_rank_ends_all_within_the_time(self):
        output = os.path.join(self.folder, 'output')
        with open(output, 'wb') as file:
            process = subprocess.Popen(
                self.command + self.arguments('run', '--epochs', '1000000', '--comm-timeout', str(PATIENCE)),
                stdout=file, stderr=subprocess.STDOUT, env=ENVIRONMENT)
        self.addCleanup(self.end_launcher, process)
        wait_until(lambda: process.poll() is not None or 'train loss' in read_text(output), 100)
        ranks = program_processes(PROGRAM, self.folder)
        self.assertEqual(len(ranks), 2, read_text(output))
        os.kill(ranks[-1], signal.SIGKILL)
        try:
            process.wait(timeout=PATIENCE + SLACK)
        except subprocess.TimeoutExpired:
            self.fail(f'the launcher did not end: {read_text(output)}')
        self.assertNotEqual(process.returncode, 0)
        wait_until(lambda: not program_processes(PROGRAM, self.folder), 20)
        self.assertEqual(program_processes(PROGRAM, self.folder), [])
        check = subprocess.run([PROGRAM, 'eval', '--checkpoint', os.path.join(self.folder, 'run')],
                               capture_output=True, text=True, check=False, timeout=100, env=ENVIRONMENT)
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_wrong_flags_end_the_job(self):
        result = subprocess.run(self.command + self.arguments('wrong', '--epochs', '1', '--ranks', '3'),
                                capture_output=True, text=True, check=False, timeout=100, env=ENVIRONMENT)
        # torchrun says 1 whatever its processes say.
        self.assertEqual(result.returncode, 1 if self.command[0] == 'torchrun' else 2, result.stdout + result.stderr)
        self.assertIn('--ranks', result.stdout + result.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, 'wrong')))


if __name__ == '__main__':
    found = working_command(sys.argv[3]) if sys.argv[2] == 'true' else None
    if found is None:
        print(f'{sys.argv[3]} or Gloo is missing, or it starts nothing')
        sys.exit(SKIPPED)
    Launcher.found = found
    unittest.main(argv=sys.argv[:1])
