#!/usr/bin/env python3
"""tools/rank_speed.py runs to its end, compares what it says it compares, and its exit code is its verdict. What it
measures on a machine that builds at the same time means nothing, and is not looked at. Exits with 77 (skipped) without Gloo.

    rank_speed_test.py SCRIPT PROGRAM HAS_GLOO
"""
import re
import subprocess
import sys
import unittest

SCRIPT, PROGRAM = sys.argv[1:3]
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

    def test_a_program_that_fails_is_no_verdict(self):
        result = run('--heddle', '/bin/false', '--rounds', '1', '--epochs', '2')
        self.assertEqual(result.returncode, 2)
        self.assertIn('exited with 1', result.stderr)


if __name__ == '__main__':
    if sys.argv[3] != 'true':
        print('Gloo is missing')
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
