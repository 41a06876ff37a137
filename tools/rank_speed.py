#!/usr/bin/env python3
"""Measures what ranks on the cores of one machine have to reach, and says whether they do:

- two ranks with a thread each train LeNet, and a ResNet with 45 MB of gradients, at >= 0.9 of the speed of one rank with
  two threads;
- two processes (Gloo) train LeNet at >= 0.85 of the speed of two ranks in one process.

    tools/rank_speed.py --heddle build/tools/heddle [--rounds 7] [--epochs 6] [--skip-resnet]

The runs of LeNet take turns, so that what else the machine does meets all of them; medians are compared. It takes about
three minutes with the ResNet. Exit code: 0 if all is reached, 1 if not, 2 if a run failed. When it is interrupted or
terminated, so are its runs.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

LEAST_OF_THREADS, LEAST_OF_IN_PROCESS = 0.9, 0.85


class Failed(Exception):
    pass


def clean_environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(('OMPI_', 'PMI', 'SLURM_', 'MASTER_', 'TORCHELASTIC_'))
            and name not in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'OMP_NUM_THREADS')}
    return {**kept, **more}


def run_all(commands):
    """Starts (arguments, environment) pairs at once, and waits for all of them. None outlives it."""
    processes = []
    try:
        for arguments, environment in commands:
            processes.append(subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT, text=True))
        outputs = [process.communicate()[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    for process, output in zip(processes, outputs):
        if process.returncode != 0:
            raise Failed(f'{" ".join(process.args)} exited with {process.returncode}:\n{output}')


def lenet_speed(heddle, folder, kind, epochs):
    """Images a second: the median of the epochs behind the first."""
    run = os.path.join(folder, 'run')
    shutil.rmtree(run, ignore_errors=True)
    train = [heddle, 'train', '--model', 'lenet', '--dataset', 'synthetic', '--epochs', str(epochs), '--no-parity-gate',
             '--out', run]
    if kind == 'processes':
        store = tempfile.mkdtemp(dir=folder)
        run_all([(train + ['--threads', '1', '--store', 'file:' + store],
                  clean_environment(RANK=str(rank), WORLD_SIZE='2')) for rank in range(2)])
    else:
        ranks = {'threads': '1', 'ranks': '2'}[kind]
        run_all([(train + ['--threads', '2', '--ranks', ranks], clean_environment())])
    with open(os.path.join(run, 'metrics.jsonl'), encoding='utf-8') as file:
        speeds = [json.loads(line)['images_per_second'] for line in file]
    return statistics.median(speeds[1:])


def resnet_speeds(heddle, folder, rounds):
    """Images a second of one rank with two threads and of two ranks, whose rounds take turns."""
    path = os.path.join(folder, 'scaling.json')
    run_all([([heddle, 'bench', 'scaling', '--model', 'resnet18', '--batch-size', '64', '--ranks', '1,2', '--scaling',
               'strong,threads', '--threads', '2', '--steps', '5', '--rounds', str(rounds), '--json', path],
              clean_environment())])
    with open(path, encoding='utf-8') as file:
        results = json.load(file)['results']
    speed = {(r['scaling'], r['ranks']): r['batch_size'] / r['step_seconds'] for r in results}
    threads = [value for (scaling, _), value in speed.items() if scaling == 'threads']
    return threads[0], speed['strong', 2]


def judge(name, reached, least):
    print(f'{name}: {reached:.2f}, at least {least:.2f} is demanded: {"reached" if reached >= least else "MISSED"}')
    return reached >= least


def main():
    parser = argparse.ArgumentParser(description='speed of ranks on the cores of one machine')
    parser.add_argument('--heddle', default='build/tools/heddle')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--epochs', type=int, default=6, help='of a run of LeNet, the first one of which does not count')
    parser.add_argument('--skip-resnet', action='store_true')
    options = parser.parse_args()
    if options.epochs < 2 or options.rounds < 1:
        parser.error('at least 2 epochs and 1 round are needed')
    heddle = os.path.realpath(options.heddle)
    kinds = {'threads': 'one rank, 2 threads', 'ranks': '2 ranks, a thread each', 'processes': '2 processes, a thread each'}
    speeds = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix='heddle-rank-speed-') as folder:
        for _ in range(options.rounds):
            for kind in kinds:
                speeds[kind].append(lenet_speed(heddle, folder, kind, options.epochs))
        medians = {}
        for kind, name in kinds.items():
            medians[kind] = statistics.median(speeds[kind])
            print(f'lenet, {name}: {medians[kind]:,.0f} images/s ({min(speeds[kind]):,.0f} to {max(speeds[kind]):,.0f})')
        good = judge('lenet, ranks of threads', medians['ranks'] / medians['threads'], LEAST_OF_THREADS)
        good &= judge('lenet, processes of ranks', medians['processes'] / medians['ranks'], LEAST_OF_IN_PROCESS)
        if not options.skip_resnet:
            threads, ranks = resnet_speeds(heddle, folder, options.rounds)
            print(f'resnet18, one rank, 2 threads: {threads:,.0f} images/s; 2 ranks, a thread each: {ranks:,.0f} images/s')
            good &= judge('resnet18, ranks of threads', ranks / threads, LEAST_OF_THREADS)
    return 0 if good else 1


def end_by_exception(number, _):
    sys.exit(128 + number)


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, end_by_exception)
    try:
        sys.exit(main())
    except Failed as failure:
        print(failure, file=sys.stderr)
        sys.exit(2)
