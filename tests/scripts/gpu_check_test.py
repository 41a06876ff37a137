#!/usr/bin/env python3
"""tools/gpu_check.sh and the numbers that it prints: floor and table from made-up measurements, the refusal on a machine
without a GPU, and the whole script on the simulated CUDA.

usage: gpu_check_test.py SOURCE BUILD KIND

KIND is what CUDA the build has; the whole script runs if it is sim.
"""
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, KIND = sys.argv[1:4]
SCRIPT = os.path.join(SOURCE, "tools", "gpu_check.sh")
sys.path.insert(0, os.path.join(SOURCE, "tools", "gpu_check"))

import accuracy  # noqa: E402
import compare  # noqa: E402
import floor  # noqa: E402
import summary  # noqa: E402
import table  # noqa: E402

# Anything that reads like a measured time or rate.
TIMES = re.compile(r"\b\d[\d.]* ?(us|ms|s|seconds|img/s|images/s)\b|us/step|s/epoch|TFLOP/s")


class Floor(unittest.TestCase):
    def test_parameters_and_operations_are_those_of_the_models(self):
        self.assertEqual(floor.parameters("lenet"), 44426)
        self.assertEqual(floor.parameters("lenet-d2l"), 129068)
        # conv1 576*150, conv2 64*2400, fc 256*120, 120*84, 84*10 multiply-adds an image; the first layer twice, others 3x.
        macs = 2 * 576 * 150 + 3 * (64 * 2400 + 256 * 120 + 120 * 84 + 84 * 10)
        self.assertEqual(floor.step_flops("lenet", 256), 2 * 256 * macs)

    def test_the_fused_plan_of_lenet_has_23_kernels_and_39_megabytes(self):
        plan = floor.fused_plan("lenet", 256)
        self.assertEqual(len(plan), 23)
        self.assertAlmostEqual(sum(k.nbytes for k in plan) / 1e6, 39.3, places=1)
        self.assertEqual(sum(k.flops for k in plan), floor.step_flops("lenet", 256))
        self.assertEqual(len(floor.fused_plan("lenet-d2l", 256)), 20)

    def test_a_kernel_takes_the_longest_of_arithmetic_memory_and_launch(self):
        plan = [floor.Kernel("a", 100, 1), floor.Kernel("b", 1, 30), floor.Kernel("c", 0, 0)]
        self.assertEqual(floor.floor_seconds(plan, floor.Limits(10, 20, 0.5)), 5 + 3 + 0.5)

    def test_tf32_runs_at_half_the_rate_of_bf16_and_what_is_unknown_has_no_limit(self):
        f32, bf16 = {"bytes_per_second": 2.0, "flops_per_second": 3.0}, {"flops_per_second": 16.0}
        self.assertEqual(floor.limits_for("fp32", f32, bf16), floor.Limits(2.0, 3.0))
        self.assertEqual(floor.limits_for("tf32", f32, bf16), floor.Limits(2.0, 8.0))
        self.assertIsNone(floor.limits_for("bf16 AMP", f32, bf16))
        self.assertIsNone(floor.limits_for("tf32", f32, {"flops_per_second": 0}))
        self.assertIsNone(floor.limits_for("fp32", {}, bf16))


def measured(engine, dtype, seconds, side="pytorch", model="lenet", kernels=None):
    return {"model": model, "dtype": dtype, "engine": engine, "side": side, "batch": 256, "steps": 10, "images": 2500,
            "epoch_seconds": seconds, "kernels_per_step": kernels}


