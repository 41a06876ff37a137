#!/usr/bin/env python3
"""Writes a C++ file that gives the simulated CUDA the host's code of every kernel that an object of nvcc registers.

The list comes from the object: among its constants are the mangled names that it registers kernels by. The C++ file
includes the same source, so that the host's compiler compiles the kernels, and names each by its C++ name.

    make_kernel_table.py OBJECT SOURCE OUTPUT

SOURCE is the path that the C++ file includes.
"""
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../kernels'))
from cubin import sections  # noqa: E402


def registered(host_object):
    """Mangled names of kernels and variables that are constants of an object file given as bytes, sorted."""
    found = set()
    for section in sections(host_object):
        if section.name.startswith('.rodata'):
            found.update(name.decode() for name in re.findall(rb'(?<![^\0])_Z[\w$.]+(?=\0)', section.content))
    return sorted(found)


def demangled(mangled, *options):
    return subprocess.run(['c++filt', *options, *mangled], check=True, capture_output=True, text=True).stdout.splitlines()


def cpp_name(name):
    """A name without parameters as an expression inside the file that defines it."""
    if '{' in name:
        sys.exit(f'{name}: a kernel whose name holds that of a lambda cannot be named in another file')
    return '::' + name.replace('(anonymous namespace)::', '')


def table(mangled, names, source):
    rows = ''.join(f'    {{"{symbol}", &{cpp_name(name)}}},\n' for symbol, name in zip(mangled, names))
    return (f'// Made from the object of {source}: its kernels as nvcc registers them.\n'
            f'#include "{source}"\n\n'
            '#include "tests/cudasim/shim/kernel_table.h"\n\n'
            f'static const cudasim::KernelTable table{{\n{rows}}};\n')


def main():
    path, source, output = sys.argv[1:]
    with open(path, 'rb') as file:
        names = registered(file.read())
    # A variable has no parameters.
    mangled = [name for name, whole in zip(names, demangled(names)) if whole.endswith(')')] if names else []
    if not mangled:
        sys.exit(f'{path} registers no kernel')
    names = demangled(mangled, '--no-params')
    with open(output, 'w', encoding='utf-8') as file:
        file.write(table(mangled, names, source))


if __name__ == '__main__':
    main()
