"""Reads for which GPUs a file holds code that nvcc made, without the tools of the CUDA toolkit: the heads of the fat
binaries in the section .nv_fatbin of an object, a program or a shared library. Their layout is that of
tests/cudasim/fat_binary.cpp.

    fat_binary.py FILE...    # for each file one line: machine code, PTX, and how many fat binaries have that list
"""
import collections
import struct
import sys

from cubin import sections

MAGIC = 0xba55ed50
PTX, CUBIN = 1, 2

Code = collections.namedtuple('Code', 'cubins ptx')  # sorted tuples of capabilities, 90 for 9.0


def fat_binaries(elf):
    """[Code] of each fat binary in an ELF file given as bytes: one for each unit that nvcc compiled."""
    found = []
    for section in sections(elf):
        if section.name != '.nv_fatbin':
            continue
        content, place = section.content, 0
        while place + 16 <= len(content):
            magic, _, head_nbytes, entry_nbytes = struct.unpack_from('<IHHQ', content, place)
            if magic != MAGIC:
                if any(content[place:place + 8]):
                    raise ValueError('no fat binary at byte %d of .nv_fatbin' % place)
                place += 8  # between two that are aligned
                continue
            place += head_nbytes
            end = place + entry_nbytes
            kinds = {PTX: set(), CUBIN: set()}
            while place < end:
                kind, _, entry_head, code_nbytes, _, _, _, _, capability = struct.unpack_from('<HHIQIIHHI', content, place)
                kinds.setdefault(kind, set()).add(capability)
                place += entry_head + code_nbytes
            found.append(Code(tuple(sorted(kinds[CUBIN])), tuple(sorted(kinds[PTX]))))
    return found


def main(paths):
    for path in paths:
        with open(path, 'rb') as file:
            counts = collections.Counter(fat_binaries(file.read()))
        for code, count in sorted(counts.items()):
            print('%s: %s; PTX %s (%d units)' % (path, ', '.join('sm_%d' % c for c in code.cubins),
                                                 ', '.join(map(str, code.ptx)), count))
        if not counts:
            print('%s: no code for GPUs' % path)


if __name__ == '__main__':
    main(sys.argv[1:])