class Table(unittest.TestCase):
    def test_median_and_quartiles(self):
        self.assertEqual(table.median_and_spread([5, 1, 4, 2, 3]), (3, 2 / 3))
        self.assertEqual(table.median_and_spread([7]), (7, 0))

    def test_a_row_has_step_epoch_images_rate_and_share(self):
        limits = floor.Limits(4e12, 60e12)
        row = table.make_row(measured("Heddle graph", "fp32", [0.003, 0.001, 0.002], "heddle", kernels=22), limits)
        self.assertAlmostEqual(row["step_us"], 200)
        self.assertAlmostEqual(row["epoch_seconds"], 0.002)
        self.assertAlmostEqual(row["images_per_second"], 1.25e6)
        self.assertAlmostEqual(row["tflops"], floor.step_flops("lenet", 256) / 200e-6 / 1e12)
        least = floor.floor_seconds(floor.fused_plan("lenet", 256), limits)
        self.assertAlmostEqual(row["share_of_floor"], least / 200e-6)
        self.assertIsNone(table.make_row(measured("x", "bf16 AMP", [1]), None)["share_of_floor"])

    def test_ratios_are_to_eager_of_the_same_dtype_and_to_the_fastest_of_the_model(self):
        rows = table.add_ratios([table.make_row(m, None) for m in (
            measured("Heddle graph", "fp32", [0.1], "heddle"), measured("Heddle graph", "tf32", [0.05], "heddle"),
            measured(table.EAGER, "fp32", [0.8]), measured(table.EAGER, "tf32", [0.6]), measured("AMP", "bf16 AMP", [0.2]),
            measured("AMP", "bf16 AMP", [0.01], model="lenet-d2l"))])
        self.assertAlmostEqual(rows[0]["x_eager"], 8)
        self.assertAlmostEqual(rows[1]["x_eager"], 12)
        self.assertAlmostEqual(rows[0]["x_best"], 2)
        self.assertAlmostEqual(rows[3]["x_eager"], 1)
        self.assertAlmostEqual(rows[4]["x_eager"], 4)
        self.assertIsNone(rows[5]["x_eager"])
        alone = table.add_ratios([table.make_row(measured("Heddle graph", "fp32", [0.1], "heddle"), None)])
        self.assertIsNone(alone[0]["x_best"])

    def test_the_table_has_a_cell_for_each_column_and_none_of_time_when_simulated(self):
        rows = table.add_ratios([table.make_row(measured("Heddle graph", "fp32", [0.002], "heddle", kernels=22), None)])
        lines = table.markdown(rows, False).splitlines()
        self.assertEqual([line.count("|") for line in lines], [13] * 3)
        self.assertEqual(lines[2], "| lenet | fp32 | Heddle graph | 200.0 | 0.0% | 0.0020 | 1250000 | 22 | "
                                   f"{rows[0]['tflops']:.2f} | - | - | - |")
        simulated = table.markdown(rows, True)
        self.assertIn("| lenet | fp32 | Heddle graph | 22 |", simulated)
        self.assertNotRegex(simulated, TIMES)
        self.assertEqual(simulated.splitlines()[0].count("(simulated)"), 4)


class Checks(unittest.TestCase):
    def test_accuracies_further_apart_than_allowed_fail(self):
        self.assertTrue(accuracy.compare([0.7, 0.804], [0.7, 0.8], 0.005)[1])
        self.assertFalse(accuracy.compare([0.7, 0.806], [0.7, 0.8], 0.005)[1])
        self.assertFalse(accuracy.compare([0.7], [0.7, 0.8], 0.005)[1])

    def test_too_many_kernels_and_copies_in_a_step_fail(self):
        def problems(kernels, other, simulated):
            m = {"model": "lenet", "dtype": "fp32", "engine": "Heddle graph", "side": "heddle", "batch": 256,
                 "kernels_per_step": kernels, "other_work_per_step": other}
            return compare.failed_checks([table.make_row(m, None)], [m], simulated)

        self.assertEqual(problems(23, 0, True), [])
        self.assertEqual(problems(24, 0, True), ["lenet fp32: 24 kernels in a step, at most 23"])
        self.assertEqual(problems(None, 0, True), ["lenet fp32: None kernels in a step, at most 23"])
        # A library call of a real GPU may be several kernels.
        self.assertEqual(problems(30, 0, False), [])
        self.assertEqual(problems(22, 1, False), ["lenet fp32: 1 copies or fills in a step"])

    def test_parts_of_several_runs_come_together_and_kinds_of_gpu_do_not_mix(self):
        with tempfile.TemporaryDirectory() as folder:
            def run(kind, *results):
                with contextlib.redirect_stdout(io.StringIO()):
                    sys.argv = ["summary.py", folder, kind, *results]
                    summary.main()
                return summary.read(os.path.join(folder, "gpu_check.json"))

            with open(os.path.join(folder, "table.json"), "w", encoding="utf-8") as f:
                json.dump({"rows": [1]}, f)
            run("real", "1=passed", "2=failed")
            report = run("real", "2=passed", "6=passed")
            self.assertEqual({n: p["passed"] for n, p in report["parts"].items()}, {"1": True, "2": True, "6": True})
            self.assertEqual(report["table"], {"rows": [1]})
            self.assertEqual(list(run("simulated", "3=passed")["parts"]), ["3"])


