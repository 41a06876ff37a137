#!/usr/bin/env python3
"""Event files that `heddle train` writes for TensorBoard, read by a reader of our own: checksums, contents, and what is
left of them after a kill, a cut and a resumed run.

    event_files_test.py PROGRAM HAS_PNG(true|false)
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import event_reader  # noqa: E402
from event_reader import Broken, crc32c, event_files, events, images, records, scalars  # noqa: E402
from idx_files import write_dataset  # noqa: E402
from program_runs import check, wait_until  # noqa: E402

BATCHES = 20  # of 32 images in an epoch of 640
STEP_TAGS = {'loss/step', 'accuracy/step', 'images_per_second', 'learning_rate'}
EPOCH_TAGS = {'loss/train', 'loss/test', 'accuracy/train', 'accuracy/test'}


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def training(program, data, *more):
    return [program, 'train', '--dataset', 'idx', '--data-dir', data, '--batch-size', '32', '--lr', '0.05', '--threads',
            '1', *more]


def metrics(run):
    with open(os.path.join(run, 'metrics.jsonl'), encoding='utf-8') as file:
        return [json.loads(line) for line in file]


def without_clock(curves):
    return {tag: points for tag, points in curves.items() if tag != 'images_per_second'}


def expect_no_stale_points(run):
    """Each curve goes on where it stops: no step is there twice, and none after a later one."""
    for tag, points in scalars(run).items():
        steps = [step for step, _ in points]
        expect(all(a < b for a, b in zip(steps, steps[1:])), f'{run}: {tag} has the steps {steps}')


def check_png(png, height, width):
    expect(png[:8] == b'\x89PNG\r\n\x1a\n', 'no PNG')
    at, pixels = 8, b''
    while at < len(png):
        (size,), kind = struct.unpack('>I', png[at:at + 4]), png[at + 4:at + 8]
        body = png[at + 8:at + 8 + size]
        expect(zlib.crc32(kind + body) == struct.unpack('>I', png[at + 8 + size:at + 12 + size])[0], 'a CRC of the PNG')
        if kind == b'IHDR':
            expect(struct.unpack('>IIBB', body[:10]) == (width, height, 8, 2), f'the header of the PNG: {body}')
        if kind == b'IDAT':
            pixels += body
        at += 12 + size
    rows = zlib.decompress(pixels)
    expect(len(rows) == height * (1 + 3 * width), f'{len(rows)} bytes for {width}x{height} pixels')
    expect(len(set(rows)) > 2, 'a picture of one colour')


def check_contents(run, has_png, epochs):
    expect(len(event_files(run)) == 1, f'{event_files(run)} are not one file')
    curves, lines = scalars(run), metrics(run)
    expect(set(curves) == STEP_TAGS | EPOCH_TAGS, f'the curves are {sorted(curves)}')
    for tag in STEP_TAGS:
        expect([step for step, _ in curves[tag]] == list(range(1, epochs * BATCHES + 1)),
               f'{tag} has not one point for each step')
    for line, *points in zip(lines, *(curves[tag] for tag in sorted(EPOCH_TAGS)), strict=True):
        for tag, (step, value) in zip(sorted(EPOCH_TAGS), points):
            name = '{1}_{0}'.format(*tag.split('/'))
            expect(step == line['step'], f'{tag}: step {step} is not that of {line}')
            expect(abs(value - line[name]) <= 1e-6 * max(1, abs(line[name])), f'{tag}: {value} is not {line[name]}')
    # The mean of an epoch is that of its steps, which have as many images each.
    for epoch, line in enumerate(lines):
        steps = curves['loss/step'][epoch * BATCHES:(epoch + 1) * BATCHES]
        mean = sum(value for _, value in steps) / BATCHES
        expect(abs(mean - line['train_loss']) < 1e-4, f'the steps of epoch {epoch + 1} have a mean of {mean}')
    # Linear warm-up over the first epoch, constant after it.
    rates = [value for _, value in curves['learning_rate']]
    expect(all(a < b for a, b in zip(rates[:BATCHES], rates[1:BATCHES])), f'no warm-up: {rates[:BATCHES]}')
    expect(abs(rates[-1] - 0.05) < 1e-6, f'the last rate is {rates[-1]}')
    pictures = images(run)
    expect(set(pictures) == ({'evaluation/confusion', 'evaluation/misclassified'} if has_png else set()),
           f'pictures: {sorted(pictures)}')
    for found in pictures.values():
        expect(len(found) == epochs, f'{len(found)} pictures in {epochs} epochs')
        for _, (height, width, channels, png) in found:
            expect(channels == 3, 'colours')
            check_png(png, height, width)
    for event in events(event_files(run)[0]):
        expect(abs(event['wall_time'] - time.time()) < 3600, f'a time of {event["wall_time"]}')


def keep_checkpoints(run, epoch):
    """As if the run had been killed before later ones were written."""
    folder = os.path.join(run, 'checkpoints')
    step = epoch * BATCHES
    left = [name for name in os.listdir(folder) if name.startswith('step-') and int(name[5:].split('.')[0]) == step]
    expect(left, f'no checkpoint of step {step} in {os.listdir(folder)}')
    for name in os.listdir(folder):
        if name not in left:
            os.remove(os.path.join(folder, name))


def main():
    program, has_png = sys.argv[1], sys.argv[2] == 'true'
    expect(crc32c(b'123456789') == 0xe3069283, 'the reader computes another CRC-32C')
    with tempfile.TemporaryDirectory() as base:
        data = os.path.join(base, 'data')
        write_dataset(data, 32 * BATCHES, 200)
        whole = os.path.join(base, 'whole')
        check(*training(program, data, '--epochs', '4', '--warmup-epochs', '1', '--out', whole))
        check_contents(whole, has_png, 4)
        check_resumed(program, base, whole)
        check_cut(program, base, whole)
        check_killed(program, base, data)
    return 0


def check_resumed(program, base, whole):
    """From an earlier step than the files have: the curves are in the end those of a run that never stopped."""
    run = os.path.join(base, 'resumed')
    shutil.copytree(whole, run)
    keep_checkpoints(run, 2)
    check(program, 'train', '--resume', run)
    expect(len(event_files(run)) == 2, 'a resumed run has a file of its own')
    expect(max(step for points in scalars_of(event_files(run)[0]).values() for step, _ in points) == 2 * BATCHES,
           'the first file does not end at the step that was resumed from')
    expect_no_stale_points(run)
    expect(without_clock(scalars(run)) == without_clock(scalars(whole)), 'the resumed run has other curves')
    expect(images(run) == images(whole), 'the resumed run has other pictures')


def scalars_of(path):
    curves = {}
    for event in events(path):
        for value in event['values']:
            if 'scalar' in value:
                curves.setdefault(value['tag'], []).append((event['step'], value['scalar']))
    return curves


def check_cut(program, base, whole):
    """A file that ends anywhere is readable up to its last whole record, and whole again in a resumed run."""
    path = event_files(whole)[0]
    with open(path, 'rb') as file:
        content = file.read()
    ends = [0]
    for record in records(path):
        ends.append(ends[-1] + 16 + len(record))
    expect(ends[-1] == len(content), 'bytes behind the last record')
    for length in (1, 11, 12, ends[1] - 1, ends[1], ends[2] + 5, ends[len(ends) // 2] + 20, len(content) - 1):
        run = os.path.join(base, f'cut-{length}')
        shutil.copytree(whole, run)
        keep_checkpoints(run, 3)
        cut = event_files(run)[0]
        os.truncate(cut, length)
        count = 0
        try:
            for _ in records(cut):
                count += 1
            expect(length in ends, f'a file that was cut at {length} seems whole')
        except Broken as broken:
            expect(broken.offset == max(end for end in ends if end <= length), f'{broken}: not the last whole record')
        expect(count == sum(end <= length for end in ends) - 1, f'{count} records in {length} bytes')
        check(program, 'train', '--resume', run)
        expect_no_stale_points(run) if length >= ends[1] else events(event_files(run)[-1])
        expect(os.path.getsize(cut) in ends, 'the cut record stays')
        shutil.rmtree(run)
    # What is damaged in the middle is cut there.
    run = os.path.join(base, 'damaged')
    shutil.copytree(whole, run)
    keep_checkpoints(run, 3)
    damaged = event_files(run)[0]
    with open(damaged, 'r+b') as file:
        file.seek(ends[30] + 14)
        file.write(b'\xff')
    check(program, 'train', '--resume', run)
    expect(os.path.getsize(damaged) == ends[30], f'{os.path.getsize(damaged)} bytes, not {ends[30]}')
    # A file of somebody else is left alone.
    other = os.path.join(run, 'events.out.tfevents.1.somebody')
    with open(other, 'wb') as file:
        file.write(b'something else')
    check(program, 'train', '--resume', run, '--epochs', '5')
    expect(os.path.getsize(other) == 14, 'a file of another program was cut')


def check_killed(program, base, data):
    """At any moment: no more than the last seconds are lost, and a resumed run goes on."""
    run = os.path.join(base, 'killed')
    with subprocess.Popen(training(program, data, '--epochs', '100000', '--out', run), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            expect(wait_until(lambda: os.path.exists(os.path.join(run, 'metrics.jsonl')) and len(metrics(run)) >= 3, 60),
                   'the training does not come on')
        finally:
            process.send_signal(signal.SIGKILL)
            killed = time.time()
            process.wait()
    last = None
    try:
        for record in records(event_files(run)[0]):
            last = event_reader.event_of(record)
    except Broken:
        pass  # the kill met a write
    expect(last is not None and killed - last['wall_time'] < 10, 'more than ten seconds are lost')
    epochs = len(metrics(run)) + 2
    check(program, 'train', '--resume', run, '--epochs', str(epochs))
    expect(len(event_files(run)) == 2, 'a resumed run has a file of its own')
    expect_no_stale_points(run)
    expect(scalars(run)['loss/test'][-1][0] == epochs * BATCHES, 'the resumed run has no last point')


if __name__ == '__main__':
    sys.exit(main())
