#!/usr/bin/env python3
"""The example with an op of its own: it learns, on the CPU and on a GPU, and the recorded step does what the called one
does.

usage: own_kernel_test.py PROGRAM KIND [LIBRARY_FOLDER]

KIND is what CUDA the build has: disabled, enabled or sim.
"""
import os
import re
import subprocess
import sys
import unittest

PROGRAM, KIND = sys.argv[1:3]


def train(device):
    done = subprocess.run([PROGRAM, device], capture_output=True, text=True)
    losses = [float(x) for x in re.findall(r"^step +\d+  loss ([\d.]+)$", done.stdout, re.M)]
    return done, losses


class OwnKernel(unittest.TestCase):
    def check_learned(self, done, losses):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(losses), 5, done.stdout)
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertGreater(float(re.search(r"^accuracy ([\d.]+)$", done.stdout, re.M)[1]), 0.9)

    def test_it_learns_on_the_cpu(self):
        done, losses = train("cpu")
        self.check_learned(done, losses)
        self.assertIn("device cpu", done.stdout)
        self.assertNotIn("recorded", done.stdout)

    def test_on_a_gpu_the_recorded_step_has_the_own_kernels_and_gives_the_same_losses(self):
        if KIND == "disabled":
            self.skipTest("this build has no CUDA")
        done, losses = train("cuda")
        if KIND == "enabled" and "no GPU" in done.stderr:
            self.assertFalse(os.environ.get("HEDDLE_TEST_GPU"), done.stderr)
            self.skipTest(done.stderr.strip())
        self.check_learned(done, losses)
        if KIND == "sim":
            self.assertIn("Simulated CUDA", done.stdout)
        # Forward: 5 linear layers, 2 gates, the loss. Backward: weights of all, data of 3, an addition into the data of
        # one, 2 gates. One update. A library call of a real GPU may be several kernels.
        kernels = int(re.search(r"^recorded: (\d+) kernels a step$", done.stdout, re.M)[1])
        self.assertGreaterEqual(kernels, 19)
        for loss, expected in zip(losses, train("cpu")[1]):
            self.assertAlmostEqual(loss, expected, delta=0.02 + 0.02 * expected)

    def test_another_device_than_there_is_is_refused(self):
        if KIND != "disabled":
            self.skipTest("this build has CUDA")
        done, _ = train("cuda")
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: no GPU: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
