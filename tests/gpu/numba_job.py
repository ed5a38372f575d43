"""Numba kernels on device arrays that come and go. Prints a RESULT line and TIME seconds."""

import hashlib
import time

import numpy

from numba_here import cuda


@cuda.jit
def mix(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] * 3 + (b[out.size - 1 - i] ^ i)


def main():
    random = numpy.random.default_rng(1)
    state, start = hashlib.sha256(), None
    streams = [cuda.stream() for _ in range(3)]
    for i in range(300):
        size = int(random.integers(1_000, 500_000))
        stream = streams[i % 3]
        a = cuda.to_device(random.integers(0, 1 << 40, size), stream=stream)
        b = cuda.to_device(random.integers(0, 1 << 40, size), stream=stream)
        out = cuda.device_array(size, numpy.int64, stream=stream)
        mix[(size + 255) // 256, 256, stream](a, b, out)
        mix[(size + 255) // 256, 256, stream](out, a, b)
        state.update(b.copy_to_host(stream=stream).tobytes())
        stream.synchronize()
        start = start or time.perf_counter()
    print(f"RESULT numba {state.hexdigest()[:16]}")
    print(f"TIME {time.perf_counter() - start:.2f}", flush=True)


main()
