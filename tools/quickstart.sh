#!/usr/bin/env bash
# From a clone to a trained LeNet: installs what is missing (Debian 12, Ubuntu 24.04; says what), builds the program and
# trains on Fashion-MNIST. Safe to repeat. Arguments go to `heddle train`:
#   tools/quickstart.sh --epochs 3
# HEDDLE_BUILD_DIR: the build folder, default build. It never installs a driver or a GPU toolkit.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh
build=${HEDDLE_BUILD_DIR:-build}

install_packages "${build_packages[@]}"
# For the GPU that is there, if one can be used; a folder that somebody configured keeps what it has.
gpu=()
if [ ! -f "$build/build.ninja" ]; then
  if has_gpu; then gpu=(-Dcuda=auto -Dgpu_arch=native); else gpu=(-Dcuda=disabled); fi
fi
configure "$build" -Dtools=enabled "${gpu[@]}"
say "building heddle"
targets=(tools/heddle)
[ -z "$(ninja -C "$build" -t query kernels/libheddle_cuda.so 2>/dev/null)" ] || targets+=(kernels/libheddle_cuda.so)
compile "$build" "${targets[@]}" || fail "the build failed"
heddle=$build/tools/heddle

# The package brings the files without a download from elsewhere; heddle finds them. A data set of the caller's wins.
if [[ " $* " != *" --data-dir"* && " $* " != *" --dataset"* && -z ${HEDDLE_DATA:-} ]]; then
  if ! "$heddle" data verify >/dev/null 2>&1 && ! try_package dataset-fashion-mnist; then
    command -v curl >/dev/null || command -v wget >/dev/null || install_packages curl ca-certificates
    say "downloading Fashion-MNIST"
    "$heddle" data fetch </dev/null
  fi
fi

# Each flag may be given once, so the defaults are only for what the caller leaves open.
arguments=("$@")
if [[ " $* " != *" --resume"* ]]; then
  [[ " $* " == *" --preset"* || " $* " == *" --config"* ]] || arguments=(--preset seed "${arguments[@]}")
  [[ " $* " == *" --model"* || " $* " == *" --config"* ]] || arguments=(--model lenet "${arguments[@]}")
fi
say "training: heddle train ${arguments[*]}"
exec "$heddle" train "${arguments[@]}"
