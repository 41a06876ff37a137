"""What tests share that start the program `heddle` as several processes: find, watch and end them."""
import json
import os
import signal
import subprocess
import time


def program_processes(program, folder):
    """Processes of the program that work on the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                words = file.read().decode(errors='replace').split('\0')
        except OSError:
            continue
        if words[0] == program and any(folder in word for word in words):
            found.append(int(pid))
    return found


def kill_processes(program, folder):
    for pid in program_processes(program, folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def wait_until(condition, seconds):
    """True as soon as the condition is, false if that takes longer."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def description_of(run):
    with open(os.path.join(run, 'run.json'), encoding='utf-8') as file:
        return json.load(file)


def read_text(path):
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read()
    except FileNotFoundError:
        return ''


def rank_environment(rank, ranks):
    """Of a rank that is started by hand."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(('OMPI_', 'PMI', 'SLURM_', 'MASTER_', 'TORCHELASTIC_'))}
    return {**environment, 'RANK': str(rank), 'WORLD_SIZE': str(ranks)}


def check(*command):
    """Runs a command that must succeed; its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} exited {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout
