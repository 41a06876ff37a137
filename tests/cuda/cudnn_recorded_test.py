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
TINY_DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/gpu_check/tiny_data.py")


class Recorded(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def train(self, model, *options):
        """The file of plans that a step with 256 images and an evaluation leave."""
        cache, data = os.path.join(self.folder, "cache"), os.path.join(self.folder, "data")
        subprocess.run([sys.executable, TINY_DATA, data, "256", "256"], check=True)
        done = subprocess.run(
            [HEDDLE, "train", "--device", "cuda", "--dataset", "idx", "--data-dir", data, "--model", model, "--epochs",
             "1", "--batch-size", "256", "--kernels", "vendor", "--out", os.path.join(self.folder, "run"),
             *options], env={**os.environ, "XDG_CACHE_HOME": cache}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (plans,) = glob.glob(os.path.join(cache, "heddle", "*.plans"))
        return plans

    def ask(self, plans):
        done = subprocess.run([SUPPORT, ANSWERS, plans], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return int(re.search(r": (\d+) graphs on 3 GPUs", done.stdout)[1])

    def break_kinds(self, plans):
        """Gives each graph in the file a kind that no builder knows."""
        with open(plans, encoding="utf-8") as f:
            lines = [line if len(line.split(" ")[0]) < 64 else "7f" + line[2:] for line in f.read().splitlines()]
        with open(plans, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")

    def test_lenet(self):
        # Each convolution forward with bias and ReLU and its weight gradient; one has a data gradient.
        plans = self.train("lenet")
        self.assertGreaterEqual(self.ask(plans), 5)
        self.break_kinds(plans)
        done = subprocess.run([SUPPORT, os.path.join(self.folder, "answers"), plans], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)

    def test_lenet_d2l_with_tf32(self):
        self.assertGreaterEqual(self.ask(self.train("lenet-d2l", "--precision", "tf32")), 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
