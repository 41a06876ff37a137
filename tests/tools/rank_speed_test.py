#!/usr/bin/env python3
"""tools/rank_speed.py runs to its end, compares what it says it compares, and its exit code is its verdict. What it
measures on a machine that builds at the same time means nothing, and is not looked at. Exits with 77 (skipped) without Gloo.

    rank_speed_test.py SCRIPT PROGRAM HAS_GLOO
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from program_runs import kill_processes, program_processes, wait_until  # noqa: E402

SCRIPT, PROGRAM = sys.argv[1], os.path.realpath(sys.argv[2])
SKIPPED = 77


def run(*flags):
    return subprocess.run([sys.executable, SCRIPT, *flags], capture_output=True, text=True, check=False, timeout=250)


class RankSpeed(unittest.TestCase):
    def test_the_exit_code_is_the_verdict_on_the_ratios_of_the_medians(self):
        result = run('--heddle', PROGRAM, '--rounds', '1', '--epochs', '2', '--skip-resnet')
        speeds = [float(text.replace(',', '')) for text in re.findall(r': ([\d,]+) images/s', result.stdout)]
        self.assertEqual(len(speeds), 3, result.stdout + result.stderr)
        ratios = [float(text) for text in re.findall(r': ([\d.]+), at least', result.stdout)]
        self.assertEqual(len(ratios), 2, result.stdout)
        self.assertAlmostEqual(ratios[0], speeds[1] / speeds[0], delta=0.01)
        self.assertAlmostEqual(ratios[1], speeds[2] / speeds[1], delta=0.01)
        self.assertEqual(result.returncode, 1 if 'MISSED' in result.stdout else 0)
        self.assertEqual(result.stdout.count('MISSED') + result.stdout.count('reached'), 2)

    def test_when_it_is_terminated_its_runs_and_their_folder_are_gone(self):
        with tempfile.TemporaryDirectory() as folder:
            self.addCleanup(kill_processes, PROGRAM, folder)
            script = subprocess.Popen([sys.executable, SCRIPT, '--heddle', PROGRAM, '--epochs', '100000'],
                                      stdout=subprocess.DEVNULL, env={**os.environ, 'TMPDIR': folder})
            self.addCleanup(script.kill)
            self.assertTrue(wait_until(lambda: program_processes(PROGRAM, folder), 60))
            script.terminate()
            self.assertEqual(script.wait(timeout=30), 128 + 15)
            self.assertEqual(program_processes(PROGRAM, folder), [])
            self.assertEqual(os.listdir(folder), [])

    def test_a_program_that_fails_is_no_verdict(self):
        result = run('--heddle', '/bin/false', '--rounds', '1', '--epochs', '2')
        self.assertEqual(result.returncode, 2)
        self.assertIn('exited with 1', result.stderr)


if __name__ == '__main__':
    if sys.argv[3] != 'true':
        print('Gloo is missing')
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
