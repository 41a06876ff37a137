#!/usr/bin/env bash
# What only a machine with a GPU can show: builds for the GPU that is there, tests on the real libraries, compares the
# GPU with the CPU and Heddle with PyTorch. Installs nothing and needs no network: what is missing is named. See
# docs/gpu.md.
#
# usage: tools/gpu_check.sh [--part N] [--data-dir DIR] [--out DIR] [--python PROGRAM] [--simulated [--tests "NAME..."]]
#   --part N     one part; without, all in turn:
#                1 build and doctor, 2 tests, 3 compute-sanitizer, 4 accuracy, 5 kernels, 6 table
#   --data-dir   the four IDX files of Fashion-MNIST (or HEDDLE_DATA; else the usual places)
#   --out        where reports go, default gpu-check; the summary is gpu_check.json there
#   --python     a Python with PyTorch (else the first that has it)
#   --simulated  tries this script itself, on the simulated CUDA and tiny sizes: everything that it prints and writes
#                says so, and nothing is timed; --tests: names of tests for part 2
# HEDDLE_BUILD_DIR: the build folder, default build-gpu.
# Exit code: 0 if all parts that ran passed, 1 if one failed, 2 for wrong usage.
set -uo pipefail
start_folder=$PWD
cd "$(dirname "$0")/.." || exit 1
. tools/lib.sh

parts=(1 2 3 4 5 6)
part_names=([1]='build' [2]='tests' [3]='compute-sanitizer' [4]='accuracy' [5]='kernels' [6]='table')
# Each part ends by itself well before: nine minutes are what some machines give a command.
part_limit=520
data=${HEDDLE_DATA:-}
out=gpu-check
python=''
simulated=no
only_tests=''

