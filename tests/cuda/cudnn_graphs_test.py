"""The graphs that the models really build, recorded on the simulated CUDA, are all put to the real cuDNN:
cudnn_graphs_test.py RECORD_GRAPHS CUDNN_SUPPORT ANSWERS"""

import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

RECORD, SUPPORT, ANSWERS = sys.argv[1:4]
KINDS = ("conv_forward", "conv_backward_data", "conv_backward_weight", "norm_forward", "norm_inference", "norm_backward",
         "max_pool_forward", "max_pool_backward")


class Graphs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def record(self, model):
        """The file of plans of a model's passes."""
        cache = os.path.join(self.folder, model)
        done = subprocess.run([RECORD, model], env={**os.environ, "XDG_CACHE_HOME": cache}, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (plans,) = glob.glob(os.path.join(cache, "heddle", "*.plans"))
        return plans

    def ask(self, answers, *plans):
        return subprocess.run([SUPPORT, answers, *plans], capture_output=True, text=True, check=False)

    def kinds(self, plans):
        """How many graphs of each kind a file holds."""
        with open(plans, encoding="utf-8") as f:
            keys = [line.split(" ")[0] for line in f.read().splitlines()[2:-1]]
        counts = {}
        for key in keys:
            name = KINDS[int(key[:2], 16)]
            counts[name] = counts.get(name, 0) + 1
        return counts

    def break_kinds(self, plans):
        """Gives each graph in the file a kind that no builder knows."""
        with open(plans, encoding="utf-8") as f:
            lines = [line if len(line.split(" ")[0]) < 64 else "7f" + line[2:] for line in f.read().splitlines()]
        with open(plans, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")

    def test_all_models(self):
        plans = {model: self.record(model) for model in ("lenet", "lenet-d2l", "resnet18", "resnet18-cifar")}
        # Two convolutions: with ReLU and without a gradient each way, the second one's data gradient, gradients of
        # weights that are stored and added.
        for model in ("lenet", "lenet-d2l"):
            kinds = self.kinds(plans[model])
            self.assertEqual(kinds["conv_forward"], 2)
            self.assertEqual(kinds["conv_backward_data"], 1)
            self.assertEqual(kinds["conv_backward_weight"], 4)
        # One stem; a stage without a change of shape has one convolution, the others have the one with stride, the
        # shortcut's and the one behind: 11 shapes.
        for model in ("resnet18", "resnet18-cifar"):
            kinds = self.kinds(plans[model])
            self.assertEqual(kinds["conv_forward"], 11)
            self.assertEqual(kinds["conv_backward_weight"], 22)
            # Forked inputs, whose gradients are added, are those of all but the stem.
            self.assertGreaterEqual(kinds["conv_backward_data"], 10)
            self.assertGreaterEqual(kinds["norm_forward"], 8)
            self.assertGreaterEqual(kinds["norm_backward"], 8)
            self.assertGreaterEqual(kinds["norm_inference"], 8)
        done = self.ask(ANSWERS, *plans.values())
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreaterEqual(int(re.search(r": (\d+) graphs on 3 GPUs", done.stdout)[1]), 200)

        self.break_kinds(plans["lenet"])
        done = self.ask(os.path.join(self.folder, "answers"), plans["lenet"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
