"""Allocates from Python, with the interpreter's lock held (PyDLL) or given back as most extensions do (CDLL).

    sites.py RUNTIME held|given_back [part…]
"""
import ctypes
import sys
import threading

MIB = 1 << 20
runtime, lock = sys.argv[1:3]
library = (ctypes.PyDLL if lock == "held" else ctypes.CDLL)(runtime)
kept = []


def remember(size):
    pointer = ctypes.c_void_p()
    assert library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    kept.append(pointer)
    return pointer


class Modèle:
    def forward(self, size):
        pointer = remember(size)
        assert library.cudaFree(pointer) == 0


def deep(depth):
    return remember(MIB) if depth == 0 else deep(depth - 1)


def generator():
    for size in (MIB, 2 * MIB):
        yield remember(size)


def main():
    for _ in range(3):
        remember(4 * MIB)
    Modèle().forward(16 * MIB)
    deep(100)
    list(generator())
    thread = threading.Thread(target=remember, args=(8 * MIB,))
    thread.start()
    thread.join()
    try:
        raise ValueError("kept")
    except ValueError as error:
        remember(MIB)
        assert str(error) == "kept"
    # The same place by two lines of one statement, and one that the interpreter calls back.
    sorted([2, 1], key=lambda item: remember(item * MIB) and item)


main()
print("ok")
