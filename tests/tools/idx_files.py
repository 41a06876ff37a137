"""Small data sets for tests that train with the program."""
import os
import random
import struct


def write_dataset(folder, n_train, n_test):
    """Four IDX files with images of 28x28, each a bright bar whose place is its label, on noise."""
    os.makedirs(folder)
    noise = random.Random(1)
    for name, count in (('train', n_train), ('t10k', n_test)):
        labels = bytes(noise.randrange(10) for _ in range(count))
        images = bytearray()
        for label in labels:
            image = bytearray(noise.randrange(64) for _ in range(28 * 28))
            for row in range(28):
                image[28 * row + 2 * label + 4] = 255
            images += image
        with open(os.path.join(folder, name + '-images-idx3-ubyte'), 'wb') as file:
            file.write(struct.pack('>IIII', 0x803, count, 28, 28) + images)
        with open(os.path.join(folder, name + '-labels-idx1-ubyte'), 'wb') as file:
            file.write(struct.pack('>II', 0x801, count) + labels)
