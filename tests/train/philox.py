"""RandomStream of include/tigon/core/philox.hpp in numpy: what the program draws, drawn again."""

import numpy as np


def blocks(seed, step, tensor, index):
    """Philox 4x32-10: four words for each index."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    index = np.asarray(index, np.uint64)
    c = [index & mask, index >> shift, np.full_like(index, step), np.full_like(index, tensor)]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        low, high = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (high >> shift) ^ c[1] ^ np.uint64(keys[0]),
            high & mask,
            (low >> shift) ^ c[3] ^ np.uint64(keys[1]),
            low & mask,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, -1).astype(np.float64)


def normal(seed, step, tensor, first, count):
    """`count` standard normal numbers from element `first` on."""
    element = np.arange(first, first + count)
    words = blocks(seed, step, tensor, element // 4)
    pair = element % 4 // 2 * 2
    at = np.arange(count)
    u, angle = (words[at, pair] + 1) * 2.0**-32, 2 * np.pi * words[at, pair + 1] * 2.0**-32
    return np.sqrt(-2 * np.log(u)) * np.where(element % 2 == 0, np.cos(angle), np.sin(angle))
