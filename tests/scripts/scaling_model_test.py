#!/usr/bin/env python3
"""tools/scaling_model.py: its formulas against values worked out by hand, and its input and output."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.dont_write_bytecode = True
import scaling_model as model  # noqa: E402

SCRIPT = model.__file__
EXAMPLE = os.path.join(ROOT, "docs", "scaling-example.json")
LINK = model.Link(1e-6, 1e9, "test")
SLOW = model.Link(1e-5, 1e8, "test")


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = model.main(list(arguments))
    return code, out.getvalue(), err.getvalue()


class Formulas(unittest.TestCase):
    def test_ring(self):
        # 6 messages of 1 us and 1 MB each at 1 GB/s.
        self.assertAlmostEqual(model.ring_seconds(4, 4e6, LINK), 6e-6 + 6e-3)
        self.assertEqual(model.ring_seconds(1, 4e6, LINK), 0)
        # The bytes of a large ring tend to twice the bytes, its latency grows with it.
        self.assertAlmostEqual(model.ring_seconds(1024, 0, LINK), 2046e-6)

    def test_tree(self):
        self.assertAlmostEqual(model.tree_seconds(8, 4e6, LINK), 6e-6 + 8e-3)
        self.assertAlmostEqual(model.tree_seconds(5, 0, LINK), 6e-6)
        self.assertEqual(model.tree_seconds(1, 4e6, LINK), 0)
        self.assertLess(model.tree_seconds(1024, 1e3, LINK), model.ring_seconds(1024, 1e3, LINK))

    def test_nodes(self):
        inside = model.ring_seconds(4, 8e6, LINK)
        self.assertAlmostEqual(model.all_reduce_seconds(4, 8e6, "ring", LINK, SLOW, 4), inside)
        # 3 nodes: a quarter of the bytes of each GPU over the network.
        self.assertAlmostEqual(model.all_reduce_seconds(12, 8e6, "ring", LINK, SLOW, 4),
                               inside + 4 * (1e-5 + 2e6 / 3 / 1e8))
        with self.assertRaises(model.InputError):
            model.all_reduce_seconds(6, 8e6, "ring", LINK, SLOW, 4)

    def test_overlap(self):
        self.assertAlmostEqual(model.exposed_seconds(10, 1, 4), 6)
        self.assertAlmostEqual(model.exposed_seconds(10, 1, 40), 1)
        self.assertAlmostEqual(model.exposed_seconds(10, 10, 40), 10)

    def test_step(self):
        cluster = model.Cluster(LINK, LINK, 1024)
        step = model.Step(0.03, 100, 1e6, 1e5, "test")
        one = model.predict(step, cluster, 1, "ring")
        self.assertAlmostEqual(one["step_seconds"], 0.03)
        self.assertAlmostEqual(one["efficiency"], 1)
        # Two ranks: 2 us and 1 ms, of which the last bucket shows: 2 us and 0.1 ms.
        weak = model.predict(step, cluster, 2, "ring")
        self.assertAlmostEqual(weak["all_reduce_seconds"], 1.002e-3)
        self.assertAlmostEqual(weak["exposed_seconds"], 1.02e-4)
        self.assertAlmostEqual(weak["hidden_seconds"] + weak["exposed_seconds"], weak["all_reduce_seconds"])
        self.assertAlmostEqual(weak["images_per_second"], 200 / 0.030102)
        self.assertAlmostEqual(weak["efficiency"], 0.03 / 0.030102)
        strong = model.predict(step, cluster, 2, "ring", strong=True)
        self.assertAlmostEqual(strong["step_seconds"], 0.015102)
        self.assertAlmostEqual(strong["efficiency"], 0.03 / 2 / 0.015102)
        # Without a backward pass to hide behind everything shows.
        self.assertAlmostEqual(model.predict(step, cluster, 2, "ring", 0.0)["exposed_seconds"], 1.002e-3)

    def test_fit(self):
        points = [(n, s, model.ring_seconds(n, s, SLOW)) for n in (2, 4) for s in (1e3, 1e5, 1e7)]
        fitted = model.fit_link(points)
        self.assertAlmostEqual(fitted.latency / SLOW.latency, 1, 6)
        self.assertAlmostEqual(fitted.bandwidth / SLOW.bandwidth, 1, 6)
        with self.assertRaises(model.InputError):
            model.fit_link(points[:1])

    def test_every_link_has_a_source(self):
        for name, link in model.LINKS.items():
            self.assertTrue(link.source, name)
            self.assertGreater(link.bandwidth, 1e9, name)


class Program(unittest.TestCase):
    def test_example(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            code, out, err = run("--measured", EXAMPLE, "--json", path)
            self.assertEqual((code, err), (0, ""))
            self.assertTrue(out.startswith("A MODEL, not a measurement"))
            with open(path, encoding="utf-8") as f:
                tables = json.load(f)["tables"]
            self.assertEqual(set(tables), {"weak scaling, ring", "weak scaling, tree", "strong scaling, ring",
                                           "strong scaling, tree"})
            for rows in tables.values():
                self.assertEqual([r["gpus"] for r in rows], [2 ** i for i in range(11)])
                self.assertAlmostEqual(rows[0]["efficiency"], 1)
                for r in rows:
                    self.assertAlmostEqual(r["compute_seconds"] + r["exposed_seconds"], r["step_seconds"])
            half = os.path.join(folder, "half.json")
            self.assertEqual(run("--measured", EXAMPLE, "--reduce-dtype", "bf16", "--json", half)[0], 0)
            with open(half, encoding="utf-8") as f, open(path, encoding="utf-8") as g:
                self.assertAlmostEqual(json.load(f)["step"]["gradient_bytes"] * 2, json.load(g)["step"]["gradient_bytes"])

    def test_measured_links(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "all-reduce.json")
            results = [{"ranks": 2, "bytes": s, "dtype": "f32", "op": "sum",
                        "median_seconds": model.ring_seconds(2, s, SLOW)} for s in (4096, 1 << 20)]
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"benchmark": "all-reduce", "results": results}, f)
            code, out, _ = run("--step-ms", "10", "--gradient-bytes", "1e6", "--links", path)
            self.assertEqual(code, 0)
            self.assertIn("0.1 GB/s, 10 us (fitted to measurements)", out)
            for i, row in enumerate(results):
                row["backend"] = ("in-process", "gloo")[i % 2]
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"benchmark": "all-reduce", "results": results}, f)
            code, _, err = run("--step-ms", "10", "--gradient-bytes", "1e6", "--links", path)
            self.assertEqual(code, 2)
            self.assertIn("several backends (gloo, in-process)", err)
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"benchmark": "all-reduce"}, f)
            code, _, err = run("--step-ms", "10", "--gradient-bytes", "1e6", "--links", path)
            self.assertEqual(code, 2)
            self.assertIn("lacks what is needed: 'results'", err)

    def test_a_link_without_latency(self):
        # A smaller message that takes less than its share of the larger one's time.
        link = model.fit_link([(2, 1 << 20, 1e-3), (2, 1 << 22, 5e-3)])
        self.assertEqual(link.latency, 0)
        self.assertGreater(link.bandwidth, (1 << 22) / 5e-3)
        self.assertLess(link.bandwidth, (1 << 20) / 1e-3)

    def test_refusals(self):
        for arguments, text in [((), "give --measured FILE"),
                                (("--measured", "/nonexistent"), "No such file"),
                                (("--measured", SCRIPT), "Expecting value"),
                                (("--measured", EXAMPLE, "--step-ms", "3"), "leave out --step-ms"),
                                (("--step-ms", "-1", "--gradient-bytes", "8"), "must be above 0"),
                                (("--step-ms", "1", "--gradient-bytes", "-8"), "--gradient-bytes is -8.0; it must be above 0"),
                                (("--measured", EXAMPLE, "--json", "/nonexistent/x"), "No such file"),
                                (("--measured", EXAMPLE, "--links", EXAMPLE), "no report of heddle bench all-reduce"),
                                (("--measured", EXAMPLE, "--backward-share", "2"), "from 0 to 1")]:
            code, _, err = run(*arguments)
            self.assertEqual(code, 2, arguments)
            self.assertIn(text, err)


if __name__ == "__main__":
    unittest.main()