class WithFakes(unittest.TestCase):
    """A folder for reports, and programs that stand in for others."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="heddle-gpu-check-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.tools = os.path.join(self.folder, "tools")
        os.mkdir(self.tools)

    def fake(self, name, text, interpreter="/bin/sh"):
        path = os.path.join(self.tools, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"#!{interpreter}\n" + text)
        os.chmod(path, 0o755)
        return path


# Trains 10 steps an epoch, and benches nothing; recorded steps are twice as fast as others, TF32 as fp32.
FAKE_HEDDLE = '''
import json, sys
arguments = sys.argv[1:]
after = lambda flag: arguments[arguments.index(flag) + 1]
if arguments[0] == "bench":
    json.dump({"machine": {"device": "a made-up GPU"}, "limits": {"bytes_per_second": 4e12, "flops_per_second": 6e13}},
              open(after("--json"), "w"))
    sys.exit()
import os
recorded = "--no-graph" not in arguments
seconds = 0.01 * (1 if recorded else 2) * (0.5 if after("--precision") == "tf32" else 1)
os.mkdir(after("--out"))
step = {"launches": 22, "read_bytes": 30, "written_bytes": 10}
if recorded:
    step["recorded"] = {"kernels": 25, "copies": 0, "fills": 0, "others": 0}
json.dump({"device": {"simulated": False}, "data": {"files": [{"items": 2560}]}, "result": {"step": step}},
          open(after("--out") + "/run.json", "w"))
with open(after("--out") + "/metrics.jsonl", "w") as f:
    for epoch in range(int(after("--epochs"))):
        # The first epoch is slow and must not count.
        f.write(json.dumps({"step": 10 * (epoch + 1), "seconds": 9 if epoch == 0 else seconds}) + "\\n")
'''
# Answers as pytorch_side.py does; one mode fails.
FAKE_PYTORCH = '''
import json, sys
print(json.dumps({"version": "9.9", "device": "a made-up GPU", "images": 2560}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    fast = "AMP" in request["dtype"]
    answer = {"epoch_seconds": [0.02 if fast else 0.08] * request["epochs"], "kernels_per_step": 60.0, "loss": 1.0}
    if "compile" in request["engine"]:
        answer = {"error": "no compiler"}
    print(json.dumps(answer), flush=True)
'''


class Comparison(WithFakes):
    def run_compare(self, *arguments):
        path = os.path.join(self.folder, "table.json")
        done = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "tools/gpu_check/compare.py"), "--data-dir", "none", "--json", path,
             "--heddle", self.fake("heddle", FAKE_HEDDLE, sys.executable), "--model", "lenet", "--rounds", "2",
             "--epochs", "3", *arguments], text=True, capture_output=True)
        return done, summary.read(path)

    def test_both_sides_are_measured_in_rounds_and_set_side_by_side(self):
        done, report = self.run_compare("--python", self.fake("python", FAKE_PYTORCH, sys.executable))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((report["simulated"], report["rounds"]), (False, 2))
        rows = {(r["dtype"], r["engine"]): r for r in report["rows"]}
        self.assertEqual(len(rows), 7)
        graph = rows["fp32", "Heddle graph"]
        self.assertEqual(graph["epochs_timed"], 6)
        self.assertAlmostEqual(graph["step_us"], 1000)
        self.assertAlmostEqual(graph["x_eager"], 8)
        self.assertAlmostEqual(graph["x_best"], 2)
        self.assertAlmostEqual(rows["tf32", "Heddle graph"]["x_eager"], 16)
        self.assertGreater(graph["share_of_floor"], 0.02)
        # The stream runs what the recording holds.
        self.assertEqual(rows["fp32", "Heddle stream"]["kernels_per_step"], 25)
        self.assertEqual(rows["bf16 AMP", "PyTorch channels_last+AMP"]["kernels_per_step"], 60)
        self.assertEqual(sum("no compiler" in note for note in report["notes"]), 3)
        self.assertIn("| lenet | fp32 | Heddle graph | 1000.0 | 0.0% | 0.0100 | 256000 | 25 |", done.stdout)

    def test_without_pytorch_the_table_has_heddles_rows(self):
        done, report = self.run_compare()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(report["rows"]), 4)
        self.assertIn("PyTorch: not measured", done.stdout)
        self.assertTrue(all(r["x_best"] is None for r in report["rows"]))

    def test_a_simulated_gpu_is_not_taken_for_a_real_one(self):
        done, report = self.run_compare("--simulated")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the GPU that heddle trained on is real", done.stderr)
        self.assertIsNone(report)

    def test_pytorch_that_ends_is_a_note(self):
        done, report = self.run_compare("--python", self.fake("python", "exit 3\n"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("process ended", report["pytorch"])
        done, report = self.run_compare("--python", os.path.join(self.folder, "no_such_python"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("No such file", report["pytorch"])


class Script(WithFakes):
    def run_script(self, *arguments):
        environment = {**os.environ, "HEDDLE_BUILD_DIR": BUILD, "PATH": self.tools + ":" + os.environ["PATH"]}
        return subprocess.run([SCRIPT, "--out", os.path.join(self.folder, "out"), *arguments], text=True, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder)

    def test_without_a_driver_it_says_so_in_one_sentence(self):
        self.fake("nvidia-smi", "exit 9\n")
        for part in ((), ("--part", "6")):
            done = self.run_script(*part)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr, r"\Aerror: no usable NVIDIA driver on this machine [^\n]*\n\Z")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "out")))

    def test_wrong_usage_exits_with_2(self):
        for arguments in (("--part", "7"), ("--part",), ("--fast",)):
            done = self.run_script(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("usage: tools/gpu_check.sh", done.stderr)

    @unittest.skipUnless(KIND == "sim", "this build has no simulated CUDA")
    def test_on_the_simulated_cuda_all_parts_run_and_no_time_is_told(self):
        # Stands in for NVIDIA's: notes how it was called, and runs the program.
        self.fake("compute-sanitizer", f'echo "$*" >> {self.folder}/sanitizer\n'
                                       'while [ "$1" != --error-exitcode ]; do shift; done\nshift 2\nexec "$@"\n')
        done = self.run_script("--simulated", "--tests", "step")
        out = os.path.join(self.folder, "out")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(out, "gpu_check.json"), encoding="utf-8") as f:
            report = json.load(f)
        self.assertIs(report["simulated"], True)
        self.assertEqual({n: p["passed"] for n, p in report["parts"].items()}, {str(n): True for n in range(1, 7)})
        for line in done.stdout.splitlines():
            self.assertRegex(line, r"simulated|^\| |^\|-|^$", done.stdout)
        self.assertNotRegex(done.stdout, TIMES)
        self.assertNotIn("seconds", json.dumps(report))
        for name in os.listdir(out):
            if name.endswith((".txt", ".json")):
                with open(os.path.join(out, name), encoding="utf-8") as f:
                    self.assertNotRegex(f.read(), TIMES, name)
        # The table is the last thing.
        self.assertTrue(done.stdout.splitlines()[-1].startswith("| lenet-d2l | tf32 | Heddle graph | "), done.stdout)
        rows = report["table"]["rows"]
        self.assertEqual(len(rows), 8)
        self.assertTrue(all(0 < r["kernels_per_step"] <= 23 for r in rows if r["model"] == "lenet"), rows)
        self.assertTrue(all(m["passed"] and m["simulated"] for m in report["accuracy"]["models"]))
        self.assertTrue(all(k["right"] for r in report["kernels"]["results"] for k in r["kernels"]))
        with open(os.path.join(self.folder, "sanitizer"), encoding="utf-8") as f:
            tools = [line.split()[1] for line in f]
        self.assertEqual(tools, ["memcheck", "memcheck", "racecheck", "synccheck", "initcheck"])

    @unittest.skipUnless(KIND == "sim", "this build has no simulated CUDA")
    def test_a_part_that_fails_makes_the_exit_code(self):
        self.fake("compute-sanitizer", "echo a finding\nexit 1\n")
        done = self.run_script("--simulated", "--part", "3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("part 3 FAILED", done.stdout)
        self.assertIn("a finding", done.stdout)
        # Tests of which one does not find what it is to test.
        done = self.run_script("--simulated", "--part", "2", "--tests", "no_such_test")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no test ran", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
