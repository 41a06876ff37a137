#!/usr/bin/env python3
"""Trainings of several ranks to which something bad happens at a random moment: nobody waits for ever, everybody who is
left says what happened, no process stays, and what was saved can be used.

    fault_trials_test.py PROGRAM HAS_GLOO [--trials N] [--seed S]

A trial is a function of its seed, up to the timing of the machine; trial i has the seed S + i, which is printed. The
suite runs a few with a fixed seed, by hand there can be more. Exits with 77 (skipped) in a build without Gloo.
"""
import argparse
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from idx_files import write_dataset  # noqa: E402
from program_runs import check, description_of, kill_processes, program_processes, rank_environment  # noqa: E402
from program_runs import read_text, wait_until  # noqa: E402

SKIPPED = 77
TIMEOUT = 6  # --comm-timeout, which holds for each stage of joining, too
# Joining has a handful of stages; the rest is for machines that are busy.
DEADLINE = 6 * TIMEOUT + 60
TRAIN_IMAGES = 97


class Failure(Exception):
    pass


def has_handler(pid, number):
    """Whether the process has a handler for the signal; a dead one has none."""
    try:
        lines = read_text(f'/proc/{pid}/status').splitlines()
    except ProcessLookupError:
        return False
    return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in lines if line.startswith('SigCgt:'))


def expect(condition, text):
    if not condition:
        raise Failure(text)


