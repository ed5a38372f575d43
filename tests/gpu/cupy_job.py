"""CuPy without its own pool: every array is an allocation of the driver's. Prints a RESULT line and TIME seconds."""

import hashlib
import time

import cupy
import numpy

cupy.cuda.set_allocator(None)


def main():
    state = hashlib.sha256()
    random = numpy.random.default_rng(1)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    start = None
    for i in range(150):
        size = int(random.integers(1_000, 400_000))
        host = random.integers(0, 1 << 30, size, dtype=numpy.int64)
        with streams[i % 3]:
            numbers = cupy.asarray(host)
            ordered = cupy.sort(numbers)
            running = cupy.cumsum(ordered ^ (numbers >> 3))
            spectrum = cupy.fft.rfft(numbers[: size // 2 * 2].astype(cupy.float64))
            state.update(cupy.asnumpy(running).tobytes())
            state.update(cupy.asnumpy(spectrum).tobytes())
        side = 64 + i
        square = cupy.arange(side * side, dtype=cupy.float32).reshape(side, side) / side
        state.update(cupy.asnumpy(square @ square.T).tobytes())
        start = start or time.perf_counter()
    cupy.cuda.Device().synchronize()
    print(f"RESULT cupy {state.hexdigest()[:16]}")
    print(f"TIME {time.perf_counter() - start:.2f}", flush=True)


main()
