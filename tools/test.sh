#!/usr/bin/env bash
# Builds everything and runs all tests; the last line is `N passed, N failed, N skipped`, where a Catch2 program counts
# each of its test cases (tools/count_tests.py). Installs what is missing (Debian 12, Ubuntu 24.04; says what). Safe to
# repeat. Exit code 1 if a test fails or the build does.
#
# Where the headers of CUDA, cuBLAS and cuDNN are, a second build runs what a GPU matters to on a simulated one. Where
# nvcc and the libraries are, too, a third one runs the same on the plugin that nvcc compiles, with the simulated CUDA
# in the place of the real libraries; and with those, what the program does on a machine without a driver.
#
# usage: tools/test.sh [--sanitize[=thread]] [--werror] [--no-simulation] [--no-nvcc] [-D...]
#                      [-- ARGUMENTS OF meson test]
#   --sanitize        builds with AddressSanitizer and UndefinedBehaviorSanitizer; one build for everything, with the
#                     simulated GPU where its headers are
#   --sanitize=thread builds with ThreadSanitizer, and runs only what several threads of the program take part in
#   --werror          warnings are errors
#   --no-simulation   without the simulated GPU, and without what nvcc compiles
#   --no-nvcc         without what nvcc compiles; sanitizers leave it out, too
#   -DOPTION=VALUE    is handed on to Meson
# HEDDLE_BUILD_DIR: the build folder, default build, build-sanitize or build-races; -simulated is added for the simulated
# GPU's, -nvcc for the third.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh
options=(-Dtests=enabled -Dtools=enabled)
arguments=()
build=build
targets=''
simulation=yes
nvcc=yes
sanitize=no
while [ $# -gt 0 ]; do
  case "$1" in
    --sanitize)
      build='build-sanitize'
      # -O1 keeps the sanitizers' stack traces readable and the build short.
      options+=('-Db_sanitize=address,undefined' -Doptimization=1 -Db_lundef=false -Ddefault_library=shared)
      # What looks at installed files and scripts learns nothing from sanitizers.
      arguments+=(--setup sanitize --no-suite install --no-suite scripts)
      nvcc=no sanitize=yes
      ;;
    --sanitize=thread)
      build='build-races'
      targets='race_tests'
      options+=(-Db_sanitize=thread -Doptimization=1 -Db_lundef=false -Ddefault_library=shared)
      arguments+=(--setup races --suite races)
      nvcc=no sanitize=thread
      ;;
    --werror) options+=(-Dwerror=true) ;;
    --no-simulation) simulation=no nvcc=no ;;
    --no-nvcc) nvcc=no ;;
    -D*) options+=("$1") ;;
    --)
      shift
      arguments+=("$@")
      break
      ;;
    *)
      sed -n '2,/^set/p' "$0" | grep '^#' >&2
      exit 2
      ;;
  esac
  shift
done
build=${HEDDLE_BUILD_DIR:-$build}

install_packages "${build_packages[@]}" "${test_packages[@]}"
for package in "${optional_packages[@]}" "${optional_test_packages[@]}"; do
  try_package "$package" || say "the package $package is not to be had: tests that need it are skipped"
done
try_package dataset-fashion-mnist || say "the Fashion-MNIST package is not to be had: tests on the real data are skipped"
# Several test programs with several threads each share the cores: a thread that spins while it waits takes the core from
# the one that it waits for. Timeouts are for a quiet machine, this one may be busy.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
[[ " ${arguments[*]-} " == *" --setup "* ]] || arguments+=(--timeout-multiplier 3)
# ThreadSanitizer wants memory where kernels of some distributions do not put it, unless addresses are not random.
runner=()
[ "$sanitize" = thread ] && setarch -R true 2>/dev/null && runner=(setarch -R)
status=0
logs=()

# run_tests FOLDER TARGETS ARGUMENTS...: builds the targets (words; none: everything) and runs tests.
run_tests() {
  local folder=$1 targets=$2
  shift 2
  say "building ${targets:-everything} in $folder"
  # shellcheck disable=SC2086
  compile "$folder" $targets || {
    say "the build failed"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
  }
  say "running the tests in $folder"
  # A log of an earlier run must not be counted if this run does not come to write one.
  rm -f "$folder"/meson-logs/testlog*.json
  "${runner[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs "$@" </dev/null || status=1
  logs+=("$folder"/meson-logs/testlog*.json)
}

if [ "$sanitize" != no ] && [ "$simulation" = yes ] && ! missing_cuda_header >/dev/null; then
  options+=(-Dcuda=sim)
fi
configure "$build" "${options[@]}"
run_tests "$build" "$targets" "${arguments[@]}"
if [ "$simulation" = no ]; then
  say "left out: the tests on the simulated GPU"
elif header=$(missing_cuda_header); then
  say "left out: the tests on the simulated GPU, which need the headers of CUDA, cuBLAS and cuDNN ($header)"
elif [ "$sanitize" = no ]; then
  # Optimised as the first build is, so that a compiler cache gives what both have.
  configure "$build-simulated" "${options[@]}" -Dcuda=sim -Ddefault_library=shared
  run_tests "$build-simulated" gpu_tests "${arguments[@]}" --suite gpu
fi
if [ "$nvcc" = no ]; then
  say "left out: the tests of what nvcc compiles"
elif part=$(missing_cuda_toolkit); then
  say "left out: the tests of what nvcc compiles, which need nvcc and the libraries of CUDA ($part)"
else
  # One generation of GPUs: the simulated one's.
  configure "$build-nvcc" "${options[@]}" -Dcuda=enabled -Dgpu_arch=90 -Ddrop_in=true -Ddefault_library=shared
  run_tests "$build-nvcc" gpu_tests "${arguments[@]}" --setup dropin --suite gpu --suite drop-in --suite no-gpu \
    --no-suite real-libraries
fi
python3 tools/count_tests.py "${logs[@]}" || status=1
exit $status
