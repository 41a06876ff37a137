#!/usr/bin/env python3
"""What `heddle train` writes, shown by the real TensorBoard: its reader of event files, and its server.

    tensorboard_test.py PROGRAM HAS_PNG(true|false)

Needs TensorBoard for this Python, or the path of a Python that has it in HEDDLE_TENSORBOARD_PYTHON; exits with 77
(skipped) without.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from event_reader import scalars  # noqa: E402
from idx_files import write_dataset  # noqa: E402
from program_runs import check, read_text, wait_until  # noqa: E402

SKIPPED = 77
# Prints what TensorBoard's reader finds in a folder.
READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'images': 0})
found.Reload()
tags = found.Tags()
print(json.dumps({
    'scalars': {tag: [(p.step, p.value) for p in found.Scalars(tag)] for tag in tags['scalars']},
    'images': {tag: [(p.step, p.width, p.height, len(p.encoded_image_string)) for p in found.Images(tag)]
               for tag in tags['images']}}))
"""


def python_with_tensorboard():
    for python in (os.environ.get('HEDDLE_TENSORBOARD_PYTHON'), sys.executable):
        if python and subprocess.run([python, '-c', 'import tensorboard'], capture_output=True, check=False).returncode == 0:
            return python
    return None


def ask(address, path):
    with urllib.request.urlopen(address + path, timeout=30) as answer:
        return json.load(answer)


def check_server(python, folder, has_png):
    """Two runs side by side, as the pages of TensorBoard ask for them."""
    log = os.path.join(folder, 'server.txt')
    with open(log, 'w', encoding='utf-8') as output:
        server = subprocess.Popen([python, '-m', 'tensorboard.main', '--logdir', os.path.join(folder, 'runs'), '--port',
                                   '0', '--host', '127.0.0.1'], stdout=output, stderr=output)
    try:
        assert wait_until(lambda: re.search(r'http://127.0.0.1:\d+', read_text(log)), 120), read_text(log)
        address = re.search(r'http://127.0.0.1:\d+', read_text(log))[0]
        assert wait_until(lambda: len(ask(address, '/data/plugin/scalars/tags')) == 2, 60), 'the runs are not shown'
        time.sleep(1)
        for run, tags in ask(address, '/data/plugin/scalars/tags').items():
            assert 'loss/test' in tags and 'learning_rate' in tags, tags
            points = ask(address, f'/data/plugin/scalars/scalars?run={run}&tag=loss%2Ftest')
            expected = scalars(os.path.join(folder, 'runs', run))['loss/test']
            assert [(step, value) for _, step, value in points] == expected, (points, expected)
        if not has_png:
            return
        for run, tags in ask(address, '/data/plugin/images/tags').items():
            assert set(tags) == {'evaluation/confusion', 'evaluation/misclassified'}, (run, tags)
            shown = ask(address, f'/data/plugin/images/images?run={run}&tag=evaluation%2Fconfusion&sample=0')
            with urllib.request.urlopen(f'{address}/data/plugin/images/individualImage?{shown[-1]["query"]}',
                                        timeout=30) as picture:
                assert picture.read(8) == b'\x89PNG\r\n\x1a\n'
    finally:
        server.terminate()
        server.wait()


def main():
    program, has_png = sys.argv[1], sys.argv[2] == 'true'
    python = python_with_tensorboard()
    if python is None:
        print('TensorBoard is not installed')
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, 'data')
        write_dataset(data, 640, 200)
        runs = [os.path.join(folder, 'runs', name) for name in ('a', 'b')]
        for run, rate in zip(runs, ('0.05', '0.02')):
            check(program, 'train', '--dataset', 'idx', '--data-dir', data, '--batch-size', '32', '--threads', '1',
                  '--lr', rate, '--epochs', '3', '--out', run)
        # A run of two files.
        check(program, 'train', '--resume', runs[0], '--epochs', '5')
        for run in runs:
            found = json.loads(check(python, '-c', READ, run))
            own = {tag: [list(point) for point in points] for tag, points in scalars(run).items()}
            assert found['scalars'] == own, f'TensorBoard reads {found["scalars"]}, not {own}'
            assert bool(found['images']) == has_png, found['images']
            for pictures in found['images'].values():
                assert all(width > 0 and height > 0 and nbytes > 100 for _, width, height, nbytes in pictures), pictures
        check_server(python, folder, has_png)
    return 0


if __name__ == '__main__':
    sys.exit(main())
