#!/usr/bin/env python3
"""Tests of tools/check_layers.py: each plants one violation in a small tree and expects exactly that one."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "tools", "check_layers.py")
sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.dont_write_bytecode = True
import check_layers  # noqa: E402

CLEAN = {
    "engine/core/meson.build": "engine_sources += files('error.cpp')\nengine_headers += {'core': files('error.h')}\n",
    "engine/core/error.h": "#pragma once\n#include <string>\n",
    "engine/core/error.cpp": '#include "engine/core/error.h"\n',
    "engine/tensor/meson.build": "engine_sources += files('tensor.cpp')\nengine_headers += {'tensor': files('tensor.h')}\n",
    "engine/tensor/tensor.h": '#pragma once\n#include "../core/error.h"\n',
    "engine/tensor/tensor.cpp": '#include "engine/tensor/tensor.h"\n#include "engine/core/error.h"\n',
    "models/meson.build": "sources = files('lenet.cpp')\n",
    "models/lenet.cpp": '#include "engine/tensor/tensor.h"\n',
    "tools/meson.build": "sources = files('heddle.cpp')\n",
    "tools/heddle.cpp": '#include <CLI/CLI.hpp>\n#include "engine/core/error.h"\n',
    "tests/core/meson.build": "sources = files('error_test.cpp')\n",
    "tests/core/error_test.cpp": '#include "engine/core/error.h"\n#include "models/model_list.h"\n',
    "models/model_list.h": "#pragma once\n",
    "examples/embed/main.cpp": "#include <heddle/tensor/tensor.h>\n",
}


class CheckLayersTest(unittest.TestCase):
    def violations(self, changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**CLEAN, **changes}.items():
                if text is None:
                    continue
                os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            return check_layers.Checker(root).check()

    def expect(self, changes, place, *parts):
        found = self.violations(changes)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(place), found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_a_clean_tree_has_no_violation(self):
        self.assertEqual(self.violations({}), [])

    def test_a_lower_engine_folder_must_not_include_a_higher_one(self):
        self.expect({"engine/core/error.cpp": '#include "engine/core/error.h"\n#include "engine/tensor/tensor.h"\n'},
                    "engine/core/error.cpp:2:", "engine/core includes engine/tensor/tensor.h", "nothing else")

    def test_a_folder_in_tools_is_a_part_of_tools(self):
        self.assertEqual(self.violations({
            "tools/bench/meson.build": "sources = files('sizes.cpp')\n",
            "tools/bench/sizes.cpp": '#include "tools/usage_error.h"\n#include "models/model_list.h"\n',
            "tools/usage_error.h": "#pragma once\n"}), [])
        self.expect({"models/lenet.cpp": '#include "tools/bench/sizes.h"\n',
                     "tools/bench/sizes.h": "#pragma once\n"}, "models/lenet.cpp:1:", "models includes tools/bench/sizes.h")

    def test_the_reference_knows_the_primitives_only_and_the_engine_does_not_know_it(self):
        reference = {"reference/meson.build": "sources = files('conv2d.cpp')\n", "reference/conv2d.h": "#pragma once\n"}
        self.expect({**reference, "reference/conv2d.cpp": '#include "models/model_list.h"\n'},
                    "reference/conv2d.cpp:1:", "reference includes models/model_list.h")
        self.expect({"reference/conv2d.h": "#pragma once\n",
                     "engine/tensor/tensor.cpp": '#include "reference/conv2d.h"\n'},
                    "engine/tensor/tensor.cpp:1:", "engine/tensor includes reference/conv2d.h")

    def test_the_engine_must_not_include_models(self):
        self.expect({"engine/tensor/tensor.cpp": '#include "models/model_list.h"\n'},
                    "engine/tensor/tensor.cpp:1:", "engine/tensor includes models/model_list.h")

    def test_models_must_not_include_tools(self):
        self.expect({"tools/console.h": "#pragma once\n", "models/lenet.cpp": '#include "tools/console.h"\n'},
                    "models/lenet.cpp:1:", "models includes tools/console.h")

    def test_nothing_includes_tests(self):
        self.expect({"tests/support/catch.h": "#pragma once\n", "tools/heddle.cpp": '#include "tests/support/catch.h"\n'},
                    "tools/heddle.cpp:1:", "nothing includes tests/")

    def test_device_code_includes_only_device_code(self):
        kernel = {"kernels/device/relu.cuh": '#pragma once\n#include "vector.cuh"\n',
                  "kernels/device/vector.cuh": "#pragma once\n"}
        self.assertEqual(self.violations(kernel), [])
        kernel["kernels/device/vector.cuh"] = '#pragma once\n#include "engine/core/error.h"\n'
        self.expect(kernel, "kernels/device/vector.cuh:2:", "kernels/device includes engine/core/error.h")

    def test_a_folder_that_the_table_lacks_is_named(self):
        self.expect({"engine/magic/spell.h": "#pragma once\n"}, "engine/magic/spell.h:1:", "folder engine/magic is not")
        self.expect({"wizard/spell.h": "#pragma once\n"}, "wizard/spell.h:1:", "folder wizard is not")

    def test_an_include_cycle_is_named(self):
        self.expect({"engine/core/error.h": '#pragma once\n#include "shape.h"\n',
                     "engine/core/shape.h": '#pragma once\n#include "error.h"\n',
                     "engine/core/meson.build": CLEAN["engine/core/meson.build"].replace("'error.h'", "'error.h', 'shape.h'")},
                    "engine/core/", "include cycle: engine/core/error.h -> engine/core/shape.h -> engine/core/error.h")

    def test_a_cycle_in_the_table_itself_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "a -> b -> a"):
            check_layers.closure({"a": ["b"], "b": ["a"]})

    def test_long_files_are_refused(self):
        self.assertEqual(self.violations({"tools/long.py": "x = 1\n" * 500}), [])
        self.expect({"tools/long.py": "x = 1\n" * 501}, "tools/long.py:501:", "has 501 lines, at most 500")

    def test_public_headers_include_by_relative_path(self):
        self.expect({"engine/tensor/tensor.h": '#pragma once\n#include "engine/core/error.h"\n'},
                    "engine/tensor/tensor.h:2:", "relative to itself")

    def test_public_headers_include_only_installed_headers(self):
        self.expect({"engine/tensor/tensor.h": '#pragma once\n#include "secret.h"\n',
                     "engine/tensor/secret.h": "#pragma once\n"},
                    "engine/tensor/tensor.h:2:", '"secret.h" is not installed')

    def test_public_headers_outside_the_engine_name_its_headers_as_users_do(self):
        outside = {"nccl_comm/meson.build": "sources = files('rank.cpp')\nengine_headers += {'nccl_comm': files('rank.h', 'end.h')}\n",
                   "nccl_comm/rank.cpp": '#include "nccl_comm/rank.h"\n', "nccl_comm/end.h": "#pragma once\n",
                   "nccl_comm/rank.h": '#pragma once\n#include <heddle/tensor/tensor.h>\n#include "end.h"\n',
                   "engine/heddle.h": '#pragma once\n#include "core/error.h"\n#include "nccl_comm/rank.h"\n'}
        self.assertEqual(self.violations(outside), [])
        for line, complaint in (('#include "../engine/tensor/tensor.h"', "lies elsewhere"),
                                ('#include "engine/tensor/tensor.h"', "relative to itself"),
                                ("#include <heddle/tensor/gone.h>", "is not installed"),
                                ('#include "secret.h"', "is not installed")):
            self.expect({**outside, "nccl_comm/secret.h": "#pragma once\n",
                         "nccl_comm/rank.h": f"#pragma once\n{line}\n"}, "nccl_comm/rank.h:2:", complaint)
        self.expect({**outside, "nccl_comm/rank.cpp": "#include <heddle/tensor/tensor.h>\n"},
                    "nccl_comm/rank.cpp:1:", "include from the root")

    def test_public_headers_need_no_other_library(self):
        found = self.violations({"engine/core/error.h": "#pragma once\n#include <nlohmann/json.hpp>\n"})
        self.assertEqual(len(found), 2, found)
        self.assertIn("standard C++ headers only", found[0])

    def test_libraries_have_their_folders(self):
        self.expect({"engine/core/error.cpp": "#include <oneapi/dnnl/dnnl.hpp>\n"},
                    "engine/core/error.cpp:1:", "is for engine/cpu only")

    def test_other_files_include_from_the_root(self):
        self.expect({"models/lenet.cpp": '#include "model_list.h"\n'},
                    "models/lenet.cpp:1:", 'include from the root: "models/model_list.h"')

    def test_an_unknown_file_is_named(self):
        self.expect({"models/lenet.cpp": '#include "engine/tensor/gone.h"\n'},
                    "models/lenet.cpp:1:", "is no file of the project")

    def test_a_source_that_nothing_builds_is_named(self):
        self.expect({"models/forgotten.cpp": "int x;\n"}, "models/forgotten.cpp:1:", "in no meson.build")

    def test_a_header_without_include_guard_is_named(self):
        self.expect({"models/model_list.h": "int x;\n"}, "models/model_list.h:1:", "#pragma once")

    def test_examples_see_the_installed_library_only(self):
        self.expect({"examples/embed/main.cpp": '#include "engine/tensor/tensor.h"\n'},
                    "examples/embed/main.cpp:1:", "examples includes engine/tensor/tensor.h")

    def test_build_folders_are_not_looked_at(self):
        self.assertEqual(self.violations({"out/meson-private/x": "", "out/generated.cpp": "int x;\n"}), [])

    def test_the_program_reports_and_exits_with_1(self):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "stray.cpp"), "w", encoding="utf-8") as f:
                f.write("int x;\n")
            done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("stray.cpp:1: folder . is not in the table", done.stdout)
        self.assertEqual(subprocess.run([sys.executable, SCRIPT, "--what"], capture_output=True).returncode, 2)


if __name__ == "__main__":
    unittest.main()
