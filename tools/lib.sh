# Functions that quickstart.sh, test.sh and .ci/run share. To be sourced by bash.
# They say what they do, ask for root rights only when something is missing, and can be repeated.
# shellcheck shell=bash disable=SC2034

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Packages of Debian 12 and Ubuntu 24.04 for the program and for the tests.
build_packages=(g++ meson ninja-build pkg-config libdnnl-dev nlohmann-json3-dev libcli11-dev libfmt-dev zlib1g-dev
  libpng-dev)
test_packages=(catch2 cmake make git)
# What the program can do without, and tests then skip: ranks in several processes, a launcher to start them, and networks
# to lie between them.
optional_packages=(libgloo-dev)
optional_test_packages=(openmpi-bin iproute2)

# True if the Debian package is installed. A program that is on PATH counts for its package.
package_present() {
  case "$1" in
    g++ | meson | cmake | make | git) command -v "$1" >/dev/null && return 0 ;;
    ninja-build) command -v ninja >/dev/null && return 0 ;;
    pkg-config) command -v pkg-config >/dev/null && return 0 ;;
  esac
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Runs a command as root: directly, or by sudo, which may ask for a password on a terminal only.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif [ -t 0 ]; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

can_be_root() {
  [ "$(id -u)" = 0 ] && return 0
  command -v sudo >/dev/null || return 1
  [ -t 0 ] || sudo -n true 2>/dev/null
}

apt_updated=no
# Fetches the package lists once, as root; false if that fails.
update_package_lists() {
  [ "$apt_updated" = yes ] && return
  say "fetching the package lists"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 update </dev/null || return 1
  apt_updated=yes
}

# Installs those of the named packages that are missing. Never touches drivers or toolkits.
install_packages() {
  local package missing=()
  if ! command -v dpkg-query >/dev/null; then
    say "no dpkg here: not installing anything. Needed are g++ 12 or clang 14, Meson 1.0, Ninja, pkg-config, oneDNN 2.6," \
      "nlohmann-json, CLI11, fmt, zlib, libpng, for the tests Catch2 and CMake"
    return
  fi
  for package in "$@"; do
    package_present "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    say "everything that is needed is installed"
    return
  fi
  say "missing packages: ${missing[*]}"
  can_be_root || fail "not root and no sudo. Ask an administrator for: apt-get install ${missing[*]}"
  update_package_lists || fail "apt-get update failed"
  say "installing: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
    --no-install-recommends install "${missing[@]}" </dev/null >/dev/null || fail "apt-get install ${missing[*]} failed"
}

# Installs the package if this distribution has it; true if it is installed afterwards. Never fails.
try_package() {
  command -v dpkg-query >/dev/null || return 1
  package_present "$1" && return 0
  can_be_root || return 1
  if ! apt-cache show "$1" >/dev/null 2>&1; then
    update_package_lists || return 1
    apt-cache show "$1" >/dev/null 2>&1 || return 1
  fi
  say "installing: $1"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
    --no-install-recommends install "$1" </dev/null >/dev/null && package_present "$1"
}

# The folder of the CUDA toolkit that Meson takes.
cuda_root() {
  if command -v nvcc >/dev/null; then
    dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")"
  else
    echo /usr/local/cuda
  fi
}

# True if the compiler finds cuDNN's header without being told where. It needs headers of the toolkit itself.
has_system_cudnn_header() {
  echo '#include <cudnn.h>' | ${CXX:-c++} -I"$(cuda_root)/include" -E -x c++ - >/dev/null 2>&1
}

# Says which header of the CUDA libraries is missing where Meson looks for them; false if all are there.
missing_cuda_header() {
  local root header
  root=$(cuda_root)
  for header in cuda_runtime_api.h cublasLt.h cudnn.h; do
    [ -f "$root/include/$header" ] && continue
    # A package of its own, which may lie where the compiler looks.
    [ "$header" = cudnn.h ] && has_system_cudnn_header && continue
    echo "no $root/include/$header"
    return 0
  done
  return 1
}

# Says what of a toolkit that compiles and links the CUDA plugin is missing; false if all is there.
missing_cuda_toolkit() {
  local root file
  missing_cuda_header && return 0
  root=$(cuda_root)
  for file in bin/nvcc lib64/libcudart.so lib64/libcublasLt.so lib64/libcudnn.so; do
    [ -e "$root/$file" ] && continue
    if [ "$file" = lib64/libcudnn.so ] && [ ! -f "$root/include/cudnn.h" ] &&
      ${CXX:-c++} -shared -x c++ /dev/null -x none -lcudnn -o /dev/null 2>/dev/null; then
      continue
    fi
    echo "no $root/$file"
    return 0
  done
  return 1
}

# True if an NVIDIA driver answers on this machine.
has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

# Stops with one sentence if Meson is too old (Ubuntu 22.04).
check_meson() {
  command -v meson >/dev/null || fail "meson is not installed"
  local version
  version=$(meson --version)
  [ "$(printf '%s\n1.0\n' "$version" | sort -V | head -1)" = 1.0 ] ||
    fail "Heddle needs Meson 1.0, here is $version. Debian 12 and Ubuntu 24.04 have it; elsewhere: pipx install meson"
}

# configure DIR OPTION...: sets up a build folder with release flags, or applies the options to one that exists (whose
# other options stay as they are).
configure() {
  local folder=$1
  shift
  check_meson
  if [ -f "$folder/build.ninja" ]; then
    meson configure "$folder" "$@" </dev/null >/dev/null || fail "meson configure $folder $* failed"
  else
    say "configuring $folder"
    meson setup "$folder" --buildtype=release "$@" </dev/null >"$folder.log" 2>&1 || {
      cat "$folder.log" >&2
      fail "meson setup failed, see above"
    }
    sed -n '/^heddle [0-9]/,/^Found ninja/p' "$folder.log" | grep -v '^Found ninja' || true
    rm -f "$folder.log"
  fi
}

# Number of compilers to run: processors that this process may use, and one per GB of memory.
jobs() {
  local processors memory
  processors=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 1000000) + 1 }' /proc/meminfo 2>/dev/null || echo 2)
  echo $((processors < memory ? processors : memory))
}

# compile DIR [TARGET...]: with Ninja's progress line on a terminal, else in silence.
compile() {
  local folder=$1 quiet=(--quiet)
  shift
  [ -t 1 ] && quiet=()
  ninja -C "$folder" -j "$(jobs)" "${quiet[@]}" "$@" </dev/null
}
