"""The graphs that trainings on the simulated CUDA really build, recorded in the cache of plans, are all put to the real
cuDNN: cudnn_recorded_test.py HEDDLE CUDNN_SUPPORT ANSWERS"""

import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

HEDDLE, SUPPORT, ANSWERS = sys.argv[1:4]


class Recorded(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def train(self, model, *options):
        """The graphs' keys that a short training leaves: full batches of 256, a last one of 112, and evaluation."""
        cache = os.path.join(self.folder, "cache")
        done = subprocess.run(
            [HEDDLE, "train", "--device", "cuda", "--dataset", "synthetic", "--model", model, "--epochs", "1",
             "--batch-size", "256", "--kernels", "vendor", "--no-graph", "--out", os.path.join(self.folder, "run"),
             *options], env={**os.environ, "XDG_CACHE_HOME": cache}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (plans,) = glob.glob(os.path.join(cache, "heddle", "*.plans"))
        return plans

    def ask(self, plans):
        done = subprocess.run([SUPPORT, ANSWERS, plans], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return int(re.search(r": (\d+) graphs on 3 GPUs", done.stdout)[1])

    def test_lenet(self):
        # Each convolution forward with bias and ReLU and its weight gradient; one has a data gradient.
        self.assertGreaterEqual(self.ask(self.train("lenet")), 5)

    def test_lenet_d2l_with_tf32(self):
        self.assertGreaterEqual(self.ask(self.train("lenet-d2l", "--precision", "tf32")), 5)

    def test_a_graph_that_cudnn_does_not_have_is_found(self):
        plans = self.train("lenet")
        with open(plans, encoding="utf-8") as f:
            lines = f.read().splitlines()
        # The kind of graph that no builder knows.
        broken = [line if len(line.split(" ")[0]) < 64 else "7f" + line[2:] for line in lines]
        with open(plans, "w", encoding="utf-8") as f:
            f.write("\n".join(broken) + "\n")
        done = subprocess.run([SUPPORT, os.path.join(self.folder, "answers"), plans], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
