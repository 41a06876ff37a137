"""Reads the machine code of a cubin: how wide each kernel's accesses to memory are.

A cubin is a 64-bit ELF file with one section .text.NAME for each kernel. Instructions of sm_70 to sm_90 have 16 bytes:
bits 0 to 11 are the operation, bits 73 to 75 the width of a load or store.
"""
import collections
import struct

GLOBAL_LOAD, GLOBAL_STORE, LOCAL_LOAD, LOCAL_STORE = 0x981, 0x986, 0x983, 0x387
KINDS = {GLOBAL_LOAD: 'load', GLOBAL_STORE: 'store', LOCAL_LOAD: 'local', LOCAL_STORE: 'local'}
WIDTHS = (1, 1, 2, 2, 4, 8, 16, 16)  # bytes, by the field's value: signed and unsigned forms of the narrow ones

Access = collections.namedtuple('Access', 'kind nbytes')
Section = collections.namedtuple('Section', 'name nbytes content')


def sections(cubin):
    """All sections of an ELF file given as bytes."""
    table_at, = struct.unpack_from('<Q', cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from('<HHH', cubin, 0x3a)
    heads = []
    for index in range(count):
        name, kind, _, _, at, nbytes = struct.unpack_from('<IIQQQQ', cubin, table_at + index * entry_size)
        heads.append((name, kind, at, nbytes))
    names_at = heads[names_index][2]
    for name, kind, at, nbytes in heads:
        end = cubin.index(b'\0', names_at + name)
        is_in_file = kind != 8  # SHT_NOBITS
        yield Section(cubin[names_at + name:end].decode(), nbytes, cubin[at:at + nbytes] if is_in_file else b'')


def accesses(cubin):
    """{mangled kernel: Counter of Access}, counting instructions."""
    kernels = {}
    for section in sections(cubin):
        if not section.name.startswith('.text.'):
            continue
        found = kernels[section.name[len('.text.'):]] = collections.Counter()
        for low, high in struct.iter_unpack('<QQ', section.content[:len(section.content) // 16 * 16]):
            kind = KINDS.get(low & 0xfff)
            if kind is not None:
                found[Access(kind, WIDTHS[high >> 9 & 7])] += 1
    return kernels


def variables(cubin):
    """Names of the variables that the code defines on the device, without those of CUDA's mathematics library."""
    content = {section.name: section.content for section in sections(cubin)}
    names = content['.strtab']
    found = []
    for name, info, _, section, _, nbytes in struct.iter_unpack('<IBBHQQ', content['.symtab']):
        text = names[name:names.index(b'\0', name)].decode()
        is_object = info & 0xf == 1  # STT_OBJECT
        if is_object and section != 0 and nbytes != 0 and not text.startswith('__cudart_'):
            found.append(text)
    return found
