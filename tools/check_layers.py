#!/usr/bin/env python3
"""Checks the layers of the source tree: who may include whom, file lengths, and what public headers may contain.

usage: tools/check_layers.py [ROOT]

Prints one line per violation (file:line: what, and what is allowed) and exits 1, or prints a summary and exits 0.
A new folder is a row in LAYERS below. Run as a test; uses the standard library only.
"""
import os
import re
import sys

# Folder -> folders that it may include directly. What those may include is allowed too.
LAYERS = {
    "engine/core": [],
    "engine/device": ["engine/core"],
    "engine/tensor": ["engine/device"],
    "engine/backend": ["engine/tensor"],
    "engine/cpu": ["engine/backend", "engine/cpu/simd"],
    "engine/cpu/simd": ["engine/backend"],
    "engine/comm": ["engine/tensor"],
    "engine/autograd": ["engine/backend"],
    "engine/ops": ["engine/autograd"],
    "engine/nn": ["engine/ops", "engine/comm"],
    "engine/optim": ["engine/nn"],
    "engine/step": ["engine/optim"],
    "engine/checkpoint": ["engine/optim"],
    "engine/data": ["engine/backend"],
    "engine/pch": ["engine/autograd"],  # precompiled, included by no file
    "engine": ["engine/*", "nccl_comm"],  # heddle.h, which includes all public headers
    "models": ["engine/*"],
    "datasets": ["engine/*"],
    # Plain loops in double that backends are compared with. No part of the engine.
    "reference": ["engine/backend"],
    "nccl_comm": ["engine/*"],
    # Device code is compiled for another processor and must not see host headers.
    "kernels/device": [],
    "kernels/launch": ["kernels/device", "engine/core"],
    "kernels/cuda": ["kernels/launch", "engine/*", "nccl_comm"],
    "tools": ["models", "datasets", "nccl_comm", "reference"],
    # Programs that use an installed copy: <heddle/...> only.
    "examples": [],
}
# Tests may include everything; nothing includes tests.
TESTS = "tests"
# Folders without code of the program: package files, pages, the link for subprojects.
OTHER_FOLDERS = {"docs", "packaging", "dependencies", "include", "subprojects", "runs"}
# Headers of other projects -> folders that may know them (tests may, too).
THIRD_PARTY = {
    "oneapi/": ["engine/cpu"],
    "nlohmann/": ["engine/checkpoint", "models", "datasets", "tools", "nccl_comm"],
    "fmt/": ["models", "datasets", "tools", "nccl_comm"],
    "CLI/": ["tools"],
    "zlib.h": ["datasets", "tools"],
    "png.h": ["datasets", "tools"],
    "cuda": ["kernels", "nccl_comm", "examples"],
    "cudnn": ["kernels/cuda"],
    "cublas": ["kernels/cuda"],
    "nccl.h": ["nccl_comm"],
    "gloo/": ["nccl_comm"],
}
MAX_LINES = 500
SOURCES = (".h", ".cpp", ".cu", ".cuh")
TEXTS = SOURCES + (".py", ".sh")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
PUBLIC = re.compile(r"engine_headers\s*\+=\s*\{\s*'([\w/]+)'\s*:\s*files\(([^)]*)\)")
UMBRELLA = "engine/heddle.h"
# Folders outside engine/ with public headers: installed beside those of the engine, which they name as users do.
OTHER_PUBLIC = ("nccl_comm",)


def closure(layers):
    """Folder -> every folder that it may include, itself included. Raises ValueError on a cycle in the table."""
    result, active = {}, []

    def visit(name):
        if name in active:
            raise ValueError("the table of layers has a cycle: " + " -> ".join(active + [name]))
        if name not in result:
            active.append(name)
            allowed = {name}
            for target in layers[name]:
                if target.endswith("/*"):
                    names = [n for n in layers if n.startswith(target[:-1])]
                else:
                    names = [target]
                for n in names:
                    allowed |= visit(n)
            active.pop()
            result[name] = allowed
        return result[name]

    for name in layers:
        visit(name)
    return result


