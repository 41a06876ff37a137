#!/usr/bin/env python3
"""Compiles every unit of device code for one GPU generation and looks at what came out: no kernel spills registers or
uses a stack, registers stay within what each family may use, kernels that are given dynamic shared memory have no other,
kernels that only move memory do it in 16-byte accesses, and every kernel has a name that can be looked up. Needs nvcc, no
GPU; exit code 77 where there is none.

    kernel_code_test.py SOURCE_ROOT
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cubin import Access, accesses, variables  # noqa: E402

ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else '.').resolve()
NVCC = shutil.which('nvcc') or shutil.which('/usr/local/cuda/bin/nvcc')

# Registers that a kernel of a unit may use; units that are not named may use 128.
REGISTERS = {
    # Three blocks run on a multiprocessor at the same time.
    'batch_norm': 80,
    'elementwise': 40,
    'hash': 40,
    'broadcast': 40,
    'indexing': 40,
    'reduce': 64,
    'pooling': 64,
    'softmax': 64,
}
MOST_REGISTERS = 128

# Kernels whose speed is that of memory, by the beginning of their names without templates' types: loads and stores of
# 16 bytes at least, and loads and stores that are narrower at most, because they belong to elements behind the last
# pack. The others must be at least nine tenths wide when those are left out.
PACKED = {
    'fill_kernel<float>': ((0, 1), (0, 1)),
    'fill_kernel<__nv_bfloat16>': ((0, 1), (0, 1)),
    'cast_kernel<float, __nv_bfloat16>': ((2, 1), (1, 1)),
    'cast_kernel<__nv_bfloat16, float>': ((1, 2), (1, 1)),
    'axpy_kernel<float>': ((2, 1), (2, 1)),
    'axpy_kernel<__nv_bfloat16>': ((2, 1), (2, 1)),
    'unary_kernel<float>': ((1, 1), (1, 1)),
    'unary_kernel<__nv_bfloat16>': ((1, 1), (1, 1)),
    'unary_backward_kernel<float>': ((3, 1), (3, 1)),
    'unary_backward_kernel<__nv_bfloat16>': ((3, 1), (3, 1)),
    # Behind the packs two operands, and the single elements of operands that are repeated.
    'binary_kernel<float>': ((2, 1), (4, 1)),
    'binary_kernel<__nv_bfloat16>': ((2, 1), (4, 1)),
    # The element before the first pack, the one behind the last, and the old result of five types.
    'reduce_rows_kernel<SumOf<float>>': ((1, 0), (5, 3)),
    'reduce_rows_kernel<SumOf<__nv_bfloat16>>': ((1, 0), (5, 3)),
    'max_pool_forward_kernel<float, 4>': ((1, 1), (0, 1)),
    'max_pool_forward_kernel<__nv_bfloat16, 8>': ((1, 1), (0, 1)),
    # argmax of four elements in four bytes.
    'max_pool_backward_kernel<float, 4>': ((2, 1), (1, 0)),
    'max_pool_backward_kernel<__nv_bfloat16, 8>': ((2, 1), (1, 0)),
    'avg_pool_forward_kernel<float, 4>': ((1, 1), (0, 0)),
    'avg_pool_forward_kernel<__nv_bfloat16, 8>': ((1, 1), (0, 0)),
    'avg_pool_backward_kernel<float, 4>': ((3, 1), (0, 0)),
    'avg_pool_backward_kernel<__nv_bfloat16, 8>': ((3, 1), (0, 0)),
    # Channel vectors, one thread a channel; masks, eight elements in a byte or in eight; sums of other blocks.
    'batch_norm_statistics_kernel<float, 4>': ((5, 1), (0, 7)),
    'batch_norm_statistics_kernel<__nv_bfloat16, 8>': ((5, 1), (0, 7)),
    'batch_norm_sums_kernel<float, 4>': ((4, 1), (11, 9)),
    'batch_norm_sums_kernel<__nv_bfloat16, 8>': ((4, 1), (15, 9)),
    'batch_norm_forward_kernel<float, 4, false>': ((3, 1), (21, 12)),
    'batch_norm_forward_kernel<__nv_bfloat16, 8, false>': ((3, 1), (21, 12)),
    'batch_norm_backward_kernel<float, 4, false>': ((5, 2), (23, 0)),
    'batch_norm_backward_kernel<__nv_bfloat16, 8, false>': ((5, 2), (23, 0)),
    # The bytes of tensors that are not aligned, one by one.
    'hash_kernel': ((1, 0), (40, 3)),
    'copy_pieces_kernel<uint4>': ((1, 1), (0, 0)),
    'permute_kernel<uint4>': ((1, 1), (0, 0)),
}
WIDE_SHARE = 0.9


class Kernel:
    """One kernel of a compiled unit, as ptxas and the machine code tell."""

    def __init__(self, unit, mangled, registers, stack, spills, shared, found):
        self.unit = unit
        self.mangled = mangled
        self.registers = registers
        self.stack = stack
        self.spills = spills
        self.shared = shared
        self.accesses = found
        self.name = mangled

    def count(self, kind, wide):
        return sum(n for access, n in self.accesses.items()
                   if access.kind == kind and (access.nbytes == 16) == wide)

    def __str__(self):
        return '%s (%s): %d registers, %d bytes of stack, %d spilled, %d shared' % (
            self.name, self.unit, self.registers, self.stack, self.spills, self.shared)


REPORT = re.compile(r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                    r"(\d+) bytes spill loads\n.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?", re.DOTALL)


def compile_unit(source, folder):
    """([Kernel], cubin) of a .cu file, for sm_90 with the options of the build."""
    cubin = pathlib.Path(folder) / (source.stem + '.cubin')
    command = [NVCC, '-std=c++20', '-O3', '--expt-relaxed-constexpr', '-gencode', 'arch=compute_90,code=sm_90',
               '-Xptxas', '-v', '-cubin', '-I' + str(ROOT), str(source), '-o', str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError('%s\n%s' % (' '.join(command), done.stderr))
    content = cubin.read_bytes()
    found = accesses(content)
    kernels = [Kernel(source.stem, name, int(registers), int(stack), int(stores) + int(loads), int(shared or 0), found[name])
               for name, stack, stores, loads, registers, shared in REPORT.findall(done.stderr)]
    return kernels, content


def with_dynamic_shared(text):
    """Names of the kernels in a source whose launch gives them shared memory."""
    return {re.match(r'(?:\s*__launch_bounds__\([^)]*\))?\s*(\w+)\(', part).group(1)
            for part in text.split('__global__ void')[1:] if 'HEDDLE_DYNAMIC_SHARED(' in part}


def demangle(kernels):
    """Sets the names that a person reads, without namespaces, results and parameters."""
    done = subprocess.run(['c++filt'], input='\n'.join(k.mangled for k in kernels), capture_output=True, text=True)
    for kernel, text in zip(kernels, done.stdout.splitlines()):
        text = text.replace('heddle::cuda::', '').replace('> >', '>>')
        kernel.name = re.sub(r'\((?!anonymous).*$', '', re.sub(r'^void ', '', text))


class KernelCode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernels, cls.cubins = [], {}
        with tempfile.TemporaryDirectory() as folder:
            sources = sorted((ROOT / 'kernels').rglob('*.cu'))
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                for source, (kernels, cubin) in zip(sources, pool.map(lambda s: compile_unit(s, folder), sources)):
                    cls.kernels += kernels
                    cls.cubins[source.stem] = cubin
        demangle(cls.kernels)

    def fail_on(self, problem, kernels):
        if kernels:
            self.fail('%s:\n%s' % (problem, '\n'.join(map(str, kernels))))

    def test_every_kernel_was_seen(self):
        for unit, cubin in self.cubins.items():
            self.assertEqual({k.mangled for k in self.kernels if k.unit == unit}, set(accesses(cubin)), unit)
        self.assertGreater(len(self.kernels), 50)

    def test_no_kernel_spills_or_uses_a_stack(self):
        self.fail_on('spills or stack', [k for k in self.kernels if k.spills or k.stack])
        self.fail_on('local memory', [k for k in self.kernels if any(a.kind == 'local' for a in k.accesses)])

    def test_registers_stay_within_the_bound_of_the_family(self):
        self.fail_on('too many registers',
                     [k for k in self.kernels if k.registers > REGISTERS.get(k.unit, MOST_REGISTERS)])

    def test_kernels_with_dynamic_shared_memory_have_no_other(self):
        # What a launch may ask for is what a block has without the kernel's own variables, and who cuts the work into
        # pieces of that size does not know them.
        names = set()
        for header in (ROOT / 'kernels').rglob('*.cuh'):
            names |= with_dynamic_shared(header.read_text())
        self.assertLessEqual({'conv_direct_kernel', 'conv_direct_weight_kernel'}, names)
        given = [k for k in self.kernels if re.match(r'[\w:]*', k.name).group().rsplit(':')[-1] in names]
        self.assertGreaterEqual(len(given), len(names))
        self.fail_on('dynamic and other shared memory', [k for k in given if k.shared])

    def test_kernels_can_be_looked_up_by_name(self):
        names = [k.mangled for k in self.kernels]
        self.assertEqual(len(names), len(set(names)), 'two kernels of one name')
        self.fail_on('internal linkage', [k for k in self.kernels if '_GLOBAL__N_' in k.mangled or '_ZL' in k.mangled])

    def test_there_are_no_variables_on_the_device(self):
        for unit, cubin in self.cubins.items():
            self.assertEqual(variables(cubin), [], unit)

    def test_memory_kernels_move_sixteen_bytes_at_once(self):
        by_name = {k.name: k for k in self.kernels}
        for name, (wide, narrow) in PACKED.items():
            with self.subTest(name):
                self.assertIn(name, by_name)
                kernel = by_name[name]
                for kind, least, most in zip(('load', 'store'), wide, narrow):
                    self.assertGreaterEqual(kernel.count(kind, True), least, '%s: %s' % (kind, kernel.accesses))
                    rest = max(0, kernel.count(kind, False) - most)
                    total = kernel.count(kind, True) + rest
                    if total:
                        share = kernel.count(kind, True) / total
                        self.assertGreaterEqual(share, WIDE_SHARE, '%s: %s' % (kind, kernel.accesses))


class Reader(unittest.TestCase):
    """What the tests above rest on: that faults are seen."""

    def test_a_kernel_with_a_stack_and_narrow_accesses_is_recognised(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / 'planted.cu'
            source.write_text('''
                __device__ float kept = 1.0f;
                __global__ void planted(const float* x, const int* places, float* y, int n) {
                  float values[64];
                  for (int i = 0; i < 64; ++i) values[i] = x[i * n];
                  for (int i = 0; i < n; ++i) values[places[i]] += 1.0f;
                  float4 four = {values[places[0]] + kept, values[places[1]], values[places[2]], values[places[3]]};
                  reinterpret_cast<float4*>(y)[threadIdx.x] = four;
                }''')
            (kernel,), cubin = compile_unit(source, folder)
        self.assertEqual(variables(cubin), ['kept'])
        self.assertGreaterEqual(kernel.stack, 256)
        self.assertTrue(any(a.kind == 'local' for a in kernel.accesses))
        self.assertEqual(kernel.accesses[Access('store', 16)], 1)
        self.assertEqual(kernel.count('load', True), 0)
        self.assertGreaterEqual(kernel.accesses[Access('load', 4)], 64)

    def test_shared_memory_of_both_kinds_is_recognised(self):
        planted = '''
            #include "kernels/device/dynamic_shared.cuh"
            __global__ void plain(float* y) { y[threadIdx.x] = 1; }
            __global__ void __launch_bounds__(256, 2)
                planted(float* y) {
              HEDDLE_DYNAMIC_SHARED(float, values);
              __shared__ int last;
              values[threadIdx.x] = y[threadIdx.x];
              if (threadIdx.x == 0) last = static_cast<int>(y[0]);
              __syncthreads();
              y[threadIdx.x] = values[last];
            }'''
        self.assertEqual(with_dynamic_shared(planted), {'planted'})
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / 'planted.cu'
            source.write_text(planted)
            kernels, _ = compile_unit(source, folder)
        demangle(kernels)
        self.assertEqual({k.name: k.shared > 0 for k in kernels}, {'plain': False, 'planted': True})


if __name__ == '__main__':
    if NVCC is None:
        print('skipped: no nvcc')
        sys.exit(77)
    unittest.main()
