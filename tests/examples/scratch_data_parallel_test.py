#!/usr/bin/env python3
"""The example that trains data-parallel by hand: right, it has the weights of DataParallel; with each of its faults it
does what docs/seed-faults.md says, in numbers.

usage: scratch_data_parallel_test.py PROGRAM KIND PAGE

KIND is what CUDA the build has: disabled, enabled or sim. PAGE is docs/seed-faults.md.
"""
import re
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, KIND, PAGE = sys.argv[1:4]
NUMBER = r"([\d.]+(?:e[+-]\d+)?)"


def run(*flags):
    return subprocess.run([PROGRAM, *flags], capture_output=True, text=True, check=False)


def measure(*flags):
    """Exit code and what the program prints at its end."""
    done = run(*flags)
    found = {
        "loss": re.search(rf"loss of the last step +{NUMBER} by hand, {NUMBER} with", done.stdout),
        "replicas": re.search(rf"distance between the replicas +{NUMBER} by hand, {NUMBER} with", done.stdout),
        "step": re.search(rf"length of the first step +{NUMBER} of", done.stdout),
        "distance": re.search(rf"distance from DataParallel +{NUMBER}", done.stdout),
    }
    if not all(found.values()):
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode, {name: float(match[1]) for name, match in found.items()}, float(found["loss"][2])


def rows_of_page():
    """Fault -> the numbers of its row: distance between replicas, length of the first step, distance, loss."""
    rows = {}
    with open(PAGE, encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) == 5 and re.fullmatch(r"`[a-z][a-z-]*`", cells[0]):
                rows[cells[0].strip("`")] = dict(zip(("replicas", "step", "distance", "loss"), map(float, cells[1:])))
    return rows


class ScratchDataParallel(unittest.TestCase):
    def test_by_hand_gives_the_weights_of_data_parallel(self):
        # 97 images on 3 devices: pieces of different size; 2 on 3: one device has none.
        for flags in ([], ["--devices", "2"], ["--devices", "3", "--batch-size", "97"],
                      ["--devices", "3", "--batch-size", "2"], ["--devices", "1"]):
            with self.subTest(flags=flags):
                code, found, loss = measure(*flags)
                self.assertEqual(code, 0)
                self.assertLess(found["distance"], 1e-5)
                self.assertLess(found["replicas"], 1e-12)
                self.assertAlmostEqual(found["step"], 1.0, places=3)
                self.assertAlmostEqual(found["loss"], loss, delta=1e-3)

    def test_on_a_gpu(self):
        if KIND != "sim":
            self.skipTest("for the simulated GPU")
        code, found, _ = measure("--device", "cuda", "--devices", "2", "--steps", "3", "--batch-size", "6")
        self.assertEqual(code, 0)
        self.assertLess(found["distance"], 1e-5)

    def test_faults_do_what_the_page_says(self):
        rows = rows_of_page()
        self.assertEqual(set(rows), {"assign", "copy", "first-only", "mean-twice"})
        for fault, wanted in rows.items():
            with self.subTest(fault=fault):
                code, found, right_loss = measure("--fault", fault)
                self.assertEqual(code, 1)
                for name, value in wanted.items():
                    self.assertAlmostEqual(found[name], value, delta=0.05 * value + 1e-12, msg=name)
                # Nothing crashes, and the loss falls: that is why they stay unseen.
                self.assertGreater(found["distance"], 1e-3)
                self.assertLess(found["loss"], 2.31)
                self.assertLess(right_loss, 2.31)

    def test_the_mean_divided_once_more_makes_steps_shorter_by_the_images_of_a_device(self):
        for devices, batch in ((4, 64), (2, 64), (2, 32)):
            _, found, _ = measure("--fault", "mean-twice", "--devices", str(devices), "--batch-size", str(batch),
                                  "--steps", "1")
            self.assertAlmostEqual(found["step"] * batch / devices, 1.0, delta=1e-2)

    def test_a_shortcut_without_convolution_does_not_fit(self):
        done = run("--fault", "shortcut")
        self.assertEqual(done.returncode, 1)
        for part in ("(1,28,28,128), 100352 values", "(1,56,56,64), 200704 values",
                     "a 1x1 convolution, stride 2  (1,28,28,128)"):
            self.assertIn(part, done.stdout)
        # The library says both sides.
        self.assertRegex(done.stdout, r"without the convolution: .*\(1,28,28,128\).*\(1,56,56,64\)")

    def test_it_reads_fashion_mnist_files(self):
        with tempfile.TemporaryDirectory() as folder:
            n = 40
            with open(f"{folder}/train-images-idx3-ubyte", "wb") as file:
                file.write(struct.pack(">4I", 2051, n, 28, 28) + bytes(i * 7 % 256 for i in range(n * 784)))
            with open(f"{folder}/train-labels-idx1-ubyte", "wb") as file:
                file.write(struct.pack(">2I", 2049, n) + bytes(i % 10 for i in range(n)))
            code, _, _ = measure("--data-dir", folder, "--steps", "2", "--batch-size", "20")
            self.assertEqual(code, 0)
            done = run("--data-dir", folder, "--steps", "3", "--batch-size", "20")
            self.assertEqual(done.returncode, 1)
            self.assertIn("has fewer than 60 items", done.stderr)

    def test_wrong_flags_are_refused(self):
        for flags in (["--devices", "0"], ["--devices", "2x"], ["--fault", "none-such"], ["--steps"], ["--what", "1"]):
            with self.subTest(flags=flags):
                done = run(*flags)
                self.assertEqual(done.returncode, 2)
                self.assertIn("wrong flag: " + flags[0], done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
