#!/usr/bin/env python3
"""heddle train with two ranks that have a network of their own each, as two machines would: they find each other by
address, train what two ranks of one process train, and end when the connection goes.

    two_networks_test.py PROGRAM HAS_GLOO

The networks are namespaces that live in one of this test's own, and go with it. Exits with 77 (skipped) in a build
without Gloo, and where the right to make them or the program `ip` (Debian package: iproute2) is missing.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from idx_files import write_dataset  # noqa: E402
from program_runs import check, description_of, kill_processes, program_processes, rank_environment  # noqa: E402
from program_runs import read_text, wait_until  # noqa: E402

PROGRAM = os.path.realpath(sys.argv[1])
SKIPPED = 77
INSIDE = 'HEDDLE_TEST_OWN_NETWORK'
TIMEOUT = 6
DEADLINE = 6 * TIMEOUT + 60
ADDRESSES = ('192.0.2.1', '192.0.2.2')  # kept for documentation and tests, RFC 5737
STORE = f'tcp:{ADDRESSES[0]}:29500'


def ip(*words, check_it=True):
    done = subprocess.run(['ip', *words], capture_output=True, text=True, check=False)
    if check_it and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr}")
    return done.returncode


def make_networks():
    """net0 and net1, joined by a cable."""
    subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', '/run'], check=True, capture_output=True)
    for i in (0, 1):
        ip('netns', 'add', f'net{i}')
    ip('link', 'add', 'cable0', 'netns', 'net0', 'type', 'veth', 'peer', 'name', 'cable1', 'netns', 'net1')
    for i, address in enumerate(ADDRESSES):
        ip('-n', f'net{i}', 'link', 'set', 'lo', 'up')
        ip('-n', f'net{i}', 'address', 'add', address + '/24', 'dev', f'cable{i}')
        plug(i, 'up')


def plug(i, state):
    ip('-n', f'net{i}', 'link', 'set', f'cable{i}', state)


def enter_own_namespace():
    """Runs this test again in namespaces of its own. Returns only if that is not possible."""
    if shutil.which('unshare') is None or shutil.which('ip') is None:
        return
    for user in ([], ['--user', '--map-root-user']):
        command = ['unshare', *user, '--mount', '--net']
        if subprocess.run([*command, 'true'], capture_output=True, check=False).returncode == 0:
            environment = {**os.environ, INSIDE: '1'}
            os.execvpe('unshare', [*command, sys.executable, os.path.realpath(__file__), *sys.argv[1:]], environment)


class TwoNetworks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='heddle-networks-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(kill_processes, PROGRAM, self.folder)
        self.data = os.path.join(self.folder, 'data')
        self.run_folder = os.path.join(self.folder, 'run')
        write_dataset(self.data, 97, 20)
        for i in (0, 1):
            plug(i, 'up')

    def arguments(self, run, *more):
        return [PROGRAM, 'train', '--dataset', 'idx', '--data-dir', self.data, '--out', run, '--batch-size', '32',
                '--lr', '0.05', '--momentum', '0.9', '--threads', '1', '--comm-timeout', str(TIMEOUT), *more]

    def start(self, *more, store=STORE):
        self.ranks = []
        for i in (0, 1):
            with open(self.text_file(i), 'wb') as text:
                self.ranks.append(subprocess.Popen(
                    ['ip', 'netns', 'exec', f'net{i}', *self.arguments(self.run_folder, '--store', store, *more)],
                    stdout=text, stderr=subprocess.STDOUT, env=rank_environment(i, 2)))

    def text_file(self, i):
        return os.path.join(self.folder, f'text-{i}')

    def text(self, i):
        return read_text(self.text_file(i))

    def wait(self):
        """Exit codes of both."""
        begin = time.monotonic()
        for i, rank in enumerate(self.ranks):
            self.assertTrue(wait_until(lambda rank=rank: rank.poll() is not None,
                                       DEADLINE - (time.monotonic() - begin)), f'rank {i} hangs: {self.text(i)}')
        self.assertEqual(program_processes(PROGRAM, self.folder), [])
        return [rank.returncode for rank in self.ranks]

    def weights(self, run):
        return description_of(run)['result']['weights_crc32']

    def expect_weights_of_threads(self, epochs):
        threads = os.path.join(self.folder, 'threads')
        check(*self.arguments(threads, '--ranks', '2', '--epochs', str(epochs)))
        self.assertEqual(self.weights(self.run_folder), self.weights(threads))

    def test_they_train_what_two_ranks_of_one_process_train(self):
        # By files they learn each other's addresses from the files alone.
        for store in (STORE, 'file:' + os.path.join(self.folder, 'meet')):
            with self.subTest(store=store):
                shutil.rmtree(self.run_folder, ignore_errors=True)
                shutil.rmtree(os.path.join(self.folder, 'threads'), ignore_errors=True)
                self.start('--epochs', '3', store=store)
                self.assertEqual(self.wait(), [0, 0], self.text(0) + self.text(1))
                self.assertIn('2 in a process each', self.text(0))
                self.expect_weights_of_threads(3)

    def wait_for_epoch(self):
        self.assertTrue(wait_until(lambda: 'epoch 2/' in self.text(0) or self.ranks[0].poll() is not None, DEADLINE))
        self.assertIsNone(self.ranks[0].poll(), self.text(0) + self.text(1))

    def test_both_end_when_the_connection_goes(self):
        for end in (0, 1):
            with self.subTest(end=end):
                shutil.rmtree(self.run_folder, ignore_errors=True)
                plug(end, 'up')
                self.start('--epochs', '1000000')
                self.wait_for_epoch()
                plug(end, 'down')
                begin = time.monotonic()
                self.assertEqual(self.wait(), [1, 1], self.text(0) + self.text(1))
                self.assertLess(time.monotonic() - begin, 3 * TIMEOUT + 20)
                for i in (0, 1):
                    self.assertRegex(self.text(i), rf'rank {1 - i} of 2 (did not .* within {TIMEOUT} s|is gone)')
                check(PROGRAM, 'eval', '--checkpoint', self.run_folder)
                plug(end, 'up')
                done = len(read_text(os.path.join(self.run_folder, 'metrics.jsonl')).splitlines())
                check(PROGRAM, 'train', '--resume', self.run_folder, '--epochs', str(done + 1))

    def test_a_short_interruption_is_waited_out(self):
        self.start('--epochs', '400')
        self.wait_for_epoch()
        plug(1, 'down')
        time.sleep(1)
        self.assertNotIn('epoch 400/', self.text(0))
        plug(1, 'up')
        self.assertEqual(self.wait(), [0, 0], self.text(0) + self.text(1))
        self.expect_weights_of_threads(400)

    def test_without_a_connection_nobody_waits_for_ever(self):
        plug(1, 'down')
        self.start('--epochs', '1')
        self.assertEqual(self.wait(), [1, 1], self.text(0) + self.text(1))
        self.assertIn('rank 1 of 2 did not come', self.text(0))
        self.assertIn(f'rank 0 does not answer at {ADDRESSES[0]} port 29500', self.text(1))
        self.assertFalse(os.path.exists(self.run_folder))


if __name__ == '__main__':
    if sys.argv[2] != 'true':
        print('this build has no Gloo')
        sys.exit(SKIPPED)
    if INSIDE not in os.environ:
        enter_own_namespace()
        print('no right to make namespaces, or unshare (util-linux) or ip (iproute2) is missing')
        sys.exit(SKIPPED)
    del os.environ[INSIDE]
    try:
        make_networks()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        print(f'no networks can be made here: {error}')
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
