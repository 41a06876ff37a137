#!/usr/bin/env bash
# Builds everything and runs all tests; the last line is `N passed, N failed, N skipped`, where a Catch2 program counts
# each of its test cases (tools/count_tests.py). Installs what is missing (Debian 12, Ubuntu 24.04; says what). Safe to
# repeat. Exit code 1 if a test fails or the build does.
#
# usage: tools/test.sh [--sanitize] [--werror] [-- ARGUMENTS OF meson test]
#   --sanitize   a second build with AddressSanitizer and UndefinedBehaviorSanitizer
#   --werror     warnings are errors
# HEDDLE_BUILD_DIR: the build folder, default build, or build-sanitize.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh
options=(-Dtests=enabled -Dtools=enabled)
arguments=()
build=build
while [ $# -gt 0 ]; do
  case "$1" in
    --sanitize)
      build='build-sanitize'
      # -O1 keeps the sanitizers' stack traces readable and the build short.
      options+=('-Db_sanitize=address,undefined' -Doptimization=1 -Db_lundef=false -Ddefault_library=shared)
      # What looks at installed files and scripts learns nothing from sanitizers.
      arguments+=(--setup sanitize --no-suite install --no-suite scripts)
      ;;
    --werror) options+=(-Dwerror=true) ;;
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
try_package dataset-fashion-mnist || say "the Fashion-MNIST package is not to be had: tests on the real data are skipped"
configure "$build" "${options[@]}"
say "building everything in $build"
compile "$build" || {
  say "the build failed"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}
say "running the tests"
# Several test programs with several threads each share the cores: a thread that spins while it waits takes the core from
# the one that it waits for. Timeouts are for a quiet machine, this one may be busy.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
[[ " ${arguments[*]-} " == *" --setup "* ]] || arguments+=(--timeout-multiplier 3)
status=0
# A log of an earlier run must not be counted if this run does not come to write one.
rm -f "$build"/meson-logs/testlog*.json
meson test -C "$build" --no-rebuild --print-errorlogs "${arguments[@]}" </dev/null || status=1
python3 tools/count_tests.py "$build"/meson-logs/testlog*.json || status=1
exit $status