usage() {
  sed -n '/^# usage/,/^set/p' "$0" | grep '^#' | cut -c 3- >&2
  exit 2
}
# Paths are relative to where the script was started.
absolute() { case "$1" in /*) echo "$1" ;; *) echo "$start_folder/$1" ;; esac; }

while [ $# -gt 0 ]; do
  case "$1" in
    --simulated) simulated=yes ;;
    --part | --data-dir | --out | --python | --tests)
      [ $# -ge 2 ] || usage
      case "$1" in
        --part)
          [[ "$2" =~ ^[1-6]$ ]] || usage
          parts=("$2")
          ;;
        --data-dir) data=$(absolute "$2") ;;
        --out) out=$(absolute "$2") ;;
        --python) python=$2 ;;
        --tests) only_tests=$2 ;;
      esac
      shift
      ;;
    *) usage ;;
  esac
  shift
done
build=${HEDDLE_BUILD_DIR:-build-gpu}
heddle=$build/tools/heddle
if [ "$simulated" = yes ]; then
  mark='simulated: '
  cuda_options=(-Dcuda=sim -Doptimization=1)
  wanted_gpu=simulated
else
  mark=''
  cuda_options=(-Dcuda=enabled -Dgpu_arch=native)
  wanted_gpu=real
  has_gpu || fail "no usable NVIDIA driver on this machine (nvidia-smi finds no GPU); this check is for machines with one"
fi
mkdir -p "$out" || fail "cannot make the folder $out"
out=$(cd "$out" && pwd)

head_line() { say "$mark$*"; }
built() { [ -x "$heddle" ] || { head_line "$heddle is missing: run --part 1 first"; return 1; }; }
# Runs a command within what is left of the part's time.
limited() {
  local left=$((part_end - SECONDS)) status=124
  [ "$left" -le 0 ] || { timeout --kill-after=10 "$left" "$@" && status=0 || status=$?; }
  [ "$status" != 124 ] || head_line "stopped: the time of a part is over"
  return "$status"
}

# A tiny data set for steps whose results nobody looks at.
tiny_data() { python3 tools/gpu_check/tiny_data.py "$out/tiny" "$1" "$2"; }

# Sets data to a folder with the four files of Fashion-MNIST; on the simulated GPU to a tiny one.
find_data() {
  local folder
  if [ "$simulated" = yes ]; then
    tiny_data 24 16 && data=$out/tiny
    return
  fi
  for folder in "$data" /usr/share/datasets/fashion-mnist "$HOME/.cache/heddle/fashion-mnist"; do
    [ -n "$folder" ] || continue
    if [ -f "$folder/train-images-idx3-ubyte" ] || [ -f "$folder/train-images-idx3-ubyte.gz" ]; then
      data=$folder
      return
    fi
  done
  head_line "Fashion-MNIST is missing: name its folder with --data-dir or HEDDLE_DATA"
  return 1
}

part_1() {
  local tool missing=()
  for tool in meson ninja python3; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  command -v c++ >/dev/null || [ -n "${CXX:-}" ] || missing+=(g++)
  if [ "$simulated" = no ] && ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then missing+=(nvcc); fi
  if [ ${#missing[@]} != 0 ]; then
    head_line "missing here: ${missing[*]}"
    return 1
  fi
  # What an earlier run configured is as it must be.
  if [ ! -f "$build/build.ninja" ]; then
    (configure "$build" -Dtests=enabled -Dtools=enabled -Ddefault_library=shared "${cuda_options[@]}") || return 1
  fi
  head_line "building in $build"
  # Some versions of ninja say in spite of --quiet that there is nothing to do.
  limited ninja -C "$build" -j "$(jobs)" --quiet gpu_tests </dev/null | sed '/^ninja: no work to do\.$/d' || return 1
  "$heddle" doctor >"$out/doctor.txt" 2>&1
  sed "s/^/$mark/" "$out/doctor.txt"
  if [ "$simulated" = no ] && grep -q 'simulated' "$out/doctor.txt"; then
    head_line "the build in $build has the simulated CUDA: remove the folder, or set HEDDLE_BUILD_DIR"
    return 1
  fi
  grep -Eq '^  usable GPUs +[1-9]' "$out/doctor.txt" || {
    head_line "heddle doctor finds no usable GPU"
    return 1
  }
}

part_2() {
  built || return 1
  local log=$build/meson-logs/gpu-check.json status=0
  rm -f "$log"
  # HEDDLE_TEST_GPU: a test program that does not find the GPU fails instead of testing the CPU alone.
  # shellcheck disable=SC2086
  HEDDLE_TEST_GPU=$wanted_gpu limited meson test -C "$build" --no-rebuild --print-errorlogs --logbase gpu-check \
    --suite gpu $only_tests </dev/null >/dev/null 2>&1 || status=1
  [ -s "$log" ] || {
    head_line "no test ran: meson test -C $build --suite gpu says why"
    return 1
  }
  head_line "$(python3 tools/count_tests.py "$log"), see ${log%.json}.txt"
  if grep -q '"result": "SKIP"' "$log"; then
    head_line "a test was skipped"
    return 1
  fi
  return "$status"
}

part_3() {
  built || return 1
  local sanitizer tool graph status=0
  sanitizer=$(command -v compute-sanitizer || true)
  [ -n "$sanitizer" ] || [ ! -x /usr/local/cuda/bin/compute-sanitizer ] || sanitizer=/usr/local/cuda/bin/compute-sanitizer
  if [ -z "$sanitizer" ]; then
    head_line "compute-sanitizer is not here: nothing was checked with it"
    return 0
  fi
  tiny_data 256 64 || return 1
  for tool in memcheck racecheck synccheck initcheck; do
    for graph in --graph --no-graph; do
      # Launches in a recording are looked at one by one only by memcheck.
      [ "$graph" = --no-graph ] || [ $tool = memcheck ] || continue
      rm -rf "$out/sanitized"
      if limited "$sanitizer" --tool "$tool" --error-exitcode 1 "$heddle" train --model lenet --dataset idx \
        --data-dir "$out/tiny" --batch-size 64 --epochs 2 --device cuda "$graph" --out "$out/sanitized" \
        >"$out/$tool$graph.txt" 2>&1 </dev/null; then
        head_line "$tool $graph: nothing found"
        # The program prints how long epochs took.
        [ "$simulated" = no ] || rm "$out/$tool$graph.txt"
      else
        tail -n 20 "$out/$tool$graph.txt"
        head_line "$tool $graph: see $out/$tool$graph.txt"
        status=1
      fi
    done
  done
  rm -rf "$out/sanitized"
  return $status
}

part_4() {
  built && find_data || return 1
  local sizes=()
  [ "$simulated" = no ] || sizes=(--model lenet --batch 8)
  limited python3 tools/gpu_check/accuracy.py --heddle "$heddle" --data-dir "$data" --json "$out/accuracy.json" "${sizes[@]}"
}

part_5() {
  built || return 1
  local what=(all)
  [ "$simulated" = no ] || what=(--model lenet --batch-size 2)
  limited "$heddle" bench "${what[@]}" --device cuda --json "$out/bench.json" >"$out/bench.txt" 2>&1 </dev/null || {
    tail -n 20 "$out/bench.txt"
    return 1
  }
  head_line "every kernel is right, see $out/bench.txt"
  grep '^heddle: warning' "$out/bench.txt" || true
}

part_6() {
  built && find_data || return 1
  local more=()
  if [ "$simulated" = yes ]; then
    more=(--simulated --batch 8 --epochs 1)
  else
    [ -n "$python" ] || python=$(PYTHONPATH=tools python3 -c 'import pytorch_peer; print(pytorch_peer.find_python() or "")')
    if [ -n "$python" ]; then more=(--python "$python"); else head_line "no Python with PyTorch: only Heddle's rows"; fi
  fi
  limited python3 tools/gpu_check/compare.py --heddle "$heddle" --data-dir "$data" --json "$out/table.json" "${more[@]}" \
    >"$out/table.txt"
}

results=()
status=0
for part in "${parts[@]}"; do
  head_line "part $part: ${part_names[$part]}"
  part_end=$((SECONDS + part_limit))
  if "part_$part"; then
    results+=("$part=passed")
  else
    results+=("$part=failed")
    head_line "part $part FAILED"
    status=1
    # Nothing else can run.
    [ "$part" != 1 ] || break
  fi
done
python3 tools/gpu_check/summary.py "$out" "$wanted_gpu" "${results[@]}" || status=1
if [[ " ${results[*]} " == *" 6="* ]]; then cat "$out/table.txt"; fi
exit $status
