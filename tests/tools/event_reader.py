"""Reads TensorBoard event files from the description of their format, for tests. Shares nothing with the program."""
import glob
import os
import struct


class Broken(Exception):
    """What is no whole record; `offset` is where it begins."""

    def __init__(self, path, offset, reason):
        super().__init__(f'{path}: byte {offset}: {reason}')
        self.offset = offset


def crc32c(data):
    """Bit by bit, so that no table is shared with anybody's."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xa282ead8) & 0xffffffff


def records(path):
    """The content of each record. Throws Broken at the first that is not whole."""
    with open(path, 'rb') as file:
        data = file.read()
    offset = 0
    while offset < len(data):
        header = data[offset:offset + 12]
        if len(header) < 12:
            raise Broken(path, offset, 'the header is cut')
        (length,), (checksum,) = struct.unpack('<Q', header[:8]), struct.unpack('<I', header[8:])
        if masked(header[:8]) != checksum:
            raise Broken(path, offset, 'the checksum of the length is wrong')
        body = data[offset + 12:offset + 12 + length + 4]
        if len(body) < length + 4:
            raise Broken(path, offset, 'the record is cut')
        if masked(body[:-4]) != struct.unpack('<I', body[-4:])[0]:
            raise Broken(path, offset, 'the checksum of the data is wrong')
        yield body[:-4]
        offset += 12 + length + 4


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) of a message: integers, or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            if wire == 2:
                size, at = varint(data, at)
            else:
                size = {1: 8, 5: 4}[wire]
            value = data[at:at + size]
            assert len(value) == size, 'a field is cut'
            at += size
        yield key >> 3, value


def value_of(message):
    """{'tag', and 'scalar' or 'image': (height, width, channels, png)} of a Summary.Value."""
    result = {}
    for number, value in fields(message):
        if number == 1:
            result['tag'] = value.decode()
        elif number == 2:
            result['scalar'] = struct.unpack('<f', value)[0]
        elif number == 4:
            image = dict(fields(value))
            result['image'] = (image[1], image[2], image[3], image[4])
    return result


def event_of(record):
    event = {'step': 0, 'values': []}
    for number, value in fields(record):
        if number == 1:
            event['wall_time'] = struct.unpack('<d', value)[0]
        elif number == 2:
            event['step'] = value
        elif number == 3:
            event['version'] = value.decode()
        elif number == 5:
            event['values'] += [value_of(entry) for field, entry in fields(value) if field == 1]
    return event


def event_files(run):
    return sorted(glob.glob(os.path.join(glob.escape(run), 'events.out.tfevents.*')))


def events(path):
    found = [event_of(record) for record in records(path)]
    assert found and found[0].get('version') == 'brain.Event:2', f'{path} does not begin with the version'
    assert all('version' not in event for event in found[1:]), f'{path} has two versions'
    return found


def scalars(run):
    """{tag: [(step, value)]} of all files of a run, in their order."""
    curves = {}
    for path in event_files(run):
        for event in events(path):
            for value in event['values']:
                if 'scalar' in value:
                    curves.setdefault(value['tag'], []).append((event['step'], value['scalar']))
    return curves


def images(run):
    """{tag: [(step, (height, width, channels, png))]} of all files of a run."""
    found = {}
    for path in event_files(run):
        for event in events(path):
            for value in event['values']:
                if 'image' in value:
                    found.setdefault(value['tag'], []).append((event['step'], value['image']))
    return found