def under(folder, parent):
    return folder == parent or folder.startswith(parent + "/")


def layer_of(folder, layers):
    """The row of the table for a folder, 'tests', or None. Folders in tests, examples and tools belong to them."""
    for name in (TESTS, "examples", "tools"):
        if under(folder, name):
            return name
    return folder if folder in layers else None


def is_build_folder(path):
    return os.path.isdir(os.path.join(path, "meson-private"))


def list_files(root):
    """Paths below root, relative, without build folders, hidden folders and links to folders."""
    files = []
    for folder, names, leaves in os.walk(root):
        names[:] = sorted(n for n in names if not n.startswith(".") and n != "__pycache__"
                          and not os.path.islink(os.path.join(folder, n))
                          and not is_build_folder(os.path.join(folder, n)))
        relative = os.path.relpath(folder, root)
        if relative.split(os.sep)[0] in ("subprojects", "runs"):
            names[:] = []
            continue
        for leaf in sorted(leaves):
            files.append(os.path.normpath(os.path.join(relative, leaf)))
    return files


class Checker:
    def __init__(self, root, layers=None):
        self.root = root
        self.layers = LAYERS if layers is None else layers
        self.allowed = closure(self.layers)
        self.files = list_files(root)
        self.known = set(self.files)
        self.violations = []
        self.includes = {}  # header -> headers that it includes
        self.public = self.read_public_headers()

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as f:
            return f.read()

    def report(self, path, line, text):
        self.violations.append(f"{path}:{line}: {text}")

    def read_public_headers(self):
        """Headers that meson.build files list in engine_headers, which are installed."""
        public = {UMBRELLA} & self.known
        for path in self.files:
            folder = os.path.dirname(path)
            if os.path.basename(path) != "meson.build" or not (folder.startswith("engine/") or folder in OTHER_PUBLIC):
                continue
            for match in PUBLIC.finditer(self.read(path)):
                if folder not in ("engine/" + match.group(1), match.group(1)):
                    self.report(path, 1, f"installs into heddle/{match.group(1)}, but the folder is {folder}")
                for name in re.findall(r"'([^']+)'", match.group(2)):
                    header = os.path.join(folder, name)
                    public.add(header)
                    if header not in self.known:
                        self.report(path, 1, f"lists {name}, which does not exist")
        return public

    def check(self):
        for path in self.files:
            if path.endswith(TEXTS) or os.path.basename(path) == "meson.build":
                text = self.read(path)
                lines = text.count("\n") + (0 if text.endswith("\n") or not text else 1)
                if lines > MAX_LINES:
                    self.report(path, lines, f"has {lines} lines, at most {MAX_LINES} are allowed")
                if path.endswith(SOURCES):
                    self.check_source(path, text)
        self.check_cycles()
        return self.violations

    def check_source(self, path, text):
        folder = os.path.dirname(path)
        layer = layer_of(folder, self.layers)
        if layer is None:
            if folder.split("/")[0] not in OTHER_FOLDERS:
                self.report(path, 1, f"folder {folder or '.'} is not in the table of layers (tools/check_layers.py)")
            return
        if path.endswith((".cpp", ".cu")) and layer != "examples" and not self.is_listed(path):
            self.report(path, 1, "is in no meson.build, so nothing builds it")
        is_header = path.endswith((".h", ".cuh"))
        # Compilers warn of the line in a header that they are given alone.
        is_precompiled = os.path.basename(os.path.dirname(path)) == "pch"
        if is_header and not is_precompiled and "#pragma once" not in text:
            self.report(path, 1, "header without #pragma once")
        for number, line in enumerate(text.split("\n"), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quoted, angled = match.groups()
            if quoted:
                self.check_quoted(path, number, layer, quoted)
            else:
                self.check_angled(path, number, layer, angled)

    def is_listed(self, path):
        """True if a meson.build in the file's folder or above names it."""
        folder, name = os.path.split(path)
        below = name
        while True:
            build = os.path.join(folder, "meson.build") if folder else "meson.build"
            if build in self.known and f"'{below}'" in self.read(build):
                return True
            if not folder:
                return False
            folder, last = os.path.split(folder)
            below = last + "/" + below

    def check_quoted(self, path, number, layer, name):
        folder = os.path.dirname(path)
        sibling = os.path.normpath(os.path.join(folder, name))
        from_root = os.path.normpath(name)
        in_umbrella = path == UMBRELLA and from_root.startswith(tuple(f + "/" for f in OTHER_PUBLIC))
        if path in self.public and sibling not in self.known and not in_umbrella:
            self.report(path, number, f'"{name}": a public header includes by a path relative to itself ("../core/error.h")')
            return
        if path in self.public and folder in OTHER_PUBLIC and os.path.dirname(sibling) != folder:
            self.report(path, number, f'"{name}": the installed header lies elsewhere: <heddle/...>')
            return
        if from_root in self.known and "/" in name:
            target = from_root
        elif sibling in self.known:
            target = sibling
            # The engine's files keep their places beside each other when installed; other headers have one spelling.
            if not path.startswith(("engine/", "examples/", "kernels/device/")) and path not in self.public:
                self.report(path, number, f'"{name}": include from the root: "{sibling}"')
        else:
            self.report(path, number, f'"{name}" is no file of the project; other projects\' headers go in <>')
            return
        self.add_include(path, number, layer, target, name)

    def add_include(self, path, number, layer, target, name):
        self.includes.setdefault(path, []).append((target, number))
        self.check_direction(path, number, layer, target)
        if path in self.public and target not in self.public:
            self.report(path, number, f'"{name}" is not installed, but this header is')

    def check_direction(self, path, number, layer, target):
        target_layer = layer_of(os.path.dirname(target), self.layers)
        if layer == TESTS:
            return
        if target_layer == TESTS:
            self.report(path, number, f"includes {target}: nothing includes tests/")
        elif target_layer is not None and target_layer not in self.allowed[layer]:
            allowed = ", ".join(sorted(self.allowed[layer] - {layer})) or "nothing else of the project"
            self.report(path, number, f"{layer} includes {target}; {layer} may include {allowed}")

    def check_angled(self, path, number, layer, name):
        if path in self.public and layer in OTHER_PUBLIC and name.startswith("heddle/"):
            return self.add_include(path, number, layer, "engine/" + name[len("heddle/"):], name)
        if path in self.public and not re.fullmatch(r"[a-z_]+", name):
            self.report(path, number, f"<{name}>: a public header includes standard C++ headers only")
        if layer == TESTS:
            return
        for prefix, folders in THIRD_PARTY.items():
            if name.startswith(prefix) and not any(under(layer, f) for f in folders):
                self.report(path, number, f"<{name}> is for {', '.join(folders)} only")
        if name.startswith("heddle/") and layer != "examples":
            self.report(path, number, f"<{name}>: inside the project include from the root (\"engine/...\")")

    def check_cycles(self):
        state, stack = {}, []

        def visit(path):
            state[path] = 1
            stack.append(path)
            for target, number in self.includes.get(path, []):
                if state.get(target) == 1:
                    cycle = stack[stack.index(target):] + [target]
                    self.report(path, number, "include cycle: " + " -> ".join(cycle))
                elif target not in state:
                    visit(target)
            stack.pop()
            state[path] = 2

        for path in sorted(self.includes):
            if path not in state:
                visit(path)


def main(arguments):
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print(__doc__)
        return 2
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    checker = Checker(root)
    violations = checker.check()
    for violation in violations:
        print(violation)
    if violations:
        print(f"{len(violations)} violations of the layers")
        return 1
    print(f"layers: {len(checker.files)} files, {len(checker.public)} public headers, no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
