#!/bin/sh
# Gives the simulated CUDA the names of the real libraries, in a folder of their own for LD_LIBRARY_PATH.
#   link_libraries.sh LIBRARY MARK FOLDER NAME...
set -eu
library=$(readlink -f "$1")
mark=$2
folder=$3
shift 3
mkdir -p "$folder"
for name in "$@"; do
  ln -sf "$library" "$folder/$name"
done
touch "$mark"
