#!/usr/bin/env python3
"""Writes a small data set of 28x28 images as four IDX files: for steps whose results nobody looks at.

usage: tiny_data.py FOLDER TRAINING_IMAGES TEST_IMAGES

Image i shows a bright bar whose place is its class, i modulo 10, so that a model can learn it.
"""
import os
import struct
import sys

SIZE = 28


def image(i):
    rows = [bytes(30 + (x * 7 + y * 5 + i * 11) % 40 for x in range(SIZE)) for y in range(SIZE)]
    for y in range(2 * (i % 10) + 3, 2 * (i % 10) + 6):
        rows[y] = bytes([220] * SIZE)
    return b"".join(rows)


def write(folder, training, test):
    os.makedirs(folder, exist_ok=True)
    for name, count in (("train", training), ("t10k", test)):
        with open(os.path.join(folder, f"{name}-images-idx3-ubyte"), "wb") as f:
            f.write(struct.pack(">IIII", 0x803, count, SIZE, SIZE) + b"".join(image(i) for i in range(count)))
        with open(os.path.join(folder, f"{name}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