class Trial:
    """One training with its faults. Functions whose name begins with fault_ are the kinds; each does something to the
    ranks and then says what it expects of them."""

    def __init__(self, program, seed, kind):
        self.program, self.seed, self.kind = program, seed, kind
        self.random = random.Random(seed)
        self.ranks = self.random.randint(2, 4)
        self.victim = self.random.randrange(self.ranks)
        # At some time after the start, or in the training, where an epoch with its checkpoint takes some 20 ms.
        self.in_training = self.random.random() < 0.6
        self.delay = self.random.uniform(0, 1.2 if self.in_training else 0.5)
        self.folder = tempfile.mkdtemp(prefix='heddle-trial-')
        self.data = os.path.join(self.folder, 'data')
        self.run_folder = os.path.join(self.folder, 'run')
        self.processes = {}
        write_dataset(self.data, TRAIN_IMAGES, 20)

    def describe(self):
        when = f'{self.delay:.2f} s after ' + ('the first epoch' if self.in_training else 'the start')
        return f'{self.kind}, {self.ranks} ranks, victim {self.victim}, {when}'

    # ---- the ranks ----

    def train_command(self, *more, data=None):
        return [self.program, 'train', '--dataset', 'idx', '--data-dir', data or self.data, '--out', self.run_folder,
                '--batch-size', '32', '--lr', '0.05', '--momentum', '0.9', '--threads', '1', '--epochs', '1000000',
                '--comm-timeout', str(TIMEOUT), *more]

    def launch(self, rank, command, environment=None, limit=None):
        def prepare():
            # What shells start in the background is told to ignore it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with open(self.output(rank), 'wb') as out, open(self.errors(rank), 'wb') as err:
            self.processes[rank] = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                                                    env=environment, preexec_fn=prepare)

    def start(self, without=(), data=None, limits=None):
        """data: rank -> folder; limits: rank -> largest file in bytes."""
        for rank in self.random.sample(range(self.ranks), self.ranks):
            if rank in without:
                continue
            command = self.train_command('--store', 'file:' + os.path.join(self.folder, 'meet'),
                                         data=(data or {}).get(rank))
            self.launch(rank, command, rank_environment(rank, self.ranks), (limits or {}).get(rank))

    def start_threads(self, limit=None):
        self.victim = 0
        self.launch(0, self.train_command('--ranks', str(self.ranks)), limit=limit)

    def output(self, rank):
        return os.path.join(self.folder, f'out-{rank}')

    def errors(self, rank):
        return os.path.join(self.folder, f'err-{rank}')

    def wait_for_the_moment(self):
        if self.in_training:
            expect(wait_until(lambda: 'epoch 1/' in read_text(self.output(0)) or self.anyone_ended(), DEADLINE),
                   'no epoch was trained')
            expect(not self.anyone_ended(), 'a rank ended before anything happened to it')
        time.sleep(self.delay)

    def anyone_ended(self):
        return any(process.poll() is not None for process in self.processes.values())

    def signal(self, rank, number):
        self.processes[rank].send_signal(number)

    def others(self):
        return [rank for rank in self.processes if rank != self.victim]

    def wait_for(self, ranks):
        """Until they have ended. Returns the seconds that it took."""
        begin = time.monotonic()
        for rank in ranks:
            if not wait_until(lambda rank=rank: self.processes[rank].poll() is not None,
                              DEADLINE - (time.monotonic() - begin)):
                raise Failure(f'rank {rank} still runs after {DEADLINE} s')
        return time.monotonic() - begin

    def code(self, rank):
        return self.processes[rank].returncode

    # ---- what must hold ----

    def expect_failed(self, ranks, names=None):
        """They ended with 1, and each names the rank, or any rank if names is None, with a reason."""
        wanted = r'ranks? [\d, ]*\b' + (r'\d+' if names is None else str(names)) + r'\b'
        for rank in ranks:
            text = read_text(self.errors(rank))
            expect(self.code(rank) == 1, f'rank {rank} ended with {self.code(rank)}, expected 1')
            # A rank's own prefix names nobody. Who is lost between meeting and connecting cannot be told apart.
            words = re.sub(r'^\[rank \d+\] ', '', text, flags=re.M)
            expect(re.search(wanted, words) or (not self.in_training and 'cannot connect to the others' in words),
                   f'rank {rank} does not name rank {names}')

    def expect_stopped(self, ranks, number):
        for rank in ranks:
            expect(self.code(rank) == 128 + number, f'rank {rank} ended with {self.code(rank)}, expected {128 + number}')
        expect(description_of(self.run_folder).get('result', {}).get('finished') is False,
               'run.json does not say that the run was interrupted')

    def expect_usable(self):
        """What is in the run's folder can be evaluated and trained on, if an epoch was reported."""
        reported = re.findall(r'^epoch (\d+)/', read_text(self.output(0)), re.M)
        if not reported:
            return
        check(self.program, 'eval', '--checkpoint', self.run_folder, '--data-dir', self.data)
        with open(os.path.join(self.run_folder, 'metrics.jsonl'), encoding='utf-8') as file:
            done = len(file.readlines())
        expect(done >= int(reported[-1]), f'metrics.jsonl has {done} epochs, {reported[-1]} were reported')
        check(self.program, 'train', '--resume', self.run_folder, '--epochs', str(done + 2), '--ranks',
              str(self.random.randint(1, 3)))
        expect(description_of(self.run_folder)['result']['epochs'] == done + 2, 'the resumed run is not finished')

    def expect_no_crash(self):
        for rank, process in self.processes.items():
            expect(process.returncode not in (-6, -7, -8, -11), f'rank {rank} crashed with {process.returncode}')
            errors = read_text(self.errors(rank))
            for text in ('terminate called', 'AddressSanitizer', 'LeakSanitizer', 'ThreadSanitizer', 'runtime error:'):
                expect(text not in errors, f'rank {rank} printed "{text}"')

    # ---- the kinds ----

    def fault_kill(self):
        self.start()
        self.wait_for_the_moment()
        self.signal(self.victim, signal.SIGKILL)
        self.wait_for(self.processes)
        self.expect_failed(self.others(), self.victim)

    def fault_stop(self):
        self.start()
        self.wait_for_the_moment()
        self.signal(self.victim, signal.SIGSTOP)
        self.wait_for(self.others())
        self.expect_failed(self.others(), self.victim)
        self.signal(self.victim, signal.SIGCONT)
        self.wait_for([self.victim])
        self.expect_failed([self.victim])

    def fault_stop_briefly(self):
        """Shorter than the time: nothing happens, and a signal still ends the run in order."""
        self.in_training = True
        self.start()
        self.wait_for_the_moment()
        self.signal(self.victim, signal.SIGSTOP)
        time.sleep(self.random.uniform(0, TIMEOUT / 3))
        self.signal(self.victim, signal.SIGCONT)
        time.sleep(self.random.uniform(0, 0.5))
        self.signal(self.random.randrange(self.ranks), signal.SIGTERM)
        self.wait_for(self.processes)
        self.expect_stopped(self.processes, signal.SIGTERM)

    def signal_ranks(self, ranks, number):
        """Then all have stopped in order; or, if one of them did not listen yet, the others have missed it."""
        self.start()
        self.wait_for_the_moment()
        for rank in ranks:
            self.signal(rank, number)
        self.wait_for(self.processes)
        if any(self.code(rank) == -number for rank in ranks):
            self.expect_failed([r for r in self.processes if self.code(r) not in (-number, 128 + number)])
        elif os.path.exists(self.run_folder):
            self.expect_stopped(self.processes, number)
        else:
            for rank in self.processes:
                expect(self.code(rank) in (128 + number, 1), f'rank {rank} ended with {self.code(rank)}')

    def fault_term_to_one(self):
        self.signal_ranks([self.victim], signal.SIGTERM)

    def fault_interrupt_to_all(self):
        self.signal_ranks(self.random.sample(range(self.ranks), self.ranks), signal.SIGINT)

    def fault_second_signal_while_another_rank_is_stopped(self):
        """A rank that can only wait is left at once by a second signal, behind the time in which it is an echo."""
        self.in_training = True
        self.start()
        self.wait_for_the_moment()
        self.signal(self.victim, signal.SIGSTOP)
        one = self.random.choice(self.others())
        self.signal(one, signal.SIGTERM)
        time.sleep(3.5)
        self.signal(one, signal.SIGTERM)
        expect(wait_until(lambda: self.processes[one].poll() is not None, 10), f'rank {one} did not leave at once')
        expect(self.code(one) == 128 + signal.SIGTERM, f'rank {one} ended with {self.code(one)}')
        self.wait_for(self.others())
        self.signal(self.victim, signal.SIGCONT)
        self.wait_for([self.victim])
        self.expect_failed([rank for rank in self.processes if rank != one])

    def fault_no_data(self):
        nowhere = os.path.join(self.folder, 'nowhere')
        self.start(data={self.victim: nowhere})
        self.wait_for(self.processes)
        self.expect_failed(self.others(), self.victim)
        expect(self.code(self.victim) in (1, 2), f'the victim ended with {self.code(self.victim)}')
        expect('nowhere' in read_text(self.errors(self.victim)), 'the victim does not name the folder')

    def fault_other_data(self):
        """As many images or not: the ranks must not train on."""
        other = os.path.join(self.folder, 'other')
        write_dataset(other, TRAIN_IMAGES + self.random.choice([0, -5, 32]), 20)
        with open(os.path.join(other, 'train-images-idx3-ubyte'), 'r+b') as file:
            file.seek(16 + self.random.randrange(TRAIN_IMAGES - 5) * 784)
            file.write(bytes(784))
        self.start(data={self.victim: other})
        self.wait_for(self.processes)
        self.expect_failed(self.processes)
        expect(any('data' in read_text(self.errors(rank)) for rank in self.processes), 'nobody says that it is the data')

    def fault_full_disk(self):
        """Rank 0 may write no file as large as a checkpoint."""
        self.victim = 0
        self.start(limits={0: self.random.randint(20_000, 300_000)})
        self.wait_for(self.processes)
        self.expect_full()
        self.expect_failed(self.others(), 0)

    def expect_full(self):
        expect(self.code(0) == 1, f'rank 0 ended with {self.code(0)}, expected 1')
        expect('checkpoints' in read_text(self.errors(0)), 'rank 0 does not name the file')

    def fault_disk_fills_up(self):
        """A file system of its own that something else fills at the moment; needs the right to mount one."""
        place = os.path.join(self.folder, 'disk')
        os.mkdir(place)
        if os.geteuid() != 0 or subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=8m', 'heddle', place],
                                               capture_output=True, check=False).returncode != 0:
            return self.fault_full_disk()
        try:
            self.victim, self.in_training = 0, True
            self.run_folder = os.path.join(place, 'run')
            self.start()
            self.wait_for_the_moment()
            filler = os.path.join(place, 'filler')
            with open(filler, 'wb', buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
            self.wait_for(self.processes)
            expect(self.code(0) == 1, f'rank 0 ended with {self.code(0)}, expected 1')
            expect(place in read_text(self.errors(0)), 'rank 0 does not name the file')
            self.expect_failed(self.others(), 0)
            os.remove(filler)
            self.expect_usable()
        finally:
            kill_processes(self.program, self.folder)
            wait_until(lambda: subprocess.run(['umount', place], check=False, capture_output=True).returncode == 0, 10)
        return None

    def fault_missing(self):
        self.start(without=[self.victim])
        self.wait_for(self.processes)
        self.expect_failed(self.processes, self.victim)

    def fault_missing_and_interrupted(self):
        """Whoever waits for a rank that does not come can be told to stop."""
        self.in_training, self.delay = False, self.random.uniform(1, 2)
        self.start(without=[self.victim])
        self.wait_for_the_moment()
        for rank in self.processes:
            expect(wait_until(lambda: has_handler(self.processes[rank].pid, signal.SIGINT), DEADLINE),
                   f'rank {rank} has no handler for SIGINT')
            self.signal(rank, signal.SIGINT)
        seconds = self.wait_for(self.processes)
        expect(seconds < TIMEOUT - 2, f'they waited {seconds:.1f} s longer')
        for rank in self.processes:
            expect(self.code(rank) == 130, f'rank {rank} ended with {self.code(rank)}, expected 130')

    def fault_threads_killed(self):
        self.start_threads()
        self.wait_for_the_moment()
        self.signal(0, signal.SIGKILL)
        self.wait_for([0])

    def fault_threads_interrupted(self):
        self.start_threads()
        self.wait_for_the_moment()
        number = self.random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        self.signal(0, number)
        seconds = self.wait_for([0])
        expect(seconds < 10, f'it took {seconds:.1f} s')
        if self.code(0) != -number:
            expect(self.code(0) == 128 + number, f'it ended with {self.code(0)}')
        if self.code(0) == 128 + number and os.path.exists(self.run_folder):
            self.expect_stopped([0], number)

    def fault_threads_full_disk(self):
        self.start_threads(limit=self.random.randint(20_000, 300_000))
        self.wait_for([0])
        self.expect_full()

    # ---- all of it ----

    def play(self):
        try:
            getattr(self, 'fault_' + self.kind)()
            self.expect_no_crash()
            expect(not program_processes(self.program, self.folder), 'a process is left')
            if os.path.exists(self.run_folder):
                self.expect_usable()
        finally:
            kill_processes(self.program, self.folder)
            for process in self.processes.values():
                process.wait()

    def report(self):
        for rank in sorted(self.processes):
            print(f'--- rank {rank}: {self.code(rank)}')
            print(read_text(self.output(rank))[-1500:])
            print(read_text(self.errors(rank))[-3000:], flush=True)

    def clean_up(self):
        shutil.rmtree(self.folder, ignore_errors=True)


KINDS = [name[len('fault_'):] for name in vars(Trial) if name.startswith('fault_')]


def kind_of(seed):
    """Seeds that follow each other go through all kinds in an order that looks random."""
    turn, place = divmod(seed, len(KINDS))
    return random.Random(turn).sample(KINDS, len(KINDS))[place]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('has_gloo')
    parser.add_argument('--trials', type=int, default=50)
    parser.add_argument('--seed', type=int, default=None)
    parser.add_argument('--kind', choices=KINDS)
    parser.add_argument('--keep', action='store_true', help='leaves the folders of trials that failed')
    arguments = parser.parse_args()
    if arguments.has_gloo != 'true':
        print('this build has no Gloo')
        return SKIPPED
    first = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    failed = []
    for seed in range(first, first + arguments.trials):
        trial = Trial(os.path.realpath(arguments.program), seed, arguments.kind or kind_of(seed))
        begin = time.monotonic()
        problem = None
        try:
            trial.play()
        except (Failure, AssertionError, subprocess.TimeoutExpired) as error:
            problem = error
        codes = [trial.code(rank) for rank in sorted(trial.processes)]
        print(f'seed {seed}: {trial.describe()}: exit codes {codes}, {time.monotonic() - begin:.1f} s'
              + (f': FAILED: {problem}' if problem else ''), flush=True)
        if problem:
            failed.append(seed)
            trial.report()
        if not (problem and arguments.keep):
            trial.clean_up()
    print(f'{arguments.trials - len(failed)} of {arguments.trials} trials passed'
          + (f'; repeat one that failed with --trials 1 --seed S, S one of {failed}' if failed else ''))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
